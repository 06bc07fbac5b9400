"""Negative weights merged with neighboring rows, so that a table can be fitted."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from skquant._checks import CANCELLED
from skquant._table import informative_subspace, merge_rows

# A net weight nearer to zero than this, relative to what the whole table keeps of its
# absolute weight, would put the mean far from the rows.
_LEAST_NET = 0.1

# So many neighbors are looked up at a time, for all groups together.
_LOOKED_UP = 5_000_000


@dataclass(frozen=True)
class MergedTable:
    """A table without negative weights.

    Attributes
    ----------
    X : ndarray of shape (m, d)
        Signed means of the merged rows.
    weights : ndarray of shape (m,)
        Their net weights, positive.
    of_row : ndarray of int of shape (n,)
        Which of them each row of the user's table became part of; -1 for rows of weight
        zero and for identical ones whose weights cancel.
    share : float
        Share of the absolute weight in rows that were merged with different ones.
    radius : float
        Mean distance of those rows from the middle of what they were merged into, in
        coordinates in which the information of the absolute weights is the identity.
    """

    X: np.ndarray
    weights: np.ndarray
    of_row: np.ndarray
    share: float = 0.0
    radius: float = 0.0


def merge_negative_weights(X, weights, rank_rtol):
    """Merge neighboring rows until the net weight of each is positive.

    Identical rows are added up first; what cancels is as if absent. Then each row or
    group without a positive net weight takes in its nearest neighbors, in order, until
    its net weight is positive; groups that share a neighbor become one.
    """
    of_row, first_row, absolute = merge_rows(X, np.abs(weights))
    used = np.flatnonzero(of_row >= 0)
    largest = absolute.max()
    # in an order that depends on the content alone
    used = used[np.lexsort((weights[used], of_row[used]))]
    starts = np.flatnonzero(np.diff(of_row[used], prepend=-1))
    net = np.add.reduceat(weights[used] / largest, starts)
    kept = np.abs(net) > CANCELLED * (absolute / largest)
    position = np.where(kept, np.cumsum(kept) - 1, -1)
    # the last one stands for rows of weight zero
    of_row = np.append(position, -1)[of_row]
    table, net = X[first_row[kept]].astype(np.float64), net[kept]

    size = np.abs(net)
    subspace = informative_subspace(table, size / size.sum(), rank_rtol)
    points = (table - (size / size.sum()) @ table) @ subspace.whitener
    group, n_groups = _merge_points(points, net, size)

    def sums(values):
        return np.bincount(group, values, minlength=n_groups)

    first = np.full(n_groups, len(table))
    np.minimum.at(first, group, np.arange(len(table)))
    group_net, counts = sums(net), np.bincount(group, minlength=n_groups)
    means = table[first]
    for column, values in zip(means.T, table.T, strict=True):
        # about one of the rows, so that a common offset costs no digits
        column += sums(net * (values - column[group])) / group_net
    merged = counts[group] > 1
    share = radius = 0.0
    if merged.any():
        middle = [sums(size * each) / sums(size) for each in points.T]
        offsets = points - np.column_stack(middle)[group]
        distance = np.sqrt(np.sum(offsets**2, axis=1))
        share = float(size[merged].sum() / size.sum())
        radius = float(np.average(distance[merged], weights=size[merged]))
    return MergedTable(
        X=means.astype(X.dtype),
        weights=group_net * largest,
        of_row=np.append(group, -1)[of_row],
        share=share,
        radius=radius,
    )


def _merge_points(points, net, size):
    """Return the group of each point, and their number."""
    group, centers = np.arange(len(points)), points
    group_net, group_size = net, size
    least = _LEAST_NET * net.sum() / size.sum()
    n_neighbors = 1
    while True:
        low = np.flatnonzero(group_net <= least * group_size)
        if len(low) == 0 or len(centers) == 1:
            return group, len(centers)
        at_most = max(1, _LOOKED_UP // len(low))
        wanted = 1 + min(n_neighbors, at_most, len(centers) - 1)
        _, near = cKDTree(centers).query(centers[low], wanted)
        # itself it is not; among equal centers another may have come in its place
        itself = near == low[:, None]
        itself[~itself.any(axis=1), -1] = True
        near = near[~itself].reshape(len(low), -1)
        net_with = group_net[low, None] + np.cumsum(group_net[near], axis=1)
        size_with = group_size[low, None] + np.cumsum(group_size[near], axis=1)
        enough = net_with > least * size_with
        # up to the first that is enough
        taken = np.cumsum(enough, axis=1) - enough == 0
        pairs = np.repeat(low, taken.sum(axis=1)), near[taken]
        links = coo_array((np.ones(len(pairs[0])), pairs), shape=(len(centers),) * 2)
        n_groups, joined = connected_components(links, directed=False)
        sizes = np.bincount(joined, group_size, minlength=n_groups)
        centers = np.column_stack(
            [np.bincount(joined, group_size * each) / sizes for each in centers.T]
        )
        group_net = np.bincount(joined, group_net, minlength=n_groups)
        group_size, group = sizes, joined[group]
        n_neighbors *= 2
