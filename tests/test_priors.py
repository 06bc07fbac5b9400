"""Priors: constrained nuisances in criteria, solvers and reports."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from skquant import (
    AOptimality,
    DExchangeQuantizer,
    DOptimality,
    EOptimality,
    IntervalQuantizer,
    KMeansQuantizer,
    NormalizedTrace,
    PowerMean,
    ProfiledDOptimality,
    SoftVoronoiQuantizer,
)
from skquant.information import information_report, responsibility_gradient
from skquant.inspection import (
    certify_partition,
    exchange_stability,
    retention_interval,
)

SPECTRAL = [
    (NormalizedTrace, 1.0),
    (DOptimality, 0.0),
    (AOptimality, -1.0),
    (EOptimality, -np.inf),
]


def twin_total(X, weights, labels, precision, events):
    """Information of all rows and of the labels, with the prior, in total units."""
    share = weights / weights.sum() * events
    full = (X * share[:, None]).T @ X
    kept = np.zeros_like(full)
    for b in np.unique(labels):
        rows = labels == b
        moment = share[rows] @ X[rows]
        kept += np.outer(moment, moment) / share[rows].sum()
    return kept + precision, full + precision


def twin_profiled(M, interest):
    nuisance = np.setdiff1d(np.arange(len(M)), interest)
    block = M[np.ix_(nuisance, nuisance)]
    cross = M[np.ix_(nuisance, interest)]
    return M[np.ix_(interest, interest)] - cross.T @ np.linalg.solve(block, cross)


def twin_power(kept, full, power):
    values = np.linalg.eigvals(np.linalg.solve(full, kept)).real
    if power == 0.0:
        return np.exp(np.mean(np.log(values)))
    return values.min() if power == -np.inf else np.mean(values**power) ** (1 / power)


def partitions(n, k):
    """Labelings of n rows with exactly k cells, cells numbered by first row."""
    for labels in itertools.product(range(k), repeat=n - 1):
        labels = (0, *labels)
        first = [labels.index(b) for b in range(k) if b in labels]
        if len(first) == k and first == sorted(first):
            yield np.array(labels)


def published(region):
    path = Path(__file__).parent / "data" / "published_likelihood.json"
    return json.loads(path.read_text())["regions"][region]


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4)) @ np.diag([1.0, 1e3, 1e-2, 1.0])
    return X + [0.3, 0.0, 0.0, 0.1], rng.uniform(0.5, 2.0, 40)


@pytest.mark.parametrize("criterion, power", SPECTRAL)
@pytest.mark.parametrize("n_bins", [2, 6])
def test_efficiency_is_that_of_data_and_prior(table, criterion, power, n_bins):
    X, weights = table
    root = np.random.default_rng(0).normal(size=(4, 4)) * [1.0, 1e3, 1e-2, 1.0]
    precision = 5.0 * root.T @ root
    labels = np.arange(40) % n_bins
    given = criterion(prior=precision, expected_events=100.0)
    report = information_report(X, labels, weights, criterion=given)
    kept, full = twin_total(X, weights, labels, precision, 100.0)
    assert report.efficiency == pytest.approx(twin_power(kept, full, power), rel=1e-8)
    floor = twin_power(precision, full, power)
    assert report.prior_efficiency == pytest.approx(floor, rel=1e-8)


def test_directions_without_data_count_as_kept(table):
    X, weights = table
    X = np.column_stack([X, np.zeros(40), X[:, 0]])
    prior = {4: 2.0, 5: 0.5, 0: 3.0}
    precision = np.diag([1 / 9.0, 0.0, 0.0, 0.0, 0.25, 4.0])
    labels = np.arange(40) % 6
    for criterion, power in SPECTRAL:
        report = information_report(
            X, labels, weights, criterion=criterion(prior=prior)
        )
        kept, full = twin_total(X, weights, labels, precision, weights.sum())
        expected = twin_power(kept, full, power)
        assert report.efficiency == pytest.approx(expected, rel=1e-8)


def test_a_direction_that_nothing_determines_is_dropped(table):
    X, weights = table
    labels = np.arange(40) % 6
    wide = np.column_stack([X, np.zeros(40)])
    for criterion, _ in SPECTRAL:
        given = criterion(prior={0: 0.5})
        one = information_report(X, labels, weights, criterion=given).efficiency
        two = information_report(wide, labels, weights, criterion=given).efficiency
        assert one == pytest.approx(two, rel=1e-12)


# a nuisance that changes little but the total rate
@pytest.mark.filterwarnings(
    "ignore:the weighted mean:skquant.exceptions.ScoreOffsetWarning"
)
@pytest.mark.filterwarnings("ignore::skquant.exceptions.RuleExtensionWarning")
@pytest.mark.parametrize("region", ["RegionA", "RegionC"])
def test_published_optima_by_enumeration_and_by_exchange(region):
    record = published(region)
    X, weights = np.array(record["scores"]), np.array(record["expected"])
    precision = np.diag(record["prior_precision"])
    interest = record["parameters"].index(record["interest"])
    criterion = ProfiledDOptimality(interest, 0.0, prior=precision)
    lossless = information_report(X, np.arange(6), weights, criterion=criterion)
    (errors,) = lossless.standard_errors.values()
    assert errors == pytest.approx([record["sigma_unmerged"]] * 2, rel=1e-6)
    for k, optimum in record["optima"].items():
        if optimum["profiled_retention"] < 1e-9:
            continue
        best = optimum["profiled_retention"]
        values = {
            tuple(labels): information_report(
                X, labels, weights, criterion=criterion
            ).efficiency
            for labels in partitions(6, int(k))
        }
        found = max(values, key=values.get)
        assert values[found] == pytest.approx(best, rel=1e-6)
        assert found == tuple(optimum["labels"])
        fit = DExchangeQuantizer(int(k), criterion=criterion, random_state=0).fit(
            X, sample_weight=weights
        )
        assert fit.retention_ == pytest.approx(best, rel=1e-6)


@pytest.mark.filterwarnings("ignore::skquant.exceptions.DegenerateInformationWarning")
def test_the_bound_holds_for_every_labeling():
    rng = np.random.default_rng(5)
    closed = 0
    for trial in range(6):
        X = rng.normal(size=(8, 5)) + 0.3
        weights = rng.uniform(1.0, 5.0, 8)
        prior = {1: 0.5, 2: 1.0, 3: 0.3, 4: 2.0}
        if trial % 2:
            prior = None
            X = X[:, :2]
        criterion = ProfiledDOptimality(0, 0.0, prior=prior)
        fit = IntervalQuantizer(3, criterion=criterion).fit(X, sample_weight=weights)
        precision = np.zeros(2) if prior is None else [0.0, 4.0, 1.0, 1 / 0.09, 0.25]
        best = 0.0
        for labels in partitions(8, 3):
            kept, full = twin_total(X, weights, labels, np.diag(precision), 1.0)
            if prior is not None:
                kept, full = twin_total(
                    X, weights, labels, np.diag(precision), weights.sum()
                )
            ratio = twin_profiled(kept, [0]) / twin_profiled(full, [0])
            best = max(best, ratio.item())
        assert fit.retention_ <= best + 1e-12
        assert fit.upper_bound_ >= best
        assert fit.gap_ == pytest.approx(fit.upper_bound_ - fit.retention_, abs=1e-12)
        closed += fit.upper_bound_ < best + 0.05
    assert closed >= 3


def many_nuisances(n, n_nuisance, seed):
    law = np.random.default_rng(1)
    slopes = law.normal(size=(n_nuisance, 6))
    constants = 0.3 * law.normal(size=n_nuisance)
    which = law.integers(0, 6, n_nuisance)
    center = 0.5 * law.normal(size=6)
    x = np.random.default_rng(seed).normal(size=(n, 6))
    signal = np.exp(-np.sum((x - center) ** 2, axis=1) / 4)
    nuisance = np.tanh(x @ slopes.T) + 0.2 * (x[:, which] ** 2 - 1) + constants
    return np.column_stack([signal / (0.3 + signal), 0.15 * nuisance])


@pytest.mark.parametrize("n_bins", [4, 12])
def test_thirty_constrained_nuisances_are_certified(n_bins):
    X = many_nuisances(4000, 30, 2)
    criterion = ProfiledDOptimality(
        0, prior={j: 1.0 for j in range(1, 31)}, expected_events=3000
    )
    fit = IntervalQuantizer(n_bins, criterion=criterion).fit(X)
    assert 0.8 < fit.retention_ < 1.0
    assert fit.gap_ < 2e-3
    assert np.array_equal(fit.predict(X), fit.labels_)
    precision = np.diag([0.0] + 30 * [1.0])
    kept, full = twin_total(X, np.ones(4000), fit.labels_, precision, 3000.0)
    ratio = twin_profiled(kept, [0]) / twin_profiled(full, [0])
    assert fit.retention_ == pytest.approx(ratio.item(), rel=1e-8)
    report = fit.information_report(X)
    errors = [twin_profiled(M, [0]).item() ** -0.5 for M in (full, kept)]
    assert report.standard_errors[0] == pytest.approx(errors, rel=1e-8)
    assert f"{errors[1]:.6g} of 0" in str(report)


@pytest.mark.filterwarnings("ignore::skquant.exceptions.RuleExtensionWarning")
@pytest.mark.parametrize(
    "criterion", [DOptimality, AOptimality, NormalizedTrace, ProfiledDOptimality]
)
def test_a_stable_exchange_has_no_gaining_move(table, criterion):
    X, weights = table
    X = np.column_stack([X, X[:, 0] - X[:, 3]])
    precision = np.diag([0.0, 4e6, 1e-3, 2.0, 0.5])
    given = criterion(prior=precision)
    if criterion is ProfiledDOptimality:
        given.set_params(nuisance_weight=0.2)
    fit = DExchangeQuantizer(3, criterion=given, n_init=2, random_state=0)
    fit.fit(X, sample_weight=weights)
    assert fit.is_stable_

    def value(labels):
        kept, full = twin_total(X, weights, labels, precision, weights.sum())
        if criterion is ProfiledDOptimality:
            inner = np.linalg.slogdet(kept[1:, 1:])[1]
            return np.linalg.slogdet(kept)[1] - 0.8 * inner
        power = {DOptimality: 0.0, AOptimality: -1.0, NormalizedTrace: 1.0}[criterion]
        return twin_power(kept, full, power)

    best = value(fit.labels_)
    for row, cell in itertools.product(range(40), range(3)):
        moved = fit.labels_.copy()
        moved[row] = cell
        assert value(moved) <= best + 1e-9


def test_gradient_of_responsibilities_with_a_prior(table):
    X, weights = table
    criterion = DOptimality(prior={0: 0.3, 1: 1e-3}, expected_events=50.0)
    r = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    gradient = responsibility_gradient(X, r, criterion, weights)

    def value(r):
        share = weights / weights.sum()
        means = r.T @ (share[:, None] * X)
        kept = (means / (share @ r)[:, None]).T @ means
        precision = np.diag([1 / 0.09, 1e6, 0.0, 0.0]) / 50.0
        return np.linalg.slogdet(kept + precision)[1]

    for row, cell in [(0, 0), (7, 2)]:
        ends = []
        for step in (1e-5, -1e-5):
            moved = r.copy()
            moved[row, cell] += step
            ends.append(value(moved))
        slope = (ends[0] - ends[1]) / 2e-5
        assert gradient[row, cell] == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("quantizer", [KMeansQuantizer, SoftVoronoiQuantizer])
def test_other_quantizers_score_with_the_prior(table, quantizer):
    X, weights = table
    fit = quantizer(3, criterion=DOptimality(prior={1: 1e-3, 3: 0.5}), random_state=0)
    fit.fit(X, sample_weight=weights)
    precision = np.diag([0.0, 1e6, 0.0, 4.0])
    kept, full = twin_total(X, weights, fit.labels_, precision, weights.sum())
    assert fit.retention_ == pytest.approx(twin_power(kept, full, 0.0), rel=1e-8)
    assert fit.score(X[:9], sample_weight=weights[:9]) > 0
    assert fit.criterion_.expected_events == weights.sum()


def test_names_units_exposure_and_scale_of_weights(table):
    pd = pytest.importorskip("pandas")
    X, weights = table
    frame = pd.DataFrame(X, columns=["mu", "a", "b", "c"])
    by_name = ProfiledDOptimality(
        "mu", 0.1, prior={"a": 1e-3, "c": 1.0}, expected_events=40.0
    )
    by_index = ProfiledDOptimality(
        0, 0.1, prior=np.diag([0.0, 1e6, 0.0, 1.0]), expected_events=40.0
    )
    labels = np.arange(40) % 5
    first = information_report(frame, labels, weights, criterion=by_name)
    assert list(first.standard_errors) == ["mu"]
    for factor in (1.0, 1e-300, 1e300):
        second = information_report(X, labels, weights * factor, criterion=by_index)
        assert second.efficiency == pytest.approx(first.efficiency, rel=1e-9)


@pytest.mark.parametrize(
    "prior, message",
    [
        ({"x": 1.0}, "no column names"),
        ({7: 1.0}, "between 0 and 3"),
        ({1: 0.0}, "positive finite standard deviations"),
        ({1: -1.0}, "positive finite standard deviations"),
        ({1: np.inf}, "positive finite standard deviations"),
        ({1: None}, "positive finite standard deviations"),
        (np.eye(3), "shape"),
        (np.diag([1.0, 1.0, -1.0, 1.0]), "nonnegative definite"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]).repeat(2, 0).repeat(2, 1), "definite"),
        (np.eye(4) + np.eye(4, k=1), "symmetric"),
        ("wide", "mapping"),
    ],
)
def test_what_a_wrong_prior_is_told(table, prior, message):
    for criterion in (DOptimality(prior=prior), ProfiledDOptimality(prior=prior)):
        with pytest.raises(ValueError, match=message):
            KMeansQuantizer(2, criterion=criterion).fit(table[0])


def test_other_errors_name_what_is_wrong(table):
    X, _ = table
    for events in (0, -1.0, np.inf, "many"):
        with pytest.raises(ValueError, match="expected_events must be"):
            KMeansQuantizer(2, criterion=DOptimality(expected_events=events)).fit(X)
    with pytest.raises(ValueError, match="expected_events must be given"):
        DExchangeQuantizer(2, criterion=DOptimality(prior={0: 1.0})).fit(
            X, sample_weight=np.full(40, 1e308)
        )
    wide = np.column_stack([X, np.zeros(40)])
    with pytest.raises(ValueError, match=r"neither data nor prior determine \[4\]"):
        DExchangeQuantizer(2, criterion=ProfiledDOptimality(prior={1: 1.0})).fit(wide)


def test_no_prior_is_a_weak_prior(table):
    X, weights = table
    labels = np.arange(40) % 6
    for criterion in (*(c for c, _ in SPECTRAL), PowerMean, ProfiledDOptimality):
        without = information_report(X, labels, weights, criterion=criterion())
        weak = criterion(prior={1: 1e12})
        with_prior = information_report(X, labels, weights, criterion=weak)
        assert with_prior.efficiency == pytest.approx(without.efficiency, rel=1e-9)


@pytest.mark.filterwarnings("ignore::skquant.exceptions.RuleExtensionWarning")
def test_certificate_and_stability_of_a_table_with_a_prior():
    rng = np.random.default_rng(8)
    X, weights = rng.normal(size=(8, 5)) + 0.3, rng.uniform(1.0, 5.0, 8)
    precision = np.diag([0.0, 4.0, 1.0, 9.0, 0.25])
    criterion = ProfiledDOptimality(0, 0.0, prior=precision)

    def retention(labels):
        kept, full = twin_total(X, weights, labels, precision, weights.sum())
        return (twin_profiled(kept, [0]) / twin_profiled(full, [0])).item()

    best = max(map(retention, partitions(8, 3)))
    certificate = certify_partition(X, 3, sample_weight=weights, criterion=criterion)
    assert certificate.efficiency == pytest.approx(retention(certificate.labels))
    assert certificate.efficiency <= best + 1e-12
    assert best <= certificate.upper_bound <= 1.0
    labels = np.arange(8) % 3
    report = exchange_stability(X, labels, weights, criterion=criterion)
    assert report.efficiency == pytest.approx(retention(labels), rel=1e-10)
    gains = []
    for row, cell in itertools.product(range(8), range(3)):
        moved = labels.copy()
        moved[row] = cell
        gains.append(np.log(retention(moved) / retention(labels)))
    assert report.best_gain == pytest.approx(max(gains), rel=1e-8)
    with pytest.raises(ValueError, match="one parameter of interest"):
        certify_partition(X, 3, criterion=DOptimality(prior=precision))
    with pytest.raises(ValueError, match="does not take a criterion with a prior"):
        retention_interval(X, labels, criterion=criterion)


@pytest.mark.filterwarnings("ignore::skquant.exceptions.DegenerateInformationWarning")
def test_the_bound_serves_tables_that_branch_and_bound_cannot_end():
    X = many_nuisances(3000, 2, 4)
    certificate = certify_partition(
        X, 8, criterion=ProfiledDOptimality(0, 0.0), max_nodes=1000
    )
    fit = IntervalQuantizer(8, criterion=ProfiledDOptimality(0, 0.0)).fit(X)
    assert certificate.efficiency >= fit.retention_ - 1e-3
    assert certificate.upper_bound <= fit.upper_bound_ + 1e-9
