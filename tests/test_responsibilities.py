"""Maps from logits to responsibilities against projections found by other means."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize

from skquant.responsibilities import RELAXATIONS, relax_logits

every_relaxation = pytest.mark.parametrize("name", sorted(RELAXATIONS))


def slow_softmax(row):
    """Exponentials, one by one."""
    powers = [np.exp(value - max(row)) for value in row]
    return np.array(powers) / sum(powers)


def slow_sparsemax(row):
    """The threshold whose excesses sum to one, by root finding."""
    threshold = brentq(
        lambda t: sum(max(value - t, 0.0) for value in row) - 1.0,
        max(row) - 2.0,
        max(row),
        xtol=1e-15,
    )
    return np.array([max(value - threshold, 0.0) for value in row])


SLOW = {"softmax": slow_softmax, "sparsemax": slow_sparsemax}


def logit_table(seed, n=40, n_bins=5, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=(n, n_bins))


# --- forward -------------------------------------------------------------------------


@every_relaxation
@pytest.mark.parametrize("n_bins", [1, 2, 3, 8])
@pytest.mark.parametrize("scale", [0.01, 0.5, 3.0, 100.0])
def test_forward_agrees_with_loops(name, n_bins, scale):
    logits = logit_table(0, n_bins=n_bins, scale=scale)
    before = logits.copy()
    result = RELAXATIONS[name].forward(logits)
    expected = [SLOW[name](row) for row in logits]
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-14 * max(1, scale))
    np.testing.assert_array_equal(logits, before)


def test_sparsemax_is_the_nearest_probability_vector():
    for row in logit_table(1, n=8, n_bins=4):
        found = minimize(
            lambda p, row=row: np.sum((p - row) ** 2),
            np.full(4, 0.25),
            bounds=[(0, 1)] * 4,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1},
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        result = RELAXATIONS["sparsemax"].forward(row)
        np.testing.assert_allclose(result, found.x, atol=1e-6)
        assert np.sum((result - row) ** 2) <= found.fun + 1e-12


def test_sparsemax_has_zeros_and_softmax_has_none():
    logits = logit_table(2, scale=2.0)
    sparse = RELAXATIONS["sparsemax"].forward(logits)
    assert 0.3 < np.mean(sparse == 0) < 0.9
    assert (np.count_nonzero(sparse, axis=1) > 1).any()
    assert (RELAXATIONS["softmax"].forward(logits) > 0).all()


@every_relaxation
def test_leading_axes_are_rows(name):
    logits = np.random.default_rng(3).normal(size=(2, 3, 4))
    result = RELAXATIONS[name].forward(logits)
    for index in np.ndindex(2, 3):
        alone = RELAXATIONS[name].forward(logits[index])
        np.testing.assert_allclose(result[index], alone, rtol=0, atol=1e-16)


@every_relaxation
@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    n_bins=st.integers(1, 70),
    exponent=st.integers(-200, 200),
    offset=st.sampled_from([0.0, 1e8, -1e150]),
)
def test_rows_are_probability_vectors(name, seed, n_bins, exponent, offset):
    logits = logit_table(seed, n_bins=n_bins, scale=10.0**exponent) + offset
    result = RELAXATIONS[name].forward(logits)
    assert (result >= 0).all() and (result <= 1).all()
    assert np.abs(result.sum(axis=1) - 1).max() < 1e-12
    largest = np.take_along_axis(result, np.argmax(logits, axis=1)[:, None], axis=1)
    np.testing.assert_array_equal(largest[:, 0], result.max(axis=1))


@every_relaxation
def test_equal_logits_share_equally(name):
    result = RELAXATIONS[name].forward(np.array([[2.0, 2.0, -50.0, 2.0]]))
    np.testing.assert_allclose(result, [[1 / 3, 1 / 3, 0, 1 / 3]], atol=1e-15)


@every_relaxation
def test_a_common_shift_does_not_matter(name):
    logits = np.random.default_rng(4).integers(-8, 8, size=(30, 4)) / 4
    result = RELAXATIONS[name].forward(logits)
    np.testing.assert_array_equal(RELAXATIONS[name].forward(logits + 2.0**40), result)


@every_relaxation
def test_minus_infinity_is_an_impossible_cell(name):
    logits = logit_table(5)
    blocked = np.array([False, True, False, False, True])
    logits[:, blocked] = -np.inf
    result = RELAXATIONS[name].forward(logits)
    assert (result[:, blocked] == 0).all()
    expected = RELAXATIONS[name].forward(logits[:, ~blocked])
    np.testing.assert_allclose(result[:, ~blocked], expected, rtol=0, atol=1e-15)
    for divisors in [(), (0.3,), (1e-100, 1e-100), (0.0,)]:
        relaxed = relax_logits(logits, RELAXATIONS[name], *divisors)
        assert (relaxed[:, blocked] == 0).all()
        assert np.abs(relaxed.sum(axis=1) - 1).max() < 1e-12


# --- the vector-Jacobian product -----------------------------------------------------


def away_from_kinks(logits, margin=1e-3):
    """Rows in whose neighborhood no cell enters or leaves the support."""
    sparse = np.array([slow_sparsemax(row) for row in logits])
    threshold = np.max(logits - sparse, axis=1, where=sparse > 0, initial=-np.inf)
    return (np.abs(logits - threshold[:, None]) > margin).all(axis=1)


@every_relaxation
@pytest.mark.parametrize("n_bins", [1, 2, 5])
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_vjp_agrees_with_finite_differences(name, n_bins, scale):
    relaxation = RELAXATIONS[name]
    rng = np.random.default_rng(6)
    logits = scale * rng.normal(size=(60, n_bins))
    logits = logits[away_from_kinks(logits)]
    assert len(logits) > 40
    cotangent = rng.normal(size=logits.shape)
    direction = rng.normal(size=logits.shape)
    step = 1e-5
    change = relaxation.forward(logits + step * direction)
    change -= relaxation.forward(logits - step * direction)
    expected = np.sum(cotangent * change, axis=1) / (2 * step)
    result = relaxation.vjp(relaxation.forward(logits), cotangent)
    assert result.shape == logits.shape
    found = np.sum(result * direction, axis=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8)


@every_relaxation
def test_every_entry_of_the_jacobian(name):
    relaxation = RELAXATIONS[name]
    logits = np.array([0.3, -0.4, 0.1, -2.0])
    step = 1e-5
    expected = np.column_stack(
        [
            relaxation.forward(logits + step * unit)
            - relaxation.forward(logits - step * unit)
            for unit in np.eye(4)
        ]
    ) / (2 * step)
    shares = np.tile(relaxation.forward(logits), (4, 1))
    # row b of the product with the identity is row b of the Jacobian
    jacobian = relaxation.vjp(shares, np.eye(4))
    np.testing.assert_allclose(jacobian, expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(jacobian, jacobian.T, rtol=0, atol=1e-16)


@every_relaxation
def test_vjp_ignores_what_all_cells_share(name):
    shares = RELAXATIONS[name].forward(logit_table(7))
    cotangent = logit_table(8)
    result = RELAXATIONS[name].vjp(shares, cotangent)
    shifted = RELAXATIONS[name].vjp(shares, cotangent + 3.0)
    np.testing.assert_allclose(shifted, result, rtol=0, atol=1e-14)
    np.testing.assert_allclose(result.sum(axis=1), 0.0, atol=1e-14)
    assert (result[shares == 0] == 0).all()


@every_relaxation
def test_vjp_vanishes_at_a_hard_label(name):
    result = RELAXATIONS[name].vjp(np.eye(3), np.arange(9.0).reshape(3, 3))
    np.testing.assert_array_equal(result, 0.0)


# --- temperatures --------------------------------------------------------------------


@every_relaxation
@pytest.mark.parametrize("divisors", [(), (0.7,), (0.7, 0.7), (3.0, 0.2)])
def test_divisors_divide(name, divisors):
    logits = logit_table(9)
    before = logits.copy()
    result = relax_logits(logits, RELAXATIONS[name], *divisors)
    expected = [SLOW[name](row / np.prod(divisors)) for row in logits]
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-13)
    np.testing.assert_array_equal(logits, before)


@every_relaxation
@pytest.mark.parametrize("divisors", [(0.0,), (0.0, 0.0), (0.5, 0.0)])
def test_a_zero_divisor_is_the_hard_limit(name, divisors):
    logits = logit_table(10)
    result = relax_logits(logits, RELAXATIONS[name], *divisors)
    np.testing.assert_array_equal(result, np.eye(5)[np.argmax(logits, axis=1)])
    ties = relax_logits(np.zeros((2, 3)), RELAXATIONS[name], *divisors)
    np.testing.assert_array_equal(ties, [[1, 0, 0], [1, 0, 0]])


@every_relaxation
@pytest.mark.parametrize("tau", [1e-8, 1e-30, 1e-100, 1e-200])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e150])
def test_small_temperatures_reach_the_hard_limit(name, tau, scale):
    logits = logit_table(11, scale=scale)
    result = relax_logits(logits, RELAXATIONS[name], tau, tau)
    np.testing.assert_array_equal(result, np.eye(5)[np.argmax(logits, axis=1)])
    tie = relax_logits(np.array([[scale, scale, 0.0]]), RELAXATIONS[name], tau, tau)
    np.testing.assert_array_equal(tie, [[0.5, 0.5, 0.0]])


@every_relaxation
def test_tiny_logits_are_divided_without_loss(name):
    # the squares of these temperatures are below the smallest normal number, or
    # above the largest
    expected = SLOW[name]([0.0, 1.0, -0.5])
    small = np.array([[0.0, 1e-310, -0.5e-310]])
    result = relax_logits(small, RELAXATIONS[name], 1e-155, 1e-155)
    np.testing.assert_allclose(result[0], expected, rtol=0, atol=1e-12)
    one = np.array([[0.0, 1.0, -0.5]])
    for divisors in [(1e200, 1e-200), (1e-200, 1e200)]:
        result = relax_logits(one, RELAXATIONS[name], *divisors)
        np.testing.assert_allclose(result[0], expected, rtol=0, atol=1e-14)


@every_relaxation
def test_a_huge_temperature_shares_equally(name):
    result = relax_logits(logit_table(12), RELAXATIONS[name], 1e160, 1e160)
    np.testing.assert_allclose(result, 0.2, rtol=0, atol=1e-15)
