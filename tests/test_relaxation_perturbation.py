"""Rows B, G9-G11: black boxes and solvers under random perturbation.

Monte Carlo values lie within four standard errors of the right one, and the standard
error is small enough to tell a bias of a tenth.
"""

import numpy as np
import pytest

from skquant.relaxation import (
    forward_mode_gradient,
    perturbed_argmax,
    perturbed_argmax_jacobian,
    perturbed_argmax_vjp,
    perturbed_gradient,
    perturbed_max,
    perturbed_value,
)

MU3 = np.array([0.5, 0.0, -0.5])


def cube(u):
    return u[:, 0] ** 3


def cube_slope(u):
    return 3 * u**2


def one_hot(u):
    return np.eye(u.shape[-1])[np.argmax(u, axis=-1)]


def assert_estimates(estimate, right):
    """Within four standard errors, with a tenth of the right value told apart."""
    value, std = map(np.asarray, estimate)
    right = np.broadcast_to(right, value.shape)
    assert (np.abs(value - right) <= 4 * std).all(), (value, std, right)
    assert np.linalg.norm(4 * std) < 0.1 * np.linalg.norm(right)


def draws(n, fun=cube, mu=(3.5,), **options):
    """Single-draw gradients, n of them, as rows of a batch."""
    batch = np.broadcast_to(np.asarray(mu, float), (n, len(mu)))
    options = {"vectorized": True, "n_samples": 1, "random_state": 0, **options}
    return perturbed_gradient(fun, batch, **options)


MANY = dict(vectorized=True, n_samples=200_000, return_std=True, random_state=0)


def test_smoothed_value():  # B1
    assert_estimates(perturbed_value(cube, [3.5], sigma=0.1, **MANY), 42.98)
    value, std = perturbed_value(cube, [3.5], sigma=0.0, **MANY)
    assert (value, std) == (3.5**3, 0.0)


def test_pathwise_gradient():  # B2
    smooth = perturbed_gradient(
        cube, [3.5], sigma=0.1, method="pathwise", jac=cube_slope, **MANY
    )
    assert_estimates(smooth, 36.78)

    def step(u):
        return (u[:, 0] >= 0) * 1.0

    # wrong for jumps: the derivative of a step is zero wherever it exists
    wrong, _ = perturbed_gradient(
        step, [0.3], sigma=0.5, method="pathwise", jac=np.zeros_like, **MANY
    )
    assert wrong == 0.0
    for method in ["score", "forward", "central"]:
        right = perturbed_gradient(step, [0.3], sigma=0.5, method=method, **MANY)
        assert_estimates(right, 0.66644921)


@pytest.mark.parametrize(
    "method, variance",
    [("score", 189254.18), ("forward", 2726.4921), ("central", 2709.9546)],
)
def test_variance_of_one_draw(method, variance):  # B3, figure 14.4
    found = draws(400_000, sigma=0.1, method=method)[:, 0]
    # the variance of the sample variance, from the sample
    error = np.std((found - found.mean()) ** 2) / np.sqrt(len(found))
    assert abs(found.var() - variance) < 4 * error < 0.1 * variance
    assert abs(found.mean() - 36.78) < 4 * np.sqrt(variance / len(found)) < 3.678


@pytest.mark.parametrize(
    "method, errors",
    [
        ("score", {10: 109.8, 1000: 10.98}),
        ("forward", {10: 13.17, 1000: 1.318}),
        ("central", {10: 13.13, 1000: 1.314}),
    ],
)
def test_mean_absolute_error_against_sample_size(method, errors):  # B3, figure 14.4
    for n, right in errors.items():
        found = draws(400_000, sigma=0.1, method=method, random_state=1)[:, 0]
        error = np.abs(found.reshape(-1, n).mean(axis=1) - 36.75)
        spread = error.std() / np.sqrt(len(error))
        assert abs(error.mean() - right) < 4 * spread + 0.005 * right
        assert 4 * spread < 0.2 * right


def test_differences_have_an_eighth_of_the_deviation():
    score, forward, central = (
        draws(20_000, sigma=0.1, method=method).std()
        for method in ("score", "forward", "central")
    )
    assert score > 8 * forward and score > 8 * central


@pytest.mark.parametrize("sigma", [1e-3, 1e-6, 1e-9])
def test_a_small_sigma(sigma):  # B4
    score = draws(20_000, sigma=sigma, method="score").std()
    assert score == pytest.approx(3.5**3 / sigma, rel=0.05)
    for method in ("forward", "central"):
        deviation = draws(20_000, sigma=sigma, method=method).std()
        assert deviation == pytest.approx(52.0, rel=0.05)


