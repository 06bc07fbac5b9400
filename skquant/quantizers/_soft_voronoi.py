"""A rule fitted through its randomized relaxation, by annealing."""

from numbers import Integral, Real

import numpy as np
from sklearn.utils import Bunch, check_random_state

from skquant._checks import Interval, StrOptions, check_weights
from skquant.criteria import NormalizedTrace
from skquant.quantizers._base import BaseQuantizer, original_logits
from skquant.responsibilities import RELAXATIONS
from skquant.rules import AffineMaxRule
from skquant.solvers._limited import limit_solution
from skquant.solvers._soft import FAMILIES
from skquant.solvers._soft_search import best_snapshot, search_soft
from skquant.solvers._solution import Solution

# Start temperatures over the median nearest-center distance, by solver.
_START_RATIOS = {"adam": 1.0, "lbfgs": 0.1}


class SoftVoronoiQuantizer(BaseQuantizer):
    """A rule fitted as a randomized rule whose temperature falls.

    A randomized rule draws the label with probabilities ``softmax_b(-|s - c_b|^2 /
    (2 tau^2))`` in whitened coordinates, or of affine logits in general. Its Fisher
    information is exact, not a surrogate, and differentiable in the parameters,
    which the fit follows while the temperature tau falls. The deployed rule is the
    hard limit of the recorded snapshot that keeps most on the training table, never
    worse there than the rules it started from: k-means, and for L-BFGS and the affine
    family a partition by exchange and random swaps.

    Parameters
    ----------
    n_bins : int, default=8
        Number of cells K.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        What is maximized.
    family : {"voronoi", "affine_max"}, default="voronoi"
        Rules: nearest centers in whitened coordinates, or free slopes and offsets,
        which contain nearest means in any metric. The second starts from a fit of
        the first and from the exchange's own rule, and is never below either on
        the training table.
    relaxation : {"softmax", "sparsemax"}, default="softmax"
        Map from logits over the squared temperature to responsibilities.
    solver : {"auto", "adam", "lbfgs"}, default="auto"
        Adam while the temperature falls at every update, or L-BFGS at a few
        temperatures.
        ``"auto"`` is the second: it kept more, in less time, on every table tried.
    n_init : int, default=4
        Number of starts of Adam, k-means fits. L-BFGS has one start, a partition by
        exchange from twice as many restarts and seven times as many random swaps.
    max_iter : int, default=300
        Number of updates; the largest number for L-BFGS.
    learning_rate : float, default=1e-2
        Step of Adam, in units of the median nearest-center distance of the start.
    gradient_clip : float, default=10.0
        Largest norm of the gradient that Adam uses, in parameters in that unit.
    temperature_start_ratio : "auto" or float, default="auto"
        Start temperature over the median nearest-center distance of the start;
        ``"auto"`` is 1.0 for Adam and 0.1 for L-BFGS.
    temperature_end_ratio : float, default=0.05
        End temperature over start temperature.
    record_every : int, default=25
        Updates between snapshots; the first and the last are always recorded, and
        the end of every temperature of L-BFGS.
    min_bin_weight : float, default=0.0
        Share of the total weight that every cell keeps: of the randomized rule while
        it is annealed (the offsets of light cells are raised, as in entropic
        transport), and of the hard rule on the training rows, or there is a warning.
        It needs softmax.
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
        Cell of each training row, by the rule.
    cell_weights_ : ndarray of shape (K,)
        Total weight of each cell.
    cell_means_ : ndarray of shape (K, d)
        Mean score of each cell.
    centers_ : ndarray of shape (K, d)
        Centers of the rule, in units of the scores; not the cell means. For
        ``family="voronoi"`` only.
    temperature_ : float
        tau of the deployed snapshot, in whitened score units.
    soft_retention_ : float
        Efficiency of the randomized rule at the last update.
    hardening_gap_ : float
        ``soft_retention_`` minus the efficiency of the hard limit of the same
        centers.
    history_ : Bunch
        Arrays ``steps``, ``objective``, ``soft_retention``, ``hard_retention``,
        ``temperature`` and ``gradient_norm`` of the recorded steps.
    information_, binned_information_ : ndarray of shape (d, d)
        Full and retained information per unit of total weight.
    criterion_ : object
        The criterion, resolved for the table.
    retention_ : float
        Efficiency of the hard rule on the training table.
    nuisance_retention_ : float
        Smallest retained eigenvalue of the nuisance block; profiled criterion only.
    rule_ : AffineMaxRule
        The frozen rule.
    rule_agreement_ : float
        1: the labels are the rule's.
    rank_ : int
        Number of informative directions.
    n_iter_ : int
        Updates made.
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
    DExchangeQuantizer : Exact exchange of free labels.

    Notes
    -----
    With ``constraints`` the rule without limits is repaired: offsets of cells that lack
    something are raised, and slopes and offsets improved by turns; tables of up to 24
    distinct rows are searched by exchanging rows, besides. ``labels_`` are then those
    of the rule. ``history_`` and the staged methods are those before the repair, and
    with ``family="voronoi"`` each of the ``centers_`` has an offset.

    References
    ----------
    .. [1] K. Rose, "Deterministic annealing for clustering, compression,
       classification, regression, and related optimization problems", Proc. IEEE 86
       (1998). https://doi.org/10.1109/5.726788
    .. [2] D. P. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", 2014.
       https://doi.org/10.48550/arXiv.1412.6980

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import SoftVoronoiQuantizer
    >>> scores = np.random.default_rng(0).normal(size=(500, 2))
    >>> quantizer = SoftVoronoiQuantizer(n_bins=4, random_state=0).fit(scores)
    >>> quantizer.predict_proba(scores[:2]).shape
    (2, 4)
    >>> bool(abs(quantizer.hardening_gap_) < 1e-3)
    True
    """

    _parameter_constraints: dict = {
        **BaseQuantizer._parameter_constraints,
        "family": [StrOptions(set(FAMILIES))],
        "relaxation": [StrOptions(set(RELAXATIONS))],
        "solver": [StrOptions({"auto", "adam", "lbfgs"})],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "gradient_clip": [Interval(Real, 0, None, closed="neither")],
        "temperature_start_ratio": [
            Interval(Real, 0, None, closed="neither"),
            StrOptions({"auto"}),
        ],
        "temperature_end_ratio": [Interval(Real, 0, 1, closed="right")],
        "record_every": [Interval(Integral, 1, None, closed="left")],
        "min_bin_weight": [Interval(Real, 0, 1, closed="left")],
    }

    def __init__(
        self,
        n_bins=8,
        *,
        criterion="D",
        family="voronoi",
        relaxation="softmax",
        solver="auto",
        n_init=4,
        max_iter=300,
        learning_rate=1e-2,
        gradient_clip=10.0,
        temperature_start_ratio="auto",
        temperature_end_ratio=0.05,
        record_every=25,
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
        self.family = family
        self.relaxation = relaxation
        self.solver = solver
        self.n_init = n_init
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.gradient_clip = gradient_clip
        self.temperature_start_ratio = temperature_start_ratio
        self.temperature_end_ratio = temperature_end_ratio
        self.record_every = record_every
        self.min_bin_weight = min_bin_weight
        self.constraints = constraints
        self.negative_weights = negative_weights
        self.rank_rtol = rank_rtol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def _check_table(self, X, y, weights, atoms):
        super()._check_table(X, y, weights, atoms)
        if self.min_bin_weight > 0.0 and self.relaxation != "softmax":
            raise ValueError(
                "min_bin_weight needs relaxation='softmax'; got "
                f"relaxation={self.relaxation!r}."
            )

    def _solve(self, problem, n_bins, atoms, random_state):
        solver = "lbfgs" if self.solver == "auto" else self.solver
        start_ratio = self.temperature_start_ratio
        if isinstance(start_ratio, str):
            start_ratio = _START_RATIOS[solver]

        def run(target):
            return search_soft(
                target,
                n_bins,
                random_state,
                problem,
                family=self.family,
                relaxation=RELAXATIONS[self.relaxation],
                solver=solver,
                n_init=self.n_init,
                n_jobs=self.n_jobs,
                verbose=self.verbose,
                max_iter=self.max_iter,
                learning_rate=self.learning_rate,
                gradient_clip=self.gradient_clip,
                temperature_start_ratio=start_ratio,
                temperature_end_ratio=self.temperature_end_ratio,
                record_every=self.record_every,
                min_bin_weight=self.min_bin_weight,
            )

        snapshots = run(problem)
        if not np.isfinite(best_snapshot(snapshots).hard_value):
            # below the rank ceiling every rule has the same value
            snapshots = run(problem.whitened(NormalizedTrace()))
        chosen, last = best_snapshot(snapshots), snapshots[-1]
        notices = ()
        if not chosen.occupied:
            logits = problem.points @ chosen.slopes.T + chosen.offsets
            labels = np.argmax(logits, axis=1)
            notices = tuple(self._notices_of_light_cells(problem, labels, n_bins))
        solution = Solution(
            labels=None,
            coef=chosen.slopes,
            intercept=chosen.offsets,
            temperature=chosen.temperature**2,
            relaxation=self.relaxation,
            n_iter=last.step,
            attributes={
                "temperature_": chosen.temperature,
                "soft_retention_": last.soft_retention,
                "hardening_gap_": last.soft_retention - last.hard_retention,
                "history_": Bunch(
                    steps=np.array([each.step for each in snapshots]),
                    **{
                        name: np.array([getattr(each, name) for each in snapshots])
                        for name in (
                            "objective",
                            "soft_retention",
                            "hard_retention",
                            "temperature",
                            "gradient_norm",
                        )
                    },
                ),
            },
            notices=notices,
            snapshots=tuple(snapshots),
        )
        return limit_solution(problem, atoms, solution)

    def _adopt_cells(self, problem, atoms, solution, order):
        if self.family == "voronoi":
            centers = solution.coef[order]
            self.centers_ = atoms.center + centers @ atoms.subspace.basis
        self._staged_rules = []
        for snapshot in solution.snapshots:
            rule = (snapshot.slopes[order], snapshot.offsets[order])
            self._staged_rules.append(AffineMaxRule(*original_logits(*rule, atoms)))

    def predict_proba(self, X):
        """Return the responsibilities of the rule at its snapshot's temperature.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Returns
        -------
        responsibilities : ndarray of shape (n, K)
            Rows sum to one; their argmax is ``predict``.
        """
        X = self._validated(X)
        return self.rule_.predict_proba(X)

    def sample_labels(self, X, random_state=None):
        """Draw a label for each row from its responsibilities.

        One pass: the largest of the log responsibilities plus independent standard
        Gumbel noise has the responsibilities as its law.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.
        random_state : int, RandomState instance or None, default=None
            Seed of the draw.

        Returns
        -------
        labels : ndarray of int32 of shape (n,)
            In ``0..n_bins_-1``.

        References
        ----------
        .. [1] C. J. Maddison, D. Tarlow, T. Minka, "A* Sampling", NIPS 2014.
           https://doi.org/10.48550/arXiv.1411.0030
        """
        X = self._validated(X)
        random_state = check_random_state(random_state)
        with np.errstate(divide="ignore"):
            logits = np.log(self.rule_.predict_proba(X))
        logits += random_state.gumbel(size=logits.shape)
        return np.argmax(logits, axis=1).astype(np.int32)

    def staged_predict(self, X):
        """Yield the labels of the hard rule at each recorded snapshot.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Yields
        ------
        labels : ndarray of int32 of shape (n,)
            In the order of ``history_.steps``.
        """
        X = self._validated(X)
        for rule in self._staged_rules:
            yield rule.predict(X)

    def staged_score(self, X, sample_weight=None):
        """Yield the efficiency of the hard rule at each recorded snapshot.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights.

        Yields
        ------
        efficiency : float
            In the order of ``history_.steps``.
        """
        X = self._validated(X)
        weights = check_weights(sample_weight, X)
        for rule in self._staged_rules:
            yield self._efficiency(X, rule.predict(X), weights)
