"""Fisher information of scores, of their labels and of randomized labels.

A score is the gradient of a log likelihood at a reference parameter. A weighted
table has the information ``sum_i w_i s_i s_i'``; a label keeps ``sum_b m_b m_b' /
W_b``, with the weight ``W_b`` and the moment ``m_b`` of each cell. Scores are never
centred.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import qr

from skquant._moment_kernel import add_moments
from skquant._validation import (
    check_labels,
    check_responsibilities,
    check_scores,
    check_weights,
    rank_tolerance,
    single_threaded,
)
from skquant.criteria import (
    AOptimality,
    DOptimality,
    EOptimality,
    NormalizedTrace,
    resolve_criterion,
    retained_eigensystem,
)

__all__ = [
    "InformationReport",
    "binned_fisher_information",
    "fisher_information",
    "fractional_fisher_information",
    "information_report",
    "responsibility_gradient",
]

_BLOCK_ROWS = 8192


# --- algebra on validated arrays; weights sum to one ---------------------------------


def share_weights(weights):
    """Return weights over their sum, safe from overflow and underflow."""
    shares = weights / np.max(weights)
    shares /= np.sum(shares)
    return shares


def effective_sample_size(weights):
    """Return ``(sum w)^2 / sum w^2``, between 1 and the number of rows."""
    relative = weights / np.max(weights)
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
    unit root mean square, above ``rank_rtol`` times the largest.
    """
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


def rescale(matrix, column_scale, weight_scale=1.0):
    """Undo the scaling of columns and weights; what is too large becomes infinite."""
    with np.errstate(over="ignore"):
        return matrix * column_scale * column_scale[:, None] * weight_scale


def information_pair(points, weights, labels, n_bins):
    """Return retained and full information of points, per unit of total weight."""
    shares = share_weights(weights)
    binned = moment_information(*cell_moments(points, shares, labels, n_bins))
    factor = table_factor(points, shares)
    return binned, factor.T @ factor


# --- public functions ----------------------------------------------------------------


def _scaled_table(scores, sample_weight):
    """Validate, and divide columns and weights by their largest magnitude."""
    X, _ = check_scores(scores)
    weights = check_weights(sample_weight, X)
    column_scale = np.max(np.abs(X), axis=0).astype(np.float64)
    column_scale[column_scale == 0] = 1.0
    weight_scale = np.max(weights)
    return X / column_scale, weights / weight_scale, column_scale, weight_scale


def fisher_information(scores, sample_weight=None):
    """Return the full Fisher information ``sum_i w_i s_i s_i'`` of a score table.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event. They are not centred.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.

    Returns
    -------
    information : ndarray of shape (d, d)
        Total information of the table, not per unit of weight.

    Raises
    ------
    ValueError
        For scores or weights that are not finite, negative weights, or weights
        that are all zero.

    References
    ----------
    .. [1] E. L. Lehmann, G. Casella, "Theory of Point Estimation", Springer, 1998.
       https://doi.org/10.1007/b98854

    Examples
    --------
    >>> from skquant.information import fisher_information
    >>> fisher_information([[1.0], [2.0]], sample_weight=[1.0, 0.5])
    array([[3.]])
    """
    X, weights, column_scale, weight_scale = _scaled_table(scores, sample_weight)
    root = np.sqrt(weights)[:, None] * X
    return rescale(root.T @ root, column_scale, weight_scale)


def binned_fisher_information(scores, labels, sample_weight=None, *, n_bins=None):
    """Return the information ``sum_b m_b m_b' / W_b`` that the labels keep.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    labels : array-like of int of shape (n,)
        Cell of each row, in ``0..n_bins-1``.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.
    n_bins : int, default=None
        Number of cells; the largest label plus one when None.

    Returns
    -------
    information : ndarray of shape (d, d)
        Total information of the labels, not per unit of weight. Never larger than
        the full information in the Loewner order.

    Raises
    ------
    ValueError
        For invalid scores or weights, or labels outside the cells.

    References
    ----------
    .. [1] G. Venkitasubramaniam, L. Tong, A. Swami, "Quantization for maximin ARE
       in distributed estimation", IEEE Trans. Signal Process. 55 (2007).
       https://doi.org/10.1109/TSP.2007.893907

    Examples
    --------
    >>> from skquant.information import binned_fisher_information
    >>> binned_fisher_information([[1.0], [2.0], [-1.0]], [0, 0, 1])
    array([[5.5]])
    """
    X, weights, column_scale, weight_scale = _scaled_table(scores, sample_weight)
    labels, n_bins = check_labels(labels, len(X), n_bins)
    information = moment_information(*cell_moments(X, weights, labels, n_bins))
    return rescale(information, column_scale, weight_scale)


