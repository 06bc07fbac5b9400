"""
==========================================
Quickstart: class fractions from 24 labels
==========================================

The ten posteriors of a classifier are replaced by one label out of 24, chosen so
that counting labels is nearly as good as keeping all the numbers. Three quantizers
are compared on held-out rows, and the best is deployed where there is only NumPy.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skquant import DExchangeQuantizer, KMeansQuantizer, SoftVoronoiQuantizer
from skquant.information import fisher_information, information_report

# %%
# Density ratios of real images
# -----------------------------
# The digits are averaged to 4 by 4 pixels, so that some are hard to tell apart. A
# posterior over the class's share of the training rows is the density of the class
# over that of the training mixture. Training rows are cross-fitted: no posterior
# comes from a classifier that saw its row.
images, digits = load_digits(return_X_y=True)
images = images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
images, fresh_images, y, y_fresh = train_test_split(
    images, digits, test_size=0.4, stratify=digits, random_state=0
)
shares = np.bincount(y) / len(y)
classifier = make_pipeline(StandardScaler(), LogisticRegression(C=2.0, max_iter=1000))
ratios = cross_val_predict(classifier, images, y, cv=5, method="predict_proba") / shares
fresh_ratios = classifier.fit(images, y).predict_proba(fresh_images) / shares


# %%
# Scores of the mixture fractions
# -------------------------------
# Nine fractions are free and the last is what they leave. A row's score is the
# gradient of its log density in the nine; at the training shares, where the mixture
# is 1, that is ``p_k / pi_k - p_last / pi_last``.
def mixture_scores(densities, fractions):
    """Return the gradient of ``log(densities @ fractions)``."""
    return (densities[:, :-1] - densities[:, -1:]) / (densities @ fractions)[:, None]


X, X_fresh = mixture_scores(ratios, shares), mixture_scores(fresh_ratios, shares)

# %%
# Three quantizers, and the classifier's own label
# ------------------------------------------------
# All are fitted on the training rows; the reports are of the held-out rows.
quantizers = {
    "KMeansQuantizer": KMeansQuantizer(24, random_state=0),
    "DExchangeQuantizer": DExchangeQuantizer(24, random_state=0),
    "SoftVoronoiQuantizer": SoftVoronoiQuantizer(24, max_iter=30, random_state=0),
}
reports, seconds = {}, {}
for name, quantizer in quantizers.items():
    start = perf_counter()
    quantizer.fit(X)
    seconds[name] = perf_counter() - start
    reports[name] = quantizer.information_report(X_fresh)
classes = np.argmax(fresh_ratios * shares, axis=1)
reports["largest posterior"] = information_report(X_fresh, classes)


# %%
# Choosing a rule on the training side
# ------------------------------------
# One search over the estimators and the end temperature of the soft one: the mean D
# retention of left-out thirds of the training rows decides. The held-out rows have
# no say.
def d_retention(pipeline, ratios, y=None):
    """Return the D retention of the pipeline's rule on other rows."""
    scores = pipeline[:-1].transform(ratios)
    return pipeline[-1].information_report(scores).geometric_mean


kmeans, exchange, soft = quantizers.values()
end_ratio = "quantizer__temperature_end_ratio"
to_scores = FunctionTransformer(mixture_scores, kw_args={"fractions": shares})
search = GridSearchCV(
    Pipeline([("scores", to_scores), ("quantizer", kmeans)]),
    [
        {"quantizer": [kmeans, exchange]},
        {"quantizer": [soft], end_ratio: [0.02, 0.05, 0.2]},
    ],
    scoring=d_retention,
    cv=3,
).fit(ratios)
winner = search.best_estimator_[-1]

