"""The estimators: optima, invariances, hard inputs, scikit-learn's machinery."""

import pickle
import subprocess
import sys

import joblib
import numpy as np
import pandas as pd
import pytest
from reference import (
    T7,
    B,
    L,
    instance,
    load,
    normal_table,
    partition,
    retained_eigenvalues,
    seed_value,
    slow_binned,
    slow_information,
    slow_profiled,
)
from sklearn import config_context
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skquant import (
    DExchangeQuantizer,
    DOptimality,
    KMeansQuantizer,
    PowerMean,
    ProfiledDOptimality,
    SoftVoronoiQuantizer,
)
from skquant.exceptions import DegenerateInformationWarning, RuleExtensionWarning
from skquant.information import information_report

KINDS = [KMeansQuantizer, DExchangeQuantizer, SoftVoronoiQuantizer]
FREE_LABELS = pytest.mark.filterwarnings(
    "ignore:the rule places:skquant.exceptions.RuleExtensionWarning"
)
PURE_PROFILED = pytest.mark.filterwarnings(
    "ignore:the smallest retained:skquant.exceptions.DegenerateInformationWarning"
)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
hard_kinds = pytest.mark.parametrize("kind", KINDS[:2], ids=lambda kind: kind.__name__)


SHORT = {
    KMeansQuantizer: {"n_init": 2},
    DExchangeQuantizer: {"n_init": 2, "n_swaps": 5},
    SoftVoronoiQuantizer: {"n_init": 1, "max_iter": 12},
}


def make(kind, n_bins, **options):
    """An estimator at a seed, with less search than by default."""
    return kind(n_bins, **{"random_state": 0, **SHORT[kind], **options})


def assert_same_fit(one, two):
    """Equal bit for bit."""
    assert one.rule_ == two.rule_
    assert one.retention_ == two.retention_
    np.testing.assert_array_equal(one.cell_means_, two.cell_means_)


def eigenvalues_of(scores, weights, labels, n_bins):
    total = weights.sum()
    return retained_eigenvalues(
        slow_binned(scores, labels, weights, n_bins) / total,
        slow_information(scores, weights) / total,
    )


# --- optima --------------------------------------------------------------------------

SMALL = load("exact_small")


@FREE_LABELS
@PURE_PROFILED
@pytest.mark.parametrize("criterion", ["D", "trace", "A", "E", "profiled"])
@pytest.mark.parametrize("name", SMALL)
def test_global_optimum_of_small_tables(name, criterion):
    record = SMALL[name]
    scores, weights = np.array(record["scores"]), np.array(record["weights"])
    optimum = record["optima"][criterion]
    n_bins = max(optimum["labels"]) + 1
    if criterion == "profiled":
        criterion = ProfiledDOptimality(record["interest"], nuisance_weight=0.0)
    # the long continuation finds it from fewer starts
    n_init = 16 if criterion == "E" else 64
    quantizer = DExchangeQuantizer(
        n_bins, criterion=criterion, n_init=n_init, random_state=0
    ).fit(scores, sample_weight=weights)
    assert quantizer.retention_ == pytest.approx(optimum["value"], rel=1e-9)
    found = partition(quantizer.labels_[weights > 0])
    assert found == partition(np.array(optimum["labels"]))
    assert quantizer.is_stable_


INSTANCES = {
    name: record
    for name, record in load("reference_instances")["instances"].items()
    if record["n"] <= 3000
}


@pytest.mark.parametrize("name", INSTANCES)
def test_reference_instances(name):
    scores, weights, record = instance(name)
    check = record["check"]
    np.testing.assert_array_equal(scores[0], check["first_row"])
    np.testing.assert_allclose(scores.sum(axis=0), check["column_sums"], rtol=1e-9)
    assert weights.sum() == pytest.approx(check["weight_sum"], rel=1e-12)
    for kind, criterion in ((DExchangeQuantizer, "D"), (KMeansQuantizer, "trace")):
        quantizer = kind(record["n_bins"], random_state=0)
        quantizer.fit(scores, sample_weight=weights)
        best = record["best_of_peer"][criterion]["value"]
        assert quantizer.retention_ >= best * (1 - 1e-3)
        report = information_report(scores, quantizer.labels_, weights)
        mean = report.geometric_mean if criterion == "D" else report.arithmetic_mean
        assert quantizer.retention_ == pytest.approx(mean, rel=1e-12)


def test_retention_is_that_of_the_labels():
    scores, weights, _ = instance("gauss_n1000_d3_k6_w")
    quantizer = DExchangeQuantizer(6, random_state=0).fit(scores, sample_weight=weights)
    eigenvalues = eigenvalues_of(scores, weights, quantizer.labels_, 6)
    expected = eigenvalues.prod() ** (1 / 3)
    assert quantizer.retention_ == pytest.approx(expected, rel=1e-10)
    total = weights.sum()
    np.testing.assert_allclose(
        quantizer.information_, slow_information(scores, weights) / total, rtol=1e-10
    )
    np.testing.assert_allclose(
        quantizer.binned_information_,
        slow_binned(scores, quantizer.labels_, weights, 6) / total,
        rtol=1e-10,
    )
    for cell in range(6):
        inside = quantizer.labels_ == cell
        assert quantizer.cell_weights_[cell] == pytest.approx(weights[inside].sum())
        np.testing.assert_allclose(
            quantizer.cell_means_[cell],
            np.average(scores[inside], axis=0, weights=weights[inside]),
        )


def test_inertia_is_at_most_that_of_plain_kmeans():
    scores, weights, _ = instance("student_n1000_d2_k8")
    quantizer = KMeansQuantizer(8, random_state=0).fit(scores, sample_weight=weights)
    full = slow_information(scores, weights) / weights.sum()
    whitened = scores @ np.linalg.inv(np.linalg.cholesky(full)).T
    plain = KMeans(8, n_init=8, random_state=0).fit(whitened, sample_weight=weights)
    assert quantizer.inertia_ <= plain.inertia_ * (1 + 1e-12)
    centers = [whitened[quantizer.labels_ == b].mean(axis=0) for b in range(8)]
    direct = np.sum((whitened - np.array(centers)[quantizer.labels_]) ** 2)
    assert quantizer.inertia_ == pytest.approx(direct, rel=1e-10)


def test_small_known_optimum():
    quantizer = DExchangeQuantizer(3, random_state=0).fit(T7)
    assert partition(quantizer.labels_) == {
        frozenset({0, 5}),
        frozenset({1, 4, 6}),
        frozenset({2, 3}),
    }
    assert quantizer.retention_ == pytest.approx(0.749517594143441, rel=1e-13)
    assert quantizer.n_bins_ == 3 and quantizer.rank_ == 2
    assert quantizer.n_iter_ >= 1
    assert quantizer.best_remaining_gain_ < 0


@hard_kinds
def test_cells_are_numbered_by_their_mean(kind):
    scores = normal_table(1, 300, L)
    quantizer = make(kind, 5).fit(scores)
    assert (np.diff(quantizer.cell_means_[:, 0]) > 0).all()


# --- the seed text -------------------------------------------------------------------


