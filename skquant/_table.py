"""A user's table: validated rows and weights, atoms, and its informative subspace."""

from dataclasses import dataclass, replace

import numpy as np

from skquant._checks import (
    check_labels,
    check_scores,
    check_weights,
    rank_tolerance,
)
from skquant._moments import (
    effective_sample_size,
    row_blocks,
    share_weights,
    table_factor,
    table_information,
)
from skquant.criteria import resolve_criterion


@dataclass(frozen=True)
class InformativeSubspace:
    """The directions in which a table has information, and whitened coordinates.

    Attributes
    ----------
    scale : ndarray of shape (d,)
        Root mean square of each column; 1 for a column of zeros.
    whitener : ndarray of shape (d, r)
        ``scores @ whitener`` has identity information per unit of weight.
    basis : ndarray of shape (r, d)
        Maps whitened coordinates back: ``basis @ whitener`` is the identity.
    factor : ndarray of shape (d, d)
        R with ``R'R`` the information of the table, columns over ``scale``.
    dropped : tuple of int
        Columns that depend on those before them.
    """

    scale: np.ndarray
    whitener: np.ndarray
    basis: np.ndarray
    factor: np.ndarray
    dropped: tuple

    @property
    def rank(self):
        return self.whitener.shape[1]


def informative_subspace(X, weights, rank_rtol):
    """Find the informative subspace of a table.

    The rank counts the singular values of the weighted table, columns scaled to
    unit root mean square, above ``rank_rtol`` times the largest. Of weights of either
    sign the absolute ones decide the subspace, in which the information of the signed
    ones has to be positive definite.
    """
    if np.min(weights) < 0:
        return _signed_subspace(X, weights, rank_rtol)
    largest = np.zeros(X.shape[1])
    for block, _ in row_blocks(len(weights)):
        # column by column: reducing short rows is slow
        peaks = [np.max(np.abs(column)) for column in X[block].T]
        largest = np.maximum(largest, peaks)
    if not np.any(largest > 0):
        raise ValueError(
            "scores must not all be zero: a table without information has no "
            f"informative subspace; got {len(weights)} rows of zeros."
        )
    largest = np.where(largest > 0, largest, 1.0)
    mean_square = np.zeros(X.shape[1])
    for block, _ in row_blocks(len(weights)):
        mean_square += weights[block] @ (X[block] / largest) ** 2
    scale = largest * np.sqrt(mean_square)
    scale = np.where(scale > 0, scale, 1.0)
    factor = table_factor(X, weights, scale)
    _, singular, right = np.linalg.svd(factor)
    tolerance = rank_rtol * singular[0]
    rank = int(np.sum(singular > tolerance))
    right = right[:rank]
    singular = singular[:rank]
    return InformativeSubspace(
        scale=scale,
        whitener=(right.T / singular) / scale[:, None],
        basis=singular[:, None] * right * scale,
        factor=factor,
        dropped=_dependent_columns(factor, rank, tolerance),
    )


def _signed_subspace(X, weights, rank_rtol):
    plain = informative_subspace(X, np.abs(weights), rank_rtol)
    signed = table_information(X @ plain.whitener, weights)
    require_positive_definite(signed)
    factor = np.linalg.cholesky(signed).T
    return replace(
        plain,
        whitener=np.linalg.solve(factor.T, plain.whitener.T).T,
        basis=factor @ plain.basis,
        factor=factor @ plain.basis / plain.scale,
    )


def require_positive_definite(information):
    """Refuse a full information of signed weights that is not positive definite.

    In coordinates in which that of the absolute weights is the identity.
    """
    smallest = float(np.linalg.eigvalsh(information)[0])
    if not smallest > 1e3 * np.finfo(np.float64).eps * len(information):
        raise ValueError(
            "The full information of the scores must be positive definite; got a "
            f"smallest eigenvalue of {smallest:.3g}, relative to the information of "
            "the absolute weights: the negative weights outweigh the others in some "
            "direction. Use more rows, or merge neighboring ones."
        )


def _dependent_columns(factor, rank, tolerance):
    """Name the columns without which the rank stays: the later of those that depend."""
    kept = []
    for column in range(factor.shape[1]):
        candidate = [*kept, column]
        smallest = np.linalg.svd(factor[:, candidate], compute_uv=False)[-1]
        if len(kept) < rank and len(candidate) <= len(factor) and smallest > tolerance:
            kept = candidate
    return tuple(sorted(set(range(factor.shape[1])) - set(kept)))


