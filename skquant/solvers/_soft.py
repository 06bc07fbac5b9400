"""Annealed maximization of the information of a randomized rule.

The rule's responsibilities are a relaxation (softmax, sparsemax) of affine logits
over the square of the temperature tau. The solver knows a criterion by its value and
gradient, a relaxation by its forward map and vector-Jacobian product, and a family
by how its parameters give slopes and offsets.
"""

from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import minimize

from skquant._kernels.soft import scratch_size, softmax_pass
from skquant.responsibilities import Softmax, relax_logits
from skquant.solvers._assignment import largest_logit, lift_light_cells
from skquant.solvers._duals import log_partition_and_weights, occupancy_prices

_BLOCK_ROWS = 4096

# Rows of a part of the table that one thread sums.
_PART_ROWS = 1 << 16
_ADAM_DECAY = (0.9, 0.999)

# Atoms a parameter that the early stages of L-BFGS see.
_EARLY_ATOMS_A_PARAMETER = 2_000


class Voronoi:
    """Nearest centers in whitened coordinates: logits ``c'z - |c|^2 / 2``."""

    def pack(self, slopes, offsets, unit):
        return slopes / unit

    def logits(self, parameters, unit):
        centers = parameters * unit
        return centers, -0.5 * np.sum(centers**2, axis=1)

    def pull_back(self, parameters, unit, slope_gradient, offset_gradient):
        centers = parameters * unit
        return unit * (slope_gradient - offset_gradient[:, None] * centers)


class AffineMax:
    """Free slopes and offsets."""

    def pack(self, slopes, offsets, unit):
        return np.column_stack([slopes / unit, offsets / unit**2])

    def logits(self, parameters, unit):
        return parameters[:, :-1] * unit, parameters[:, -1] * unit**2

    def pull_back(self, parameters, unit, slope_gradient, offset_gradient):
        return np.column_stack([unit * slope_gradient, unit**2 * offset_gradient])


FAMILIES = {"voronoi": Voronoi(), "affine_max": AffineMax()}


@dataclass(frozen=True)
class Snapshot:
    """State of an annealed fit at one recorded step.

    Attributes
    ----------
    step : int
        Updates made before.
    slopes, offsets : ndarray of shapes (K, r) and (K,)
        Logits of the rule in the problem's coordinates.
    temperature : float
        tau, in whitened score units.
    objective, soft_retention : float
        Value and efficiency of the randomized rule.
    hard_value, hard_retention : float
        Value and efficiency of its hard limit.
    gradient_norm : float
        Norm of the objective's gradient in parameters over their unit of length.
    occupied : bool
        Whether every cell of the hard limit has its least weight.
    """

    step: int
    slopes: np.ndarray
    offsets: np.ndarray
    temperature: float
    objective: float
    soft_retention: float
    hard_value: float
    hard_retention: float
    gradient_norm: float
    occupied: bool


