"""Gumbel tricks on one-hot labels: perturbed maxima, sampling, relaxed samples.

The last axis of logits is the categories; leading axes are separate rows. A logit of
-inf is a category of probability 0. "Gumbel" is the law of mean zero, the standard one
shifted down by Euler's constant: probabilities and gradients do not see the shift,
maxima do.
"""

import numpy as np
from scipy.special import expit, gammaln, log_ndtr, log_softmax, logsumexp

from skquant._checks import (
    check_choice,
    check_count,
    check_finite,
    check_logits,
    check_scale,
)
from skquant._noise import noise_generator, sample_noise
from skquant.responsibilities import RELAXATIONS, relax_logits

__all__ = [
    "argmax_probabilities",
    "concrete_logpdf",
    "conditional_gumbel",
    "expected_max",
    "gumbel_max",
    "gumbel_quantile",
    "gumbel_softmax",
    "perturbed_comparison",
    "sample_gumbel",
]

_SOFTMAX = RELAXATIONS["softmax"]


def sample_gumbel(shape, *, loc=0.0, scale=1.0, random_state=None):
    """Draw Gumbel noise of mean ``loc``.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of the draw.
    loc : float or array-like, default=0.0
        Mean, *not* the mode; ``scale * np.euler_gamma`` gives the standard convention.
    scale : float, default=1.0
        Scale, nonnegative; the standard deviation is ``scale * pi / sqrt(6)``.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    noise : ndarray of that shape
        Float64, from exponential draws: finite, and fine-grained in the upper tail up
        to ``loc + 36 scale``.

    Raises
    ------
    ValueError
        If ``loc`` is not finite or ``scale`` negative.

    Notes
    -----
    The variance is ``scale^2 pi^2 / 6``, not ``scale^2`` as [1]_ has it.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.5.

    Examples
    --------
    >>> from skquant.relaxation import sample_gumbel
    >>> noise = sample_gumbel(100_000, scale=2.0, random_state=0)
    >>> bool(abs(noise.mean()) < 0.03), bool(abs(noise.var() - 6.58) < 0.2)
    (True, True)
    """
    loc = check_finite("loc", loc)
    scale = check_scale("scale", scale, positive=False)
    return loc + scale * sample_noise("gumbel", shape, noise_generator(random_state))


def gumbel_quantile(u, *, loc=0.0, scale=1.0):
    """Inverse of the Gumbel distribution function: ``-log(-log(u)) - gamma``.

    Parameters
    ----------
    u : array-like
        Probabilities in [0, 1].
    loc, scale : float
        Mean and scale, as in `sample_gumbel`.

    Returns
    -------
    quantile : ndarray of the shape of u
        -inf at 0 and +inf at 1.

    Raises
    ------
    ValueError
        If ``u`` leaves [0, 1], or as `sample_gumbel`.

    Notes
    -----
    A uniform u gives Gumbel noise, but float32 uniforms end at 16.6 and float64 ones at
    36.7: prefer `sample_gumbel`. The distribution function is
    ``exp(-exp(-(z + gamma)))``; [1]_ drops the outer minus.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.5.

    Examples
    --------
    >>> from skquant.relaxation import gumbel_quantile
    >>> gumbel_quantile([0.0, 0.5, 1.0])
    array([      -inf, -0.21070274,         inf])
    """
    u = check_finite("u", u)
    if (u < 0).any() or (u > 1).any():
        raise ValueError(f"u must lie in [0, 1]; got {u.min()} to {u.max()}.")
    loc = check_finite("loc", loc)
    scale = check_scale("scale", scale)
    with np.errstate(divide="ignore"):
        return loc - scale * (np.log(-np.log(u)) + np.euler_gamma)


