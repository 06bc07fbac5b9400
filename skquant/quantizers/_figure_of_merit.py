"""Rules that maximize any figure of merit of hard labels."""

from numbers import Integral, Real

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import _safe_indexing

from skquant._checks import Interval, StrOptions, check_weights
from skquant._moments import cell_moments
from skquant.quantizers._base import BaseQuantizer, original_logits
from skquant.rules import AffineMaxRule
from skquant.solvers._black_box import optimize_rule
from skquant.solvers._limited import lift, limit_solution
from skquant.solvers._search import search_partition
from skquant.solvers._soft import FAMILIES, nearest_center_distance
from skquant.solvers._soft_search import center_rule, partition_rule
from skquant.solvers._solution import Solution


class FigureOfMeritQuantizer(BaseQuantizer):
    """Maximize a black-box figure of the labels by smoothing the rule's parameters.

    A figure of hard labels is piecewise constant: it has no gradient. Averaged over
    Gaussian perturbations of the rule it has one, estimated from differences of the
    figure itself (evolution strategies, central differences with common random
    numbers). The fit starts from a D-optimal rule and never ends below it on the
    training rows.

    Parameters
    ----------
    figure : callable
        ``figure(labels, X, y, sample_weight) -> float``, larger is better: labels is
        an int32 array of shape (n,) in ``0..n_bins-1``, X the scores (n, d), y what was
        given to ``fit`` or ``score``, and sample_weight an array (n,), of ones if none
        was given; rows of weight zero are left out. It must be finite, also where a
        cell is empty. Cells keep the numbers that they have at the start, in
        ascending order of their means there (or those of the rule ``init``), so that
        a figure may depend on them.
    n_bins : int, default=8
        Number of cells.
    criterion : {"trace", "D", "A", "E"} or criterion object, default="D"
        What the start maximizes, and what ``retention_`` reports.
    init : "d_exchange" or AffineMaxRule, default="d_exchange"
        The start: a partition by exchange, from restarts and random swaps, or a rule.
    family : {"affine_max", "voronoi"}, default="affine_max"
        Free slopes and offsets, or centers in whitened coordinates. Only the first
        contains every start; the second starts from the cell means.
    method : {"central", "forward"}, default="central"
        How the gradient is estimated; "central" costs two figures a draw and is less
        noisy.
    sigma : float, default=0.1
        Standard deviation of the perturbations, in units of the median distance of
        neighboring centers of the start.
    step_size : float, default=0.05
        Step a parameter, in the same unit.
    max_iter : int, default=100
        Iterations. Each costs ``2 n_samples + 1`` figures of the training rows.
    n_samples : int, default=16
        Draws an iteration.
    constraints : CellConstraints, default=None
        Limits that every cell of the rule has to satisfy on the training table. The
        figure is that of rules whose offsets were raised until it does; what the report
        says about the retention without limits, and with each, is that of the start.
    negative_weights : {"error", "merge"}, default="error"
        Whether negative weights are refused, or their rows merged with neighbors until
        every weight is positive. The fit is then that of the merged rows.
    rank_rtol : float, default=1e-10
        Relative tolerance of the rank of the table.
    n_jobs : int, default=None
        Figures evaluated at a time, through joblib. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the start and of the perturbations.
    verbose : int, default=0
        Whether to print the start and the result.

    Attributes
    ----------
    figure_ : float
        Figure of the rule on the training rows, in the unit of ``figure``.
    start_figure_ : float
        That of the start.
    history_ : ndarray of shape (max_iter + 1,)
        Figure of the current rule, iteration by iteration.
    labels_ : ndarray of int32 of shape (n,)
        Labels of the training rows, by the rule.
    rule_ : AffineMaxRule
        The frozen rule.
    n_bins_, n_iter_, retention_, cell_means_, cell_weights_, information_, \
binned_information_, rank_, criterion_, rule_agreement_, merged_weight_share_, \
merged_radius_, constraint_report_
        As in `DExchangeQuantizer`.

    See Also
    --------
    SoftVoronoiQuantizer : For criteria of information, which have gradients.
    skquant.relaxation.optimize_rule : The optimizer.

    References
    ----------
    .. [1] T. Salimans et al., "Evolution Strategies as a Scalable Alternative to
       Reinforcement Learning", arXiv:1703.03864.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import FigureOfMeritQuantizer
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(300, 2))
    >>> def lightest_cell(labels, X, y, sample_weight):
    ...     return np.bincount(labels, sample_weight, minlength=4).min() / len(labels)
    >>> quantizer = FigureOfMeritQuantizer(
    ...     lightest_cell, n_bins=4, max_iter=20, random_state=0
    ... ).fit(scores)
    >>> quantizer.figure_ >= quantizer.start_figure_
    True
    >>> quantizer.score(scores) == quantizer.figure_
    True
    """

    _parameter_constraints: dict = {
        **BaseQuantizer._parameter_constraints,
        "figure": [callable],
        "init": [StrOptions({"d_exchange"}), AffineMaxRule],
        "family": [StrOptions(set(FAMILIES))],
        "method": [StrOptions({"central", "forward"})],
        "sigma": [Interval(Real, 0, None, closed="neither")],
        "step_size": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_samples": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        figure,
        n_bins=8,
        *,
        criterion="D",
        init="d_exchange",
        family="affine_max",
        method="central",
        sigma=0.1,
        step_size=0.05,
        max_iter=100,
        n_samples=16,
        constraints=None,
        negative_weights="error",
        rank_rtol=1e-10,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.figure = figure
        self.n_bins = n_bins
        self.criterion = criterion
        self.init = init
        self.family = family
        self.method = method
        self.sigma = sigma
        self.step_size = step_size
        self.max_iter = max_iter
        self.n_samples = n_samples
        self.constraints = constraints
        self.negative_weights = negative_weights
        self.rank_rtol = rank_rtol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_table(self, X, y, weights, atoms):
        if isinstance(self.init, AffineMaxRule):
            wanted = (self.n_bins, X.shape[1])
            if self.init.coef.shape != wanted:
                raise ValueError(
                    f"init must be a rule of n_bins={self.n_bins} cells and "
                    f"{X.shape[1]} features; got one of shape {self.init.coef.shape}."
                )
        super()._check_table(X, y, weights, atoms)
        self._table = _used_rows(X, y, weights)

    def _start(self, problem, n_bins, atoms, random_state):
        if isinstance(self.init, AffineMaxRule):
            coef = self.init.coef[:n_bins]
            intercept = self.init.intercept[:n_bins] + coef @ atoms.center
            slopes, offsets = coef @ atoms.subspace.basis.T, intercept
            return (
                center_rule(slopes) if self.family == "voronoi" else (slopes, offsets)
            )
        labels = search_partition(
            problem, n_bins, random_state, n_init=8, n_swaps=20, n_jobs=self.n_jobs
        ).labels
        shares, means = cell_moments(problem.points, problem.weights, labels, n_bins)
        if self.family == "voronoi":
            slopes, offsets = center_rule(means)
        else:
            slopes, offsets = partition_rule(problem, labels, n_bins)
        # in original coordinates, where every quantizer orders its cells
        order = super()._cell_order(shares, means @ atoms.subspace.basis)
        return slopes[order], offsets[order]

    def _cell_order(self, cell_shares, means):
        return np.arange(len(means))

    def _solve(self, problem, n_bins, atoms, random_state):
        X, y, weights = self._table
        del self._table
        slopes, offsets = self._start(problem, n_bins, atoms, random_state)
        family, unit = FAMILIES[self.family], nearest_center_distance(slopes)
        start = Solution(labels=None, coef=slopes, intercept=offsets, n_iter=0)
        start = limit_solution(problem, atoms, start)

        def logits_of(parameters):
            logits = family.logits(parameters, unit)
            if atoms.limits is None:
                return logits
            lifted = lift(problem, atoms.limits, logits)
            return (start.coef, start.intercept) if lifted is None else lifted[0]

        def rule_of(parameters):
            return AffineMaxRule(*original_logits(*logits_of(parameters), atoms))

        def evaluate(parameters):
            return self.figure(rule_of(parameters).predict(X), X, y, weights)

        def batch(function, points):
            return Parallel(n_jobs=self.n_jobs, require="sharedmem")(
                delayed(function)(each) for each in points
            )

        found = optimize_rule(
            evaluate,
            family.pack(slopes, offsets, unit),
            sigma=self.sigma,
            step_size=self.step_size,
            n_iter=self.max_iter,
            method=self.method,
            n_samples=self.n_samples,
            batch=batch,
            random_state=random_state,
        )
        if self.verbose:
            print(
                f"figure {found.history[0]:.9g} -> {found.fun:.9g} in {found.nit} "
                f"iterations, {found.nfev} evaluations"
            )
        coef, intercept = logits_of(found.x)
        return Solution(
            labels=None,
            coef=coef,
            intercept=intercept,
            n_iter=found.nit,
            attributes={
                "figure_": found.fun,
                "start_figure_": float(found.history[0]),
                "history_": found.history,
            },
            retentions=start.retentions,
        )

    def score(self, X, y=None, sample_weight=None):
        """Return the figure of the frozen rule on given rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores, better not those of the training rows.
        y : array-like of shape (n,) or None, default=None
            Handed to the figure.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights.

        Returns
        -------
        figure : float
            In the unit of ``figure``; larger is better.
        """
        X = self._validated(X)
        weights = check_weights(
            sample_weight, X, signed=self.negative_weights == "merge"
        )
        X, y, weights = _used_rows(X, y, weights)
        return float(self.figure(self.rule_.predict(X), X, y, weights))


def _used_rows(X, y, weights):
    """Rows whose weight is not zero: the others are as if absent."""
    used = weights != 0
    if used.all():
        return X, y, weights
    y = None if y is None else _safe_indexing(y, np.flatnonzero(used))
    return X[used], y, weights[used]
