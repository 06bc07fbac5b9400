"""A new relaxation: between softmax and sparsemax, with finite support and no kink."""

import numpy as np

from skquant.responsibilities import RELAXATIONS


class Entmax15:
    """Responsibilities ``max(z / 2 - threshold, 0)^2``, that sum to one.

    References
    ----------
    .. [1] B. Peters, V. Niculae, A. F. T. Martins, "Sparse sequence-to-sequence
       models", ACL 2019. https://doi.org/10.18653/v1/P19-1146
    """

    def forward(self, logits):
        """Return the responsibilities; the last axis is the cells."""
        # what lies more than 1 below the largest half logit has probability zero
        half = 0.5 * (logits - logits.max(axis=-1, keepdims=True))
        half = np.maximum(half, -2.0)
        falling = -np.sort(-half, axis=-1)
        sizes = np.arange(1, half.shape[-1] + 1)
        mean = np.cumsum(falling, axis=-1) / sizes
        square = np.cumsum(falling**2, axis=-1) / sizes
        # sum over the first k of (z - t)^2 = 1, the smaller root
        root = np.maximum(1.0 / sizes - (square - mean**2), 0.0)
        thresholds = mean - np.sqrt(root)
        size = np.sum(thresholds <= falling, axis=-1, keepdims=True)
        threshold = np.take_along_axis(thresholds, size - 1, axis=-1)
        result = np.maximum(half - threshold, 0.0) ** 2
        return result / result.sum(axis=-1, keepdims=True)

    def vjp(self, responsibilities, cotangent):
        """Multiply a cotangent by the Jacobian, ``diag(s) - s s' / sum(s)``."""
        slopes = np.sqrt(responsibilities)
        mean = np.sum(slopes * cotangent, axis=-1, keepdims=True)
        mean /= slopes.sum(axis=-1, keepdims=True)
        return slopes * (cotangent - mean)


RELAXATIONS["entmax15"] = Entmax15()