def _fractional_moments(X, responsibilities, weights):
    cell_weights = weights @ responsibilities
    moments = responsibilities.T @ (weights[:, None] * X)
    safe = np.where(cell_weights > 0, cell_weights, 1.0)
    return cell_weights, moments / safe[:, None]


def fractional_fisher_information(scores, responsibilities, sample_weight=None):
    """Return the information of a randomized label.

    A label drawn from ``r_i`` has the cell weights ``W_b = sum_i w_i r_ib``, the
    moments ``m_b = sum_i w_i r_ib s_i`` and the information ``sum_b m_b m_b' / W_b``,
    exactly.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    responsibilities : array-like of shape (n, K)
        Probability of each cell for each row; rows sum to one.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.

    Returns
    -------
    information : ndarray of shape (d, d)
        Total information of the randomized labels, not per unit of weight.

    Raises
    ------
    ValueError
        If a row of ``responsibilities`` is not a probability vector, or scores or
        weights are invalid.

    References
    ----------
    .. [1] A. Dvoretzky, A. Wald, J. Wolfowitz, "Elimination of randomization in
       certain statistical decision procedures and zero-sum two-person games", Ann.
       Math. Statist. 22 (1951). https://doi.org/10.1214/aoms/1177729689

    Examples
    --------
    >>> from skquant.information import fractional_fisher_information
    >>> fractional_fisher_information([[1.0], [-1.0]], [[0.75, 0.25], [0.25, 0.75]])
    array([[0.5]])
    """
    X, weights, column_scale, weight_scale = _scaled_table(scores, sample_weight)
    responsibilities = check_responsibilities(responsibilities, len(X))
    information = moment_information(*_fractional_moments(X, responsibilities, weights))
    return rescale(information, column_scale, weight_scale)


def responsibility_gradient(scores, responsibilities, criterion, sample_weight=None):
    """Return the derivative of a criterion in every responsibility.

    With the criterion's gradient ``G`` and the cell means ``mu_b`` it is ``w_i (2
    s_i' G mu_b - mu_b' G mu_b)``: the steepest ascent is toward the cell that is
    nearest in the metric ``G``. For an empty cell, whose mean would be the row
    itself, it is ``w_i s_i' G s_i``.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    responsibilities : array-like of shape (n, K)
        Probability of each cell for each row; rows sum to one.
    criterion : {"trace", "D", "A", "E"} or object
        Criterion whose value is differentiated.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.

    Returns
    -------
    gradient : ndarray of shape (n, K)
        Derivatives of the criterion's value, which is a function of information
        per unit of total weight; independent of the units of weights and columns.

    Raises
    ------
    ValueError
        For invalid input, or where the criterion has no gradient because the
        retained information is singular.

    References
    ----------
    .. [1] S. D. Silvey, "Optimal Design", Chapman and Hall, 1980.
       https://doi.org/10.1007/978-94-009-5912-5

    Examples
    --------
    >>> from skquant.information import responsibility_gradient
    >>> r = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    >>> responsibility_gradient([[1.0], [-1.0], [3.0]], r, "D").round(3)
    array([[ 0.   , -0.333],
           [-0.889,  0.111],
           [ 0.889, -0.778]])
    """
    X, names = check_scores(scores)
    X = X.astype(np.float64, copy=False)
    weights = check_weights(sample_weight, X)
    responsibilities = check_responsibilities(responsibilities, len(X))
    criterion = resolve_criterion(
        criterion,
        X.shape[1],
        names,
        effective_sample_size=effective_sample_size(weights),
    )
    used = weights > 0
    subspace = informative_subspace(X[used], share_weights(weights[used]), 1e-10)
    require_full_rank(criterion, subspace, names)
    points = X @ criterion_coordinates(criterion, subspace)
    shares = share_weights(weights)
    cell_weights, means = _fractional_moments(points, responsibilities, shares)
    factor = table_factor(points, shares)
    metric = criterion.gradient(
        moment_information(cell_weights, means), factor.T @ factor
    )
    projected = means @ metric
    gradient = 2.0 * points @ projected.T - np.sum(projected * means, axis=1)
    empty = cell_weights == 0
    gradient[:, empty] = np.sum(points @ metric * points, axis=1)[:, None]
    return shares[:, None] * gradient


