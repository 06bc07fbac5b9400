"""Rows B, G9 and G10: Monte Carlo against quadrature, algebra and closed forms.

An estimate must lie within four standard errors of the right value, and 1.1 times the
estimate must not: a bias of a tenth would be seen.
"""

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from skquant.relaxation import (
    argmax_probabilities,
    forward_mode_gradient,
    perturbed_argmax,
    perturbed_argmax_jacobian,
    perturbed_argmax_vjp,
    perturbed_gradient,
    perturbed_max,
    perturbed_value,
)
from skquant.relaxation._noise import NOISES

MU3 = np.array([0.5, 0.0, -0.5])
METHODS = ["score", "forward", "central"]


def cube(u):
    return u**3


def one_hot(u):
    return np.eye(u.shape[-1])[np.argmax(u, axis=-1)]


def agrees(estimate, right):
    mean, std = (np.asarray(part) for part in estimate)
    right = np.asarray(right)
    assert mean.shape == std.shape == right.shape
    assert (np.abs(mean - right) <= 4 * std).all(), (mean, std, right)
    if right.any():
        assert (np.abs(1.1 * mean - right) > 4 * std).any(), "too noisy to see a bias"


def one_draw_trace(estimate, n_samples):
    """Trace of the covariance of a single draw."""
    return np.sum(estimate[1] ** 2) * n_samples


# --- noise laws ----------------------------------------------------------------------

LAWS = {
    "normal": stats.norm(),
    "gumbel": stats.gumbel_r(loc=-np.euler_gamma),
    "laplace": stats.laplace(),
    "logistic": stats.logistic(),
}


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_slopes_and_curvatures_are_derivatives_of_the_log_density(noise):
    z = np.array([-2.3, -0.6, 0.4, 1.9])
    law, step = LAWS[noise], 1e-5
    slope = -(law.logpdf(z + step) - law.logpdf(z - step)) / (2 * step)
    np.testing.assert_allclose(NOISES[noise].slope(z), slope, atol=1e-8)
    if NOISES[noise].curvature is not None:
        up, down = NOISES[noise].slope(z + step), NOISES[noise].slope(z - step)
        np.testing.assert_allclose(
            NOISES[noise].curvature(z), (up - down) / (2 * step), atol=1e-8
        )


@pytest.mark.parametrize("noise", sorted(NOISES))
def test_every_law_has_its_distribution_and_mean_zero(noise):
    z = NOISES[noise].sample(100_000, np.random.default_rng(0))
    assert stats.kstest(z, LAWS[noise].cdf).pvalue > 1e-3
    assert abs(z.mean()) < 4 * z.std() / np.sqrt(len(z))
    assert LAWS[noise].mean() == pytest.approx(0.0, abs=1e-12)


# --- values and gradients ------------------------------------------------------------


def cube_gradient(mu=3.5, sigma=0.1, n_samples=1_000_000, **settings):
    return perturbed_gradient(
        cube,
        mu,
        sigma=sigma,
        n_samples=n_samples,
        vectorized=True,
        return_std=True,
        random_state=0,
        **settings,
    )


def test_smoothed_value():  # B1
    value = perturbed_value(
        cube, 3.5, sigma=0.1, vectorized=True, return_std=True, random_state=0
    )
    agrees(value, 42.98)
    for sigma in [0.0, [0.0, 0.0]]:
        value, std = perturbed_value(
            np.sum, [3.0, 1.0], sigma=sigma, n_samples=10**9, return_std=True
        )
        assert value == 4.0 and std == 0.0


def test_pathwise_gradient():  # B2
    settings = dict(
        method="pathwise", n_samples=20_000, vectorized=True, return_std=True
    )
    gradient = perturbed_gradient(
        None, 3.5, sigma=0.1, jac=lambda u: 3 * u**2, random_state=0, **settings
    )
    agrees(gradient, 36.78)
    # the trap: a jump has no derivative to average, and the truth is 0.666
    flat = perturbed_gradient(
        None, [0.3], sigma=0.5, jac=np.zeros_like, random_state=0, **settings
    )
    assert flat[0] == 0.0 and flat[1] == 0.0