def perturbed_comparison(a, b, *, scale=1.0):
    """Probability that a exceeds b when both carry independent Gumbel noise.

    The difference of the noises is logistic, so it is ``expit((a - b) / scale)``.

    Parameters
    ----------
    a, b : array-like
        Numbers to compare; they broadcast.
    scale : float, default=1.0
        Scale of the noise; 0 is the limit: 0, 0.5 (a tie) or 1.

    Returns
    -------
    probability : ndarray
        In [0, 1], of the broadcast shape.

    Raises
    ------
    ValueError
        If an input is not finite or ``scale`` negative.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.5.

    Examples
    --------
    >>> from skquant.relaxation import perturbed_comparison
    >>> perturbed_comparison([0.4, -0.1], -0.1, scale=0.7).round(8)
    array([0.67134745, 0.5       ])
    """
    difference = check_finite("a", a) - check_finite("b", b)
    scale = check_scale("scale", scale, positive=False)
    if scale == 0.0:
        return np.heaviside(difference, 0.5)
    with np.errstate(over="ignore"):
        return expit(difference / scale)


def _normal_race(logits):
    """Nodes of the winning value below the largest logit and, for every category, the
    probability of winning there."""
    below = logits - logits.max(axis=-1, keepdims=True)
    # The integrands are entire functions: the trapezoid rule converges exponentially.
    step = 0.0625
    nodes = np.arange(-40.0, 10.0, step)
    gaps = nodes - below[..., None]
    log_cdf = log_ndtr(gaps)
    with np.errstate(under="ignore", invalid="ignore"):
        others = log_cdf.sum(axis=-2, keepdims=True) - log_cdf
        weights = np.exp(others - 0.5 * gaps**2) * (step / np.sqrt(2 * np.pi))
    return nodes, weights


def argmax_probabilities(logits, *, scale=1.0, noise="gumbel"):
    """Probability of each category to be the largest under independent noise.

    Parameters
    ----------
    logits : array-like of shape (..., n)
        Means.
    scale : float, default=1.0
        Scale of the noise; 0 is the limit: one-hot, the first of equals.
    noise : {"gumbel", "normal"}, default="gumbel"
        "gumbel" gives the softmax of ``logits / scale``. "normal" gives the
        (multinomial) probit, from a one-dimensional integral.

    Returns
    -------
    probabilities : ndarray of shape (..., n)
        Of each category to be the largest; rows sum to one.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, or a parameter out of range.

    See Also
    --------
    gumbel_max : Draws the category.
    perturbed_argmax : The same for any finite set, by Monte Carlo.

    Notes
    -----
    In the proof for Gumbel noise, ``exp(-(mu / sigma + Z))`` is exponential with
    rate ``exp(mu / sigma - gamma)``; [1]_ has signs of both exponents wrong.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.5.

    Examples
    --------
    >>> from skquant.relaxation import argmax_probabilities
    >>> argmax_probabilities([0.5, 0.0, -0.5])
    array([0.50648039, 0.30719589, 0.18632372])
    >>> argmax_probabilities([0.5, 0.0, -0.5], noise="normal").round(7)
    array([0.5487437, 0.3009257, 0.1503306])
    """
    logits = check_logits(logits)
    scale = check_scale("scale", scale, positive=False)
    check_choice("noise", noise, ("gumbel", "normal"))
    if noise == "gumbel" or scale == 0.0:
        return relax_logits(logits, _SOFTMAX, scale)
    return _normal_race(_below_largest(logits, scale))[1].sum(axis=-1)


def _below_largest(logits, scale):
    with np.errstate(over="ignore"):
        return (logits - logits.max(axis=-1, keepdims=True)) / scale


