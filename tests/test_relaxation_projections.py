"""Projections and transport plans against enumeration, optimizers and differences."""

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax as scipy_softmax
from sklearn.exceptions import ConvergenceWarning

from skquant.relaxation import (
    birkhoff_projection,
    capped_simplex,
    capped_simplex_vjp,
    sinkhorn,
    softmax,
    softmax_vjp,
    sparsemax,
    sparsemax_vjp,
)

U = np.array([0.9, 0.3, -0.2, 0.1])
S = np.array([[0.9, 0.1, -0.3], [0.2, 0.5, 0.4], [-0.5, 0.6, 0.3]])
MAPS = {"softmax": (softmax, softmax_vjp), "sparsemax": (sparsemax, sparsemax_vjp)}
every_map = pytest.mark.parametrize("kind", sorted(MAPS))
every_regularizer = pytest.mark.parametrize(
    "regularizer", ["euclidean", "binary", "categorical"]
)


def differences(function, x, v, step=1e-6):
    """Directional derivative along every coordinate, contracted with v."""
    columns = [
        (function(x + step * e) - function(x - step * e)) / (2 * step)
        for e in np.eye(len(x))
    ]
    return np.array([np.sum(column * v) for column in columns])


def table(shape, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=shape)


# --- simplex -------------------------------------------------------------------------


def test_printed_values_of_the_simplex():
    """P1 and P2."""
    expected = [0.51255041, 0.21751248, 0.10648142, 0.16345569]
    np.testing.assert_allclose(softmax(U, temperature=0.7), expected, atol=5e-9)
    expected = [0.92857143, 0.07142857, 0, 0]
    np.testing.assert_allclose(sparsemax(U, temperature=0.7), expected, atol=5e-9)
    # a public library once returned (0, 0, .25) and zeros
    np.testing.assert_allclose(sparsemax([0, 0.5, 1]), [0, 0.25, 0.75], atol=1e-15)
    np.testing.assert_allclose(
        sparsemax([0.1, 0.2, 0.3, 0.4, 0.5]), [0, 0.1, 0.2, 0.3, 0.4], atol=1e-15
    )


def test_sparsemax_of_large_numbers():
    x = np.array([1.37e8, 1.60e8], dtype=np.float32)
    np.testing.assert_array_equal(sparsemax(x), [0.0, 1.0])
    np.testing.assert_allclose(sparsemax(U + 1e9), sparsemax(U), atol=1e-6)


@every_map
@pytest.mark.parametrize("temperature", [10, 1, 0.1, 1e-3, 1e-5, 1e-300, 0])
def test_rows_are_probability_vectors(kind, temperature):
    x = table((7, 1, 5))
    x[0, 0, :2] = -np.inf
    before = x.copy()
    p = MAPS[kind][0](x, temperature=temperature)
    np.testing.assert_array_equal(x, before)
    assert (p >= 0).all() and p.dtype == np.float64
    np.testing.assert_allclose(p.sum(axis=-1), 1, atol=1e-14)
    assert (p[0, 0, :2] == 0).all()
    if temperature <= 1e-5:
        np.testing.assert_array_equal(p, np.eye(5)[np.argmax(x, axis=-1)])


@every_map
def test_an_axis_a_shift_and_a_batch(kind):
    forward, vjp = MAPS[kind]
    x, v = table((4, 1, 3)), table((4, 1, 3), 1)
    for axis in (0, 1, 2, -2):
        p = forward(x, temperature=0.6, axis=axis)
        np.testing.assert_allclose(p.sum(axis=axis), 1, atol=1e-14)
        np.testing.assert_allclose(
            forward(x + 3, temperature=0.6, axis=axis), p, atol=1e-14
        )
        loop = np.moveaxis(np.empty_like(x), axis, -1)
        for i in np.ndindex(loop.shape[:-1]):
            rows = [np.moveaxis(a, axis, -1)[i] for a in (p, v)]
            loop[i] = vjp(*rows, 0.6)
        np.testing.assert_array_equal(
            vjp(p, v, 0.6, axis=axis), np.moveaxis(loop, -1, axis)
        )


