"""
=========================================================
Gradients of sampled labels: their variance at equal cost
=========================================================

A loss of a sampled one-hot label has a gradient by its logits that can be estimated in
three ways. Averaging the noise behind the label (Gumbel-Rao) keeps the straight-through
estimate's mean and makes low temperatures affordable, where its bias vanishes.
"""

import matplotlib.pyplot as plt
import numpy as np

from skquant.relaxation import (
    exact_gradient,
    score_function_gradient,
    straight_through_gradient,
)

# %%
# A quadratic loss of eight categories
# ------------------------------------
# One unit of cost is one evaluation of the loss or its gradient. The score function
# spends two of them on two labels, each the baseline of the other; the other two
# estimators average two labels as well. The 100 draws of noise that Gumbel-Rao adds for
# each label evaluate nothing.
rng = np.random.default_rng(0)
n_categories, n_labels, n_repeats = 8, 2, 6000
logits = rng.normal(size=n_categories)
curvatures = rng.uniform(0.5, 2.0, n_categories)
center = rng.dirichlet(np.ones(n_categories))


def loss(index):
    onehot = np.eye(n_categories)[index]
    return 0.5 * np.sum(curvatures * (onehot - center) ** 2, axis=-1)


def loss_grad(onehot):
    return curvatures * (onehot - center)


truth = exact_gradient(loss(np.arange(n_categories)), logits)
repeats = np.broadcast_to(logits, (n_repeats, n_categories))


def variance_and_bias(estimates):
    """Trace of the covariance and squared bias, free of what noise adds to it."""
    variance = estimates.var(axis=0, ddof=1).sum()
    bias = np.sum((estimates.mean(axis=0) - truth) ** 2) - variance / len(estimates)
    return variance, max(bias, 0.0)


# %%
# Against the temperature
# -----------------------
# The variance of the straight-through estimate grows like one over the temperature.
# That of Gumbel-Rao stays bounded but for a hundredth of that growth, and the bias of
# both falls. The score function knows no temperature and no bias, and on this loss its
# baseline serves it well. With eight categories one would enumerate the losses instead:
# `exact_gradient` has neither variance nor bias.
score = score_function_gradient(loss, repeats, n_samples=n_labels, random_state=0)
score_variance, _ = variance_and_bias(score)
temperatures = np.array([2.0, 1.0, 0.5, 0.2, 0.1, 0.05, 0.02])
table = {1: [], 100: []}
for temperature in temperatures:
    for n_samples, rows in table.items():
        estimates = straight_through_gradient(
            loss_grad,
            repeats,
            temperature=temperature,
            n_samples=n_samples,
            batch_size=n_labels,
            random_state=0,
        )
        rows.append(variance_and_bias(estimates))
plain, averaged = (np.array(rows) for rows in table.values())
print(f"squared length of the true gradient  {truth @ truth:.5f}")
print(f"variance of the score function       {score_variance:.5f}\n")
print("temperature  straight-through  Gumbel-Rao  squared bias")
for i, temperature in enumerate(temperatures):
    print(
        f"{temperature:11.2f}  {plain[i, 0]:16.5f}  {averaged[i, 0]:10.5f}  "
        f"{averaged[i, 1]:12.5f}"
    )

figure, axis = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
axis.loglog(temperatures, plain[:, 0], "o-", color="#D55E00", label="straight-through")
axis.loglog(
    temperatures, averaged[:, 0], "s-", color="#0072B2", label="Gumbel-Rao, 100 draws"
)
axis.axhline(score_variance, color="black", linestyle="--", label="score function")
axis.set(xlabel="temperature", ylabel="variance (trace of the covariance)")
axis.set_title("Two labels an estimate, eight categories")
axis.grid(alpha=0.3, which="both")
axis.legend()
plt.savefig("plot_gumbel_rao.png", dpi=110)
