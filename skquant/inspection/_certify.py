"""A global certificate: branch and bound over all labelings of a small table."""

import time
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np

from skquant._checks import check_labels, single_threaded
from skquant._kernels.certify import search
from skquant._table import read_table
from skquant._tolerances import SINGULAR
from skquant.criteria import retained_eigensystem
from skquant.solvers._exchange import exchange
from skquant.solvers._interval import interval_cells
from skquant.solvers._problem import build_problem
from skquant.solvers._profiled_interval import one_of_interest, profiled_intervals
from skquant.solvers._search import search_partition

# Nodes between two looks at the clock and at Ctrl-C: some hundredths of a second.
_NODES_A_CALL = 100_000

# The search needs a good labeling to start from, not the best.
_N_INIT, _N_SWAPS = 4, 4


@dataclass(frozen=True, eq=False)
class PartitionCertificate:
    """How far a labeling is from the best one.

    Attributes
    ----------
    status : str
        ``"optimal"``, or ``"budget_exhausted"`` where nodes, time or the user ended
        the search, or there is none.
    efficiency : float
        Of ``labels``, in [0, 1].
    upper_bound : float
        No labeling has a larger efficiency, to a relative rounding of 1e-11, and of
        1e-14 times the condition number of nearly collinear columns.
    labels : ndarray of int32 of shape (n,)
        The best labeling found; 0 for rows of zero weight.
    incumbent_was_optimal : bool or None
        Whether the labeling that the search started from, the given one or else that
        of the exchange, is optimal; None where that is not known.
    n_nodes : int
        Bounds evaluated; 0 where another argument decides.
    """

    status: str
    efficiency: float
    upper_bound: float
    labels: np.ndarray
    incumbent_was_optimal: bool | None
    n_nodes: int

    @property
    def gap(self):
        """Upper bound minus efficiency; 0 when optimal."""
        return self.upper_bound - self.efficiency


class _Merit:
    """A criterion's efficiency as the kernel computes it."""

    def __init__(self, problem):
        criterion = problem.criterion
        r = len(problem.origin)
        coordinates = np.eye(r) if problem.columns is None else problem.columns
        self.first, self.power = 0, 1.0
        form = criterion.exchange_form
        if form == "linear":
            self.form = 0
        elif form == "log_det":
            self.form = 1
            terms = criterion.log_det_terms(r)
            if len(terms) > 1:
                # nuisance columns first: the other pivots are the Schur complement's
                nuisance = terms[1][1]
                rest = np.setdiff1d(np.arange(r), nuisance)
                coordinates = coordinates[:, np.append(nuisance, rest)]
                self.first = len(nuisance)
        elif criterion.exponent is not None:
            self.form, self.power = 2, criterion.exponent
            if self.power == 0.0:
                self.form = 1
        else:
            raise ValueError(
                "criterion must be one whose monotone bound is compiled: trace, D, A, "
                f"E, a power mean or profiled D; got {criterion!r}."
            )
        self.rounding = problem.rounding
        self.points = problem.points @ coordinates
        self.norms = np.sum((problem.points + problem.origin) ** 2, axis=1)
        self.full = coordinates.T @ problem.full_information() @ coordinates

    def efficiency(self, merit):
        """Return the efficiency of the kernel's number."""
        if self.form != 1:
            return min(1.0, merit)
        pivots = np.diag(np.linalg.cholesky(self.full))[self.first :] ** 2
        ratio = merit / np.prod(pivots)
        return float(min(1.0, ratio ** (1.0 / len(pivots))))

    def merit(self, efficiency):
        """Return the kernel's number of an efficiency."""
        if self.form != 1:
            return efficiency
        pivots = np.diag(np.linalg.cholesky(self.full))[self.first :] ** 2
        return efficiency ** len(pivots) * np.prod(pivots)