def criterion_coordinates(criterion, subspace):
    """Return the map from original columns to the coordinates of a criterion.

    Whitened coordinates, or the user's columns at unit root mean square for a
    criterion with ``needs_columns``.
    """
    if not getattr(criterion, "needs_columns", False):
        return subspace.whitener
    return np.diag(1.0 / subspace.scale)


def require_full_rank(criterion, subspace, names):
    """Refuse a criterion of columns on a table whose columns are dependent."""
    if getattr(criterion, "needs_columns", False) and subspace.dropped:
        dropped = column_names(subspace.dropped, names)
        raise ValueError(
            f"criterion {criterion!r} needs a nonsingular full information; the "
            f"columns {list(dropped)} are zero or depend on the columns before them "
            f"(rank {subspace.rank} of {len(subspace.scale)}). Remove them."
        )


def column_names(indices, names):
    """Return names where the table has them, else the indices."""
    return tuple(indices if names is None else (str(names[i]) for i in indices))


def merge_rows(X, weights):
    """Merge identical rows of positive weight, in the order of their content.

    Rows are sorted by their first column; only where it ties are the other columns
    looked at.

    Returns
    -------
    of_row : ndarray of int of shape (n,)
        Atom of each row; -1 for zero weight.
    first_row : ndarray of int of shape (n_atoms,)
        A row of each atom.
    atom_weights : ndarray of shape (n_atoms,)
        Sums of weights, added in ascending order.
    """
    index = np.int32 if len(X) < 2**31 else np.int64
    order = np.flatnonzero(weights > 0).astype(index)
    by_key = np.argsort(X[order, 0]).astype(index)
    order = order[by_key]
    del by_key
    key = X[order, 0]
    equal = key[1:] == key[:-1]
    new = np.ones(len(order), dtype=bool)
    if equal.any():
        tied = np.zeros(len(order), dtype=bool)
        tied[1:] |= equal
        tied[:-1] |= equal
        positions = np.flatnonzero(tied)
        rows = order[positions]
        keys = [weights[rows], *(X[rows, j] for j in range(X.shape[1] - 1, -1, -1))]
        order[positions] = rows[np.lexsort(keys)]
        candidates = np.flatnonzero(equal) + 1
        same = (X[order[candidates]] == X[order[candidates - 1]]).all(axis=1)
        new[candidates[same]] = False
    del key, equal
    of_row = np.full(len(X), -1, dtype=index)
    of_row[order] = np.cumsum(new, dtype=index) - index(1)
    starts = np.flatnonzero(new)
    return of_row, order[starts], np.add.reduceat(weights.take(order), starts)


@dataclass(frozen=True)
class Table:
    """Rows whose weight is not zero in the coordinates of a criterion.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Scores as given.
    points : ndarray of shape (n, r)
        Scores in the criterion's coordinates.
    shares : ndarray of shape (n,)
        Weights over their sum.
    used : ndarray of bool of shape (n_rows,)
        Which of the given rows these are.
    criterion : object
        Resolved criterion.
    subspace : InformativeSubspace
        Informative directions of the table.
    effective_size : float
        ``(sum w)^2 / sum w^2``.
    rank_rtol : float
        Relative tolerance of the rank.
    names : ndarray of str or None
        Column names.
    """

    X: np.ndarray
    points: np.ndarray
    shares: np.ndarray
    used: np.ndarray
    criterion: object
    subspace: InformativeSubspace
    effective_size: float
    rank_rtol: float
    names: np.ndarray | None

    def labels(self, labels, n_bins=None, name="labels"):
        """Return checked labels of these rows, and the number of cells."""
        labels, n_bins = check_labels(labels, len(self.used), n_bins, name)
        return labels[self.used], n_bins


def read_table(scores, sample_weight, criterion, *, signed=False):
    """Validate scores and weights, and change to the criterion's coordinates."""
    X, names = check_scores(scores)
    weights = check_weights(sample_weight, X, signed=signed)
    tolerance = rank_tolerance(None, X.dtype)
    used = weights != 0
    X = X.astype(np.float64, copy=False)[used]
    weights = weights[used]
    criterion = resolve_criterion(
        criterion,
        X.shape[1],
        names,
        effective_sample_size=effective_sample_size(weights),
    )
    shares = share_weights(weights)
    subspace = informative_subspace(X, shares, tolerance)
    require_full_rank(criterion, subspace, names)
    return Table(
        X=X,
        points=X @ criterion_coordinates(criterion, subspace),
        shares=shares,
        used=used,
        criterion=criterion,
        subspace=subspace,
        effective_size=effective_sample_size(weights),
        rank_rtol=tolerance,
        names=names,
    )
