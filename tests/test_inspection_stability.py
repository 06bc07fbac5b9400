"""Stability scans, the efficient-score bound and the alignment terms."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import B, L, instance, load, normal_table, slow_binned, slow_profiled

from skquant import DExchangeQuantizer, ProfiledDOptimality
from skquant.criteria import resolve_criterion
from skquant.inspection import (
    alignment_report,
    efficient_score_bound,
    exchange_stability,
)

pytestmark = pytest.mark.usefixtures("one_thread")
PROFILED = ProfiledDOptimality(0, nuisance_weight=0.3)


def pair(scores, weights, labels, n_bins):
    shares = weights / weights.sum()
    full = slow_binned(scores, np.arange(len(scores)), shares, len(scores))
    return slow_binned(scores, labels, shares, n_bins), full


def value(scores, weights, labels, n_bins, criterion):
    """A criterion's value from loops over the rows."""
    criterion = resolve_criterion(criterion, scores.shape[1])
    return criterion.value(*pair(scores, weights, labels, n_bins))


def moves(scores, weights, labels, n_bins, criterion):
    """Gain of every relocation of a row from a cell that has more: recomputed."""
    start = value(scores, weights, labels, n_bins, criterion)
    gains = {}
    for row, cell in np.ndindex(len(labels), n_bins):
        if cell != labels[row] and np.count_nonzero(labels == labels[row]) > 1:
            moved = labels.copy()
            moved[row] = cell
            gain = value(scores, weights, moved, n_bins, criterion) - start
            gains[row, int(labels[row]), cell] = gain
    return gains


@pytest.mark.parametrize("criterion", ["D", "trace", "A", "E", PROFILED], ids=str)
def test_scan_finds_the_best_move(criterion):
    rng = np.random.default_rng(3)
    scores, weights = rng.normal(size=(24, 3)) @ B, rng.exponential(size=24)
    labels = np.arange(24) % 4
    gains = moves(scores, weights, labels, 4, criterion)
    report = exchange_stability(scores, labels, weights, criterion=criterion)
    assert not report.is_stable
    assert report.best_move == max(gains, key=gains.get)
    assert report.best_gain == pytest.approx(max(gains.values()), rel=1e-9)
    efficiency = resolve_criterion(criterion, 3).efficiency(
        *pair(scores, weights, labels, 4)
    )
    assert report.efficiency == pytest.approx(efficiency, rel=1e-12)


@pytest.mark.parametrize("criterion", ["D", "trace", "A", PROFILED], ids=str)
def test_exchange_is_stable(criterion):
    scores = normal_table(5, 40, L)
    weights = np.random.default_rng(5).exponential(size=40)
    quantizer = DExchangeQuantizer(4, criterion=criterion, n_init=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        quantizer.fit(scores, sample_weight=weights)
    labels = quantizer.labels_
    report = exchange_stability(scores, labels, weights, criterion=criterion)
    assert report.is_stable and report.certified
    gains = moves(scores, weights, labels, 4, criterion)
    assert max(gains.values()) < 0
    assert report.best_gain == pytest.approx(max(gains.values()), rel=1e-7)
    assert report.efficiency == pytest.approx(quantizer.retention_, rel=1e-12)
    assert report.displaced_share == pytest.approx(
        1.0 - quantizer.rule_agreement_, abs=1e-12
    )


def test_displaced_share_is_that_of_the_first_order_rule():
    scores = normal_table(6, 60, L)
    weights = np.random.default_rng(6).exponential(size=60)
    labels = (scores[:, 0] > 0.0) + 2 * (scores[:, 1] > -0.3)
    retained, _ = pair(scores, weights, labels, 4)
    means = np.array(
        [np.average(scores[labels == b], 0, weights[labels == b]) for b in range(4)]
    )
    offsets = scores[:, None] - means
    distances = np.einsum("nki,ij,nkj->nk", offsets, np.linalg.inv(retained), offsets)
    elsewhere = distances.argmin(axis=1) != labels
    report = exchange_stability(scores, labels, weights)
    assert 0 < elsewhere.sum() < 60
    expected = weights[elsewhere].sum() / weights.sum()
    assert report.displaced_share == pytest.approx(expected, rel=1e-12)


def test_peer_stability_gains():
    # scorequant 0.4.0, exchange_stability_report, float64
    scores = normal_table(7, 500, L)
    labels = (scores[:, 0] > 0) + 2 * (scores[:, 1] > 0.4)
    weights = np.random.default_rng(8).exponential(size=500)
    report = exchange_stability(scores, labels, weights)
    assert report.best_gain == pytest.approx(0.02905823763856511, abs=1e-9)
    assert report.best_move[::2] == (286, 1)
    criterion = ProfiledDOptimality(0, nuisance_weight=0.0)
    report = exchange_stability(scores, labels, weights, criterion=criterion)
    assert report.best_gain == pytest.approx(0.04584400578597447, abs=1e-9)
    assert report.best_move[::2] == (286, 1)


def test_odd_labelings():
    scores = np.array([[-2.0], [-1.0], [1.0], [2.0], [9.0], [1.0]])
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.0, 1.0])
    # equal rows in unlike cells, a row without weight, and an empty cell
    labels, used = np.array([0, 0, 0, 2, 2, 2]), weights > 0
    report = exchange_stability(scores, labels, weights)
    assert not report.is_stable
    gains = moves(scores[used], weights[used], labels[used], 3, "D")
    assert report.best_move == max(gains, key=gains.get)
    assert report.best_gain == pytest.approx(max(gains.values()), rel=1e-9)
    singletons = exchange_stability([[1.0], [2.0]], [0, 1])
    assert singletons.is_stable
    assert singletons.best_gain == -np.inf and singletons.best_move is None
    plane = normal_table(0, 30, L)
    singular = exchange_stability(plane, np.zeros(30, dtype=int))
    assert not singular.is_stable
    assert np.isnan(singular.displaced_share) and singular.efficiency == 0.0


