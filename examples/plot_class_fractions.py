"""
===================================
Class fractions from 8 to 32 labels
===================================

Three real data sets: the label of a row, one out of 8 to 32, is all that is counted,
and the counts give the class fractions of a batch. The estimates are unbiased, their
variance is the Cramer-Rao bound of the counts, and counting a classifier's decisions
instead takes up to a quarter more rows for the same errors.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skquant import AffineMaxRule, DExchangeQuantizer
from skquant.information import fisher_information
from skquant.scores import MixtureScore

N_BATCHES, N_ROWS = 400, 1000
DATA = {
    "digits": (load_digits, 32),
    "wine": (load_wine, 8),
    "breast cancer": (load_breast_cancer, 16),
}


# %%
# Labels
# ------
# Half of the rows train a pipeline from features to labels: a classifier with a
# strong penalty, whose ratios are smooth, cross-fitted scores, a quantizer. Its rule is
# deployed as a file. The other half gives the probability of each label in each class,
# and the batches.
def labels_of(load, n_bins):
    """Return labels, the classifier's decisions and classes of held-out rows."""
    X, y = load(return_X_y=True)
    X, X_held_out, y, y_held_out = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=0
    )
    classifier = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)
    )
    to_scores = MixtureScore(classifier)
    quantizer = DExchangeQuantizer(n_bins, random_state=0)
    make_pipeline(to_scores, quantizer).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        quantizer.rule_.save(Path(folder, "rule.json"))
        rule = AffineMaxRule.load(Path(folder, "rule.json"))
    labels = rule.predict(to_scores.transform(X_held_out))
    return labels, classifier.fit(X, y).predict(X_held_out), y_held_out


def label_probabilities(labels, y):
    """Return the probability of each label (K) in each class (C), (K, C)."""
    cells = np.zeros((labels.max() + 1, y.max() + 1))
    np.add.at(cells, (labels, y), 1.0)
    return cells / cells.sum(axis=0)


# %%
# Fractions from counts
# ---------------------
# Batches are resampled at fractions that are not those of the training rows. The most
# likely fractions follow by expectation maximization; at the truth their covariance is
# the inverse information of the counts, of the free fractions.
def most_likely_fractions(counts, cells, n_iter=2000):
    """Return the fractions (n_batches, C) that make counts (n_batches, K) likeliest."""
    estimates = np.full((len(counts), cells.shape[1]), 1 / cells.shape[1])
    for _ in range(n_iter):
        expected = estimates @ cells.T
        shares = np.divide(counts, expected, np.zeros(expected.shape), where=counts > 0)
        estimates *= shares @ cells / counts.sum(axis=1, keepdims=True)
    return estimates


def bound(cells, fractions, n_rows):
    """Return the Cramer-Rao bound of each fraction's variance, from counts."""
    weights = cells @ fractions
    used = weights > 0
    ratios = cells[used] / weights[used, None]
    scores = ratios[:, :-1] - ratios[:, -1:]
    covariance = np.linalg.inv(fisher_information(scores, weights[used])) / n_rows
    return np.append(np.diag(covariance), covariance.sum())


def run(load, n_bins):
    """Return true fractions, estimates of all batches, and two bounds of the variance.

    The bounds are those of counts of labels and of the classifier's decisions.
    """
    labels, decisions, y = labels_of(load, n_bins)
    cells = label_probabilities(labels, y)
    n_classes = cells.shape[1]
    fractions = np.linspace(1.4, 0.6, n_classes) / n_classes
    chances = (fractions / np.bincount(y))[y]
    rows = np.random.default_rng(0).choice(len(y), (N_BATCHES, N_ROWS), p=chances)
    batches = labels[rows]
    counts = np.stack([np.bincount(each, minlength=len(cells)) for each in batches])
    estimates = most_likely_fractions(counts, cells)
    bounds = [
        bound(each, fractions, N_ROWS)
        for each in (cells, label_probabilities(decisions, y))
    ]
    return fractions, estimates, *bounds


# %%
# The numbers
# -----------
# Bias and variance are of all fractions together, the bias as the length of its
# vector in standard errors of that vector: about 1 where there is none. The last column
# is how many times the rows the classifier's decisions would take.
#
# In the picture, boxes are estimates less the truth: quartiles, and whiskers that hold
# 95% of the batches. The wide marks are where the bound puts the whiskers' ends.
def main():
    """Print and draw."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.3), layout="constrained")
    print("data            cells   bias  variance / bound  rows, decisions")
    for axis, (name, (load, n_bins)) in zip(axes, DATA.items(), strict=True):
        fractions, estimates, variance, decided = run(load, n_bins)
        bias = np.linalg.norm(estimates.mean(axis=0) - fractions)
        bias /= np.sqrt(variance.sum() / N_BATCHES)
        ratio = estimates.var(axis=0).sum() / variance.sum()
        cost = decided.sum() / variance.sum()
        print(f"{name:14s} {n_bins:6d} {bias:6.2f} {ratio:17.3f} {cost:16.2f}")
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.boxplot(
            estimates - fractions,
            whis=(2.5, 97.5),
            showfliers=False,
            widths=0.4,
            medianprops={"color": "black"},
        )
        places = np.arange(1, len(fractions) + 1)
        reach = 1.96 * np.sqrt(variance)
        for end in (-reach, reach):
            axis.plot(places, end, "_", color="#D55E00", ms=22, mew=2)
        axis.set_xticks(places, [f"{100 * each:.0f}" for each in fractions])
        axis.set(xlabel="true fraction [%]", ylim=(-0.05, 0.05))
        axis.set_title(f"{name}: {n_bins} cells")
        text = f"decisions of the classifier: {cost - 1:.0%} more rows"
        axis.text(0.5, 0.93, text, ha="center", transform=axis.transAxes)
    axes[0].set_ylabel(f"estimate - truth, {N_ROWS} rows")
    plt.savefig("plot_class_fractions.png", dpi=110)


if __name__ == "__main__":
    main()
