"""
==============================
One fitted rule, four pictures
==============================

The displays of :mod:`skquant.plotting` answer the four questions that a fitted rule
raises: which events share a cell, would more cells keep more, did the fit settle, and
what is left in each direction.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant import DExchangeQuantizer, KMeansQuantizer, SoftVoronoiQuantizer
from skquant.plotting import (
    AnnealingDisplay,
    CellsDisplay,
    RetentionDisplay,
    SpectrumDisplay,
)

# %%
# A table and a rule
# ------------------
# Two correlated scores with heavy tails; the rule of eight cells is fitted by annealing
# its randomized relaxation.
MIXING = np.array([[1.0, 0.6], [0.0, 1.1]])


def table(n, seed):
    """Return scores of n events."""
    return np.random.default_rng(seed).standard_t(5, size=(n, 2)) @ MIXING


train, fresh = table(3000, 0), table(10_000, 1)
quantizer = SoftVoronoiQuantizer(
    n_bins=8, solver="adam", n_init=2, max_iter=300, random_state=0
).fit(train)
print(f"D retention: training {quantizer.retention_:.4f}", end=", ")
print(f"fresh {quantizer.score(fresh):.4f}")

# %%
# The four displays
# -----------------
# Every display computes from an estimator, keeps its arrays, and draws into axes of
# ours; some take the place of one axes for several panels.
figure = plt.figure(figsize=(11, 9), layout="constrained")
grid = figure.add_gridspec(3, 2, height_ratios=[1, 1, 0.8])
cells = CellsDisplay.from_estimator(
    quantizer,
    fresh,
    limits=[(-5, 5), (-5, 5)],
    max_points=2500,
    ax=figure.add_subplot(grid[:2, 0]),
)
cells.ax_.set_title("Which events share a cell?")
retention = RetentionDisplay.from_estimator(
    {
        "D-exchange": DExchangeQuantizer(n_init=2, n_swaps=5, random_state=0),
        "k-means": KMeansQuantizer(n_init=4, random_state=0),
    },
    train,
    fresh,
    n_bins=[3, 4, 6, 8, 12, 16, 24],
    criteria=["D", "E"],
    ax=figure.add_subplot(grid[0, 1]),
)
retention.ax_.set_title("Would more cells keep more?")
annealing = AnnealingDisplay.from_estimator(
    quantizer, ax=figure.add_subplot(grid[1, 1])
)
annealing.ax_[0].set_title("Did the fit settle?")
spectrum = SpectrumDisplay.from_estimator(
    quantizer, fresh, ax=figure.add_subplot(grid[2, :])
)
spectrum.ax_[1].set_title("What is kept, and by which cells?")
plt.savefig("plot_displays.png", dpi=110)
