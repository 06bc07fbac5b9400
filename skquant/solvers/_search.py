"""Global search over partitions: a ladder of growing subsamples.

Restarts are tried on the smallest and random swaps on a small one; the best of them
climb, fewer to each larger subsample, and the whole table decides between the last.
"""

from dataclasses import replace

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from skquant.criteria import NormalizedTrace
from skquant.solvers._assignment import nearest_cell
from skquant.solvers._exchange import exchange
from skquant.solvers._interval import interval_cells
from skquant.solvers._seeding import kmeans_start, random_start, seeded_start

# The smallest subsample has so many atoms a coordinate of the cell means, within
# limits; the next are about so many times larger each.
_FOOT_ATOMS_A_COORDINATE = 60
_FOOT_ATOMS = 2_000, 10_000
_LADDER_STEP = 4

# Values closer than this, by themselves or over 1, are those of one optimum.
_ROUNDING = 1e-12
_ALIKE = 1e-5

# Random swaps are tried on the largest subsample of at most so many atoms.
_SWAPPED_ATOMS = 8_000

# Swaps may lead back to the best partition so often, a share of their number but
# these at least, before it counts as the best there is.
_RETURNS_A_SWAP = 0.2
_LEAST_RETURNS = 4

# How many partitions of one subsample are looked at on the next.
_CANDIDATES = 32

# How many partitions settle there, within so many atoms of all together; the first time
# more, for several may end alike.
_FIRST_CLIMBERS, _CLIMBERS = 12, 8
_CLIMBING_ATOMS = 600_000

# Rough starts settle first where cells have so many atoms a coordinate: with fewer,
# single relocations find better optima.
_SETTLING_ATOMS_A_COORDINATE = 200

# So many of those exchange in any case, others if so many times the largest gain of an
# exchange could still make them the best.
_FOLLOWED = 2
_RESERVES = 2.0

# Below the whole table a round that gains less than this share of what noise adds to
# the optimum, a coordinate of the cell means over the atoms, is the last.
_SHARE_OF_NOISE = 0.001

# Tables up to this size follow a criterion's continuation from every start.
_SMALL_TABLE = 100


def draw_seeds(random_state, n_seeds):
    """Draw integer seeds, so that work can be done in any order."""
    return random_state.randint(np.iinfo(np.int32).max, size=n_seeds)


def continuation(criterion):
    """Return the criteria to solve in turn; the criterion alone if it names none."""
    steps = getattr(criterion, "continuation", None)
    return [criterion] if steps is None else steps()


def _follow(problem, labels, n_bins, steps, options, **ends):
    """Exchange under each criterion in turn, from the result of the last.

    A single criterion may be given up before its end.
    """
    if len(steps) == 1:
        options = {**options, **ends}
    done = []
    for criterion in steps:
        step = problem.with_criterion(criterion)
        result = exchange(step, labels, n_bins, **options)
        if not np.isfinite(result.value):
            # a singular start has no gradient: improve its trace first
            start = problem.whitened(NormalizedTrace())
            labels = exchange(start, labels, n_bins, **options).labels
            result = exchange(step, labels, n_bins, **options)
        labels = result.labels
        done.append(result)
    return _counted(*done[::-1])


def _counted(partition, *before):
    """The partition, with the work of those that led to it."""
    done = partition, *before
    return replace(
        partition,
        n_iter=sum(each.n_iter for each in done),
        n_moves=sum(each.n_moves for each in done),
        n_visits=sum(each.n_visits for each in done),
    )


def _one_start(problem, n_bins, seed, init, kmeans_options, climb):
    random_state = check_random_state(seed)
    if init == "random":
        labels = random_start(problem, n_bins, random_state)
    elif kmeans_options is None:
        labels = seeded_start(problem, n_bins, random_state)
    else:
        labels, _, _ = kmeans_start(problem, n_bins, random_state, **kmeans_options)
    return climb(problem, labels)