# %%
# Deployment without scikit-learn
# -------------------------------
# The rule is a JSON file. A fresh interpreter that cannot import scikit-learn or
# SciPy reads it and labels the held-out scores.
program = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sklearn", "scipy"}:
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
import numpy as np
from skquant import AffineMaxRule
np.save("labels.npy", AffineMaxRule.load("rule.json").predict(np.load("scores.npy")))
assert not {"sklearn", "scipy"} & set(sys.modules)
"""
with tempfile.TemporaryDirectory() as folder:
    winner.rule_.save(Path(folder, "rule.json"))
    np.save(Path(folder, "scores.npy"), X_fresh)
    subprocess.run([sys.executable, "-c", program], cwd=folder, check=True)
    labels = np.load(Path(folder, "labels.npy"))

# %%
# Class fractions from counts alone
# ---------------------------------
# Batches with other class fractions are drawn from the held-out rows. The training
# rows say how often a digit falls in a cell (with one pseudo-count a digit), and
# the fractions that make the counts of a batch most likely follow by expectation
# maximization.
fractions = np.linspace(0.16, 0.04, 10)
n_batches, n_rows, n_cells = 200, 400, winner.n_bins_
chances = (fractions / np.bincount(y_fresh))[y_fresh]
rows = np.random.default_rng(0).choice(len(labels), (n_batches, n_rows), p=chances)
counts = np.stack([np.bincount(batch, minlength=n_cells) for batch in labels[rows]])
cells = np.full((n_cells, 10), 1 / n_cells)
np.add.at(cells, (winner.predict(X), y), 1.0)
cells /= cells.sum(axis=0)
estimates = np.full((n_batches, 10), 0.1)
for _ in range(300):
    estimates *= (counts / (estimates @ cells.T)) @ cells / n_rows


# %%
# No unbiased estimate has smaller standard errors than the Cramer-Rao bound, of the
# counts or of the rows with all their numbers. The bounds take the probabilities of
# cells and the ratios as exact. Both are estimated, so the actual error is larger on
# the whole, and two bounds as close as these may change places.
def bound(densities, weights):
    """Return the standard error of each fraction, from densities of weighted rows."""
    scores = mixture_scores(densities, fractions)
    covariance = np.linalg.inv(fisher_information(scores, weights)) / n_rows
    return np.sqrt(np.append(np.diag(covariance), covariance.sum()))


errors = {
    "actual error": np.sqrt(np.mean((estimates - fractions) ** 2, axis=0)),
    "bound, counts": bound(cells, cells @ fractions),
    "bound, unbinned": bound(ratios, (fractions / np.bincount(y))[y]),
}

# %%
# The numbers
# -----------
best_cv = dict.fromkeys(quantizers, 0.0)
for i, params in enumerate(search.cv_results_["params"]):
    name = type(params["quantizer"]).__name__
    best_cv[name] = max(best_cv[name], search.cv_results_["mean_test_score"][i])
print("Retention on held-out rows; CV: 3-fold D retention on training rows\n")
print("label                 cells       D   trace   worst      CV  seconds")
for name, report in reports.items():
    means = report.geometric_mean, report.arithmetic_mean, report.minimum
    line = f"{name:20s} {len(report.cell_counts):6d}" + "{:8.4f}" * 3
    if name in seconds:
        line += f"{best_cv[name]:8.4f}{seconds[name]:9.2f}"
    print(line.format(*means))
print(f"\nChosen by CV: {winner}")
print(
    f"Its {len(labels)} held-out labels are from a process that cannot import sklearn"
)
print(f"Error of ten fractions, {n_batches} batches of {n_rows} (root mean square):")
for name, values in errors.items():
    print(f"  {name:16s} {np.sqrt(np.mean(values**2)):.4f}")

# %%
# The picture
# -----------
# Left: the classifier's own label is poor in a few directions. Middle: some cells
# hold one digit, others the rows between two or three. Right: the price of keeping
# 24 labels, digit by digit.
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4.6), layout="constrained"
)
colors, markers = ["#0072B2", "#D55E00", "#009E73", "#555555"], "osD^"
for i, (name, report) in enumerate(reports.items()):
    style = {
        "color": colors[i],
        "marker": markers[i],
        "linestyle": ["-", "--", ":"][i % 3],
    }
    left.plot(range(1, 10), report.retained_eigenvalues, label=name, **style)
left.set(title="Information kept in each direction", ylabel="retained, held-out rows")
left.set(xlabel="direction, worst first", xticks=range(1, 10))
left.legend()
purity = cells / cells.sum(axis=1, keepdims=True)
order = np.lexsort((-purity.max(axis=1), purity.argmax(axis=1)))
mesh = middle.imshow(purity[order], aspect="auto", cmap="Blues", vmin=0, vmax=1)
middle.set(title="Digits in each cell", xlabel="digit", ylabel="cell")
middle.set(xticks=range(10), yticks=[])
figure.colorbar(mesh, ax=middle, label="share of the digit, at equal fractions")
for i, (name, values) in enumerate(errors.items()):
    x = np.arange(10) + 0.22 * (i - 1)
    right.plot(x, values, markers[i], color=colors[i], label=name)
right.set(title=f"Fractions of {n_rows} rows", ylabel="standard error")
right.set(xlabel="digit", xticks=range(10), ylim=(0, 1.1 * right.get_ylim()[1]))
right.legend(loc="lower left")
plt.savefig("plot_quickstart.png", dpi=110)
