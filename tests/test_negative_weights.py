"""Fits of tables with negative weights, by merging neighbors."""

import numpy as np
import pytest

from skquant import (
    DExchangeQuantizer,
    FigureOfMeritQuantizer,
    IntervalQuantizer,
    KMeansQuantizer,
    ProfiledDOptimality,
    SoftVoronoiQuantizer,
)
from skquant._negative_weights import merge_negative_weights
from skquant.exceptions import DegenerateInformationWarning
from skquant.information import information_report


def heaviest_cell(labels, X, y, sample_weight):
    return -np.bincount(labels, sample_weight, minlength=4).max()


QUANTIZERS = [
    (KMeansQuantizer(4, n_init=2, random_state=0), 2),
    (DExchangeQuantizer(4, n_init=2, n_swaps=3, random_state=0), 2),
    (DExchangeQuantizer(3, criterion=ProfiledDOptimality(1), random_state=0), 2),
    (SoftVoronoiQuantizer(4, n_init=1, random_state=0), 2),
    (IntervalQuantizer(4), 1),
    (
        FigureOfMeritQuantizer(heaviest_cell, n_bins=4, max_iter=5, random_state=0),
        2,
    ),
]


def events(n=200, d=2, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)) + 0.2


def with_pairs(X, n_pairs=60, seed=1):
    """Add pairs of weights 1 and -1 at equal scores, half of them at new ones."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, len(X), size=n_pairs // 2)
    pairs = np.vstack([X[rows], rng.normal(size=(n_pairs // 2, X.shape[1]))])
    scores = np.vstack([X, pairs, pairs])
    weights = np.repeat([1.0, 1.0, -1.0], [len(X), n_pairs, n_pairs])
    order = rng.permutation(len(scores))
    return scores[order], weights[order], np.argsort(order)[: len(X)]


def signed_sample(n=3000, share=0.2, seed=0, d=2):
    """Events of a law, thinned by negative ones of the same law."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, d)) + 0.3
    return scores, np.where(rng.random(n) < share, -1.0, 1.0)


@pytest.mark.filterwarnings("ignore::skquant.exceptions.RuleExtensionWarning")
@pytest.mark.parametrize(("quantizer", "d"), QUANTIZERS)
def test_pairs_that_cancel_give_the_identical_fit(quantizer, d):
    X = events(d=d)
    scores, weights, place = with_pairs(X)
    one = quantizer.fit(X)
    labels, rule, retention = one.labels_, one.rule_, one.retention_
    two = quantizer.set_params(negative_weights="merge").fit(
        scores, sample_weight=weights
    )
    np.testing.assert_array_equal(two.labels_[place], labels)
    assert two.rule_ == rule and two.retention_ == retention
    assert two.merged_weight_share_ == two.merged_radius_ == 0.0
    np.testing.assert_allclose(two.cell_weights_.sum(), len(X))
    quantizer.set_params(negative_weights="error")


@pytest.mark.filterwarnings("ignore::skquant.exceptions.RuleExtensionWarning")
@pytest.mark.parametrize(("quantizer", "d"), QUANTIZERS)
def test_merged_fits_are_fits_of_the_merged_table(quantizer, d):
    scores, weights = signed_sample(400, d=d)
    merged = merge_negative_weights(scores, weights, 1e-10)
    quantizer.set_params(negative_weights="error")
    one = quantizer.fit(merged.X, sample_weight=merged.weights)
    labels, rule, retention = one.labels_, one.rule_, one.retention_
    two = quantizer.set_params(negative_weights="merge").fit(
        scores, sample_weight=weights
    )
    # a figure is that of the rows themselves
    if not isinstance(quantizer, FigureOfMeritQuantizer):
        np.testing.assert_array_equal(two.labels_, labels[merged.of_row])
        assert two.rule_ == rule and two.retention_ == retention
    np.testing.assert_allclose(
        two.cell_weights_, np.bincount(two.labels_, weights), rtol=1e-12
    )
    assert (two.cell_weights_ > 0).all()
    assert 0.2 < two.merged_weight_share_ < 0.9
    assert two.merged_radius_ > 0
    assert two.score(scores, sample_weight=weights) == pytest.approx(
        two.figure_ if hasattr(two, "figure_") else two.retention_, abs=0.2
    )
    quantizer.set_params(negative_weights="error")


def test_without_negative_weights_nothing_is_merged():
    X = events()
    weights = np.arange(len(X)) % 4
    fits = [
        DExchangeQuantizer(4, random_state=0, negative_weights=each).fit(
            X, sample_weight=weights
        )
        for each in ("error", "merge")
    ]
    assert fits[0].rule_ == fits[1].rule_
    assert fits[1].merged_weight_share_ == 0.0
    assert not hasattr(fits[0], "merged_weight_share_")


@pytest.mark.parametrize("share", [0.05, 0.3, 0.45])
@pytest.mark.parametrize("d", [1, 3])
def test_sums_of_merged_rows(share, d):
    scores, weights = signed_sample(1000, share, d=d)
    weights = weights * np.random.default_rng(1).exponential(size=1000)
    merged = merge_negative_weights(scores, weights, 1e-10)
    assert (merged.weights > 0).all()
    np.testing.assert_allclose(
        merged.weights, np.bincount(merged.of_row, weights), rtol=1e-9, atol=1e-12
    )
    for column, means in zip(scores.T, merged.X.T, strict=True):
        np.testing.assert_allclose(
            merged.weights * means,
            np.bincount(merged.of_row, weights * column),
            atol=1e-9,
        )
    # a row of positive weight alone stays as it is
    alone = np.bincount(merged.of_row)[merged.of_row] == 1
    assert (weights[alone] > 0).all()
    np.testing.assert_array_equal(merged.X[merged.of_row[alone]], scores[alone])