@every_map
def test_simplex_vjp_against_differences(kind):
    forward, vjp = MAPS[kind]
    v = np.array([1.0, -2.0, 0.5, 0.3])
    for temperature in (2.0, 0.7, 0.3):
        expected = differences(lambda x, t=temperature: forward(x, temperature=t), U, v)
        found = vjp(forward(U, temperature=temperature), v, temperature)
        np.testing.assert_allclose(found, expected, atol=1e-8)
    np.testing.assert_array_equal(vjp(np.ones(1), np.ones(1), 0.1), [0.0])


@every_map
def test_bad_simplex_input(kind):
    forward, vjp = MAPS[kind]
    for bad in ([np.nan, 0], [np.inf, 0], [[0, 1], [-np.inf, -np.inf]]):
        with pytest.raises(ValueError, match="x must"):
            forward(bad)
    for temperature in (-1.0, np.nan):
        with pytest.raises(ValueError, match="temperature must"):
            forward(U, temperature=temperature)
    with pytest.raises(ValueError, match="temperature must"):
        vjp(forward(U), U, 0.0)
    with pytest.raises(ValueError, match="v must be finite"):
        vjp(forward(U), U * np.nan)


# --- k of n --------------------------------------------------------------------------

PENALTIES = {
    "euclidean": lambda p: 0.5 * np.sum(p**2),
    "binary": lambda p: np.sum(p * np.log(p) + (1 - p) * np.log(1 - p)),
    "categorical": lambda p: np.sum(p * np.log(p)),
}


@pytest.mark.parametrize(
    "regularizer, expected",
    [
        ("euclidean", [1, 0.64285714, 0, 0.35714286]),
        ("binary", [0.71107792, 0.51086882, 0.33831692, 0.43973634]),
        ("categorical", [1, 0.44622559, 0.21844601, 0.3353284]),
    ],
)
def test_printed_values_of_k_of_n(regularizer, expected):
    """P4."""
    p = capped_simplex(U, 2, regularizer=regularizer, temperature=0.7)
    np.testing.assert_allclose(p, expected, atol=5e-9)