def test_stability_errors():
    with pytest.raises(ValueError, match="gain_tol must be a number >= 0"):
        exchange_stability([[1.0], [2.0]], [0, 1], gain_tol=-1.0)
    with pytest.raises(ValueError, match="labels must have shape"):
        exchange_stability([[1.0], [2.0]], [0])


# --- the efficient-score bound -------------------------------------------------------


@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_bound_holds_for_every_labeling(seed, n_bins, interest):
    rng = np.random.default_rng(seed)
    scores = rng.standard_t(4, size=(15, 4)) + rng.normal(size=4)
    weights = rng.exponential(size=15)
    result = efficient_score_bound(scores, interest, n_bins, weights)
    for _ in range(20):
        labels = rng.integers(0, n_bins, size=15)
        retained, full = pair(scores, weights, labels, n_bins)
        gap = result.gap_to(labels)
        assert gap >= -1e-12
        if np.linalg.cond(retained) < 1e6:
            kept = slow_profiled(retained, full, [interest])
            assert gap == pytest.approx(result.bound - kept, abs=1e-7)


@pytest.mark.parametrize("name", ["T7_k3_unit", "gauss_n11_d3_k5_i01"])
def test_bound_exceeds_the_profiled_optimum(name):
    case = load("exact_small")[name]
    scores, weights = np.array(case["scores"]), np.array(case["weights"])
    optimum = case["optima"]["profiled"]
    n_bins = max(optimum["labels"]) + 1
    if len(case["interest"]) == 1:
        result = efficient_score_bound(scores, case["interest"][0], n_bins, weights)
        assert result.bound >= optimum["value"]
        gap = result.bound - optimum["value"]
        assert result.gap_to(optimum["labels"]) == pytest.approx(gap, abs=1e-12)
    else:
        result = efficient_score_bound(scores[:, [0, 2]], 0, n_bins, weights)
        assert 0 < result.bound <= 1


def test_bound_is_the_best_of_all_intervals():
    rng = np.random.default_rng(2)
    scores, weights = rng.normal(size=(14, 2)) + 0.3, rng.exponential(size=14)
    full = (scores * weights[:, None]).T @ scores
    efficient = scores[:, 0] - full[0, 1] / full[1, 1] * scores[:, 1]
    order = np.argsort(efficient)
    best = 0.0
    for cuts in np.ndindex(14, 14):
        labels = np.empty(14, dtype=int)
        labels[order] = np.searchsorted(np.sort(cuts), np.arange(14), side="right")
        best = max(best, slow_binned(efficient[:, None], labels, weights, 3)[0, 0])
    result = efficient_score_bound(scores, 0, 3, weights)
    total = weights @ efficient**2
    assert result.bound == pytest.approx(best / total, rel=1e-12)
    np.testing.assert_allclose(result.efficient_scores, efficient, rtol=1e-10)
    expected = total / weights.sum()
    assert result.profiled_information == pytest.approx(expected, rel=1e-12)
    reached = slow_binned(efficient[:, None], result.labels, weights, 3)[0, 0]
    assert reached == pytest.approx(best, rel=1e-12)


def test_peer_bound():
    # scorequant 0.4.0, efficient_score_bound, float64: log of the information
    scores = normal_table(7, 500, L)
    weights = np.random.default_rng(8).exponential(size=500)
    for w, expected in [(weights, 5.7997539373292994), (None, 5.817417358826821)]:
        result = efficient_score_bound(scores, 0, 5, w)
        total = 500.0 if w is None else w.sum()
        ours = result.bound * result.profiled_information * total
        assert np.log(ours) == pytest.approx(expected, abs=1e-9)


def test_bound_of_odd_tables():
    scores = normal_table(1, 30, L)
    weights = np.ones(30)
    weights[::3] = 0.0
    result = efficient_score_bound(scores, 1, 4, weights)
    only = efficient_score_bound(scores[weights > 0], 1, 4)
    assert result.bound == pytest.approx(only.bound, rel=1e-12)
    np.testing.assert_array_equal(result.labels[weights > 0], only.labels)
    lossless = efficient_score_bound(scores[:6], 0, 10)
    assert lossless.n_bins == 6 and lossless.bound == pytest.approx(1.0, rel=1e-12)
    with pytest.raises(ValueError, match="interest must be one column"):
        efficient_score_bound(normal_table(1, 30, B), (0, 1), 4)
    with pytest.raises(ValueError, match="n_bins must be a positive integer"):
        efficient_score_bound(scores, 0, 0)


