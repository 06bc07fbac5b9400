"""The exact optimum of scalar scores: intervals, by dynamic programming.

Row minima of each layer are found by the algorithm of Aggarwal, Klawe, Moran, Shor
and Wilber ("Geometric applications of a matrix-searching algorithm", Algorithmica 2,
1987), in time linear in the number of values.
"""

from dataclasses import dataclass

import numpy as np

from skquant._kernels.interval import (
    fill_between,
    fill_minima,
    first_layer,
    most_intervals,
    narrow_ends,
    prefix_sums,
    reduce_columns,
)
from skquant._table import merge_rows
from skquant.solvers._limits import ROUNDING


@dataclass(frozen=True)
class AllowedIntervals:
    """Which intervals of ascending values satisfy the limits of cells.

    Attributes
    ----------
    sums : ndarray of shape (n + 1, 2, c)
        Prefix sums of weights and of their squares, of what is limited.
    least : ndarray of shape (2, c)
        Least weight and least number of effective entries.
    first, last : ndarray of int32 of shape (n + 1,)
        The first values up to a number may have their last interval start below
        ``first`` whatever its squares are, and may not have it start from ``last`` on.
        Both ascend.
    """

    sums: np.ndarray
    least: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of_values(cls, limits, of_atom, n_values):
        """Return those of values, of limits of atoms and the value of each atom."""
        least = np.stack(
            [limits.least_weights.max(axis=0), limits.least_entries.max(axis=0)]
        )
        least *= 1.0 - ROUNDING
        asked = least.max(axis=0) > 0
        asked[-1] = True
        least = np.ascontiguousarray(least[:, asked])
        table = limits.cell_sums(of_atom, n_values)[:, :, asked]
        sums = np.zeros((n_values + 1, *table.shape[1:]))
        np.cumsum(table, axis=0, out=sums[1:])
        # the number of effective entries lies between the weight over that of the
        # heaviest row and over that of the lightest
        first, last = np.arange(n_values + 1), np.arange(n_values + 1)
        for column, group in enumerate(np.flatnonzero(asked)):
            rows = limits.weights
            if group < limits.n_columns - 1:
                rows = rows[limits.groups == group]
            extremes = (rows.max(), rows.min()) if len(rows) else (np.inf, np.inf)
            ascending = sums[:, 0, column]
            for ends, row in zip((first, last), extremes, strict=True):
                needed = least[0, column]
                if least[1, column] > 0:
                    needed = max(needed, least[1, column] * row)
                found = np.searchsorted(ascending, ascending - needed, side="right")
                np.minimum(ends, found, out=ends)
        first, last = first.astype(np.int32), np.maximum(first, last).astype(np.int32)
        narrow_ends(sums, least, first, last)
        first = np.minimum.accumulate(first[::-1])[::-1].copy()
        return cls(sums, least, first, np.maximum.accumulate(last))

    def most(self):
        """Return into how many allowed intervals all values can be cut, at most."""
        counts = np.empty(len(self.sums), dtype=np.int32)
        most_intervals(self.sums, self.least, self.first, self.last, counts)
        return max(0, int(counts[-1]))


def _row_minima(
    prefix, previous, costs, argmin, first_row, step, n_rows, columns, ends
):
    """Fill costs and argmin of the rows first_row, first_row + step, ..."""
    kept = columns
    # one row, or no more columns than rows: nothing to drop
    if len(columns) > n_rows > 1:
        kept = np.empty(n_rows, dtype=np.int32)
        n_kept = reduce_columns(
            prefix, previous, first_row, step, n_rows, columns, ends, kept
        )
        kept = kept[:n_kept]
    if n_rows > 1:
        _row_minima(
            prefix,
            previous,
            costs,
            argmin,
            first_row + step,
            2 * step,
            n_rows // 2,
            kept,
            ends,
        )
    fill_minima(prefix, previous, first_row, step, n_rows, kept, ends, costs, argmin)


def optimal_intervals(values, weights, n_bins, allowed=None):
    """Cut distinct ascending values into intervals of the least squares.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Distinct, ascending.
    weights : ndarray of shape (n,)
        Positive.
    n_bins : int
        At most n, and than the most allowed intervals.
    allowed : AllowedIntervals, default=None
        The intervals to choose from; None: all.

    Returns
    -------
    starts : ndarray of int of shape (n_bins,)
        Index of the first value of each interval.
    """
    n = len(values)
    # about a value in the middle: a common offset leaves no trace
    values = values - values[n // 2]
    values /= max(np.abs(values[[0, -1]]).max(), np.finfo(np.float64).tiny)
    prefix = np.empty((n + 1, 6))
    prefix_sums(values, weights / weights.max(), prefix)
    previous, costs = np.full(n + 1, np.inf), np.full(n + 1, np.inf)
    ends = np.arange(n + 1, dtype=np.int32)
    if allowed is None:
        first_layer(prefix, previous)
    else:
        # before the first interval there are no values
        previous[0] = 0.0
        ends = allowed.first
    splits = np.zeros((n_bins, n + 1), dtype=np.int32)
    for layer in range(1 if allowed is None else 0, n_bins):
        # the first j values need j > layer, and leave at least ``layer`` before
        columns = np.arange(layer, n, dtype=np.int32)
        if allowed is not None:
            columns = columns[np.isfinite(previous[columns])]
        # of the last layer all values together are enough
        first_row, n_rows = (n, 1) if layer == n_bins - 1 else (layer + 1, n - layer)
        found = costs, splits[layer]
        _row_minima(prefix, previous, *found, first_row, 1, n_rows, columns, ends)
        if allowed is not None:
            fill_between(
                prefix,
                previous,
                allowed.sums,
                allowed.least,
                ends,
                allowed.last,
                first_row,
                *found,
            )
        previous, costs = costs, previous
        costs[:] = np.inf
    starts = np.zeros(n_bins, dtype=np.int64)
    end = n
    for layer in range(n_bins - 1, 0, -1):
        end = splits[layer, end]
        starts[layer] = end
    return starts


def most_cells(projection, weights, limits):
    """Return into how many intervals that satisfy the limits all points can be cut."""
    of_point, first, _ = merge_rows(projection[:, None], weights)
    return AllowedIntervals.of_values(limits, of_point, len(first)).most()


def interval_cells(projection, weights, n_bins, limits=None):
    """Return labels and inner edges of the best intervals of a projection.

    Edges lie halfway between the means of neighbors. There are fewer cells than
    ``n_bins`` only with fewer distinct values. The projection had better be relative
    to its mean, so that a common offset costs no digits. With limits only intervals
    that satisfy them are chosen; ``None`` if there are too few.
    """
    of_point, first, weights = merge_rows(projection[:, None], weights)
    values = projection[first]
    n_bins, allowed = min(n_bins, len(values)), None
    if limits is not None:
        allowed = AllowedIntervals.of_values(limits, of_point, len(values))
        if allowed.most() < n_bins:
            return None
    starts = optimal_intervals(values, weights, n_bins, allowed)
    means = np.add.reduceat(weights * values, starts)
    means /= np.add.reduceat(weights, starts)
    low, high = values[starts[1:] - 1], values[starts[1:]]
    edges = 0.5 * (means[1:] + means[:-1])
    # between the neighbors should rounding say otherwise
    outside = ~((low <= edges) & (edges < high))
    edges[outside] = (low + 0.5 * (high - low))[outside]
    labels = np.searchsorted(starts, of_point, side="right") - 1
    return labels.astype(np.int32), edges
