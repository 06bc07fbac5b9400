"""A user's table: validated rows and weights, atoms, and its informative subspace."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

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
from skquant._priors import profile_out, total_weight
from skquant._warnings import warn_user
from skquant.criteria import resolve_criterion
from skquant.exceptions import ScoreOffsetWarning


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
    base : ndarray of shape (r + e,) or None
        With a prior, coordinates are those in which data and prior together have
        identity information, and this is the prior's part, which is diagonal: at the
        end e ones, of directions in which only the prior has information.
    prior : ndarray of shape (m, d) or None
        Root of the prior's precision, columns over ``scale``.
    undetermined : tuple of int
        Columns that with those before them neither data nor prior determine.
    """

    scale: np.ndarray
    whitener: np.ndarray
    basis: np.ndarray
    factor: np.ndarray
    dropped: tuple
    base: np.ndarray | None = None
    prior: np.ndarray | None = None
    undetermined: tuple = ()

    @property
    def rank(self):
        return self.whitener.shape[1]

    @property
    def condition(self):
        """Rounding of whitened coordinates, in units of that of the table's."""
        whitener = self.whitener * self.scale[:, None]
        return np.linalg.norm(self.factor, 2) * np.linalg.norm(whitener, 2)


def informative_subspace(X, weights, rank_rtol, prior=None):
    """Find the informative subspace of a table.

    The rank counts the singular values of the weighted table, columns scaled to
    unit root mean square, above ``rank_rtol`` times the largest. ``prior`` is the root
    of the precision of a prior, per unit of weight. Of weights of either sign the
    absolute ones decide the subspace, in which the information of the signed ones has
    to be positive definite.
    """
    if np.min(weights) < 0:
        refuse_signed_prior(weights, prior)
        return _signed_subspace(X, weights, rank_rtol)
    largest = np.zeros(X.shape[1])
    for block, _ in row_blocks(len(weights)):
        # column by column: reducing short rows is slow
        peaks = [np.max(np.abs(column)) for column in X[block].T]
        largest = np.maximum(largest, peaks)
    if not np.any(largest > 0):
        raise ValueError(
            "scores must not all be zero: a table without information has no "
            "informative subspace; got nothing but zeros in rows of positive weight."
        )
    _refuse_subnormal(largest)
    largest = np.where(largest > 0, largest, 1.0)
    mean_square = np.zeros(X.shape[1])
    for block, _ in row_blocks(len(weights)):
        mean_square += weights[block] @ (X[block] / largest) ** 2
    scale = largest * np.sqrt(mean_square)
    unscaled = 1.0
    if prior is not None:
        # a parameter without data has the unit of its prior
        norms = np.linalg.norm(prior, axis=0)
        unscaled = np.where(norms > 0, norms, 1.0)
    scale = np.where(scale > 0, scale, unscaled)
    factor = table_factor(X, weights, scale)
    _, singular, right = np.linalg.svd(factor)
    tolerance = rank_rtol * singular[0]
    rank = int(np.sum(singular > tolerance))
    null = right[rank:]
    right = right[:rank]
    singular = singular[:rank]
    if prior is not None:
        prior = prior / scale
        root = singular[:, None] * right
        directions = right.T / singular
        profiled, n_alone = profile_out(prior, directions, null.T, rank_rtol)
        _, sizes, axes = np.linalg.svd(profiled, full_matrices=True)
        strength = np.zeros(rank)
        strength[: len(sizes)] = sizes[:rank]
        # the root of one plus the prior's share: both have identity information
        total = np.hypot(1.0, strength)
        stacked = np.vstack([root, prior])
        norms = np.linalg.norm(stacked, axis=0)
        unit = np.linalg.qr(stacked / np.where(norms > 0, norms, 1.0), mode="r")
        all_singular = np.linalg.svd(unit, compute_uv=False)
        tolerance_all = rank_rtol * all_singular[0]
        rank_all = int(np.sum(all_singular > tolerance_all))
        base = np.concatenate([(strength / total) ** 2, np.ones(n_alone)])
        # The prior alone decides about a direction without data: with the data's
        # part of it the coordinates do not change.
        return InformativeSubspace(
            scale=scale,
            whitener=(directions @ axes.T / total) / scale[:, None],
            basis=(total[:, None] * (axes @ root)) * scale,
            factor=root,
            dropped=_dependent_columns(factor, rank, tolerance),
            base=base,
            prior=prior,
            undetermined=_dependent_columns(unit, rank_all, tolerance_all),
        )
    return InformativeSubspace(
        scale=scale,
        whitener=(right.T / singular) / scale[:, None],
        basis=singular[:, None] * right * scale,
        factor=factor,
        dropped=_dependent_columns(factor, rank, tolerance),
    )


# Columns whose largest number lies below this cannot be scaled to one: the inverse of
# their root mean square overflows.
_SMALLEST_SCORE = 2.0**20 * np.finfo(np.float64).tiny


