"""Intervals of a scalar score, exactly."""

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skquant._table import criterion_coordinates
from skquant._tolerances import EPS
from skquant.criteria import NormalizedTrace
from skquant.quantizers._base import BaseQuantizer
from skquant.solvers._interval import interval_cells, most_cells
from skquant.solvers._limits import unreachable
from skquant.solvers._profiled_interval import one_of_interest, profiled_intervals
from skquant.solvers._search import search_partition
from skquant.solvers._solution import Notice, Solution

# Relative error of a projection, per column.
_ROUNDING = 8.0 * EPS


def _project(problem, subspace, direction):
    """Return the projections of the points; equal ones have equal bits.

    Rounding takes apart the projections of rows that differ elsewhere: neighbors
    within it are made equal.
    """
    along = subspace.basis @ direction
    result = problem.points @ along
    if len(direction) > 1:
        error = np.abs(problem.points @ subspace.basis)
        error = error @ (np.abs(subspace.whitener) @ np.abs(along))
        error *= _ROUNDING * len(direction)
        order = np.argsort(result, kind="stable")
        values, error = result[order], error[order]
        new = np.diff(values) > np.maximum(error[1:], error[:-1])
        starts = np.flatnonzero(np.concatenate([[True], new]))
        result[order] = np.repeat(values[starts], np.diff(starts, append=len(values)))
    return result