# SciPy before 1.12 tells that it keeps to the bounds
@pytest.mark.filterwarnings("ignore:Values in x were outside bounds:RuntimeWarning")
@every_regularizer
@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_of_n_maximizes_its_objective(regularizer, k):
    u, penalty = table(5, seed=k), PENALTIES[regularizer]

    def loss(p):
        return -(u @ p - 0.7 * penalty(p))

    p = capped_simplex(u, k, regularizer=regularizer, temperature=0.7)
    tiny = 1e-9
    found = minimize(
        loss,
        np.full(5, k / 5),
        bounds=[(tiny, 1 - tiny)] * 5,
        constraints={"type": "eq", "fun": lambda p: p.sum() - k},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(p, found.x, atol=2e-5)


@every_regularizer
@pytest.mark.parametrize("temperature", [10, 1, 0.1, 1e-3, 1e-5, 0])
def test_k_of_n_sums_to_k(regularizer, temperature):
    options = dict(regularizer=regularizer, temperature=temperature)
    x = table((3, 1, 6))
    x[0, 0, 3] = -np.inf
    for k in range(6):
        p = capped_simplex(x, k, **options)
        np.testing.assert_allclose(p.sum(axis=-1), k, atol=1e-11)
        assert (p >= 0).all() and (p <= 1).all() and p[0, 0, 3] == 0
        loop = [capped_simplex(row, k, **options) for row in x[:, 0]]
        np.testing.assert_allclose(p[:, 0], loop, atol=1e-12)
        if temperature <= 1e-5:
            top = np.sort(np.argsort(-x, axis=-1)[..., :k], axis=-1)
            np.testing.assert_array_equal(np.nonzero(p > 0.5)[-1].reshape(3, 1, k), top)
    np.testing.assert_array_equal(capped_simplex(x[1], 6, **options), np.ones((1, 6)))
    with pytest.raises(ValueError, match="k must be at most"):
        capped_simplex(x, 6, **options)


@every_regularizer
def test_k_of_n_vjp_against_differences(regularizer):
    v = np.array([1.0, -2.0, 0.5, 0.3])
    for temperature in (2.0, 0.7, 0.4):
        options = dict(regularizer=regularizer, temperature=temperature)
        expected = differences(lambda x, o=options: capped_simplex(x, 2, **o), U, v)
        found = capped_simplex_vjp(capped_simplex(U, 2, **options), v, **options)
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_ties_of_k_of_n():
    np.testing.assert_array_equal(
        capped_simplex([1, 1, 1], 2, temperature=0), [1, 1, 0]
    )
    np.testing.assert_allclose(capped_simplex(np.ones(3), 2), 2 / 3, atol=1e-15)
    with pytest.raises(ValueError, match="regularizer must be one of"):
        capped_simplex(U, 2, regularizer="entropy")
    with pytest.raises(ValueError, match="temperature must"):
        capped_simplex_vjp(capped_simplex(U, 2), U, temperature=0)


# --- transport -----------------------------------------------------------------------


def test_printed_plan():
    """P8."""
    plan = sinkhorn(S, np.ones(3), np.ones(3), temperature=0.5)
    np.testing.assert_allclose(plan[0], [0.74703242, 0.14749787, 0.10546971], atol=5e-9)


@pytest.mark.parametrize("temperature", [10, 1, 0.1, 0.01, 1e-3, 1e-5])
def test_plan_is_optimal(temperature):
    """Sums, and the form exp((scores + row + column) / temperature) of the optimum."""
    scores = table((5, 7))
    rows, columns = np.full(5, 0.2), np.full(7, 1 / 7)
    plan, info = sinkhorn(
        scores, rows, columns, temperature=temperature, return_info=True
    )
    assert info["converged"] and info["n_iter"] < 2000
    np.testing.assert_allclose(plan.sum(axis=1), rows, atol=1e-9)
    np.testing.assert_allclose(plan.sum(axis=0), columns, atol=1e-9)
    large = plan > 1e-200
    value = temperature * np.log(np.where(large, plan, 1)) - scores
    for i in range(4):
        for j in range(6):
            if large[i : i + 2, j : j + 2].all():
                square = value[i : i + 2, j : j + 2]
                cross = square[0, 0] + square[1, 1] - square[0, 1] - square[1, 0]
                assert abs(cross) < 1e-11


def test_zero_sums_stay_zero():
    """A library lost the row sums at temperature 1e-3 for the zero in columns."""
    cost = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    for temperature in (0.1, 1e-3):
        plan = sinkhorn(
            -cost, np.full(3, 1 / 3), [0.5, 0.5, 0.0], temperature=temperature
        )
        np.testing.assert_allclose(plan.sum(axis=1), 1 / 3, atol=1e-9)
        np.testing.assert_allclose(plan.sum(axis=0), [0.5, 0.5, 0], atol=1e-9)
        assert (plan[:, 2] == 0).all()
    # row 0 stays; rows 1 and 2 lose as much to column 0 and share what it still takes
    expected = [[1 / 3, 0, 0], [1 / 12, 1 / 4, 0], [1 / 12, 1 / 4, 0]]
    np.testing.assert_allclose(plan, expected, atol=1e-9)


def test_forbidden_entries_and_a_scaled_total():
    scores = S.copy()
    scores[0, 1] = scores[2, 2] = -np.inf
    plan = sinkhorn(scores, [2, 3, 4], [4, 3, 2], temperature=0.3)
    assert plan[0, 1] == plan[2, 2] == 0
    np.testing.assert_allclose(plan.sum(axis=1), [2, 3, 4], atol=1e-8)
    np.testing.assert_allclose(plan.sum(axis=0), [4, 3, 2], atol=1e-8)
    scores[0] = -np.inf
    with pytest.raises(ValueError, match="must allow"):
        sinkhorn(scores, np.ones(3), np.ones(3), temperature=0.3)


def test_large_plan_or_an_honest_warning():
    rng = np.random.default_rng(0)
    ones = np.ones(2000)
    plan, info = sinkhorn(
        rng.random((2000, 2000)), ones, ones, temperature=0.05, return_info=True
    )
    assert info["converged"]
    error = max(np.abs(plan.sum(axis=i) - 1).max() for i in (0, 1)) / 2000
    assert error <= 1e-9
    with pytest.warns(ConvergenceWarning, match="stopped after 2 sweeps with errors"):
        plan, info = sinkhorn(
            table((30, 30)),
            np.ones(30),
            np.ones(30),
            temperature=1e-3,
            max_iter=2,
            return_info=True,
        )
    error = np.abs(plan.sum(axis=1) - 1).max() / 30
    assert not info["converged"] and info["row_error"] == pytest.approx(error)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"scores": S * np.nan}, "scores must be finite or -inf"),
        ({"scores": S[0]}, "scores must have shape"),
        ({"row_sums": [1, -1, 3]}, "row_sums must be 3 nonnegative"),
        ({"col_sums": [1, 1]}, "col_sums must be 3 nonnegative"),
        ({"col_sums": [1, 1, 2]}, "must have one total; got 3.0 and 4.0"),
        ({"temperature": 0.0}, "temperature must be a finite positive"),
        ({"tol": 0.0}, "tol must"),
        ({"max_iter": 0}, "max_iter must"),
    ],
)
def test_bad_transport_input(change, match):
    options = dict(scores=S, row_sums=np.ones(3), col_sums=np.ones(3), temperature=1)
    with pytest.raises(ValueError, match=match):
        sinkhorn(**{**options, **change})


