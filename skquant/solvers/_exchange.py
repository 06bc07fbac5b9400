"""Exact positive-gain relocation of single atoms, to an exchange-stable partition.

The compiled pass serves criteria that declare a closed form of the gain; any other
criterion takes the generic pass, which screens by the criterion's gradient and
evaluates its value.
"""

from dataclasses import dataclass
from itertools import count

import numpy as np

from skquant._kernels.exchange import CellExchange, sum_cells
from skquant.solvers._assignment import (
    fill_empty_cells,
    nearest_cell,
    raise_light_cells,
)

# Forms of the compiled gain; the kernel has the same numbers.
_FORMS = {"linear": 0, "log_det": 1, "inverse_trace": 2}

# All atoms at once go to the nearest mean so often at most, and until three passes gain
# less than this by the value, or over 1.
_SETTLING_PASSES = 12
_SETTLED = 1e-4

# The trace of an inverse far below which information is not singular.
_INVERTIBLE = 1e9

# Between two full passes the atoms nearest to a boundary are visited alone: so many for
# each that the full pass has moved, within shares of the table, and how often.
_ACTIVE_A_MOVE = 8
_ACTIVE_SHARES = 0.02, 0.15
_ACTIVE_PASSES = 10

# Where that does not settle, the means drift along a flat direction: they are moved on
# by so many times their last step, twice as far after a success, a quarter after a
# failure, and at once again where the value rises by such a share of the round's gain.
_FIRST_REACH = 4.0
_RISE_TO_GO_ON = 0.3

# Tables up to this size are visited whole, so often between two rebuilt moments.
_SMALL_TABLE = 4_000
_SMALL_PASSES = 8

# So many atoms at once are asked where they may move to.
_ASKED_AT_ONCE = 256

# After so many rounds the value itself must have risen.
_ROUNDS_TO_RISE = 200


@dataclass(frozen=True)
class Partition:
    """Result of an exchange.

    Attributes
    ----------
    labels : ndarray of int32 of shape (n,)
        Cell of each atom.
    cell_weights, cell_means : ndarray of shapes (K,) and (K, r)
        Moments of the cells, means relative to the problem's origin.
    metric : ndarray of shape (r, r)
        The criterion's gradient, the identity where it has none.
    value : float
        The criterion's value.
    settled_value : float
        The value before the first relocation of a single atom.
    n_iter : int
        Full passes over the atoms.
    n_moves : int
        Relocations made.
    n_visits : int
        Atoms looked at.
    converged : bool
        Whether the last full pass, from exactly rebuilt moments, found no allowed
        move that gains.
    stable : bool
        Whether, besides, its screen was exact.
    """

    labels: np.ndarray
    cell_weights: np.ndarray
    cell_means: np.ndarray
    metric: np.ndarray
    value: float
    settled_value: float
    n_iter: int
    n_moves: int
    n_visits: int
    converged: bool
    stable: bool


class Cells:
    """Labels of a problem's atoms and the moments of the cells, in lasting arrays."""

    def __init__(self, problem, labels, n_bins):
        self.problem = problem
        self.n_bins = n_bins
        self.labels = np.array(labels, dtype=np.int32)
        self.weights = np.empty(n_bins)
        self.means = np.empty((n_bins, problem.points.shape[1]))
        self.counts = np.empty(n_bins, dtype=np.int32)
        self.rebuild()

    def rebuild(self):
        problem = self.problem
        sum_cells(
            problem.points,
            problem.weights,
            self.labels,
            self.weights,
            self.means,
            self.counts,
            np.empty(self.means.size + self.n_bins),
        )

    def information(self):
        return self.problem.information(self.weights, self.means)

    def value(self):
        return self.problem.value(self.information())

    def metric(self):
        """The criterion's gradient, None of singular information."""
        if not np.isfinite(self.value()):
            return None
        return self.problem.gradient(self.information())


