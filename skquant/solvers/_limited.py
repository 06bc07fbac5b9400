"""Affine rules whose own cells satisfy limits.

At an optimum under least sums of the cells the rule stays affine: each cell gets a
multiplier, nonnegative, on its logit. So a rule is repaired by raising the offsets of
the cells that lack something, and improved by turns: slopes of the criterion's
gradient, then offsets raised again from nothing. On the smallest tables atoms are
exchanged besides, one by one and in pairs, where that is allowed, and the best
partition met that some rule has is taken.
"""

from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

from skquant._moments import row_blocks
from skquant.criteria import NormalizedTrace
from skquant.solvers._assignment import largest_logit
from skquant.solvers._interval import interval_cells, most_cells
from skquant.solvers._limits import unreachable
from skquant.solvers._soft_search import partition_rule

# Raises of an offset, for each cell, before a rule counts as beyond repair.
_RAISES_A_CELL = 50

# Atoms nearest to a cell that are looked at first, and how many times more next.
_NEAREST = 256
_SAMPLE = 20_000
_MORE = 8

# Turns of slopes and offsets, the gain in value, by itself or over 1, to go on, and
# the share of what offsets were raised that the next turn begins with.
_TURNS = 10
_LEAST_GAIN = 1e-7
_KEPT_RISE = 0.5

# Directions of a table's coordinates whose intervals are tried, beside its axes.
_DIRECTIONS = 5

# Tables of so few atoms are searched by exchange, from random labelings of so many
# atoms in all.
_SMALL_TABLE = 24
_STARTED_ATOMS = 1_000

# So many of the best partitions met are asked whether a rule has them.
_ASKED = 300

# Gaps between logits, relative to the largest, that rounding does not close.
_APART = 1e-11


def lift(problem, limits, rule):
    """Raise offsets of a rule until its cells satisfy the limits.

    The cell that lacks most gets the atoms nearest to it in logits, as many as it needs
    whatever they are taken from, again and again.

    Returns the rule and its labels, or None where that does not end.
    """
    slopes, offsets = rule[0], rule[1].copy()
    points, n_bins = problem.points, len(offsets)
    labels = largest_logit(points, slopes, offsets)
    sums = limits.cell_sums(labels, n_bins)
    missing = limits.violation(sums)
    own = None
    for _ in range(_RAISES_A_CELL * n_bins):
        cell = int(np.argmax(missing))
        if missing[cell] == 0.0:
            # without the rounding of what came and went
            if limits.violation(limits.cell_sums(labels, n_bins)).max() == 0.0:
                return (slopes, offsets), labels
            return None
        if own is None:
            own = np.empty(len(points))
            for block, _ in row_blocks(len(points)):
                part = labels[block]
                own[block] = np.sum(points[block] * slopes[part], axis=1)
                own[block] += offsets[part]
            apart = _APART * np.abs(own).max()
        gaps = own - (points @ slopes[cell] + offsets[cell])
        gaps[labels == cell] = np.inf
        found = _needed(limits, sums[cell], gaps, apart)
        if found is None:
            return None
        taken, rise = found
        own[taken] += rise - gaps[taken]
        own[labels == cell] += rise
        offsets[cell] += rise
        moved = limits.atom_sums(taken)
        np.subtract.at(sums, labels[taken], moved)
        sums[cell] += moved.sum(axis=0)
        labels[taken] = cell
        missing = limits.violation(sums)
    return None


