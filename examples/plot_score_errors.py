"""
======================
What wrong scores cost
======================

Scores from a classifier are estimates. Their errors make worse cells, and count as
information where the cells are evaluated: ``score`` sees neither. Classifiers that were
trained on separate parts of a simulation tell what is lost, without the exact scores.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skquant import DExchangeQuantizer
from skquant.inspection import alignment_report, score_error_budget
from skquant.scores import MixtureScore

MEANS = np.array([[1.5, 0.0], [0.0, 1.5], [0.0, 0.0]])


# %%
# A law whose scores are known
# ----------------------------
# Three normal classes in equal parts. The classifier of their fractions is flexible
# enough to be right on average, and its errors fall with the number of training rows.
def draw(seed, n):
    """Return features and classes of n events."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, 2)) + MEANS[y], y


def exact_scores(X):
    """Return the scores of the first two fractions."""
    density = np.exp(X @ MEANS.T - 0.5 * np.sum(MEANS**2, axis=1))
    return (density[:, :2] - density[:, 2:]) / density.mean(axis=1, keepdims=True)


classifier = make_pipeline(
    StandardScaler(), PolynomialFeatures(3), LogisticRegression(C=100, max_iter=2000)
)
quantizer = DExchangeQuantizer(8, n_init=2, n_swaps=2, random_state=0)
X, _ = draw(0, 4000)
scores = exact_scores(X)

# %%
# Five replicas of the scores
# ---------------------------
# Cells from one replica, moments from products of two others: the errors of the three
# are independent, so that they drop out on average.
sizes = np.array([200, 500, 1000, 2000, 5000])
budgets, true = [], []
for n in sizes:
    replicas = [
        MixtureScore(classifier).fit(*draw([1, n, k], n)).transform(X) for k in range(5)
    ]
    budgets.append(score_error_budget(replicas, quantizer))
    kept = [
        alignment_report(each, scores, quantizer.fit_predict(each)).true
        for each in replicas
    ]
    true.append(1.0 - np.mean(kept))
    print(f"{n:5d} training rows: {budgets[-1]}; true loss {true[-1]:.4f}")

# %%
# The picture
# -----------
# The promised loss is that of eight cells and hardly changes; the true one is more than
# twice as large with few training rows. Its estimate needs no exact scores. Another
# replica's scores alone exaggerate: its errors are information that the cells lose.
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
estimates = 1.0 - np.array([budget.retention for budget in budgets])
errors = [1.96 * budget.standard_error for budget in budgets]
axis.plot(sizes, true, "k-", label="true")
axis.errorbar(
    sizes, estimates, errors, fmt="o", color="#0072B2", capsize=3, label="estimated"
)
axis.plot(
    sizes,
    [1.0 - budget.exchanged for budget in budgets],
    "v:",
    color="#D55E00",
    label="by another replica",
)
axis.plot(
    sizes,
    [budget.loss_from_bins for budget in budgets],
    "s--",
    color="#666666",
    label="promised",
)
axis.set_xscale("log")
axis.set_xticks(sizes, [str(size) for size in sizes])
axis.minorticks_off()
axis.set_ylim(bottom=0.0)
axis.set(xlabel="training rows of each classifier", ylabel="loss of D retention")
axis.set_title("Loss of eight cells of estimated scores", fontsize=10)
axis.grid(alpha=0.3)
axis.legend()
plt.savefig("plot_score_errors.png", dpi=110)
