"""Rows G and T: Gumbel tricks on one-hot labels and gradients of sampled labels."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import softmax
from scipy.stats import gumbel_r, kstest

from skquant.relaxation import (
    RunningMean,
    argmax_probabilities,
    concrete_logpdf,
    conditional_gumbel,
    exact_gradient,
    expected_max,
    gumbel_max,
    gumbel_quantile,
    gumbel_softmax,
    perturbed_comparison,
    sample_gumbel,
    score_function_gradient,
    straight_through_gradient,
)

MU3 = np.array([0.5, 0.0, -0.5])
A, C = np.array([2.0, 1.5, 1.5]), np.array([0.7, 0.0, 0.3])
TRUE = [-0.24498551, 0.20468404, 0.04030147]
N = 200_000


def near(actual, expected, digits=8):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0.51 * 10.0**-digits)


def chosen_grad(x):
    """Gradient of sum a (x - c)^2 / 2."""
    return A * (x - C)


CHOSEN = np.array([0.5 * np.sum(A * (x - C) ** 2) for x in np.eye(3)])


def frequencies(index, n):
    return np.bincount(index.ravel(), minlength=n) / index.size


def assert_frequencies(index, right):
    right = np.asarray(right)
    error = np.sqrt(right * (1 - right) / index.size)
    assert (np.abs(frequencies(index, len(right)) - right) < 4 * error).all()


# --- the law -------------------------------------------------------------------------


def test_gumbel_law():  # G1, G2, erratum E1
    noise = sample_gumbel(N, random_state=0)
    law = gumbel_r(loc=-np.euler_gamma)
    assert kstest(noise, law.cdf).pvalue > 1e-3
    assert abs(noise.mean()) < 4 * np.sqrt(1.6449340668 / N)
    fourth = 1.6449340668**2 * 4.4  # excess kurtosis 12 / 5, less 1
    assert abs(noise.var() - 1.6449340668) < 4 * np.sqrt(fourth / N) < 0.16
    rate = np.exp(0.7 - np.euler_gamma)
    tail = np.mean(np.exp(-(0.7 + noise)) > 0.5)
    assert abs(tail - 0.56817814) < 4 * np.sqrt(0.25 / N)
    near(np.exp(-rate * 0.5), 0.56817814)


def test_quantile():  # G3, erratum E2
    law = gumbel_r(loc=-np.euler_gamma)
    near(law.cdf(0.4), 0.68635688)
    near(gumbel_quantile(0.68635688), 0.4, 7)
    u = np.linspace(0.001, 0.999, 50)
    np.testing.assert_allclose(gumbel_quantile(u), law.ppf(u), rtol=1e-12)
    np.testing.assert_allclose(gumbel_quantile(u, loc=2, scale=3), 2 + 3 * law.ppf(u))
    assert gumbel_quantile(0.0) == -np.inf and gumbel_quantile(1.0) == np.inf


def test_the_tail_is_not_cut():  # bugs 6, 7
    # float32 uniforms end at 16.6 standard units; nothing here does
    class Zero:
        def standard_exponential(self, shape):
            return np.zeros(shape)

    from skquant._noise import sample_noise

    assert 36 < sample_noise("gumbel", 3, Zero()).max() < 38
    # one favourite and 2000 others, together one percent of the probability
    logits = np.r_[0.0, np.full(2000, np.log(1e-2 / 2000))]
    wins = np.count_nonzero(gumbel_max(logits, n_samples=4000, random_state=0))
    assert 15 < wins < 70  # Poisson of mean 39.6


def test_comparison():  # G4
    near(perturbed_comparison(0.4, -0.1, scale=0.7), 0.67134745)
    assert perturbed_comparison(1.0, 1.0, scale=0.0) == 0.5
    np.testing.assert_array_equal(perturbed_comparison([0, 2.0], 1, scale=0), [0, 1])
    noise = sample_gumbel((2, N), scale=0.7, random_state=0)
    wins = np.mean(0.4 + noise[0] > -0.1 + noise[1])
    assert abs(wins - 0.67134745) < 4 * np.sqrt(0.22 / N)


@pytest.mark.parametrize(
    "scale, right",
    [
        (1.0, [0.50648039, 0.30719589, 0.18632372]),
        (0.5, [0.66524096, 0.24472847, 0.09003057]),
        (0.1, [0.99326236, 0.00669255, 0.0000450940]),
    ],
)
def test_perturbed_argmax(scale, right):  # G5
    near(argmax_probabilities(MU3, scale=scale), right)
    noise = sample_gumbel((N, 3), scale=scale, random_state=0)
    assert_frequencies(np.argmax(MU3 + noise, axis=1), right)


def test_perturbed_max():  # G6
    near(expected_max(MU3), 1.18026967)
    near(expected_max(MU3, scale=0.5), 0.70380298)
    assert expected_max([3.0]) == 3.0
    assert expected_max([1.0, 2.0], scale=0.0) == 2.0
    # regularized view (G11), scale 0.7
    near(expected_max(MU3, scale=0.7), 0.88335825)
    p = argmax_probabilities(MU3, scale=0.7)
    near(MU3 @ p - 0.7 * np.sum(p * np.log(p)), 0.88335825)


def test_probit():  # G7
    near(argmax_probabilities(MU3, noise="normal"), [0.54874372, 0.3009257, 0.15033058])
    near(expected_max([0.5, 0.0], noise="normal"), 0.84908866)
    far = argmax_probabilities([0.0, -6.0], noise="normal")
    np.testing.assert_allclose(far[1], 1.1045e-5, rtol=1e-3)  # Phi(-6 / sqrt 2)


def test_sampling_without_probabilities():  # G8
    assert_frequencies(
        gumbel_max(MU3, n_samples=N, random_state=0),
        [0.50648039, 0.30719589, 0.18632372],
    )
    pairs = gumbel_max(MU3, n_samples=N, k=2, random_state=1)
    assert pairs.shape == (N, 2) and (pairs[:, 0] != pairs[:, 1]).all()
    inclusion = frequencies(pairs, 3) * 2
    right = np.array([0.84703752, 0.69280411, 0.46015837])
    error = np.sqrt(right * (1 - right) / N)
    assert (np.abs(inclusion - right) < 4 * error).all()


def test_minus_infinity_never_wins():
    logits = [0.0, -np.inf, 1.0]
    assert not (gumbel_max(logits, n_samples=1000, random_state=0) == 1).any()
    assert argmax_probabilities(logits)[1] == 0.0
    assert argmax_probabilities(logits, noise="normal")[1] == 0.0
    assert gumbel_softmax(logits, temperature=0.5, random_state=0)[1] == 0.0


# --- relaxed samples -----------------------------------------------------------------


@pytest.mark.parametrize(
    "temperature, right",
    [(1.0, 0.58264504), (0.5, 0.60580317), (0.1, 0.62153168), (0.01, 0.62244987)],
)
def test_mean_of_gumbel_softmax(temperature, right):  # G12
    found = gumbel_softmax(
        [0.5, 0.0], temperature=temperature, n_samples=N, random_state=0
    )[:, 0]
    assert abs(found.mean() - right) < 4 * found.std() / np.sqrt(N) < 0.06

    def integrand(u):
        z = np.log(u) - np.log1p(-u)
        return 1.0 / (1.0 + np.exp(-np.clip((0.5 + z) / temperature, -700, 700)))

    breaks = 1.0 / (1.0 + np.exp(0.5))
    near(quad(integrand, 0, 1, points=[breaks], limit=400, epsabs=1e-12)[0], right)


def test_gumbel_softmax_at_temperature_zero_is_one_hot():  # bug 5
    hard = gumbel_softmax(MU3, temperature=0.0, n_samples=50, random_state=0)
    soft = gumbel_softmax(MU3, temperature=1.0, n_samples=50, random_state=0)
    assert set(np.unique(hard)) == {0.0, 1.0}
    np.testing.assert_array_equal(hard.argmax(axis=1), soft.argmax(axis=1))
    log = gumbel_softmax(MU3, temperature=1e-3, n_samples=50, log=True, random_state=0)
    assert np.isfinite(log).all()


def test_concrete_density():  # G13
    density = np.exp(concrete_logpdf(np.log([0.3, 0.7]), [0.5, 0.0], 0.5))
    near(density, 0.4843734, 7)
    point = np.log([0.5, 0.3, 0.2])
    near(np.exp(concrete_logpdf(point, MU3, 1.5)), 5.358465, 6)
    near(np.exp(concrete_logpdf(point, MU3, 0.5)), 0.574084, 6)
    assert concrete_logpdf([0.0], [3.0], 0.7) == pytest.approx(0.0)

    def pdf(t):
        return float(np.exp(concrete_logpdf(np.log([t, 1 - t]), [0.5, 0.0], 0.5)))

    assert quad(pdf, 1e-12, 1 - 1e-12, limit=200)[0] == pytest.approx(1.0, abs=1e-4)


def test_concrete_density_of_its_own_draws():  # bugs 8, 9
    draws = gumbel_softmax(
        [-5.0, 0.0], temperature=0.05, n_samples=1000, log=True, random_state=0
    )
    assert np.isfinite(concrete_logpdf(draws, [-5.0, 0.0], 0.05)).all()
    logits = np.zeros((5, 2))
    temperature = np.full((5, 1), 0.7)
    point = np.log(np.full((5, 2), 0.5))
    assert concrete_logpdf(point, logits, temperature).shape == (5,)


# --- conditional noise ---------------------------------------------------------------


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_conditional_gumbels(winner):  # T4
    found = conditional_gumbel(MU3, winner, n_samples=N, random_state=0)
    assert (found.argmax(axis=1) == winner).all()
    # mean-zero convention: the printed mean less Euler's constant
    right = 1.75748534 - np.euler_gamma
    assert abs(found[:, winner].mean() - right) < 4 * np.sqrt(1.645 / N)
    plain = MU3 + sample_gumbel((4 * N, 3), random_state=1)
    rejected = plain[plain.argmax(axis=1) == winner]
    for j in range(3):
        assert kstest(found[:20_000, j], rejected[:20_000, j]).pvalue > 1e-4
    np.testing.assert_allclose(np.cov(found.T), np.cov(rejected.T), atol=0.03)


def test_conditional_gumbels_of_large_logits():  # bug N5
    found = conditional_gumbel([1000.0, 0.0], [0, 1], n_samples=100, random_state=0)
    assert found.shape == (100, 2, 2) and np.isfinite(found).all()
    np.testing.assert_array_equal(found.argmax(axis=2), [[0, 1]] * 100)
    some = conditional_gumbel([0.0, -np.inf, 1.0], 0, n_samples=10, random_state=0)
    assert (some[:, 1] == -np.inf).all() and (some[:, 0] > some[:, 2]).all()


# --- gradients of sampled labels -----------------------------------------------------


def single(n_samples, n=100_000, temperature=0.5, grad=chosen_grad, logits=MU3, seed=0):
    """Independent one-label estimates."""
    batch = np.broadcast_to(logits, (n, len(logits)))
    return straight_through_gradient(
        grad, batch, temperature=temperature, n_samples=n_samples, random_state=seed
    )


def trace(estimates):
    return np.trace(np.cov(estimates.T))


def test_exact_gradient():  # T1, T6
    near(exact_gradient(CHOSEN, MU3), TRUE)
    p = softmax(MU3)
    np.testing.assert_allclose(
        exact_gradient(CHOSEN, MU3), (np.diag(p) - np.outer(p, p)) @ CHOSEN
    )
    for i in range(3):
        step = 1e-6 * np.eye(3)[i]
        slope = (softmax(MU3 + step) - softmax(MU3 - step)) @ CHOSEN / 2e-6
        assert slope == pytest.approx(TRUE[i], abs=1e-8)
    assert exact_gradient([4.0], [1.0]) == 0.0


def test_jacobian_peak():  # T2
    # at a tie, of the first entry by the first logit
    one = gumbel_softmax([0.0, 1e-7], temperature=0.1, noise=[0, 0])
    two = gumbel_softmax([0.0, -1e-7], temperature=0.1, noise=[0, 0])
    assert (two - one)[0] / 2e-7 == pytest.approx(2.5, rel=1e-6)


@pytest.mark.parametrize(
    "temperature, mean, plain, averaged",
    [
        (1.0, 0.063128, 0.01797, 0.01381),
        (0.5, 0.071543, 0.04364, 0.02190),
        (0.1, 0.064209, 0.24319, 0.02768),
        (0.01, 0.059345, 2.44756, 0.02789),
    ],
)
def test_straight_through_in_two_categories(temperature, mean, plain, averaged):  # T3
    def grad(x):
        # slopes of the loss along the edge, at its two ends
        return np.stack([x @ [1.0, -0.5], np.zeros(x.shape[:-1])], axis=-1)

    logits = np.array([0.5, 0.0])
    options = dict(temperature=temperature, grad=grad, logits=logits)
    st = single(1, 400_000, **options)[:, 0]
    rao = single(400, 4000, **options)[:, 0]
    for found, variance in [(st, plain), (rao, averaged)]:
        error = found.std() / np.sqrt(len(found))
        assert abs(found.mean() - mean) < 4 * error
        spread = np.std((found - found.mean()) ** 2) / np.sqrt(len(found))
        if found is st:
            assert abs(found.var() - variance) < 4 * spread
            assert 4 * spread < 0.25 * variance
        else:
            # the rest of the variance falls like 1 / 400
            extra = plain / 400
            assert abs(found.var() - variance) < 4 * spread + extra


def test_variances_of_straight_through_and_gumbel_rao():  # T5 and its box
    st, rao10, rao100 = single(1), single(10, 40_000), single(100, 10_000)
    for found, right in [(st, 0.5505), (rao10, 0.3419), (rao100, 0.3210)]:
        assert trace(found) == pytest.approx(right, rel=0.04)
        error = found.std(axis=0) / np.sqrt(len(found))
        assert (
            np.abs(found.mean(axis=0) - [-0.1612, 0.1602, 0.0010]) < 4 * error
        ).all()


def test_the_mean_is_not_that_of_a_gradient_through_the_noise():  # bug N6
    mean = single(10, 40_000).mean(axis=0)
    assert np.abs(mean - [-0.013, 0.028, -0.015]).max() > 0.1


def test_gumbel_rao_has_a_bounded_variance():
    plain = [trace(single(1, 40_000, t)) for t in (0.5, 0.1, 0.02)]
    averaged = [trace(single(400, 1500, t)) for t in (0.5, 0.1, 0.02)]
    assert plain[2] > 3 * plain[1] > 6 * plain[0]
    assert averaged[2] < 2.5 * averaged[0]


@pytest.mark.parametrize(
    "temperature, bias", [(0.5, 0.01060), (0.1, 0.00039), (0.02, 0.0)]
)
def test_bias_vanishes_with_the_temperature(temperature, bias):  # T9
    found = single(50, 40_000, temperature)
    difference = found.mean(axis=0) - TRUE
    noise = trace(found) / len(found)
    tolerance = 8 * np.sqrt(bias * noise) + 6 * noise
    assert difference @ difference == pytest.approx(bias, abs=tolerance)


def test_law_of_total_variance():  # T8
    # K = 10 draws given the label, batches of B = 20
    batch = np.broadcast_to(MU3, (4000, 3))
    found = straight_through_gradient(
        chosen_grad, batch, temperature=0.5, n_samples=10, batch_size=20, random_state=0
    )
    assert trace(found) == pytest.approx(0.01709478, rel=0.05)


def test_score_function_baselines():  # T6
    def loss(index):
        return CHOSEN[index]

    def estimates(baseline, n_samples=1, n=200_000):
        batch = np.broadcast_to(MU3, (n, 3))
        return score_function_gradient(
            loss, batch, n_samples=n_samples, baseline=baseline, random_state=0
        )

    mean_loss = float(softmax(MU3) @ CHOSEN)
    for baseline, right in [(None, 0.44494), (mean_loss, 0.05463), (0.81599, 0.03586)]:
        found = estimates(baseline)
        assert trace(found) == pytest.approx(right, rel=0.03)
        error = found.std(axis=0) / np.sqrt(len(found))
        assert (np.abs(found.mean(axis=0) - TRUE) < 4 * error).all()
    for baseline, factor in [("leave-one-out", 1.0), ("batch-mean", 0.5)]:
        found = estimates(baseline, n_samples=2, n=100_000)
        error = found.std(axis=0) / np.sqrt(len(found))
        assert (np.abs(found.mean(axis=0) - factor * np.array(TRUE)) < 4 * error).all()


def test_a_baseline_that_depends_on_the_input():  # T7
    shift = np.repeat([0.0, 3.0], 50_000)

    def loss(index):
        return CHOSEN[index] + shift

    batch = np.broadcast_to(MU3, (100_000, 3))
    mean_loss = float(softmax(MU3) @ CHOSEN)
    options = dict(n_samples=1, random_state=0)
    constant = score_function_gradient(loss, batch, baseline=mean_loss + 1.5, **options)
    fitted = score_function_gradient(
        loss, batch, baseline=lambda x: mean_loss + x, features=shift, **options
    )
    assert trace(fitted) == pytest.approx(0.05463, rel=0.03)
    assert trace(constant) == pytest.approx(1.43701, rel=0.03)


def test_running_mean_is_read_before_it_is_updated():
    baseline = RunningMean(0.5)
    kwargs = dict(n_samples=1, random_state=0)

    def loss(index):
        return CHOSEN[index]

    first = score_function_gradient(loss, MU3, baseline=baseline, **kwargs)
    none = score_function_gradient(loss, MU3, baseline=None, **kwargs)
    np.testing.assert_array_equal(first, none)
    assert baseline.value in CHOSEN


def test_one_draw_has_no_batch_baseline():  # bug 23
    for baseline in ("leave-one-out", "batch-mean"):
        with pytest.raises(ValueError, match="n_samples"):
            score_function_gradient(
                lambda i: i * 1.0, MU3, n_samples=1, baseline=baseline
            )


# --- properties and bad input --------------------------------------------------------


def test_batch_rows_and_seeds():
    batch = np.random.default_rng(0).normal(size=(4, 1, 3)).astype(np.float32)
    batch.setflags(write=False)
    for function in [argmax_probabilities, expected_max]:
        whole = function(batch)
        np.testing.assert_allclose(whole[2, 0], function(batch[2, 0]), rtol=1e-12)
        shifted = function(batch + np.float32(4))
        extra = 4.0 if function is expected_max else 0.0
        np.testing.assert_allclose(shifted, whole + extra, rtol=1e-5)
    for draw in [
        lambda: gumbel_max(batch, k=2, n_samples=3, random_state=5),
        lambda: gumbel_softmax(batch, temperature=0.3, random_state=5),
        lambda: conditional_gumbel(batch, 0, random_state=5),
    ]:
        np.testing.assert_array_equal(draw(), draw())


@pytest.mark.parametrize("logits", [[np.nan, 0.0], [np.inf, 0.0], [-np.inf, -np.inf]])
@pytest.mark.parametrize(
    "function",
    [
        argmax_probabilities,
        expected_max,
        gumbel_max,
        lambda x: gumbel_softmax(x, temperature=1.0),
        lambda x: conditional_gumbel(x, 0),
        lambda x: concrete_logpdf(np.log([0.5, 0.5]), x, 1.0),
        lambda x: exact_gradient([0.0, 1.0], x),
        lambda x: straight_through_gradient(lambda h: h, x, temperature=1.0),
        lambda x: score_function_gradient(lambda i: i * 1.0, x, n_samples=2),
    ],
)
def test_bad_logits(function, logits):
    with pytest.raises(ValueError, match="logits"):
        function(logits)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: gumbel_softmax(MU3, temperature=-1.0), "temperature"),
        (lambda: concrete_logpdf(np.log([0.5, 0.5]), [0, 0], 0.0), "temperature"),
        (lambda: concrete_logpdf(np.log([0.5, 0.6]), [0, 0], 1.0), "log_t"),
        (lambda: concrete_logpdf([0.0, -np.inf], [0, 0], 1.0), "log_t"),
        (
            lambda: straight_through_gradient(chosen_grad, MU3, temperature=0.0),
            "temperature",
        ),
        (lambda: gumbel_max(MU3, k=4), "k must be"),
        (lambda: gumbel_max([0.0, -np.inf], k=2), "k must be"),
        (lambda: conditional_gumbel(MU3, 3), "index"),
        (lambda: conditional_gumbel([0.0, -np.inf], 1), "index"),
        (lambda: conditional_gumbel(MU3, 0.5), "index"),
        (lambda: sample_gumbel(3, scale=-1.0), "scale"),
        (lambda: gumbel_quantile(1.5), "u must"),
        (lambda: exact_gradient([1.0, 2.0], MU3), "loss_values"),
        (lambda: RunningMean(1.0), "decay"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()
