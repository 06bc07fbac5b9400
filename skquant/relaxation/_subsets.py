"""Log-space dynamic programs over subsets of fixed size.

They take complex utilities too, for derivatives by a complex step.
"""

import numpy as np

__all__ = [
    "chain_marginals",
    "chain_subset",
    "log_add",
    "log_sum",
    "subset_marginals",
]


def log_add(a, b):
    """``log(exp(a) + exp(b))``, for complex arguments by the larger real part."""
    if not (np.iscomplexobj(a) or np.iscomplexobj(b)):
        with np.errstate(under="ignore"):
            return np.logaddexp(a, b)
    top = np.maximum(a.real, b.real)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
        return top + np.log(np.exp(a - top) + np.exp(b - top))


def log_sum(a, axis=-1):
    """``log(sum(exp(a)))`` along an axis, for complex arguments too."""
    top = a.real.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        total = np.exp(a - top).sum(axis=axis)
        return np.squeeze(top, axis=axis) + np.log(total)


def _shifted(table):
    """Counts one higher."""
    result = np.full_like(table, -np.inf)
    result[..., 1:] = table[..., :-1]
    return result


def subset_marginals(z, k):
    """Marginals (..., n) and log partition (...) of the k-subsets.

    ``forward[i]`` holds the log elementary symmetric polynomials of the first i
    entries, by count; the backward table those of the rest.
    """
    n, lead = z.shape[-1], z.shape[:-1]
    empty = np.full((*lead, k + 1), -np.inf, dtype=z.dtype)
    empty[..., 0] = 0.0
    forward = [empty]
    for i in range(n):
        table = forward[-1]
        forward.append(log_add(table, _shifted(table) + z[..., i, None]))
    log_partition = forward[n][..., k]
    marginals = np.empty_like(z)
    backward = empty
    for i in reversed(range(n)):
        # the first i entries give j, entry i one, the rest k - 1 - j
        if k:
            pairs = forward[i][..., :k] + backward[..., k - 1 :: -1]
            chosen = log_sum(pairs) + z[..., i]
        else:
            chosen = np.full(lead, -np.inf, dtype=z.dtype)
        with np.errstate(under="ignore", invalid="ignore"):
            marginals[..., i] = np.exp(chosen - log_partition)
        backward = log_add(backward, _shifted(backward) + z[..., i, None])
    return marginals, log_partition


def _chain_step(table, z, node, pair, add):
    """Tables (..., count, bit) after one more node, whose bit is the last axis."""
    off = add(table[..., 0], table[..., 1])
    on = add(table[..., 0], table[..., 1] + pair[..., None]) + node[..., None]
    return np.stack([off, _shifted(on)], axis=-1)


def _chain_tables(nodes, pairs, k, add):
    """Forward tables, one a node: (..., k + 1, 2) by count and last bit."""
    lead = nodes.shape[:-1]
    table = np.full((*lead, k + 1, 2), -np.inf, dtype=nodes.dtype)
    table[..., 0, 0] = 0.0
    tables = [table]
    for i in range(nodes.shape[-1]):
        pair = pairs[..., i - 1] if i else np.zeros(lead)
        tables.append(_chain_step(tables[-1], nodes, nodes[..., i], pair, add))
    return tables


def chain_marginals(nodes, pairs, k):
    """Marginals of nodes and neighboring pairs, and log partition, of k-subsets."""
    n = nodes.shape[-1]
    forward = _chain_tables(nodes, pairs, k, log_add)
    log_partition = log_add(forward[n][..., k, 0], forward[n][..., k, 1])
    on, both = np.empty_like(nodes), np.empty_like(pairs)
    # log weight of what follows, by count still to come and the bit before
    lead = nodes.shape[:-1]
    backward = np.full((*lead, k + 1, 2), -np.inf, dtype=nodes.dtype)
    backward[..., 0, :] = 0.0
    with np.errstate(under="ignore", invalid="ignore"):
        for i in reversed(range(n)):
            after = backward[..., ::-1, 1]
            total = log_sum(forward[i + 1][..., 1] + after)
            on[..., i] = np.exp(total - log_partition)
            pair = pairs[..., i - 1] if i else np.zeros(lead)
            if i:
                joint = _shifted(forward[i][..., 1]) + after
                joint = log_sum(joint) + nodes[..., i] + pair
                both[..., i - 1] = np.exp(joint - log_partition)
            chosen = _shifted(backward[..., 1]) + nodes[..., i, None]
            off = log_add(backward[..., 0], chosen)
            backward = np.stack(
                [off, log_add(backward[..., 0], chosen + pair[..., None])], axis=-1
            )
    return on, both, log_partition


def chain_subset(nodes, pairs, k):
    """The k-subset (..., n) of largest utility."""
    tables = _chain_tables(nodes, pairs, k, np.maximum)
    n = nodes.shape[-1]
    last = tables[n][..., k, :]
    bit = (last[..., 1] > last[..., 0]).astype(np.intp)
    count = np.full(bit.shape, k)
    chosen = np.zeros(nodes.shape)
    for i in reversed(range(n)):
        chosen[..., i] = bit
        count = count - bit
        at = np.maximum(count, 0)[..., None, None]
        before = np.take_along_axis(tables[i], at, axis=-2)[..., 0, :]
        pair = pairs[..., i - 1] if i else np.zeros(bit.shape)
        on = before[..., 1] + np.where(bit == 1, pair, 0.0)
        bit = (on > before[..., 0]).astype(np.intp)
    return chosen