def test_seed_contrast():
    scores = normal_table(120, 1200, L)
    exchange = DExchangeQuantizer(4, random_state=0).fit(scores)
    kmeans = KMeansQuantizer(4, random_state=0).fit(scores)
    soft = SoftVoronoiQuantizer(4, random_state=0).fit(scores)
    geometric = kmeans.information_report(scores).geometric_mean
    assert exchange.retention_ >= 0.649148
    assert geometric >= 0.648460 - 2e-6
    assert soft.retention_ >= 0.64885
    assert exchange.retention_ > soft.retention_ - 1e-9
    assert soft.retention_ > geometric - 1e-9
    arithmetic = seed_value("kmeans_arithmetic_mean_retention")
    assert kmeans.retention_ >= arithmetic - 1e-6
    assert exchange.is_stable_
    expected = seed_value("exchange_cell_weights_sorted")
    assert sorted(exchange.cell_weights_.tolist()) == expected


def test_seed_hardening_gap():
    scores = normal_table(120, 1200, L)
    gaps = [
        SoftVoronoiQuantizer(
            4, solver="adam", n_init=1, temperature_end_ratio=ratio, random_state=0
        )
        .fit(scores)
        .hardening_gap_
        for ratio in (0.5, 0.2, 0.05, 0.01)
    ]
    assert -0.04 <= gaps[0] <= -0.01
    assert (np.diff(np.abs(gaps)) < 0).all()
    assert abs(gaps[-1]) < 1e-6


def test_seed_consistency():
    population = normal_table(999, 20000, L)
    differences = []
    for n in (100, 6400):
        sample = normal_table(4, n, L)
        quantizer = KMeansQuantizer(4, n_init=4, random_state=0).fit(sample)
        reports = map(quantizer.information_report, (sample, population))
        differences.append(np.subtract(*(r.geometric_mean for r in reports)))
    assert differences[0] > 0.03
    assert abs(differences[0] - seed_value("consistency_diff_100_value")) < 5e-5
    assert abs(differences[1]) < 0.002


# --- labels and rule -----------------------------------------------------------------


def _duplicated(rng):
    scores = rng.integers(-3, 4, size=(400, 2)).astype(float)
    return scores, rng.integers(0, 3, size=400).astype(float)


def _heavy(rng):
    return rng.standard_t(3, size=(500, 3)), np.exp(3 * rng.normal(size=500))


def _offset(rng):
    return rng.normal(size=(400, 2)) + [5.0, -3.0], np.ones(400)


def _large(rng):
    return rng.normal(size=(25_000, 2)), rng.exponential(size=25_000)


@pytest.mark.parametrize("make_table", [_duplicated, _heavy, _offset, _large])
def test_stable_d_labels_are_those_of_the_rule(make_table):
    scores, weights = make_table(np.random.default_rng(3))
    quantizer = DExchangeQuantizer(6, n_init=2, n_swaps=4, random_state=0)
    quantizer.fit(scores, sample_weight=weights)
    assert quantizer.is_stable_
    assert quantizer.rule_agreement_ == 1.0
    np.testing.assert_array_equal(quantizer.predict(scores), quantizer.labels_)
    assert quantizer.best_remaining_gain_ <= 1e-12


@pytest.mark.filterwarnings(
    "ignore:DExchangeQuantizer stopped:sklearn.exceptions.ConvergenceWarning",
    "ignore:KMeansQuantizer stopped:sklearn.exceptions.ConvergenceWarning",
)
@FREE_LABELS
@every_kind
@pytest.mark.parametrize("stop", [False, True])
def test_labels_belong_to_the_fit(kind, stop):
    scores, weights, record = instance("gauss_n1000_d3_k6_w")
    quantizer = make(kind, 6, **({"max_iter": 1} if stop else {}))
    labels = quantizer.fit_predict(scores, sample_weight=weights)
    assert labels is quantizer.labels_ and labels.dtype == np.int32
    same = clone(quantizer).fit(scores, sample_weight=weights).predict(scores)
    agreement = weights[labels == same].sum() / weights.sum()
    assert quantizer.rule_agreement_ == pytest.approx(agreement, abs=1e-12)
    if kind is not DExchangeQuantizer or not stop:
        assert agreement == 1.0
    for cell in range(6):
        inside = labels == cell
        np.testing.assert_allclose(
            quantizer.cell_means_[cell],
            np.average(scores[inside], axis=0, weights=weights[inside]),
            rtol=1e-9,
        )


def test_a_stopped_exchange_says_so():
    scores = normal_table(2, 2000, B)
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=1"):
        quantizer = DExchangeQuantizer(
            12, init="random", n_init=1, n_swaps=0, max_iter=1, random_state=0
        ).fit(scores)
    assert not quantizer.is_stable_
    assert quantizer.n_iter_ == 1
    assert quantizer.best_remaining_gain_ > 0


@PURE_PROFILED
def test_a_rule_that_misses_labels_says_so():
    scores = normal_table(7, 60, B)
    quantizer = DExchangeQuantizer(
        5, criterion=ProfiledDOptimality(0, 0.0), random_state=0
    )
    with pytest.warns(RuleExtensionWarning, match="the rule places"):
        quantizer.fit(scores)
    same = quantizer.predict(scores) == quantizer.labels_
    assert quantizer.rule_agreement_ == pytest.approx(same.mean(), abs=1e-12)
    assert quantizer.rule_agreement_ < 1


@every_kind
def test_frozen_functions_agree(kind):
    scores, fresh = normal_table(3, 300, L), normal_table(4, 200, L)
    weights = np.random.default_rng(5).exponential(size=200)
    quantizer = make(kind, 5).fit(scores)
    labels = quantizer.predict(fresh)
    logits = quantizer.decision_function(fresh)
    assert labels.dtype == np.int32 and logits.shape == (200, 5)
    np.testing.assert_array_equal(np.argmax(logits, axis=1), labels)
    np.testing.assert_array_equal(quantizer.rule_.predict(fresh), labels)
    np.testing.assert_array_equal(
        quantizer.transform(fresh), quantizer.cell_means_[labels]
    )
    eigenvalues = eigenvalues_of(fresh, weights, labels, 5)
    expected = (
        eigenvalues.mean() if kind is KMeansQuantizer else eigenvalues.prod() ** 0.5
    )
    score = quantizer.score(fresh, sample_weight=weights)
    assert score == pytest.approx(expected, rel=1e-10)
    report = quantizer.information_report(fresh, sample_weight=weights)
    assert report.efficiency == pytest.approx(expected, rel=1e-10)
    assert quantizer.score(scores) == pytest.approx(quantizer.retention_, rel=1e-10)


