"""Independent routes to right values: slow twins, enumeration, reference tables."""

import json
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
T7 = np.array(
    [
        [0.3, -1.0],
        [1.2, 0.4],
        [-0.7, 0.9],
        [-1.1, -0.2],
        [0.5, 0.8],
        [-0.4, -1.3],
        [1.6, -0.5],
    ]
)
L = np.array([[1.0, 0.5], [0.0, 1.2]])
B = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])


def load(name):
    """Return a file of reference data."""
    return json.loads((DATA / f"{name}.json").read_text())


def seed_value(name):
    """Return a recorded value of the seed text."""
    (record,) = (r for r in load("seed_values")["records"] if r["name"] == name)
    return record["value"]


# --- tables --------------------------------------------------------------------------


def mixing(d):
    """Return the mixing matrix of the reference instances."""
    i, j = np.indices((d, d))
    return np.where(i == j, 1 + 0.1 * i, np.where(j > i, 0.5 / (1.0 + abs(j - i)), 0.0))


def _gauss(rng, n, d):
    return rng.normal(size=(n, d)) @ mixing(d)


def _student(freedom):
    return lambda rng, n, d: rng.standard_t(freedom, size=(n, d)) @ mixing(d)


def _grid(rng, n, d):
    return rng.integers(-3, 4, size=(n, d)).astype(float)


def _offset(rng, n, d):
    return _gauss(rng, n, d) + np.array([5.0, -3.0])[:d]


def _collinear(rng, n, d):
    scores = _gauss(rng, n, d - 1)
    return np.column_stack([scores, scores.sum(axis=1)])


def _fractions(rng, n, d):
    x = rng.normal(size=(n, 2))
    angle = 2 * np.pi * np.arange(d + 1) / (d + 1)
    means = 2.0 * np.column_stack([np.cos(angle), np.sin(angle)])
    x += means[rng.integers(0, d + 1, size=n)]
    density = np.exp(x @ means.T - 0.5 * np.sum(means**2, axis=1))
    mixture = density.mean(axis=1, keepdims=True)
    return (density[:, :d] - density[:, d:]) / mixture


_FAMILIES = {
    "gauss": _gauss,
    "student": _student(3),
    "grid": _grid,
    "offset": _offset,
    "collinear": _collinear,
    "fractions": _fractions,
}


def _lognormal(rng, n):
    weights = np.exp(rng.normal(size=n))
    weights[::10] = 0.0
    return weights


_WEIGHTS = {
    "unit": lambda rng, n: np.ones(n),
    "expo": lambda rng, n: rng.exponential(size=n),
    "lognormal0": _lognormal,
}


def instance(name):
    """Return scores, weights and record of a reference instance."""
    record = load("reference_instances")["instances"][name]
    rng = np.random.default_rng(record["seed"])
    scores = _FAMILIES[record["recipe"]["family"]](rng, record["n"], record["d"])
    weights = _WEIGHTS[record["recipe"]["weight_kind"]](rng, record["n"])
    return scores, weights, record


def normal_table(seed, n, matrix):
    """Return normal scores with correlated columns."""
    return np.random.default_rng(seed).normal(size=(n, len(matrix))) @ matrix


def responsibility_table():
    """Return scores and responsibilities of the seed text's randomized quantizer."""
    scores = normal_table(12, 2000, L)
    centers = np.array([[2.0, 0.5], [-1.5, 1.5], [-0.5, -2.0], [1.0, -0.5]])
    squares = np.sum((scores[:, None] - centers) ** 2, axis=2)
    logits = -squares / (2 * 0.8**2)
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    return scores, shares / shares.sum(axis=1, keepdims=True)


# --- information by loops ------------------------------------------------------------


def slow_information(scores, weights):
    """Sum of weighted outer products."""
    return sum(w * np.outer(s, s) for s, w in zip(scores, weights, strict=True))


def slow_fractional(scores, responsibilities, weights):
    """Information of a randomized label, cell by cell."""
    d = scores.shape[1]
    total = np.zeros((d, d))
    for share in responsibilities.T:
        weight, moment = sum(weights * share), (weights * share) @ scores
        if weight > 0:
            total += np.outer(moment, moment) / weight
    return total


def slow_binned(scores, labels, weights, n_bins):
    """Information of hard labels."""
    return slow_fractional(scores, np.eye(n_bins)[labels], weights)


def retained_eigenvalues(information, reference):
    """Ascending eigenvalues of the retained matrix, by a symmetric root."""
    values, vectors = np.linalg.eigh(reference)
    root = (vectors / np.sqrt(values)) @ vectors.T
    return np.linalg.eigvalsh(root @ information @ root)


def slow_profiled(information, reference, interest):
    """Pure profiled retention from Schur complements."""

    def schur(matrix):
        nuisance = [i for i in range(len(matrix)) if i not in interest]
        cross = matrix[np.ix_(interest, nuisance)]
        inner = matrix[np.ix_(nuisance, nuisance)]
        return matrix[np.ix_(interest, interest)] - cross @ np.linalg.solve(
            inner, cross.T
        )

    ratio = np.linalg.det(schur(information)) / np.linalg.det(schur(reference))
    return ratio ** (1 / len(interest))


def partition(labels):
    """Return a labeling as a set of sets of rows."""
    return {frozenset(np.flatnonzero(labels == b).tolist()) for b in np.unique(labels)}


# --- the slow exchange ---------------------------------------------------------------


def slow_value(problem, labels, n_bins):
    """Criterion's value of a labeling of the atoms, from their scores."""
    scores = problem.points + problem.origin
    information = slow_binned(scores, labels, problem.weights, n_bins)
    if problem.columns is not None:
        information = problem.columns.T @ information @ problem.columns
    return problem.criterion.value(information, problem.reference)


def slow_gains(problem, labels, n_bins, min_bin_weight=0.0):
    """Gain of each allowed move, recomputed from the table: {(row, cell): gain}."""
    start = slow_value(problem, labels, n_bins)
    gains = {}
    for row, cell in np.ndindex(len(labels), n_bins):
        rest = (labels == labels[row]) & (np.arange(len(labels)) != row)
        if cell == labels[row] or not rest.any():
            continue
        if problem.weights[rest].sum() < min_bin_weight * (1 - 1e-12):
            continue
        moved = labels.copy()
        moved[row] = cell
        gains[row, cell] = slow_value(problem, moved, n_bins) - start
    return gains


def slow_pass(problem, labels, n_bins, gain_tol):
    """One pass in row order, each row to its best cell, everything recomputed."""
    labels = labels.copy()
    moves = 0
    for row in range(len(labels)):
        start = slow_value(problem, labels, n_bins)
        best, best_gain = labels[row], gain_tol * problem.weights[row]
        if np.count_nonzero(labels == labels[row]) == 1:
            continue
        for cell in range(n_bins):
            moved = labels.copy()
            moved[row] = cell
            gain = slow_value(problem, moved, n_bins) - start
            if cell != labels[row] and gain > best_gain:
                best, best_gain = cell, gain
        moves += int(best != labels[row])
        labels[row] = best
    return labels, moves
