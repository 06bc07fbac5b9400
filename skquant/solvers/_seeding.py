"""Starts: k-means, and the Voronoi cells of random atoms."""

import warnings

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from skquant._validation import single_threaded
from skquant.solvers._assignment import nearest_cell


@single_threaded
def kmeans_start(problem, n_bins, random_state, *, max_iter=300, tol=1e-4):
    """Return labels and centers of scikit-learn's weighted k-means, one start."""
    with warnings.catch_warnings():
        # fewer clusters than asked for: the caller fills empty cells
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = KMeans(
            n_bins,
            n_init=1,
            max_iter=max_iter,
            tol=tol,
            algorithm="lloyd",
            random_state=random_state,
        ).fit(problem.points, sample_weight=problem.weights * len(problem.points))
    return fitted.labels_, fitted.cluster_centers_, fitted.n_iter_


def random_start(problem, n_bins, random_state):
    """Return the labels of the Voronoi cells of random atoms, in whitened distance.

    Distinct atoms are drawn with probability by weight.
    """
    keys = np.log(problem.weights) + random_state.gumbel(size=len(problem.weights))
    centers = problem.points[np.argpartition(-keys, n_bins - 1)[:n_bins]]
    return nearest_cell(problem.points, centers, np.eye(centers.shape[1]))
