"""Intervals of a learned projection: one parameter of interest, others profiled out.

For one parameter the profiled information is a minimum over projections,
``S(M) = min_c c'Mc`` over ``c`` with 1 at the parameter. For a fixed ``c`` the labels
that keep most are intervals of the projection ``s'c``, found exactly, so that

    g(c) = max over labelings of c'M_q c

is convex, as a maximum of convex functions, and every value of it bounds what any
labeling keeps. Its minimum is looked for by L-BFGS, with the gradient of the labels
found, in coordinates in which the nuisance block of all information is the identity,
from the efficient score.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from skquant.solvers._interval import interval_cells

# So many atoms tell where the minimum of all lies.
_FIRST_ATOMS = 20_000

# The search stops after so many iterations, or where one gains less by the value.
_MAX_ITER = 200
_TOLERANCE = 1e-10
_CORRECTIONS = 20

# Relative error of a bound that rounding could be: as that of other certificates.
_ROUNDING = 1e-11


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
        No labeling of the atoms with so many cells has a larger efficiency.
    n_iter : int
        Projections whose intervals were found.
    """

    combination: np.ndarray
    labels: np.ndarray
    upper_bound: float
    n_iter: int


def _search(problem, n_bins, combine, start, precision):
    """Return combinations, bounds, and the profiled information of their labels."""
    seen = []

    def bound(free):
        combination = combine(free)
        along = problem.columns @ combination
        labels, edges = interval_cells(problem.points @ along, problem.weights, n_bins)
        kept = problem.in_columns(problem.label_information(labels, len(edges) + 1))
        slope = kept @ combination
        value = float(combination @ slope)
        seen.append((combination, free.copy(), value, precision(kept)))
        return value, 2.0 * combine.pull_back(slope)

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


class _Combine:
    """Free numbers to a combination with 1 at the parameter of interest."""

    def __init__(self, reference, interest):
        self._nuisance = np.delete(np.arange(len(reference)), interest)
        block = reference[np.ix_(self._nuisance, self._nuisance)]
        # of unit diagonal first, so that no unit matters
        scale = np.sqrt(np.diag(block))
        lower = np.linalg.cholesky(block / scale / scale[:, None])
        self._map = np.linalg.inv(lower).T / scale[:, None]
        self._center = np.zeros(len(reference))
        self._center[interest] = 1.0
        cross = reference[self._nuisance, interest]
        self._center[self._nuisance] = -self._map @ (self._map.T @ cross)
        self.size = len(self._nuisance)

    def __call__(self, free):
        combination = self._center.copy()
        combination[self._nuisance] += self._map @ free
        return combination

    def pull_back(self, slope):
        return self._map.T @ slope[self._nuisance]


def one_of_interest(problem):
    """Return the column of the one parameter of interest, None where there is none.

    Of scores of rank one the intervals need no learning.
    """
    criterion = problem.criterion
    if not hasattr(criterion, "nuisance_retention") or len(problem.origin) == 1:
        return None
    return criterion.interest[0] if len(criterion.interest) == 1 else None


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
    reference = problem.reference
    combine = _Combine(reference, interest)
    nuisance = np.delete(np.arange(len(reference)), interest)

    def precision(matrix):
        """The profiled information, 0 where that of the nuisances is singular."""
        # of unit diagonal in the reference
        block = combine._map.T @ matrix[np.ix_(nuisance, nuisance)] @ combine._map
        cross = combine._map.T @ matrix[nuisance] @ combine._center
        values, vectors = np.linalg.eigh(block)
        if values[0] <= 1e3 * np.finfo(np.float64).eps * len(matrix):
            return 0.0
        rotated = vectors.T @ cross
        center = combine._center @ matrix @ combine._center
        return max(0.0, float(center - rotated @ (rotated / values)))

    start = np.zeros(combine.size)
    if len(problem.points) > _FIRST_ATOMS:
        head = problem.head(_FIRST_ATOMS)
        seen = _search(head, n_bins, combine, start, precision)
        start = min(seen, key=lambda each: each[2])[1]
        seen = _search(problem, n_bins, combine, start, precision)
    else:
        seen = _search(problem, n_bins, combine, start, precision)
    chosen = max(seen, key=lambda each: each[3])

    def rounding(combination):
        # by the size of what is summed, not of what is left
        size = np.abs(combination)
        return _ROUNDING * (size @ np.abs(reference) @ size)

    least = min(each[2] + rounding(each[0]) for each in seen)
    whole = precision(reference) - rounding(combine(np.zeros(combine.size)))
    along = problem.columns @ chosen[0]
    labels, _ = interval_cells(problem.points @ along, problem.weights, n_bins)
    return ProfiledIntervals(
        combination=chosen[0],
        labels=labels,
        upper_bound=float(min(1.0, least / whole)) if whole > 0.0 else 1.0,
        n_iter=len(seen),
    )