def test_forward_mode():  # B5
    g = np.array([1.0, -2.0, 0.5])
    batch = np.zeros((200_000, 3))
    found = forward_mode_gradient(
        lambda mu, z: z @ g, batch, n_samples=1, vectorized=True, random_state=0
    )
    assert np.trace(np.cov(found.T)) == pytest.approx(21.0, rel=0.02)
    assert np.abs(found.mean(axis=0) - g).max() < 4 * np.sqrt(21.0 / 200_000)


@pytest.mark.parametrize("method, trace", [("central", 1.095), ("forward", 8.595)])
def test_a_quadratic(method, trace):  # B6
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    mu, sigma = np.array([0.3, -0.7]), 0.5

    def quadratic(u):
        return 0.5 * np.sum((u @ matrix) * u, axis=1)

    found = draws(400_000, quadratic, mu, sigma=sigma, method=method)
    assert np.trace(np.cov(found.T)) == pytest.approx(trace, rel=0.02)
    slope = matrix @ mu
    closed = 3 * slope @ slope
    if method == "forward":
        t, t2 = np.trace(matrix), np.trace(matrix @ matrix)
        closed += sigma**2 / 4 * 6 * (t * t + 2 * t2)
    # the printed trace is of six decimals rounded to three: the formula stands
    assert closed == pytest.approx(trace, rel=2e-3)


def test_pathwise_and_score_agree_for_gumbel_noise():  # B7
    # E h'(Z) = E h(Z) nu'(Z) for h = z^3, whose common value is pi^2 / 2
    kwargs = dict(sigma=1.0, noise="gumbel", **MANY)
    path = perturbed_gradient(
        None, [0.0], method="pathwise", jac=lambda u: 3 * u**2, **kwargs
    )
    assert_estimates(path, 4.9348022)
    score = perturbed_gradient(cube, [0.0], method="score", **kwargs)
    assert abs(score[0] - 4.9348022) < 4 * score[1]


def test_gumbel_laplace_and_the_gradient_in_sigma():  # B8, B9, B10
    right = 3 * (1.2**2 + 0.4**2 * np.pi**2 / 6)
    assert right == pytest.approx(5.10956835, abs=1e-8)
    found = perturbed_gradient(
        cube, [1.2], sigma=0.4, noise="gumbel", method="forward", **MANY
    )
    assert_estimates(found, right)
    found = perturbed_gradient(cube, [1.2], sigma=0.4, wrt="sigma", **MANY)
    assert_estimates(found, 2.88)
    for method in ["forward", "central", "score"]:
        found = perturbed_gradient(
            cube, [1.2], sigma=0.4, noise="laplace", method=method, **MANY
        )
        assert_estimates(found, 5.28)


@pytest.mark.parametrize("noise", ["normal", "laplace", "logistic", "gumbel"])
@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.5, 3.0])
def test_the_gradient_of_the_identity_is_one(noise, sigma):  # bugs 1, 9
    method = "forward" if noise == "gumbel" else "central"
    found = perturbed_gradient(
        lambda u: u[:, 0], [0.0], sigma=sigma, noise=noise, method=method, **MANY
    )
    assert_estimates(found, 1.0)


def test_any_shape_of_a_point():  # bug 2
    def trace(u):
        return np.trace(u)

    point = np.arange(6.0).reshape(2, 1, 3)
    found = perturbed_gradient(
        lambda u: u[0, 0] + 2 * u[0, 2],
        point,
        sigma=0.5,
        point_ndim=2,
        n_samples=4000,
        random_state=0,
    )
    assert found.shape == (2, 1, 3)
    np.testing.assert_allclose(found[:, 0], [[1, 0, 2]] * 2, atol=0.2)
    assert perturbed_value(trace, np.eye(3), sigma=0.0, point_ndim=2) == 3.0


# --- perturbed maxima ----------------------------------------------------------------


def test_perturbed_max_of_one_hot_vectors():  # G6, bug N8
    for sigma, right in [(1.0, 1.18026967), (0.5, 0.70380298)]:
        assert_estimates(perturbed_max(one_hot, MU3, sigma=sigma, **MANY), right)


@pytest.mark.parametrize(
    "noise, right",
    [
        ("gumbel", [0.57830455, 0.28310417, 0.13859128]),
        ("normal", [0.63294814, 0.27113998, 0.09591188]),
    ],
)
def test_gradient_of_the_perturbed_max(noise, right):  # G9
    mean = perturbed_argmax(one_hot, MU3, sigma=0.7, noise=noise, **MANY)
    assert_estimates(mean, right)
    assert mean[0].sum() == pytest.approx(1.0)

    def value(u):
        return u.max(axis=-1)

    second = perturbed_gradient(
        value, MU3, sigma=0.7, noise=noise, method="score", **MANY
    )
    assert (np.abs(second[0] - right) < 4 * second[1]).all()
    spreads = [np.linalg.norm(std) * np.sqrt(200_000) for _, std in (mean, second)]
    expected = (0.75, 3.0) if noise == "gumbel" else (0.72, 2.7)
    np.testing.assert_allclose(spreads, expected, rtol=0.03)


