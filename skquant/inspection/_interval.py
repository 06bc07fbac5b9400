"""Standard error and interval of a frozen rule's retention on held-out rows."""

from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from scipy.special import expit, logit
from scipy.stats import chi2, norm
from sklearn.utils import check_random_state

from skquant._checks import single_threaded
from skquant._moments import (
    cell_moments,
    moment_information,
    require_positive_cells,
    row_blocks,
    table_information,
)
from skquant._table import read_table
from skquant._tolerances import EPS, SINGULAR
from skquant.criteria import retained_eigensystem
from skquant.inspection._efficiency import efficiency_gradients

# How many standard errors an eigenvalue must lie from where theory breaks down.
_SEPARATION = 3.0

_N_RESAMPLES = 999

# Step of the second differences, in standard errors.
_STEP = 0.01


@dataclass(frozen=True)
class RetentionInterval:
    """A retention with its sampling error.

    Attributes
    ----------
    estimate : float
        Retention without its bias of order 1 / n; NaN unless ``status`` is
        ``"ok"``.
    standard_error : float
        Of the estimate; NaN unless ``status`` is ``"ok"``.
    first_order_error : float
        Root of the sum of squared influences alone, the first order of
        ``standard_error``; NaN unless ``status`` is ``"ok"``.
    interval : tuple of (float, float)
        Low and high end, inside (0, 1); NaN unless ``status`` is ``"ok"``.
    level : float
        Nominal coverage.
    plug_in : float
        Retention of the rows as they are, which is what ``score`` reports; biased
        upward by about the number of cells over the number of rows.
    status : str
        ``"ok"``, or why there is no interval: ``"too_few_cells"``,
        ``"singular_information"``, ``"zero_variance"``,
        ``"eigenvalues_not_separated"``, ``"nuisance_retention"`` or, of negative
        weights, ``"retention_above_one"``.
    method : str
        ``"influence"`` or ``"bootstrap"``.
    n_rows : int
        Rows of positive weight.
    """

    estimate: float
    standard_error: float
    first_order_error: float
    interval: tuple
    level: float
    plug_in: float
    status: str
    method: str
    n_rows: int

    def __str__(self):
        if self.status != "ok":
            return f"retention {self.plug_in:.6f} in sample, no interval: {self.status}"
        low, high = self.interval
        return (
            f"retention {self.estimate:.6f} +- {self.standard_error:.6f}, "
            f"{100 * self.level:g}% interval [{low:.6f}, {high:.6f}]"
        )


def informations(points, shares, squares, labels, n_bins):
    """Return retained, bias-corrected retained and full information, and cell means.

    The mean of a cell is uncertain, and its square is on average too large by its
    variance: ``sum_i w_i^2 u_i u_i' / W_b`` with ``u_i = s_i - mu_b``. ``squares``
    are the sums of squared weights of the draws that each row stands for.
    """
    require_positive_cells(shares, labels, n_bins)
    cell_weights, means = cell_moments(points, shares, labels, n_bins)
    retained = moment_information(cell_weights, means)
    cells = within_covariances(points, shares, squares, labels, cell_weights, means)
    excess = cells.sum(axis=0)
    return retained, retained - excess, table_information(points, shares), means


def within_covariances(points, shares, squares, labels, cell_weights, means):
    """Return ``sum_i w_i^2 u_i u_i' / W_b`` of each cell, (K, r, r).

    Offsets from a mean that holds the row itself are too short: their squares are
    divided by one minus its share of the cell, where no weight is negative.
    """
    offsets = points - means[labels]
    rest = cell_weights[labels] - shares
    if np.min(shares) < 0:
        # a row may outweigh its cell; W (1 - 2 w / W + sum w^2 / W^2) is never
        # negative, and gives the mean of the squares for rows of one variance
        sums = np.bincount(labels, squares, minlength=len(cell_weights))
        rest -= shares
        rest += (sums / np.where(cell_weights > 0, cell_weights, 1.0))[labels]
    factors = np.zeros(len(shares))
    np.divide(squares, rest, out=factors, where=rest > 1e-9 * cell_weights[labels])
    r = points.shape[1]
    covariances = np.zeros((len(cell_weights), r, r))
    for i, j in np.ndindex(r, r):
        products = factors * offsets[:, i] * offsets[:, j]
        covariances[:, i, j] = np.bincount(labels, products, len(cell_weights))
    return covariances


