"""Responsibilities of logits, freely or with given weights of the cells."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skquant._checks import (
    check_choice,
    check_finite,
    check_logits,
    check_scale,
)
from skquant.relaxation._categorical import gumbel_max
from skquant.responsibilities import RELAXATIONS, relax_logits
from skquant.solvers._duals import log_partition_and_weights, occupancy_prices

__all__ = [
    "balanced_responsibilities",
    "perturbed_labels",
    "soft_responsibilities",
]

# Falls of the temperature, by 4, on the way to a low one.
_MOST_STAGES = 30


def soft_responsibilities(logits, *, temperature, kind="softmax"):
    """Relax the largest logit of every row.

    Parameters
    ----------
    logits : array-like of shape (..., K)
        Logits of the cells; -inf excludes a cell.
    temperature : float
        Nonnegative; 0 gives one-hot rows, the first of equals.
    kind : {"softmax", "sparsemax"}, default="softmax"
        Softmax is the law of `perturbed_labels`; sparsemax has exact zeros.

    Returns
    -------
    responsibilities : ndarray of shape (..., K)
        Rows are probability vectors.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, or a parameter out of range.

    References
    ----------
    .. [1] A. Martins, R. Astudillo, "From Softmax to Sparsemax", ICML 2016.
       arXiv:1602.02068.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import soft_responsibilities
    >>> logits = -((0.6 - np.array([-1.0, 0.0, 2.0])) ** 2)
    >>> soft_responsibilities(logits, temperature=0.5).round(4)
    array([0.0117, 0.9496, 0.0387])
    >>> soft_responsibilities(logits, temperature=0.5, kind="sparsemax")
    array([0., 1., 0.])
    """
    logits = check_logits(logits)
    check_choice("kind", kind, tuple(RELAXATIONS))
    temperature = check_scale("temperature", temperature, positive=False)
    return relax_logits(logits, RELAXATIONS[kind], temperature)


def perturbed_labels(logits, *, temperature, random_state=None):
    """Draw the largest of ``logits + temperature * Gumbel`` of every row.

    Parameters
    ----------
    logits : array-like of shape (..., K)
        Logits of the cells; -inf excludes a cell.
    temperature : float
        Scale of the noise, nonnegative; 0 gives the largest, the first of equals.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    labels : ndarray of int of shape (...)
        Their law is the softmax `soft_responsibilities`.

    Raises
    ------
    ValueError
        As `soft_responsibilities`.

    References
    ----------
    .. [1] C. Maddison, D. Tarlow, T. Minka, "A* Sampling", NeurIPS 2014.
       arXiv:1411.0030.

    Examples
    --------
    >>> from skquant.relaxation import perturbed_labels
    >>> perturbed_labels([[0.0, 5.0], [5.0, 0.0]], temperature=0.1, random_state=0)
    array([1, 0])
    """
    logits = check_logits(logits)
    temperature = check_scale("temperature", temperature, positive=False)
    if temperature == 0.0:
        return np.argmax(logits, axis=-1)
    with np.errstate(over="ignore"):
        scaled = (logits - logits.max(axis=-1, keepdims=True)) / temperature
    return gumbel_max(scaled, random_state=random_state)


def balanced_responsibilities(
    logits,
    *,
    temperature,
    occupancy=None,
    sample_weight=None,
    at_least=False,
    tol=1e-9,
):
    """Softmax responsibilities whose cells have given shares of the weight.

    Every cell gets an offset of its logits, the same for all rows: the entropic
    transport plan between rows and cells.

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Logits of the cells; finite.
    temperature : float
        Positive.
    occupancy : float or array-like of shape (K,), default=None
        Share of the total weight of each cell; None is ``1 / K``. Shares sum to 1, or
        with ``at_least`` to at most 1.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative; None is one each.
    at_least : bool, default=False
        Whether cells may be heavier: only those below their share are lifted.
    tol : float, default=1e-9
        Largest error of a share.

    Returns
    -------
    responsibilities : ndarray of shape (n, K)
        Rows are probability vectors; ``sample_weight @ responsibilities`` over the
        total is the occupancy.

    Raises
    ------
    ValueError
        For input that is not finite, shares that cannot be, or a parameter out of
        range.

    Warns
    -----
    ConvergenceWarning
        If a share is off by more than ``tol``; the error is in the message.

    References
    ----------
    .. [1] M. Cuturi, "Sinkhorn Distances", NeurIPS 2013. arXiv:1306.0895.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import balanced_responsibilities
    >>> points = np.array([0.0, 0.1, 0.2, 0.9, 1.0, 5.0])
    >>> logits = -((points[:, None] - [0.0, 0.5, 1.0]) ** 2)
    >>> shares = balanced_responsibilities(logits, temperature=0.1)
    >>> shares.sum(axis=0).round(6)
    array([2., 2., 2.])
    """
    logits = check_finite("logits", check_logits(logits))
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (n, K); got {logits.shape}.")
    n, n_bins = logits.shape
    temperature = check_scale("temperature", temperature)
    tol = check_scale("tol", tol)
    weights = np.ones(n) if sample_weight is None else sample_weight
    weights = check_finite("sample_weight", weights)
    if weights.shape != (n,) or (weights < 0).any() or not weights.sum() > 0:
        raise ValueError(
            f"sample_weight must be {n} nonnegative numbers with a positive sum; got "
            f"shape {weights.shape}."
        )
    weights = weights / weights.max()
    weights /= weights.sum()
    shares = check_finite("occupancy", 1.0 / n_bins if occupancy is None else occupancy)
    if shares.shape not in ((), (n_bins,)):
        raise ValueError(
            f"occupancy must be a number or {n_bins} of them; got {shares.shape}."
        )
    shares = np.broadcast_to(shares, (n_bins,))
    total = shares.sum()
    if (shares < 0).any() or total > 1 + 1e-9 or (not at_least and total < 1 - 1e-9):
        rule = "at most 1" if at_least else "1"
        raise ValueError(
            f"occupancy must be nonnegative with a sum of {rule}; got a sum of {total}."
        )
    used = shares > 0 if not at_least else np.ones(n_bins, dtype=bool)
    below = logits[:, used] - logits[:, used].max(axis=1, keepdims=True)
    # prices in units of the logits, from a temperature at which rows are shared out
    stages, prices = [temperature], np.zeros(below.shape[1])
    while stages[0] * 20 < -below.min() and len(stages) < _MOST_STAGES:
        stages.insert(0, stages[0] * 4)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for stage in stages:
            scaled = np.maximum(below / stage, -1e300)
            scaled_prices, error = occupancy_prices(
                lambda g, z=scaled: log_partition_and_weights(z, weights, g),
                shares[used],
                np.clip(prices / stage, -1e300, 1e300),
                at_least=at_least,
                tol=tol,
            )
            prices = scaled_prices * stage
    if not error <= tol:
        warnings.warn(
            f"balanced_responsibilities stopped with an error of {error:.2g} of a "
            f"share, above tol={tol}. Raise the temperature.",
            ConvergenceWarning,
            stacklevel=2,
        )
    result = np.zeros(logits.shape)
    result[:, used] = RELAXATIONS["softmax"].forward(scaled + scaled_prices)
    return result
