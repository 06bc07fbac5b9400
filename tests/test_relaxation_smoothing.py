"""Rows A: kernels, smoothing on a grid, soft min-plus. Right values by quadrature."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from skquant.relaxation import (
    gaussian_kernel,
    gaussian_smooth,
    smoothed_relu,
    smoothed_step,
    soft_biconjugate,
    soft_conjugate,
    soft_infimal_convolution,
    soft_moreau_envelope,
)


def near(actual, expected, digits=8):
    """Equal to the digits printed."""
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0.51 * 10.0**-digits)


def wiggly(t):
    return t**2 + 0.3 * np.sin(6 * np.pi * t)


# --- kernels and smoothing on a grid -------------------------------------------------


def test_kernel_values():  # A1
    kernel = gaussian_kernel(1.0, truncate=3.0)
    right = [0.00443305, 0.05400558, 0.24203623, 0.39905028]
    near(kernel, right + right[2::-1])
    nodes = np.arange(-20, 21)
    near(gaussian_kernel(2.5) @ nodes**2, 6.25, 12)


@pytest.mark.parametrize("sigma", [0.0, 0.01, 0.3, 7.0])
def test_kernel_is_odd_symmetric_and_sums_to_one(sigma):
    kernel = gaussian_kernel(sigma, step=0.5)
    assert len(kernel) % 2 == 1
    np.testing.assert_array_equal(kernel, kernel[::-1])
    assert kernel.sum() == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize(
    "sigma, order, right",
    [(0.25, 0, 0.2225043), (0.05, 0, 0.34549677), (0.05, 1, 1.92078053)],
)
def test_smoothing_on_a_grid(sigma, order, right):  # A2, A4
    t = np.linspace(-4, 4, 16001)
    smooth = gaussian_smooth(wiggly(t), sigma, step=5e-4, order=order)
    near(smooth[np.argmin(np.abs(t - 0.4))], right, 7 if order == 0 else 5)


def test_the_step_belongs_to_the_kernel():
    # half the step, half the width in nodes: the same function (N11)
    coarse = np.linspace(-3, 3, 601)
    fine = np.linspace(-3, 3, 1201)
    one = gaussian_smooth(coarse**2, 0.5, step=0.01)
    two = gaussian_smooth(fine**2, 0.5, step=0.005)
    near(one[300], 0.25, 6)
    near(two[600], 0.25, 6)


@pytest.mark.parametrize("n, m", [(1, 1), (5, 3), (40, 61)])
def test_convolution_is_commutative_and_matches_the_sum(n, m):  # A3
    rng = np.random.default_rng(0)
    f, g = rng.uniform(0, 3, n), rng.uniform(0, 3, m)
    slow = np.zeros(n + m - 1)
    for i in range(n):
        for j in range(m):
            slow[i + j] += 0.1 * np.exp(-(f[i] + g[j]) / 0.7)
    for method in ["auto", "fft", "logsumexp"]:
        ours = soft_infimal_convolution(f, g, step=0.1, eps=0.7, method=method)
        np.testing.assert_allclose(ours, -0.7 * np.log(slow), rtol=1e-12)
        other = soft_infimal_convolution(g, f, step=0.1, eps=0.7, method=method)
        np.testing.assert_allclose(ours, other, rtol=1e-12, atol=1e-14)


def test_smoothing_along_an_axis_and_modes():
    y = np.random.default_rng(0).normal(size=(3, 50, 2))
    along = gaussian_smooth(y, 2.0, axis=1)
    for i in range(3):
        for j in range(2):
            np.testing.assert_allclose(
                along[i, :, j], gaussian_smooth(y[i, :, j], 2.0), rtol=1e-13
            )
    np.testing.assert_array_equal(gaussian_smooth(y, 0.0), y)
    ones = np.ones(21)
    assert gaussian_smooth(ones, 2.0)[0] == pytest.approx(1.0)
    assert gaussian_smooth(ones, 2.0, mode="constant")[0] == pytest.approx(0.6, abs=0.1)


# --- smoothed step and ReLU ----------------------------------------------------------


def test_step_and_relu_values():  # A5, A6, A7
    near(smoothed_step(0.3, 0.5), 0.72574688)
    near(smoothed_relu(0.3, 0.5), 0.38433637)
    near(smoothed_relu(0.3, 0.5, order=1), 0.72574688)
    near(smoothed_relu(0.3, 0.5, order=2), 0.66644921)
    assert smoothed_relu(-4.0, 0.5) == pytest.approx(3.77513121e-17, rel=1e-8)
    # the naive form is wrong in the subnormal range
    assert smoothed_relu(-38.0, 1.0) == pytest.approx(3.8e-318, rel=0.02)
    np.testing.assert_array_equal(smoothed_step([-1.0, 0.0, 1.0], 0.0), [0, 0.5, 1])
    np.testing.assert_array_equal(smoothed_relu([-1.0, 2.0], 0.0), [0, 2])


@pytest.mark.parametrize("x", [-2.0, -0.1, 0.0, 0.7, 5.0])
def test_relu_against_quadrature(x):
    def density(z):
        return np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)

    mean, _ = quad(lambda z: (x + 0.7 * z) * density(z), -x / 0.7, 12, epsabs=1e-13)
    assert smoothed_relu(x, 0.7) == pytest.approx(mean, abs=1e-11)
    step = 1e-5
    for order in (0, 1):
        up, down = (smoothed_relu(x + s, 0.7, order=order) for s in (step, -step))
        slope = smoothed_relu(x, 0.7, order=order + 1)
        assert (up - down) / (2 * step) == pytest.approx(slope, abs=1e-8)


def test_a_product_kernel_in_two_dimensions():  # A8
    # at (0.3, 0.1), width 0.5; the kink costs the grid some step^2
    u1 = 0.3 + 0.02 * np.arange(-210, 211)
    u2 = 0.1 + 0.02 * np.arange(-210, 211)
    grid = np.outer(np.maximum(u1, 0), np.heaviside(np.round(u2 + 0.2, 9), 0.5))
    for axis in (0, 1):
        grid = gaussian_smooth(grid, 0.5, step=0.02, axis=axis)
    near(grid[210, 210], 0.27893092, 4)
    near(smoothed_relu(0.3, 0.5) * smoothed_step(0.1 + 0.2, 0.5), 0.27893092)


# --- soft min-plus -------------------------------------------------------------------


def test_infimal_convolution_is_huber():  # A9
    x = np.linspace(-6, 6, 1201)
    huber = soft_infimal_convolution(np.abs(x), x**2 / 2, step=0.01, eps=0.0)
    grid = np.linspace(-12, 12, 2401)
    near(huber[np.argmin(np.abs(grid - 0.4))], 0.08)
    near(huber[np.argmin(np.abs(grid - 2.5))], 2.0)


@pytest.mark.parametrize("method", ["fft", "logsumexp", "auto"])
def test_soft_infimal_convolution_of_parabolas(method):  # A10
    a, b, eps, mu = 2.0, 3.0, 0.1, 0.7
    x = np.linspace(-3, 3, 1201)
    grid = np.linspace(-6, 6, 2401)
    at = np.argmin(np.abs(grid - mu))
    if method == "fft":
        # the sums at the ends are below the rounding of the transform
        with pytest.raises(ValueError, match="rounding"):
            soft_infimal_convolution(
                a * x**2 / 2, b * x**2 / 2, step=0.005, eps=eps, method=method
            )
        return
    soft = soft_infimal_convolution(
        a * x**2 / 2, b * x**2 / 2, step=0.005, eps=eps, method=method
    )
    near(soft[at], 0.3977073, 7)
    closed = a * b * mu**2 / (2 * (a + b))
    near(soft[at], closed - eps / 2 * np.log(2 * np.pi * eps / (a + b)), 7)


@pytest.mark.parametrize(
    "mu, eps, right",
    [
        (0.4, 1.0, -0.22923721),
        (0.4, 0.1, 0.23761393),
        (0.4, 0.01, 0.11757384),
        (2.5, 1.0, 1.11387601),
        (2.5, 0.1, 2.02323546),
        (2.5, 0.01, 2.01383647),
    ],
)
def test_soft_moreau_envelope_of_the_absolute_value(mu, eps, right):  # A11
    # twelve deviations of the kernel; the kink costs a sum some h^2 / eps
    half, step = 12 * np.sqrt(eps) + 1, mu / np.ceil(200 * mu / np.sqrt(eps))
    x = np.arange(np.floor((mu - half) / step), np.ceil((mu + half) / step)) * step
    envelope = soft_moreau_envelope(np.abs(x), step=step, eps=eps)
    at = np.argmin(np.abs(x - mu))
    near(envelope[at], right, 5)


def test_the_envelope_is_not_the_smoothed_function():  # A12
    x = np.linspace(-4, 4, 6401)
    at = np.argmin(np.abs(x - 0.4))
    envelope = soft_moreau_envelope(np.abs(x), step=0.00125, eps=0.1)
    shifted = envelope[at] + 0.05 * np.log(2 * np.pi * 0.1)
    smooth = gaussian_smooth(np.abs(x), np.sqrt(0.1), step=0.00125)[at]
    near(smooth, 0.43101, 5)
    near(shifted, 0.21438, 5)
    powers = gaussian_smooth(np.exp(-np.abs(x) / 0.1), np.sqrt(0.1), step=0.00125)[at]
    near(-0.1 * np.log(powers), shifted, 5)


def test_gaussian_transform_pair():  # A13
    x = np.linspace(-8, 8, 1601)
    value = 0.01 * np.sum(np.exp(-1.7 * x**2) * np.cos(2 * np.pi * 0.3 * x))
    near(value, 0.80617241)
    near(np.sqrt(np.pi / 1.7) * np.exp(-(np.pi**2) * 0.09 / 1.7), value)


def test_legendre_rules():  # A14, erratum E4
    x = np.linspace(-12, 12, 4801)
    s = 0.6
    plain = soft_conjugate(x**2 / 2, x, [s], eps=0.0)[0]
    near(plain, 0.18, 5)
    moved = soft_conjugate((x - 1.5) ** 2 / 2, x, [s], eps=0.0)[0]
    near(moved, 0.18 + 1.5 * s, 5)
    scaled = soft_conjugate(2.0 * x**2 / 2, x, [2.0 * s], eps=0.0)[0]
    near(scaled, 2.0 * 0.18, 5)
    both = soft_infimal_convolution(x**2 / 2, x**2, step=0.005, eps=0.0)
    grid = np.linspace(-24, 24, 9601)
    near(
        soft_conjugate(both, grid, [s], eps=0.0)[0],
        0.18 + soft_conjugate(x**2, x, [s], eps=0.0)[0],
        4,
    )


def test_soft_conjugate_values():  # A15, A16, A18
    x = np.linspace(-6, 6, 1201)
    near(soft_conjugate(x**2, x, [0.6], eps=0.1)[0], 0.03210724)
    grid = soft_conjugate(x**2, x, eps=0.1, method="logsumexp")
    near(grid[np.argmin(np.abs(x - 0.6))], 0.03210724)
    near(soft_conjugate(x**2 / 2, x, [0.6], eps=0.1)[0], 0.1567646, 7)
    coarse = np.linspace(-3, 3, 501)
    fine = np.linspace(-3, 3, 4001)
    near(soft_conjugate(wiggly(fine), fine, [0.5], eps=0.01)[0], 0.32526674, 6)
    near(soft_conjugate(wiggly(coarse), coarse, [0.5], eps=0.01)[0], 0.32526679, 7)


def test_soft_conjugate_by_convolution_is_the_sum():
    x = np.linspace(-3, 3, 241)
    f = wiggly(x)
    direct = soft_conjugate(f, x, eps=0.5, method="logsumexp")
    np.testing.assert_allclose(soft_conjugate(f, x, eps=0.5), direct, rtol=1e-9)
    # no overflow where x^2 / (2 eps) is beyond 709: one node carries the sum (N12)
    far = np.linspace(-50, 50, 401)
    conjugate = soft_conjugate(np.abs(far), far, eps=1e-3)
    right = [1e-3 * np.log(0.25), 50 * 50 - 50 + 1e-3 * np.log(0.25)]
    np.testing.assert_allclose(conjugate[[203, 400]], right, rtol=0, atol=1e-9)


def test_soft_biconjugate():  # A17
    x = np.linspace(-5, 5, 1001)
    at = np.argmin(np.abs(x - 0.7))
    envelope = soft_biconjugate(x**2, x, eps=0.1)
    near(envelope[at], 0.55931472, 6)
    near(envelope[at] - 0.49, 0.1 * np.log(2.0), 6)


@pytest.mark.parametrize("eps, gap", [(0.1, 0.211), (0.01, 0.0330), (0.001, 0.0043)])
def test_soft_convex_envelope_of_a_wiggly_function(eps, gap):  # A17
    x = np.linspace(-3, 3, 1201)
    f = wiggly(x)
    hull = lower_hull(x, f)
    inside = np.abs(x) < 1.5
    found = np.abs(soft_biconjugate(f, x, eps=eps) - hull)[inside].max()
    assert found == pytest.approx(gap, rel=0.03)


def test_convex_envelope_at_zero():  # A17
    x = np.linspace(-1, 1, 40001)
    # on this grid -0.279678; the right value is that of a coarser one
    near(lower_hull(x, wiggly(x))[20000], -0.279645, 4)


def lower_hull(x, f):
    """The convex hull from below, by Andrew's scan."""
    kept = []
    for i in range(len(x)):
        while len(kept) > 1:
            a, b = kept[-2], kept[-1]
            if (f[b] - f[a]) * (x[i] - x[a]) < (f[i] - f[a]) * (x[b] - x[a]):
                break
            kept.pop()
        kept.append(i)
    return np.interp(x, x[kept], f[kept])