def influence(points, shares, own_means, in_retained, in_full):
    """Return ``w_i (2 s_i'A mu_b - mu_b'A mu_b + s_i'B s_i)`` of each row."""
    projected = own_means @ in_retained
    change = np.sum((2.0 * points - own_means) * projected, axis=1)
    change += np.sum((points @ in_full) * points, axis=1)
    return shares * change


def curvature_bias(table, own_means, retained, full):
    """Return the bias of the efficiency from its curvature in the two matrices.

    Half the second derivative, traced with the sampling covariance of the matrices:
    the sum of second differences along that covariance's principal axes.
    """
    r = len(full)
    upper = np.triu_indices(r)
    size = len(upper[0])
    covariance = np.zeros((2 * size, 2 * size))
    for block, _ in row_blocks(len(table.points)):
        points, means = table.points[block], own_means[block]
        left = points[:, upper[0]] * means[:, upper[1]]
        left += means[:, upper[0]] * points[:, upper[1]]
        left -= means[:, upper[0]] * means[:, upper[1]] + retained[upper]
        right = points[:, upper[0]] * points[:, upper[1]] - full[upper]
        rows = table.shares[block, None] * np.hstack([left, right])
        covariance += rows.T @ rows
    variances, axes = np.linalg.eigh(covariance)
    center = table.criterion.efficiency(retained, full)
    bias = 0.0
    for variance, axis in zip(variances, axes.T, strict=True):
        if variance <= EPS * variances[-1]:
            continue
        steps = np.zeros((2, r, r))
        for step, entries in zip(steps, np.split(axis, 2), strict=True):
            step[upper] = _STEP * np.sqrt(variance) * entries
            step += np.triu(step, 1).T
        above, below = (
            table.criterion.efficiency(
                retained + sign * steps[0], full + sign * steps[1]
            )
            for sign in (1.0, -1.0)
        )
        bias += 0.5 * (above - 2.0 * center + below) / _STEP**2
    return bias


def second_order_variance(table, labels, n_bins, in_retained):
    """Return the variance of the squares of the cell means' errors.

    Of ``tr A e_b e_b'`` over the cells, with ``e_b e_b'`` of the mean given by
    ``within_covariances``: ``2 tr (A C_b)^2`` each. It counts with many cells, whose
    first order is small.
    """
    cell_weights, means = cell_moments(table.points, table.shares, labels, n_bins)
    covariances = within_covariances(
        table.points, table.shares, table.shares**2, labels, cell_weights, means
    )
    products = in_retained @ covariances
    return 2.0 * float(np.einsum("bij,bji->", products, products))


def _sampling_error(values):
    return float(np.sqrt(np.sum(values**2)))


def _eigenvalue_influences(points, shares, own_means, retained, full, indices):
    """Return influences (n, len(indices)) of retained eigenvalues."""
    eigenvalues, vectors = retained_eigensystem(retained, full)
    columns = []
    for index in indices:
        direction = np.outer(vectors[:, index], vectors[:, index])
        in_full = -eigenvalues[index] * direction
        columns.append(influence(points, shares, own_means, direction, in_full))
    return np.column_stack(columns)


def _only_smallest(in_retained, full, eigenvectors):
    """Whether a gradient sees the smallest eigenvalue alone: it has a kink there."""
    dual = full @ eigenvectors
    weights = np.sum(dual * (in_retained @ dual), axis=0)
    return len(weights) > 1 and weights[1:].max() <= 1e-8 * weights[0]


