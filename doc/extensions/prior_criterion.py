"""A new criterion: D-optimality for labels that are added to what is known already."""

from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator, clone

from skquant.criteria import retained_eigensystem


class PriorDOptimality(BaseEstimator):
    """Log determinant of the retained information plus a prior's.

    The prior is worth ``prior`` times the table's own full information, in every
    direction. A direction that the labels do not see then costs something finite, and
    there is no least number of cells.

    Parameters
    ----------
    prior : float, default=0.1
        Positive; information of the prior over that of the table.

    References
    ----------
    .. [1] K. Chaloner, I. Verdinelli, "Bayesian experimental design: a review",
       Statist. Sci. 10 (1995). https://doi.org/10.1214/ss/1177009939
    """

    concave = True

    def __init__(self, prior=0.1):
        self.prior = prior

    def resolve(self, n_features, feature_names):
        """Return a copy after a check of the parameter."""
        if not isinstance(self.prior, Real) or not 0 < self.prior < np.inf:
            raise ValueError(f"prior must be a positive number; got {self.prior!r}.")
        return clone(self)

    def value(self, information, reference):
        """Return the sum of ``log(lambda + prior)``."""
        eigenvalues, _ = retained_eigensystem(information, reference)
        return float(np.sum(np.log(eigenvalues + self.prior)))

    def gradient(self, information, reference):
        """Return the inverse of the retained information plus the prior's."""
        eigenvalues, vectors = retained_eigensystem(information, reference)
        return (vectors / (eigenvalues + self.prior)) @ vectors.T

    def efficiency(self, information, reference):
        """Return the geometric mean of ``(lambda + prior) / (1 + prior)``."""
        eigenvalues, _ = retained_eigensystem(information, reference)
        kept = (eigenvalues + self.prior) / (1.0 + self.prior)
        return float(np.exp(np.mean(np.log(kept))))