class _CompiledPass:
    """The compiled exchange of the cells, for a criterion it knows."""

    certifies = True

    def __init__(self, cells, form, min_bin_weight, gain_tol):
        problem = cells.problem
        if form == "log_det":
            coefficients, bases, ranks, added = problem.log_det_terms
        else:
            # whitened coordinates: the reference, and the trace's metric, is 1
            r = problem.points.shape[1]
            coefficients, bases = np.ones(1), np.eye(r)[None]
            ranks = np.array([r], dtype=np.int32)
            # what is added does not depend on the labels: a trace has no use for it
            added = np.zeros((1, r, r))
            if problem.base is not None:
                added[0] = problem.base[:r, :r]
        self._cells = cells
        self._criterion = (
            _FORMS[form],
            coefficients,
            bases,
            ranks,
            added,
            min_bin_weight,
        )
        self._gain_tol = gain_tol
        self._whole = self._kernel(
            problem.points, problem.weights, problem.sizes, cells.labels
        )
        self.slack = np.asarray(self._whole.slack)

    def _kernel(self, points, weights, sizes, labels):
        cells = self._cells
        moments = cells.weights, cells.means, cells.counts
        return CellExchange(
            points,
            weights,
            sizes,
            cells.problem.origin,
            labels,
            *moments,
            *self._criterion,
        )

    def __call__(self, rows=None, most_passes=1, from_labels=False):
        options = self._gain_tol, most_passes, rows is None, from_labels
        if rows is None:
            return self._whole.relocate(*options)
        problem, labels = self._cells.problem, self._cells.labels
        # side by side in memory
        table = [
            each.take(rows, axis=0)
            for each in (problem.points, problem.weights, problem.sizes, labels)
        ]
        result = self._kernel(*table).relocate(*options)
        labels[rows] = table[-1]
        self.slack[rows] = -np.inf
        return result

    def evaluate(self):
        """Return the criterion's value and gradient, None of singular information."""
        metric = np.empty((self._cells.means.shape[1],) * 2)
        value, largest = self._whole.evaluate(metric)
        if largest < _INVERTIBLE:
            return value, metric
        # the criterion decides what counts as singular
        return self._cells.value(), self._cells.metric()

    def settle(self, target):
        """Put all atoms into the nearest cell, while that gains; return the visits."""
        return self._whole.settle(_SETTLED, target, _SETTLING_PASSES)

    def follow(self, step):
        """Take the cells of means moved by a step, if that raises the value.

        Returns the rise, 0 if the cells stay, and the number of visits.
        """
        return self._whole.follow(step)

    def best_move(self):
        return self._whole.best_move()


