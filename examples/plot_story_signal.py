"""
====================================================
Event categories that know about their energy scale
====================================================

A rare signal is measured from the counts of a few event categories. The energy scale
is uncertain, and moves background where the signal is. Categories made for the signal
alone leave the two confused; the profiled criterion gives up some signal-purity and
measures both.
"""

import tempfile
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import least_squares
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import PolynomialFeatures

from skquant import (
    AffineMaxRule,
    IntervalQuantizer,
    ProfiledDOptimality,
    SoftVoronoiQuantizer,
)
from skquant.exceptions import ScoreOffsetWarning
from skquant.information import binned_fisher_information, fisher_information
from skquant.plotting import CellsDisplay
from skquant.scores import CentralDifferenceScore, IntensityScore

# the score of the background's rate is nearly constant, as it has to be
warnings.filterwarnings("ignore", category=ScoreOffsetWarning)

# %%
# Raw rows
# --------
# Simulated events have an energy in GeV, above a threshold of 20, and a quality between
# 0 and 1. 300 events of signal are expected on 20000 of background. An energy scale of
# ``1 + scale`` moves the energies of both.
SIGNAL, BACKGROUND, THRESHOLD, STEP = 300.0, 20_000.0, 20.0, 0.03


def simulate(n, seed, scale=0.0):
    """Return (energy, quality), whether signal, and weights that sum to the yields."""
    rng = np.random.default_rng(seed)
    is_signal = np.arange(n) < n // 2
    energy = np.where(is_signal, rng.gamma(16, 4.0, n), 12 + rng.exponential(18.0, n))
    quality = np.where(is_signal, rng.beta(3.0, 1.5, n), rng.beta(1.5, 2.5, n))
    # yields before the threshold, so that the scale moves events across it
    passing = np.exp(-(THRESHOLD - 12) / 18.0)
    yields = np.where(is_signal, SIGNAL, BACKGROUND / passing) / (n / 2)
    energy = energy * (1 + scale)
    kept = energy > THRESHOLD
    return np.column_stack([energy, quality])[kept], is_signal[kept], yields[kept]


# %%
# Scores from classifiers
# -----------------------
# One classifier tells signal from background and gives the scores of their yields. A
# second tells simulations of a lowered and a raised energy scale apart and gives, with
# the change of the total yield, the score of the scale.
def features(X):
    """Return smooth features of energy and quality, up to third powers."""
    energy, quality = X.T
    columns = [energy / 50 - 1, np.log(energy / 50), np.log(quality / (1 - quality))]
    return PolynomialFeatures(3, include_bias=False).fit_transform(np.array(columns).T)


X, is_signal, weights = simulate(40_000, 0)
yield_scores = IntensityScore(LogisticRegression(solver="newton-cholesky"))
yield_scores.fit(features(X), is_signal, sample_weight=weights)

low, high = simulate(100_000, 1, -STEP), simulate(100_000, 1, STEP)
totals = [low[2].sum(), high[2].sum()]
scale_score = CentralDifferenceScore(LogisticRegression(solver="newton-cholesky"), STEP)
scale_score.fit(
    features(np.vstack([low[0], high[0]])),
    np.repeat([-1, 1], [len(low[0]), len(high[0])]),
    sample_weight=np.concatenate([low[2], high[2]]),
)


def scores(X):
    """Return scores of signal strength, energy scale and background strength."""
    background, signal = (
        yield_scores.transform(features(X)) * yield_scores.intensities_
    ).T
    change = np.log(totals[1] / totals[0]) / (2 * STEP)
    scale = scale_score.transform(features(X))[:, 0] + change
    return np.column_stack([signal, scale, background])


# %%
# Three sets of six categories
# ----------------------------
# Of equal width in the signal's posterior; the best intervals for the signal strength
# alone; and a profiled rule. It is deployed as a file of eighteen slopes and six
# offsets, which NumPy alone can read.
n_bins = 6
train = scores(X)
equal_width = np.linspace(0, train[:, 0].max(), n_bins + 1)[1:-1]
strength = IntervalQuantizer(n_bins).fit(train[:, :1], sample_weight=weights)
quantizer = SoftVoronoiQuantizer(
    n_bins,
    criterion=ProfiledDOptimality(interest=0),
    family="affine_max",
    n_init=2,
    random_state=0,
).fit(train, sample_weight=weights)
with tempfile.TemporaryDirectory() as folder:
    quantizer.rule_.save(Path(folder, "categories.json"))
    profiled = AffineMaxRule.load(Path(folder, "categories.json"))
categories = {
    "equal width": lambda s: np.digitize(s[:, 0], equal_width),
    "signal alone": lambda s: strength.predict(s[:, :1]),
    "profiled": profiled.predict,
}


def strength_error(information):
    """Return the standard error of the signal strength, the others profiled out."""
    return np.sqrt(np.linalg.inv(information)[0, 0])