def expected_max(logits, *, scale=1.0, noise="gumbel"):
    """Mean of the largest of the logits under independent noise of mean zero.

    Parameters
    ----------
    logits : array-like of shape (..., n)
        Means.
    scale : float, default=1.0
        Scale of the noise; 0 is the maximum.
    noise : {"gumbel", "normal"}, default="gumbel"
        "gumbel" gives ``scale * logsumexp(logits / scale)``; the largest is then
        itself Gumbel with that mean and scale. Gumbel noise that is not centered
        would add ``scale * np.euler_gamma``.

    Returns
    -------
    value : ndarray of shape (...)
        Its gradient is `argmax_probabilities`; a common shift of the logits adds
        itself, so that it is convex but not strictly.

    Raises
    ------
    ValueError
        As `argmax_probabilities`.

    Notes
    -----
    For Gumbel noise it is also the maximum over probability vectors p of
    ``<logits, p> - scale sum p log p``.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.5.
    .. [2] C. Clark, "The Greatest of a Finite Set of Random Variables", Operations
       Research 9, 1961. https://doi.org/10.1287/opre.9.2.145

    Examples
    --------
    >>> from skquant.relaxation import expected_max
    >>> expected_max([[0.5, 0.0, -0.5]])
    array([1.18026967])
    >>> expected_max([[0.5, 0.0]], noise="normal")
    array([0.84908866])
    """
    logits = check_logits(logits)
    scale = check_scale("scale", scale, positive=False)
    check_choice("noise", noise, ("gumbel", "normal"))
    largest = logits.max(axis=-1)
    if scale == 0.0:
        return largest
    below = _below_largest(logits, scale)
    if noise == "gumbel":
        return largest + scale * logsumexp(below, axis=-1)
    nodes, weights = _normal_race(below)
    return largest + scale * (weights.sum(axis=-2) @ nodes)


def gumbel_max(logits, *, n_samples=None, k=1, random_state=None):
    """Draw categories with softmax probabilities, without computing them.

    The k largest of ``logits + Gumbel`` are k draws without replacement, in order
    (the Plackett-Luce law). Equivalently the k first of an exponential race.

    Parameters
    ----------
    logits : array-like of shape (..., n)
        Log-probabilities, up to a constant a row.
    n_samples : int, default=None
        Independent repetitions, in a new leading axis.
    k : int, default=1
        Distinct categories a repetition, in a new last axis if above 1.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    index : ndarray of int, shape (...), (..., k), (n_samples, ...) or \
(n_samples, ..., k)
        A logit of -inf never wins.

    Raises
    ------
    ValueError
        For NaN, +inf, a row with fewer than k finite logits, or a parameter out of
        range.

    References
    ----------
    .. [1] W. Kool, H. van Hoof, M. Welling, "Stochastic Beams and Where to Find
       Them", ICML 2019. arXiv:1903.06059.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import gumbel_max
    >>> index = gumbel_max([0.5, 0.0, -0.5], n_samples=100_000, random_state=0)
    >>> (np.bincount(index) / 100_000).round(2)
    array([0.5 , 0.31, 0.19])
    >>> gumbel_max([0.5, -np.inf, -0.5, 2.0], k=3, random_state=0).shape
    (3,)
    """
    logits = check_logits(logits)
    k = check_count("k", k)
    possible = np.isfinite(logits).sum(axis=-1).min(initial=logits.shape[-1])
    if k > possible:
        raise ValueError(
            f"k must be at most the number of finite logits of every row; got {k} for "
            f"{possible}."
        )
    lead = () if n_samples is None else (check_count("n_samples", n_samples),)
    noise = sample_noise("gumbel", lead + logits.shape, noise_generator(random_state))
    utilities = logits + noise
    if k == 1:
        return np.argmax(utilities, axis=-1)
    return np.argsort(-utilities, axis=-1, kind="stable")[..., :k]


def _check_temperature(temperature, logits, *, positive):
    """A temperature that broadcasts along the categories."""
    array = check_finite("temperature", temperature)
    rule = "positive" if positive else "nonnegative"
    if (array < 0).any() or (positive and (array == 0).any()):
        raise ValueError(f"temperature must be {rule}; got {temperature!r}.")
    if array.ndim and array.shape[-1] != 1:
        raise ValueError(
            "temperature must be a number or have a last axis of length 1; got shape "
            f"{array.shape} for logits of shape {logits.shape}."
        )
    return array


