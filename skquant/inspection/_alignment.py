"""What separates a reported retention from the true one when scores are estimated."""

from dataclasses import dataclass

import numpy as np

from skquant._checks import check_scores, single_threaded
from skquant._moments import cell_moments, information_pair
from skquant._table import criterion_coordinates, read_table
from skquant.inspection._efficiency import efficiency_gradients


@dataclass(frozen=True)
class AlignmentReport:
    """Reported and true retention of the same labels, and what separates them.

    Attributes
    ----------
    reported : float
        Retention of the labels as the estimated scores tell it.
    true : float
        Retention of the same labels under the true scores.
    alignment : float
        First order in the error: the labels follow its covariance with the true
        scores more (or less) than the table does.
    spurious_information : float
        First order in the error's own information: what the labels keep of it, minus
        what it adds to the full information.
    remainder : float
        ``reported - true - alignment - spurious_information``, of higher order.
    """

    reported: float
    true: float
    alignment: float
    spurious_information: float
    remainder: float


@single_threaded
def alignment_report(
    estimated_scores, true_scores, labels, sample_weight=None, *, criterion="D"
):
    """Compare the retention of labels under estimated and under true scores.

    For simulations where both are known. With the error ``e = estimated - true``, ``A``
    and ``B`` the gradients of the efficiency at the true scores, and ``E_q[x y'] =
    sum_b W_b x_b y_b'`` the second moments of cell means, the terms are ``2 tr(A E_q[s
    e'] + B E[s e'])`` (alignment) and ``tr(A E_q[e e'] + B E[e e'])`` (spurious
    information). An error that is a linear map of the true scores separates nothing,
    to first order, under a criterion that does not depend on the coordinates.

    Parameters
    ----------
    estimated_scores : array-like of shape (n, d)
        Scores that were used, from a classifier say, one row an event.
    true_scores : array-like of shape (n, d)
        Scores of the same events in the same columns and units.
    labels : array-like of int of shape (n,)
        Cell of each row.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        Whose efficiency is the retention.

    Returns
    -------
    report : AlignmentReport
        Both retentions, and the terms of their difference.

    Raises
    ------
    ValueError
        For invalid input, tables of different shapes, or labels that keep no
        information of the true scores in some direction the criterion needs.

    References
    ----------
    .. [1] J. Brehmer, K. Cranmer, G. Louppe, J. Pavez, "Constraining effective field
       theories with machine learning", Phys. Rev. Lett. 121 (2018) (estimated
       scores). https://doi.org/10.1103/PhysRevLett.121.111801

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.inspection import alignment_report
    >>> rng = np.random.default_rng(0)
    >>> true = rng.normal(size=(2000, 1))
    >>> estimated = true + 0.2 * rng.normal(size=(2000, 1))
    >>> report = alignment_report(estimated, true, (estimated > 0).ravel().astype(int))
    >>> round(report.reported, 3), round(report.true, 3)
    (0.637, 0.614)
    """
    truth = read_table(true_scores, sample_weight, criterion)
    estimate = read_table(estimated_scores, sample_weight, criterion)
    true_X, _ = check_scores(true_scores)
    estimated_X, _ = check_scores(estimated_scores)
    if true_X.shape != estimated_X.shape:
        raise ValueError(
            "estimated_scores and true_scores must have one shape; got "
            f"{estimated_X.shape} and {true_X.shape}."
        )
    labels, n_bins = truth.labels(labels)
    pair = information_pair(truth.points, truth.shares, labels, n_bins)
    true = truth.criterion.efficiency(*pair)
    reported = estimate.criterion.efficiency(
        *information_pair(estimate.points, estimate.shares, labels, n_bins)
    )
    in_retained, in_full = efficiency_gradients(truth.criterion, *pair)

    # the map to the criterion's coordinates is linear: it maps the error too
    errors = (estimate.X - truth.X) @ criterion_coordinates(
        truth.criterion, truth.subspace
    )
    shares = truth.shares
    cell_shares, means = cell_moments(truth.points, shares, labels, n_bins)
    _, error_means = cell_moments(errors, shares, labels, n_bins)

    def trace(left, right, left_means, right_means):
        within = cell_shares @ np.sum((left_means @ in_retained) * right_means, axis=1)
        return float(within + shares @ np.sum((left @ in_full) * right, axis=1))

    alignment = 2.0 * trace(truth.points, errors, means, error_means)
    spurious = trace(errors, errors, error_means, error_means)
    return AlignmentReport(
        reported=reported,
        true=true,
        alignment=alignment,
        spurious_information=spurious,
        remainder=reported - true - alignment - spurious,
    )