fresh, _, fresh_weights = simulate(200_000, 2)
fresh_scores = scores(fresh)
bound = strength_error(fisher_information(fresh_scores, fresh_weights))
print(f"error of the signal strength: {bound:.4f} without categories")
expected = {}
for name, label in categories.items():
    information = binned_fisher_information(
        fresh_scores, label(fresh_scores), fresh_weights
    )
    expected[name] = strength_error(information)
    known = information[0, 0] ** -0.5
    print(f"{name:13s} {expected[name]:.4f}, were the rest known {known:.4f}")

# %%
# Does the measurement keep the promise?
# --------------------------------------
# 200 experiments with an energy scale that is 1% high, each fitted for strength, scale
# and background by the likelihood of its counts. Templates come from fresh simulations
# at three scales; no score is used but for the categories. The fit keeps the scale
# within 6%, which only the categories of equal width feel: they hardly measure it.
TRUE_SCALE, N_EXPERIMENTS = 0.01, 200
simulations = {}
for scale in (-STEP, 0.0, STEP, TRUE_SCALE):
    # the same events, moved: what the simulation lacks in size does not shift the fits
    rows, kind, expected_yields = simulate(300_000, 3, scale)
    simulations[scale] = scores(rows), kind, expected_yields


def counts(label, scale):
    """Return expected counts of background and signal in each category."""
    table, is_signal, weights = simulations[scale]
    labels = label(table)
    return np.array(
        [
            np.bincount(labels, weights * (is_signal == kind), minlength=n_bins)
            for kind in (False, True)
        ]
    )


def fit_strength(observed, nominal, slopes, curves):
    """Return the maximum-likelihood signal strength of one experiment."""

    def deviances(parameters):
        strength, scale, background = parameters
        background_counts, signal_counts = nominal + scale * slopes + scale**2 * curves
        mean = background * background_counts + strength * signal_counts
        ratio = np.where(observed > 0, observed, mean) / mean
        half = mean - observed + observed * np.log(ratio)
        return np.sign(observed - mean) * np.sqrt(2 * np.maximum(half, 0.0))

    return least_squares(
        deviances,
        [1.0, 0.0, 1.0],
        ftol=1e-6,
        x_scale=[0.2, 0.01, 0.02],
        bounds=([0.0, -2 * STEP, 0.5], [4.0, 2 * STEP, 1.5]),
    ).x[0]


fitted = {}
rng = np.random.default_rng(4)
for name, label in categories.items():
    below, nominal, above = (counts(label, scale) for scale in (-STEP, 0.0, STEP))
    slopes = (above - below) / (2 * STEP)
    curves = (above + below - 2 * nominal) / (2 * STEP**2)
    truth = counts(label, TRUE_SCALE).sum(axis=0)
    fitted[name] = np.array(
        [
            fit_strength(rng.poisson(truth), nominal, slopes, curves)
            for _ in range(N_EXPERIMENTS)
        ]
    )
    mean, spread = fitted[name].mean(), fitted[name].std(ddof=1)
    print(f"{name:13s} strength {mean:.3f} +- {spread:.3f} over experiments")
gain = (expected["signal alone"] / expected["profiled"]) ** 2 - 1
print(f"profiled categories are worth {gain:.0%} more data than those for the signal")

# %%
# The picture
# -----------
# Left and middle: the categories, among as many events of signal as of background.
# Right: points are experiments, bars the promised errors, the band the error without
# categories.
figure, axes = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
for axis, (name, title) in zip(
    axes,
    [
        ("signal alone", "Categories for the signal alone"),
        ("profiled", "Profiled categories"),
    ],
    strict=False,
):
    CellsDisplay.from_predictions(
        fresh,
        categories[name](fresh_scores),
        limits=[(THRESHOLD, 130), (0, 1)],
        ax=axis,
        max_points=3000,
    )
    axis.set(xlabel="energy [GeV]", ylabel="quality", title=title)
jitter = np.linspace(-0.25, 0.25, N_EXPERIMENTS)
for place, (name, color) in enumerate(
    zip(categories, ["#999999", "#E69F00", "#0072B2"], strict=True)
):
    axes[2].plot(place + jitter, fitted[name], ".", color=color, markersize=3)
    axes[2].errorbar(
        place, fitted[name].mean(), expected[name], fmt="ks", capsize=6, linewidth=2
    )
    axes[2].annotate(f"error {expected[name]:.3f}", (place, 2.4), ha="center")
axes[2].axhspan(1 - bound, 1 + bound, color="#dddddd", zorder=0)
axes[2].annotate(f"without categories {bound:.3f}", (-0.45, 0.1), color="#555555")
axes[2].set_xticks(range(3), list(categories))
axes[2].set(ylabel="fitted signal strength", ylim=(0, 2.6), xlim=(-0.5, 2.5))
axes[2].set_title(f"{n_bins} categories, energy scale off by 1%")
plt.savefig("plot_story_signal.png", dpi=110)
