"""Weights, moments of cells and their information: algebra on validated arrays.

Tables are read block by block, so that no function copies one.
"""

import numpy as np
from scipy.linalg import qr

from skquant._checks import check_cell_weights
from skquant._kernels.moments import add_moments

_BLOCK_ROWS = 8192


def share_weights(weights):
    """Return weights over their sum, safe from overflow and underflow."""
    shares = weights / max(np.max(weights), -np.min(weights))
    shares /= np.sum(shares)
    return shares


def effective_sample_size(weights):
    """Return ``(sum w)^2 / sum w^2``, between 1 and the number of rows."""
    relative = weights / max(np.max(weights), -np.min(weights))
    return float(np.sum(relative) ** 2 / np.sum(relative**2))


def row_blocks(n_rows, rows=None):
    """Yield what indexes a table block by block: slices, or parts of ``rows``."""
    for start in range(0, n_rows, _BLOCK_ROWS):
        block = slice(start, min(start + _BLOCK_ROWS, n_rows))
        yield block, block if rows is None else rows[block]


def cell_moments(points, weights, labels, n_bins, scale=None, rows=None):
    """Return weight (K,) and mean (K, r) of each cell, of points over scale.

    ``rows`` picks rows of the points, as many as there are weights and labels; only
    a block of them is ever copied. The mean of an empty cell is 0.
    """
    cell_weights = np.zeros(n_bins)
    means = np.zeros((n_bins, points.shape[1]))
    for block, index in row_blocks(len(weights), rows):
        # take is faster than an index
        part = points[block] if rows is None else points.take(index, axis=0)
        scaled = part if scale is None else part / scale
        scaled = np.ascontiguousarray(scaled, dtype=np.float64)
        cells = np.ascontiguousarray(labels[block], dtype=np.int32)
        sums = np.zeros(n_bins), np.zeros(means.shape)
        add_moments(scaled, np.ascontiguousarray(weights[block]), cells, *sums)
        cell_weights += sums[0]
        means += sums[1]
    means /= np.where(cell_weights > 0, cell_weights, 1.0)[:, None]
    return cell_weights, means


def cell_counts(labels, n_bins, weights=None):
    """Return the number of rows of each cell, or their weight.

    A block of labels is copied at a time.
    """
    counts = np.zeros(n_bins, dtype=np.intp if weights is None else np.float64)
    for block, _ in row_blocks(len(labels)):
        part = None if weights is None else weights[block]
        counts += np.bincount(labels[block], part, minlength=n_bins)
    return counts


def moment_information(cell_weights, cell_means):
    """Return ``sum_b W_b mu_b mu_b'``."""
    root = np.sqrt(cell_weights)[:, None] * cell_means
    return root.T @ root


def table_factor(points, weights, scale=1.0):
    """Return the triangular R with ``R'R = sum_i w_i x_i x_i'``, points over scale.

    Blocks of rows are folded into the factor one after the other, so that neither
    a Gram matrix nor a copy of the table is formed.
    """
    factor = np.zeros((0, points.shape[1]))
    for block, _ in row_blocks(len(weights)):
        scaled = np.sqrt(weights[block])[:, None] * (points[block] / scale)
        # of mode "r" all rows would be returned, nearly all of them zeros
        _, factor = qr(np.vstack([factor, scaled]), mode="raw", check_finite=False)
    return factor


def table_information(points, weights):
    """Return ``sum_i w_i x_i x_i'`` of weights of either sign.

    Of the rows of positive and of negative weight by themselves, then subtracted.
    """
    if np.min(weights) >= 0:
        factor = table_factor(points, weights)
        return factor.T @ factor
    negative = weights < 0
    positive = table_factor(points[~negative], weights[~negative])
    lost = table_factor(points[negative], -weights[negative])
    return positive.T @ positive - lost.T @ lost


def require_positive_cells(weights, labels, n_bins):
    """Refuse labels with a cell whose signed weights have no positive sum."""
    if np.min(weights) < 0:
        check_cell_weights(
            np.bincount(labels, weights, minlength=n_bins),
            np.bincount(labels, np.abs(weights), minlength=n_bins),
        )


def rescale(matrix, column_scale, weight_scale=1.0):
    """Undo the scaling of columns and weights; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return matrix * column_scale * column_scale[:, None] * weight_scale


def information_pair(points, weights, labels, n_bins):
    """Return retained and full information of points, per unit of total weight."""
    shares = share_weights(weights)
    require_positive_cells(shares, labels, n_bins)
    binned = moment_information(*cell_moments(points, shares, labels, n_bins))
    return binned, table_information(points, shares)