def _exceeds(value, other, margin=_ROUNDING):
    """Whether a value is larger by more than a margin.

    Rounding must not choose between equal partitions whose cells are numbered
    differently: random swaps go by the number.
    """
    return value > other and not value - other <= margin * max(1.0, abs(value))


def _described(problem, partition, n_bins):
    information = problem.label_information(partition.labels, n_bins)
    return (
        f"retention {problem.efficiency(information):.9g}, {partition.n_iter} scans, "
        f"{partition.n_moves} moves"
    )


def _ranked(values):
    """Positions of values in descending order, one of those alike."""
    ranked = []
    for number in sorted(range(len(values)), key=lambda number: -values[number]):
        if not ranked or _exceeds(values[ranked[-1]], values[number], _ALIKE):
            ranked.append(number)
        elif not _exceeds(values[ranked[-1]], values[number]):
            # of equal ones the first
            ranked[-1] = min(ranked[-1], number)
    return ranked


def _metric(problem, partition):
    """The criterion's gradient at a partition, the identity if it is singular."""
    if not np.isfinite(partition.value):
        return np.eye(problem.points.shape[1])
    information = problem.information(partition.cell_weights, partition.cell_means)
    return problem.gradient(information)


def _largest_gain(partitions):
    """Largest gain of exchanges after their starts had settled."""
    return max(each.value - each.settled_value for each in partitions)


def _swap(problem, starts, n_bins, n_swaps, random_state, climb):
    """Replace the mean of a random cell by an atom, exchange, keep if better.

    Begins with the first of the starts and returns all that were found; once the best
    has come back so often that a better one is unlikely, no others are tried. Every
    swap tries two atoms, one drawn by its weight and one by its share of the
    distortion: outliers need cells of their own in heavy tails, and only there. Only
    where the swap settles within what exchanges gained so far is it followed.
    """
    best, returns = starts[0], 0
    found, described = [], None
    reserve = _largest_gain(starts)
    for attempt in range(2 * n_swaps if n_bins > 1 else 0):
        if described is not best:
            described = best
            if not np.isfinite(best.value):
                break
            metric = _metric(problem, best)
            offsets = problem.points - best.cell_means[best.labels]
            distortion = np.abs(np.sum((offsets @ metric) * offsets, axis=1))
            chances = [
                np.cumsum(problem.weights),
                np.cumsum(problem.weights * distortion),
            ]
        level = chances[attempt % 2]
        atom = np.searchsorted(level, random_state.uniform() * level[-1])
        centers = best.cell_means.copy()
        centers[random_state.randint(n_bins)] = problem.points[
            min(atom, len(level) - 1)
        ]
        labels = nearest_cell(problem.points, centers, metric)
        candidate = climb(problem, labels, target=best.value, reserve=reserve)
        found.append(candidate)
        reserve = max(reserve, _largest_gain([candidate]))
        if _exceeds(candidate.value, best.value, _ALIKE):
            returns = 0
        elif not _exceeds(best.value, candidate.value, _ALIKE):
            returns += 1
        if _exceeds(candidate.value, best.value):
            best = candidate
        if returns > max(_LEAST_RETURNS, _RETURNS_A_SWAP * n_swaps):
            break
    return found