@dataclass(frozen=True, eq=False)
class InformationReport:
    """How much Fisher information labels keep, and in which cells.

    Attributes
    ----------
    information : ndarray of shape (d, d)
        Full information per unit of total weight.
    binned_information : ndarray of shape (d, d)
        Information of the labels per unit of total weight.
    retained_eigenvalues : ndarray of shape (rank,)
        Eigenvalues of the retained matrix, ascending, in [0, 1].
    arithmetic_mean, geometric_mean, harmonic_mean, minimum : float
        Efficiencies under the trace, D, A and E criteria, in [0, 1].
    rank : int
        Number of informative directions.
    dropped_columns : tuple of int or str
        Columns that are zero or depend on those before them.
    mean_shift : float
        Norm of the whitened weighted mean score, in [0, 1].
    cell_weights : ndarray of shape (K,)
        Total weight of each cell.
    cell_counts : ndarray of int of shape (K,)
        Rows of positive weight in each cell.
    effective_sample_sizes : ndarray of shape (K,)
        ``(sum w)^2 / sum w^2`` of each cell; 0 for an empty one.
    efficiency : float or None
        Efficiency under the criterion that was given, if one was.
    nuisance_retention : float or None
        Smallest retained eigenvalue of the nuisance block, for a profiled criterion.
    interval : skquant.inspection.RetentionInterval or None
        The efficiency's sampling error on these rows, if a level was given.
    """

    information: np.ndarray
    binned_information: np.ndarray
    retained_eigenvalues: np.ndarray
    arithmetic_mean: float
    geometric_mean: float
    harmonic_mean: float
    minimum: float
    rank: int
    dropped_columns: tuple
    mean_shift: float
    cell_weights: np.ndarray
    cell_counts: np.ndarray
    effective_sample_sizes: np.ndarray
    efficiency: float | None = None
    nuisance_retention: float | None = None
    interval: object | None = None

    @property
    def empty_cells(self):
        """Labels of the cells without a row of positive weight."""
        return np.flatnonzero(self.cell_counts == 0)

    def __str__(self):
        d = len(self.information)
        lines = [
            f"Fisher information kept by {len(self.cell_weights)} cells",
            f"  rank {self.rank} of {d} columns"
            + (
                f", dropped: {', '.join(map(str, self.dropped_columns))}"
                if self.dropped_columns
                else ""
            ),
            f"  mean retention   arithmetic {self.arithmetic_mean:.6f} (trace)",
            f"                   geometric  {self.geometric_mean:.6f} (D)",
            f"                   harmonic   {self.harmonic_mean:.6f} (A)",
            f"  worst direction  {self.minimum:.6f} (E)",
        ]
        if self.efficiency is not None:
            lines.append(f"  efficiency       {self.efficiency:.6f} (given criterion)")
        if self.interval is not None:
            lines.append(f"  on fresh rows    {self.interval}")
        if self.nuisance_retention is not None:
            lines.append(f"  nuisance block   {self.nuisance_retention:.6f} retained")
        lines += [
            f"  mean shift       {self.mean_shift:.3g}",
            "  cell      weight   share    rows  effective",
        ]
        shares = share_weights(self.cell_weights)
        for cell, weight in enumerate(self.cell_weights):
            empty = "  (empty)" if self.cell_counts[cell] == 0 else ""
            lines.append(
                f"  {cell:4d}  {weight:10.4g}  {shares[cell]:6.3f}  "
                f"{self.cell_counts[cell]:6d}  "
                f"{self.effective_sample_sizes[cell]:9.1f}{empty}"
            )
        return "\n".join(lines)