def test_share_and_radius_by_hand():
    # -1 takes in its neighbors at distance 1 and then 2; the mean of squares is 1
    scores = np.array([[-5.0], [0.0], [1.0], [-2.0], [9.0]])
    weights = np.array([1.0, -1.0, 1.0, 1.0, 1.0])
    merged = merge_negative_weights(scores, weights, 1e-10)
    np.testing.assert_array_equal(merged.of_row[1:4], merged.of_row[1])
    assert len(merged.X) == 3 and merged.share == pytest.approx(0.6)
    assert merged.X[merged.of_row[1], 0] == pytest.approx(-1.0)
    scale = np.sqrt(np.mean(scores**2))
    radius = np.mean(np.abs(np.array([0.0, 1.0, -2.0]) - (-1 / 3))) / scale
    assert merged.radius == pytest.approx(radius)


def test_order_units_and_repetition_do_not_matter():
    scores, weights = signed_sample(500)
    weights[:20] = 0.0

    def fit(X, w):
        quantizer = DExchangeQuantizer(
            4, n_init=2, n_swaps=2, random_state=0, negative_weights="merge"
        )
        return quantizer.fit(X, sample_weight=w)

    first = fit(scores, weights)
    order = np.random.default_rng(3).permutation(500)
    other = fit(scores[order], weights[order])
    np.testing.assert_array_equal(other.labels_, first.labels_[order])
    assert other.rule_ == first.rule_
    scaled = fit(scores * [2.0**300, 2.0**-200], weights * 2.0**400)
    np.testing.assert_array_equal(scaled.labels_, first.labels_)
    doubled = fit(np.repeat(scores, 2, axis=0), np.repeat(weights, 2))
    np.testing.assert_array_equal(doubled.labels_[::2], first.labels_)
    offset = merge_negative_weights(scores + 1e6, weights, 1e-10)
    plain = merge_negative_weights(scores, weights, 1e-10)
    assert len(plain.X) < 500
    np.testing.assert_allclose(offset.weights.sum(), plain.weights.sum())


def test_the_rule_keeps_what_one_of_positive_rows_keeps():
    scores, weights = signed_sample(6000, 0.15)
    fresh = np.random.default_rng(9).normal(size=(20000, 2)) + 0.3
    signed = DExchangeQuantizer(6, random_state=0, negative_weights="merge").fit(
        scores, sample_weight=weights
    )
    positive = DExchangeQuantizer(6, random_state=0).fit(scores)
    assert signed.score(fresh) > positive.score(fresh) - 0.01
    report = signed.information_report(scores, sample_weight=weights)
    # merging loses little of the information of the rows
    assert report.efficiency == pytest.approx(signed.retention_, abs=0.05)


def test_a_heavy_negative_row_takes_as_many_as_it_needs():
    X = events(500)
    weights = np.ones(500)
    weights[7] = -100.0
    merged = merge_negative_weights(X, weights, 1e-10)
    inside = merged.of_row == merged.of_row[7]
    assert 101 < inside.sum() < 180
    # they are its nearest
    whitened = X @ np.linalg.inv(np.linalg.cholesky(X.T @ X)).T
    distance = np.sum((whitened - whitened[7]) ** 2, axis=1)
    assert inside[np.argsort(distance)[:100]].mean() > 0.9


def test_few_cells_left_and_errors():
    X = np.array([[1.0], [2.0], [3.0], [-1.0]])
    quantizer = DExchangeQuantizer(2, random_state=0, negative_weights="merge")
    with pytest.raises(ValueError, match="positive total; got -1 with 2 negative"):
        quantizer.fit(X, sample_weight=[1, -2, 1, -1])
    with pytest.raises(ValueError, match="negative_weights='merge' does"):
        quantizer.set_params(negative_weights="error").fit(
            X, sample_weight=[1, -1, 1, 1]
        )
    with pytest.raises(ValueError, match="'negative_weights' parameter"):
        quantizer.set_params(negative_weights="drop").fit(X)


def test_initial_labels_of_merged_rows_have_to_agree():
    scores, weights = signed_sample(300)
    quantizer = DExchangeQuantizer(3, random_state=0, negative_weights="merge").fit(
        scores, sample_weight=weights
    )
    again = DExchangeQuantizer(3, init=quantizer.labels_, negative_weights="merge")
    again.fit(scores, sample_weight=weights)
    np.testing.assert_array_equal(again.labels_, quantizer.labels_)
    labels = np.arange(300) % 3
    with pytest.raises(ValueError, match="rows that are merged for their negative"):
        again.set_params(init=labels).fit(scores, sample_weight=weights)


@pytest.mark.filterwarnings("ignore::skquant.exceptions.RuleExtensionWarning")
def test_a_prior_takes_merged_weights():
    scores, weights = signed_sample(400)
    criterion = ProfiledDOptimality(0, prior={1: 0.1})
    quantizer = DExchangeQuantizer(
        4, criterion=criterion, random_state=0, negative_weights="merge"
    ).fit(scores, sample_weight=weights)
    assert quantizer.criterion_.expected_events == pytest.approx(weights.sum())
    merged = merge_negative_weights(scores, weights, 1e-10)
    report = information_report(
        merged.X,
        quantizer.labels_[np.unique(merged.of_row, return_index=True)[1]],
        merged.weights,
        criterion=criterion,
    )
    assert report.efficiency == pytest.approx(quantizer.retention_, rel=1e-9)


def test_warnings_are_those_of_the_merged_table():
    scores, weights = signed_sample(300, d=3)
    with pytest.warns(DegenerateInformationWarning, match="n_bins=2 cells"):
        DExchangeQuantizer(2, random_state=0, negative_weights="merge").fit(
            scores, sample_weight=weights
        )