def _ladder(n_atoms, n_bins, n_coordinates):
    """Sizes of the growing subsamples, in equal steps, the whole table last."""
    foot = np.clip(_FOOT_ATOMS_A_COORDINATE * n_bins * n_coordinates, *_FOOT_ATOMS)
    if 2.0 * foot > n_atoms:
        return [n_atoms]
    n_steps = max(1, round(np.log(n_atoms / foot) / np.log(_LADDER_STEP)))
    steps = np.arange(n_steps) / n_steps
    return [*(foot * (n_atoms / foot) ** steps).astype(int), n_atoms]


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
    n_atoms, n_coordinates = problem.points.shape
    if isinstance(init, str) and n_coordinates == 1 and min_bin_weight == 0.0:
        # scalar scores: the optimum is known, and exchange certifies it
        labels, _ = interval_cells(problem.points[:, 0], problem.weights, n_bins)
        return _follow(problem, labels, n_bins, steps, options)
    # a long continuation is followed once, from the best of its first criterion
    early = steps if n_atoms <= _SMALL_TABLE else steps[:1]
    whole = problem.with_criterion(early[-1])
    if selection is None or len(early) < len(steps):
        selection = whole
    sizes = _ladder(n_atoms, n_bins, n_coordinates)
    foot = whole.head(sizes[0])
    noise = _SHARE_OF_NOISE * n_bins * n_coordinates
    enough = _SETTLING_ATOMS_A_COORDINATE * n_bins * n_coordinates

    def climb(there, labels, settle=True, **ends):
        size = len(there.points)
        ends["least_gain"] = noise / size if len(sizes) > 1 else 0.0
        ends["settle"] = settle and size >= enough
        return _follow(there, labels, n_bins, early, options, **ends)

    if isinstance(init, str):
        given = []
        starts = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(_one_start)(foot, n_bins, seed, init, kmeans_options, climb)
            for seed in draw_seeds(random_state, n_init)
        )
    else:
        given = [_follow(whole, init, n_bins, early, options)]
        starts = given
        if len(sizes) > 1:
            starts = [climb(foot, given[0].labels[: sizes[0]])]
    if verbose:
        for number, start in enumerate(starts):
            print(f"start {number}: {_described(foot, start, n_bins)}")

    def values(size, labelings):
        selected = selection.head(size)
        return [
            selected.value(selected.label_information(labels, n_bins))
            for labels in labelings
        ]

    def best_first(size, partitions):
        if selection is whole:
            found = [each.value for each in partitions]
        else:
            found = values(size, [each.labels for each in partitions])
        return [partitions[i] for i in _ranked(found)]

    def carry(partitions, lower, there, most):
        """Settle partitions in a larger subsample; exchange what may be the best."""
        size = len(there.points)

        def carried(each):
            return nearest_cell(there.points, each.cell_means, _metric(lower, each))

        # atoms that they have not seen tell which of them are good
        order = _ranked(values(size, map(carried, partitions[:_CANDIDATES])))
        order = order[: min(most, max(1, _CLIMBING_ATOMS // size))]
        best = [partitions[i] for i in order]
        if len(best) == 1:
            # nothing to compare it with
            return [climb(there, carried(best[0]), settle=False)]
        settled = Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(climb)(there, carried(each), max_iter=0) for each in best
        )
        settled = best_first(size, settled)

        def go_on(each):
            return _counted(climb(there, each.labels, settle=False), each)

        climbed = [go_on(each) for each in settled[:_FOLLOWED]]
        highest = max(each.value for each in climbed)
        level = highest - _RESERVES * _largest_gain(climbed)
        others = settled[_FOLLOWED:]
        climbed += Parallel(n_jobs=n_jobs, prefer="threads")(
            delayed(go_on)(each) for each in others if not each.value < level
        )
        return [*climbed, *(each for each in others if each.value < level)]

    swapped = max([size for size in sizes if size <= _SWAPPED_ATOMS] or sizes[:1])
    climbers, lower, most = best_first(sizes[0], starts), foot, _FIRST_CLIMBERS
    for size in sizes:
        there = whole.head(size)
        if size > sizes[0]:
            climbers = best_first(size, carry(climbers, lower, there, most))
            lower, most = there, _CLIMBERS
        if size == swapped:
            found = _swap(there, climbers, n_bins, n_swaps, random_state, climb)
            climbers = best_first(size, [*climbers, *found])
    chosen = climbers[0]
    if len(sizes) > 1:
        last = _follow(whole, chosen.labels, n_bins, early, options)
        chosen = _counted(last, chosen)
    if len(early) < len(steps):
        chosen = _follow(problem, chosen.labels, n_bins, steps[1:], options)
    if given:
        pair = [chosen, *given]
        chosen = pair[int(np.argmax(values(n_atoms, [each.labels for each in pair])))]
    if verbose:
        ending = "stable" if chosen.stable else "not certified stable"
        print(f"best: {_described(selection, chosen, n_bins)}, {ending}")
    return chosen