@every_kind
def test_unfitted(kind):
    for method in ("predict", "decision_function", "transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(kind(3), method)(T7)


@every_kind
def test_score_of_rows_without_information(kind):
    quantizer = make(kind, 4).fit(normal_table(3, 200, B))
    flat = np.random.default_rng(0).normal(size=(50, 1)) * [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="all 3 informative.*rank 1"):
        quantizer.score(flat)


# --- invariance ----------------------------------------------------------------------


@every_kind
def test_row_order_does_not_matter(kind):
    scores, weights, _ = instance("grid_n2000_d2_k9")
    scores = np.concatenate([scores[:300], normal_table(0, 200, L)])
    weights = np.random.default_rng(1).exponential(size=500)
    order = np.random.default_rng(2).permutation(500)
    one = make(kind, 6).fit(scores, sample_weight=weights)
    two = make(kind, 6).fit(scores[order], sample_weight=weights[order])
    assert_same_fit(one, two)
    np.testing.assert_array_equal(one.labels_[order], two.labels_)


@every_kind
def test_weights_are_repetition(kind):
    scores = normal_table(6, 300, L)
    times = np.random.default_rng(7).integers(0, 4, size=300)
    rows = np.random.default_rng(8).permutation(np.repeat(np.arange(300), times))
    one = make(kind, 5).fit(scores, sample_weight=times)
    two = make(kind, 5).fit(scores[rows])
    assert_same_fit(one, two)
    np.testing.assert_array_equal(one.labels_[rows], two.labels_)
    np.testing.assert_array_equal(one.cell_weights_, two.cell_weights_)


@every_kind
def test_number_of_jobs_does_not_matter(kind):
    scores = normal_table(9, 600, B)
    fits = [make(kind, 6, n_init=4, n_jobs=n).fit(scores) for n in (None, 1, 2)]
    for other in fits[1:]:
        assert_same_fit(fits[0], other)
        np.testing.assert_array_equal(fits[0].labels_, other.labels_)


SCALES = [1e-300, 1e-30, 150000, 1e300]


@every_kind
def test_scale_of_the_weights_does_not_matter(kind):
    matrix = np.array([[1, 0.5, 0.2], [0, 1.1, 0.3], [0, 0, 0.9]])
    scores = normal_table(0, 300, matrix)
    for weights in (np.ones(300), np.random.default_rng(1).exponential(size=300)):
        plain = make(kind, 6, n_init=2).fit(scores, sample_weight=weights)
        for scale in SCALES:
            scaled = clone(plain).fit(scores, sample_weight=weights * scale)
            np.testing.assert_array_equal(scaled.labels_, plain.labels_)
            assert scaled.retention_ == pytest.approx(plain.retention_, rel=1e-12)
            np.testing.assert_allclose(
                scaled.cell_weights_ / scale, plain.cell_weights_, rtol=1e-9
            )


def assert_units_do_not_matter(plain, scores, units):
    plain.fit(scores)
    scaled = clone(plain).fit(scores * units)
    np.testing.assert_array_equal(scaled.labels_, plain.labels_)
    assert scaled.retention_ == pytest.approx(plain.retention_, rel=1e-9)
    again = scaled.score(scores * units)
    assert again == pytest.approx(plain.score(scores), rel=1e-9)


UNITS = [[1e-150, 1.0, 1e150], [1e150, 1e-150, 1e-150]]


@FREE_LABELS
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize(
    "quantizer",
    [
        make(KMeansQuantizer, 5),
        make(DExchangeQuantizer, 5),
        make(DExchangeQuantizer, 5, criterion="A"),
        make(DExchangeQuantizer, 5, criterion=ProfiledDOptimality(0)),
        make(SoftVoronoiQuantizer, 5, solver="adam"),
        make(SoftVoronoiQuantizer, 5, solver="adam", criterion=ProfiledDOptimality(0)),
    ],
    ids=repr,
)
def test_units_of_the_columns_do_not_matter(quantizer, units):
    assert_units_do_not_matter(quantizer, normal_table(10, 300, B), units)


@pytest.mark.parametrize("criterion", ["D", ProfiledDOptimality(0)])
def test_units_do_not_matter_to_lbfgs(criterion):
    # powers of two: it amplifies the rounding that other units bring
    quantizer = make(SoftVoronoiQuantizer, 5, criterion=criterion)
    units = 2.0 ** np.array([-498, 0, 498])
    assert_units_do_not_matter(quantizer, normal_table(10, 300, B), units)


@every_kind
@pytest.mark.parametrize("scale", [1e-200, 1e-160, 1e-30, 1e30, 1e160, 1e200])
def test_values_near_overflow(kind, scale):
    plain = make(kind, 3).fit(T7)
    scaled = make(kind, 3).fit(T7 * scale)
    np.testing.assert_array_equal(scaled.labels_, plain.labels_)
    np.testing.assert_array_equal(scaled.predict(T7 * scale), scaled.labels_)
    assert scaled.retention_ == pytest.approx(plain.retention_, rel=1e-12)


@hard_kinds
def test_linear_change_of_parameters_does_not_matter(kind):
    scores = normal_table(11, 60, np.eye(3))
    change = np.array([[2.0, -1.0, 0.3], [0.5, 40.0, 1e-3], [0.0, 3.0, 1e-2]])
    one = make(kind, 5, n_init=24).fit(scores)
    two = make(kind, 5, n_init=24).fit(scores @ change)
    assert two.retention_ == pytest.approx(one.retention_, rel=1e-9)
    assert partition(two.labels_) == partition(one.labels_)


def test_names_of_the_starting_labels_do_not_matter():
    scores = normal_table(12, 200, L)
    start = np.random.default_rng(0).integers(0, 5, size=200)
    renamed = np.array([3, 0, 4, 2, 1])[start]
    one, two = (
        DExchangeQuantizer(5, init=init, n_swaps=0, random_state=0).fit(scores)
        for init in (start, renamed)
    )
    assert partition(one.labels_) == partition(two.labels_)


# --- starts --------------------------------------------------------------------------


def test_given_labels_are_one_start():
    scores = normal_table(13, 300, L)
    start = (scores[:, 0] > 0) + 2 * (scores[:, 1] > 0)
    few, many = (
        DExchangeQuantizer(4, init=start, n_init=n, n_swaps=0, random_state=0).fit(
            scores
        )
        for n in (1, 50)
    )
    assert_same_fit(few, many)
    assert few.retention_ >= information_report(scores, start).geometric_mean
    again = DExchangeQuantizer(4, init=few.labels_, n_swaps=0, random_state=1)
    again.fit(scores)
    assert again.n_moves_ == 0
    np.testing.assert_array_equal(again.labels_, few.labels_)


def test_given_labels_of_a_large_table_are_kept_if_stable():
    scores = np.random.default_rng(3).normal(size=(22_000, 2))
    first = DExchangeQuantizer(4, n_init=1, n_swaps=2, random_state=0).fit(scores)
    again = DExchangeQuantizer(4, init=first.labels_, n_swaps=0, random_state=1)
    assert again.fit(scores).retention_ >= first.retention_ - 1e-12


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 1, 2, 0, 1, 2, 1, 0], "identical rows one label.*1 repeated"),
        ([0, 1, 1, 0, 1, 0, 1, 0], r"init must use every label.*no row of \[2\]"),
        ([0, 1, 2, 0, 1, 2, 3, 0], r"0\.\.2; got 0\.\.3"),
        ([0, 1, 2], r"init must have shape \(8,\)"),
        ([0.5] * 8, "init must be integers"),
    ],
)
def test_bad_starting_labels(labels, message):
    scores = np.concatenate([T7, T7[6:]])
    if "unlike" not in message and len(labels) == 8 and "identical" not in message:
        labels = [*labels[:7], labels[6]]
    with pytest.raises(ValueError, match=message):
        DExchangeQuantizer(3, init=labels).fit(scores)


