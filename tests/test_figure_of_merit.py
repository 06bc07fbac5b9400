"""Rules that maximize a black-box figure of hard labels."""

import pickle

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from skquant import (
    AffineMaxRule,
    DExchangeQuantizer,
    DOptimality,
    FigureOfMeritQuantizer,
)
from skquant.information import binned_fisher_information, fisher_information


def lightest_cell(labels, X, y, sample_weight):
    """The share of the lightest of four cells."""
    return np.bincount(labels, sample_weight, minlength=4).min() / sample_weight.sum()


def d_figure(labels, X, y, sample_weight):
    """D retention, which has its own estimator."""
    retained = binned_fisher_information(X, labels, sample_weight, n_bins=4)
    return DOptimality().efficiency(retained, fisher_information(X, sample_weight))


def agreement(labels, X, y, sample_weight):
    """Best accuracy of labels as a predictor of two classes: a decision's gain."""
    gain = 0.0
    for cell in np.unique(labels):
        inside = labels == cell
        ones = sample_weight[inside] @ y[inside]
        gain += max(ones, sample_weight[inside].sum() - ones)
    return gain / sample_weight.sum()


def table(seed=0, n=400):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) @ [[1.0, 0.3], [0.0, 1.0]]


def test_it_improves_a_figure_that_d_does_not_care_about():
    X = table()
    quantizer = FigureOfMeritQuantizer(lightest_cell, 4, random_state=0).fit(X)
    assert quantizer.figure_ == max(quantizer.history_.max(), quantizer.figure_)
    assert quantizer.start_figure_ == quantizer.history_[0]
    assert quantizer.figure_ > quantizer.start_figure_ + 0.005
    # the ceiling is a quarter
    assert 0.24 < quantizer.figure_ <= 0.25
    assert quantizer.score(X) == quantizer.figure_
    np.testing.assert_array_equal(quantizer.labels_, quantizer.predict(X))
    assert quantizer.rule_agreement_ == 1.0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("family", ["affine_max", "voronoi"])
@pytest.mark.parametrize("method", ["central", "forward"])
def test_never_below_its_start(seed, family, method):
    X = table(seed, 120)
    quantizer = FigureOfMeritQuantizer(
        d_figure,
        4,
        family=family,
        method=method,
        sigma=1.0,
        step_size=0.5,
        max_iter=5,
        n_samples=2,
        random_state=seed,
    ).fit(X)
    assert quantizer.figure_ >= quantizer.start_figure_
    assert quantizer.score(X) == quantizer.figure_
    if family == "affine_max":
        start = DExchangeQuantizer(4, random_state=seed).fit(X)
        assert quantizer.start_figure_ == pytest.approx(start.score(X), rel=1e-12)


def test_without_iterations_it_is_the_start():
    X = table()
    quantizer = FigureOfMeritQuantizer(d_figure, 4, max_iter=0, random_state=3).fit(X)
    start = DExchangeQuantizer(4, random_state=3).fit(X)
    np.testing.assert_array_equal(quantizer.predict(X), start.predict(X))
    assert len(quantizer.history_) == 1 and quantizer.n_iter_ == 1


def test_a_decision_with_a_target_and_weights():
    rng = np.random.default_rng(0)
    X = table(n=600)
    y = (X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=600) > 0).astype(float)
    w = rng.exponential(size=600)
    quantizer = FigureOfMeritQuantizer(agreement, 4, random_state=0)
    quantizer.fit(X, y, sample_weight=w)
    assert quantizer.figure_ == pytest.approx(
        agreement(quantizer.labels_, X, y, w), abs=1e-12
    )
    assert quantizer.score(X, y, sample_weight=w) == pytest.approx(quantizer.figure_)
    assert quantizer.figure_ > quantizer.start_figure_
    fresh = table(5, 2000)
    target = (fresh[:, 0] * fresh[:, 1] > 0).astype(float)
    assert quantizer.score(fresh, target) > 0.8


def test_a_figure_may_depend_on_the_numbers_of_cells():
    X = table()
    y = X[:, 0] < -0.3

    def trigger(labels, X, y, sample_weight):
        return np.mean((labels == 0) == y)

    quantizer = FigureOfMeritQuantizer(trigger, 4, random_state=0).fit(X, y)
    assert quantizer.score(X, y) == quantizer.figure_ > 0.85
    start = FigureOfMeritQuantizer(trigger, 4, max_iter=0, random_state=0).fit(X, y)
    np.testing.assert_array_equal(
        start.predict(X), DExchangeQuantizer(4, random_state=0).fit_predict(X)
    )