class _Search:
    """A branch and bound that can be continued."""

    def __init__(self, merit, weights, n_bins, start):
        n, r = merit.points.shape
        # Far atoms first: they are expensive to merge, so that the bound bites early.
        self._order = np.argsort(-merit.norms, kind="stable")
        self._arguments = (
            np.ascontiguousarray(merit.points[self._order]),
            np.ascontiguousarray(weights[self._order]),
            merit.form,
            merit.first,
            merit.power,
            merit.rounding,
        )
        self._bounds = np.zeros((n, n_bins))
        self._n_children = np.full(n + 1, -1, dtype=np.int32)
        self._position = np.zeros(n, dtype=np.int32)
        self._best_labels = np.full(n, -1, dtype=np.int32)
        self._best = np.array([start])
        self._depth = np.zeros(1, dtype=np.intp)
        matrices = np.empty((n + 1, r, r))
        matrices[0] = merit.full
        self._state = (
            matrices,
            np.zeros(n_bins),
            np.zeros((n_bins, r)),
            np.zeros(n),
            np.zeros((n, r)),
            np.zeros((n, n_bins), dtype=np.int32),
            self._bounds,
            self._n_children,
            self._position,
            np.zeros(n + 1, dtype=np.int32),
            self._best_labels,
            self._best,
            self._depth,
            np.empty(r * r + r),
        )
        self.n_nodes, self.exhausted = 0, False

    def run(self, max_nodes, time_limit):
        """Search until the end, a limit, or the user's interrupt."""
        started = time.monotonic()
        try:
            while not self.exhausted:
                left = max_nodes - self.n_nodes
                if left <= 0 or time.monotonic() - started >= time_limit:
                    break
                nodes, self.exhausted = search(
                    *self._arguments, min(left, _NODES_A_CALL), *self._state
                )
                self.n_nodes += nodes
        except KeyboardInterrupt:
            # the kernel has returned, or was not entered: the state is whole
            pass

    def labels(self):
        """Return the labels of a better labeling than the start, or None."""
        if self._best_labels[0] < 0:
            return None
        labels = np.empty_like(self._best_labels)
        labels[self._order] = self._best_labels
        return labels

    def open_merit(self):
        """Return the largest bound of what was not searched; the best if none is."""
        largest = self._best[0]
        if self.exhausted:
            return largest
        depth = self._depth[0]
        if depth == 0 and self._n_children[0] < 0:
            return np.inf
        for t in range(depth + 1):
            if t == len(self._bounds) or self._n_children[t] < 0:
                # not expanded: as good as the bound of the child that led here
                largest = max(largest, self._bounds[t - 1, self._position[t - 1]])
                continue
            first = self._position[t] + (t < depth)
            open_bounds = self._bounds[t, first : self._n_children[t]]
            largest = max(largest, open_bounds.max(initial=-np.inf))
        return largest


def _without_search(problem, n_bins):
    """Return an optimal labeling that needs no search, or None."""
    n_atoms, r = problem.points.shape
    if n_bins == n_atoms:
        return np.arange(n_atoms, dtype=np.int32)
    if r == 1:
        return interval_cells(problem.points[:, 0], problem.weights, n_bins)[0]
    if problem.base is None and _all_singular(problem, n_bins):
        return np.zeros(n_atoms, dtype=np.int32)
    return None


def _all_singular(problem, n_bins):
    """Whether the efficiency of every labeling is 0: too few cells for the rank."""
    r = len(problem.origin)
    centred = np.sum(problem.origin**2) <= SINGULAR * r
    full = problem.full_information()
    _, vectors = retained_eigensystem(full, np.eye(r))
    part = vectors[:, 1:] @ vectors[:, 1:].T
    return n_bins < r + centred and problem.efficiency(part) == 0.0


