"""
=========================
What a least weight costs
=========================

Cells of few simulated events are of no use in a fit. A limit on their weight, or on the
relative error of their simulated sums, costs information; here is how much.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant import CellConstraints, DExchangeQuantizer, IntervalQuantizer

# %%
# A table with tails
# ------------------
# Two scores with heavy tails. Without limits the rule spends cells on the tails, where
# single events carry much information.
rng = np.random.default_rng(3)
scores = rng.standard_t(3, size=(4000, 2)) @ np.array([[1.0, 0.5], [0.0, 1.2]])
weights = rng.lognormal(sigma=0.5, size=len(scores))
total, n_bins = weights.sum(), 8
free = DExchangeQuantizer(n_bins, random_state=0).fit(scores, sample_weight=weights)
print(f"lightest cell without limits: {free.cell_weights_.min() / total:.1%}")

# %%
# Retention against the limit
# ---------------------------
# Heavy tails make every limit cost something; the last one leaves all cells nearly the
# same weight. For one score the intervals are the best that satisfy it.
shares = np.array([0.01, 0.02, 0.03, 0.045, 0.06, 0.075, 0.09, 0.105, 0.118])


def retentions(quantizer, table):
    kept = []
    for share in shares:
        quantizer.set_params(constraints=CellConstraints(min_weight=share * total))
        quantizer.fit(table, sample_weight=weights)
        assert quantizer.cell_weights_.min() >= share * total * (1 - 1e-9)
        kept.append(quantizer.retention_)
    return np.array(kept)


rules = retentions(DExchangeQuantizer(n_bins, random_state=0), scores)
intervals = retentions(IntervalQuantizer(n_bins), scores[:, :1])
for share, *kept in zip(shares, rules, intervals, strict=True):
    print(f"at least {share:5.1%}: two scores {kept[0]:.4f}, one score {kept[1]:.4f}")

# %%
# The picture
# -----------
# On the right the cells at a limit of nine percent: all of them reach to the middle.
limits = CellConstraints(min_weight=0.09 * total, max_relative_error=0.06)
limited = DExchangeQuantizer(n_bins, constraints=limits, random_state=0)
limited.fit(scores, sample_weight=weights)
print(limited.constraint_report_)

figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
axes[0].plot(100 * shares, rules, "o-", color="#0072B2", label="two scores, rule")
axes[0].plot(100 * shares, intervals, "s--", color="#D55E00", label="one, intervals")
axes[0].set(xlabel="least weight of a cell, percent of all", ylabel="D retention")
axes[0].set(title="Retention against the limit")
axes[0].legend(frameon=False)
axes[0].grid(alpha=0.3)
for ax, quantizer, title in zip(
    axes[1:], (free, limited), ("Without limits", "At least 9 percent"), strict=True
):
    labels = quantizer.labels_
    ax.scatter(*scores.T, c=labels, s=4, cmap="tab10", vmin=0, vmax=9)
    ax.set(xlim=(-8, 8), ylim=(-8, 8), title=title, xlabel="score 0", ylabel="score 1")
plt.savefig("plot_constraints.png", dpi=110)
