"""The exact optimum of scalar scores: intervals, by dynamic programming.

Row minima of each layer are found by the algorithm of Aggarwal, Klawe, Moran, Shor
and Wilber ("Geometric applications of a matrix-searching algorithm", Algorithmica 2,
1987), in time linear in the number of values.
"""

import numpy as np

from skquant._kernels.interval import (
    fill_minima,
    first_layer,
    prefix_sums,
    reduce_columns,
)
from skquant._table import merge_rows


def _row_minima(prefix, previous, costs, argmin, first_row, step, n_rows, columns):
    """Fill costs and argmin of the rows first_row, first_row + step, ..."""
    kept = columns
    # one row, or no more columns than rows: nothing to drop
    if len(columns) > n_rows > 1:
        kept = np.empty(n_rows, dtype=np.int32)
        n_kept = reduce_columns(
            prefix, previous, first_row, step, n_rows, columns, kept
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
        )
    fill_minima(prefix, previous, first_row, step, n_rows, kept, costs, argmin)


def optimal_intervals(values, weights, n_bins):
    """Cut distinct ascending values into intervals of the least squares.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Distinct, ascending.
    weights : ndarray of shape (n,)
        Positive.
    n_bins : int
        At most n.

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
    previous, costs = np.empty(n + 1), np.full(n + 1, np.inf)
    first_layer(prefix, previous)
    splits = np.zeros((n_bins, n + 1), dtype=np.int32)
    for layer in range(1, n_bins):
        # the first j values need j > layer, and leave at least ``layer`` before
        columns = np.arange(layer, n, dtype=np.int32)
        # of the last layer all values together are enough
        first_row, n_rows = (n, 1) if layer == n_bins - 1 else (layer + 1, n - layer)
        _row_minima(
            prefix, previous, costs, splits[layer], first_row, 1, n_rows, columns
        )
        previous, costs = costs, previous
        costs[:] = np.inf
    starts = np.zeros(n_bins, dtype=np.int64)
    end = n
    for layer in range(n_bins - 1, 0, -1):
        end = splits[layer, end]
        starts[layer] = end
    return starts


def interval_cells(projection, weights, n_bins):
    """Return labels and inner edges of the best intervals of a projection.

    Edges lie halfway between the means of neighbors. There are fewer cells than
    ``n_bins`` only with fewer distinct values. The projection had better be relative
    to its mean, so that a common offset costs no digits.
    """
    of_point, first, weights = merge_rows(projection[:, None], weights)
    values = projection[first]
    starts = optimal_intervals(values, weights, min(n_bins, len(values)))
    means = np.add.reduceat(weights * values, starts)
    means /= np.add.reduceat(weights, starts)
    low, high = values[starts[1:] - 1], values[starts[1:]]
    edges = 0.5 * (means[1:] + means[:-1])
    # between the neighbors should rounding say otherwise
    outside = ~((low <= edges) & (edges < high))
    edges[outside] = (low + 0.5 * (high - low))[outside]
    labels = np.searchsorted(starts, of_point, side="right") - 1
    return labels.astype(np.int32), edges