def _irregularity(table, labels, n_bins, moments):
    """Return why the theory does not apply, or "ok"; and the efficiency's gradients.

    Only criteria that vanish with the smallest eigenvalue mind a singular retained
    information.
    """
    criterion, points, shares = table.criterion, table.points, table.shares
    retained, corrected, full, means = moments
    r, own_means = points.shape[1], means[labels]
    eigenvalues, vectors = retained_eigensystem(retained, full)
    flat = np.eye(r) - np.outer(vectors[:, 0], vectors[:, 0] @ full)
    needs_all = criterion.efficiency(flat.T @ retained @ flat, full) == 0.0
    if needs_all:
        occupied = np.count_nonzero(np.bincount(labels, minlength=n_bins))
        whitened_mean = np.linalg.solve(np.linalg.cholesky(full), shares @ points)
        shift = table.effective_size * np.sum(whitened_mean**2)
        if occupied < r or (occupied == r and shift <= chi2.ppf(0.99, r)):
            return "too_few_cells", None
        if eigenvalues[0] == 0.0:
            return "singular_information", None
    nuisance_retention = criterion.nuisance_retention(retained, full)
    if nuisance_retention is not None:
        floor = max(0.01, 5.0 * n_bins / table.effective_size)
        if nuisance_retention < floor:
            return "nuisance_retention", None
    gradients = efficiency_gradients(criterion, retained, full)
    checked = [0, 1] if r > 1 else [0]
    each = _eigenvalue_influences(points, shares, own_means, retained, full, checked)
    if needs_all and r > 1:
        smallest = retained_eigensystem(corrected, full)[0][0]
        if not smallest > _SEPARATION * _sampling_error(each[:, 0]):
            return "singular_information", None
    if _only_smallest(gradients[0], full, vectors):
        gap = eigenvalues[1] - eigenvalues[0]
        if not gap > _SEPARATION * _sampling_error(each[:, 1] - each[:, 0]):
            return "eigenvalues_not_separated", None
    return "ok", gradients


def _bootstrap_error(table, labels, n_bins, n_resamples, random_state):
    """Half the central 68% of the corrected retention over resampled rows.

    On the logit scale, where its law is nearest to normal; standard deviations go by
    the few resamples whose information is nearly singular.
    """
    n = len(labels)
    estimates = np.empty(n_resamples)
    for k in range(n_resamples):
        drawn = random_state.multinomial(n, np.full(n, 1.0 / n))
        rows = np.flatnonzero(drawn)
        shares = table.shares[rows] * drawn[rows]
        total = shares.sum()
        # draws of one row are independent: its squared weight counts once a draw
        squares = table.shares[rows] ** 2 * drawn[rows] / total**2
        _, corrected, full, _ = informations(
            table.points[rows], shares / total, squares, labels[rows], n_bins
        )
        estimates[k] = table.criterion.efficiency(corrected, full)
    low, high = np.quantile(logit(estimates), norm.cdf([-1.0, 1.0]))
    return 0.5 * (high - low)


