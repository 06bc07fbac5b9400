"""Labels from centers, and repairs of labels that break a rule of the game."""

import numpy as np

from skquant._kernels.rule import affine_argmax, scratch_size
from skquant._moments import cell_counts
from skquant._tolerances import EQUAL


def largest_logit(points, slopes, offsets):
    """Return each point's cell of the largest affine logit, the first of equal ones."""
    labels = np.empty(len(points), dtype=np.int32)
    scratch = np.empty(scratch_size(points.shape[1]))
    slopes = np.ascontiguousarray(slopes)
    affine_argmax(points, slopes, offsets, labels, scratch)
    return labels


def nearest_cell(points, centers, metric):
    """Return the nearest center of each point in a metric, the first of equal ones."""
    slopes = 2.0 * (centers @ metric)
    return largest_logit(points, slopes, -0.5 * np.sum(slopes * centers, axis=1))


def fill_empty_cells(problem, labels, n_bins):
    """Give each empty cell the atom farthest from the mean of a cell that has more."""
    counts = cell_counts(labels, n_bins)
    if counts.min() > 0:
        return labels
    labels = labels.copy()
    for cell in np.flatnonzero(counts == 0):
        counts = np.bincount(labels, minlength=n_bins)
        sums = [
            np.bincount(labels, problem.weights * column, minlength=n_bins)
            for column in problem.points.T
        ]
        weights = np.bincount(labels, problem.weights, minlength=n_bins)
        means = np.column_stack(sums)[labels] / weights[labels, None]
        distortion = problem.weights * np.sum((problem.points - means) ** 2, axis=1)
        distortion[counts[labels] == 1] = -1.0
        labels[np.argmax(distortion)] = cell
    return labels


def raise_light_cells(problem, labels, n_bins, min_bin_weight):
    """Move atoms into cells below a share of the weight, the nearest ones first.

    If that fails, atoms are dealt out, the heaviest first, to the lightest cell.
    What cannot be reached is left to the caller to report.
    """
    weights = problem.weights
    shares = np.bincount(labels, weights, minlength=n_bins)
    # rounding must not bar the last row of what is just enough
    least = min_bin_weight * (1.0 - EQUAL)
    if least <= 0.0 or shares.min() >= least:
        return labels
    repaired = labels.copy()
    for cell in np.argsort(shares, kind="stable"):
        members = repaired == cell
        if not members.any() or shares[cell] >= least:
            continue
        mean = weights[members] @ problem.points[members] / shares[cell]
        for row in np.argsort(np.sum((problem.points - mean) ** 2, axis=1)):
            if shares[cell] >= least:
                break
            donor = repaired[row]
            if donor != cell and shares[donor] - weights[row] >= least:
                repaired[row] = cell
                shares[donor] -= weights[row]
                shares[cell] += weights[row]
    if shares.min() >= least:
        return repaired
    dealt, shares = np.empty_like(labels), np.zeros(n_bins)
    for row in np.argsort(-weights, kind="stable"):
        dealt[row] = np.argmin(shares)
        shares[dealt[row]] += weights[row]
    if shares.min() >= least:
        return dealt
    return repaired


def lift_light_cells(problem, slopes, offsets, least):
    """Raise offsets until every cell of a rule has a least share of the weight.

    The lightest cell gets the rows that are nearest to it in logits, again and again;
    returns the offsets, and whether that ended well.
    """
    if least == 0.0:
        return offsets, True
    offsets = offsets.copy()
    enough = least * (1.0 - EQUAL)
    for _ in range(20 * len(offsets)):
        logits = problem.points @ slopes.T + offsets
        labels = np.argmax(logits, axis=1)
        shares = np.bincount(labels, problem.weights, minlength=len(offsets))
        cell = int(np.argmin(shares))
        if shares[cell] >= enough:
            return offsets, True
        rows = np.flatnonzero(labels != cell)
        gaps = logits[rows].max(axis=1) - logits[rows, cell]
        order = np.argsort(gaps, kind="stable")
        gathered = shares[cell] + np.cumsum(problem.weights[rows[order]])
        last = min(int(np.searchsorted(gathered, enough)), len(order) - 1)
        # to the middle of the way to the next row, so that ties do not decide
        beyond = gaps[order[min(last + 1, len(order) - 1)]]
        rise = 0.5 * (gaps[order[last]] + beyond)
        offsets[cell] += rise if rise > gaps[order[last]] else 1.000001 * rise + 1e-12
    return offsets, False
