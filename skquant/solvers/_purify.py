"""A deterministic rule with the cell moments of a randomized one.

Cells are ``argmax_b (kappa_b |z|^2 - alpha_b - beta_b' z)``; the multipliers that
match weights and moments minimize a convex dual, smoothed at a falling temperature:

    sum_i w_i t LSE_b((kappa_b |z_i|^2 - theta_b' f_i) / t) + sum_b theta_b' M_b,

with ``f = (1, z)``, ``theta = (alpha, beta)`` and the moments ``M_b`` of ``f``.
"""

from dataclasses import dataclass

import numpy as np

_HOTTEST, _COLDEST, _FALL = 1.0, 1e-5, 4.0
# Stages above this temperature see a subsample only.
_WARM = 2e-2
_SUBSAMPLE_ROWS = 2_000
_NEWTON_STEPS = 30
_BLOCK = 2_048

# A lead of so many temperatures decides a point, until it has become less than the
# second: exp(-37) is the rounding of 1.
_FAR, _NEAR = 60.0, 37.0

_GRADIENT_TOL = 1e-7


@dataclass(frozen=True)
class Purified:
    """Result of a dual ascent.

    Attributes
    ----------
    kappa : ndarray of shape (K,)
        Potentials.
    theta : ndarray of shape (K, r + 1)
        Multipliers of ``(1, z)``.
    residual : float
        Largest difference of a weight or moment, in shares of the weight.
    n_iter : int
        Newton steps.
    """

    kappa: np.ndarray
    theta: np.ndarray
    residual: float
    n_iter: int


def _logits(features, potential, theta):
    """Logits (K, n) of features (1 + r, n): sums over cells run along the points."""
    return potential - theta @ features


def _dual(features, weights, potential, target, theta, temperature):
    """Return the dual and the responsibilities (K, n) at its argument."""
    scaled = _logits(features, potential, theta)
    scaled /= temperature
    largest = scaled.max(axis=0)
    scaled -= largest
    with np.errstate(under="ignore"):
        np.exp(scaled, out=scaled)
    sums = scaled.sum(axis=0)
    scaled /= sums
    value = temperature * (weights @ (largest + np.log(sums)))
    return value + np.sum(theta * target), scaled


def _hessian(features, weights, shares, temperature):
    n_bins, width = len(shares), len(features)
    result = np.zeros((n_bins * width, n_bins * width))
    # what a block needs stays in the cache
    for start in range(0, len(weights), _BLOCK):
        rows = slice(start, start + _BLOCK)
        roots = np.sqrt(weights[rows]) * features[:, rows]
        lifted = (shares[:, None, rows] * roots).reshape(n_bins * width, -1)
        result -= lifted @ lifted.T
        for b in range(n_bins):
            cell = slice(b * width, (b + 1) * width)
            result[cell, cell] += lifted[cell] @ roots.T
    return result / temperature


def _newton(features, weights, potential, target, theta, temperature):
    """Minimize the dual at one temperature; return theta and the number of steps."""
    value, shares = _dual(features, weights, potential, target, theta, temperature)
    for step in range(_NEWTON_STEPS):
        gradient = target - (shares * weights) @ features.T
        if np.abs(gradient).max() < _GRADIENT_TOL:
            return theta, step
        hessian = _hessian(features, weights, shares, temperature)
        # singular along a theta that all cells share, which changes nothing
        direction = -np.linalg.lstsq(hessian, gradient.ravel(), rcond=1e-12)[0]
        direction = direction.reshape(theta.shape)
        slope = np.sum(gradient * direction)
        length = 1.0
        while length > 1e-6:
            trial = theta + length * direction
            new_value, new_shares = _dual(
                features, weights, potential, target, trial, temperature
            )
            if new_value <= value + 1e-4 * length * slope:
                break
            length *= 0.5
        else:
            return theta, step
        theta, value, shares = trial, new_value, new_shares
    return theta, _NEWTON_STEPS


def _leads(logits):
    """Return the cell of the largest logit of each point, and how far it leads."""
    labels = np.argmax(logits, axis=0)
    points = np.arange(len(labels))
    largest = logits[labels, points]
    logits[labels, points] = -np.inf
    return labels, largest - logits.max(axis=0)


def _cell_sums(labels, features, weights, n_bins):
    sums = [np.bincount(labels, weights * f, minlength=n_bins) for f in features]
    return np.column_stack(sums)


def _stage(features, weights, potential, target, theta, temperature):
    """Minimize the dual at one temperature; return theta and the number of steps.

    A point whose cell leads by many temperatures counts for that cell alone. Those
    whose lead has gone in the end join the others, and the stage starts again.
    """
    cells, leads = _leads(_logits(features, potential, theta))
    rest = leads <= _FAR * temperature
    n_steps = 0
    while True:
        solved, steps = _newton(
            features.compress(rest, axis=1),
            weights[rest],
            potential.compress(rest, axis=1),
            target - _cell_sums(cells, features, weights * ~rest, len(target)),
            theta,
            temperature,
        )
        n_steps += steps
        after, leads = _leads(_logits(features, potential, solved))
        late = ~rest & ((leads < _NEAR * temperature) | (after != cells))
        if not late.any():
            return solved, n_steps
        rest |= late


def _residual(features, weights, potential, target, theta):
    labels = np.argmax(_logits(features, potential, theta), axis=0)
    hard = _cell_sums(labels, features, weights, len(target))
    return float(np.abs(hard - target).max())


def purify_moments(points, weights, responsibilities, n_trials, good_enough):
    """Return the best of a few choices of potentials.

    Parameters
    ----------
    points : ndarray of shape (n, r)
        Whitened scores in an order without meaning.
    weights : ndarray of shape (n,)
        Shares of the weight.
    responsibilities : ndarray of shape (n, K)
        Every cell has weight.
    n_trials : int
        Potentials to try: by rising second moment of the cells, then at random.
    good_enough : float
        Residual at which no further potentials are tried.
    """
    features = np.vstack([np.ones(len(points)), points.T])
    squares = np.sum(points**2, axis=1)
    target = responsibilities.T @ (weights * features).T
    n_bins = len(target)
    spread = (responsibilities.T @ (weights * squares)) / target[:, 0]
    ladder = np.linspace(-0.5, 0.5, n_bins)
    sorted_kappa = np.empty(n_bins)
    sorted_kappa[np.argsort(spread)] = ladder
    generator = np.random.RandomState(0)
    trials = [sorted_kappa]
    trials += [generator.permutation(ladder) for _ in range(n_trials - 1)]
    head = slice(0, _SUBSAMPLE_ROWS)
    small_weights = weights[head] / weights[head].sum()
    small_features = np.ascontiguousarray(features[:, head])
    small_target = responsibilities[head].T @ (small_weights * small_features).T

    best = None
    for kappa in trials:
        if best is not None and best.residual <= good_enough:
            break
        potential = kappa[:, None] * squares
        theta = np.zeros_like(target)
        temperature, n_iter = _HOTTEST, 0
        while temperature >= _COLDEST:
            if temperature > _WARM and len(points) > _SUBSAMPLE_ROWS:
                table = small_features, small_weights, potential[:, head], small_target
            else:
                table = features, weights, potential, target
            theta, steps = _stage(*table, theta, temperature)
            n_iter += steps
            if temperature <= _WARM:
                residual = _residual(features, weights, potential, target, theta)
                if best is None or residual < best.residual:
                    best = Purified(kappa, theta, residual, n_iter)
            temperature /= _FALL
    return best