def test_a_rule_as_start():
    X = table()
    rule = DExchangeQuantizer(4, random_state=1).fit(X).rule_
    quantizer = FigureOfMeritQuantizer(d_figure, 4, init=rule, max_iter=0).fit(X)
    assert quantizer.start_figure_ == pytest.approx(
        d_figure(rule.predict(X), X, None, np.ones(len(X))), rel=1e-12
    )
    with pytest.raises(ValueError, match="init must be a rule"):
        FigureOfMeritQuantizer(d_figure, 5, init=rule).fit(X)


def test_jobs_repeats_and_units_change_nothing():
    X = table(n=150)
    options = dict(n_bins=4, max_iter=6, n_samples=3, random_state=0)
    one = FigureOfMeritQuantizer(lightest_cell, **options).fit(X)
    two = FigureOfMeritQuantizer(lightest_cell, n_jobs=2, **options).fit(X)
    assert one.rule_ == two.rule_
    again = FigureOfMeritQuantizer(lightest_cell, **options).fit(X)
    assert one.rule_ == again.rule_
    scaled = FigureOfMeritQuantizer(lightest_cell, **options).fit(X * [2.0**20, 0.5])
    np.testing.assert_array_equal(one.labels_, scaled.labels_)
    weighted = FigureOfMeritQuantizer(lightest_cell, **options)
    weighted.fit(X, sample_weight=np.full(150, 4.0))
    np.testing.assert_array_equal(one.labels_, weighted.labels_)


def test_grid_search_and_pickle():
    X = table(n=200)
    search = GridSearchCV(
        FigureOfMeritQuantizer(lightest_cell, 4, max_iter=3, random_state=0),
        {"sigma": [0.05, 0.2]},
        cv=2,
    ).fit(X)
    assert search.best_score_ > 0.1
    best = search.best_estimator_
    copy = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(copy.predict(X), best.predict(X))
    assert isinstance(best.rule_, AffineMaxRule)
    assert "_table" not in vars(best)


def test_rows_of_weight_zero_are_left_out():
    X, seen = table(n=100), []
    weights = np.r_[np.zeros(40), np.ones(60)]
    y = list(range(100))

    def figure(labels, X, y, sample_weight):
        seen.append((len(labels), len(X), y[0], sample_weight.min()))
        return lightest_cell(labels, X, y, sample_weight)

    quantizer = FigureOfMeritQuantizer(figure, 4, max_iter=2, random_state=0)
    quantizer.fit(X, y, sample_weight=weights)
    quantizer.score(X, y, sample_weight=weights)
    assert set(seen) == {(60, 60, 40, 1.0)}
    alone = FigureOfMeritQuantizer(lightest_cell, 4, max_iter=2, random_state=0)
    alone.fit(X[40:])
    assert alone.figure_ == quantizer.figure_
    assert len(quantizer.labels_) == 100


@pytest.mark.parametrize(
    "options, match",
    [
        ({"figure": 3}, "figure"),
        ({"sigma": 0.0}, "sigma"),
        ({"step_size": -1.0}, "step_size"),
        ({"n_samples": 0}, "n_samples"),
        ({"method": "score"}, "method"),
        ({"init": "random"}, "init"),
    ],
)
def test_bad_parameters(options, match):
    with pytest.raises(ValueError, match=match):
        FigureOfMeritQuantizer(**{"figure": lightest_cell, **options}).fit(table())


def test_a_figure_that_is_not_finite():
    def figure(labels, X, y, sample_weight):
        return np.nan

    quantizer = FigureOfMeritQuantizer(figure, 4)
    with pytest.raises(ValueError, match="figure must return finite"):
        quantizer.fit(table())
    assert "_table" not in vars(quantizer) and not hasattr(quantizer, "rule_")


def test_verbose(capsys):
    FigureOfMeritQuantizer(lightest_cell, 4, max_iter=2, verbose=1).fit(table(n=60))
    assert "evaluations" in capsys.readouterr().out
