"""
============================================
Bins that find a signal, not only measure it
============================================

The median significance of a search, with a systematic error of the background and a
least background a bin, is no information criterion, and jumps as events change bins.
:class:`~skquant.FigureOfMeritQuantizer` maximizes it all the same: it smooths the rule
by Gaussian noise and climbs from the D-optimal bins.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant import DExchangeQuantizer, FigureOfMeritQuantizer

# %%
# A search
# --------
# 60 signal events are expected on 2000 of background. The two scores of an event are
# the derivatives of its log likelihood in the signal's strength and in a slope of the
# background that is known to a tenth.
n_bins, signal_yield, background_yield = 6, 60.0, 2000.0
slope_error, rate_error, least_background = 0.1, 0.03, 8.0
center, width = np.array([1.2, 1.2]), 0.6


def events(n, seed):
    """Scores, whether signal, and weights that sum to the expected yields."""
    rng = np.random.default_rng(seed)
    is_signal = np.arange(n) < n // 3
    x = rng.normal(size=(n, 2))
    x[is_signal] = center + width * x[is_signal]
    log_ratio = 0.5 * (x**2).sum(axis=1) - 2 * np.log(width)
    log_ratio -= 0.5 * (((x - center) / width) ** 2).sum(axis=1)
    scores = np.column_stack([np.exp(log_ratio), x[:, 1]])
    yields = np.where(
        is_signal,
        signal_yield / is_signal.sum(),
        background_yield / (~is_signal).sum(),
    )
    return scores, is_signal, yields


def significance(labels, X, y, sample_weight):
    """Median discovery significance of all bins, in standard deviations."""
    signal = np.bincount(labels, sample_weight * y, minlength=n_bins)
    background = np.bincount(labels, sample_weight * ~y, minlength=n_bins)
    tilt = np.bincount(labels, sample_weight * ~y * X[:, 1], minlength=n_bins)
    used = background >= least_background
    s, b = signal[used], background[used]
    variance = (rate_error * b) ** 2 + (slope_error * tilt[used]) ** 2
    total = s + b
    first = total * np.log(total * (b + variance) / (b**2 + total * variance))
    second = b**2 / variance * np.log1p(variance * s / (b * (b + variance)))
    return float(np.sqrt(2 * np.sum(first - second)))


# %%
# Three binnings, ten times
# -------------------------
# Bins of equal width in the output of the best classifier, D-optimal bins, and the
# optimized rule, each on events that no fit has seen.
names = ["classifier output", "D-optimal", "optimized"]
found = np.empty((10, 3))
for seed in range(10):
    X, y, weights = events(6000, seed)
    X_new, y_new, new_weights = events(60_000, 1000 + seed)
    output = X_new[:, 0] / (X_new[:, 0] + 1)
    equal_width = np.minimum((n_bins * output).astype(int), n_bins - 1)
    plain = DExchangeQuantizer(n_bins=n_bins, random_state=seed)
    plain.fit(X, sample_weight=weights)
    optimized = FigureOfMeritQuantizer(
        significance, n_bins=n_bins, max_iter=40, n_samples=8, random_state=seed
    )
    optimized.fit(X, y, sample_weight=weights)
    found[seed] = (
        significance(equal_width, X_new, y_new, new_weights),
        significance(plain.predict(X_new), X_new, y_new, new_weights),
        optimized.score(X_new, y_new, new_weights),
    )
means, errors = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(10)
for name, mean, error in zip(names, means, errors, strict=True):
    print(f"{name:17s}  {mean:.3f} +- {error:.3f}")
for name, other in zip(names[:2], found.T[:2], strict=True):
    gain = found[:, 2] - other
    error = gain.std(ddof=1) / np.sqrt(10)
    print(f"optimized - {name:17s}  {gain.mean():+.3f} +- {error:.3f}")

# %%
# The picture
# -----------
# Small points are seeds, bars two standard errors of their mean. On the right, the
# optimized cells of the last seed among fresh background (dots) and signal (crosses).
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.5), layout="constrained", width_ratios=[1, 1.2]
)
colors = ["#999999", "#0072B2", "#D55E00"]
for i, color in enumerate(colors):
    left.plot(np.full(10, i + 0.12), found[:, i], ".", color=color, markersize=4)
    left.errorbar(i, means[i], 2 * errors[i], fmt="o", color=color, capsize=4)
left.set_xticks(range(3), names)
left.set(xlim=(-0.5, 2.5), ylabel="median significance on fresh events")
left.set_title(f"A search with {n_bins} bins")
left.grid(alpha=0.3)
labels = optimized.predict(X_new)
for marker, kind, n_shown in ((".", ~y_new, 2500), ("x", y_new, 250)):
    shown = np.flatnonzero(kind)[:n_shown]
    right.scatter(
        np.log10(X_new[shown, 0]),
        X_new[shown, 1],
        c=labels[shown],
        s=12,
        marker=marker,
        cmap="viridis",
        vmin=0,
        vmax=n_bins - 1,
        linewidths=0.8,
    )
right.set(xlabel="log10 of the first score (density ratio)", ylabel="second score")
right.set(xlim=(-4, 1.5), ylim=(-2.5, 3.5))
right.set_title("The optimized cells")
plt.savefig("plot_figure_of_merit.png", dpi=110)
