"""
=============================================
A fitted retention is too good, as one over n
=============================================

The retention on the training rows overstates what the same rule keeps on fresh rows.
The difference falls in inverse proportion to the number of rows, if one rule is the
best. It falls more slowly if a continuum of rules is equally good.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant import DExchangeQuantizer

# %%
# Training minus fresh retention
# ------------------------------
# Rules of four cells, fitted to tables of growing size, each scored on a fresh table
# ten times as large. Scores are an exponential one beside a normal one, or two normal
# ones: then every rotation of the best rule is as good, and a fit chooses the rotation
# that suits its rows. A single difference is noisy, by one over the root of n; so the
# larger the tables the more there are.
SIZES = np.array([50, 100, 200, 400, 800, 1600])
quantizer = DExchangeQuantizer(n_bins=4, n_init=2, n_swaps=2, random_state=0)


def skewed(rng, n):
    """Return an exponential and a normal score of n events."""
    return np.column_stack([rng.exponential(size=n) - 1, rng.normal(size=n)])


def spherical(rng, n):
    """Return two normal scores of n events."""
    return rng.normal(size=(n, 2))


def difference(law, n, seed):
    """Return how much more a fit keeps of its n rows than of 10 n fresh ones."""
    table = law(np.random.default_rng([n, seed]), 11 * n)
    quantizer.fit(table[:n])
    return quantizer.retention_ - quantizer.score(table[n:])


found = {}
for law in (skewed, spherical):
    print(f"{law.__name__} scores")
    for n in SIZES:
        each = [difference(law, n, seed) for seed in range(30 + n // 12)]
        mean, error = np.mean(each), np.std(each, ddof=1) / len(each) ** 0.5
        found[law, n] = mean, error
        print(f"n = {n:4d}, {len(each):3d} fits  {mean:+.5f} +- {error:.5f}")

# %%
# The picture
# -----------
# Bars are two standard errors of the mean. Times the number of rows, a difference that
# falls as 1 / n levels off.
figure, axis = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
for law, label, style, color in [
    (skewed, "skewed scores, one best rule", "o-", "#0072B2"),
    (spherical, "spherical scores, a circle of best rules", "s--", "#D55E00"),
]:
    means, errors = SIZES * np.array([found[law, n] for n in SIZES]).T
    axis.errorbar(
        SIZES, means, 2 * errors, fmt=style, color=color, capsize=3, label=label
    )
axis.set(xscale="log", xlabel="rows of the training table", ylim=(0, 15))
axis.set_xticks(SIZES, [str(n) for n in SIZES])
axis.minorticks_off()
axis.set(ylabel="rows * (training - fresh retention)")
axis.set_title("Optimism of four cells, times the number of rows")
axis.grid(alpha=0.3)
axis.legend(loc="lower right")
plt.savefig("plot_consistency.png", dpi=110)