class SoftObjective:
    """Value and gradient of a randomized rule on a problem.

    Parameters are in units of a length, so step sizes and clipping are free of
    units: the value is. With a least weight, cells that would be lighter have their
    offsets raised, by prices that are functions of the parameters and differentiated
    as such; that needs softmax.
    """

    def __init__(
        self, problem, family, relaxation, unit, least_weight=0.0, n_jobs=None
    ):
        self.problem = problem
        self.n_jobs = n_jobs
        self.family = family
        self.relaxation = relaxation
        self.unit = unit
        self.least_weight = least_weight
        self._prices = None

    def _compiled(self, temperature):
        return temperature > 0 and isinstance(self.relaxation, Softmax)

    def _blocks(self):
        points, weights = self.problem.points, self.problem.weights
        for start in range(0, len(points), _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            yield points[rows], weights[rows]

    def _responsibilities(self, points, slopes, offsets, temperature):
        logits = points @ slopes.T
        logits += offsets
        return relax_logits(logits, self.relaxation, temperature, temperature)

    def head(self, n_points):
        """Return the objective on the first atoms."""
        return SoftObjective(
            self.problem.head(n_points),
            self.family,
            self.relaxation,
            self.unit,
            self.least_weight,
            self.n_jobs,
        )

    def _softmax_sums(self, slopes, offsets, temperature, ascent=None, level=None):
        n_bins, rank = slopes.shape
        slopes = np.ascontiguousarray(slopes)

        def part_sums(start):
            rows = slice(start, start + _PART_ROWS)
            sums = np.empty((n_bins, 1 + rank))
            softmax_pass(
                self.problem.points[rows],
                self.problem.weights[rows],
                slopes,
                offsets,
                temperature,
                ascent,
                level,
                sums,
                np.empty(scratch_size(rank, n_bins)),
                np.empty(2 * n_bins, dtype=np.int32),
            )
            return sums

        starts = range(0, len(self.problem.points), _PART_ROWS)
        # in one order, whatever the number of threads
        return sum(
            Parallel(n_jobs=self.n_jobs if len(starts) > 1 else 1, require="sharedmem")(
                delayed(part_sums)(start) for start in starts
            )
        )

    def _evaluate_prices(self, slopes, offsets, temperature):
        """Return the function of prices that `occupancy_prices` asks for."""

        def evaluate(prices):
            value, cells, hessian = 0.0, 0.0, 0.0
            for points, weights in self._blocks():
                logits = points @ slopes.T + offsets
                logits -= logits.max(axis=1, keepdims=True)
                with np.errstate(over="ignore", under="ignore"):
                    scaled = np.maximum(logits / temperature / temperature, -1e300)
                parts = log_partition_and_weights(scaled, weights, prices)
                value, cells, hessian = (
                    total + part
                    for total, part in zip((value, cells, hessian), parts, strict=True)
                )
            return value, cells, hessian

        return evaluate

    def logits(self, parameters, temperature):
        """Return slopes and offsets, with the prices of light cells added."""
        slopes, offsets = self.family.logits(parameters, self.unit)
        if self.least_weight == 0.0 or temperature == 0.0:
            return slopes, offsets
        evaluate = self._evaluate_prices(slopes, offsets, temperature)
        shares = np.full(len(slopes), self.least_weight)
        start = np.zeros(len(slopes)) if self._prices is None else self._prices
        self._prices, _ = occupancy_prices(
            evaluate, shares, start, at_least=True, tol=1e-11
        )
        return slopes, offsets + temperature**2 * self._prices

    def information(self, parameters, temperature):
        """Return cell means (about the origin) and information of the rule."""
        slopes, offsets = self.logits(parameters, temperature)
        return self._information(slopes, offsets, temperature)

    def _information(self, slopes, offsets, temperature):
        if self._compiled(temperature):
            sums = self._softmax_sums(slopes, offsets, temperature)
        else:
            sums = np.zeros((len(slopes), 1 + slopes.shape[1]))
            for points, weights in self._blocks():
                shares = self._responsibilities(points, slopes, offsets, temperature)
                shares *= weights[:, None]
                sums[:, 0] += shares.sum(axis=0)
                sums[:, 1:] += shares.T @ points
        cell_weights, moments = sums[:, 0], sums[:, 1:]
        means = moments / np.where(cell_weights > 0, cell_weights, 1.0)[:, None]
        return means, self.problem.information(cell_weights, means)

    def _pulled_back(self, slopes, offsets, temperature, projected, level):
        """Gradients in offsets and slopes, (K, 1 + r), times the squared temperature,
        of a value whose derivative in responsibilities is ``2 z_i' p_b - level_b``."""
        if self._compiled(temperature):
            return self._softmax_sums(
                slopes, offsets, temperature, 2.0 * projected, -level
            )
        sums = np.zeros((len(slopes), 1 + slopes.shape[1]))
        for points, weights in self._blocks():
            ascent = 2.0 * points @ projected.T - level
            ascent *= weights[:, None]
            shares = self._responsibilities(points, slopes, offsets, temperature)
            ascent = self.relaxation.vjp(shares, ascent)
            sums[:, 0] += ascent.sum(axis=0)
            sums[:, 1:] += ascent.T @ points
        return sums

    def value_and_gradient(self, parameters, temperature, criterion):
        """Return the criterion's value, its gradient in the parameters, and the
        information.

        By the chain rule through ``dF/dr_ib = w_i (2 z_i' G mu_b - mu_b' G mu_b)``,
        which differences between cells make independent of the origin. Where the
        information is singular the gradient is zero.
        """
        problem = self.problem.with_criterion(criterion)
        slopes, offsets = self.logits(parameters, temperature)
        means, information = self._information(slopes, offsets, temperature)
        value = problem.value(information)
        if not np.isfinite(value):
            return value, np.zeros_like(parameters), information
        projected = means @ problem.gradient(information)
        level = np.sum(projected * means, axis=1)
        sums = self._pulled_back(slopes, offsets, temperature, projected, level)
        if self._prices is not None and self._prices.any() and temperature > 0:
            # held cells keep their weight: prices answer to every change
            held = self._prices > 0
            base = self.family.logits(parameters, self.unit)
            evaluate = self._evaluate_prices(*base, temperature)
            hessian = evaluate(self._prices)[2][np.ix_(held, held)]
            answer = np.linalg.lstsq(hessian, sums[held, 0], rcond=1e-13)[0]
            level = level.copy()
            level[held] += answer
            sums = self._pulled_back(slopes, offsets, temperature, projected, level)
        gradient = self.family.pull_back(parameters, self.unit, sums[:, 1:], sums[:, 0])
        # at a vanishing temperature the gradient is zero almost everywhere
        with np.errstate(over="ignore"):
            gradient = gradient / temperature / temperature
        gradient[~np.isfinite(gradient)] = 0.0
        return value, gradient, information

    def snapshot(self, step, parameters, temperature, evaluated, whole, report):
        """Record a state; the hard rule is judged on the whole problem, efficiencies
        are those of the problem ``report``."""
        value, gradient, information = evaluated
        slopes, offsets = self.logits(parameters, temperature)
        offsets, occupied = lift_light_cells(whole, slopes, offsets, self.least_weight)
        hard = hard_information(whole, slopes, offsets)
        return Snapshot(
            step=step,
            slopes=slopes,
            offsets=offsets,
            temperature=temperature,
            objective=value,
            soft_retention=report.efficiency(information),
            hard_value=whole.value(hard),
            hard_retention=report.efficiency(hard),
            gradient_norm=float(np.linalg.norm(gradient)),
            occupied=occupied,
        )


def hard_information(problem, slopes, offsets):
    """Return the information of the hard limit of a rule."""
    labels = largest_logit(problem.points, slopes, offsets)
    return problem.label_information(labels, len(slopes))


def nearest_center_distance(centers):
    """Return the median distance of a center to the nearest other one."""
    if len(centers) == 1:
        return 1.0
    squares = np.sum((centers[:, None] - centers) ** 2, axis=2)
    np.fill_diagonal(squares, np.inf)
    distances = np.sqrt(squares.min(axis=1))
    return float(np.median(distances[distances > 0])) if distances.any() else 1.0


def anneal_adam(
    objective,
    parameters,
    criteria,
    temperatures,
    record,
    *,
    learning_rate,
    gradient_clip,
    record_every,
):
    """Follow the gradient by Adam while the temperature falls at every update.

    The second moment is shared by the parameters of a cell, so that rotations of
    the scores change nothing. The criteria share the updates equally, in turn.
    """
    fast, slow = _ADAM_DECAY
    first = np.zeros_like(parameters)
    second = np.zeros((len(parameters), 1))
    n_updates = len(temperatures) - 1
    for step, temperature in enumerate(temperatures):
        criterion = criteria[min(step * len(criteria) // n_updates, len(criteria) - 1)]
        evaluated = objective.value_and_gradient(parameters, temperature, criterion)
        if step % record_every == 0 or step == n_updates:
            record(step, parameters, temperature, evaluated)
        if step == n_updates:
            break
        gradient = evaluated[1]
        norm = np.linalg.norm(gradient)
        if norm > gradient_clip:
            gradient = gradient * (gradient_clip / norm)
        first = fast * first + (1 - fast) * gradient
        second = slow * second + (1 - slow) * np.mean(gradient**2, axis=1)[:, None]
        mean = first / (1 - fast ** (step + 1))
        spread = np.sqrt(second / (1 - slow ** (step + 1)))
        parameters = parameters + learning_rate * mean / (spread + 1e-8)


def anneal_lbfgs(
    objective, parameters, criteria, temperatures, record, *, max_iter, record_every
):
    """Maximize by L-BFGS at each of a few falling temperatures, warm-started.

    The criteria share the stages equally, in turn. All but the last stage see a
    subsample of a large table; what is recorded is of the whole. The last state
    recorded has the last temperature and the parameters of the best hard rule on the
    way.
    """
    early = objective.head(_EARLY_ATOMS_A_PARAMETER * parameters.size)
    shape = parameters.shape
    step = 0
    best = None

    def keep(parameters, temperature, evaluated):
        nonlocal best
        snapshot = record(step, parameters, temperature, evaluated)
        if best is None or snapshot.hard_value >= best[0]:
            best = (snapshot.hard_value, parameters)

    for stage, temperature in enumerate(temperatures):
        criterion = criteria[stage * len(criteria) // len(temperatures)]

        last = stage == len(temperatures) - 1
        seen = objective if last else early

        def evaluate(
            flat, temperature=temperature, criterion=criterion, seen=objective
        ):
            return seen.value_and_gradient(flat.reshape(shape), temperature, criterion)

        def loss(flat, evaluate=evaluate, seen=seen):
            value, gradient, _ = evaluate(flat, seen=seen)
            # a singular rule is worse than any other, not infinitely so
            return -max(value, -1e300), -gradient.ravel()

        def count(flat, temperature=temperature, evaluate=evaluate):
            nonlocal step
            step += 1
            if step % record_every == 0:
                keep(flat.reshape(shape).copy(), temperature, evaluate(flat))

        if stage == 0:
            keep(parameters, temperature, evaluate(parameters.ravel()))
        solved = minimize(
            loss,
            parameters.ravel(),
            jac=True,
            method="L-BFGS-B",
            callback=count,
            options={"maxiter": max_iter, "ftol": 1e-6, "gtol": 1e-6},
        )
        parameters = solved.x.reshape(shape)
        keep(parameters, temperature, evaluate(parameters.ravel()))
        if temperature == temperatures[-1] and best[1] is not parameters:
            keep(best[1], temperature, evaluate(best[1].ravel()))
