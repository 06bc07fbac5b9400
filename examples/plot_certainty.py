"""
=======================
How sure is the number?
=======================

A retention can be wrong in three ways: the rows that it was measured on are a sample,
the cells may not be the best ones, and no cells may be able to keep more. Each has its
own tool in ``skquant.inspection``.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from skquant import DExchangeQuantizer, ProfiledDOptimality
from skquant.exceptions import DegenerateInformationWarning, RuleExtensionWarning
from skquant.inspection import (
    certify_partition,
    efficient_score_bound,
    retention_interval,
)

MIXING = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])

# %%
# Intervals on fresh rows
# -----------------------
# One rule of 24 cells, scored on 800 fresh tables of 2000 rows. The retention of the
# rows as they are is too large, since every cell mean adapts to them; the estimate
# takes that out, and its 95% interval covers the truth as often as it says.
train = np.random.default_rng(0).normal(size=(4000, 3)) @ MIXING
rule = DExchangeQuantizer(24, n_init=2, n_swaps=4, random_state=0).fit(train).rule_
large = np.random.default_rng(1).normal(size=(500_000, 3)) @ MIXING
truth = retention_interval(large, rule).estimate
results = [
    retention_interval(
        np.random.default_rng([2, k]).normal(size=(2000, 3)) @ MIXING, rule
    )
    for k in range(800)
]
ends = np.array([result.interval for result in results])
estimates = np.array([result.estimate for result in results])
plug_in = np.array([result.plug_in for result in results])
errors = np.array([result.standard_error for result in results])
covered = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
naive = np.abs(plug_in - truth) <= 1.96 * errors
print(
    f"truth {truth:.4f}; coverage {covered.mean():.3f}, of plug-in {naive.mean():.3f}"
)

# %%
# Certified optima of small tables
# --------------------------------
# Branch and bound proves the optimum of tables of 30 rows. How much less does the
# exchange keep, from one start and from its defaults?
gaps = {"one start": [], "default": []}
for k in range(30):
    scores = np.random.default_rng([3, k]).normal(size=(30, 2))
    best = certify_partition(scores, 4).efficiency
    for name, options in [("one start", dict(n_init=1, n_swaps=0)), ("default", {})]:
        quantizer = DExchangeQuantizer(4, random_state=0, **options).fit(scores)
        gaps[name].append(best - quantizer.retention_)
for name, values in gaps.items():
    found = np.mean(np.array(values) < 1e-9)
    print(f"exchange, {name}: optimal in {found:.0%}, worst gap {max(values):.4f}")

# %%
# A bound for one parameter
# -------------------------
# The best intervals of the efficient score bound what any cells can keep about one
# parameter when the others are profiled out, at any number of rows.
cells = np.array([4, 6, 8, 12, 16, 24])
bounds, kept = [], []
for n_bins in cells:
    bound = efficient_score_bound(train[:2000], interest=0, n_bins=n_bins)
    criterion = ProfiledDOptimality(0, nuisance_weight=0.02)
    quantizer = DExchangeQuantizer(
        n_bins, criterion=criterion, n_init=2, n_swaps=4, random_state=0
    )
    with warnings.catch_warnings():
        # free labels under a profiled criterion are a rule's only approximately
        warnings.simplefilter("ignore", RuleExtensionWarning)
        warnings.simplefilter("ignore", DegenerateInformationWarning)
        labels = quantizer.fit(train[:2000]).labels_
    bounds.append(bound.bound)
    kept.append(bound.bound - bound.gap_to(labels))
    print(f"K = {n_bins:2d}: bound {bounds[-1]:.4f}, exchange keeps {kept[-1]:.4f}")

# %%
# The picture
# -----------
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
shown = np.arange(60)
# an interval that misses the truth is thick
for inside, color, width in [(True, "#0072B2", 1.5), (False, "#D55E00", 4)]:
    rows = shown[covered[shown] == inside]
    axes[0].vlines(rows, *ends[rows].T, color=color, linewidth=width)
axes[0].plot(shown, plug_in[shown], ".", color="#999999", markersize=4)
axes[0].axhline(truth, color="black", linewidth=1)
axes[0].set(xlabel="fresh table", ylabel="D retention")
axes[0].set_title(
    f"Intervals cover {covered.mean():.0%}, about plug-in (dots) {naive.mean():.0%}",
    fontsize=10,
)
for name, color in [("one start", "#D55E00"), ("default", "#0072B2")]:
    axes[1].plot(
        np.arange(1, 31), np.sort(gaps[name])[::-1], "o-", color=color, markersize=4
    )
worst = max(gaps["one start"])
axes[1].annotate("one start", (10, 0.7 * worst), color="#D55E00")
axes[1].annotate("default settings", (16, 0.1 * worst), color="#0072B2")
axes[1].set(xlabel="tables, worst first", ylabel="certified optimum minus exchange")
axes[1].set_title("Gap to the optimum, 30 rows in 4 cells", fontsize=10)
axes[2].plot(cells, bounds, "--", color="black")
axes[2].plot(cells, kept, "o-", color="#0072B2")
axes[2].annotate("bound of every labeling", (8, 1.008))
axes[2].annotate("exchange", (10, kept[2] - 0.03), color="#0072B2")
axes[2].set(xlabel="cells", ylabel="profiled retention of one parameter")
axes[2].set_ylim(top=1.03)
axes[2].set_title("Efficient-score bound", fontsize=10)
for axis in axes:
    axis.grid(alpha=0.3)
plt.savefig("plot_certainty.png", dpi=110)
