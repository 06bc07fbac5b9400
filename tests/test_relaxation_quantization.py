"""What a quantizer uses: soft, noisy and balanced labels, and black-box search."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning

from skquant.relaxation import (
    balanced_responsibilities,
    optimize_rule,
    perturbed_gradient,
    perturbed_labels,
    sinkhorn,
    soft_responsibilities,
)

# Q1: codebook (-1, 0, 2), a score of 0.6
LOGITS = -((0.6 - np.array([-1.0, 0.0, 2.0])) ** 2)
SOFT = np.array([0.01165895, 0.94963195, 0.03870909])


def test_printed_responsibilities():
    """Q1."""
    found = soft_responsibilities(LOGITS, temperature=0.5)
    np.testing.assert_allclose(found, SOFT, atol=5e-9)
    found = soft_responsibilities(LOGITS, temperature=0.5, kind="sparsemax")
    np.testing.assert_array_equal(found, [0, 1, 0])
    np.testing.assert_array_equal(
        soft_responsibilities(LOGITS, temperature=0), [0, 1, 0]
    )


def test_noisy_labels_have_the_responsibilities_as_their_law():
    n = 100_000
    labels = perturbed_labels(np.tile(LOGITS, (n, 1)), temperature=0.5, random_state=0)
    error = np.sqrt(SOFT * (1 - SOFT) / n)
    assert (np.abs(np.bincount(labels) / n - SOFT) < 4 * error).all()
    # a law of another temperature would be seen
    other = soft_responsibilities(LOGITS, temperature=0.55)
    assert (np.abs(other - SOFT) > 8 * error).any()
    assert perturbed_labels(LOGITS, temperature=0) == 1
    assert perturbed_labels(LOGITS, temperature=1e-310, random_state=0) == 1


@pytest.mark.parametrize("call", [soft_responsibilities, perturbed_labels])
def test_bad_logits(call):
    for bad in ([np.nan, 0], [np.inf, 0], [-np.inf, -np.inf]):
        with pytest.raises(ValueError, match="logits must"):
            call(bad, temperature=1.0)
    with pytest.raises(ValueError, match="temperature must"):
        call(LOGITS, temperature=-1.0)
    with pytest.raises(ValueError, match="kind must be one of"):
        soft_responsibilities(LOGITS, temperature=1.0, kind="entmax")


# --- balance -------------------------------------------------------------------------


def table(n=60, n_bins=4, seed=0):
    rng = np.random.default_rng(seed)
    points, centers = rng.normal(size=(n, 2)), rng.normal(size=(n_bins, 2))
    logits = points @ centers.T - 0.5 * (centers**2).sum(axis=1)
    weights = rng.exponential(size=n) * (rng.random(n) > 0.1)
    return logits, weights


def dual_optimum(logits, weights, shares, temperature, at_least):
    """Offsets by a generic optimizer of the dual."""
    weights = weights / weights.sum()

    def loss(offsets):
        z = (logits + offsets) / temperature
        top = logsumexp(z, axis=1)
        gradient = weights @ np.exp(z - top[:, None]) - shares
        return temperature * weights @ top - shares @ offsets, gradient

    found = minimize(
        loss,
        np.zeros(logits.shape[1]),
        jac=True,
        bounds=[(0, None)] * logits.shape[1] if at_least else None,
        method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-11, "maxiter": 5000},
    )
    z = (logits + found.x) / temperature
    return np.exp(z - logsumexp(z, axis=1)[:, None])


def test_six_points():
    """Q3."""
    scores = np.array([[-1.0], [-0.9], [0.8], [0.9], [1.0], [1.1]])
    logits = -((scores - [-1.0, 0.0, 1.0]) ** 2)
    before = logits.copy()
    plan = balanced_responsibilities(logits, temperature=0.2)
    np.testing.assert_array_equal(logits, before)
    np.testing.assert_allclose(plan.mean(axis=0), 1 / 3, atol=1e-9)
    np.testing.assert_allclose(plan.sum(axis=1), 1, atol=1e-14)


@pytest.mark.parametrize("at_least", [False, True])
@pytest.mark.parametrize("temperature", [10, 1, 0.1, 0.02])
def test_balance_against_the_dual(at_least, temperature):
    logits, weights = table()
    shares = np.array([0.3, 0.3, 0.25, 0.1] if at_least else [0.4, 0.3, 0.2, 0.1])
    found = balanced_responsibilities(
        logits,
        occupancy=shares,
        sample_weight=weights,
        temperature=temperature,
        at_least=at_least,
    )
    expected = dual_optimum(logits, weights, shares, temperature, at_least)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    usage = weights @ found / weights.sum()
    # what each cell was lifted by, against the cell that was lifted least
    offsets = temperature * np.log(found) - logits
    offsets = (offsets - offsets[:, [0]])[0]
    offsets -= offsets.min()
    if at_least:
        assert (usage >= shares - 1e-9).all()
        # only where the bound holds with equality
        lifted = offsets > 1e-9
        np.testing.assert_allclose(usage[lifted], shares[lifted], atol=1e-9)
        assert not lifted.all()
    else:
        np.testing.assert_allclose(usage, shares, atol=1e-9)
    again = soft_responsibilities(logits + offsets, temperature=temperature)
    np.testing.assert_allclose(found, again, atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_equal_occupancy_is_the_sinkhorn_plan(temperature):
    logits, _ = table()
    found = balanced_responsibilities(logits, temperature=temperature)
    plan = sinkhorn(logits, np.ones(60), np.full(4, 15.0), temperature=temperature)
    np.testing.assert_allclose(found, plan, atol=1e-6)


def test_far_cells_can_be_filled():
    """A cell whose weight underflows still gets its share."""
    logits = np.array([[0.0, -5000.0], [0.0, -5000.5], [0.0, -5001.0]])
    for at_least in (False, True):
        found = balanced_responsibilities(
            logits, occupancy=[0.6, 0.4], temperature=1.0, at_least=at_least
        )
        np.testing.assert_allclose(found.mean(axis=0), [0.6, 0.4], atol=1e-9)


def test_balance_of_weights_equals_that_of_copies():
    logits, _ = table(20)
    weights = np.arange(20) % 4
    options = dict(temperature=0.3)
    weighted = balanced_responsibilities(logits, sample_weight=weights, **options)
    copied = balanced_responsibilities(np.repeat(logits, weights, axis=0), **options)
    np.testing.assert_allclose(np.repeat(weighted, weights, axis=0), copied, atol=1e-7)
    scaled = balanced_responsibilities(logits, sample_weight=weights * 1e200, **options)
    np.testing.assert_allclose(scaled, weighted, atol=1e-12)


def test_a_bound_that_holds_already_changes_nothing():
    logits, weights = table()
    plain = soft_responsibilities(logits, temperature=0.5)
    found = balanced_responsibilities(
        logits, occupancy=1e-3, temperature=0.5, at_least=True
    )
    np.testing.assert_array_equal(found, plain)


def test_closed_cells():
    logits, _ = table()
    shares = [0.3, 0.0, 0.5, 0.2]
    found = balanced_responsibilities(logits, occupancy=shares, temperature=0.4)
    assert (found[:, 1] == 0).all()
    np.testing.assert_allclose(found.mean(axis=0), shares, atol=1e-9)


def test_what_cannot_converge_says_so():
    """At this temperature no floats give these shares."""
    logits = np.column_stack([np.repeat([0.0, 1.0, 3.0], 3), np.zeros(9)])
    with pytest.warns(ConvergenceWarning, match="with an error of") as caught:
        found = balanced_responsibilities(
            logits, occupancy=[0.45, 0.55], temperature=1e-18
        )
    error = np.abs(found.mean(axis=0) - [0.45, 0.55]).max()
    assert f"{error:.2g}" in str(caught[0].message)


@pytest.mark.parametrize(
    "change, match",
    [
        ({"logits": LOGITS}, "logits must have shape"),
        ({"occupancy": "equal"}, "occupancy must be an array of numbers"),
        ({"occupancy": [0.5, 0.5]}, "occupancy must be a number or 4"),
        ({"occupancy": [0.5, 0.5, 0.5, -0.5]}, "occupancy must be nonnegative"),
        ({"occupancy": 0.3, "at_least": True}, "a sum of at most 1; got a sum of 1.2"),
        ({"occupancy": 0.2}, "a sum of 1; got a sum of 0.8"),
        ({"sample_weight": np.zeros(60)}, "sample_weight must be 60"),
        ({"sample_weight": -np.ones(60)}, "sample_weight must be 60"),
        ({"temperature": 0.0}, "temperature must be a finite positive"),
        ({"tol": 0.0}, "tol must"),
    ],
)
def test_bad_balance(change, match):
    options = dict(logits=table()[0], temperature=1.0)
    with pytest.raises(ValueError, match=match):
        balanced_responsibilities(**{**options, **change})


# --- search --------------------------------------------------------------------------

POINTS = np.array([-1.2, -0.3, 0.1, 0.4, 0.9, 1.7])


def kept(threshold):
    return np.mean(POINTS >= threshold[0])


def test_gradient_of_a_threshold():
    """Q2: the central estimate, unbiased, and its spread against the other two."""
    expected = -0.45696622
    spread = {"score": 1.857, "forward": 0.593, "central": 0.570}
    for method, sd in spread.items():
        gradient, std = perturbed_gradient(
            lambda t: (POINTS >= t).mean(axis=1),
            [0.2],
            sigma=0.3,
            method=method,
            n_samples=200_000,
            vectorized=True,
            return_std=True,
            random_state=0,
        )
        assert abs(gradient[0] - expected) < 4 * std[0]
        assert 4 * std[0] < 0.1 * abs(expected)
        assert std[0] * np.sqrt(200_000) == pytest.approx(sd, rel=0.01)


def bumps(params):
    """A staircase on a hill with its top at (1, -2)."""
    return -np.round(4 * np.hypot(params[0] - 1, params[1] + 2)) / 4


@pytest.mark.parametrize("method", ["central", "forward"])
def test_search_climbs_a_staircase(method):
    options = dict(sigma=0.3, step_size=0.2, n_iter=80, method=method)
    result = optimize_rule(bumps, [0.0, 0.0], random_state=0, **options)
    assert result.fun == bumps(result.x) >= -0.25
    assert result.fun >= result.history.max() and len(result.history) == 81
    assert result.history[-1] >= -0.5
    calls = 32 if method == "central" else 16
    assert result.nit == 80 and result.nfev == 1 + 80 * (1 + calls)
    again = optimize_rule(bumps, [0.0, 0.0], random_state=0, **options)
    np.testing.assert_array_equal(result.x, again.x)


def test_search_is_free_of_the_units_of_the_figure():
    options = dict(sigma=0.25, step_size=0.25, n_iter=20, random_state=3)
    plain = optimize_rule(bumps, [0.0, 0.0], **options)
    scaled = optimize_rule(lambda p: 2.0**40 * bumps(p), [0.0, 0.0], **options)
    np.testing.assert_allclose(plain.x, scaled.x, rtol=1e-12)


def test_search_takes_any_shape_and_any_batch():
    options = dict(sigma=0.3, step_size=0.2, n_iter=10, random_state=0)
    plain = optimize_rule(lambda p: bumps(p.ravel()), [[0.0], [0.0]], **options)

    def backwards(figure, points):
        return [figure(p) for p in reversed(points)][::-1]

    other = optimize_rule(bumps, [0.0, 0.0], batch=backwards, **options)
    assert plain.x.shape == (2, 1)
    np.testing.assert_array_equal(plain.x.ravel(), other.x)


def test_search_is_never_below_its_start():
    start = np.array([1.0, -2.0])
    for seed in range(5):
        result = optimize_rule(
            bumps, start, sigma=1.0, step_size=2.0, n_iter=5, random_state=seed
        )
        assert result.fun >= bumps(start)


def test_a_flat_figure_moves_nothing():
    start = np.array([1.0, -2.0])
    result = optimize_rule(lambda p: 1.0, start, sigma=0.1, step_size=0.1, n_iter=3)
    np.testing.assert_array_equal(result.x, start)
    np.testing.assert_array_equal(result.history, np.ones(4))


@pytest.mark.parametrize(
    "change, match",
    [
        ({"sigma": 0.0}, "sigma must be a finite positive"),
        ({"step_size": -1.0}, "step_size must be a finite positive"),
        ({"n_iter": -1}, "n_iter must be an integer"),
        ({"n_samples": 0}, "n_samples must be an integer"),
        ({"method": "pathwise"}, "method must be one of"),
        ({"noise": "gumbel"}, "needs symmetric noise; got 'gumbel'"),
        ({"start": [np.nan]}, "start must be finite"),
        ({"figure": lambda p: np.nan}, "figure must return finite numbers"),
    ],
)
def test_bad_black_box(change, match):
    options = dict(figure=bumps, start=[0.0, 0.0], sigma=0.3, step_size=0.2, n_iter=2)
    with pytest.raises(ValueError, match=match):
        optimize_rule(**{**options, **change})
