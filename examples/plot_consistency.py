"""
=============================================
A fitted retention is too good, as one over n
=============================================

The retention on the training rows overstates what the same rule keeps on fresh rows.
The difference falls in inverse proportion to the number of rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant import DExchangeQuantizer

# %%
# Training minus fresh retention
# ------------------------------
# Rules of four cells, fitted to tables of growing size, twelve times each, scored on
# the same 20000 fresh rows.
mixing = np.array([[1.0, 0.5], [0.0, 1.2]])
fresh = np.random.default_rng(999).normal(size=(20_000, 2)) @ mixing
sizes = np.array([100, 200, 400, 800, 1600, 3200, 6400])
differences = np.empty((len(sizes), 12))
for i, n in enumerate(sizes):
    for repetition in range(12):
        table = np.random.default_rng([n, repetition]).normal(size=(n, 2)) @ mixing
        quantizer = DExchangeQuantizer(n_bins=4, n_init=4, n_swaps=4, random_state=0)
        quantizer.fit(table)
        differences[i, repetition] = quantizer.retention_ - quantizer.score(fresh)
means = differences.mean(axis=1)
errors = differences.std(axis=1, ddof=1) / np.sqrt(12)
for n, mean, error in zip(sizes, means, errors, strict=True):
    print(f"n = {n:5d}  train - fresh = {mean:+.5f} +- {error:.5f}")

# %%
# The picture
# -----------
# Small points are single fits, bars two standard errors of their mean. Single fits of
# large tables scatter about zero: those below are not on a logarithmic axis.
figure, axis = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
for i, n in enumerate(sizes):
    axis.plot(np.full(12, n), differences[i], ".", color="#999999", markersize=4)
axis.errorbar(sizes, means, 2 * errors, fmt="o", color="#0072B2", capsize=3)
axis.plot(sizes, means[0] * sizes[0] / sizes, "--", color="#D55E00")
axis.annotate("proportional to 1 / n", (110, means[0] * 0.15), color="#D55E00")
axis.set(xscale="log", yscale="log", xlabel="rows of the training table")
axis.set(ylabel="training minus fresh retention", ylim=(1e-5, 0.2))
axis.set_title("Optimism of four cells, two parameters")
axis.grid(alpha=0.3)
plt.savefig("plot_consistency.png", dpi=110)