def test_a_start_needs_every_cell_on_positive_weight():
    start = [0, 1, 2, 0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"no row of \[2\]"):
        DExchangeQuantizer(3, init=start).fit(T7, sample_weight=[1, 1, 0, 1, 1, 1, 1])


def test_random_starts():
    scores = normal_table(120, 1200, L)
    quantizer = DExchangeQuantizer(4, init="random", random_state=0).fit(scores)
    assert quantizer.retention_ >= 0.649148
    with pytest.raises(ValueError, match="'init' parameter"):
        DExchangeQuantizer(4, init="balanced").fit(scores)


def test_swaps_only_improve():
    scores = np.random.default_rng(14).standard_t(3, size=(400, 2))
    values = [
        DExchangeQuantizer(10, n_init=1, n_swaps=n, random_state=0)
        .fit(scores)
        .retention_
        for n in (0, 20)
    ]
    assert values[1] > values[0]


@every_kind
def test_random_state(kind):
    scores = normal_table(15, 200, L)
    one = make(kind, 5, random_state=7).fit(scores)
    two = make(kind, 5, random_state=np.random.RandomState(7)).fit(scores)
    assert_same_fit(one, two)
    with pytest.raises(ValueError, match="'random_state' parameter"):
        make(kind, 5, random_state=np.random.default_rng(7)).fit(scores)


# --- weights -------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize("seed", range(5))
def test_weights_decide_the_cells(kind, seed):
    column = np.array([2.0, 2, 7, 7, 90, 90])[:, None]
    weights = np.array([1e8] * 4 + [1e-8] * 2)
    quantizer = make(kind, 2, random_state=seed).fit(column, sample_weight=weights)
    np.testing.assert_array_equal(quantizer.labels_, [0, 0, 1, 1, 1, 1])
    np.testing.assert_array_equal(quantizer.predict(column), quantizer.labels_)
    np.testing.assert_allclose(quantizer.cell_means_[:, 0], [2, 7], atol=1e-6)
    unit = make(kind, 2, random_state=seed).fit(column)
    np.testing.assert_array_equal(unit.labels_, [0, 0, 0, 0, 1, 1])
    assert unit.retention_ == pytest.approx(0.9984668220287, abs=1e-12)


@every_kind
def test_a_row_without_weight_is_absent(kind):
    scores = np.concatenate([T7, [[1e8, -1e8], [-3e7, 2e7]]])
    weights = np.array([1.0] * 7 + [0.0] * 2)
    plain = make(kind, 3).fit(T7)
    wide = make(kind, 3).fit(scores, sample_weight=weights)
    assert_same_fit(plain, wide)
    np.testing.assert_array_equal(wide.labels_[:7], plain.labels_)
    np.testing.assert_array_equal(wide.labels_[7:], wide.predict(scores[7:]))
    with pytest.warns(ConvergenceWarning, match="positive weight, 7"):
        assert make(kind, 8).fit(scores, sample_weight=weights).n_bins_ == 7


def test_weighted_small_table():
    times = np.array([2, 0, 1, 3, 1, 0, 2])
    rows = np.random.default_rng(0).permutation(np.repeat(np.arange(7), times))
    one = DExchangeQuantizer(3, random_state=0).fit(T7, sample_weight=times)
    two = DExchangeQuantizer(3, random_state=0).fit(T7[rows])
    for quantizer in (one, two):
        assert quantizer.retention_ == pytest.approx(0.7815666319493675, abs=1e-12)
    np.testing.assert_array_equal(one.labels_[rows], two.labels_)


@every_kind
@pytest.mark.parametrize(
    "weights, message",
    [
        ([1, 1, 1, 1, 1, 1, -0.1], "1 negative weights of 7, 0.0164 of the total"),
        ([-1] * 7, "7 negative weights of 7, 1 of the total"),
        ([0] * 7, "(?i)sample.weights? must .* at least one non-zero"),
        ([1, 1, np.nan, 1, 1, 1, 1], "sample_weight contains NaN"),
        ([1, 1, np.inf, 1, 1, 1, 1], "sample_weight contains infinity"),
        ([1, 1, 1], "sample_weight.shape"),
    ],
)
def test_bad_weights(kind, weights, message):
    quantizer = make(kind, 3)
    with pytest.raises(ValueError, match=message):
        quantizer.fit(T7, sample_weight=weights)
    quantizer.fit(T7)
    if min(weights) < 0:
        if max(weights) > 0:
            return  # a rule may be evaluated with some negative weights
        message = "positive total; got -7"
    for method in (quantizer.score, quantizer.information_report):
        with pytest.raises(ValueError, match=message):
            method(T7, sample_weight=weights)


@every_kind
def test_negative_zero_is_zero(kind):
    zero = make(kind, 3).fit(T7, sample_weight=[1, 1, 1, 1, 1, 1, 0.0])
    negative = make(kind, 3).fit(T7, sample_weight=[1, 1, 1, 1, 1, 1, -0.0])
    assert_same_fit(zero, negative)


YIELDS = np.array([166, 306, 245, 182, 138, 113, 99, 92, 88, 76])


@FREE_LABELS
@pytest.mark.parametrize("n_bins", [3, 5, 7])
@pytest.mark.parametrize("yields", [YIELDS * 1000, np.full(10, 0.3)], ids=["nlo", "03"])
def test_min_bin_weight(yields, n_bins):
    column = np.arange(10.0)[:, None]
    quantizer = DExchangeQuantizer(n_bins, min_bin_weight=0.1, random_state=0)
    quantizer.fit(column, sample_weight=yields)
    shares = quantizer.cell_weights_ / quantizer.cell_weights_.sum()
    assert shares.min() >= 0.1 * (1 - 1e-12)
    assert quantizer.n_bins_ == n_bins == len(shares)
    np.testing.assert_allclose(
        quantizer.cell_weights_,
        np.bincount(quantizer.labels_, yields, minlength=n_bins),
    )
    small = clone(quantizer).fit(column, sample_weight=yields / 1e5)
    np.testing.assert_array_equal(small.labels_, quantizer.labels_)


@FREE_LABELS
def test_a_constraint_of_the_fit_is_not_one_of_the_rule():
    rng = np.random.default_rng(32)
    scores = np.repeat(T7, 30, axis=0) + 0.01 * rng.normal(size=(210, 2))
    quantizer = DExchangeQuantizer(3, min_bin_weight=0.2, random_state=0).fit(scores)
    assert quantizer.cell_weights_.min() >= 0.2 * 210 * (1 - 1e-12)
    np.testing.assert_array_equal(
        quantizer.predict(scores[:2]), quantizer.rule_.predict(scores)[:2]
    )


def test_an_impossible_constraint():
    with pytest.raises(ValueError, match=r"n_bins \* min_bin_weight.*3 \* 0.4 = 1.2"):
        DExchangeQuantizer(3, min_bin_weight=0.4).fit(T7)


def test_a_constraint_that_is_not_reached_warns():
    scores, weights = T7[:4], [10.0, 1.0, 1.0, 1.0]
    with pytest.warns(ConvergenceWarning, match="min_bin_weight=0.3 was not reached"):
        quantizer = DExchangeQuantizer(3, min_bin_weight=0.3, random_state=0).fit(
            scores, sample_weight=weights
        )
    assert quantizer.n_bins_ == 3


