"""A new solver and its estimator: centers as far from each other as can be."""

import numpy as np

from skquant.quantizers._base import BaseQuantizer
from skquant.solvers._soft_search import center_rule
from skquant.solvers._solution import Solution


def farthest_points(points, n_points):
    """Choose points greedily, each the farthest from those before it.

    The largest distance to the nearest chosen point is at most twice the least
    possible. The first is the one farthest from the origin.
    """
    chosen = np.empty((n_points, points.shape[1]))
    distances = np.sum(points**2, axis=1)
    for k in range(n_points):
        chosen[k] = points[np.argmax(distances)]
        from_last = np.sum((points - chosen[k]) ** 2, axis=1)
        distances = from_last if k == 0 else np.minimum(distances, from_last)
    return chosen


class FarthestPointQuantizer(BaseQuantizer):
    """Nearest of K scattered scores, in whitened coordinates.

    No criterion is maximized; the cells bound how far any score is from its label.

    Parameters
    ----------
    n_bins : int, default=8
        Number of cells K.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        What ``score`` and ``retention_`` report.
    rank_rtol : float, default=1e-10
        Relative tolerance of the rank.

    References
    ----------
    .. [1] T. F. Gonzalez, "Clustering to minimize the maximum intercluster
       distance", Theor. Comput. Sci. 38 (1985).
       https://doi.org/10.1016/0304-3975(85)90224-5
    """

    _parameter_constraints: dict = {
        name: BaseQuantizer._parameter_constraints[name]
        for name in ("n_bins", "criterion", "rank_rtol")
    }

    def __init__(self, n_bins=8, *, criterion="D", rank_rtol=1e-10):
        self.n_bins = n_bins
        self.criterion = criterion
        self.rank_rtol = rank_rtol

    def _solve(self, problem, n_bins, atoms, random_state):
        coef, intercept = center_rule(farthest_points(problem.points, n_bins))
        return Solution(labels=None, coef=coef, intercept=intercept, n_iter=1)
