"""
======================================================
A coin flip replaced by a rule that keeps every moment
======================================================

Drawing labels at random from responsibilities misses the cell weights and moments
of the randomized rule by the noise of the draw. A deterministic rule meets them many
times more closely on the same rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant.information import (
    binned_fisher_information,
    fisher_information,
    fractional_fisher_information,
)
from skquant.purification import purify

# %%
# A randomized rule
# -----------------
# Four centers at a temperature of 0.8: rows between them may go either way.
rng = np.random.default_rng(12)
scores = rng.normal(size=(2000, 2))
centers = np.array([[1.5, 0.4], [-1.2, 1.2], [-0.5, -1.6], [0.9, -0.5]])
logits = -np.sum((scores[:, None] - centers) ** 2, axis=2) / (2 * 0.8**2)
responsibilities = np.exp(logits - logits.max(axis=1, keepdims=True))
responsibilities /= responsibilities.sum(axis=1, keepdims=True)


def draw():
    """One label a row from its responsibilities."""
    return (responsibilities.cumsum(axis=1) > rng.uniform(size=(2000, 1))).argmax(
        axis=1
    )


def errors(labels):
    """Largest error of a weight or a moment, over the number of rows."""
    difference = np.eye(4)[labels] - responsibilities
    moments = difference.T @ np.column_stack([np.ones(2000), scores])
    return np.abs(moments).max() / 2000


# %%
# Purified
# --------
purified = purify(scores, responsibilities)
coin = draw()
coin_errors = [errors(draw()) for _ in range(400)]
own_error = errors(purified.labels)
print(f"coin flip, median error  {np.median(coin_errors):.5f} of the rows")
print(f"purified labels          {own_error:.5f}")


def retention(information):
    """Geometric mean of the retained eigenvalues."""
    full = np.linalg.det(fisher_information(scores))
    return np.sqrt(np.linalg.det(information) / full)


soft = fractional_fisher_information(scores, responsibilities)
print(f"retention of the randomized rule  {retention(soft):.5f}")
for name, labels in [("coin flip", coin), ("purified", purified.labels)]:
    kept = retention(binned_fisher_information(scores, labels))
    print(f"retention of {name:20s} {kept:.5f}")

# %%
# The picture
# -----------
# The purified cells are not nearest-center cells: their boundaries are curved, so
# that four regions can have the twelve moments of a blurred rule.
colors = plt.get_cmap("cividis")([0.0, 0.4, 0.7, 1.0])
figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
panels = [("Coin flip", coin), ("Purified", purified.labels)]
for axis, (name, labels) in zip(axes, panels, strict=False):
    for cell, marker in enumerate("os^D"):
        chosen = scores[labels == cell]
        axis.scatter(*chosen.T, s=9, marker=marker, color=colors[cell], alpha=0.7)
    axis.plot(*centers.T, "k+", markersize=12, markeredgewidth=2)
    axis.set(title=name, xlabel="first score", ylabel="second score", aspect="equal")
    axis.set(xlim=(-3.5, 3.5), ylim=(-3.5, 3.5))
axes[2].hist(coin_errors, bins=30, color="#BBBBBB", label="400 coin flips")
axes[2].axvline(own_error, color="#0072B2", linewidth=2.5, label="purified")
axes[2].set(title="Largest error of a weight or moment", ylabel="coin flips")
axes[2].set(xlabel="share of the rows", xlim=(0, None))
axes[2].legend()
plt.savefig("plot_purification.png", dpi=110)
