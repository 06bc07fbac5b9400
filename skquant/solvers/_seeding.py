"""Starts: k-means, its seeds alone, and the Voronoi cells of random atoms."""

import warnings

import numpy as np
from sklearn import config_context
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning

from skquant._validation import single_threaded
from skquant.solvers._assignment import nearest_cell

# So many atoms a cell do for seeds.
_SEED_ATOMS_A_CELL = 50

# What is passed on from here was checked when it came in.
_CHECKED = {"assume_finite": True, "skip_parameter_validation": True}


def _voronoi_cells(problem, centers):
    return nearest_cell(problem.points, centers, np.eye(centers.shape[1]))


@single_threaded
def kmeans_start(problem, n_bins, random_state, *, max_iter=300, tol=1e-4):
    """Return labels, centers and iterations of scikit-learn's k-means, one start."""
    with config_context(**_CHECKED), warnings.catch_warnings():
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


@single_threaded
def seeded_start(problem, n_bins, random_state):
    """Return the labels of the Voronoi cells of k-means++ seeds."""
    # another part of the atoms for each start
    first = random_state.randint(len(problem.points))
    part = (first + np.arange(_SEED_ATOMS_A_CELL * n_bins)) % len(problem.points)
    part = part[: len(problem.points)]
    with config_context(**_CHECKED):
        centers, _ = kmeans_plusplus(
            problem.points[part],
            n_bins,
            sample_weight=problem.weights[part] / problem.weights[part].max(),
            random_state=random_state,
        )
    return _voronoi_cells(problem, centers)


def random_start(problem, n_bins, random_state):
    """Return the labels of the Voronoi cells of random atoms, in whitened distance.

    Distinct atoms are drawn with probability by weight.
    """
    keys = np.log(problem.weights) + random_state.gumbel(size=len(problem.weights))
    return _voronoi_cells(
        problem, problem.points[np.argpartition(-keys, n_bins - 1)[:n_bins]]
    )