@single_threaded
def retention_interval(
    scores,
    labels_or_rule,
    sample_weight=None,
    *,
    criterion="D",
    level=0.95,
    method="influence",
    n_resamples=_N_RESAMPLES,
    random_state=0,
):
    """Return a frozen rule's retention on held-out rows, with its interval.

    The rows have to be independent of the rule: an interval from training rows knows
    nothing of the optimism of the fit (see ``optimism``). Rows with their weights are
    taken as independent draws of one law. With ``A`` and ``B`` the gradients of the
    efficiency in the retained and in the full information per unit of weight, a row
    of weight share ``w_i`` in cell ``b`` has the influence ``w_i (2 s_i'A mu_b -
    mu_b'A mu_b + s_i'B s_i)``. The squared standard error is the sum of their squares,
    and the variance of the squared errors of the cell means, of second order. The
    interval is symmetric on the logit scale.

    The retention of the rows as they are is biased: the square of an uncertain cell
    mean is too large, which ``sum_i w_i^2 u_i u_i' / (W_b - w_i)`` with ``u_i = s_i -
    mu_b`` takes from the retained information, and the efficiency is curved in the two
    matrices, which its second differences take from the estimate.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Held-out scores, one row an event. They are not centred.
    labels_or_rule : array-like of int of shape (n,), AffineMaxRule or quantizer
        The frozen rule's labels of these rows, or an object whose ``predict`` gives
        them.
    sample_weight : array-like of shape (n,), default=None
        Weights; ones when None. They may be negative as long as the weight of every
        cell that holds rows is positive; the errors have their squares.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        Whose efficiency is the retention.
    level : float in (0, 1), default=0.95
        Nominal coverage.
    method : {"influence", "bootstrap"}, default="influence"
        Standard error by the formula above, or from resampled rows.
    n_resamples : int, default=999
        Resamples of the bootstrap, at least 2.
    random_state : int, RandomState instance or None, default=0
        Seed of the bootstrap.

    Returns
    -------
    result : RetentionInterval
        Estimate, standard error and interval, or a status that says why there are
        none.

    Raises
    ------
    ValueError
        For invalid scores, weights, labels or parameters, a criterion whose
        efficiency is not of degree one in the retained information, a cell without
        positive weight, or the bootstrap of negative weights.

    References
    ----------
    .. [1] A. W. van der Vaart, "Asymptotic Statistics", Cambridge, 1998 (chapter 20,
       influence functions). https://doi.org/10.1017/CBO9780511802256

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import DExchangeQuantizer
    >>> from skquant.inspection import retention_interval
    >>> rng = np.random.default_rng(0)
    >>> quantizer = DExchangeQuantizer(n_bins=6, random_state=0)
    >>> quantizer = quantizer.fit(rng.normal(size=(1000, 2)))
    >>> print(retention_interval(rng.normal(size=(2000, 2)), quantizer))
    retention 0.749208 +- 0.004017, 95% interval [0.741254, 0.756998]
    """
    if not isinstance(level, Real) or not 0.0 < level < 1.0:
        raise ValueError(f"level must be a number in (0, 1); got {level!r}.")
    if method not in ("influence", "bootstrap"):
        raise ValueError(f"method must be 'influence' or 'bootstrap'; got {method!r}.")
    if not isinstance(n_resamples, Integral) or n_resamples < 2:
        raise ValueError(f"n_resamples must be an integer >= 2; got {n_resamples!r}.")
    table = read_table(scores, sample_weight, criterion, signed=True)
    if method == "bootstrap" and np.min(table.shares) < 0:
        raise ValueError(
            "method='bootstrap' needs nonnegative weights: a resample may leave a cell "
            "without positive weight; got negative weights. Use method='influence'."
        )
    predict = getattr(labels_or_rule, "predict", None)
    given = labels_or_rule if predict is None else predict(scores)
    labels, n_bins = table.labels(given, name="labels_or_rule")
    moments = informations(table.points, table.shares, table.shares**2, labels, n_bins)
    retained, corrected, full, means = moments
    plug_in = table.criterion.efficiency(retained, full)
    status, gradients = _irregularity(table, labels, n_bins, moments)
    estimate = error = first_order = np.nan
    if status == "ok":
        estimate = table.criterion.efficiency(corrected, full)
        estimate -= curvature_bias(table, means[labels], corrected, full)
        first_order = _sampling_error(
            influence(table.points, table.shares, means[labels], *gradients)
        )
        if method == "bootstrap":
            error = estimate * (1.0 - estimate)
            error *= _bootstrap_error(
                table, labels, n_bins, n_resamples, check_random_state(random_state)
            )
        else:
            error = np.hypot(
                first_order,
                np.sqrt(second_order_variance(table, labels, n_bins, gradients[0])),
            )
        # a lossless label leaves rounding only
        rounding = SINGULAR
        if estimate >= 1.0 and np.min(table.shares) < 0:
            status = "retention_above_one"
            estimate = error = first_order = np.nan
        elif not 0.0 < estimate < 1.0 or not rounding * estimate < error < np.inf:
            status = "zero_variance"
            estimate = error = first_order = np.nan
    spread = norm.ppf(0.5 + 0.5 * level) * error / (estimate * (1.0 - estimate))
    low, high = expit(logit(estimate) + spread * np.array([-1.0, 1.0]))
    return RetentionInterval(
        estimate=float(estimate),
        standard_error=float(error),
        first_order_error=float(first_order),
        interval=(float(low), float(high)),
        level=float(level),
        plug_in=float(plug_in),
        status=status,
        method=method,
        n_rows=len(labels),
    )