class IntervalQuantizer(BaseQuantizer):
    """The exact optimum of scalar scores, by dynamic programming.

    For scores of rank one every criterion has the same optimum, and its cells are
    intervals. For scores of a higher rank the projection on one direction is
    quantized exactly, which is not the optimum of the scores: a warning says so.

    For one parameter of interest with any number of nuisances, constrained or not,
    ``ProfiledDOptimality(interest, prior=...)``, the direction is learned, and
    ``upper_bound_`` certifies the result against every labeling.

    Parameters
    ----------
    n_bins : int, default=8
        Number of cells K.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        What ``score`` and ``retention_`` report. The intervals do not depend on it.
    direction : array-like of shape (d,), default=None
        Weights of the columns in the projection, in inverse units of the scores.
        None is the only informative direction of scores of rank one. For a higher
        rank it is, of the single columns and the retained directions of a k-means
        partition, the one whose intervals keep most under the criterion; for one
        parameter of interest, others profiled out, it is learned (see Notes).
    constraints : CellConstraints, default=None
        Limits that every cell has to satisfy. The program then runs over the intervals
        that satisfy them, and is exact among those.
    negative_weights : {"error", "merge"}, default="error"
        Whether negative weights are refused, or their rows merged with neighbors until
        every weight is positive. The fit is then that of the merged rows.
    rank_rtol : float, default=1e-10
        Relative tolerance of the rank; 1e-6 at least for float32 scores.

    Attributes
    ----------
    n_bins_ : int
        Cells obtained; fewer than ``n_bins`` only with fewer distinct projections.
    labels_ : ndarray of int32 of shape (n,)
        Cell of each training row.
    direction_ : ndarray of shape (d,)
        Weights of the columns in the projection; the largest is 1 unless given.
    edges_ : ndarray of shape (K - 1,)
        Inner edges of the intervals of the projection ``X @ direction_``, ascending;
        a projection on an edge belongs to the lower interval.
    cell_weights_ : ndarray of shape (K,)
        Total weight of each cell.
    cell_means_ : ndarray of shape (K, d)
        Mean score of each cell.
    information_, binned_information_ : ndarray of shape (d, d)
        Full and retained information per unit of total weight.
    criterion_ : object
        The criterion, resolved for the table.
    retention_ : float
        Efficiency of ``labels_`` on the training table.
    rule_ : AffineMaxRule
        The frozen rule.
    rule_agreement_ : float
        Weighted share of training rows whose ``predict`` equals ``labels_``: 1.
    rank_ : int
        Number of informative directions.
    n_iter_ : int
        Projections whose intervals were found; 1 where none is learned.
    upper_bound_ : float
        Efficiency that no labeling of the training rows with ``n_bins_`` cells exceeds,
        for one parameter of interest and ``direction=None`` only.
    gap_ : float
        ``upper_bound_`` minus ``retention_``; there only.
    constraint_report_ : ConstraintReport
        How the cells meet their limits, and what those cost; with ``constraints`` only.
    merged_weight_share_, merged_radius_ : float
        With ``negative_weights="merge"``: the share of the absolute weight in rows that
        were merged with different ones, and their mean distance from the middle of the
        merged, in whitened coordinates, where the root mean square of a score is the
        root of ``rank_``. Merged rows share a label.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str of shape (d,)
        Names of the columns, if they have any.

    See Also
    --------
    DExchangeQuantizer : Cells of scores of any rank.

    Notes
    -----
    The profiled information of one parameter is the minimum over projections of what
    labels keep of the projection (with what the prior says about it), and for one
    projection intervals keep most. So the largest of the kept over labelings is a
    convex function of the projection; each of its values, from the exact dynamic
    program over all distinct rows, bounds every labeling. L-BFGS looks for its
    minimum from the efficient score. The nuisance weight plays no part.

    References
    ----------
    .. [1] W. D. Fisher, "On grouping for maximum homogeneity", J. Am. Stat. Assoc.
       53 (1958). https://doi.org/10.1080/01621459.1958.10501479
    .. [2] A. Aggarwal, M. Klawe, S. Moran, P. Shor, R. Wilber, "Geometric
       applications of a matrix-searching algorithm", Algorithmica 2 (1987).
       https://doi.org/10.1007/BF01840359

    Examples
    --------
    >>> from skquant import IntervalQuantizer
    >>> quantizer = IntervalQuantizer(n_bins=2).fit([[-1.0], [0.0], [4.0], [5.0]])
    >>> quantizer.labels_
    array([0, 0, 1, 1], dtype=int32)
    >>> quantizer.edges_
    array([2.])
    """

    _parameter_constraints: dict = {
        name: BaseQuantizer._parameter_constraints[name]
        for name in (
            "n_bins",
            "criterion",
            "constraints",
            "negative_weights",
            "rank_rtol",
        )
    } | {"direction": ["array-like", None]}

    def __init__(
        self,
        n_bins=8,
        *,
        criterion="D",
        direction=None,
        constraints=None,
        negative_weights="error",
        rank_rtol=1e-10,
    ):
        self.n_bins = n_bins
        self.criterion = criterion
        self.direction = direction
        self.constraints = constraints
        self.negative_weights = negative_weights
        self.rank_rtol = rank_rtol

    def _given_direction(self, subspace):
        direction = np.array(self.direction, dtype=np.float64)
        n_features = len(subspace.scale)
        if direction.shape != (n_features,) or not np.isfinite(direction).all():
            raise ValueError(
                f"direction must hold {n_features} finite weights, one a column; got "
                f"{self.direction!r}."
            )
        weights = np.abs(subspace.basis @ direction)
        rounding = max(self.rank_rtol, _ROUNDING * n_features)
        if not np.any(weights > rounding * (np.abs(subspace.basis) @ abs(direction))):
            raise ValueError(
                "direction must have information about the scores; got "
                f"{self.direction!r}, along which all scores are zero."
            )
        return direction

    def _candidate_directions(self, problem, subspace, n_bins, random_state):
        """Return directions in original coordinates, the largest weight 1."""
        if self.direction is not None:
            return [self._given_direction(subspace)]
        whitened = np.ones((1, 1))
        columns = np.empty((0, len(subspace.scale)))
        if subspace.rank > 1:
            trace = problem.whitened(NormalizedTrace())
            partition = search_partition(trace, n_bins, random_state)
            retained = problem.label_information(partition.labels, n_bins)
            # the leading direction first
            whitened = np.linalg.eigh(retained)[1][:, ::-1]
            columns = np.eye(len(subspace.scale))
            columns = columns[np.any(subspace.basis != 0, axis=0)]
        directions = np.vstack([(subspace.whitener @ whitened).T, columns])
        largest = np.argmax(np.abs(directions), axis=1)[:, None]
        return list(directions / np.take_along_axis(directions, largest, axis=1))

    def _solve(self, problem, n_bins, atoms, random_state):
        subspace = atoms.subspace
        notices, learned = [], None
        interest = one_of_interest(problem)
        if self.direction is None and interest is not None:
            learned = profiled_intervals(problem, n_bins, interest)
        elif subspace.rank > 1:
            notices.append(
                Notice(
                    f"IntervalQuantizer is exact for scores of rank 1; got rank "
                    f"{subspace.rank}, of which one projection is quantized. "
                    "DExchangeQuantizer and KMeansQuantizer are made for more."
                )
            )
        if learned is None:
            directions = self._candidate_directions(
                problem, subspace, n_bins, random_state
            )
        else:
            direction = criterion_coordinates(problem.criterion, subspace)
            direction = direction @ learned.combination
            directions = [direction / np.abs(direction).max()]
        projections = [_project(problem, subspace, each) for each in directions]
        number, labels, edges, retentions = _limited_cuts(
            problem, projections, n_bins, atoms.limits
        )
        direction = directions[number]
        cells = np.arange(len(edges) + 1)
        if len(cells) < n_bins:
            notices.append(
                Notice(
                    f"n_bins={self.n_bins} is larger than the number of distinct "
                    f"projections, {len(cells)}: every one is its own cell.",
                    ConvergenceWarning,
                )
            )
        attributes = {
            "direction_": direction,
            "edges_": edges + atoms.center @ direction,
        }
        if learned is not None:
            kept = problem.label_information(labels, len(cells))
            retention = problem.efficiency(kept)
            attributes["upper_bound_"] = max(learned.upper_bound, retention)
            attributes["gap_"] = attributes["upper_bound_"] - retention
        return Solution(
            labels=labels,
            # the label is the number of edges below: slopes 0, 1, ..., K - 1
            coef=cells[:, None] * (subspace.basis @ direction),
            intercept=-np.concatenate([[0.0], np.cumsum(edges)]),
            n_iter=1 if learned is None else learned.n_iter,
            attributes=attributes,
            notices=tuple(notices),
            retentions=retentions,
        )