@pytest.mark.parametrize(
    "noise, row",
    [
        ("gumbel", [0.34838343, -0.23388633, -0.1144971]),
        ("normal", [0.4080104, -0.28703747, -0.12097293]),
    ],
)
@pytest.mark.parametrize("method", ["argmax", "max"])
def test_jacobian_of_the_perturbed_argmax(noise, row, method):  # G10, bug 3
    options = {**MANY, "n_samples": 100_000}
    jacobian, std = perturbed_argmax_jacobian(
        one_hot, MU3, sigma=0.7, noise=noise, method=method, **options
    )
    assert (np.abs(jacobian[0] - row) < 4 * std[0]).all()
    if method == "argmax":
        assert np.linalg.norm(4 * std[0]) < 0.1 * np.linalg.norm(row)
    product, _ = perturbed_argmax_vjp(
        one_hot, MU3, [1.0, 0.0, 0.0], sigma=0.7, noise=noise, method=method, **options
    )
    # the same draws
    np.testing.assert_allclose(product, jacobian[0], rtol=1e-9, atol=1e-12)


def test_a_control_variate_keeps_a_small_sigma_in_hand():  # bug 3
    spreads = []
    for control_variate in (True, False):
        _, std = perturbed_argmax_vjp(
            one_hot,
            MU3,
            [1.0, 0.0, 0.0],
            sigma=0.05,
            control_variate=control_variate,
            **{**MANY, "n_samples": 20_000},
        )
        spreads.append(np.linalg.norm(std))
    assert spreads[0] < 0.1 * spreads[1]


def test_a_common_shift_adds_itself():  # G11, erratum E11
    one, two = (
        perturbed_max(one_hot, MU3 + c, sigma=0.7, **{**MANY, "n_samples": 100})[0]
        for c in (0.0, 5.0)
    )
    assert two - one == pytest.approx(5.0, abs=1e-12)


# --- properties and bad input --------------------------------------------------------


def test_a_seed_gives_the_same_and_inputs_stay():
    mu = np.array([[1.0, 2.0], [3.0, -4.0]])
    mu.setflags(write=False)

    def spoil(u):
        total = u.sum(axis=1)
        u[:] = 0.0
        return total

    one, two = (
        perturbed_gradient(spoil, mu, sigma=0.3, vectorized=True, random_state=3)
        for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)
    generator = np.random.default_rng(0)
    assert perturbed_value(
        cube, [1.0], sigma=1.0, vectorized=True, random_state=generator
    ) != perturbed_value(
        cube, [1.0], sigma=1.0, vectorized=True, random_state=generator
    )


def test_the_standard_error_is_that_of_the_draws():
    found = draws(2000, sigma=0.1)[:, 0]
    value, std = perturbed_gradient(
        cube,
        [3.5],
        sigma=0.1,
        vectorized=True,
        n_samples=2000,
        return_std=True,
        random_state=0,
    )
    assert value == pytest.approx(found.mean())
    assert std == pytest.approx(found.std(ddof=1) / np.sqrt(2000))


@pytest.mark.parametrize(
    "options, match",
    [
        (dict(sigma=0.0), "sigma must be positive"),
        (dict(sigma=-1.0), "sigma"),
        (dict(sigma=np.nan), "sigma"),
        (dict(noise="gumbel"), "symmetric"),
        (dict(noise="cauchy"), "noise"),
        (dict(method="best"), "method"),
        (dict(method="pathwise"), "jac"),
        (dict(n_samples=0), "n_samples"),
        (dict(n_samples=1, return_std=True), "n_samples"),
        (dict(wrt="x"), "wrt"),
        (dict(wrt="sigma", sigma=[0.1, 0.2]), "sigma"),
        (dict(fun=lambda u: u), "shape"),
        (dict(fun=lambda u: np.full(len(u), np.nan)), "finite"),
        (dict(mu=[np.nan, 0.0]), "mu"),
    ],
)
def test_bad_input(options, match):
    options = {"sigma": 0.1, "vectorized": True, "n_samples": 4, **options}
    fun, mu = options.pop("fun", cube), options.pop("mu", [1.0, 2.0])
    with pytest.raises(ValueError, match=match):
        perturbed_gradient(fun, mu, **options)


def test_laplace_noise_has_no_curvature():
    with pytest.raises(ValueError, match="laplace"):
        perturbed_argmax_vjp(
            one_hot, MU3, MU3, sigma=1.0, noise="laplace", method="max"
        )
