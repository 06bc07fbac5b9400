"""Gradients of the mean loss of a sampled one-hot label, with respect to its logits.

With few categories enumerate: `exact_gradient` has neither bias nor variance. With
many, and a loss that is differentiable at one-hot vectors, `straight_through_gradient`
with ``n_samples > 1`` (Gumbel-Rao); for a loss that is only a number,
`score_function_gradient`.
"""

import numpy as np

from skquant._checks import (
    check_choice,
    check_count,
    check_finite,
    check_logits,
    check_scale,
)
from skquant._noise import noise_generator, sample_noise
from skquant.relaxation._categorical import condition_utilities, gumbel_max
from skquant.responsibilities import RELAXATIONS, relax_logits

__all__ = [
    "RunningMean",
    "exact_gradient",
    "score_function_gradient",
    "straight_through_gradient",
]

_SOFTMAX = RELAXATIONS["softmax"]
_BLOCK = 2**20


def straight_through_gradient(
    loss_grad,
    logits,
    *,
    temperature,
    n_samples=1,
    batch_size=1,
    return_std=False,
    random_state=None,
):
    """Straight-through Gumbel-softmax gradient of the mean loss of a sampled label.

    A one-hot x is drawn, the gradient of the loss is taken there, and it is multiplied
    by the Jacobian of the softmax at the perturbed logits, as if x had been relaxed.
    With ``n_samples > 1`` (Gumbel-Rao) the Jacobian is averaged over the noise given x:
    the mean stays, and the variance stays bounded as the temperature falls, where that
    of ``n_samples=1`` grows like ``1 / temperature``.

    With few categories and a loss that need not be differentiable, use
    `exact_gradient`: it has neither bias nor variance.

    Parameters
    ----------
    loss_grad : callable
        Maps one-hot vectors of shape (B, ..., n) to the gradients of the loss there, of
        the same shape; each row is separate.
    logits : array-like of shape (..., n)
        Log-probabilities of the label, up to a constant a row.
    temperature : float
        Positive. A high one costs bias, a low one variance. For quadratic losses the
        bias vanishes with it.
    n_samples : int, default=1
        Draws of the noise given the label; 1 is the plain estimator. They cost no
        evaluation of the loss.
    batch_size : int, default=1
        Independent labels a row; the result is their mean.
    return_std : bool, default=False
        Whether to return the standard error too; needs ``batch_size`` above 1.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    gradient : ndarray of shape (..., n)
        With respect to the logits; sums to 0. Categories of probability 0 get 0.
    std : ndarray of shape (..., n)
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, a temperature that is not positive, a
        parameter out of range, or a ``loss_grad`` of another shape or not finite.

    Notes
    -----
    Nothing is differentiated through the noise given the label, which depends on the
    logits too; that would change the mean. The variance is
    ``(E Var(g | x) / n_samples + Var E(g | x)) / batch_size``.

    References
    ----------
    .. [1] M. Paulus, C. Maddison, A. Krause, "Rao-Blackwellizing the Straight-Through
       Gumbel-Softmax Gradient Estimator", ICLR 2021. arXiv:2010.04838.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import straight_through_gradient
    >>> def loss_grad(x):
    ...     return [2.0, 1.5, 1.5] * (x - [0.7, 0.0, 0.3])
    >>> settings = dict(temperature=0.5, batch_size=1000, return_std=True)
    >>> for n_samples in [1, 100]:
    ...     gradient, std = straight_through_gradient(
    ...         loss_grad,
    ...         [0.5, 0.0, -0.5],
    ...         n_samples=n_samples,
    ...         random_state=0,
    ...         **settings,
    ...     )
    ...     print(bool(1000 * np.sum(std**2) < 0.45))  # trace of the covariance
    False
    True
    """
    logits = check_logits(logits)
    temperature = check_scale("temperature", temperature)
    n_samples = check_count("n_samples", n_samples)
    batch_size = check_count("batch_size", batch_size, 2 if return_std else 1)
    rng = noise_generator(random_state)
    n = logits.shape[-1]
    block = max(1, _BLOCK // max(1, logits.size * n_samples))
    gradients = []
    for start in range(0, batch_size, block):
        size = min(block, batch_size - start)
        noise = sample_noise("gumbel", (size, *logits.shape), rng)
        index = np.argmax(logits + noise, axis=-1)
        slopes = _call(loss_grad, "loss_grad", np.eye(n)[index], (size, *logits.shape))
        # one draw given a random winner has the law of the draw that made it win
        waiting = -sample_noise("gumbel", (n_samples, size, *logits.shape), rng)
        relaxed = relax_logits(
            condition_utilities(logits, index, waiting), _SOFTMAX, temperature
        )
        gradients.append(_SOFTMAX.vjp(relaxed, slopes).mean(axis=0) / temperature)
    return _mean(np.concatenate(gradients), return_std)


def _call(function, name, argument, shape):
    values = function(argument)
    values = check_finite(f"the result of {name}", values)
    if values.shape != shape:
        raise ValueError(f"{name} must return shape {shape}; got {values.shape}.")
    return values


def _mean(draws, return_std):
    mean = draws.mean(axis=0)
    if return_std:
        return mean, draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    return mean


class RunningMean:
    """Exponentially weighted mean of the losses of earlier batches, a baseline.

    It is read before it is updated, so that the baseline of a batch does not depend on
    the draws of that batch and the gradient stays unbiased.

    Parameters
    ----------
    decay : float, default=0.9
        Weight of the past, in [0, 1).

    Attributes
    ----------
    value : float or ndarray
        The mean so far, debiased; 0 before the first batch.

    Raises
    ------
    ValueError
        If ``decay`` leaves [0, 1).

    Examples
    --------
    >>> from skquant.relaxation import RunningMean
    >>> baseline = RunningMean(0.5)
    >>> [float(baseline.read_and_update(loss)) for loss in [4.0, 1.0, 2.0]]
    [0.0, 4.0, 2.0]
    """

    def __init__(self, decay=0.9):
        self.decay = check_scale("decay", decay, positive=False)
        if self.decay >= 1:
            raise ValueError(f"decay must lie in [0, 1); got {decay}.")
        self._sum, self._weight = 0.0, 0.0

    @property
    def value(self):
        """Bias-corrected mean of the losses so far; 0 before the first."""
        return self._sum / self._weight if self._weight else 0.0

    def read_and_update(self, loss):
        """Return the mean of what came before, then take in a loss.

        Parameters
        ----------
        loss : float or ndarray
            The next loss.

        Returns
        -------
        value : float or ndarray
            Mean of the losses before it; 0 before the first.
        """
        value = self.value
        self._sum = self.decay * self._sum + (1 - self.decay) * np.asarray(loss)
        self._weight = self.decay * self._weight + (1 - self.decay)
        return value


def score_function_gradient(
    loss,
    logits,
    *,
    n_samples,
    baseline="leave-one-out",
    features=None,
    return_std=False,
    random_state=None,
):
    """Score-function (REINFORCE) gradient of the mean loss of a sampled label.

    The mean over draws i of ``(L(i) - b) (onehot(i) - p)``. The loss may be any number:
    nothing of it is differentiated. With few categories `exact_gradient` has no
    variance.

    Parameters
    ----------
    loss : callable
        Maps category indices of shape (n_samples, ...) to losses of the same shape,
        each row on its own.
    logits : array-like of shape (..., n)
        Log-probabilities of the label, up to a constant a row.
    n_samples : int
        Labels a row; at least 2 for the two batch baselines.
    baseline : {"leave-one-out", "batch-mean"}, float, array-like, RunningMean, \
callable or None, default="leave-one-out"
        What is subtracted from the loss:

        - "leave-one-out": the mean of the other draws; unbiased.
        - "batch-mean": the mean of all draws; it shrinks the gradient by the factor
          ``1 - 1 / n_samples``.
        - a number, or one for each row; the best is the mean loss weighted by
          ``|onehot - p|^2``.
        - a `RunningMean` of earlier batches: read, then updated with this one.
        - a callable: ``baseline(features)`` predicts the loss of each row, such as
          the ``predict`` of a regressor fitted to *earlier* losses (NVIL).
    features : object, default=None
        Argument of a callable baseline.
    return_std : bool, default=False
        Whether to return the standard error too. With a batch baseline the draws
        are treated as independent.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    gradient : ndarray of shape (..., n)
        With respect to the logits; sums to 0.
    std : ndarray of shape (..., n)
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, a parameter out of range, one draw with
        a batch baseline, or a loss of another shape or not finite.

    References
    ----------
    .. [1] R. Williams, "Simple Statistical Gradient-Following Algorithms for
       Connectionist Reinforcement Learning", Machine Learning 8, 1992.
       https://doi.org/10.1007/BF00992696
    .. [2] A. Mnih, K. Gregor, "Neural Variational Inference and Learning in Belief
       Networks", ICML 2014. arXiv:1402.0030.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import score_function_gradient
    >>> losses = np.array([0.2, 1.0, 1.0])
    >>> gradient, std = score_function_gradient(
    ...     losses.take,
    ...     [0.5, 0.0, -0.5],
    ...     n_samples=1000,
    ...     return_std=True,
    ...     random_state=0,
    ... )
    >>> bool((abs(gradient - [-0.1999664, 0.12447095, 0.07549545]) < 4 * std).all())
    True
    """
    logits = check_logits(logits)
    batch = isinstance(baseline, str)
    if batch:
        check_choice("baseline", baseline, ("leave-one-out", "batch-mean"))
    n_samples = check_count("n_samples", n_samples, 2 if batch or return_std else 1)
    rng = noise_generator(random_state)
    index = gumbel_max(logits, n_samples=n_samples, random_state=rng)
    values = _call(loss, "loss", index, index.shape)
    if batch:
        level = values.mean(axis=0)
        if baseline == "leave-one-out":
            level = (n_samples * level - values) / (n_samples - 1)
    elif baseline is None:
        level = 0.0
    elif hasattr(baseline, "read_and_update"):
        level = baseline.read_and_update(values.mean(axis=0))
    else:
        level = baseline(features) if callable(baseline) else baseline
        level = check_finite("baseline", level)
        if level.ndim and level.shape != logits.shape[:-1]:
            raise ValueError(
                f"baseline must be a number or have shape {logits.shape[:-1]}, one a "
                f"row; got {level.shape}."
            )
    return _mean(_score_draws(values - level, index, logits), return_std)


def _score_draws(advantages, index, logits):
    """``(L - b) (onehot - p)`` for every draw."""
    onehot = np.eye(logits.shape[-1])[index]
    return advantages[..., None] * (onehot - _SOFTMAX.forward(logits))


def exact_gradient(loss_values, logits):
    """Gradient of the mean loss of a sampled label, by enumeration.

    With p the softmax of the logits it is ``p * (loss - <p, loss>)``: no bias, no
    variance, one loss a category. The hard label itself has derivative 0 almost
    everywhere; all the dependence is in its jumps.

    Parameters
    ----------
    loss_values : array-like of shape (..., n)
        The loss of every category; broadcasts with the logits.
    logits : array-like of shape (..., n)
        Log-probabilities of the label, up to a constant a row.

    Returns
    -------
    gradient : ndarray of shape (..., n)
        With respect to the logits; sums to 0.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, or losses that are not finite.

    Examples
    --------
    >>> from skquant.relaxation import exact_gradient
    >>> exact_gradient([0.2, 1.0, 1.0], [0.5, 0.0, -0.5])
    array([-0.1999664 ,  0.12447095,  0.07549545])
    """
    logits = check_logits(logits)
    loss_values = check_finite("loss_values", loss_values)
    if loss_values.ndim == 0 or loss_values.shape[-1] != logits.shape[-1]:
        raise ValueError(
            f"loss_values must have one loss a category; got shape "
            f"{loss_values.shape} for {logits.shape[-1]} categories."
        )
    return _SOFTMAX.vjp(_SOFTMAX.forward(logits), loss_values)
