"""
==============================================
Profiled retention that exists only in sample
==============================================

A rule that looks at nothing but the parameter of interest makes the retained nuisance
block nearly singular, and what it kept in sample is gone on fresh rows. A small share
of the nuisance block's own log determinant costs little and saves it.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skquant import ProfiledDOptimality, SoftVoronoiQuantizer
from skquant.exceptions import DegenerateInformationWarning

# %%
# Nine weights
# ------------
# 900 training rows of three scores, the first of interest; 20000 fresh rows. Open
# symbols mark fits for which skquant itself warned.
mixing = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])
scores = np.random.default_rng(1).normal(size=(900, 3)) @ mixing
fresh = np.random.default_rng(1001).normal(size=(20_000, 3)) @ mixing
weights = [0.0, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]


def fit(n_bins, nuisance_weight):
    """Return training and fresh profiled retention, and whether the fit warned."""
    quantizer = SoftVoronoiQuantizer(
        n_bins=n_bins,
        criterion=ProfiledDOptimality(interest=0, nuisance_weight=nuisance_weight),
        family="affine_max",
        n_init=2,
        random_state=0,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DegenerateInformationWarning)
        quantizer.fit(scores)
    return quantizer.retention_, quantizer.score(fresh), bool(caught), quantizer


results = {k: [fit(k, weight)[:3] for weight in weights] for k in (4, 8)}
for n_bins, rows in results.items():
    for weight, (train, new, warned) in zip(weights, rows, strict=True):
        mark = "  warned" if warned else ""
        print(f"K = {n_bins}  weight {weight:5.3f}  {train:.3f}  {new:.3f}{mark}")

# %%
# The automatic weight
# --------------------
# ``"auto"`` is 0.01 + 3 d / n_eff: 0.02 on this table.
automatic = {}
for n_bins in (4, 8):
    train, new, _, quantizer = fit(n_bins, "auto")
    automatic[n_bins] = (quantizer.criterion_.nuisance_weight, new)
    print(f"K = {n_bins}  auto: training {train:.3f}, fresh {new:.3f}")

# %%
# The picture
# -----------
figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True, layout="constrained")
x = np.arange(len(weights))
for axis, (n_bins, rows) in zip(axes, results.items(), strict=True):
    train, new, warned = map(np.array, zip(*rows, strict=True))
    for values, color, marker, name in [
        (train, "#D55E00", "s", "training rows"),
        (new, "#0072B2", "o", "fresh rows"),
    ]:
        axis.plot(x, values, "--" if marker == "s" else "-", color=color, label=name)
        axis.plot(x[~warned], values[~warned], marker, color=color)
        axis.plot(x[warned], values[warned], marker, color=color, fillstyle="none")
    place = np.interp(automatic[n_bins][0], weights, x)
    axis.plot(place, automatic[n_bins][1], "k*", markersize=13, label='"auto", fresh')
    axis.set(title=f"{n_bins} cells", xlabel="nuisance weight", ylim=(-0.03, 1))
    axis.set_xticks(x, [f"{weight:g}" for weight in weights])
    axis.grid(alpha=0.3)
axes[0].set_ylabel("profiled retention")
axes[0].legend(loc="lower right")
plt.savefig("plot_profiled_trap.png", dpi=110)
