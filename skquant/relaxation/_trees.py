"""Trees: the best one, and marginals by elimination without subtraction.

Eliminating a node m of a weighted digraph adds ``w_hm w_md / s_m`` to every edge
(h, d), with s_m the sum of what enters m: the Schur complement of the Laplacian, of
positive terms only, so that it works in log space at any temperature. The product of
the s is the sum over arborescences (the matrix-tree theorem).
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree

from skquant.relaxation._subsets import log_add, log_sum

__all__ = ["arborescence_marginals", "best_arborescence", "best_spanning_tree"]


def arborescence_marginals(logits, root):
    """Marginals (..., n, n) and log partition (...) of arborescences from a root.

    ``logits[h, d]`` belongs to the edge from head h to dependent d; the diagonal and
    what enters the root count as absent. A log partition of -inf has no arborescence.
    """
    n = logits.shape[-1]
    order = [root, *(i for i in range(n) if i != root)]
    table = logits[..., order, :][..., :, order].copy()
    diagonal = np.arange(n)
    table[..., diagonal, diagonal] = -np.inf
    table[..., :, 0] = -np.inf
    log_partition = np.zeros(table.shape[:-2], dtype=table.dtype)
    history = []
    with np.errstate(invalid="ignore"):
        for m in reversed(range(1, n)):
            enter, leave = table[..., :m, m], table[..., m, :m]
            total = log_sum(enter)
            share = enter - total[..., None]
            detour = share[..., :, None] + leave[..., None, :]
            detour[..., diagonal[:m], diagonal[:m]] = -np.inf
            direct = table[..., :m, :m]
            merged = log_add(direct, detour)
            history.append((direct, detour, merged, share, m))
            log_partition = log_partition + total
            table = merged
    marginals = np.zeros((*table.shape[:-2], n, n), dtype=table.dtype)
    adjoint = np.zeros((*table.shape[:-2], 1, 1), dtype=table.dtype)
    with np.errstate(under="ignore", invalid="ignore"):
        for direct, detour, merged, share, m in reversed(history):
            absent = np.isneginf(merged.real)
            kept = np.where(absent, 0.0, np.exp(direct - merged)) * adjoint
            through = np.where(absent, 0.0, np.exp(detour - merged)) * adjoint
            rest = 1.0 - through.sum(axis=(-1, -2))
            grown = np.zeros((*adjoint.shape[:-2], m + 1, m + 1), dtype=table.dtype)
            grown[..., :m, :m] = kept
            grown[..., m, :m] = through.sum(axis=-2)
            grown[..., :m, m] = through.sum(axis=-1)
            grown[..., :m, m] += np.exp(share) * rest[..., None]
            adjoint = grown
    marginals[...] = adjoint
    back = np.argsort(order)
    return marginals[..., back, :][..., :, back], log_partition


def best_spanning_tree(utilities, n_nodes):
    """One in the edges of a maximum spanning tree, for one vector of utilities.

    Only the order of the edges matters, so the ranks 1, 2, ... are what is minimized:
    a weight of 0 would be no edge, and large offsets lose digits.
    """
    # SciPy before 1.12 takes graphs of 32-bit indices alone
    rows, columns = np.array(np.triu_indices(n_nodes, 1), dtype=np.int32)
    order = np.argsort(-utilities, kind="stable")
    order = order[np.isfinite(utilities[order])]
    ranks = np.arange(1, len(order) + 1, dtype=np.float64)
    shape = (n_nodes, n_nodes)
    graph = coo_array((ranks, (rows[order], columns[order])), shape=shape).tocsr()
    tree = minimum_spanning_tree(graph).tocoo()
    chosen = np.zeros(len(utilities))
    chosen[order[tree.data.astype(np.intp) - 1]] = 1.0
    return chosen


def best_arborescence(utilities, root):
    """Heads (n,) of a maximum arborescence, -1 at the root (Chu-Liu, Edmonds).

    A cycle of greedy heads is contracted to one node. What enters it is measured
    against the edge that it replaces, by differences of single utilities alone.
    """
    n = len(utilities)
    table = utilities.astype(np.float64)
    table[np.arange(n), np.arange(n)] = -np.inf
    table[:, root] = -np.inf
    heads = np.argmax(table, axis=0)
    heads[root] = -1
    cycle = _find_cycle(heads, root)
    if cycle is None:
        return heads
    outside = np.array([i for i in range(n) if i not in set(cycle)])
    inside = np.array(cycle)
    own = table[heads[inside], inside]
    m = len(outside)
    small = np.full((m + 1, m + 1), -np.inf)
    small[:m, :m] = table[np.ix_(outside, outside)]
    entering = table[np.ix_(outside, inside)] - own
    small[:m, m] = entering.max(axis=1)
    leaving = table[np.ix_(inside, outside)]
    small[m, :m] = leaving.max(axis=0)
    solved = best_arborescence(small, int(np.flatnonzero(outside == root)[0]))
    result = heads.copy()
    for i in range(m):
        if solved[i] == m:
            result[outside[i]] = inside[np.argmax(leaving[:, i])]
        elif solved[i] >= 0:
            result[outside[i]] = outside[solved[i]]
    broken = inside[np.argmax(entering[solved[m]])]
    result[broken] = outside[solved[m]]
    return result


def _find_cycle(heads, root):
    done = np.zeros(len(heads), dtype=bool)
    done[root] = True
    for start in range(len(heads)):
        path, node = [], start
        while not done[node]:
            done[node] = True
            path.append(node)
            node = heads[node]
        if node in path:
            return path[path.index(node) :]
    return None
