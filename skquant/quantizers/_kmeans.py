"""The trace criterion: weighted k-means in whitened coordinates."""

from numbers import Integral, Real

import numpy as np

from skquant._checks import Interval
from skquant._moments import cell_moments, row_blocks
from skquant.criteria import NormalizedTrace
from skquant.quantizers._base import BaseQuantizer
from skquant.solvers._limited import limit_solution
from skquant.solvers._search import search_partition
from skquant.solvers._soft_search import center_rule
from skquant.solvers._solution import Solution, Status

# Random swaps of one cell reach what many more starts would not.
_SWAPS_A_START = 3


class KMeansQuantizer(BaseQuantizer):
    """Weighted k-means in whitened coordinates, polished by exact exchange.

    The trace of the retained matrix is what k-means maximizes in coordinates in
    which the full information is the identity. Each start of scikit-learn's k-means
    is followed by relocation of single rows, so its inertia only falls, and the rule,
    nearest mean, reproduces the labels. The best start is then improved by random
    swaps, three a start: one cell's center is replaced by a random row, and the result
    kept if it is better. On thousands of rows the starts are k-means++ seeds, starts
    and swaps see means of neighboring rows, and the relocation at the end all of them.

    Parameters
    ----------
    n_bins : int, default=8
        Number of cells K.
    criterion : {"trace", "D", "A", "E"} or object, default="trace"
        Chooses the winning start, and is what ``score`` reports.
    n_init : int, default=8
        Number of starts.
    max_iter : int, default=300
        Most iterations of k-means, and most full passes of the exchange.
    tol : float, default=1e-6
        Relative tolerance of k-means. On thousands of rows, where the starts are seeds
        alone, it has no effect.
    constraints : CellConstraints, default=None
        Limits that every cell of the deployed rule has to satisfy on the training table
        (see Notes).
    negative_weights : {"error", "merge"}, default="error"
        Whether negative weights are refused, or their rows merged with neighbors until
        every weight is positive. The fit is then that of the merged rows.
    rank_rtol : float, default=1e-10
        Relative tolerance of the rank; 1e-6 at least for float32 scores.
    n_jobs : int, default=None
        Threads over the starts. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Seed of the starts.
    verbose : int, default=0
        Whether to print one line a start.

    Attributes
    ----------
    n_bins_ : int
        Cells obtained; fewer than ``n_bins`` only with fewer distinct rows.
    labels_ : ndarray of int32 of shape (n,)
        Cell of each training row.
    cell_weights_ : ndarray of shape (K,)
        Total weight of each cell.
    cell_means_ : ndarray of shape (K, d)
        Mean score of each cell.
    inertia_ : float
        Weighted sum of squared whitened distances to the cell means; total weight.
    information_, binned_information_ : ndarray of shape (d, d)
        Full and retained information per unit of total weight.
    criterion_ : object
        The criterion, resolved for the table.
    retention_ : float
        Efficiency of ``labels_`` on the training table.
    rule_ : AffineMaxRule
        The frozen rule.
    rule_agreement_ : float
        Weighted share of training rows whose ``predict`` equals ``labels_``: 1.
    rank_ : int
        Number of informative directions.
    n_iter_ : int
        Full passes of the winning exchange.
    constraint_report_ : ConstraintReport
        How the cells meet their limits, and what those cost; with ``constraints`` only.
    merged_weight_share_, merged_radius_ : float
        With ``negative_weights="merge"``: the share of the absolute weight in rows that
        were merged with different ones, and their mean distance from the middle of the
        merged, in whitened coordinates, where the root mean square of a score is the
        root of ``rank_``. Merged rows share a label.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str of shape (d,)
        Names of the columns, if they have any.

    See Also
    --------
    DExchangeQuantizer : Other criteria, by exact exchange.

    Notes
    -----
    With ``constraints`` the rule without limits is repaired: offsets of cells that lack
    something are raised, and slopes and offsets improved by turns; tables of up to 24
    distinct rows are searched by exchanging rows, besides. ``labels_`` are then those
    of the rule. Cells are then those of nearest centers with an offset each.

    References
    ----------
    .. [1] J. A. Hartigan, M. A. Wong, "Algorithm AS 136: A K-Means Clustering
       Algorithm", J. R. Stat. Soc. C 28 (1979). https://doi.org/10.2307/2346830

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import KMeansQuantizer
    >>> scores = np.random.default_rng(0).normal(size=(500, 2))
    >>> quantizer = KMeansQuantizer(n_bins=4, random_state=0).fit(scores)
    >>> round(quantizer.score(scores), 2)
    0.64
    """

    _parameter_constraints: dict = {
        **BaseQuantizer._parameter_constraints,
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_bins=8,
        *,
        criterion="trace",
        n_init=8,
        max_iter=300,
        tol=1e-6,
        constraints=None,
        negative_weights="error",
        rank_rtol=1e-10,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_bins = n_bins
        self.criterion = criterion
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.constraints = constraints
        self.negative_weights = negative_weights
        self.rank_rtol = rank_rtol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _solve(self, problem, n_bins, atoms, random_state):
        trace = problem.whitened(NormalizedTrace())
        partition = search_partition(
            trace,
            n_bins,
            random_state,
            n_init=self.n_init,
            n_swaps=_SWAPS_A_START * self.n_init,
            selection=problem,
            kmeans_options={"max_iter": self.max_iter, "tol": self.tol},
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            max_iter=self.max_iter,
        )
        _, means = cell_moments(
            problem.points, problem.weights, partition.labels, n_bins
        )
        coef, intercept = center_rule(means)
        solution = Solution(
            labels=None,
            coef=coef,
            intercept=intercept,
            n_iter=partition.n_iter,
            status=Status.ended(partition.converged),
        )
        return limit_solution(problem, atoms, solution, objective=trace)

    def _adopt_cells(self, problem, atoms, solution, order):
        labels = atoms.labels(self.labels_)
        _, means = cell_moments(problem.points, problem.weights, labels, self.n_bins_)
        inertia = 0.0
        for block, _ in row_blocks(len(labels)):
            offsets = problem.points[block] - means[labels[block]]
            inertia += problem.weights[block] @ np.sum(offsets**2, axis=1)
        self.inertia_ = float(self.cell_weights_.sum() * inertia)
