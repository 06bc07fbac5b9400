"""Global search over partitions: restarts, random swaps, and a subsample."""

from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from skquant.criteria import NormalizedTrace
from skquant.information import cell_moments
from skquant.solvers._assignment import nearest_cell
from skquant.solvers._exchange import exchange
from skquant.solvers._interval import interval_cells
from skquant.solvers._seeding import kmeans_start, random_start

# Larger tables are searched on a random subsample, and only the last few winners are
# carried to the whole table. It has so many atoms a coordinate of a cell mean, within
# bounds of work (atoms * cells * coordinates).
_SUBSAMPLE_ATOMS_A_COORDINATE = 125
_SUBSAMPLE_WORK = 72_000, 5_000_000
_LEAST_ATOMS_A_CELL = 100

# K-means starts see this part of the atoms, but not fewer than so many.
_KMEANS_SHARE = 4
_KMEANS_ATOMS = 1_000

# How many of the last improvements by swaps are compared on the whole table.
_MOST_CARRIED = 4

# Tables up to this size follow a criterion's continuation from every start.
_SMALL_TABLE = 100


def draw_seeds(random_state, n_seeds):
    """Draw integer seeds, so that work can be done in any order."""
    return random_state.randint(np.iinfo(np.int32).max, size=n_seeds)


def continuation(criterion):
    """Return the criteria to solve in turn; the criterion alone if it names none."""
    steps = getattr(criterion, "continuation", None)
    return [criterion] if steps is None else steps()


def _follow(problem, labels, n_bins, steps, options, target=-np.inf):
    """Exchange under each criterion in turn, from the result of the last.

    What cannot reach the target under a single criterion may be given up.
    """
    if len(steps) == 1:
        options = {**options, "target": target}
    n_iter = n_moves = n_visits = 0
    for criterion in steps:
        step = problem.with_criterion(criterion)
        result = exchange(step, labels, n_bins, **options)
        if not np.isfinite(result.value):
            # a singular start has no gradient: improve its trace first
            start = problem.whitened(NormalizedTrace())
            labels = exchange(start, labels, n_bins, **options).labels
            result = exchange(step, labels, n_bins, **options)
        labels = result.labels
        n_iter += result.n_iter
        n_moves += result.n_moves
        n_visits += result.n_visits
    return replace(result, n_iter=n_iter, n_moves=n_moves, n_visits=n_visits)


