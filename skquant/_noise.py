"""Noise laws of mean zero and the random generators that draw them.

A law has the density ``exp(-nu(z)) / C``: ``nu`` is the *negative* log-density up to
a constant. Its derivatives are what score-function estimators multiply by.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.utils import check_random_state

__all__ = ["NOISES", "Noise", "noise_generator", "noise_law", "sample_noise"]

# An exponential draw of exactly 0, of probability about 2 ** -53, counts as this.
_SMALLEST_EXPONENTIAL = 2.0**-54


@dataclass(frozen=True)
class Noise:
    """A law with independent coordinates of mean zero.

    Attributes
    ----------
    sample : callable
        ``sample(shape, rng)`` draws float64.
    slope, curvature : callable
        First and second derivative of ``nu``, coordinate by coordinate; the
        curvature is None where ``nu`` has a kink.
    symmetric : bool
        Whether ``Z`` and ``-Z`` have one law.
    """

    sample: Callable
    slope: Callable
    curvature: Callable | None
    symmetric: bool


def _sample_gumbel(shape, rng):
    waiting = np.maximum(rng.standard_exponential(shape), _SMALLEST_EXPONENTIAL)
    return -np.log(waiting) - np.euler_gamma


def _gumbel_weight(z):
    return np.exp(-(z + np.euler_gamma))


NOISES = {
    "normal": Noise(
        sample=lambda shape, rng: np.asarray(rng.standard_normal(shape)),
        slope=lambda z: z,
        curvature=np.ones_like,
        symmetric=True,
    ),
    "gumbel": Noise(
        sample=_sample_gumbel,
        slope=lambda z: 1.0 - _gumbel_weight(z),
        curvature=_gumbel_weight,
        symmetric=False,
    ),
    "laplace": Noise(
        sample=lambda shape, rng: np.asarray(rng.laplace(size=shape)),
        slope=np.sign,
        curvature=None,
        symmetric=True,
    ),
    "logistic": Noise(
        sample=lambda shape, rng: np.asarray(rng.logistic(size=shape)),
        slope=lambda z: np.tanh(0.5 * z),
        curvature=lambda z: 0.5 / np.cosh(0.5 * z) ** 2,
        symmetric=True,
    ),
}


def noise_law(kind):
    """Return the law of that name, or raise ValueError."""
    if not isinstance(kind, str) or kind not in NOISES:
        raise ValueError(f"noise must be one of {sorted(NOISES)}; got {kind!r}.")
    return NOISES[kind]


def noise_generator(random_state):
    """Return a generator from None, an int, a RandomState or a Generator.

    A `numpy.random.Generator` is used as it is; the rest follows
    `sklearn.utils.check_random_state`.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    return check_random_state(random_state)


def sample_noise(kind, shape, rng):
    """Draw float64 noise of unit scale and mean zero.

    Parameters
    ----------
    kind : {"normal", "gumbel", "laplace", "logistic"}
        The Gumbel law is shifted by the Euler constant, so that its mean is 0.
    shape : int or tuple of int
        Shape of the draw; ``()`` gives a 0-d array.
    rng : RandomState or Generator
        As from `noise_generator`.
    """
    shape = (shape,) if np.ndim(shape) == 0 else tuple(shape)
    return np.asarray(noise_law(kind).sample(shape, rng), dtype=np.float64)
