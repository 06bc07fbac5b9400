"""
====================================================
From observations to labels, searched with weights
====================================================

A classifier's cross-fitted scores feed a quantizer, and one grid search decides over
the number of cells, the last step, its criterion and its end temperature, with
``sample_weight`` routed to every fit and every rating. The number of cells matters far
more than all the rest together.
"""

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import MetadataRequest

from skquant import DExchangeQuantizer, KMeansQuantizer, SoftVoronoiQuantizer
from skquant.scores import MixtureScore

# %%
# Two steps that both take weights
# --------------------------------
sklearn.set_config(enable_metadata_routing=True)
X, y = load_wine(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
weights = np.random.default_rng(0).exponential(size=len(y))
classifier = LogisticRegression(C=0.1).set_fit_request(sample_weight=True)
scores = MixtureScore(classifier).set_fit_request(sample_weight=True)
kmeans, exchange, soft = (
    quantizer.set_fit_request(sample_weight=True)
    for quantizer in (
        KMeansQuantizer(n_init=4, random_state=0),
        DExchangeQuantizer(n_init=4, n_swaps=8, random_state=0),
        SoftVoronoiQuantizer(n_init=1, max_iter=100, random_state=0),
    )
)


# %%
# One number for all
# ------------------
# Each quantizer's own ``score`` is the efficiency of its own criterion, so rules of
# different criteria are rated by one number of the report: the D retention of the
# left-out rows. An object that asks for the weights of a rating gets them.
class Retention:
    """Weighted D retention of a pipeline's labels."""

    def get_metadata_routing(self):
        """Ask for the weights."""
        request = MetadataRequest(owner="Retention")
        request.score.add_request(param="sample_weight", alias=True)
        return request

    def __call__(self, pipeline, X, y=None, sample_weight=None):
        """Rate the last step on the scores that the step before it gives."""
        scores = pipeline[:-1].transform(X)
        report = pipeline[-1].information_report(scores, sample_weight=sample_weight)
        return report.geometric_mean


# %%
# The search
# ----------
n_bins = [4, 6, 8, 12]
criteria = ["trace", "D", "A"]
search = GridSearchCV(
    Pipeline([("scores", scores), ("quantizer", kmeans)]),
    [
        {"quantizer": [kmeans], "quantizer__n_bins": n_bins},
        {
            "quantizer": [exchange],
            "quantizer__n_bins": n_bins,
            "quantizer__criterion": criteria,
        },
        {
            "quantizer": [soft],
            "quantizer__n_bins": n_bins,
            "quantizer__criterion": criteria,
            "quantizer__temperature_end_ratio": [0.05, 0.5],
        },
    ],
    scoring=Retention(),
    # the rows are sorted by class
    cv=StratifiedKFold(3, shuffle=True, random_state=0),
)
search.fit(X, y, sample_weight=weights)
sklearn.set_config(enable_metadata_routing=False)
table = search.cv_results_
cells = np.array(table["param_quantizer__n_bins"], dtype=int)
steps = np.array([type(each).__name__ for each in table["param_quantizer"]])
means = table["mean_test_score"]
print("D retention of left-out rows, over last steps, criteria and end ratios")
for each in n_bins:
    found = means[cells == each]
    print(f"{each:2d} cells  {found.min():.4f} to {found.max():.4f}")
print("best")
for name, value in search.best_params_.items():
    print(f"  {name} = {value}")

# %%
# The picture
# -----------
# One mark for each candidate. A search takes the most cells that it is offered; how
# many are enough is read off here.
figure, axis = plt.subplots(figsize=(6.5, 4.5), layout="constrained")
for shift, (name, marker, color) in enumerate(
    [
        ("KMeansQuantizer", "s", "#E69F00"),
        ("DExchangeQuantizer", "o", "#0072B2"),
        ("SoftVoronoiQuantizer", "^", "#000000"),
    ]
):
    chosen = steps == name
    place = cells[chosen] + 0.3 * (shift - 1)
    axis.scatter(
        place, means[chosen], marker=marker, facecolor="none", color=color, label=name
    )
axis.set_xticks(n_bins)
axis.set(xlabel="cells", ylabel="D retention of left-out rows", ylim=(None, 1))
axis.set_title("Cells matter more than the way to them")
axis.grid(alpha=0.3)
axis.legend(loc="lower right")
plt.savefig("plot_pipeline.png", dpi=110)
