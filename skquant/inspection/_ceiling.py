"""An upper bound of the retention of every partition into K cells."""

import time
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from scipy.special import softmax

from skquant._checks import check_labels, single_threaded
from skquant._kernels.ceiling import price
from skquant._moments import cell_moments
from skquant._table import read_table
from skquant.solvers._problem import build_problem
from skquant.solvers._search import search_partition

_EPSILON = np.finfo(np.float64).eps
# The partition whose tangent is taken needs to be good, not the best.
_N_INIT, _N_SWAPS = 4, 4
# Weights of a tangent relative to the largest; any positive ones bound.
_SMALLEST_WEIGHT = 1e-6
# E is nonsmooth: the tangent of this power mean mixes its smallest eigenvectors.
_E_POWER = -64.0
# Distances in memory, rows times candidate centers.
_MAX_DISTANCES = 3_000_000
_N_ROUNDS, _N_STEPS, _N_DESCENTS = 8, 150, 8
_BOXES_A_CALL = 2_000
_MAX_DEPTH = 200


@dataclass(frozen=True, eq=False)
class RetentionCeiling:
    """How much any partition into K cells can keep.

    Attributes
    ----------
    bound : float
        No partition has a larger efficiency, in [0, 1]; 1 where nothing was proved.
    status : str
        ``"proved"``: the pricing was searched to its tolerance. ``"bounded"``: boxes
        or time ended it; the bound holds and is weaker. ``"estimate"``: it was local
        only; ``bound`` is then 1, and ``estimate`` no bound.
    estimate : float
        What the bound would be if the local pricing found the best center.
    efficiency : float
        Of ``labels``, in [0, 1].
    labels : ndarray of int32 of shape (n,)
        The given labeling, or the one found; 0 for rows of zero weight.
    n_bins : int
        Number of cells K.
    n_boxes : int
        Boxes of centers that were bounded.
    seconds : float
        Time taken.
    """

    bound: float
    status: str
    estimate: float
    efficiency: float
    labels: np.ndarray
    n_bins: int
    n_boxes: int
    seconds: float

    @property
    def gap(self):
        """Bound minus the efficiency of the labels."""
        return self.bound - self.efficiency

    def __str__(self):
        if self.status == "estimate":
            ceiling = f"no proof; an estimate of the ceiling is {self.estimate:.5f}"
        else:
            ceiling = (
                f"no partition keeps more than {self.bound:.5f} ({self.status}), "
                f"gap {self.gap:.5f}"
            )
        return (
            f"{self.n_bins} cells keep {self.efficiency:.5f}; {ceiling} "
            f"[{self.seconds:.1f} s, {self.n_boxes} boxes]"
        )


def _mean(weights, power):
    """Return a power mean of positive numbers, near 0 that of a lower power."""
    smallest = weights.min()
    if power == -np.inf:
        return smallest
    if 0.0 <= power < 1e-6:
        return float(np.exp(np.mean(np.log(weights))))
    if -1e-6 < power < 0.0:
        power = -1e-6
    return float(smallest * np.mean((weights / smallest) ** power) ** (1.0 / power))


def _tangent(problem, retained):
    """Return a matrix A with efficiency(R) <= trace(A R A') for every R.

    Any A of this form bounds; that of the retained information is tight at it.
    """
    criterion, size = problem.criterion, len(problem.reference)
    if criterion.interest:
        interest = np.asarray(criterion.interest)
        nuisance = np.setdiff1d(np.arange(size), interest)
        # any regression on the nuisances bounds, so a floor against singularity may
        floor = 1e-9 * np.trace(retained) / size * np.eye(size)
        matrix = retained + floor
        slopes = np.linalg.solve(
            matrix[np.ix_(nuisance, nuisance)], matrix[np.ix_(nuisance, interest)]
        )
        combination = np.zeros((len(interest), size))
        combination[:, interest] = np.eye(len(interest))
        combination[:, nuisance] = -slopes.T
        values, vectors = np.linalg.eigh(combination @ matrix @ combination.T)
        weights = 1.0 / np.maximum(values, 1e-12 * values[-1])
        combination, power = vectors.T @ combination, 0.0
    else:
        values, combination = np.linalg.eigh(retained)
        combination = combination.T
        power = criterion.exponent
        slope = max(power, _E_POWER) - 1.0
        values = np.maximum(values, _SMALLEST_WEIGHT * values[-1])
        weights = (values / values[0]) ** slope
    weights = np.maximum(weights / weights.max(), _SMALLEST_WEIGHT)
    # Hoelder's inequality with the conjugate power, which is below 1
    conjugate = -np.inf if power == 1.0 else 1.0
    if np.isfinite(power) and power < 1.0:
        conjugate = power / (power - 1.0)
    weights /= len(weights) * _mean(weights, conjugate)
    return np.sqrt(weights)[:, None] * combination