# reference instances where the peer's best profiled labels come within 0.01 of it
@pytest.mark.parametrize(
    "name",
    [
        "tiny_gauss_n12_d2_k4",
        "tiny_grid_n24_d2_k4",
        "gauss_n1000_d3_k6_w",
        "offset_n1000_d2_k5",
        "grid_n2000_d2_k9",
        "fractions_n3000_d3_k8",
    ],
)
def test_profiled_exchange_comes_close_to_the_bound(name):
    scores, weights, record = instance(name)
    (interest,) = record["interest"]
    result = efficient_score_bound(scores, interest, record["n_bins"], weights)
    peer = record["best_of_peer"]["profiled"]["value"]
    assert -1e-12 <= result.bound - peer < 0.01
    quantizer = DExchangeQuantizer(
        record["n_bins"],
        criterion=ProfiledDOptimality(interest, nuisance_weight=0.0),
        n_swaps=5,
        random_state=0,
    )
    with warnings.catch_warnings():
        # free labels under pure profiled D: what they are good for is not asked
        warnings.simplefilter("ignore")
        labels = quantizer.fit(scores, sample_weight=weights).labels_
    assert -1e-12 <= result.gap_to(labels) < 0.01


# --- estimated scores ----------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["D", "trace", "A", PROFILED], ids=str)
def test_alignment_terms_are_the_first_orders(criterion):
    rng = np.random.default_rng(0)
    true = rng.normal(size=(400, 3)) @ B
    weights = rng.exponential(size=400)
    labels = (true[:, 0] > 0) + 2 * (true[:, 1] > 0) + 4 * (true[:, 2] > 0.2)
    # an error that leans on the cells
    error = rng.normal(size=(400, 3)) + 0.5 * true[:, [1, 2, 0]] * (labels[:, None] > 3)

    def report(size):
        return alignment_report(
            true + size * error, true, labels, weights, criterion=criterion
        )

    small = report(1e-5)
    derivative = (report(1e-4).reported - report(-1e-4).reported) / 2e-4
    assert small.alignment / 1e-5 == pytest.approx(derivative, rel=1e-4)
    # quadratic in the error, so that the sum of opposite errors has it alone
    assert report(0.1).spurious_information == pytest.approx(
        100 * report(0.01).spurious_information, rel=1e-9
    )
    total = report(0.3)
    parts = total.true + total.alignment + total.spurious_information + total.remainder
    assert total.reported == pytest.approx(parts, rel=1e-12)
    assert abs(report(0.02).remainder) < 4e-4 * 0.5


def test_alignment_of_independent_noise():
    # scalar: rho = Q / V exactly; noise adds its label's share and its variance
    rng = np.random.default_rng(1)
    true, noise = rng.normal(size=(2, 300, 1))
    labels = np.digitize(true[:, 0], [-1, 0, 1])
    estimated = true + 0.3 * noise
    report = alignment_report(estimated, true, labels)
    means, noise_means = (
        np.array([x[labels == b].mean() for b in range(4)]) for x in (true, 0.3 * noise)
    )
    shares = np.bincount(labels) / 300
    retained, full = shares @ means**2, np.mean(true**2)
    cross = 2 * (shares @ (means * noise_means)) / retained
    cross -= 2 * np.mean(true * 0.3 * noise) / full
    own = shares @ noise_means**2 / retained - np.mean((0.3 * noise) ** 2) / full
    assert report.true == pytest.approx(retained / full, rel=1e-12)
    assert report.alignment == pytest.approx(report.true * cross, rel=1e-9)
    assert report.spurious_information == pytest.approx(report.true * own, rel=1e-9)


def test_linear_maps_of_the_scores_separate_nothing():
    true = normal_table(2, 200, B)
    labels = (true[:, 0] > 0) + 2 * (true[:, 1] > 0) + 4 * (true[:, 2] > 0.2)
    report = alignment_report(true @ (np.eye(3) + 0.01 * B), true, labels)
    assert report.reported == pytest.approx(report.true, rel=1e-12)
    assert report.alignment == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(ValueError, match="must have one shape"):
        alignment_report(true[:, :2], true, labels)


@pytest.mark.parametrize("criterion", ["D", ProfiledDOptimality([0])])
def test_alignment_does_not_depend_on_units(criterion):
    rng = np.random.default_rng(5)
    true = rng.normal(size=(500, 3))
    estimated = true + 0.1 * rng.normal(size=(500, 3))
    labels = rng.integers(0, 6, size=500)
    units = np.array([1.0, 1e-15, 1e20])
    one = alignment_report(estimated, true, labels, criterion=criterion)
    two = alignment_report(estimated * units, true * units, labels, criterion=criterion)
    for name in ("reported", "true", "alignment", "spurious_information"):
        assert getattr(two, name) == pytest.approx(getattr(one, name), rel=1e-9)
