"""Starts: k-means, its seeds alone, and the Voronoi cells of random atoms."""

import warnings

import numpy as np
from joblib import delayed
from sklearn import config_context
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skquant._checks import single_threaded
from skquant.solvers._assignment import nearest_cell

# Starts share their seeds: two a cell, one more for so many starts. So many atoms do
# for each seed.
_STARTS_A_SEED = 8
_ATOMS_A_SEED = 50

# What is passed on from here was checked when it came in.
_CHECKED = {"assume_finite": True, "skip_parameter_validation": True}


def _voronoi_cells(problem, centers):
    return nearest_cell(problem.points, centers, np.eye(centers.shape[1]))


def kmeans_starts(problem, n_bins, seeds, side_by_side, **options):
    """Return scikit-learn's k-means from each seed; ``side_by_side`` runs them."""
    with warnings.catch_warnings():
        # fewer clusters than asked for: the caller fills empty cells. Not in the
        # threads, where a filter that one restores is another's
        warnings.simplefilter("ignore", ConvergenceWarning)
        return side_by_side(
            delayed(_kmeans_start)(problem, n_bins, seed, **options) for seed in seeds
        )


@single_threaded
def _kmeans_start(problem, n_bins, seed, *, max_iter=300, tol=1e-4):
    kmeans = KMeans(
        n_bins,
        n_init=1,
        max_iter=max_iter,
        tol=tol,
        algorithm="lloyd",
        random_state=check_random_state(seed),
    )
    with config_context(**_CHECKED):
        weights = problem.weights * len(problem.points)
        return kmeans.fit(problem.points, sample_weight=weights)


@single_threaded
def seeded_starts(problem, n_bins, n_starts, random_state):
    """Return labels of the Voronoi cells of k-means++ seeds, for each start.

    The first start has the first seeds. What follow fill the gaps between them: the
    other starts take some of all.
    """
    n_centers = n_bins * min(n_starts, 2 + n_starts // _STARTS_A_SEED)
    part = slice(_ATOMS_A_SEED * n_centers)
    points, weights = problem.points[part], problem.weights[part]
    with config_context(**_CHECKED):
        centers, _ = kmeans_plusplus(
            points,
            min(n_centers, len(points)),
            sample_weight=weights / weights.max(),
            random_state=random_state,
        )
    chosen = [np.arange(n_bins)]
    while len(chosen) < n_starts:
        chosen.append(random_state.permutation(len(centers))[:n_bins])
    return [_voronoi_cells(problem, centers[each]) for each in chosen]


def random_start(problem, n_bins, random_state):
    """Return the labels of the Voronoi cells of random atoms, in whitened distance.

    Distinct atoms are drawn with probability by weight.
    """
    keys = np.log(problem.weights) + random_state.gumbel(size=len(problem.weights))
    return _voronoi_cells(
        problem, problem.points[np.argpartition(-keys, n_bins - 1)[:n_bins]]
    )
