"""
===================================
Class fractions from 8 to 32 labels
===================================

Three real data sets: the label of a row, one out of 8 to 32, is all that is counted,
and the counts give the class fractions of a batch. The estimates are unbiased, and
their variance is the Cramer-Rao bound of the counts.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skquant import DExchangeQuantizer
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
# strong penalty, whose ratios are smooth, cross-fitted scores, a quantizer. The other
# half gives the probability of each label in each class, and the batches.
def labels_of(load, n_bins):
    """Return labels and classes of the rows that did not train."""
    X, y = load(return_X_y=True)
    X, X_held_out, y, y_held_out = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=0
    )
    classifier = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)
    )
    pipeline = make_pipeline(
        MixtureScore(classifier), DExchangeQuantizer(n_bins, random_state=0)
    )
    return pipeline.fit(X, y).predict(X_held_out), y_held_out


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
    """Return true fractions, estimates of all batches, and the bound."""
    labels, y = labels_of(load, n_bins)
    n_classes = y.max() + 1
    cells = np.zeros((labels.max() + 1, n_classes))
    np.add.at(cells, (labels, y), 1.0)
    cells /= cells.sum(axis=0)
    fractions = np.linspace(1.4, 0.6, n_classes) / n_classes
    chances = (fractions / np.bincount(y))[y]
    rows = np.random.default_rng(0).choice(len(y), (N_BATCHES, N_ROWS), p=chances)
    batches = labels[rows]
    counts = np.stack([np.bincount(each, minlength=len(cells)) for each in batches])
    estimates = most_likely_fractions(counts, cells)
    return fractions, estimates, bound(cells, fractions, N_ROWS)


# %%
# The numbers
# -----------
# Bias and variance are of all fractions together, the bias as the length of its
# vector in standard errors of that vector: about 1 where there is none.
def main():
    """Print and draw."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    print("data            cells   bias  variance / bound")
    for axis, (name, (load, n_bins)) in zip(axes, DATA.items(), strict=True):
        fractions, estimates, variance = run(load, n_bins)
        bias = np.linalg.norm(estimates.mean(axis=0) - fractions)
        bias /= np.sqrt(variance.sum() / N_BATCHES)
        ratio = estimates.var(axis=0).sum() / variance.sum()
        print(f"{name:14s} {n_bins:6d} {bias:6.2f} {ratio:17.3f}")
        axis.boxplot(estimates, whis=(2.5, 97.5), showfliers=False)
        axis.plot(range(1, len(fractions) + 1), fractions, "_", color="#D55E00", ms=24)
        axis.set(title=f"{name}: {n_bins} cells", xlabel="class", ylabel="fraction")
    plt.savefig("plot_class_fractions.png", dpi=110)


if __name__ == "__main__":
    main()
