"""Annealed maximization of the information of a randomized rule.

Responsibilities of the point z are ``softmax_b(-|z - c_b|^2 / (2 tau^2))``; the
logits ``c_b'z - |c_b|^2 / 2`` give the same, divided by ``tau^2``.
"""

from dataclasses import dataclass

import numpy as np

from skquant.solvers._assignment import nearest_cell

_BLOCK_ROWS = 4096
_ADAM_DECAY = (0.9, 0.999)


@dataclass(frozen=True)
class Snapshot:
    """State of an annealed fit at one recorded step.

    Attributes
    ----------
    step : int
        Updates made before.
    centers : ndarray of shape (K, r)
        In the problem's coordinates.
    temperature : float
        tau, in whitened score units.
    objective, soft_retention, hard_retention : float
        Value and efficiency of the randomized rule, efficiency of its hard limit.
    hard_value : float
        The criterion's value of the hard limit.
    gradient_norm : float
        Norm of the value's gradient in the centers, times the start temperature.
    """

    step: int
    centers: np.ndarray
    temperature: float
    objective: float
    soft_retention: float
    hard_retention: float
    hard_value: float
    gradient_norm: float


def _responsibilities(points, centers, temperature):
    logits = points @ centers.T
    logits -= 0.5 * np.sum(centers**2, axis=1)
    logits -= logits.max(axis=1, keepdims=True)
    # twice by tau: its square may underflow
    with np.errstate(over="ignore", under="ignore"):
        logits /= temperature
        logits /= temperature
        np.exp(logits, out=logits)
    logits /= logits.sum(axis=1, keepdims=True)
    return logits


def _blocks(problem):
    for start in range(0, len(problem.points), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        yield problem.points[rows], problem.weights[rows]


def soft_information(problem, centers, temperature):
    """Return cell weights, cell means and information of the randomized rule."""
    cell_weights = np.zeros(len(centers))
    moments = np.zeros_like(centers)
    for points, weights in _blocks(problem):
        responsibilities = _responsibilities(points, centers, temperature)
        responsibilities *= weights[:, None]
        cell_weights += responsibilities.sum(axis=0)
        moments += responsibilities.T @ points
    safe = np.where(cell_weights > 0, cell_weights, 1.0)
    means = moments / safe[:, None]
    return cell_weights, means, problem.information(cell_weights, means)


def center_gradient(problem, centers, temperature, means, metric):
    """Return the derivative of the value in the centers, times tau squared.

    By the chain rule through ``dF/dr_ib = w_i (2 z_i' G mu_b - mu_b' G mu_b)``, all
    relative to the mean of the other cells of the row, so that a common offset
    cancels; ``means`` and the points are relative to the problem's origin.
    """
    projected = means @ metric
    offset = np.sum(projected * means, axis=1)
    gradient = np.zeros_like(centers)
    for points, weights in _blocks(problem):
        responsibilities = _responsibilities(points, centers, temperature)
        ascent = 2.0 * points @ projected.T - offset
        ascent -= np.sum(responsibilities * ascent, axis=1, keepdims=True)
        ascent *= responsibilities
        ascent *= weights[:, None]
        gradient += ascent.T @ points - ascent.sum(axis=0)[:, None] * centers
    return gradient


def hard_information(problem, centers):
    """Return the information of the hard limit."""
    labels = nearest_cell(problem.points, centers, np.eye(centers.shape[1]))
    return problem.label_information(labels, len(centers))


def start_temperature(centers):
    """Return the median distance of a center to the nearest other one."""
    if len(centers) == 1:
        return 1.0
    squares = np.sum((centers[:, None] - centers) ** 2, axis=2)
    np.fill_diagonal(squares, np.inf)
    return float(np.median(np.sqrt(squares.min(axis=1))))


def anneal(
    problem,
    centers,
    report,
    *,
    max_iter,
    learning_rate,
    gradient_clip,
    start_ratio,
    end_ratio,
    record_every,
):
    """Maximize by Adam while the temperature falls geometrically.

    Lengths are in units of the start temperature and the criterion's value is free
    of units, so step sizes and clipping are too. The second moment of Adam is
    shared by the coordinates of a center: rotations of the scores change nothing.
    Efficiencies are those of the problem ``report``.

    Returns
    -------
    snapshots : list of Snapshot
        The first is the start, the last the end.
    """
    unit = start_temperature(centers)
    hottest = unit * start_ratio
    centers = centers.copy()
    first = np.zeros_like(centers)
    second = np.zeros((len(centers), 1))
    snapshots = []
    for step in range(max_iter + 1):
        temperature = hottest * end_ratio ** (step / max_iter)
        cell_weights, means, information = soft_information(
            problem, centers, temperature
        )
        value = problem.value(information)
        gradient = np.zeros_like(centers)
        if np.isfinite(value) and len(centers) > 1:
            with np.errstate(over="ignore"):
                raw = center_gradient(
                    problem, centers, temperature, means, problem.gradient(information)
                )
                gradient = raw / temperature / temperature * unit
            gradient[~np.isfinite(gradient)] = 0.0
        norm = float(np.linalg.norm(gradient))
        if step % record_every == 0 or step == max_iter:
            hard = hard_information(problem, centers)
            snapshots.append(
                Snapshot(
                    step=step,
                    centers=centers.copy(),
                    temperature=temperature,
                    objective=value,
                    soft_retention=report.efficiency(information),
                    hard_retention=report.efficiency(hard),
                    hard_value=problem.value(hard),
                    gradient_norm=norm,
                )
            )
        if step == max_iter:
            break
        if norm > gradient_clip:
            gradient *= gradient_clip / norm
        slow, fast = _ADAM_DECAY[1], _ADAM_DECAY[0]
        first = fast * first + (1 - fast) * gradient
        second = slow * second + (1 - slow) * np.mean(gradient**2, axis=1)[:, None]
        mean = first / (1 - fast ** (step + 1))
        spread = np.sqrt(second / (1 - slow ** (step + 1)))
        centers = centers + learning_rate * unit * mean / (spread + 1e-8)
    return snapshots
