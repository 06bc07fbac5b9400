"""Free labels by exact exchange, and the rule that reproduces them."""

from dataclasses import replace
from numbers import Integral, Real

import numpy as np

from skquant._checks import Interval, StrOptions, check_labels
from skquant.criteria import NormalizedTrace
from skquant.quantizers._base import BaseQuantizer
from skquant.solvers._assignment import largest_logit
from skquant.solvers._exchange import best_remaining_gain, exchange
from skquant.solvers._limited import limit_solution
from skquant.solvers._profiled_interval import one_of_interest, profiled_intervals
from skquant.solvers._search import search_partition
from skquant.solvers._soft import hard_information
from skquant.solvers._soft_search import anneal_rule, partition_rule
from skquant.solvers._solution import Solution, Status


class DExchangeQuantizer(BaseQuantizer):
    """Cells by exact relocation of single rows, under any criterion.

    From several starts, any move of one row to another cell that raises the
    criterion is made, until none is left; then random swaps of cells look for a
    better basin. On thousands of rows starts and swaps see means of neighboring rows,
    the exchange at the end all of them. At such a partition under D-optimality every
    row is nearest, in the metric of the inverse retained information, to the mean of
    its own cell, so the labels are those of a rule of score space. Under other
    criteria the same rule with the criterion's gradient as metric is close;
    ``rule_agreement_`` says how close.

    Parameters
    ----------
    n_bins : int, default=8
        Number of cells K.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        What is maximized. A user's object without a closed form takes a slower
        path; unless it declares ``concave = True`` its stability is not certified.
    init : {"kmeans", "random"} or array-like of int of shape (n,), default="kmeans"
        Starts: the Voronoi cells of k-means++ seeds in whitened coordinates or of
        random rows, or one given labeling with labels in ``0..n_bins-1``. For one
        parameter of interest with a prior the start is not drawn: it is the
        intervals of ``IntervalQuantizer``, without swaps.
    n_init : int, default=8
        Number of starts; one for a given labeling.
    n_swaps : int, default=20
        Number of random swaps after the starts; fewer once a fifth of them, five at
        least, have led back to the best partition.
    max_iter : int, default=None
        Most full passes over the rows in one exchange; None is no limit.
    gain_tol : float, default=1e-12
        Gain in value per unit of the row's share of the weight below which a move
        is not made.
    min_bin_weight : float, default=0.0
        Share of the total weight that no move may leave a cell below.
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
        Seed of starts and swaps.
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
    information_, binned_information_ : ndarray of shape (d, d)
        Full and retained information per unit of total weight.
    criterion_ : object
        The criterion, resolved for the table.
    retention_ : float
        Efficiency of ``labels_`` on the training table.
    nuisance_retention_ : float
        Smallest retained eigenvalue of the nuisance block; profiled criterion only.
    rule_ : AffineMaxRule
        The frozen rule.
    rule_agreement_ : float
        Weighted share of training rows whose ``predict`` equals ``labels_``.
    rank_ : int
        Number of informative directions.
    n_iter_ : int
        Full passes over the rows of the winning exchange.
    n_moves_ : int
        Relocations of the winning exchange.
    is_stable_ : bool
        Whether the last pass, from exactly rebuilt moments, found no allowed move
        that gains. Under E this is a weak certificate: single moves rarely raise
        several coalescing eigenvalues at once.
    best_remaining_gain_ : float
        Largest gain in value of any allowed move; negative at a strict optimum.
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
    KMeansQuantizer : The trace criterion, fast and simple.
    SoftVoronoiQuantizer : Fits a rule, not labels, by annealing.

    Notes
    -----
    With ``constraints`` the rule without limits is repaired: offsets of cells that lack
    something are raised, and slopes and offsets improved by turns; tables of up to 24
    distinct rows are searched by exchanging rows, besides. ``labels_`` are then those
    of the rule. ``n_iter_`` and ``n_moves_`` are those before the repair;
    ``is_stable_`` and ``best_remaining_gain_`` are about moves that the limits allow.

    References
    ----------
    .. [1] V. V. Fedorov, "Theory of Optimal Experiments", Academic Press, 1972
       (exchange algorithms).
    .. [2] P. Franti, "Efficiency of random swap clustering", J. Big Data 5 (2018).
       https://doi.org/10.1186/s40537-018-0122-y

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import DExchangeQuantizer
    >>> scores = np.random.default_rng(0).normal(size=(500, 2))
    >>> quantizer = DExchangeQuantizer(n_bins=4, random_state=0).fit(scores)
    >>> quantizer.is_stable_, quantizer.rule_agreement_
    (True, 1.0)
    >>> bool((quantizer.predict(scores) == quantizer.labels_).all())
    True
    """

    _parameter_constraints: dict = {
        **BaseQuantizer._parameter_constraints,
        "init": [StrOptions({"kmeans", "random"}), "array-like"],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "n_swaps": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "gain_tol": [Interval(Real, 0, None, closed="left")],
        "min_bin_weight": [Interval(Real, 0, 1, closed="both")],
    }

    def __init__(
        self,
        n_bins=8,
        *,
        criterion="D",
        init="kmeans",
        n_init=8,
        n_swaps=20,
        max_iter=None,
        gain_tol=1e-12,
        min_bin_weight=0.0,
        constraints=None,
        negative_weights="error",
        rank_rtol=1e-10,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_bins = n_bins
        self.criterion = criterion
        self.init = init
        self.n_init = n_init
        self.n_swaps = n_swaps
        self.max_iter = max_iter
        self.gain_tol = gain_tol
        self.min_bin_weight = min_bin_weight
        self.constraints = constraints
        self.negative_weights = negative_weights
        self.rank_rtol = rank_rtol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _initial_labels(self, atoms, n_bins):
        if isinstance(self.init, str):
            return self.init
        labels, _ = check_labels(self.init, len(atoms.of_row), self.n_bins, "init")
        used = atoms.of_row >= 0
        of_atom = atoms.labels(labels)
        unlike = labels[used] != of_atom[atoms.of_row[used]]
        if unlike.any():
            raise ValueError(
                "init must give identical rows one label, and rows that are merged "
                "for their negative weights; got different labels for "
                f"{np.count_nonzero(unlike)} repeated or merged rows."
            )
        if len(of_atom) == n_bins:
            return np.arange(n_bins, dtype=np.int32)
        missing = sorted(set(range(n_bins)) - set(of_atom.tolist()))
        if missing:
            raise ValueError(
                f"init must use every label in 0..{n_bins - 1} on rows of positive "
                f"weight; got no row of {missing}."
            )
        return of_atom

    def _solve(self, problem, n_bins, atoms, random_state):
        options = dict(min_bin_weight=self.min_bin_weight)
        search = dict(
            init=self._initial_labels(atoms, n_bins),
            n_init=self.n_init,
            n_swaps=self.n_swaps,
            n_jobs=self.n_jobs,
            verbose=self.verbose,
            max_iter=self.max_iter,
            gain_tol=self.gain_tol,
            **options,
        )
        solved = problem
        interest = one_of_interest(problem)
        if (
            problem.base is not None
            and interest is not None
            and isinstance(self.init, str)
        ):
            # near the best of all, which neither restarts nor swaps come to
            start = profiled_intervals(problem, n_bins, interest).labels
            partition = exchange(
                problem,
                start,
                n_bins,
                max_iter=self.max_iter,
                gain_tol=self.gain_tol,
                **options,
            )
        else:
            partition = search_partition(problem, n_bins, random_state, **search)
        if not np.isfinite(partition.value):
            # below the rank ceiling every labeling has the same value
            solved = problem.whitened(NormalizedTrace())
            partition = search_partition(solved, n_bins, random_state, **search)
        labels = partition.labels
        coef, intercept = _deployed_rule(solved, labels, n_bins)
        solution = Solution(
            labels=labels,
            coef=coef,
            intercept=intercept,
            n_iter=partition.n_iter,
            status=Status.ended(partition.converged),
            notices=tuple(self._notices_of_light_cells(problem, labels, n_bins)),
        )
        solution, stable = limit_solution(problem, atoms, solution), partition.stable
        if atoms.limits is not None:
            labels = largest_logit(problem.points, solution.coef, solution.intercept)
            options["barred"] = atoms.limits.barred(labels, n_bins)
        gain = best_remaining_gain(solved, labels, n_bins, **options)
        attributes = {
            "n_moves_": partition.n_moves,
            # the exchange knew of no limits
            "is_stable_": stable and (atoms.limits is None or gain <= self.gain_tol),
            "best_remaining_gain_": gain,
        }
        return replace(solution, attributes=attributes)


def _deployed_rule(problem, labels, n_bins):
    """Return the rule of a labeling: nearest mean in the criterion's gradient.

    The gradient of a nonsmooth criterion is worthless as a metric. A criterion with
    a continuation offers the metrics of its smooth members too, and an affine rule
    annealed along it; the one that keeps most on the training atoms is taken.
    """
    steps = [problem.with_criterion(each) for each in problem.criterion.continuation()]
    rules = [partition_rule(step, labels, n_bins) for step in steps]
    if len(rules) == 1:
        return rules[0]
    rules.append(anneal_rule(problem, rules[0]))
    values = [problem.value(hard_information(problem, *rule)) for rule in rules]
    return rules[int(np.argmax(values))]