# --- doubly stochastic ---------------------------------------------------------------


def test_printed_projection():
    """P9."""
    plan = birkhoff_projection(S, temperature=0.5)
    expected = [[1, 0, 0], [0, 0.4, 0.6], [0, 0.6, 0.4]]
    np.testing.assert_allclose(plan, expected, atol=1e-8)


def test_projection_is_nearest():
    scores = table((2, 4, 4))
    plan = birkhoff_projection(scores, temperature=0.7)
    sums = np.zeros((8, 16))
    for i in range(4):
        sums[i, 4 * i : 4 * i + 4] = 1
        sums[4 + i, i::4] = 1
    targets = (scores / 0.7).reshape(2, 16)
    for target, found in zip(targets, plan, strict=True):
        best = minimize(
            lambda p, t=target: 0.5 * np.sum((p - t) ** 2),
            np.full(16, 0.25),
            jac=lambda p, t=target: p - t,
            bounds=[(0, 1)] * 16,
            constraints={"type": "eq", "fun": lambda p: sums[:7] @ p - 1},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        np.testing.assert_allclose(found.ravel(), best.x, atol=1e-6)
    with pytest.warns(ConvergenceWarning, match="stopped after 1 rounds"):
        birkhoff_projection(scores, temperature=0.01, max_iter=1)
    with pytest.raises(ValueError, match="scores must have shape"):
        birkhoff_projection(scores[..., :2])


def test_float32_and_read_only_input():
    x = np.array(S, dtype=np.float32)
    x.setflags(write=False)
    for function in (softmax, sparsemax, birkhoff_projection):
        result = function(x)
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, function(x.astype(np.float64)))
    np.testing.assert_allclose(softmax(x), scipy_softmax(S, axis=-1), atol=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert softmax([3.0]) == 1.0