class _GenericPass:
    """Screening by the gradient, evaluation by the value: for any criterion."""

    def __init__(self, cells, min_bin_weight, gain_tol):
        self.certifies = cells.problem.criterion.concave
        self._cells = cells
        self._min_bin_weight = min_bin_weight
        self._gain_tol = gain_tol
        self.slack = np.empty(len(cells.labels), dtype=np.float32)

    def _first_order(self, rows, metric):
        """First-order gain of each row into each cell, -inf if barred."""
        cells = self._cells
        problem = cells.problem
        points, weights = problem.points[rows], problem.weights[rows, None]
        projected = cells.means @ metric
        own = np.sum((points @ metric) * points, axis=1, keepdims=True)
        distances = own - 2.0 * points @ projected.T
        distances += np.sum(projected * cells.means, axis=1)
        a = cells.labels[rows]
        rest = cells.weights[a] - problem.weights[rows]
        allowed = (cells.counts[a] > 1) & (rest >= self._min_bin_weight) & (rest > 0)
        leave = np.full(len(rows), -np.inf)
        leave[allowed] = (
            problem.weights[rows]
            * cells.weights[a]
            * np.take_along_axis(distances, a[:, None], axis=1)[:, 0]
        )[allowed] / rest[allowed]
        gains = (
            leave[:, None]
            - weights * cells.weights / (cells.weights + weights) * distances
        )
        gains[np.arange(len(rows)), a] = -np.inf
        return gains

    def _moved(self, information, row, cell):
        """Weights, means and information after a move."""
        cells = self._cells
        problem = cells.problem
        point, weight = problem.points[row], problem.weights[row]
        a = cells.labels[row]
        weights, means = cells.weights.copy(), cells.means.copy()
        weights[a] -= weight
        means[a] -= weight / weights[a] * (point - means[a])
        weights[cell] += weight
        means[cell] += weight / weights[cell] * (point - means[cell])
        pair = [a, cell]
        change = problem.information(weights[pair], means[pair])
        change -= problem.information(cells.weights[pair], cells.means[pair])
        return weights, means, information + change

    def __call__(self, rows=None, most_passes=1, from_labels=False):
        if rows is None:
            rows = np.arange(len(self._cells.labels))
        if from_labels:
            self._cells.rebuild()
        total, total_gain, n_passes = 0, 0.0, 0
        while n_passes < most_passes:
            n_passes += 1
            moves, gain = self._pass(rows)
            if moves <= 0:
                total = total or moves
                break
            total += moves
            total_gain += gain
        return total, total_gain, n_passes, n_passes * len(rows)

    def _pass(self, rows):
        cells = self._cells
        problem, information, metric = (
            cells.problem,
            cells.information(),
            cells.metric(),
        )
        if metric is None:
            return -1, 0.0
        moves = 0
        before = value = problem.value(information)
        screened = []
        for start in range(0, len(rows), 8192):
            block = rows[start : start + 8192]
            first_order = self._first_order(block, metric)
            with np.errstate(invalid="ignore"):
                best = first_order.max(axis=1) / problem.weights[block]
            self.slack[block] = -best
            screened.append(block[best > self._gain_tol])
        for row in np.concatenate(screened):
            tolerance = self._gain_tol * problem.weights[row]
            gains = self._first_order(np.array([row]), metric)[0]
            best_gain, best = tolerance, None
            for cell in np.argsort(-gains):
                if gains[cell] <= best_gain:
                    break
                moved = self._moved(information, row, cell)
                gain = problem.value(moved[2]) - value
                if gain > best_gain:
                    best_gain, best = gain, (cell, moved)
            if best is None:
                continue
            cell, (cells.weights[:], cells.means[:], information) = best
            cells.counts[cells.labels[row]] -= 1
            cells.counts[cell] += 1
            cells.labels[row] = cell
            value = problem.value(information)
            metric = problem.gradient(information)
            moves += 1
        return moves, value - before

    def evaluate(self):
        return self._cells.value(), self._cells.metric()

    def settle(self, target):
        return 0

    def follow(self, step):
        cells = self._cells
        value, metric = self.evaluate()
        if metric is None:
            return 0.0, 0
        points = cells.problem.points
        arrays = cells.labels, cells.weights, cells.means, cells.counts
        before = [each.copy() for each in arrays]
        cells.labels[:] = nearest_cell(points, cells.means + step, metric)
        cells.rebuild()
        rise = 0.0
        if cells.counts.min() > 0 and cells.weights.min() >= self._min_bin_weight:
            rise = max(0.0, cells.value() - value)
        if rise == 0.0:
            for each, old in zip(arrays, before, strict=True):
                each[:] = old
        return rise, len(points)

    def best_move(self, barred=None):
        cells = self._cells
        problem, information, metric = (
            cells.problem,
            cells.information(),
            cells.metric(),
        )
        if metric is None:
            return np.inf, -1, -1
        value = problem.value(information)
        best = (-np.inf, -1, -1)
        for start in range(0, len(problem.points), 8192):
            rows = np.arange(start, min(start + 8192, len(problem.points)))
            gains = self._first_order(rows, metric)
            most = gains.max(axis=1)
            order = np.argsort(-most, kind="stable")
            for number, row in enumerate(rows[order]):
                if most[row - start] <= best[0]:
                    break
                if barred is not None and number % _ASKED_AT_ONCE == 0:
                    # those that will be looked at next
                    part = order[number : number + _ASKED_AT_ONCE]
                    gains[part] = np.where(barred(rows[part]), -np.inf, gains[part])
                for cell in np.flatnonzero(gains[row - start] > best[0]):
                    moved = self._moved(information, row, cell)
                    gain = problem.value(moved[2]) - value
                    best = max(best, (gain, int(row), int(cell)))
        return best


def make_pass(cells, min_bin_weight, gain_tol):
    # a row may leave a cell at the limit to half the rounding that others overlook
    min_bin_weight = min_bin_weight * (1.0 - 5e-13)
    form = cells.problem.criterion.exchange_form
    if form in _FORMS:
        return _CompiledPass(cells, form, min_bin_weight, gain_tol)
    return _GenericPass(cells, min_bin_weight, gain_tol)