@single_threaded
def certify_partition(
    scores,
    n_bins,
    labels=None,
    sample_weight=None,
    *,
    criterion="D",
    max_nodes=200_000_000,
    time_limit=60.0,
):
    """Prove a labeling optimal among all, or bound what a better one could keep.

    Branch and bound over the labelings of the distinct rows. Every unassigned row as
    a cell of its own keeps, in the Loewner order, at least what any completion keeps,
    and every criterion here grows in that order. Rows far from the origin are
    assigned first, in whitened coordinates, and cells are opened in order. Tables of
    rank one are solved exactly by the interval program, at any size. Profiled
    criteria are certified in the retention that they report, at nuisance weight 0.
    For one parameter of interest, others profiled out, ``upper_bound`` is at most that
    of ``IntervalQuantizer``; with a prior it is that one, at any size, and there is no
    search.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event. They are not centred.
    n_bins : int
        Number of cells K; labelings with fewer are among those compared.
    labels : array-like of int of shape (n,), default=None
        The labeling to certify, identical rows in one cell; None: that of an exchange
        (for E under the A criterion).
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        One of the package's own criteria.
    max_nodes : int, default=200_000_000
        Bounds to evaluate at most.
    time_limit : float, default=60.0
        Seconds after which the search ends.

    Returns
    -------
    certificate : PartitionCertificate
        With the status ``"budget_exhausted"`` after ``max_nodes``, ``time_limit`` or
        Ctrl-C: the bound holds, optimality is not claimed.

    Raises
    ------
    ValueError
        For invalid input, identical rows with different labels, or a criterion
        without a compiled bound.

    References
    ----------
    .. [1] A. H. Land, A. G. Doig, "An automatic method of solving discrete
       programming problems", Econometrica 28 (1960). https://doi.org/10.2307/1910129

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.inspection import certify_partition
    >>> scores = np.random.default_rng(0).normal(size=(20, 2))
    >>> certificate = certify_partition(scores, n_bins=3)
    >>> certificate.status, certificate.incumbent_was_optimal, certificate.gap
    ('optimal', True, 0.0)
    """
    for name, value in (("n_bins", n_bins), ("max_nodes", max_nodes)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a positive integer; got {value!r}.")
    if not isinstance(time_limit, Real) or not time_limit >= 0:
        raise ValueError(f"time_limit must be a number >= 0; got {time_limit!r}.")
    table = read_table(scores, sample_weight, criterion, takes_prior=True)
    reported = table.criterion.reported()
    problem, atoms = build_problem(
        table.X,
        table.shares,
        reported,
        table.rank_rtol,
        np.random.RandomState(0),
        table.names,
    )
    interest = one_of_interest(problem)
    with_prior = problem.base is not None
    if with_prior and interest is None:
        raise ValueError(
            "criterion with a prior must be profiled, with one parameter of interest: "
            f"there is no bound for others; got {criterion!r}."
        )
    merit = None if with_prior else _Merit(problem)
    given = None
    if labels is not None:
        labels, _ = check_labels(labels, len(table.used), n_bins)
        of_row = labels[table.used]
        given = of_row[atoms.first_row]
        if not np.array_equal(given[atoms.of_row], of_row):
            raise ValueError(
                "labels must give identical rows one label; got different labels for "
                f"{np.count_nonzero(given[atoms.of_row] != of_row)} repeated rows."
            )

    def efficiency(labels):
        return problem.efficiency(problem.label_information(labels, n_bins))

    n_cells = min(n_bins, len(problem.points))
    found, n_nodes, optimal = _without_search(problem, n_cells), 0, True
    upper = -np.inf
    if found is None and with_prior:
        learned = profiled_intervals(problem, n_cells, interest)
        found = exchange(problem, learned.labels, n_cells).labels
        incumbent = found if given is None else given
        found = max(found, learned.labels, incumbent, key=efficiency)
        upper = learned.upper_bound
        optimal = efficiency(found) >= upper * (1.0 - problem.rounding)
    elif found is None:
        # the first criterion of a continuation leads near enough to the last
        first = problem.with_criterion(reported.continuation()[0])
        found = search_partition(
            first, n_cells, np.random.RandomState(0), n_init=_N_INIT, n_swaps=_N_SWAPS
        ).labels
        incumbent = found if given is None else given
        found = max(found, incumbent, key=efficiency)
        tree = _Search(merit, problem.weights, n_cells, merit.merit(efficiency(found)))
        tree.run(max_nodes, time_limit)
        better = tree.labels()
        found = found if better is None else better
        n_nodes, optimal = tree.n_nodes, tree.exhausted
        if not optimal:
            upper = merit.efficiency(tree.open_merit())
            if interest is not None:
                learned = profiled_intervals(problem, n_cells, interest)
                upper = min(upper, learned.upper_bound)
    else:
        incumbent = found if given is None else given
    best = efficiency(found)
    incumbent_was_optimal = None
    if efficiency(incumbent) < best * (1.0 - problem.rounding):
        incumbent_was_optimal = False
    elif optimal:
        incumbent_was_optimal = True
    every = np.zeros(len(table.used), dtype=np.int32)
    every[table.used] = found[atoms.of_row]
    return PartitionCertificate(
        status="optimal" if optimal else "budget_exhausted",
        efficiency=best,
        upper_bound=max(best, upper),
        labels=every,
        incumbent_was_optimal=incumbent_was_optimal,
        n_nodes=n_nodes,
    )
