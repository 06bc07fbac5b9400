"""Intervals of a learned projection: one parameter of interest, others profiled out.

For one parameter the profiled information is a minimum over projections,
``S(M) = min_c c'Mc`` over ``c`` with 1 at the parameter. For a fixed ``c`` the labels
that keep most are intervals of the projection ``s'c``, found exactly, so that

    g(c) = max over labelings of c'M_q c

is convex, as a maximum of convex functions, and every value of it bounds what any
labeling keeps. Its minimum is looked for by L-BFGS, with the gradient of the labels
found, in coordinates in which all information is the identity, from the efficient
score.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from skquant._tolerances import SINGULAR
from skquant.solvers._interval import interval_cells

# So many atoms tell where the minimum of all lies.
_FIRST_ATOMS = 20_000

# The search stops after so many iterations, or where one gains less by the value.
_MAX_ITER = 200
_TOLERANCE = 1e-10
_CORRECTIONS = 20


@dataclass(frozen=True)
class ProfiledIntervals:
    """The best intervals met, and the bound.

    Attributes
    ----------
    combination : ndarray of shape (c,)
        Weights of the criterion's coordinates in the projection.
    labels : ndarray of int32 of shape (n,)
        Its intervals.
    upper_bound : float
        No labeling of the atoms with so many cells has a larger efficiency, whatever
        was rounded.
    n_iter : int
        Projections whose intervals were found.
    """

    combination: np.ndarray
    labels: np.ndarray
    upper_bound: float
    n_iter: int


def _search(problem, n_bins, interest, start):
    """Return combinations, bounds, and the profiled information of their labels."""
    seen = []

    def bound(free):
        combination = np.insert(free, interest, 1.0)
        along = problem.columns @ combination
        labels, edges = interval_cells(problem.points @ along, problem.weights, n_bins)
        kept = problem.in_columns(problem.label_information(labels, len(edges) + 1))
        slope = kept @ combination
        value = float(combination @ slope)
        seen.append((combination, value, _precision(kept, interest)))
        return value, 2.0 * np.delete(slope, interest)

    minimize(
        bound,
        start,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": _MAX_ITER,
            "maxcor": _CORRECTIONS,
            "ftol": _TOLERANCE,
            "gtol": _TOLERANCE,
        },
    )
    return seen


def _precision(matrix, interest):
    """Return the profiled information, 0 where that of the nuisances is singular."""
    block = np.delete(np.delete(matrix, interest, axis=0), interest, axis=1)
    values, vectors = np.linalg.eigh(block)
    if values[0] <= SINGULAR * len(matrix):
        return 0.0
    rotated = vectors.T @ np.delete(matrix[interest], interest)
    return max(0.0, float(matrix[interest, interest] - rotated @ (rotated / values)))


def one_of_interest(problem):
    """Return the column of the one parameter of interest, None where there is none.

    Of scores of rank one the intervals need no learning.
    """
    interest = problem.criterion.interest
    return interest[0] if len(interest) == 1 and len(problem.origin) > 1 else None


def profiled_intervals(problem, n_bins, interest):
    """Learn the projection whose intervals keep most, and bound what any label keeps.

    Parameters
    ----------
    problem : Problem
        Of a criterion of columns.
    n_bins : int
    interest : int
        The parameter's column.

    Returns
    -------
    result : ProfiledIntervals
    """
    start = np.zeros(len(problem.reference) - 1)
    if len(problem.points) > _FIRST_ATOMS:
        seen = _search(problem.head(_FIRST_ATOMS), n_bins, interest, start)
        start = np.delete(min(seen, key=lambda each: each[1])[0], interest)
    seen = _search(problem, n_bins, interest, start)
    chosen, _, _ = max(seen, key=lambda each: each[2])
    # by the size of what is summed, not of what is left
    least = min(value + problem.rounding * (each @ each) for each, value, _ in seen)
    along = problem.columns @ chosen
    labels, _ = interval_cells(problem.points @ along, problem.weights, n_bins)
    return ProfiledIntervals(
        combination=chosen,
        labels=labels,
        upper_bound=float(min(1.0, least)),
        n_iter=len(seen),
    )
