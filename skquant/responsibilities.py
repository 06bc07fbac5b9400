"""Maps from logits to responsibilities, and their vector-Jacobian products.

A relaxation is an object with two functions of arrays whose last axis is the cells:
``forward(logits)`` gives probability vectors, and ``vjp(responsibilities,
cotangent)`` multiplies by the Jacobian, which is symmetric, from the output alone.
NumPy only: a deployed rule uses them.
"""

import numpy as np


class Softmax:
    """Responsibilities proportional to the exponential of the logits."""

    def forward(self, logits):
        with np.errstate(under="ignore"):
            result = np.exp(logits - logits.max(axis=-1, keepdims=True))
        result /= result.sum(axis=-1, keepdims=True)
        return result

    def vjp(self, responsibilities, cotangent):
        mean = np.sum(responsibilities * cotangent, axis=-1, keepdims=True)
        return responsibilities * (cotangent - mean)


class Sparsemax:
    """Euclidean projection of the logits onto the simplex: most entries are zero.

    References
    ----------
    .. [1] A. Martins, R. Astudillo, "From Softmax to Sparsemax", ICML 2016.
       https://doi.org/10.48550/arXiv.1602.02068
    """

    def forward(self, logits):
        # what lies more than 1 below the largest has probability zero
        logits = np.maximum(logits - logits.max(axis=-1, keepdims=True), -2.0)
        falling = -np.sort(-logits, axis=-1)
        sums = np.cumsum(falling, axis=-1)
        sizes = np.arange(1, logits.shape[-1] + 1)
        size = np.sum(1.0 + sizes * falling > sums, axis=-1, keepdims=True)
        threshold = (np.take_along_axis(sums, size - 1, axis=-1) - 1.0) / size
        return np.maximum(logits - threshold, 0.0)

    def vjp(self, responsibilities, cotangent):
        support = responsibilities > 0
        size = support.sum(axis=-1, keepdims=True)
        mean = np.sum(cotangent * support, axis=-1, keepdims=True) / size
        return support * (cotangent - mean)


RELAXATIONS = {"softmax": Softmax(), "sparsemax": Sparsemax()}


def relax_logits(logits, relaxation, *divisors):
    """Return the responsibilities of logits divided by temperatures, one by one.

    Differences to the largest are divided, so that no square of a small temperature
    underflows; a divisor of 0 is the hard limit, where the first largest wins.
    """
    if 0.0 in divisors:
        result = np.zeros(logits.shape)
        largest = np.argmax(logits, axis=-1, keepdims=True)
        np.put_along_axis(result, largest, 1.0, axis=-1)
        return result
    scaled = logits - logits.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        for divisor in divisors:
            scaled /= divisor
    return relaxation.forward(scaled)
