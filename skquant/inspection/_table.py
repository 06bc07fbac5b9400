"""What the functions of this package share: the table, and efficiency's gradients."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from skquant._validation import (
    check_labels,
    check_scores,
    check_weights,
    rank_tolerance,
)
from skquant.criteria import resolve_criterion
from skquant.information import (
    InformativeSubspace,
    criterion_coordinates,
    effective_sample_size,
    informative_subspace,
    require_full_rank,
    share_weights,
)


@dataclass(frozen=True)
class Table:
    """Rows of positive weight in the coordinates of a criterion.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Scores as given.
    points : ndarray of shape (n, r)
        Scores in the criterion's coordinates.
    shares : ndarray of shape (n,)
        Weights over their sum.
    used : ndarray of bool of shape (n_rows,)
        Which of the given rows these are.
    criterion : object
        Resolved criterion.
    subspace : InformativeSubspace
        Informative directions of the table.
    effective_size : float
        ``(sum w)^2 / sum w^2``.
    rank_rtol : float
        Relative tolerance of the rank.
    names : ndarray of str or None
        Column names.
    """

    X: np.ndarray
    points: np.ndarray
    shares: np.ndarray
    used: np.ndarray
    criterion: object
    subspace: InformativeSubspace
    effective_size: float
    rank_rtol: float
    names: np.ndarray | None

    def labels(self, labels, n_bins=None, name="labels"):
        """Return checked labels of these rows, and the number of cells."""
        labels, n_bins = check_labels(labels, len(self.used), n_bins, name)
        return labels[self.used], n_bins


def read_table(scores, sample_weight, criterion):
    """Validate scores and weights, and change to the criterion's coordinates."""
    X, names = check_scores(scores)
    weights = check_weights(sample_weight, X)
    tolerance = rank_tolerance(None, X.dtype)
    used = weights > 0
    X = X.astype(np.float64, copy=False)[used]
    weights = weights[used]
    criterion = resolve_criterion(
        criterion,
        X.shape[1],
        names,
        effective_sample_size=effective_sample_size(weights),
    )
    shares = share_weights(weights)
    subspace = informative_subspace(X, shares, tolerance)
    require_full_rank(criterion, subspace, names)
    return Table(
        X=X,
        points=X @ criterion_coordinates(criterion, subspace),
        shares=shares,
        used=used,
        criterion=criterion,
        subspace=subspace,
        effective_size=effective_sample_size(weights),
        rank_rtol=tolerance,
        names=names,
    )


def reported_criterion(criterion):
    """Return the criterion whose value orders tables as its efficiency does.

    A compound criterion reports the pure profiled retention, which is what its value
    says at nuisance weight 0.
    """
    if hasattr(criterion, "nuisance_retention"):
        return clone(criterion).set_params(nuisance_weight=0.0)
    return criterion


def efficiency_gradients(criterion, information, reference):
    """Return the efficiency's gradients in the retained and the full information.

    An efficiency is a function of the value, and of degree one in the retained
    information: that gives the factor between the two gradients. It does not change
    under one linear map of both matrices (a criterion of columns: it is the ratio of
    one function of both): that gives the gradient in the full information.

    Raises
    ------
    ValueError
        Where the criterion has no gradient, or its efficiency is not of degree one.
    """
    efficiency = criterion.efficiency(information, reference)
    half = criterion.efficiency(0.5 * information, reference)
    if not np.isclose(half, 0.5 * efficiency, rtol=1e-9, atol=0.0):
        raise ValueError(
            f"criterion {criterion!r} must have an efficiency of degree one in the "
            f"retained information; half of it has {half:.6g}, all of it "
            f"{efficiency:.6g}. Use method='bootstrap'."
        )
    pure = reported_criterion(criterion)

    def scaled(matrix, value):
        gradient = pure.gradient(matrix, reference)
        return gradient * (value / np.sum(gradient * matrix))

    in_retained = scaled(information, efficiency)
    if getattr(criterion, "needs_columns", False):
        return in_retained, -efficiency * scaled(reference, 1.0)
    product = np.linalg.solve(reference, information @ in_retained)
    return in_retained, -0.5 * (product + product.T)
