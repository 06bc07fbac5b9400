"""Global search over partitions: restarts and random swaps, then the whole table.

A large table is searched by the means of neighboring atoms; the best partitions found
there are compared, and exchanged, on all of its atoms.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from joblib import Parallel, delayed

from skquant._tolerances import EQUAL
from skquant.criteria import NormalizedTrace
from skquant.solvers._assignment import nearest_cell
from skquant.solvers._exchange import exchange
from skquant.solvers._interval import interval_cells
from skquant.solvers._seeding import kmeans_starts, random_start, seeded_starts

# A large table is searched by means of neighboring atoms: their number grows with the
# root of the atoms times the coordinates of the cell means, within limits. They stand
# for the atoms where they are at most this share of them.
_COARSE_FACTOR = 8
_COARSE_POINTS = 2_000, 20_000
_COARSE_SHARE = 0.5

# Values closer than this, by themselves or over 1, are those of one optimum.
_ROUNDING = EQUAL
_ALIKE = 1e-5

# Rough starts settle where cells have so many points a coordinate, and among means;
# with fewer, relocating one by one from the start ends better.
_SETTLING_POINTS = 100

# Swaps may lead back to the best partition so often, a share of their number but
# these at least, before it counts as the best there is.
_RETURNS_A_SWAP = 0.2
_LEAST_RETURNS = 4

# A swap that has settled may be behind by this share of the most that relocating one by
# one has gained so far.
_SHARE_OF_RESERVE = 0.5

# Partitions of the means are exchanged on the whole table: these at least, more where a
# mean stands for many atoms, within so many atoms of all together. Where there is a
# choice, some are looked at there for each.
_CLIMBERS = 2
_ATOMS_A_MEAN_A_CLIMBER = 4
_CLIMBING_ATOMS = 600_000
_CANDIDATES_A_CLIMBER = 3

# Where the means lose more than this share of the information, swaps are tried on the
# whole table, too, within so many atoms of all together.
_COARSE_LOSS = 0.05
_SWAPPED_ATOMS = 400_000

# Among means of atoms a round that gains less than this share of what noise adds to the
# optimum, a coordinate of the cell means over the atoms, is the last.
_SHARE_OF_NOISE = 0.01

# Tables up to this size follow a criterion's continuation from every start.
_SMALL_TABLE = 100


def draw_seeds(random_state, n_seeds):
    """Draw integer seeds, so that work can be done in any order."""
    return random_state.randint(np.iinfo(np.int32).max, size=n_seeds)


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
    if len(done) == 1:
        return result
    # with the work of all that led to it
    return replace(
        result,
        n_iter=sum(each.n_iter for each in done),
        n_moves=sum(each.n_moves for each in done),
        n_visits=sum(each.n_visits for each in done),
    )


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


def _largest_gain(partitions):
    """Largest gain of exchanges after their starts had settled."""
    return max(each.value - each.settled_value for each in partitions)


def _swap(problem, starts, n_bins, n_swaps, random_state, climb):
    """Replace the mean of a random cell by an atom, exchange, keep if better.

    Begins with the first of the starts and returns all that were found; once the best
    has come back so often that a better one is unlikely, no others are tried. Every
    swap tries two atoms, one drawn by its weight and one by its share of the
    distortion: outliers need cells of their own in heavy tails, and only there. Only
    where the swap settles within reach of the best is it followed.
    """
    best, returns = starts[0], 0
    found, described = [], None
    largest_gain = _largest_gain(starts)
    for attempt in range(2 * n_swaps if n_bins > 1 else 0):
        if described is not best:
            described = best
            if not np.isfinite(best.value):
                break
            offsets = problem.points - best.cell_means[best.labels]
            distortion = np.abs(np.sum((offsets @ best.metric) * offsets, axis=1))
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
        labels = nearest_cell(problem.points, centers, best.metric)
        reserve = _SHARE_OF_RESERVE * largest_gain
        candidate = climb(problem, labels, target=best.value, reserve=reserve)
        found.append(candidate)
        largest_gain = max(largest_gain, _largest_gain([candidate]))
        if _exceeds(candidate.value, best.value, _ALIKE):
            returns = 0
        elif not _exceeds(best.value, candidate.value, _ALIKE):
            returns += 1
        if _exceeds(candidate.value, best.value):
            best = candidate
        if returns > max(_LEAST_RETURNS, _RETURNS_A_SWAP * n_swaps):
            break
    return found


def _coarse_size(n_atoms, n_bins, n_coordinates):
    """Number of points that stand for the atoms in the search, at most theirs."""
    size = np.sqrt(_COARSE_FACTOR * n_atoms * n_bins * n_coordinates)
    size = np.clip(size, *_COARSE_POINTS)
    return int(size) if size <= _COARSE_SHARE * n_atoms else n_atoms


def _starting_labels(
    problem, n_bins, n_init, init, kmeans_options, random_state, side_by_side
):
    if init == "random":
        return [random_start(problem, n_bins, random_state) for _ in range(n_init)]
    if kmeans_options is None:
        return seeded_starts(problem, n_bins, n_init, random_state)
    seeds = draw_seeds(random_state, n_init)
    fits = kmeans_starts(problem, n_bins, seeds, side_by_side, **kmeans_options)
    return [fit.labels_ for fit in fits]


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
    steps = problem.criterion.continuation()
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
    side_by_side = Parallel(n_jobs=n_jobs, prefer="threads")
    searched = whole
    size = _coarse_size(n_atoms, n_bins, n_coordinates)
    if size < n_atoms:
        searched = whole.coarse(size, random_state)

    rough = (
        searched is not whole or n_atoms >= _SETTLING_POINTS * n_bins * n_coordinates
    )

    climb = partial(_follow, n_bins=n_bins, steps=early, options=options, settle=rough)
    climb_searched = climb
    if searched is not whole:
        coarse_gain = _SHARE_OF_NOISE * n_bins * n_coordinates / n_atoms
        climb_searched = partial(climb, least_gain=coarse_gain)

    def carried(there, each):
        return nearest_cell(there.points, each.cell_means, each.metric)

    if isinstance(init, str):
        given = []
        starts = side_by_side(
            delayed(climb_searched)(searched, labels)
            for labels in _starting_labels(
                searched,
                n_bins,
                n_init,
                init,
                kmeans_options if searched is whole else None,
                random_state,
                side_by_side,
            )
        )
    else:
        given = [_follow(whole, init, n_bins, early, options)]
        starts = given
        if searched is not whole:
            starts = [climb_searched(searched, carried(searched, given[0]))]
    if verbose:
        for number, start in enumerate(starts):
            print(f"start {number}: {_described(searched, start, n_bins)}")

    def values(there, labelings):
        """What chooses between labelings of a problem's points."""
        selected = replace(selection, points=there.points, weights=there.weights)
        return [
            selected.value(selected.label_information(labels, n_bins))
            for labels in labelings
        ]

    def best_first(there, partitions):
        if selection is whole:
            found = [each.value for each in partitions]
        else:
            found = values(there, [each.labels for each in partitions])
        return [partitions[i] for i in _ranked(found)]

    climbers = best_first(searched, starts)
    found = _swap(searched, climbers, n_bins, n_swaps, random_state, climb_searched)
    climbers = best_first(searched, [*climbers, *found])
    if searched is not whole:
        # atoms tell which of them are good
        most = max(_CLIMBERS, n_atoms // (_ATOMS_A_MEAN_A_CLIMBER * size))
        most = min(most, max(1, _CLIMBING_ATOMS // n_atoms))
        candidates = climbers[: _CANDIDATES_A_CLIMBER * most if most > 1 else 1]
        labelings = [carried(whole, each) for each in candidates]
        first, *others = _ranked(values(whole, labelings))[:most]
        settled = [climb(whole, labelings[first], settle=False)]
        # the others go on as long as they may become better
        target = settled[0].value if selection is whole else -np.inf
        settled += side_by_side(
            delayed(climb)(whole, labelings[i], settle=False, target=target)
            for i in others
        )
        whole_trace = n_coordinates
        if problem.base is not None:
            whole_trace = np.trace(problem.full_information())
        kept = np.trace(searched.full_information()) / whole_trace
        if 1.0 - kept > _COARSE_LOSS:
            again = min(n_swaps, _SWAPPED_ATOMS // n_atoms)
            settled = best_first(whole, settled)
            settled += _swap(whole, settled, n_bins, again, random_state, climb)
        climbers = best_first(whole, settled)
    chosen = climbers[0]
    if len(early) < len(steps):
        chosen = _follow(problem, chosen.labels, n_bins, steps[1:], options)
    if given:
        pair = [chosen, *given]
        chosen = pair[int(np.argmax(values(whole, [each.labels for each in pair])))]
    if verbose:
        ending = "stable" if chosen.stable else "not certified stable"
        print(f"best: {_described(selection, chosen, n_bins)}, {ending}")
    return chosen