# --- duplicates and degenerate geometry ----------------------------------------------


@every_kind
@pytest.mark.parametrize("n_bins", [3, 4, 12])
def test_more_cells_than_distinct_rows(kind, n_bins):
    points = np.array([[1, 2], [-1, 0.5], [0, -2]])
    scores = np.repeat(points, 4, axis=0)
    quantizer = make(kind, n_bins)
    if n_bins == 3:
        quantizer.fit(scores)
    else:
        with pytest.warns(ConvergenceWarning, match="distinct rows of positive.*, 3:"):
            quantizer.fit(scores)
    assert quantizer.n_bins_ == 3
    assert quantizer.retention_ == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(quantizer.labels_, np.repeat([2, 0, 1], 4))
    np.testing.assert_array_equal(quantizer.predict(scores), quantizer.labels_)


@every_kind
def test_many_ties(kind):
    column = np.array([-1.0] * 6 + [0, 0, 1, 2])[:, None]
    quantizer = make(kind, 3).fit(column)
    np.testing.assert_array_equal(quantizer.labels_, [0] * 6 + [1, 1, 2, 2])
    assert quantizer.retention_ == pytest.approx(0.9545454545454544, abs=1e-12)
    pairs = np.array([[-1.0], [-1], [1], [1]])
    assert make(kind, 2).fit(pairs).retention_ == pytest.approx(1.0, abs=1e-12)
    with pytest.warns(ConvergenceWarning, match="distinct rows"):
        assert make(kind, 3).fit(pairs).n_bins_ == 2


@every_kind
def test_ties_of_a_large_table(kind):
    scores = np.random.default_rng(0).integers(-3, 4, size=(100_001, 2)).astype(float)
    quantizer = make(kind, 9).fit(scores)
    np.testing.assert_array_equal(quantizer.predict(scores), quantizer.labels_)
    code = (7 * scores[:, 0] + scores[:, 1]).astype(int)
    pairs = np.unique(np.column_stack([code, quantizer.labels_]), axis=0)
    assert len(pairs) == 49
    assert np.bincount(quantizer.labels_).min() > 0 and quantizer.n_bins_ == 9


@every_kind
@pytest.mark.parametrize("noise, rank", [(0.0, 2), (1e-7, 3)])
def test_collinear_columns(kind, noise, rank):
    scores, _, record = instance("collinear_n800_d3_k5")
    scores[:, 2] += noise * np.random.default_rng(0).normal(size=800)
    quantizer = make(kind, 5).fit(scores)
    assert quantizer.rank_ == rank
    report = quantizer.information_report(scores)
    assert report.rank == rank
    assert report.dropped_columns == (2,) * (rank == 2)
    assert quantizer.score(scores) == pytest.approx(quantizer.retention_, rel=1e-6)
    if rank == 2 and kind is not SoftVoronoiQuantizer:
        plain = make(kind, 5, n_init=12).fit(scores[:, :2])
        wide = make(kind, 5, n_init=12).fit(scores)
        assert wide.retention_ == pytest.approx(plain.retention_, rel=1e-9)


@every_kind
def test_constant_and_zero_columns(kind):
    scores = np.random.default_rng(0).normal(size=(300, 2))
    fits = []
    for constant in (0.0, 14.62, [14.62 * (1 + 2**-52)] + [14.62] * 299):
        scores[:, 1] = constant
        fits.append(make(kind, 3).fit(scores))
        fits[-1].report = fits[-1].information_report(scores)
    assert [quantizer.rank_ for quantizer in fits] == [1, 2, 2]
    assert fits[0].report.dropped_columns == (1,)
    assert fits[1].report.mean_shift > 0.99
    np.testing.assert_array_equal(fits[1].labels_, fits[2].labels_)


@every_kind
@pytest.mark.parametrize("criterion", ["D", "A", "E", ProfiledDOptimality(0, 0.1)])
def test_fewer_cells_than_parameters(kind, criterion):
    scores = np.random.default_rng(16).normal(size=(300, 4))
    quantizer = make(kind, 3, criterion=criterion)
    with pytest.warns(DegenerateInformationWarning, match="n_bins >= 4"):
        quantizer.fit(scores)
    assert quantizer.retention_ == 0.0
    assert quantizer.score(scores) == 0.0


@pytest.mark.parametrize("criterion", ["D", "A", "E", PowerMean(-3)], ids=str)
def test_cells_below_the_rank_ceiling_are_those_of_the_trace(criterion):
    scores = np.random.default_rng(16).normal(size=(300, 4))
    quantizer = DExchangeQuantizer(3, criterion=criterion, random_state=0)
    with pytest.warns(DegenerateInformationWarning, match="of the trace criterion"):
        quantizer.fit(scores)
    trace = DExchangeQuantizer(3, criterion="trace", random_state=0).fit(scores)
    assert partition(quantizer.labels_) == partition(trace.labels_)


@every_kind
def test_as_many_cells_as_parameters_of_centred_scores(kind):
    scores = np.random.default_rng(16).normal(size=(300, 4))
    scores -= scores.mean(axis=0)
    with pytest.warns(DegenerateInformationWarning, match="centred.*n_bins >= 5"):
        quantizer = make(kind, 4, criterion="D").fit(scores)
    assert quantizer.retention_ == 0.0
    trace = make(kind, 4, criterion="trace").fit(scores)
    assert trace.retention_ > 0.3


@every_kind
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_one_cell(kind, shift):
    column = np.random.default_rng(17).normal(size=(200, 1)) + shift
    expected = column.sum() ** 2 / (200 * (column**2).sum())
    quantizer = make(kind, 1).fit(column)
    assert quantizer.retention_ == pytest.approx(expected, rel=1e-10)
    assert (quantizer.labels_ == 0).all()
    if kind is SoftVoronoiQuantizer:
        assert quantizer.soft_retention_ == pytest.approx(expected, rel=1e-10)
        assert quantizer.hardening_gap_ == pytest.approx(0.0, abs=1e-14)


# --- numbers and containers ----------------------------------------------------------


@every_kind
@pytest.mark.parametrize("bad, name", [(np.nan, "NaN"), (np.inf, "infinity")])
def test_nan_and_infinity(kind, bad, name):
    scores = T7.copy()
    scores[3, 1] = bad
    weights = np.array([1.0, 1, 1, 0, 1, 1, 1])
    for sample_weight in (None, weights):
        with pytest.raises(ValueError, match=f"Input X contains {name}"):
            make(kind, 3).fit(scores, sample_weight=sample_weight)
    quantizer = make(kind, 3).fit(T7)
    for method in ("predict", "transform", "score", "information_report"):
        with pytest.raises(ValueError, match=f"Input X contains {name}"):
            getattr(quantizer, method)(scores)


@every_kind
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float16, 1e-2)])
def test_low_precision(kind, dtype, tolerance):
    scores, weights, _ = instance("gauss_n1000_d3_k6_w")
    double = make(kind, 6, n_init=8).fit(scores, sample_weight=weights)
    low = clone(double).fit(scores.astype(dtype), sample_weight=weights)
    assert low.retention_ == pytest.approx(double.retention_, abs=tolerance)
    assert low.labels_.dtype == np.int32
    labels = double.predict(scores.astype(dtype))
    assert labels.dtype == np.int32
    unlike = np.flatnonzero(labels != double.labels_)
    logits = np.sort(double.rule_.decision_function(scores[unlike]), axis=1)
    assert (logits[:, -1] - logits[:, -2] <= tolerance * np.ptp(logits, axis=1)).all()
    expected = np.float32 if dtype is np.float32 else np.float64
    assert low.transform(scores.astype(dtype)).dtype == expected