def _one_start(problem, n_bins, seed, init, kmeans_options, steps, options):
    random_state = check_random_state(seed)
    if init == "random":
        labels = random_start(problem, n_bins, random_state)
    else:
        fewest = max(_KMEANS_ATOMS, _LEAST_ATOMS_A_CELL * n_bins)
        part = problem.head(max(len(problem.points) // _KMEANS_SHARE, fewest))
        labels, centers, _ = kmeans_start(part, n_bins, random_state, **kmeans_options)
        if part is not problem:
            labels = nearest_cell(problem.points, centers, np.eye(centers.shape[1]))
    return _follow(problem, labels, n_bins, steps, options)


def _exceeds(value, other):
    """Whether a value is larger by more than rounding.

    Rounding must not choose between equal partitions whose cells are numbered
    differently: random swaps go by the number.
    """
    return value > other and not value - other <= 1e-12 * max(1.0, abs(value))


def _described(problem, partition, n_bins):
    information = problem.label_information(partition.labels, n_bins)
    return (
        f"retention {problem.efficiency(information):.9g}, {partition.n_iter} scans, "
        f"{partition.n_moves} moves"
    )


def _best(problem, partitions, n_bins):
    """The first partition of the largest value under the problem's criterion."""
    values = [
        problem.value(problem.label_information(partition.labels, n_bins))
        for partition in partitions
    ]
    largest = max(values)
    first = [not _exceeds(largest, value) for value in values].index(True)
    return partitions[first]


def _rule_labels(problem, labels, n_bins, points):
    """Labels of points by the first-order rule of a labeling."""
    weights, means = cell_moments(problem.points, problem.weights, labels, n_bins)
    information = problem.information(weights, means)
    if np.isfinite(problem.value(information)):
        metric = problem.gradient(information)
    else:
        metric = np.eye(len(information))
    return nearest_cell(points, means, metric)


def _swap(problem, best, n_bins, n_swaps, random_state, steps, options):
    """Replace the mean of a random cell by an atom, exchange, keep if better.

    Returns all that were best in their turn, the last the best. Every swap tries two
    atoms, one drawn by its weight and one by its share of the distortion: outliers
    need cells of their own in heavy tails, and only there.
    """
    incumbents = []
    for attempt in range(2 * n_swaps if n_bins > 1 else 0):
        if not incumbents or incumbents[-1] is not best:
            incumbents.append(best)
            weights, means = cell_moments(
                problem.points, problem.weights, best.labels, n_bins
            )
            information = problem.information(weights, means)
            if not np.isfinite(problem.value(information)):
                break
            metric = problem.gradient(information)
            offsets = problem.points - means[best.labels]
            distortion = np.abs(np.sum((offsets @ metric) * offsets, axis=1))
            chances = [
                np.cumsum(problem.weights),
                np.cumsum(problem.weights * distortion),
            ]
        level = chances[attempt % 2]
        atom = np.searchsorted(level, random_state.uniform() * level[-1])
        centers = means.copy()
        centers[random_state.randint(n_bins)] = problem.points[
            min(atom, len(level) - 1)
        ]
        labels = nearest_cell(problem.points, centers, metric)
        candidate = _follow(problem, labels, n_bins, steps, options, target=best.value)
        if _exceeds(candidate.value, best.value):
            best = candidate
    return [*incumbents[:-1], best] if incumbents else [best]


def _subsample_size(n_bins, n_coordinates):
    coordinates = n_bins * n_coordinates
    least, most = (work // coordinates for work in _SUBSAMPLE_WORK)
    size = min(max(_SUBSAMPLE_ATOMS_A_COORDINATE * coordinates, least), most)
    return max(size, _LEAST_ATOMS_A_CELL * n_bins)


def search_partition(
    problem,
    n_bins,
    random_state,
    *,
    init="kmeans",
    n_init=8,
    n_swaps=0,
    selection=None,
    kmeans_options=None,
    n_jobs=None,
    verbose=0,
    max_iter=None,
    gain_tol=1e-12,
    min_bin_weight=0.0,
):
    """Return the best partition of restarts and random swaps.

    Parameters beyond those of ``exchange``: ``init`` is ``"kmeans"``, ``"random"``
    or a labeling of the atoms (one start); ``selection`` is the problem whose
    criterion chooses the winning restart.
    """
    options = dict(gain_tol=gain_tol, min_bin_weight=min_bin_weight, max_iter=max_iter)
    steps = continuation(problem.criterion)
    selection = problem if selection is None else selection
    size = _subsample_size(n_bins, problem.points.shape[1])
    small = problem.head(size)
    # a long continuation is followed once, from the best of its first criterion
    early = steps if len(small.points) <= _SMALL_TABLE else steps[:1]
    given = not isinstance(init, str)
    if not given and problem.points.shape[1] == 1 and min_bin_weight == 0.0:
        # scalar scores: the optimum is known, and exchange certifies it
        labels, _ = interval_cells(problem.points[:, 0], problem.weights, n_bins)
        return _follow(problem, labels, n_bins, steps, options)
    if given:
        whole = _follow(problem, init, n_bins, early, options)
        starts = [whole]
        if small is not problem:
            head = whole.labels[: len(small.points)]
            starts = [_follow(small, head, n_bins, early, options)]
    else:
        seeds = draw_seeds(random_state, n_init)
        starts = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_one_start)(
                small, n_bins, seed, init, kmeans_options or {}, early, options
            )
            for seed in seeds
        )
    if verbose:
        for number, start in enumerate(starts):
            print(f"start {number}: {_described(small, start, n_bins)}")
    first = small.with_criterion(early[-1])
    chosen = _best(
        first if len(early) < len(steps) else selection.head(size), starts, n_bins
    )
    swapped = _swap(first, chosen, n_bins, n_swaps, random_state, early, options)
    chosen = swapped[-1]
    if small is not problem:
        # the whole table tells which of the subsample's best are best
        whole_first = problem.with_criterion(early[-1])
        carried = [
            _rule_labels(first, each.labels, n_bins, problem.points)
            for each in swapped[-_MOST_CARRIED:]
        ]
        values = [
            whole_first.value(problem.label_information(labels, n_bins))
            for labels in carried
        ]
        labels = carried[int(np.argmax(values))]
        chosen = _follow(problem, labels, n_bins, early, options)
        if given:
            chosen = _best(whole_first, [chosen, whole], n_bins)
    if len(early) < len(steps):
        chosen = _follow(problem, chosen.labels, n_bins, steps[1:], options)
    if verbose:
        ending = "stable" if chosen.stable else "not certified stable"
        print(f"best: {_described(selection, chosen, n_bins)}, {ending}")
    return chosen