def _refuse_subnormal(magnitudes):
    """Refuse columns of numbers too small to be scaled."""
    small = (magnitudes > 0) & (magnitudes < _SMALLEST_SCORE)
    if small.any():
        columns = np.flatnonzero(small)
        raise ValueError(
            "scores must not be subnormal: a column needs a number of at least "
            f"{_SMALLEST_SCORE:.1e} in magnitude, or zeros alone; got at most "
            f"{magnitudes[columns].tolist()} in the columns {columns.tolist()}. "
            "Multiply them by a large number."
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


def refuse_signed_prior(weights, prior):
    """Refuse weights of either sign beside the information of a prior."""
    if prior is not None:
        raise ValueError(
            "sample_weight must be nonnegative under a criterion with a prior; got "
            f"{np.sum(weights < 0)} negative weights of {len(weights)}."
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


# A mean so many times the spread is no score's: one has a mean of about zero.
_LARGEST_OFFSET = 10.0


def warn_of_offset(center, scale, spread_of, names):
    """Warn of columns whose mean is many times their spread.

    A constant is a rate parameter's score and passes. ``scale`` is the root mean
    square, and ``spread_of`` gives the standard deviation of a column about ``center``,
    over its scale: it is called for the few columns that may be bad, since a
    difference of squares has no digits there.
    """
    share = np.abs(center / scale)
    offsets = {}
    for j in np.flatnonzero(share > _LARGEST_OFFSET / np.hypot(1.0, _LARGEST_OFFSET)):
        spread = spread_of(j)
        if spread > 1e3 * np.finfo(np.float64).eps:
            (name,) = column_names([int(j)], names)
            offsets[name] = share[j] / spread
    if offsets:
        found = ", ".join(f"{ratio:.3g} ({name!r})" for name, ratio in offsets.items())
        warn_user(
            "the weighted mean of a column of scores is many times its spread: "
            f"{found}. A score has a mean of about zero at its reference parameter. "
            "Such a column usually is a likelihood ratio or a density, whose logarithm "
            "was not differentiated, or has an offset; the origin counts, and cells "
            "will keep the offset and little else. Check the scores; a parameter that "
            "changes almost nothing but the total rate has such a score, too.",
            ScoreOffsetWarning,
        )


def warn_of_table_offset(X, weights, names):
    """Warn of the columns of a validated table whose mean is many times the spread."""
    shares = share_weights(np.abs(weights))
    largest = np.maximum(np.max(np.abs(X), axis=0), np.finfo(np.float64).tiny)
    mean, mean_square = np.zeros((2, X.shape[1]))
    for block, _ in row_blocks(len(X)):
        mean += shares[block] @ (X[block] / largest)
        mean_square += shares[block] @ (X[block] / largest) ** 2
    scale = np.where(mean_square > 0, np.sqrt(mean_square), 1.0)

    def spread_of(j):
        deviations = X[:, j] / largest[j] - mean[j]
        return np.sqrt(shares @ deviations**2) / scale[j]

    warn_of_offset(mean, scale, spread_of, names)


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
    criterion with ``needs_columns``. Where the criterion has an ``elimination_order``,
    each column is what those before it do not explain, of unit information with the
    prior's: the reference is the identity, and columns that are nearly collinear cost
    the digits of their root mean squares, not those of their squares.
    """
    if not criterion.needs_columns:
        return subspace.whitener
    order = criterion.elimination_order(len(subspace.scale))
    if order is None:
        return np.diag(1.0 / subspace.scale)
    root = subspace.factor
    if subspace.prior is not None:
        root = np.vstack([root, subspace.prior])
    upper = np.linalg.qr(root[:, order], mode="r")
    upper *= np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
    eliminated = np.empty_like(upper)
    eliminated[np.ix_(order, order)] = solve_triangular(upper, np.eye(len(order)))
    return eliminated / subspace.scale[:, None]


def criterion_columns(criterion, subspace):
    """Return the criterion's columns in whitened coordinates, None if it needs none."""
    if not criterion.needs_columns:
        return None
    return subspace.basis @ criterion_coordinates(criterion, subspace)


def prior_base(criterion, subspace):
    """Return the prior's information in the coordinates of a criterion, or None."""
    if subspace.base is None:
        return None
    if criterion.needs_columns:
        coordinates = criterion_coordinates(criterion, subspace)
        root = subspace.prior @ (subspace.scale[:, None] * coordinates)
        return root.T @ root
    return np.diag(subspace.base)


def full_reference(criterion, subspace):
    """Return all information, the prior's too, in the coordinates of a criterion."""
    if not criterion.needs_columns:
        return np.eye(subspace.rank if subspace.base is None else len(subspace.base))
    if criterion.elimination_order(len(subspace.scale)) is not None:
        return np.eye(len(subspace.scale))
    information = subspace.factor.T @ subspace.factor
    return add_base(information, prior_base(criterion, subspace))


def add_base(information, base):
    """Return the data's information plus the prior's.

    The prior's has further coordinates at the end where the data have none.
    """
    if base is None:
        return information
    total = base.copy()
    known = len(information)
    total[:known, :known] += information
    return total


def require_full_rank(criterion, subspace, names):
    """Refuse a criterion of columns on a table whose columns are dependent."""
    if not criterion.needs_columns:
        return
    if subspace.prior is not None:
        if subspace.undetermined:
            columns = column_names(subspace.undetermined, names)
            raise ValueError(
                f"criterion {criterion!r} needs every parameter determined; neither "
                f"data nor prior determine {list(columns)}, alone or apart from the "
                "columns before them. Give them a prior or remove them."
            )
        return
    if subspace.dropped:
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


def read_table(scores, sample_weight, criterion, *, takes_prior=False, signed=False):
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
        total_weight=total_weight(weights),
    )
    prior = criterion.precision_root(X.shape[1])
    if prior is not None and not takes_prior:
        raise ValueError(
            "this function does not take a criterion with a prior: quantizers and "
            f"information_report do; got {criterion!r}."
        )
    shares = share_weights(weights)
    subspace = informative_subspace(X, shares, tolerance, prior)
    warn_of_table_offset(X, weights, names)
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