def _memmap(X, path):
    np.save(path, X)
    return np.load(path, mmap_mode="r")


def _read_only(X, path):
    X.setflags(write=False)
    return X


@every_kind
@pytest.mark.parametrize(
    "convert",
    [
        lambda X, path: np.asfortranarray(X),
        lambda X, path: np.repeat(X, 2, axis=0)[:, ::-1].copy()[::2, ::-1],
        lambda X, path: X.tolist(),
        lambda X, path: X.astype(object),
        _memmap,
        _read_only,
    ],
    ids=["fortran", "view", "list", "object", "memmap", "read-only"],
)
def test_containers(kind, convert, tmp_path):
    weights = np.arange(1.0, 8.0)
    plain = make(kind, 3).fit(T7, sample_weight=weights)
    scores = convert(T7.copy(), tmp_path / "scores.npy")
    weights.setflags(write=False)
    other = make(kind, 3).fit(scores, sample_weight=weights)
    assert_same_fit(plain, other)
    np.testing.assert_array_equal(other.predict(scores), plain.labels_)
    np.testing.assert_array_equal(np.asarray(scores, dtype=float), T7)
    np.testing.assert_array_equal(weights, np.arange(1.0, 8.0))


@hard_kinds
def test_threads_on_a_large_read_only_table(kind):
    scores = np.random.default_rng(1).normal(size=(60_000, 2))
    weights = np.random.default_rng(2).exponential(size=60_000)
    options = {"n_swaps": 1} if kind is DExchangeQuantizer else {}
    before = scores.tobytes(), weights.tobytes()
    scores.setflags(write=False)
    weights.setflags(write=False)
    fits = [
        make(kind, 3, n_init=2, n_jobs=n, **options).fit(scores, sample_weight=weights)
        for n in (1, 2)
    ]
    assert_same_fit(*fits)
    assert (scores.tobytes(), weights.tobytes()) == before


@every_kind
def test_empty_tables(kind):
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        make(kind, 3).fit(np.empty((0, 2)))
    quantizer = make(kind, 3).fit(T7)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        quantizer.predict(np.empty((0, 2)))
    assert quantizer.rule_.predict(np.empty((0, 2))).shape == (0,)
    for predict in (quantizer.predict, quantizer.rule_.predict):
        with pytest.raises(ValueError, match="3"):
            predict(np.empty((2, 3)))
        with pytest.raises(ValueError, match="3"):
            predict(np.empty((0, 3)))


@every_kind
def test_scores_that_are_all_zero(kind):
    with pytest.raises(ValueError, match="must not all be zero.*got nothing but zeros"):
        make(kind, 2).fit(np.zeros((5, 2)))


# --- files ---------------------------------------------------------------------------

_LOAD = """
import sys, joblib, numpy as np
np.random.seed(5)
scores = np.load("scores.npy")
for name in sys.argv[1:]:
    quantizer = joblib.load(name).set_params(n_jobs=2)
    np.save(name + ".npy", quantizer.decision_function(scores))
"""


def test_stored_estimators_predict_the_same_elsewhere(tmp_path):
    scores = normal_table(16, 300, L)
    np.save(tmp_path / "scores.npy", scores)
    expected = {}
    for kind in KINDS:
        quantizer = make(kind, 5).fit(scores)
        names = f"{kind.__name__}.pickle", f"{kind.__name__}.joblib"
        (tmp_path / names[0]).write_bytes(pickle.dumps(quantizer))
        joblib.dump(quantizer, tmp_path / names[1])
        expected.update(dict.fromkeys(names, quantizer.decision_function(scores)))
    command = [sys.executable, "-W", "error", "-c", _LOAD, *expected]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    for name, logits in expected.items():
        assert np.load(tmp_path / f"{name}.npy").tobytes() == logits.tobytes()


@every_kind
def test_a_rule_holds_no_training_rows(kind):
    sizes = []
    for n in (200, 2000):
        scores = np.random.default_rng(0).normal(size=(n, 2))
        quantizer = make(kind, 8, n_init=1, criterion="trace").fit(scores)
        sizes.append(len(pickle.dumps(quantizer.rule_)))
        saved = pickle.loads(pickle.dumps(quantizer.rule_))
        np.testing.assert_array_equal(saved.predict(scores), quantizer.predict(scores))
    assert sizes[0] == sizes[1] < 2000


# --- failures ------------------------------------------------------------------------


def _spoil_nan(scores, weights):
    scores[0, 0] = np.nan


def _spoil_weights(scores, weights):
    weights[1] = -1.0


def _spoil_zero(scores, weights):
    scores[:] = 0.0


def _spoil_distinct(scores, weights):
    # a warning that the filter turns into an error
    scores[:] = scores[0]


@every_kind
@pytest.mark.parametrize(
    "spoil", [_spoil_nan, _spoil_weights, _spoil_zero, _spoil_distinct]
)
def test_nothing_is_half_fitted(kind, spoil):
    scores, weights = normal_table(17, 40, B), np.ones(40)
    bad = scores.copy(), weights.copy()
    spoil(*bad)
    quantizer = make(kind, 4)
    before = dict(vars(quantizer))
    with pytest.raises((ValueError, UserWarning)):
        quantizer.fit(bad[0], sample_weight=bad[1])
    assert vars(quantizer) == before

    fitted = make(kind, 4).fit(scores)
    before = dict(vars(fitted))
    with pytest.raises((ValueError, UserWarning)):
        fitted.fit(bad[0][:, :2], sample_weight=bad[1])
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[name] is value for name, value in before.items())


@every_kind
@pytest.mark.parametrize(
    "parameter, value",
    [
        ("n_bins", 0),
        ("n_bins", 2.5),
        ("criterion", "C"),
        ("criterion", None),
        ("n_init", 0),
        ("rank_rtol", 1.0),
        ("random_state", "a"),
        ("n_jobs", 1.5),
    ],
)
def test_bad_parameters(kind, parameter, value):
    with pytest.raises(ValueError, match=f"The '{parameter}' parameter"):
        kind(**{parameter: value}).fit(T7)


# --- criteria ------------------------------------------------------------------------


class MyLogDet:
    """A user's criterion, as plain as can be."""

    def value(self, information, reference):
        sign, value = np.linalg.slogdet(information)
        return value if sign > 0 and value > -30 else -np.inf

    def gradient(self, information, reference):
        return np.linalg.inv(information)

    def efficiency(self, information, reference):
        return float(np.exp(self.value(information, reference) / len(information)))


class MyConcaveLogDet(MyLogDet):
    concave = True