def information_report(
    scores,
    labels,
    sample_weight=None,
    *,
    n_bins=None,
    rank_rtol=None,
    criterion=None,
    level=None,
):
    """Report how much information a labeling keeps, ours or anyone's.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    labels : array-like of int of shape (n,)
        Cell of each row, in ``0..n_bins-1``.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.
    n_bins : int, default=None
        Number of cells; the largest label plus one when None.
    rank_rtol : float, default=None
        Singular values of the weighted table, columns at unit root mean square,
        below this share of the largest do not count. None is 1e-10, and 1e-6 for
        float32 scores.
    criterion : {"trace", "D", "A", "E"} or object, default=None
        A criterion whose efficiency to report as well.
    level : float in (0, 1), default=None
        Nominal coverage of an interval of that efficiency, for labels of a rule that
        did not see these rows; None: no interval. See
        ``skquant.inspection.retention_interval``.

    Returns
    -------
    report : InformationReport
        A record with a readable ``str``.

    Raises
    ------
    ValueError
        For invalid scores, weights or labels, scores that are all zero, or a level
        without a criterion.

    References
    ----------
    .. [1] F. Pukelsheim, "Optimal Design of Experiments", SIAM, 2006.
       https://doi.org/10.1137/1.9780898719109

    Examples
    --------
    >>> from skquant.information import information_report
    >>> report = information_report([[1.0], [2.0], [-1.0]], [0, 0, 1])
    >>> round(report.geometric_mean, 4)
    0.9167
    >>> report.cell_counts
    array([2, 1])
    """
    X, names = check_scores(scores)
    weights = check_weights(sample_weight, X)
    labels, n_bins = check_labels(labels, len(X), n_bins)
    report = build_report(
        X, labels, weights, n_bins, rank_tolerance(rank_rtol, X.dtype), criterion, names
    )
    if level is None:
        return report
    if criterion is None:
        raise ValueError(
            "level needs a criterion, whose efficiency the interval is about; got "
            f"level={level!r} and criterion=None."
        )
    # imported late: that module builds on this one
    from skquant.inspection import retention_interval

    interval = retention_interval(
        scores, labels, sample_weight, criterion=criterion, level=level
    )
    return replace(report, interval=interval)


@single_threaded
def build_report(X, labels, weights, n_bins, rank_rtol, criterion, names):
    """Build the report of validated arrays."""
    X = X.astype(np.float64, copy=False)
    used = weights > 0
    X, labels, weights = X[used], labels[used], weights[used]
    shares = share_weights(weights)
    subspace = informative_subspace(X, shares, rank_rtol)
    points = X @ subspace.whitener
    binned, full = information_pair(points, weights, labels, n_bins)
    mean_score = shares @ points

    efficiency = nuisance_retention = None
    if criterion is not None:
        criterion = resolve_criterion(
            criterion,
            X.shape[1],
            names,
            effective_sample_size=effective_sample_size(weights),
        )
        require_full_rank(criterion, subspace, names)
        pair = information_pair(
            X @ criterion_coordinates(criterion, subspace), weights, labels, n_bins
        )
        efficiency = criterion.efficiency(*pair)
        if hasattr(criterion, "nuisance_retention"):
            nuisance_retention = criterion.nuisance_retention(*pair)

    relative = weights / np.max(weights)
    sums = np.bincount(labels, relative, minlength=n_bins)
    squares = np.bincount(labels, relative**2, minlength=n_bins)
    occupied = squares > 0
    sizes = np.zeros(n_bins)
    sizes[occupied] = sums[occupied] ** 2 / squares[occupied]
    columns = information_pair(X / subspace.scale, weights, labels, n_bins)
    binned_information, information = (
        rescale(matrix, subspace.scale) for matrix in columns
    )
    return InformationReport(
        information=information,
        binned_information=binned_information,
        retained_eigenvalues=retained_eigensystem(binned, full)[0],
        arithmetic_mean=NormalizedTrace().efficiency(binned, full),
        geometric_mean=DOptimality().efficiency(binned, full),
        harmonic_mean=AOptimality().efficiency(binned, full),
        minimum=EOptimality().efficiency(binned, full),
        rank=subspace.rank,
        dropped_columns=column_names(subspace.dropped, names),
        mean_shift=float(np.sqrt(np.sum(mean_score**2))),
        cell_weights=np.bincount(labels, weights, minlength=n_bins),
        cell_counts=np.bincount(labels, minlength=n_bins),
        effective_sample_sizes=sizes,
        efficiency=efficiency,
        nuisance_retention=nuisance_retention,
    )