@pytest.mark.parametrize("method", METHODS)
def test_gradient_of_a_step_is_a_density(method):  # B2
    gradient = perturbed_gradient(
        lambda u: (u[:, 0] >= 0) * 1.0,
        [0.3],
        sigma=0.5,
        method=method,
        n_samples=100_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    agrees(gradient, [0.66644921])


@pytest.mark.parametrize(
    "method, variance",
    [("score", 189254.18), ("forward", 2726.4921), ("central", 2709.9546)],
)
def test_mean_and_variance_on_the_cube(method, variance):  # B3
    gradient = cube_gradient(method=method)
    agrees(gradient, 36.78)
    assert one_draw_trace(gradient, 1_000_000) == pytest.approx(variance, rel=0.015)


def test_forward_and_central_are_eight_times_less_noisy():
    spread = {method: cube_gradient(method=method)[1] for method in METHODS}
    assert spread["score"] > 8 * spread["forward"]
    assert spread["score"] > 8 * spread["central"]


@pytest.mark.parametrize(
    "method, n_samples, error",
    [
        ("score", 10, 109.8),
        ("score", 1000, 10.98),
        ("forward", 10, 13.17),
        ("forward", 1000, 1.318),
        ("central", 10, 13.13),
        ("central", 1000, 1.314),
    ],
)
def test_error_against_sample_size(method, n_samples, error):  # B3, figure 14.4
    rows = 2_000_000 // n_samples if n_samples == 1000 else 50_000
    estimates = perturbed_gradient(
        cube,
        np.full(rows, 3.5),
        sigma=0.1,
        method=method,
        n_samples=n_samples,
        point_ndim=0,
        vectorized=True,
        random_state=1,
    )
    errors = np.abs(estimates - 36.75)
    agrees((errors.mean(), errors.std() / np.sqrt(rows)), error)


@pytest.mark.parametrize("sigma", [1e-3, 1e-6, 1e-9])
def test_small_noise(sigma):  # B4
    n = 100_000
    score = cube_gradient(sigma=sigma, n_samples=n, method="score")[1] * np.sqrt(n)
    assert score == pytest.approx(3.5**3 / sigma, rel=0.02)
    for method in ["forward", "central"]:
        mean, std = cube_gradient(sigma=sigma, n_samples=n, method=method)
        assert abs(mean - 36.75) < 4 * std
        assert std * np.sqrt(n) == pytest.approx(52.0, rel=0.03)


def test_forward_mode():  # B5
    g = np.array([1.0, -2.0, 0.5])
    gradient = forward_mode_gradient(
        lambda mu, z: z @ g,
        np.zeros(3),
        n_samples=200_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    agrees(gradient, g)
    assert one_draw_trace(gradient, 200_000) == pytest.approx(21.0, rel=0.03)


@pytest.mark.parametrize("method, trace", [("central", 1.095), ("forward", 8.595)])
def test_quadratic(method, trace):  # B6
    A = np.array([[2.0, 0.5], [0.5, 1.0]])
    mu = np.array([0.3, -0.7])
    gradient = perturbed_gradient(
        lambda u: 0.5 * np.einsum("ni,ij,nj->n", u, A, u),
        mu,
        sigma=0.5,
        method=method,
        n_samples=200_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    agrees(gradient, A @ mu)
    assert one_draw_trace(gradient, 200_000) == pytest.approx(trace, rel=0.04)


@pytest.mark.parametrize("method", ["score", "forward"])
def test_gumbel_noise(method):  # B7, B8
    gradient = cube_gradient(0.0, 1.0, method=method, noise="gumbel")
    agrees(gradient, 4.9348022)
    gradient = cube_gradient(1.2, 0.4, method=method, noise="gumbel")
    agrees(gradient, 5.10956835)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("noise, right", [("laplace", 5.28), ("logistic", 5.89913670)])
def test_other_symmetric_noise(method, noise, right):  # B10
    agrees(cube_gradient(1.2, 0.4, method=method, noise=noise), right)


@pytest.mark.parametrize("method", [*METHODS, "pathwise"])
def test_gradient_in_sigma(method):  # B9
    gradient = cube_gradient(
        1.2, 0.4, method=method, wrt="sigma", jac=lambda u: 3 * u**2
    )
    agrees(gradient, 2.88)


def test_gradient_in_sigma_counts_the_dimensions():
    # E |u|^2 = |mu|^2 + M sigma^2
    gradient = perturbed_gradient(
        lambda u: np.sum(u**2, axis=-1),
        np.ones((2, 3)),
        sigma=0.5,
        wrt="sigma",
        n_samples=100_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    agrees(gradient, [3.0, 3.0])


# --- perturbed maxima over sets ------------------------------------------------------


@pytest.mark.parametrize("sigma, right", [(1.0, 1.18026967), (0.5, 0.70380298)])
def test_perturbed_max(sigma, right):  # G6, N8: mean-zero Gumbel noise
    value = perturbed_max(
        one_hot,
        MU3,
        sigma=sigma,
        n_samples=20_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    agrees(value, right)


G9 = {
    "gumbel": ([0.57830455, 0.28310417, 0.13859128], 0.75, 3.0),
    "normal": ([0.63294814, 0.27113998, 0.09591188], 0.72, 2.7),
}


@pytest.mark.parametrize("noise", sorted(G9))
def test_two_estimators_of_the_gradient_of_the_max(noise):  # G9
    right, first, second = G9[noise]
    settings = dict(
        sigma=0.7,
        noise=noise,
        n_samples=100_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    vertices = perturbed_argmax(one_hot, MU3, **settings)
    agrees(vertices, right)
    assert vertices[0].sum() == pytest.approx(1.0)
    score = perturbed_gradient(
        lambda u: u.max(axis=-1), MU3, method="score", **settings
    )
    agrees(score, right)
    assert np.sqrt(one_draw_trace(vertices, 100_000)) == pytest.approx(first, abs=0.01)
    assert np.sqrt(one_draw_trace(score, 100_000)) == pytest.approx(second, abs=0.1)


JACOBIAN = {
    "gumbel": [0.34838343, -0.23388633, -0.1144971],
    "normal": [0.4080104, -0.28703747, -0.12097293],
}


@pytest.mark.parametrize("noise", sorted(JACOBIAN))
@pytest.mark.parametrize("method", ["argmax", "max"])
@pytest.mark.parametrize("control_variate", [False, True])
def test_jacobian_of_the_argmax(noise, method, control_variate):  # G10
    settings = dict(
        sigma=0.7,
        noise=noise,
        method=method,
        control_variate=control_variate,
        n_samples=400_000,
        vectorized=True,
        return_std=True,
    )
    jacobian = perturbed_argmax_jacobian(one_hot, MU3, random_state=0, **settings)
    agrees((jacobian[0][0], jacobian[1][0]), JACOBIAN[noise])
    product = perturbed_argmax_vjp(one_hot, MU3, [1, 0, 0], random_state=1, **settings)
    agrees(product, JACOBIAN[noise])
    if noise == "gumbel":
        p = softmax(MU3 / 0.7)
        agrees(jacobian, (np.diag(p) - np.outer(p, p)) / 0.7)
        spread = {"argmax": [2.40, 2.34], "max": [10.7, None]}[method][control_variate]
        if spread is not None:
            found = np.sqrt(one_draw_trace(jacobian, 400_000))
            assert found == pytest.approx(spread, rel=0.02)


def test_control_variate_tames_small_noise():  # bug 3
    spread = {}
    for control_variate in [False, True]:
        settings = dict(sigma=0.01, control_variate=control_variate, n_samples=4000)
        mean, std = perturbed_argmax_vjp(
            one_hot,
            MU3,
            [1.0, 2.0, 3.0],
            vectorized=True,
            return_std=True,
            random_state=0,
            **settings,
        )
        assert (np.abs(mean) <= 4 * std).all()  # the vertex does not move
        spread[control_variate] = std.max()
    assert spread[False] > 1.0 and spread[True] == 0.0


@pytest.mark.parametrize("noise", ["gumbel", "normal"])
def test_jacobian_row_is_the_derivative_of_the_probabilities(noise):
    step = 1e-4
    ahead, behind = (
        argmax_probabilities(MU3 + [s, 0, 0], scale=0.7, noise=noise)
        for s in (step, -step)
    )
    np.testing.assert_allclose(
        (ahead - behind) / (2 * step), JACOBIAN[noise], atol=1e-7
    )


def test_matrices_of_utilities():
    def assignment(u):  # the better of two permutations
        return np.eye(2) if np.trace(u) >= u[0, 1] + u[1, 0] else np.eye(2)[::-1]

    u = np.array([[0.3, 0.1], [-0.2, 0.4]])
    settings = dict(
        sigma=1.0,
        noise="normal",
        point_ndim=2,
        n_samples=4000,
        return_std=True,
        random_state=0,
    )
    mean, std = perturbed_argmax(assignment, u, **settings)
    # the difference of the two sums is normal of variance 4
    p = stats.norm.cdf(0.8 / 2.0)
    agrees((mean, std), np.array([[p, 1 - p], [1 - p, p]]))
    product = perturbed_argmax_vjp(
        assignment, u, [[1, 0], [0, 0]], **{**settings, "n_samples": 20_000}
    )
    agrees(product, stats.norm.pdf(0.4) / 2 * np.array([[1, -1], [-1, 1]]))


# --- what others got wrong, and properties -------------------------------------------


@pytest.mark.parametrize("sigma", [0.01, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("method", ["forward", "central"])
def test_identity_has_gradient_one(sigma, method):  # bug 1
    gradient = perturbed_gradient(
        lambda u: u[:, 0],
        [0.7],
        sigma=sigma,
        method=method,
        n_samples=20_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    agrees(gradient, [1.0])


def test_points_of_any_shape():  # bug 2
    gradient = perturbed_gradient(
        lambda x: x[0, 0], np.ones((1, 2)), sigma=0.3, point_ndim=2, random_state=0
    )
    assert gradient.shape == (1, 2)
    np.testing.assert_allclose(gradient, [[1.0, 0.0]], atol=0.2)


def test_scalar_sigma_and_a_scale_a_coordinate():
    # E (u1 u2^2) has the derivatives mu2^2 + s2^2 and 2 mu1 mu2
    gradient = perturbed_gradient(
        lambda u: u[:, 0] * u[:, 1] ** 2,
        [0.4, 1.0],
        sigma=[0.2, 0.5],
        n_samples=200_000,
        vectorized=True,
        return_std=True,
        random_state=0,
    )
    agrees(gradient, [1.25, 0.8])


def test_vectorized_is_the_loop_and_a_seed_repeats():
    mu = np.random.default_rng(0).normal(size=(2, 3))
    settings = dict(sigma=0.3, n_samples=50, random_state=7)
    loop = perturbed_gradient(lambda u: np.sum(u**3), mu, **settings)
    whole = perturbed_gradient(
        lambda u: np.sum(u**3, axis=-1), mu, vectorized=True, **settings
    )
    np.testing.assert_allclose(loop, whole, rtol=1e-12)
    again = perturbed_gradient(lambda u: np.sum(u**3), mu, **settings)
    np.testing.assert_array_equal(loop, again)
    generators = [np.random.default_rng(3) for _ in range(2)]
    a, b = (
        perturbed_value(np.sum, mu, sigma=0.3, random_state=each) for each in generators
    )
    np.testing.assert_array_equal(a, b)


def test_blocks_do_not_change_mean_or_error(monkeypatch):
    settings = dict(sigma=0.3, n_samples=103, return_std=True, vectorized=True)
    whole = perturbed_value(cube, 2.0, random_state=0, **settings)
    monkeypatch.setattr("skquant.relaxation._perturbation._BLOCK", 10)
    blocks = perturbed_value(cube, 2.0, random_state=0, **settings)
    np.testing.assert_allclose(whole, blocks, rtol=1e-12)


def test_input_is_not_changed_by_the_function():
    mu = np.ones((2, 3))
    mu.setflags(write=False)

    def greedy(u):
        u[:] = 0.0
        return 1.0

    np.testing.assert_array_equal(
        perturbed_gradient(greedy, mu, sigma=1.0, n_samples=3, random_state=0),
        np.zeros((2, 3)),
    )
    assert (mu == 1).all()
    mean = perturbed_argmax(one_hot, mu.astype(np.float32), sigma=0.0, vectorized=True)
    assert mean.dtype == np.float64
    np.testing.assert_array_equal(mean, [[1, 0, 0], [1, 0, 0]])  # the first of equals


BAD = {
    "central with asymmetric noise": (
        lambda: perturbed_gradient(cube, 1.0, sigma=1.0, noise="gumbel"),
        "symmetric noise; got 'gumbel'",
    ),
    "gradient without noise": (
        lambda: perturbed_gradient(cube, 1.0, sigma=0.0),
        "sigma must be positive",
    ),
    "negative sigma": (
        lambda: perturbed_value(cube, 1.0, sigma=-1.0),
        "sigma must be nonnegative",
    ),
    "NaN": (lambda: perturbed_value(cube, np.nan, sigma=1.0), "mu must be finite"),
    "sigma of another shape": (
        lambda: perturbed_value(np.sum, [1.0, 2.0], sigma=[1.0, 1.0, 1.0]),
        "broadcast",
    ),
    "no gradient": (
        lambda: perturbed_gradient(cube, 1.0, sigma=1.0, method="pathwise"),
        "needs the gradient jac",
    ),
    "unknown method": (
        lambda: perturbed_gradient(cube, 1.0, sigma=1.0, method="spsa"),
        "method must be one of",
    ),
    "unknown noise": (
        lambda: perturbed_value(cube, 1.0, sigma=1.0, noise="cauchy"),
        "noise must be one of",
    ),
    "no draws": (
        lambda: perturbed_value(cube, 1.0, sigma=1.0, n_samples=0),
        "n_samples",
    ),
    "one draw has no error": (
        lambda: perturbed_value(cube, 1.0, sigma=1.0, n_samples=1, return_std=True),
        "at least 2",
    ),
    "sigma gradient of an array": (
        lambda: perturbed_gradient(np.sum, [1.0], sigma=[1.0], wrt="sigma"),
        "one number",
    ),
    "function of another shape": (
        lambda: perturbed_value(lambda u: u, [1.0, 2.0], sigma=1.0),
        "must return shape",
    ),
    "function returns NaN": (
        lambda: perturbed_value(lambda u: np.nan, [1.0], sigma=1.0),
        "finite numbers",
    ),
    "vertex without a Jacobian": (
        lambda: perturbed_argmax_vjp(one_hot, MU3, MU3, sigma=0.0),
        "sigma must be positive",
    ),
    "kinked log-density": (
        lambda: perturbed_argmax_jacobian(
            one_hot, MU3, sigma=1.0, noise="laplace", method="max"
        ),
        "smooth log-density",
    ),
    "cotangent of another shape": (
        lambda: perturbed_argmax_vjp(one_hot, MU3, [1.0, 2.0], sigma=1.0),
        "v must broadcast",
    ),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_input(name):
    call, match = BAD[name]
    with pytest.raises(ValueError, match=match):
        call()