def _needed(limits, sums, gaps, apart):
    """Return the nearest atoms that a cell needs, and the rise that brings them in."""
    size = _NEAREST
    while True:
        size = min(size, len(gaps))
        near = np.arange(len(gaps))
        if size < len(gaps):
            # the quantile of a part of the atoms does
            part = gaps[:: 1 + len(gaps) // _SAMPLE]
            rank = size * len(part) // len(gaps)
            near = np.flatnonzero(gaps <= np.partition(part, rank)[rank])
        near = near[np.argsort(gaps[near], kind="stable")]
        near = near[np.isfinite(gaps[near])]
        if len(near) > 1:
            gathered = sums + np.cumsum(limits.atom_sums(near), axis=0)
            enough = limits.violation(gathered[:-1]) == 0.0
            enough &= np.diff(gaps[near]) > apart
            if enough.any():
                last = int(np.argmax(enough))
                return near[: last + 1], 0.5 * gaps[near[last : last + 2]].sum()
        if size == len(gaps):
            return None
        size *= _MORE


def _climb(problem, limits, rule):
    """Return value, rule and labels of a rule lifted and improved by turns, or None."""
    lifted = lift(problem, limits, rule)
    best = None
    for _ in range(_TURNS):
        if lifted is None:
            break
        value = problem.value(problem.label_information(lifted[1], len(rule[1])))
        if best is not None:
            least = _LEAST_GAIN * max(1.0, abs(best[0])) if np.isfinite(value) else 0.0
            if not value > best[0] + least:
                break
        best = (value, *lifted)
        rise = lifted[0][1] - rule[1]
        rule = partition_rule(problem, lifted[1], len(rule[1]))
        # most of the multipliers will be needed again
        start = rule[1] + _KEPT_RISE * (rise - rise.min())
        lifted = lift(problem, limits, (rule[0], start))
    return best


def _projections(problem):
    """Directions of the coordinates, and their projections of the points."""
    r = problem.points.shape[1]
    more = np.random.RandomState(0).normal(size=(_DIRECTIONS, r))
    return [(each, problem.points @ each) for each in np.vstack([np.eye(r), more])]


def _interval_rule(projection, problem, limits, n_bins):
    direction, values = projection
    cut = interval_cells(values, problem.weights, n_bins, limits)
    if cut is None or len(cut[1]) + 1 < n_bins:
        return None
    # slopes 0, 1, ..., K - 1: the label is the number of edges below
    slopes = np.arange(n_bins)[:, None] * direction
    return slopes, -np.concatenate([[0.0], np.cumsum(cut[1])])


def separating_rule(points, labels, n_bins):
    """Return an affine rule with given labels, None where there is none.

    A linear program for the largest margin of logits.
    """
    n, r = points.shape
    size = 1 + r
    table = np.column_stack([np.ones(n), points / (np.abs(points).max() or 1.0)])
    rows = np.repeat(np.arange(n), n_bins)
    cells = np.tile(np.arange(n_bins), n)
    rows, cells = (each[cells != labels[rows]] for each in (rows, cells))
    # other - own + margin <= 0
    unequal = np.zeros((len(rows), n_bins, size))
    unequal[np.arange(len(rows)), cells] = table[rows]
    unequal[np.arange(len(rows)), labels[rows]] -= table[rows]
    unequal = np.column_stack([unequal.reshape(len(rows), -1), np.ones(len(rows))])
    cost = np.zeros(unequal.shape[1])
    cost[-1] = -1.0
    found = linprog(cost, unequal, np.zeros(len(rows)), bounds=(-1.0, 1.0))
    if found.status != 0 or not found.x[-1] > 1e-9:
        return None
    rule = found.x[:-1].reshape(n_bins, size)
    return rule[:, 1:] / (np.abs(points).max() or 1.0), rule[:, 0].copy()


def exchange_allowed(problem, limits, labels, n_bins, met):
    """Move atoms, or swap two, while that gains, or shrinks what is missing.

    Only for tables of a few atoms: every partition is summed anew. INOUT ``met``, a
    dict of the labels looked at, as bytes, to what is missing, negative, and the
    criterion's value.
    """
    n = len(labels)

    def rank(trial):
        key = trial.tobytes()
        if key not in met:
            missing, value = np.inf, -np.inf
            if np.bincount(trial, minlength=n_bins).min() > 0:
                missing = limits.violation(limits.cell_sums(trial, n_bins)).sum()
            if missing == 0.0:
                value = problem.value(problem.label_information(trial, n_bins))
            met[key] = -missing, value
        return met[key]

    moves = [([atom], [cell]) for atom in range(n) for cell in range(n_bins)]
    moves += [(list(pair), None) for pair in combinations(range(n), 2)]
    best, changed = rank(labels), True
    while changed:
        changed = False
        for atoms, cells in moves:
            trial = labels.copy()
            trial[atoms] = labels[atoms[::-1]] if cells is None else cells
            found = rank(trial)
            if found > best:
                best, labels, changed = found, trial, True


def _small_rule(problem, limits, starts, n_bins):
    """Return value, rule and labels of the best partition met that a rule has."""
    random_state = np.random.RandomState(0)
    n, met = len(problem.points), {}
    random = [
        random_state.permutation(np.arange(n) % n_bins).astype(np.int32)
        for _ in range(_STARTED_ATOMS // n)
    ]
    for start in [*starts, *random]:
        exchange_allowed(problem, limits, start, n_bins, met)
    ranked = sorted(met.items(), key=lambda each: each[1], reverse=True)
    asked = set()
    for key, (missing, value) in ranked:
        labels = np.frombuffer(key, dtype=np.int32)
        _, first, cells = np.unique(labels, return_index=True, return_inverse=True)
        # cells numbered by their first atom
        same = tuple(np.argsort(np.argsort(first))[cells])
        if same in asked:
            continue
        asked.add(same)
        if missing < 0.0 or len(asked) > _ASKED:
            return None
        rule = separating_rule(problem.points, labels, n_bins)
        if rule is not None:
            return value, rule, largest_logit(problem.points, *rule)
    return None


def limited_rule(problem, limits, rules):
    """Return the best rule found whose cells satisfy the limits, and its labels.

    Parameters
    ----------
    problem : Problem
    limits : Limits
    rules : list of tuple of ndarray
        Slopes and offsets to start from, each if the one before cannot be repaired.

    Raises
    ------
    ValueError
        If none was found.
    """
    n_bins = len(rules[0][1])
    climbed = []
    for rule in rules:
        if not climbed or climbed[-1] is None:
            climbed.append(_climb(problem, limits, rule))
    if len(problem.points) <= _SMALL_TABLE:
        starts = [largest_logit(problem.points, *each) for each in rules]
        climbed.append(_small_rule(problem, limits, starts, n_bins))
    found = [each for each in climbed if each is not None]
    if not found:
        projections = _projections(problem)
        for each in projections:
            rule = _interval_rule(each, problem, limits, n_bins)
            if rule is not None:
                found.append(_climb(problem, limits, rule))
        found = [each for each in found if each is not None]
    if not found:

        def most(each):
            return max(most_cells(p, problem.weights, each) for _, p in projections)

        raise unreachable(limits, n_bins, most)
    _, rule, labels = max(found, key=lambda each: each[0])
    return rule, labels


def limit_solution(problem, atoms, solution, objective=None):
    """Return a solution whose rule satisfies the limits of the atoms, if there are any.

    ``objective`` is the problem whose criterion the rule maximizes, if not that of the
    problem. Of a table whose information no labels keep that is the trace.
    """
    limits = atoms.limits
    if limits is None:
        return solution
    rule, n_bins = (solution.coef, solution.intercept), len(solution.coef)
    labels = largest_logit(problem.points, *rule)
    free = labels if solution.labels is None else solution.labels

    def kept(labels):
        return problem.efficiency(problem.label_information(labels, n_bins))

    retentions = {None: kept(free)}
    if limits.met(labels, n_bins):
        return replace(solution, labels=None, retentions=retentions)
    objective = problem if objective is None else objective
    if not np.isfinite(objective.value(objective.label_information(free, n_bins))):
        objective = problem.whitened(NormalizedTrace())
    starts = [rule, partition_rule(objective, free, n_bins)]
    limited, _ = limited_rule(objective, limits, starts)
    if len(limits.names) > 1:
        for number, name in enumerate(limits.names):
            _, labels = limited_rule(objective, limits.alone(number), starts)
            retentions[name] = kept(labels)
    return replace(
        solution,
        labels=None,
        coef=limited[0],
        intercept=limited[1],
        retentions=retentions,
    )