def _best_cut(problem, projections, n_bins, limits):
    """Return the number, labels and edges of the projection that keeps most.

    None where the limits leave none.
    """
    # the trace tells apart directions that the criterion all calls worthless
    trace = problem.whitened(NormalizedTrace())
    cuts, keys = {}, {}
    for number, each in enumerate(projections):
        cut = interval_cells(each, problem.weights, n_bins, limits)
        if cut is not None:
            kept = problem.label_information(cut[0], len(cut[1]) + 1)
            cuts[number], keys[number] = cut, (problem.value(kept), trace.value(kept))
    if not cuts:
        return None
    best = max(cuts, key=keys.__getitem__)
    return best, *cuts[best]


def _limited_cuts(problem, projections, n_bins, limits):
    """Return what the best cut is within the limits, and what each of them costs."""
    chosen = _best_cut(problem, projections, n_bins, limits)
    if limits is None:
        return *chosen, {}
    if chosen is None:

        def most(each):
            return max(most_cells(p, problem.weights, each) for p in projections)

        n_bins = min(n_bins, most(limits.scaled(0.0)))
        raise unreachable(limits, n_bins, most)
    asked = {None: None}
    if len(limits.names) > 1:
        asked |= {name: limits.alone(i) for i, name in enumerate(limits.names)}
    retentions = {}
    for name, each in asked.items():
        _, labels, edges = _best_cut(problem, projections, n_bins, each)
        kept = problem.label_information(labels, len(edges) + 1)
        retentions[name] = problem.efficiency(kept)
    return *chosen, retentions