# --- properties and bad input --------------------------------------------------------


def test_float32_and_read_only_input():
    t = np.linspace(-3, 3, 61, dtype=np.float32)
    y = (t**2).astype(np.float32)
    y.setflags(write=False)
    before = y.tobytes()
    for result in [
        gaussian_smooth(y, 0.3, step=0.1),
        soft_moreau_envelope(y, step=0.1, eps=0.5),
        soft_biconjugate(y, np.linspace(-3, 3, 61), eps=0.5),
    ]:
        assert result.dtype == np.float64 and np.isfinite(result).all()
    assert y.tobytes() == before


def test_batch_equals_loop():
    x = np.linspace(-2, 2, 41)
    batch = np.random.default_rng(0).normal(size=(2, 3, 41)) + x**2
    for function in [
        lambda f: soft_moreau_envelope(f, step=0.1, eps=0.3),
        lambda f: soft_conjugate(f, x, eps=0.3, method="logsumexp"),
        lambda f: soft_biconjugate(f, x, eps=0.3, slopes=np.linspace(-5, 5, 101)),
    ]:
        whole = function(batch)
        for i in range(2):
            for j in range(3):
                np.testing.assert_allclose(whole[i, j], function(batch[i, j]), 1e-10)


def test_a_function_that_is_infinite_outside_its_domain():
    x = np.linspace(-1, 1, 201)
    f = np.where(np.abs(x) <= 0.5, 0.0, np.inf)
    np.testing.assert_allclose(soft_conjugate(f, x, [2.0], eps=0.0), [1.0], atol=1e-9)
    assert np.isfinite(soft_moreau_envelope(f, step=0.01, eps=0.1)).all()


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: gaussian_kernel(-1.0), "sigma"),
        (lambda: gaussian_kernel(np.nan), "sigma"),
        (lambda: gaussian_kernel(1.0, step=0.0), "step"),
        (lambda: gaussian_smooth([1.0, np.nan], 1.0), "y must be finite"),
        (lambda: gaussian_smooth([1.0, 2.0], 1.0, mode="zero"), "mode"),
        (lambda: gaussian_smooth([1.0, 2.0], 0.1, order=1), "sigma"),
        (lambda: smoothed_relu(1.0, 0.0, order=2), "sigma must be positive"),
        (lambda: smoothed_relu(1.0, 1.0, order=3), "order"),
        (lambda: soft_conjugate([0.0, 1.0], [0.0, 0.0], eps=1.0), "uniform"),
        (lambda: soft_conjugate([0.0, 1.0], [0.0, 1.0, 2.0], eps=1.0), "one value"),
        (lambda: soft_conjugate([np.inf, np.inf], [0.0, 1.0], eps=1.0), "f must be"),
        (lambda: soft_moreau_envelope([0.0], step=1.0, eps=-1.0), "eps"),
        (
            lambda: soft_infimal_convolution(
                [0.0, 1.0], [0.0], step=1.0, eps=0.0, method="fft"
            ),
            "eps",
        ),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_the_step_is_a_cumulative_distribution():
    x = np.linspace(-40, 40, 81)
    np.testing.assert_array_equal(smoothed_step(x, 1.0), ndtr(x))
