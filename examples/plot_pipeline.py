"""
====================================================
From observations to labels, searched with weights
====================================================

A classifier's cross-fitted scores feed a quantizer; a grid search chooses its cells
with ``sample_weight`` routed to every fit and score.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from skquant import SoftVoronoiQuantizer
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
quantizer = SoftVoronoiQuantizer(max_iter=30, n_init=1, random_state=0)
quantizer.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)

# %%
# The search
# ----------
search = GridSearchCV(
    make_pipeline(scores, quantizer),
    {"softvoronoiquantizer__n_bins": [4, 6, 8]},
    cv=3,
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)
    search.fit(X, y, sample_weight=weights)
sklearn.set_config(enable_metadata_routing=False)
means = search.cv_results_["mean_test_score"]
for n_bins, mean in zip([4, 6, 8], means, strict=True):
    print(f"{n_bins} cells: D retention {mean:.4f}")

# %%
# The picture
# -----------
plt.plot([4, 6, 8], means, "o-")
plt.xlabel("cells")
plt.ylabel("D retention of left-out rows")
plt.savefig("plot_pipeline.png", dpi=110)