@pytest.mark.parametrize("criterion", [MyLogDet(), MyConcaveLogDet()])
def test_a_criterion_of_the_user(criterion):
    scores = normal_table(18, 150, L)
    ours = DExchangeQuantizer(4, n_swaps=5, random_state=0).fit(scores)
    theirs = DExchangeQuantizer(4, criterion=criterion, n_swaps=5, random_state=0)
    theirs.fit(scores)
    assert theirs.criterion_ is criterion
    assert theirs.retention_ == pytest.approx(ours.retention_, rel=1e-9)
    assert theirs.score(scores) == pytest.approx(ours.score(scores), rel=1e-9)
    assert theirs.best_remaining_gain_ < 1e-10
    assert theirs.is_stable_ == isinstance(criterion, MyConcaveLogDet)


@pytest.mark.parametrize("kind", [KMeansQuantizer, SoftVoronoiQuantizer])
def test_a_criterion_of_the_user_elsewhere(kind):
    scores = normal_table(18, 150, L)
    ours = make(kind, 4, criterion="D", n_init=4).fit(scores)
    theirs = make(kind, 4, criterion=MyLogDet(), n_init=4).fit(scores)
    assert theirs.retention_ == pytest.approx(ours.retention_, rel=1e-6)


@FREE_LABELS
def test_each_criterion_is_best_at_its_own():
    scores = np.random.default_rng(19).standard_t(4, size=(40, 2))
    fits = {
        criterion: DExchangeQuantizer(
            4, criterion=criterion, n_swaps=5, random_state=0
        ).fit(scores)
        for criterion in ("trace", "D", "A", "E")
    }
    for criterion, best in fits.items():
        for other in fits.values():
            report = information_report(scores, other.labels_, criterion=criterion)
            assert best.retention_ >= report.efficiency - 1e-9


@FREE_LABELS
@pytest.mark.parametrize("kind", KINDS[1:], ids=lambda kind: kind.__name__)
def test_profiled_criterion_by_name(kind):
    table = pd.DataFrame(normal_table(121, 900, B), columns=["mass", "width", "phase"])
    criterion = ProfiledDOptimality(["mass"])
    quantizer = make(kind, 6, criterion=criterion).fit(table)
    assert quantizer.criterion_.interest == (0,)
    assert quantizer.criterion_.nuisance_weight == pytest.approx(0.02, rel=1e-12)
    assert (criterion.interest, criterion.nuisance_weight) == (["mass"], "auto")
    scores = table.to_numpy()
    pair = (
        slow_binned(scores, quantizer.labels_, np.ones(900), 6),
        slow_information(scores, np.ones(900)),
    )
    expected = slow_profiled(*pair, [0])
    assert quantizer.retention_ == pytest.approx(expected, rel=1e-9)
    block = np.ix_([1, 2], [1, 2])
    smallest = retained_eigenvalues(pair[0][block], pair[1][block])[0]
    assert quantizer.nuisance_retention_ == pytest.approx(smallest, rel=1e-8)
    plain = make(kind, 6).fit(table)
    report = information_report(scores, plain.labels_, criterion=ProfiledDOptimality(0))
    assert quantizer.retention_ > report.efficiency


@every_kind
@pytest.mark.parametrize(
    "interest, message",
    [
        ("spin", "got 'spin'"),
        (["mass", "width", "phase"], "at least one nuisance column"),
        (7, "between 0 and 2"),
    ],
)
def test_bad_interest(kind, interest, message):
    table = pd.DataFrame(normal_table(0, 50, B), columns=["mass", "width", "phase"])
    with pytest.raises(ValueError, match=message):
        make(kind, 5, criterion=ProfiledDOptimality(interest)).fit(table)


@every_kind
def test_names_need_named_columns(kind):
    with pytest.raises(ValueError, match="no column names"):
        make(kind, 5, criterion=ProfiledDOptimality("mass")).fit(normal_table(0, 50, B))


@every_kind
def test_profiled_criterion_needs_independent_columns(kind):
    scores, _, _ = instance("collinear_n800_d3_k5")
    table = pd.DataFrame(scores, columns=["a", "b", "sum"])
    with pytest.raises(ValueError, match=r"columns \['sum'\] are zero or depend"):
        make(kind, 5, criterion=ProfiledDOptimality(0)).fit(table)


@FREE_LABELS
def test_profiled_retention_that_exists_only_in_the_sample_warns():
    scores = normal_table(121, 900, B)
    quantizer = DExchangeQuantizer(
        4, criterion=ProfiledDOptimality(0, 0.0), random_state=0
    )
    with pytest.warns(DegenerateInformationWarning, match="nuisance block"):
        quantizer.fit(scores)
    assert quantizer.nuisance_retention_ < 5 * 4 / 900
    assert quantizer.retention_ > 0.85


# --- the soft fit --------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("family", ["voronoi", "affine_max"])
def test_soft_fit_is_consistent(solver, family):
    scores = normal_table(20, 400, L)
    quantizer = make(SoftVoronoiQuantizer, 4, solver=solver, family=family).fit(scores)
    history = quantizer.history_
    lengths = {
        len(history[name])
        for name in (
            "steps",
            "objective",
            "soft_retention",
            "hard_retention",
            "temperature",
            "gradient_norm",
        )
    }
    assert len(lengths) == 1
    assert history.steps[0] == 0 and (np.diff(history.steps) >= 0).all()
    assert (np.diff(history.temperature) <= 0).all()
    assert quantizer.soft_retention_ == history.soft_retention[-1]
    assert quantizer.hardening_gap_ == pytest.approx(
        history.soft_retention[-1] - history.hard_retention[-1], abs=1e-15
    )
    staged = list(quantizer.staged_score(scores))
    np.testing.assert_allclose(staged, history.hard_retention, rtol=1e-9)
    assert quantizer.retention_ == pytest.approx(max(staged), rel=1e-12)
    for labels, score in zip(quantizer.staged_predict(scores), staged, strict=True):
        report = information_report(scores, labels, n_bins=4)
        assert score == pytest.approx(report.geometric_mean, rel=1e-12)
    assert quantizer.n_iter_ == history.steps[-1]


@pytest.mark.parametrize("criterion", ["D", "trace"])
def test_a_soft_fit_is_never_worse_than_its_start(criterion):
    for seed in range(5):
        scores = np.random.default_rng(seed).standard_t(3, size=(200, 2))
        quantizer = make(SoftVoronoiQuantizer, 5, criterion=criterion, n_init=1)
        quantizer.fit(scores)
        assert quantizer.retention_ >= quantizer.history_.hard_retention[0] - 1e-12