def gumbel_softmax(
    logits, *, temperature, n_samples=None, noise=None, log=False, random_state=None
):
    """Draw relaxed one-hot vectors: ``softmax((logits + Gumbel) / temperature)``.

    Parameters
    ----------
    logits : array-like of shape (..., n)
        Log-probabilities of the hard label, up to a constant a row. For Gumbel noise of
        scale s, divide logits and temperature by s.
    temperature : float or array-like of shape (..., 1)
        Nonnegative; 0 gives hard one-hot vectors.
    n_samples : int, default=None
        Independent repetitions, in a new leading axis.
    noise : array-like, default=None
        Gumbel noise to use instead of fresh draws; it broadcasts with the logits.
    log : bool, default=False
        Whether to return logarithms, as `concrete_logpdf` takes them. At a low
        temperature the vectors themselves round to their boundary.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    relaxed : ndarray of shape (..., n) or (n_samples, ..., n)
        Rows are probability vectors (or their logarithms); the largest entry is that
        of the hard label.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, a negative temperature, or both ``noise``
        and ``n_samples``.

    References
    ----------
    .. [1] C. Maddison, A. Mnih, Y. W. Teh, "The Concrete Distribution", ICLR 2017.
       arXiv:1611.00712.
    .. [2] E. Jang, S. Gu, B. Poole, "Categorical Reparameterization with
       Gumbel-Softmax", ICLR 2017. arXiv:1611.01144.

    Examples
    --------
    >>> from skquant.relaxation import gumbel_softmax
    >>> gumbel_softmax([0.5, 0.0], temperature=0.5, noise=[0.0, 0.0]).round(4)
    array([0.7311, 0.2689])
    """
    logits = check_logits(logits)
    temperature = _check_temperature(temperature, logits, positive=False)
    lead = () if n_samples is None else (check_count("n_samples", n_samples),)
    if noise is None:
        rng = noise_generator(random_state)
        noise = sample_noise("gumbel", lead + logits.shape, rng)
    elif n_samples is not None:
        raise ValueError(
            f"n_samples must be None where noise is given; got {n_samples}."
        )
    utilities = logits + check_finite("noise", noise)
    scaled = utilities - utilities.max(axis=-1, keepdims=True)
    hard = relax_logits(utilities, _SOFTMAX, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
        scaled = scaled / temperature
        result = log_softmax(scaled, axis=-1) if log else _SOFTMAX.forward(scaled)
        return np.where(temperature > 0, result, np.log(hard) if log else hard)


def concrete_logpdf(log_t, logits, temperature):
    """Log-density of `gumbel_softmax`, the Concrete distribution.

    Parameters
    ----------
    log_t : array-like of shape (..., n)
        Logarithms of points of the open simplex, as from ``log=True``.
    logits : array-like of shape (..., n)
        Log-probabilities of the hard label, up to a constant a row; finite.
    temperature : float or array-like of shape (..., 1)
        Positive.

    Returns
    -------
    logpdf : ndarray of shape (...)
        With respect to the first n - 1 coordinates of t. For n = 1 it is 0.

    Raises
    ------
    ValueError
        If an input is not finite, ``exp(log_t)`` does not sum to 1, or the temperature
        is not positive.

    References
    ----------
    .. [1] C. Maddison, A. Mnih, Y. W. Teh, "The Concrete Distribution", ICLR 2017.
       arXiv:1611.00712.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import concrete_logpdf
    >>> float(np.exp(concrete_logpdf(np.log([0.3, 0.7]), [0.5, 0.0], 0.5)).round(7))
    0.4843734
    """
    logits = check_finite("logits", check_logits(logits))
    temperature = _check_temperature(temperature, logits, positive=True)
    log_t = check_finite("log_t", check_logits(log_t, "log_t"))
    error = np.abs(logsumexp(log_t, axis=-1)).max(initial=0.0)
    if error > 1e-5:
        raise ValueError(
            "log_t must hold logarithms of probability vectors; got a row whose "
            f"log of the sum is off 0 by {error:.3g}."
        )
    if log_t.shape[-1] != logits.shape[-1]:
        raise ValueError(
            "log_t must have the categories of the logits; got shapes "
            f"{log_t.shape} and {logits.shape}."
        )
    n = logits.shape[-1]
    # log(pi_i / t_i^tau), whose softmax is invariant to the scale of pi
    powers = logits - temperature * log_t
    constant = gammaln(n) + (n - 1) * np.log(temperature)
    pieces = log_softmax(powers, axis=-1) - log_t
    return np.sum(pieces, axis=-1) + np.squeeze(constant + np.zeros(1), axis=-1)


def _check_index(index, logits):
    index = np.asarray(index)
    if index.dtype.kind not in "iu":
        raise ValueError(f"index must be integers; got dtype {index.dtype}.")
    n = logits.shape[-1]
    if index.size and (index.min() < 0 or index.max() >= n):
        raise ValueError(
            f"index must lie in 0..{n - 1}; got {index.min()}..{index.max()}."
        )
    shape = np.broadcast_shapes(index.shape, logits.shape[:-1])
    index = np.broadcast_to(index, shape)
    won = np.take_along_axis(
        np.broadcast_to(logits, (*shape, n)), index[..., None], axis=-1
    )
    if (won == -np.inf).any():
        raise ValueError(
            "index must name categories of positive probability; got "
            f"{(won == -np.inf).sum()} with a logit of -inf."
        )
    return index


def conditional_gumbel(logits, index, *, n_samples=None, random_state=None):
    """Draw ``logits + Gumbel`` given which category is the largest.

    Parameters
    ----------
    logits : array-like of shape (..., n)
        Log-probabilities, up to a constant a row.
    index : array-like of int
        The winning category; broadcasts with the shape (...).
    n_samples : int, default=None
        Independent repetitions, in a new leading axis.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    utilities : ndarray of shape (..., n) or (n_samples, ..., n)
        The largest is at ``index`` and has mean ``logsumexp(logits)`` whichever wins;
        -inf stays -inf.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, or a winner of probability 0.

    Notes
    -----
    Gumbel noise of mean zero: add ``np.euler_gamma`` for the standard convention. In
    logs throughout, so that large logits do not overflow.

    References
    ----------
    .. [1] M. Paulus, C. Maddison, A. Krause, "Rao-Blackwellizing the Straight-Through
       Gumbel-Softmax Gradient Estimator", ICLR 2021. arXiv:2010.04838.

    Examples
    --------
    >>> from skquant.relaxation import conditional_gumbel
    >>> utilities = conditional_gumbel([1000.0, 0.0], 1, n_samples=5, random_state=0)
    >>> utilities.argmax(axis=-1)
    array([1, 1, 1, 1, 1])
    """
    logits = check_logits(logits)
    index = _check_index(index, logits)
    lead = () if n_samples is None else (check_count("n_samples", n_samples),)
    shape = lead + index.shape + logits.shape[-1:]
    rng = noise_generator(random_state)
    # log of the exponentials: minus a Gumbel
    waiting = -sample_noise("gumbel", shape, rng)
    return condition_utilities(logits, index, waiting)


def condition_utilities(logits, index, waiting):
    """Utilities given the winner, from logarithms of exponential waiting times."""
    total = logsumexp(logits, axis=-1, keepdims=True)
    chosen = np.broadcast_to(index[..., None], (*waiting.shape[:-1], 1))
    first = np.take_along_axis(waiting, chosen, axis=-1) - total
    with np.errstate(under="ignore"):
        utilities = -np.logaddexp(waiting - logits, first)
    np.put_along_axis(utilities, chosen, -first, axis=-1)
    return utilities