def exchange(
    problem,
    labels,
    n_bins,
    *,
    gain_tol=1e-12,
    min_bin_weight=0.0,
    max_iter=None,
    settle=False,
    target=-np.inf,
    reserve=0.0,
    least_gain=0.0,
):
    """Relocate atoms while any single relocation gains.

    Between full passes, the atoms nearest to a boundary are visited alone, and a slow
    drift of the means is followed farther if that raises the value. Empty cells of
    the start are filled first, and cells below ``min_bin_weight`` raised. A rough
    start may ``settle``: all atoms at once go to the nearest mean, as long as that
    gains; criteria without a compiled gain leave that out. The search is given up
    when what it may yet gain would not reach ``target``: after settling that is
    ``reserve``, and then twice the gain of the last round, for rounds gain less and
    less. It ends, too, with a round that gained less than ``least_gain``.
    """
    cells = Cells(problem, labels, n_bins)
    if cells.counts.min() == 0 or cells.weights.min() < min_bin_weight:
        labels = fill_empty_cells(problem, labels, n_bins)
        labels = raise_light_cells(problem, labels, n_bins, min_bin_weight)
        cells = Cells(problem, labels, n_bins)
    visit = make_pass(cells, min_bin_weight, gain_tol)
    n_atoms = len(problem.points)
    # a small table is visited whole
    at_once = _SMALL_PASSES if n_atoms <= _SMALL_TABLE else 1
    n_iter, n_moves, n_visits, active_moves, converged = 0, 0, 0, 0, False
    if settle:
        n_visits += visit.settle(target - reserve)
    settled_value, metric = visit.evaluate()
    means, reach = None, _FIRST_REACH
    checkpoint = -np.inf
    most = np.inf if max_iter is None else max_iter
    if settle and settled_value + reserve < target:
        most = 0
    exact, rebuild = not settle, False
    for n_rounds in count(1):
        if n_iter >= most:
            break
        moves, gain, passes, visits = visit(
            most_passes=min(at_once, most - n_iter), from_labels=rebuild
        )
        n_iter += passes
        n_visits += visits
        if moves < 0 or (moves == 0 and (exact or rebuild)):
            converged = moves == 0
            break
        n_moves += moves
        # once a pass finds none, the next is from exact moments
        exact, rebuild = False, moves == 0 or passes < at_once
        active = ()
        if at_once == 1 and moves:
            active = _active_rows(visit.slack, moves + active_moves)
        active_moves = 0
        if len(active) > n_bins:
            active_moves, more, passes, visits = visit(active, _ACTIVE_PASSES)
            active_moves = max(0, active_moves)
            n_moves += active_moves
            n_visits += visits
            gain += more
            last, means = means, cells.means.copy()
            if passes == _ACTIVE_PASSES and last is not None:
                drift, rise = means - last, np.inf
                while rise > _RISE_TO_GO_ON * gain:
                    rise, visits = visit.follow(reach * drift)
                    n_visits += visits
                    reach *= 2.0 if rise > 0.0 else 0.25
                    gain += rise
                    means = None if rise > 0.0 else means
        if gain < least_gain or (least_gain > 0.0 and passes < at_once):
            # the last pass found none; what little gains is not worth certifying
            break
        if target > -np.inf and visit.evaluate()[0] + 2.0 * gain < target:
            break
        if n_rounds % _ROUNDS_TO_RISE == 0:
            cells.rebuild()
            before, checkpoint = checkpoint, visit.evaluate()[0]
            if not checkpoint > before:
                # gains of rounding only
                break
    if n_iter and not converged:
        cells.rebuild()
    value = settled_value
    if n_iter:
        value, metric = visit.evaluate()
    return Partition(
        labels=cells.labels,
        cell_weights=cells.weights,
        cell_means=cells.means,
        metric=np.eye(cells.means.shape[1]) if metric is None else metric,
        value=value,
        settled_value=settled_value,
        n_iter=n_iter,
        n_moves=n_moves,
        n_visits=n_visits,
        converged=converged,
        stable=converged and visit.certifies,
    )


def _active_rows(slack, moves):
    """The rows nearest to a boundary, more of them where more have moved."""
    share = np.clip(_ACTIVE_A_MOVE * moves / len(slack), *_ACTIVE_SHARES)
    # the quantile of a part of the rows does
    part = slack[:: 1 + len(slack) // 20_000]
    rank = int(share * (len(part) - 1))
    return np.flatnonzero(slack <= np.partition(part, rank)[rank])


def best_remaining_gain(problem, labels, n_bins, *, min_bin_weight=0.0, barred=None):
    """Return the largest gain in value of any allowed relocation; -inf without one.

    ``barred`` tells, of some atoms, which cells they may not move to, (m, K).
    """
    cells = Cells(problem, labels, n_bins)
    if barred is not None:
        return float(_GenericPass(cells, min_bin_weight, 0.0).best_move(barred)[0])
    return float(make_pass(cells, min_bin_weight, 0.0).best_move()[0])
