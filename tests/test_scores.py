"""Scores from classifiers, against laws whose scores are known."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.tree import DecisionTreeClassifier

from skquant import KMeansQuantizer
from skquant.inspection import retention_interval
from skquant.scores import (
    CentralDifferenceScore,
    IntensityScore,
    MixtureScore,
    ratio_closure_report,
)


def three_normals(n_rows=600, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n_rows, p=[0.5, 0.3, 0.2])
    return rng.standard_normal((n_rows, 2)) + np.eye(3, 2)[y], y


class KnownPosterior(GaussianNB):
    """Posteriors of three unit normals under the training shares."""

    def predict_proba(self, X):
        steps = X[:, None] - np.eye(3, 2)
        joint = np.exp(-0.5 * (steps**2).sum(axis=2)) * self.class_prior_
        return joint / joint.sum(axis=1, keepdims=True)


def test_scores_are_gradients_of_the_log_density():
    X, y = three_normals()
    weights = np.random.default_rng(1).exponential(size=len(y))
    steps = X[:, None] - np.eye(3, 2)
    densities = np.exp(-0.5 * (steps**2).sum(axis=2))
    fractions = np.array([0.2, 0.5, 0.3])

    def difference(direction):
        up, down = fractions + 1e-6 * direction, fractions - 1e-6 * direction
        return (np.log(densities @ up) - np.log(densities @ down)) / 2e-6

    mixture = MixtureScore(KnownPosterior(), fractions=fractions, reference=0)
    expected = np.column_stack(
        [difference(np.array([-1.0, 1, 0])), difference(np.array([-1.0, 0, 1]))]
    )
    intensity = IntensityScore(KnownPosterior(), intensities=fractions)
    columns = np.column_stack([difference(row) for row in np.eye(3)])
    for transformer, values in ((mixture, expected), (intensity, columns)):
        options = {"sample_weight": weights}
        for result in (
            transformer.fit_transform(X, y, **options),
            transformer.fit(X, y, **options).transform(X),
        ):
            np.testing.assert_allclose(result, values, rtol=1e-6, atol=1e-8)


def test_cross_fitted_scores_never_saw_their_row():
    X, y = three_normals(60)
    folds = [(np.arange(20, 60), np.arange(20)), (np.arange(40), np.arange(40, 60))]
    folds.append((np.r_[0:20, 40:60], np.arange(20, 40)))
    scores = MixtureScore(GaussianNB(), cv=folds).fit_transform(X, y)
    fractions = np.bincount(y) / len(y)
    for train, test in folds:
        model = GaussianNB().fit(X[train], y[train])
        ratios = model.predict_proba(X[test]) / model.class_prior_
        expected = (ratios[:, :2] - ratios[:, 2:]) / (ratios @ fractions)[:, None]
        np.testing.assert_allclose(scores[test], expected, rtol=1e-12)


class Memorizing(GaussianNB):
    """Nearly sure of the class of rows that it was fitted on, fair on others."""

    def fit(self, X, y, sample_weight=None):
        self.seen_ = dict(zip(map(tuple, X), y, strict=True))
        return super().fit(X, y, sample_weight)

    def predict_proba(self, X):
        proba = super().predict_proba(X)
        for row, values in zip(map(tuple, X), proba, strict=True):
            if row in self.seen_:
                values *= 0.1
                values[self.seen_[row]] += 0.9
        return proba


def errors_of_report(reported, X, labels):
    """Reported minus true retention of the labels, in its standard errors."""
    truth = retention_interval(true_scores(X), labels, criterion="trace")
    return (reported - truth.estimate) / truth.standard_error


def true_scores(X):
    densities = np.exp(-0.5 * ((X[:, None] - np.eye(3, 2)) ** 2).sum(axis=2))
    fractions = [0.5, 0.3, 0.2]
    return (densities[:, :2] - densities[:, 2:]) / (densities @ fractions)[:, None]


@pytest.mark.parametrize("seed", range(4))
def test_cross_fitted_pipeline_reports_the_true_retention(seed):
    X, y = three_normals(4000, seed)
    held_out, _ = three_normals(1000, 100 + seed)
    transformer = MixtureScore(Memorizing(), fractions=[0.5, 0.3, 0.2])
    quantizer = KMeansQuantizer(6, random_state=0)
    pipeline = make_pipeline(transformer, quantizer).fit(X, y)
    cross_fitted = pipeline.predict(held_out)
    assert abs(errors_of_report(pipeline.score(held_out), held_out, cross_fitted)) < 2

    # the same classifier: the quantizer sees scores of rows that it was fitted on
    scores = transformer.fit(X, y).transform(X)
    quantizer.fit(scores)
    reported, labels = quantizer.score(scores), quantizer.predict(scores)
    assert errors_of_report(reported, X, labels) > 10
    # and what it learned there is the worse rule for other rows
    fresh = transformer.transform(held_out)
    kept = [
        retention_interval(true_scores(held_out), each, criterion="trace").estimate
        for each in (cross_fitted, quantizer.predict(fresh))
    ]
    assert kept[0] > kept[1]


def test_training_rows_of_a_forest_report_too_much_without_cross_fitting():
    X, y = three_normals(2000)
    forest = RandomForestClassifier(20, random_state=0)
    transformer = MixtureScore(forest, fractions=[0.5, 0.3, 0.2])
    scores = transformer.fit(X, y).transform(X)
    quantizer = KMeansQuantizer(6, random_state=0).fit(scores)
    reported = quantizer.score(scores)
    assert errors_of_report(reported, X, quantizer.predict(scores)) > 10


def test_central_differences_in_a_union():
    rng = np.random.default_rng(0)
    y = np.repeat(["a-", "a+", "b-", "b+"], 20_000)
    shift = {"a-": (-0.1, 0), "a+": (0.1, 0), "b-": (0, -0.1), "b+": (0, 0.1)}
    X = rng.standard_normal((len(y), 2)) + np.array([shift[each] for each in y])
    union = FeatureUnion(
        [
            (n, CentralDifferenceScore(LogisticRegression(), 0.1, labels=pair))
            for n, pair in (("a", ["a-", "a+"]), ("b", ["b-", "b+"]))
        ]
    )
    scores = union.fit_transform(X, y)
    assert list(union.get_feature_names_out()) == ["a__score", "b__score"]
    # the score of the mean of a unit normal is the observation itself
    assert np.sqrt(np.mean((scores - X) ** 2)) < 0.15


def test_errors():
    X, y = three_normals(60)
    folds = [(np.flatnonzero(y != 2), np.flatnonzero(y == 2))]
    with pytest.raises(ValueError, match=r"fold 0 lacks \[2\]"):
        MixtureScore(GaussianNB(), cv=folds).fit_transform(X, y)
    with pytest.raises(ValueError, match="fractions must hold 3 positive"):
        MixtureScore(GaussianNB(), fractions=[0.5, 0.5, 0.0]).fit(X, y)
    with pytest.raises(ValueError, match="reference must be a position"):
        MixtureScore(GaussianNB(), reference=3).fit(X, y)
    pair = y < 2
    tree = CentralDifferenceScore(DecisionTreeClassifier(), 0.1).fit(X[pair], y[pair])
    with pytest.raises(ValueError, match="exactly 0"):
        tree.transform(X)


def test_ratio_closure():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20_000)
    exact = np.exp(0.5 * x - 0.125)
    report = ratio_closure_report(np.column_stack([exact, 1.1 * exact]))
    assert abs(report.z_values[0]) < 3 < report.z_values[1]
    np.testing.assert_allclose(
        report.standard_errors[0], exact.std() / np.sqrt(len(x)), rtol=1e-12
    )


def test_observations_may_be_texts_or_sparse():
    texts = np.array(["a a b", "a b b", "b b c", "c c a", "a", "b c"] * 10)
    y = np.tile([0, 0, 1, 1, 0, 1], 10)
    model = make_pipeline(CountVectorizer(token_pattern=r"\w"), LogisticRegression())
    transformer = MixtureScore(model)
    cross_fitted = transformer.fit_transform(texts, y)
    assert transformer.transform(texts[:7]).shape == (7, 1)
    counts = model[0].fit_transform(texts).todok()
    sparse = MixtureScore(LogisticRegression()).fit_transform(counts, y)
    np.testing.assert_allclose(sparse, cross_fitted, rtol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e308])
def test_ratios_of_one_close_exactly(scale):
    rng = np.random.default_rng(0)
    weights = scale * rng.uniform(0.5, 1.0, size=37)
    ratios = np.column_stack([np.ones(37), rng.exponential(size=37)])
    report = ratio_closure_report(ratios, weights)
    assert report.means[0] == pytest.approx(1.0) and report.z_values[0] == 0.0
    shares = weights / scale / np.sum(weights / scale)
    error = np.sqrt(shares**2 @ (ratios[:, 1] - shares @ ratios[:, 1]) ** 2)
    assert report.z_values[1] == pytest.approx((shares @ ratios[:, 1] - 1.0) / error)