class _Duals:
    """The dual of the k-median program of weighted points, centers anywhere."""

    def __init__(self, points, weights, n_bins, labels, random_state):
        self.points, self.weights, self.n_bins = points, weights, n_bins
        self.random_state = random_state
        self.norms = np.sum(points**2, axis=1)
        self.centers = cell_moments(points, weights, labels, n_bins)[1]
        nearest = self.distances(self.centers).min(axis=1)
        self.loss = float(weights @ nearest)
        self.duals = nearest + self.loss
        self.capacity = max(2 * n_bins, min(200, _MAX_DISTANCES // len(points)))

    def distances(self, centers):
        square = self.norms[:, None] - 2.0 * self.points @ centers.T
        return np.maximum(square + np.sum(centers**2, axis=1), 0.0)

    def gains(self, distances, duals):
        return self.weights @ np.minimum(distances - duals[:, None], 0.0)

    def value(self, price):
        return float(self.weights @ self.duals + self.n_bins * price)

    def ascend(self, temperature, rate, deadline):
        """Take gradient steps on the smoothed dual of the present centers."""
        distances = self.distances(self.centers)
        duals, best = self.duals.copy(), -np.inf
        first, second = np.zeros(len(duals)), np.zeros(len(duals))
        for step in range(1, _N_STEPS + 1):
            gains = self.gains(distances, duals)
            value = self.weights @ duals + self.n_bins * gains.min()
            if value > best:
                best, self.duals = value, duals.copy()
            if time.monotonic() > deadline:
                break
            shares = softmax(-gains / temperature)
            gradient = 1.0 - self.n_bins * ((distances < duals[:, None]) @ shares)
            first += 0.1 * (gradient - first)
            second += 0.01 * (gradient**2 - second)
            scaled = first / (1.0 - 0.9**step)
            scaled /= np.sqrt(second / (1.0 - 0.99**step)) + 1e-12
            duals += rate * (1.0 - step / (_N_STEPS + 1)) * scaled

    def descend(self):
        """Look for better centers from many; keep the best; return the best gain."""
        n_rows = min(len(self.points), 40)
        rows = self.random_state.choice(len(self.points), n_rows, replace=False)
        centers = np.vstack([self.centers, self.points[rows]])
        centers = centers[: max(self.capacity, len(self.centers))]
        for _ in range(_N_DESCENTS):
            inside = (self.distances(centers) < self.duals[:, None]).astype(float)
            inside *= self.weights[:, None]
            mass = inside.sum(axis=0)
            means = (inside.T @ self.points) / np.where(mass > 0, mass, 1.0)[:, None]
            centers = np.where(mass[:, None] > 0, means, centers)
        self.add(centers)
        return float(self.gains(self.distances(self.centers), self.duals).min())

    def add(self, centers):
        """Add centers, thin what coincides, and keep those that gain most."""
        centers = np.vstack([self.centers, centers])
        unit = 1e-3 * np.sqrt(self.loss / self.n_bins) + np.finfo(np.float64).tiny
        _, kept = np.unique(np.round(centers / unit), axis=0, return_index=True)
        centers = centers[np.sort(kept)]
        order = np.argsort(self.gains(self.distances(centers), self.duals))
        self.centers = centers[order[: self.capacity]]

    def lower_bound(self, found, tolerance, max_boxes, deadline):
        """Price exactly; return a bound of the loss, whether it is done, and boxes."""
        n, m = self.points.shape
        points = np.ascontiguousarray(self.points)
        weights, duals = np.ascontiguousarray(self.weights), self.duals
        used = np.flatnonzero(duals > 0).astype(np.int32)
        depths = _MAX_DEPTH
        low, high = np.empty((2, depths, m))
        # a center outside the box of all points is farther from each than its nearest
        low[0], high[0] = points.min(axis=0), points.max(axis=0)
        sums = np.zeros((depths, m + 2))
        bounds = np.zeros(depths)
        bounds[0] = -(weights[used] @ duals[used])
        child = np.zeros(depths, dtype=np.int32)
        start = np.zeros(depths + 1, dtype=np.intp)
        start[1] = len(used)
        rows = np.empty(40 * n + 1024, dtype=np.int32)
        rows[: len(used)] = used
        center, state = np.zeros(m), np.array([min(found, 0.0), 0.0])
        depth, n_boxes = np.zeros(1, dtype=np.intp), 0
        while depth[0] >= 0 and n_boxes < max_boxes and time.monotonic() < deadline:
            n_boxes += price(
                points, weights, duals, tolerance,
                min(_BOXES_A_CALL, max_boxes - n_boxes),
                low, high, sums, bounds, child, start, rows, center, state, depth,
            )  # fmt: skip
        lowest = state[1]
        for t in range(depth[0] + 1):
            if child[t] < 2:
                lowest = min(lowest, bounds[t])
        # Rounding of sums of n terms, of which a certain row's are at most three
        # times its squared norm and dual.
        terms = weights @ (self.norms + np.abs(duals))
        rounding = 16.0 * (n + _MAX_DEPTH) * _EPSILON * terms
        value = self.value(lowest) - (1 + self.n_bins) * rounding
        done = depth[0] < 0 and lowest >= state[0] - 1.001 * tolerance - rounding
        return value, bool(done), n_boxes


@single_threaded
def retention_ceiling(
    scores,
    n_bins,
    labels=None,
    sample_weight=None,
    *,
    criterion="D",
    exact=True,
    tolerance=1e-3,
    max_boxes=5_000_000,
    time_limit=60.0,
    random_state=0,
    verbose=0,
):
    """Bound what any partition into K cells can keep, at any number of rows.

    A concave criterion is at most its tangent, and the best partition under a tangent
    is a k-median problem in squared distance. Its loss is at least

        sum_i w_i pi_i + K min_c sum_i w_i min(0, |x_i - c|^2 - pi_i)

    for any numbers ``pi``. They are improved by gradient steps on a growing set of
    centers; the minimum over all c is then bounded by branch and bound. Rows that are
    repeated may be in different cells. Profiled criteria are bounded in the retention
    that they report, at nuisance weight 0.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event. They are not centred.
    n_bins : int
        Number of cells K; partitions with fewer are among those bounded.
    labels : array-like of int of shape (n,), default=None
        A labeling with at most K cells to compare, identical rows in one cell; its
        tangent is used. None: that of an exchange.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        One of the package's concave criteria, a prior included.
    exact : bool, default=True
        False: no branch and bound, an estimate instead of a bound.
    tolerance : float, default=1e-3
        Of the pricing, in units of the loss of the labels.
    max_boxes : int, default=5_000_000
        Boxes to bound at most.
    time_limit : float, default=60.0
        Seconds after the exchange; at most half of them go to the gradient steps.
    random_state : int, RandomState instance or None, default=0
        Seed of the starts.
    verbose : int, default=0
        1 prints a line for each round.

    Returns
    -------
    ceiling : RetentionCeiling
        The bound, its status, and the gap to the labels.

    Raises
    ------
    ValueError
        For invalid input, identical rows with different labels, or a criterion that
        is not concave or not the package's own.

    References
    ----------
    .. [1] O. du Merle, P. Hansen, B. Jaumard, N. Mladenovic, "An interior point
       algorithm for minimum sum-of-squares clustering", SIAM Journal on Scientific
       Computing 21 (1999). https://doi.org/10.1137/S1064827597328327

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.inspection import retention_ceiling
    >>> scores = np.random.default_rng(0).normal(size=(100, 2))
    >>> ceiling = retention_ceiling(scores, n_bins=4, criterion="trace")
    >>> ceiling.status, 0 <= ceiling.gap < 0.01
    ('proved', True)
    """
    for name, value in (("n_bins", n_bins), ("max_boxes", max_boxes)):
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a positive integer; got {value!r}.")
    for name, value in (("time_limit", time_limit), ("tolerance", tolerance)):
        if not isinstance(value, Real) or not value >= 0:
            raise ValueError(f"{name} must be a number >= 0; got {value!r}.")
    table = read_table(scores, sample_weight, criterion, takes_prior=True)
    reported = table.criterion.reported()
    exponent = reported.exponent
    if not reported.interest and (exponent is None or exponent > 1.0):
        raise ValueError(
            "criterion must be concave and one of the package's own: trace, D, A, E, "
            f"a power mean with power at most 1, or profiled D; got {criterion!r}."
        )
    seed = np.random.RandomState(0)
    problem, atoms = build_problem(
        table.X, table.shares, reported, table.rank_rtol, seed, table.names
    )
    n_cells = min(n_bins, len(problem.points))
    if labels is None:
        first = problem.with_criterion(reported.continuation()[0])
        found = search_partition(
            first, n_cells, seed, n_init=_N_INIT, n_swaps=_N_SWAPS
        ).labels
    else:
        labels, _ = check_labels(labels, len(table.used), n_bins)
        of_row = labels[table.used]
        found = of_row[atoms.first_row]
        if not np.array_equal(found[atoms.of_row], of_row):
            raise ValueError("labels must give identical rows one label.")
    started = time.monotonic()
    information = problem.label_information(found, n_bins)
    efficiency = float(problem.efficiency(information))
    every = np.zeros(len(table.used), dtype=np.int32)
    every[table.used] = found[atoms.of_row]

    def ceiling(bound, status, estimate, n_boxes):
        seconds = time.monotonic() - started
        return RetentionCeiling(
            bound, status, estimate, efficiency, every, n_bins, n_boxes, seconds
        )

    if n_bins >= len(problem.points):
        return ceiling(1.0, "proved", 1.0, 0)

    tangent = _tangent(problem, problem.in_columns(information))
    rows = np.eye(len(problem.origin), len(problem.reference))
    rows = rows if problem.columns is None else problem.columns
    projection = rows @ tangent[:, : rows.shape[1]].T
    full = problem.in_columns(problem.full_information())
    full = float(np.sum((tangent @ full) * tangent))

    def retention(loss):
        bound = full - max(loss, 0.0) + problem.rounding * (1.0 + full)
        return float(min(1.0, bound))

    points = problem.points @ projection
    if hasattr(random_state, "choice"):
        state = random_state
    else:
        state = np.random.RandomState(random_state)
    dual = _Duals(points, problem.weights, n_bins, found, state)
    best_loss, best_duals, best_price = -np.inf, dual.duals, 0.0
    for step in range(_N_ROUNDS + 1):
        gain = dual.descend()
        loss = dual.value(gain)
        if loss > best_loss:
            best_loss, best_duals, best_price = loss, dual.duals.copy(), gain
        if verbose:
            print(f"round {step}: ceiling estimated {retention(best_loss):.6f}")
        elapsed = time.monotonic() - started
        if step == _N_ROUNDS or elapsed > 0.5 * time_limit:
            break
        scale = dual.loss / n_bins * 0.6**step
        dual.ascend(0.02 * scale, 0.1 * scale * n_bins, started + 0.5 * time_limit)
    estimate = retention(best_loss)
    if not exact:
        return ceiling(1.0, "estimate", estimate, 0)
    dual.duals = best_duals
    loss, done, n_boxes = dual.lower_bound(
        best_price,
        tolerance * dual.loss / n_bins,
        max_boxes,
        started + time_limit,
    )
    result = ceiling(
        retention(loss), "proved" if done else "bounded", estimate, n_boxes
    )
    if verbose:
        print(result)
    return result