def test_responsibilities_and_draws():
    scores = normal_table(20, 400, L)
    quantizer = make(SoftVoronoiQuantizer, 4, temperature_end_ratio=1.0).fit(scores)
    proba = quantizer.predict_proba(scores)
    assert np.abs(proba.sum(axis=1) - 1).max() < 1e-12
    np.testing.assert_array_equal(np.argmax(proba, axis=1), quantizer.predict(scores))
    full = slow_information(scores, np.ones(400)) / 400
    half = np.linalg.cholesky(np.linalg.inv(full))
    offsets = (scores[:, None] - quantizer.centers_) @ half
    logits = -np.sum(offsets**2, axis=2) / (2 * quantizer.temperature_**2)
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(proba, expected, rtol=1e-6, atol=1e-12)

    uncertain = np.argmin(proba.max(axis=1))
    rows = np.repeat(scores[[uncertain]], 20_000, axis=0)
    draws = quantizer.sample_labels(rows, random_state=0)
    assert draws.dtype == np.int32
    np.testing.assert_array_equal(draws, quantizer.sample_labels(rows, random_state=0))
    counts = np.bincount(draws, minlength=4)
    p = proba[uncertain]
    deviation = (counts - 20_000 * p) / np.sqrt(20_000 * p * (1 - p) + 1)
    assert np.abs(deviation).max() < 4.5


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("ratio", [1e-12, 1e-30, 1e-200])
def test_vanishing_temperature(solver, ratio):
    scores = np.random.default_rng(0).normal(size=(300, 2))
    quantizer = make(
        SoftVoronoiQuantizer, 4, solver=solver, temperature_end_ratio=ratio
    ).fit(scores)
    assert abs(quantizer.hardening_gap_) < 1e-12
    far = np.concatenate([scores, 1e6 * scores[:20]])
    proba = quantizer.predict_proba(far)
    assert np.isfinite(proba).all() and (proba >= 0).all()
    assert np.abs(proba.sum(axis=1) - 1).max() < 1e-12
    np.testing.assert_array_equal(np.argmax(proba, axis=1), quantizer.predict(far))
    hard = quantizer.predict_proba(1e6 * scores[:20])
    np.testing.assert_array_equal(hard, np.eye(4)[quantizer.predict(1e6 * scores[:20])])
    draws = quantizer.sample_labels(far, random_state=0)
    assert ((draws >= 0) & (draws < 4)).all()


# --- scikit-learn's machinery --------------------------------------------------------


@FREE_LABELS
def test_grid_search_reaches_into_the_criterion():
    table = pd.DataFrame(normal_table(21, 800, B), columns=["a", "b", "c"])
    quantizer = DExchangeQuantizer(
        5, criterion=ProfiledDOptimality("a", 0.1), n_init=1, n_swaps=0, random_state=0
    )
    grid = {"criterion__interest": ["a", ["b", "c"]], "n_bins": [5, 8]}
    search = GridSearchCV(quantizer, grid, cv=2).fit(table)
    assert len(search.cv_results_["mean_test_score"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_params_
    resolved = tuple("abc".index(name) for name in best["criterion__interest"])
    assert search.best_estimator_.criterion_.interest == resolved
    assert quantizer.criterion.interest == "a"
    with pytest.raises(ValueError, match="Invalid parameter 'interests'"):
        quantizer.set_params(criterion__interests="b")


@every_kind
def test_pipeline_and_pandas_output(kind):
    table = pd.DataFrame(
        normal_table(22, 100, L), columns=["mass", "width"], index=np.arange(100) + 7
    )
    quantizer = make(kind, 4).set_output(transform="pandas")
    moved = quantizer.fit_transform(table)
    assert list(moved.columns) == ["mass", "width"]
    assert moved.index.equals(table.index)
    np.testing.assert_array_equal(
        moved, quantizer.cell_means_[quantizer.predict(table)]
    )
    assert list(quantizer.get_feature_names_out()) == ["mass", "width"]
    assert quantizer.rule_.feature_names == ("mass", "width")
    with pytest.raises(ValueError, match="feature names"):
        quantizer.predict(table[["width", "mass"]])
    pipe = make_pipeline(FunctionTransformer(np.negative), make(kind, 4)).fit(table)
    assert 0 < pipe.score(table) <= 1


@every_kind
def test_weights_are_routed(kind):
    scores = normal_table(23, 200, L)
    weights = np.random.default_rng(0).exponential(size=200) ** 3
    folds = [(np.arange(100), np.arange(100, 200))]
    scored = {}
    with config_context(enable_metadata_routing=True):
        for fit, score in ((True, True), (True, False), (False, True)):
            quantizer = (
                make(kind, 4)
                .set_fit_request(sample_weight=fit)
                .set_score_request(sample_weight=score)
            )
            result = cross_validate(
                quantizer, scores, cv=folds, params={"sample_weight": weights}
            )
            scored[fit, score] = result["test_score"][0]
    train, test = folds[0]
    for (fit, score), value in scored.items():
        quantizer = make(kind, 4).fit(
            scores[train], sample_weight=weights[train] if fit else None
        )
        expected = quantizer.score(
            scores[test], sample_weight=weights[test] if score else None
        )
        assert value == expected
    assert len(set(scored.values())) == 3


def test_criterion_object_is_cloned_with_the_estimator():
    quantizer = DExchangeQuantizer(4, criterion=DOptimality())
    copy = clone(quantizer)
    assert copy.criterion is not quantizer.criterion
    assert type(copy.criterion) is DOptimality


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_verbose_prints_one_line_a_start(kind, capsys):
    make(kind, 3, n_init=2).fit(T7)
    assert capsys.readouterr().out == ""
    make(kind, 3, n_init=2, verbose=1).fit(T7)
    starts = [line for line in capsys.readouterr().out.splitlines() if "start" in line]
    # twice as many starts of the exchange, and the soft fit that follows
    assert len(starts) == (5 if kind is SoftVoronoiQuantizer else 2)


@pytest.mark.parametrize("seed", range(12))
def test_singular_information_is_not_mistaken_for_gains_of_rounding(seed):
    # fewer cells than columns: every gain of D is rounding, and the fit must end
    scores = 3 * np.random.RandomState(seed).uniform(size=(20, 3))
    with pytest.warns(DegenerateInformationWarning, match="n_bins"):
        quantizer = DExchangeQuantizer(2, n_init=2, n_swaps=1, random_state=0).fit(
            scores
        )
    assert quantizer.retention_ == quantizer.score(scores) == 0.0


def test_scores_too_small_to_be_scaled():
    table = np.random.default_rng(0).normal(size=(50, 2)) * [1.0, 1e-310]
    with pytest.raises(
        ValueError, match=r"must not be subnormal.*in the columns \[1\]"
    ):
        DExchangeQuantizer(3).fit(table)
    table[:, 1] *= 1e30
    DExchangeQuantizer(3, random_state=0).fit(table)


@pytest.mark.parametrize(
    "column", [pd.date_range("2026", periods=20), pd.Categorical(["x"] * 20)]
)
def test_a_column_without_numbers_is_named(column):
    good = pd.DataFrame({"a": np.arange(20.0), "b": [str(i) for i in range(20)]})
    table = good.assign(when=column)
    message = r"columns of numbers; got 'when' of (datetime64|category)"
    quantizer = DExchangeQuantizer(3, random_state=0)
    with pytest.raises(ValueError, match=f"X must have {message}"):
        quantizer.fit(table)
    with pytest.raises(ValueError, match=f"scores must have {message}"):
        information_report(table, np.zeros(20, dtype=int))


@pytest.mark.parametrize("backend", ["multiprocessing", "loky", "threading"])
@every_kind
def test_fits_under_every_backend_of_joblib(kind, backend):
    table = np.random.default_rng(0).normal(size=(300, 1))
    quantizer = make(kind, 3)
    expected = quantizer.fit(table).labels_
    if "n_jobs" in quantizer.get_params():
        quantizer.set_params(n_jobs=2)
    with joblib.parallel_backend(backend):
        labels = quantizer.fit(table).labels_
    np.testing.assert_array_equal(labels, expected)
