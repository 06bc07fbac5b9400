"""Deterministic rules with the cell weights and moments of randomized ones."""

from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skquant._checks import (
    check_responsibilities,
    check_scores,
    check_weights,
    single_threaded,
)
from skquant._moments import share_weights
from skquant._table import informative_subspace, merge_rows
from skquant._tolerances import RANK_RTOL
from skquant._warnings import warn_user
from skquant.rules import AffineMaxRule
from skquant.solvers._purify import purify_moments

__all__ = ["PurificationResult", "QuadraticMaxRule", "purify"]

# Orders of the curvatures to try, unless one comes this far below the floor.
_TRIALS = 6
_GOOD_ENOUGH = 0.1


@dataclass(frozen=True, eq=False)
class QuadraticMaxRule:
    """Label a score by the largest of K quadratic functions with one common form.

    The functions are affine in the whitened score ``z`` and in ``|z|^2``.

    Attributes
    ----------
    center : ndarray of shape (d,)
        Origin of the whitened coordinates, in units of the scores.
    whitener : ndarray of shape (d, r)
        ``z = (s - center) @ whitener``.
    lifted : AffineMaxRule
        Rule of the columns ``z_1, ..., z_r, |z|^2``.
    cells : ndarray of int32
        Label of each cell of ``lifted``.
    """

    center: np.ndarray
    whitener: np.ndarray
    lifted: AffineMaxRule
    cells: np.ndarray

    def predict(self, X):
        """Return the label of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Returns
        -------
        labels : ndarray of int32 of shape (n,)
            In ``0..K-1``.

        Raises
        ------
        ValueError
            For a table with another number of columns or entries that are not
            finite.
        """
        X, _ = check_scores(X)
        if X.shape[1] != len(self.center):
            raise ValueError(
                f"X must have {len(self.center)} columns; got {X.shape[1]}."
            )
        shifted = X - self.center
        points = np.zeros((len(X), self.whitener.shape[1] + 1))
        # column by column: the sums do not depend on the batch
        for column, weights in zip(shifted.T, self.whitener, strict=True):
            points[:, :-1] += column[:, None] * weights
        for column in points.T[:-1]:
            points[:, -1] += column**2
        return self.cells[self.lifted.predict(points)]


@dataclass(frozen=True, eq=False)
class PurificationResult:
    """A deterministic labeling with the moments of a randomized one.

    Attributes
    ----------
    labels : ndarray of int32 of shape (n,)
        ``rule.predict(scores)``.
    rule : QuadraticMaxRule
        The deterministic rule of score space.
    weight_residual : ndarray of shape (K,)
        Weight of each cell less that of the randomized rule; total weight.
    moment_residual : ndarray of shape (K, d)
        The same of the moments; total weight times score.
    floor : float
        ``K (d + 1)`` times the weight of the heaviest row, identical ones merged,
        over the total weight: no smaller residual can be promised for a finite
        table.
    n_iter : int
        Newton steps of the trial that was kept.
    """

    labels: np.ndarray
    rule: QuadraticMaxRule
    weight_residual: np.ndarray
    moment_residual: np.ndarray
    floor: float
    n_iter: int


@single_threaded
def purify(scores, responsibilities, sample_weight=None):
    """Replace a randomized rule by a deterministic one with the same cell moments.

    For a law of scores without atoms the theorem of Dvoretzky, Wald and Wolfowitz
    promises a deterministic rule with exactly the cell weights and moments, hence
    exactly the information, of any randomized one. It is an existence statement, and
    a finite table is all atoms. What this function does is constructive and
    approximate: it gives every cell its own curvature, solves the convex dual of
    matching weights and moments at a falling temperature, for a few orders of the
    curvatures, and keeps the labels that match best. The residual is of the order of
    the rows that lie on boundaries, about ``K (d + 1)`` of them at most, so a table
    of few or of heavy rows cannot be purified; the result says how close it came.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    responsibilities : array-like of shape (n, K)
        Probability of each cell for each row; rows sum to one.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.

    Returns
    -------
    result : PurificationResult
        Labels, rule and residuals.

    Raises
    ------
    ValueError
        For invalid scores or weights, or rows that are not probability vectors.

    Warns
    -----
    ConvergenceWarning
        If the residual, whitened, is above four times the floor.

    References
    ----------
    .. [1] A. Dvoretzky, A. Wald, J. Wolfowitz, "Elimination of randomization in
       certain statistical decision procedures and zero-sum two-person games", Ann.
       Math. Statist. 22 (1951). https://doi.org/10.1214/aoms/1177729689
    .. [2] M. A. Khan, K. P. Rath, Y. Sun, "The Dvoretzky-Wald-Wolfowitz theorem and
       purification in atomless finite-action games", Int. J. Game Theory 34 (2006).
       https://doi.org/10.1007/s00182-005-0004-3

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import SoftVoronoiQuantizer
    >>> from skquant.purification import purify
    >>> scores = np.random.default_rng(0).normal(size=(2000, 2))
    >>> soft = SoftVoronoiQuantizer(
    ...     n_bins=4, solver="adam", temperature_end_ratio=0.5, random_state=0
    ... ).fit(scores)
    >>> result = purify(scores, soft.predict_proba(scores))
    >>> bool(abs(result.weight_residual).max() < 0.002 * len(scores))
    True
    """
    X, _ = check_scores(scores)
    X = X.astype(np.float64, copy=False)
    weights = check_weights(sample_weight, X)
    responsibilities = check_responsibilities(responsibilities, len(X))
    # identical rows are one atom, whatever their number and order
    of_row, first_row, atom_weights = merge_rows(X, weights / weights.max())
    used = of_row >= 0
    randomized = np.column_stack(
        [
            np.bincount(of_row[used], weights=column) / atom_weights
            for column in (responsibilities[used].T * (weights / weights.max())[used])
        ]
    )
    # any subsample of the first atoms is random; the seed is fixed
    shuffle = np.random.RandomState(0).permutation(len(first_row))
    table, randomized = X[first_row[shuffle]], randomized[shuffle]
    shares = share_weights(atom_weights[shuffle])
    subspace = informative_subspace(table, shares, RANK_RTOL)
    center = shares @ (table / subspace.scale) * subspace.scale
    points = (table - center) @ subspace.whitener
    cells = np.flatnonzero(shares @ randomized > 0)
    n_bins = responsibilities.shape[1]
    floor = n_bins * (X.shape[1] + 1) * shares.max()
    solved = purify_moments(
        points, shares, randomized[:, cells], _TRIALS, _GOOD_ENOUGH * floor
    )

    coef = np.column_stack([-solved.theta[:, 1:], solved.kappa])
    rule = QuadraticMaxRule(
        center=center,
        whitener=subspace.whitener,
        lifted=AffineMaxRule(coef, -solved.theta[:, 0]),
        cells=cells.astype(np.int32),
    )
    labels = rule.predict(X)
    difference = np.eye(n_bins)[labels] - responsibilities
    if solved.residual > 4.0 * floor:
        warn_user(
            f"the moments of the labels differ by {solved.residual:.3g} of the weight "
            f"from those of the responsibilities, above four times the floor of "
            f"{floor:.3g} that the heaviest row sets.",
            ConvergenceWarning,
        )
    return PurificationResult(
        labels=labels,
        rule=rule,
        weight_residual=weights @ difference,
        moment_residual=difference.T @ (weights[:, None] * X),
        floor=floor,
        n_iter=solved.n_iter,
    )
