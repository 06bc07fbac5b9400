"""
==================================================
A randomized rule cools, and its hard rule is kept
==================================================

A randomized rule is optimized while its temperature falls. It starts far below the
hard rule that its centers imply, and meets it at the end: the difference, the
hardening gap, closes with the end temperature.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant import SoftVoronoiQuantizer

# %%
# One cooling
# -----------
# Four cells of 1200 correlated normal scores. Adam follows the gradient of the
# randomized rule's information, exact at every temperature.
mixing = np.array([[1.0, 0.5], [0.0, 1.2]])
scores = np.random.default_rng(120).normal(size=(1200, 2)) @ mixing
quantizer = SoftVoronoiQuantizer(
    n_bins=4, solver="adam", record_every=10, random_state=0
).fit(scores)
history = quantizer.history_
print(f"k-means start  {history.hard_retention[0]:.6f}")
print(f"deployed rule  {quantizer.retention_:.6f}")
print(f"hardening gap  {quantizer.hardening_gap_:+.1e}")

# %%
# Six end temperatures
# --------------------
# The gap is negative while the end is warm: diffuse responsibilities pull all cell
# means together, and hardening takes them apart again.
end_ratios = np.array([0.8, 0.5, 0.3, 0.2, 0.1, 0.05])
gaps = [
    SoftVoronoiQuantizer(
        n_bins=4, solver="adam", n_init=1, temperature_end_ratio=ratio, random_state=0
    )
    .fit(scores)
    .hardening_gap_
    for ratio in end_ratios
]
for ratio, gap in zip(end_ratios, gaps, strict=True):
    print(f"end ratio {ratio:4.2f}  gap {gap:+.2e}")

# %%
# The picture
# -----------
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
left.plot(history.steps, history.soft_retention, "o-", color="#0072B2", markersize=4)
left.plot(history.steps, history.hard_retention, "s--", color="#D55E00", markersize=4)
left.annotate("hard rule", (60, 0.66), color="#D55E00")
left.annotate("randomized rule", (130, 0.55), color="#0072B2")
left.set(xlabel="update", ylabel="D retention", title="Retention while cooling")
left.set(ylim=(0, 0.75))
scale = left.twinx()
scale.semilogy(history.steps, history.temperature, ":", color="#555555")
scale.set_ylabel("temperature (dotted), whitened units")
right.loglog(end_ratios, np.abs(gaps), "o-", color="#0072B2")
right.set(xlabel="end temperature over start temperature")
right.set(ylabel="absolute hardening gap", title="The gap closes with the temperature")
right.set_xticks(end_ratios, [f"{ratio:g}" for ratio in end_ratios])
right.minorticks_off()
right.grid(alpha=0.3)
plt.savefig("plot_cooling.png", dpi=110)
