"""
=========================================================
Smoothing by integration: steps, envelopes, and gradients
=========================================================

Noise in the argument makes a step smooth and gives a black-box function a gradient. A
soft minimum instead of a mean gives its convex envelope.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant.relaxation import (
    perturbed_gradient,
    smoothed_relu,
    smoothed_step,
    soft_biconjugate,
)

LINES = ["-", "--", "-.", ":"]
COLORS = ["#000000", "#0072B2", "#D55E00", "#009E73"]

# %%
# Step and ReLU
# -------------
# The mean over Gaussian noise of width sigma in the argument, in closed form. The step
# is the derivative of the positive part (ReLU), at every width; a width of 0 is the
# function itself.
u = np.linspace(-3, 3, 601)
sigmas = [0.0, 0.5, 1.0, 2.0]
steps = [smoothed_step(u, sigma) for sigma in sigmas]
relus = [smoothed_relu(u, sigma) for sigma in sigmas]

# %%
# A convex envelope
# -----------------
# The soft convex conjugate, taken twice, is a smooth convex function. It tends to the
# lower convex hull of the graph as its temperature eps falls.
x = np.linspace(-3, 3, 601)
wiggly = x**2 + 0.3 * np.sin(6 * np.pi * x)
hull = soft_biconjugate(wiggly, x, eps=0.0)
inside = np.abs(x) < 1.5
envelopes = {eps: soft_biconjugate(wiggly, x, eps=eps) for eps in (0.001, 0.01, 0.1)}
print("largest distance of the soft envelope to the convex hull, |u| < 1.5")
for eps, envelope in envelopes.items():
    print(f"eps = {eps:5.3f}  {np.abs(envelope - hull)[inside].max():.4f}")

# %%
# Gradients of a black box
# ------------------------
# Estimates of the derivative of the cube at 3.5, with noise of width 0.1 and no
# derivative of the cube. The plain score-function estimator is eight times as noisy as
# finite differences along the noise, which subtract the cube at 3.5 (forward) or at
# the mirrored point (central; two calls a draw). What they cannot go below is the bias
# of the smoothing itself, 3 sigma^2 = 0.03. Every error is a mean of 40 estimates.
sizes = np.array([10, 100, 1000, 10_000, 100_000])
styles = dict(score="o-", forward="s--", central="^:")
print("\nmean absolute error\ndraws        score  forward  central")
errors = {method: [] for method in styles}
for n_samples in sizes:
    for method in styles:
        estimates = perturbed_gradient(
            lambda points: points**3,
            np.full(40, 3.5),
            sigma=0.1,
            method=method,
            n_samples=int(n_samples),
            point_ndim=0,
            vectorized=True,
            random_state=0,
        )
        errors[method].append(np.abs(estimates - 3 * 3.5**2).mean())
    row = "".join(f"{errors[method][-1]:9.3f}" for method in styles)
    print(f"{n_samples:7d}  {row}")

# %%
# The picture
# -----------
figure, axes = plt.subplots(2, 2, figsize=(9, 7), layout="constrained")
for step, relu, sigma, line, color in zip(
    steps, relus, sigmas, LINES, COLORS, strict=True
):
    style = dict(linestyle=line, color=color, label=f"sigma = {sigma:g}")
    axes[0, 0].plot(u, step, **style)
    axes[0, 1].plot(u, relu, **style)
axes[0, 0].set(title="Smoothed step", xlabel="u", ylabel="mean of the step")
axes[0, 1].set(title="Smoothed ReLU", xlabel="u", ylabel="mean of the ReLU")
axes[1, 0].plot(x, wiggly, color="#999999", linewidth=1, label="function")
for (eps, envelope), line, color in zip(envelopes.items(), LINES, COLORS, strict=False):
    axes[1, 0].plot(x, envelope, linestyle=line, color=color, label=f"eps = {eps:g}")
axes[1, 0].set(xlim=(-1, 1), ylim=(-0.4, 1.2), xticks=[-1, -0.5, 0, 0.5, 1])
axes[1, 0].set(xlabel="u", ylabel="value")
axes[1, 0].set_title("Soft convex envelopes of a wiggly function")
for (method, style), color in zip(styles.items(), COLORS, strict=False):
    axes[1, 1].loglog(sizes, errors[method], style, color=color, label=method)
axes[1, 1].axhline(0.03, color="#999999", label="bias 3 sigma^2")
axes[1, 1].set(title="Derivative of the cube, sigma = 0.1", xlabel="draws")
axes[1, 1].set(ylabel="mean absolute error")
for axis in axes.flat:
    axis.grid(alpha=0.3)
    axis.legend()
plt.savefig("plot_smoothing.png", dpi=110)
