"""Fisher information of scores, of their labels and of randomized labels.

A score is the gradient of a log likelihood at a reference parameter. A weighted
table has the information ``sum_i w_i s_i s_i'``; a label keeps ``sum_b m_b m_b' /
W_b``, with the weight ``W_b`` and the moment ``m_b`` of each cell. Scores are never
centred.
"""

import numpy as np

from skquant._checks import (
    check_cell_weights,
    check_labels,
    check_responsibilities,
    check_scores,
    check_weights,
    rank_tolerance,
)
from skquant._moments import (
    cell_moments,
    effective_sample_size,
    moment_information,
    require_positive_cells,
    rescale,
    share_weights,
    table_factor,
    table_information,
)
from skquant._priors import total_weight
from skquant._table import (
    add_base,
    criterion_coordinates,
    informative_subspace,
    prior_base,
    require_full_rank,
)
from skquant._tolerances import RANK_RTOL
from skquant.criteria import resolve_criterion
from skquant.report import InformationReport, information_report

__all__ = [
    "InformationReport",
    "binned_fisher_information",
    "fisher_information",
    "fractional_fisher_information",
    "information_report",
    "responsibility_gradient",
]


def _scaled_table(scores, sample_weight):
    """Validate, and divide columns and weights by their largest magnitude."""
    X, _ = check_scores(scores)
    weights = check_weights(sample_weight, X, signed=True)
    column_scale = np.max(np.abs(X), axis=0).astype(np.float64)
    column_scale[column_scale == 0] = 1.0
    weight_scale = max(np.max(weights), -np.min(weights))
    return X / column_scale, weights / weight_scale, column_scale, weight_scale


def fisher_information(scores, sample_weight=None):
    """Return the full Fisher information ``sum_i w_i s_i s_i'`` of a score table.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event. They are not centred.
    sample_weight : array-like of shape (n,), default=None
        Weights, of either sign; ones when None.

    Returns
    -------
    information : ndarray of shape (d, d)
        Total information of the table, not per unit of weight.

    Raises
    ------
    ValueError
        For scores or weights that are not finite, weights whose total is not positive,
        or negative weights that leave the information not positive definite.

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
    if np.min(weights) < 0:
        # raises unless the signed information is positive definite in its subspace
        informative_subspace(X, share_weights(weights), rank_tolerance(None, X.dtype))
        information = table_information(X, weights)
    else:
        root = np.sqrt(weights)[:, None] * X
        information = root.T @ root
    return rescale(information, column_scale, weight_scale)


def binned_fisher_information(scores, labels, sample_weight=None, *, n_bins=None):
    """Return the information ``sum_b m_b m_b' / W_b`` that the labels keep.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    labels : array-like of int of shape (n,)
        Cell of each row, in ``0..n_bins-1``.
    sample_weight : array-like of shape (n,), default=None
        Weights, of either sign; ones when None.
    n_bins : int, default=None
        Number of cells; the largest label plus one when None.

    Returns
    -------
    information : ndarray of shape (d, d)
        Total information of the labels, not per unit of weight. Without negative
        weights never larger than the full information in the Loewner order.

    Raises
    ------
    ValueError
        For invalid scores or weights, labels outside the cells, or a cell that holds
        rows but no positive weight.

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
    require_positive_cells(weights, labels, n_bins)
    information = moment_information(*cell_moments(X, weights, labels, n_bins))
    return rescale(information, column_scale, weight_scale)


def _fractional_moments(X, responsibilities, weights):
    cell_weights = weights @ responsibilities
    if np.min(weights) < 0:
        check_cell_weights(cell_weights, np.abs(weights) @ responsibilities)
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
        Weights, of either sign; ones when None.

    Returns
    -------
    information : ndarray of shape (d, d)
        Total information of the randomized labels, not per unit of weight.

    Raises
    ------
    ValueError
        If a row of ``responsibilities`` is not a probability vector, scores or
        weights are invalid, or a cell has no positive weight.

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
        total_weight=total_weight(weights),
    )
    used = weights > 0
    subspace = informative_subspace(
        X[used],
        share_weights(weights[used]),
        RANK_RTOL,
        criterion.precision_root(X.shape[1]),
    )
    require_full_rank(criterion, subspace, names)
    base = prior_base(criterion, subspace)
    points = X @ criterion_coordinates(criterion, subspace)
    shares = share_weights(weights)
    cell_weights, means = _fractional_moments(points, responsibilities, shares)
    factor = table_factor(points, shares)
    metric = criterion.gradient(
        add_base(moment_information(cell_weights, means), base),
        add_base(factor.T @ factor, base),
    )[: points.shape[1], : points.shape[1]]
    projected = means @ metric
    gradient = 2.0 * points @ projected.T - np.sum(projected * means, axis=1)
    empty = cell_weights == 0
    gradient[:, empty] = np.sum(points @ metric * points, axis=1)[:, None]
    return shares[:, None] * gradient
