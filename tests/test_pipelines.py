"""From observations to labels: searches, routed weights, tables, processes."""

import runpy
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline

from skquant import KMeansQuantizer, SoftVoronoiQuantizer
from skquant.scores import MixtureScore

# fits of a few iterations on small tables
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*stopped at max_iter:sklearn.exceptions.ConvergenceWarning"
)


def data():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 400)
    return rng.standard_normal((400, 2)) + np.eye(3, 2)[y], y, rng.exponential(size=400)


def soft(**options):
    return SoftVoronoiQuantizer(4, max_iter=20, n_init=1, random_state=0, **options)


def test_grid_search_over_parameters_and_the_last_step():
    X, y, _ = data()
    pipeline = make_pipeline(MixtureScore(GaussianNB()), soft())
    prefix = "softvoronoiquantizer"
    search = GridSearchCV(
        pipeline,
        [
            {f"{prefix}__n_bins": [4, 5], f"{prefix}__criterion": ["D", "trace"]},
            {f"{prefix}__temperature_end_ratio": [0.05, 0.2]},
            {prefix: [KMeansQuantizer(4, random_state=0)]},
        ],
        cv=2,
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == (400,)
    assert "MixtureScore" in clone(pipeline)._repr_html_()


def test_routed_weights_reach_fit_and_score():
    X, y, weights = data()

    def build():
        return make_pipeline(
            MixtureScore(GaussianNB()), KMeansQuantizer(4, random_state=0)
        )

    with config_context(enable_metadata_routing=True):
        pipeline = build()
        pipeline[0].set_fit_request(sample_weight=True)
        pipeline[1].set_fit_request(sample_weight=True)
        pipeline[1].set_score_request(sample_weight=True)
        pipeline.fit(X, y, sample_weight=weights)
        routed = pipeline.score(X, y, sample_weight=weights)
    transformer = MixtureScore(GaussianNB())
    scores = transformer.fit_transform(X, y, sample_weight=weights)
    quantizer = KMeansQuantizer(4, random_state=0).fit(scores, sample_weight=weights)
    fresh = transformer.transform(X)
    assert routed == quantizer.score(fresh, sample_weight=weights)
    unrouted = build().fit(
        X,
        y,
        mixturescore__sample_weight=weights,
        kmeansquantizer__sample_weight=weights,
    )
    assert unrouted.score(X, y) == quantizer.score(fresh)
    assert abs(unrouted.score(X, y) - routed) > 1e-4


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_keep_names_and_reject_other_columns(library):
    X, y, _ = data()
    frame = {"pandas": pd, "polars": pl}[library].DataFrame(
        {"a": X[:, 0], "b": X[:, 1]}
    )
    pipeline = make_pipeline(
        MixtureScore(GaussianNB()), KMeansQuantizer(4, random_state=0)
    ).set_output(transform=library)
    labels = pipeline.fit(frame, y).predict(frame)
    plain = clone(pipeline).fit(X, y)
    np.testing.assert_array_equal(labels, plain.predict(X))
    assert list(pipeline.transform(frame).columns) == ["fraction_0", "fraction_1"]
    assert pipeline[-1].rule_.feature_names == ("fraction_0", "fraction_1")
    for other in (frame[["b", "a"]], frame[["a"]]):
        with pytest.raises(ValueError, match="feature names"):
            pipeline.predict(other)


def test_pickles_across_processes(tmp_path):
    X, y, _ = data()
    pipeline = make_pipeline(MixtureScore(GaussianNB()), KMeansQuantizer(4)).fit(X, y)
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    (labels,) = joblib.Parallel(2, backend="loky")(
        [joblib.delayed(joblib.load(tmp_path / "pipeline.joblib").predict)(X)]
    )
    np.testing.assert_array_equal(labels, pipeline.predict(X))


def test_wine_scores_work_end_to_end():
    X, y = load_wine(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(
        MixtureScore(GaussianNB()), KMeansQuantizer(8, random_state=0)
    ).fit(X, y)
    assert 0.5 < pipeline.score(X) <= 1.0


@pytest.fixture(scope="module")
def class_fractions():
    return runpy.run_path(
        str(Path(__file__).parents[1] / "examples" / "plot_class_fractions.py")
    )


@pytest.mark.parametrize("name", ["digits", "wine", "breast cancer"])
def test_class_fractions_of_real_data_reach_the_binned_bound(class_fractions, name):
    load, n_bins = class_fractions["DATA"][name]
    assert 8 <= n_bins <= 32
    fractions, estimates, variance, decided = class_fractions["run"](load, n_bins)
    # counting what the classifier decides is worse
    assert variance.sum() < decided.sum()
    np.testing.assert_allclose(estimates.sum(axis=1), 1.0, rtol=1e-12)
    # all fractions together: one of ten is beyond two errors in every third run
    bias = np.linalg.norm(estimates.mean(axis=0) - fractions)
    assert bias < 2 * np.sqrt(variance.sum() / len(estimates))
    ratios = estimates.var(axis=0) / variance
    assert estimates.var(axis=0).sum() == pytest.approx(variance.sum(), rel=0.15)
    assert ratios == pytest.approx(np.ones(len(fractions)), rel=0.25)
