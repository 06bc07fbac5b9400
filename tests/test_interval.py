"""Exact intervals of scalar scores against rational arithmetic and enumeration."""

import warnings
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import B, L, normal_table, partition, slow_binned
from sklearn.exceptions import ConvergenceWarning
from skquant._kernels.interval import first_layer, prefix_sums

from skquant import (
    AOptimality,
    DExchangeQuantizer,
    DOptimality,
    EOptimality,
    IntervalQuantizer,
    NormalizedTrace,
    PowerMean,
)
from skquant.solvers._interval import interval_cells, optimal_intervals

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # offsets up to 1e12
    pytest.mark.filterwarnings(
        "ignore:the weighted mean:skquant.exceptions.ScoreOffsetWarning"
    ),
]

CRITERIA = [
    NormalizedTrace(),
    DOptimality(),
    AOptimality(),
    EOptimality(),
    PowerMean(-3.0),
    PowerMean(0.5),
]
RANK_WARNING = "exact for scores of rank 1"


# --- exact routes --------------------------------------------------------------------


def exact_kept(values, weights, labels):
    """Sum over the cells of squared moment over weight, as a fraction."""
    kept = Fraction(0)
    for b in set(labels):
        rows = [i for i, label in enumerate(labels) if label == b]
        weight = sum(Fraction(weights[i]) for i in rows)
        moment = sum(Fraction(weights[i]) * Fraction(values[i]) for i in rows)
        kept += moment**2 / weight
    return kept


def exact_best(values, weights, n_bins):
    """The most that intervals of distinct values keep, by trying all cuts."""
    distinct = sorted(set(values))
    best = Fraction(-1)
    for cuts in combinations(distinct[1:], min(n_bins, len(distinct)) - 1):
        labels = [sum(value >= cut for cut in cuts) for value in values]
        best = max(best, exact_kept(values, weights, labels))
    return best


def exact_program(values, weights, n_bins):
    """The least weighted squares about the means, by the textbook recursion."""
    n = len(values)
    totals = [[Fraction(0)] * 3]
    for value, weight in zip(values, weights, strict=True):
        value, weight = Fraction(value), Fraction(weight)
        row = [weight, weight * value, weight * value**2]
        totals.append([a + b for a, b in zip(totals[-1], row, strict=True)])

    def cost(i, j):
        w, m, q = (b - a for a, b in zip(totals[i], totals[j], strict=True))
        return q - m * m / w

    least = [cost(0, j) if j else None for j in range(n + 1)]
    for layer in range(1, n_bins):
        least = [
            min(least[i] + cost(i, j) for i in range(layer, j)) if j > layer else None
            for j in range(n + 1)
        ]
    return least[n]


def set_partitions(n, n_bins):
    """All labelings of n rows with exactly n_bins cells, up to their names."""

    def extend(labels, used):
        if len(labels) == n:
            if used == n_bins:
                yield tuple(labels)
            return
        for b in range(min(used + 1, n_bins)):
            yield from extend([*labels, b], max(used, b + 1))

    yield from extend([], 0)


def integer_table(rng, n, offset, outliers):
    values = rng.integers(0, 30, size=n) + offset
    if outliers:
        far = rng.integers(-(10**12), 10**12, size=n)
        values = np.where(rng.uniform(size=n) < 0.3, far, values)
    return [int(value) for value in values]


# --- the solver ----------------------------------------------------------------------


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("outliers", [False, True])
@pytest.mark.parametrize("offset", [0, -7, 10**4, 10**8, 10**12])
def test_integer_tables_are_solved_exactly(offset, outliers, heavy):
    rng = np.random.default_rng(0)
    for n_bins in (1, 2, 3, 4, 5, 11):
        values = integer_table(rng, 12, offset, outliers)
        top = 10**6 if heavy else 4
        weights = [int(weight) for weight in rng.integers(1, top, size=12)]
        labels, edges = interval_cells(
            np.array(values, dtype=float), np.array(weights, dtype=float), n_bins
        )
        n_cells = min(n_bins, len(set(values)))
        assert len(edges) == n_cells - 1
        assert set(labels.tolist()) == set(range(n_cells))
        kept = exact_kept(values, weights, labels.tolist())
        assert kept == exact_best(values, weights, n_bins)


@settings(max_examples=40, deadline=None)
@given(
    values=st.sets(st.integers(-(10**12), 10**12) | st.integers(-9, 9), min_size=1),
    data=st.data(),
)
def test_costs_agree_with_the_recursion_in_fractions(values, data):
    values = sorted(values)[:40]
    n = len(values)
    weights = data.draw(st.lists(st.integers(1, 1000), min_size=n, max_size=n))
    n_bins = data.draw(st.integers(1, n))
    starts = optimal_intervals(
        np.array(values, dtype=float), np.array(weights, dtype=float), n_bins
    )
    assert starts[0] == 0 and (np.diff(starts) > 0).all() and starts[-1] < n
    labels = (np.searchsorted(starts, np.arange(n), side="right") - 1).tolist()
    total = sum(Fraction(w) * v * v for v, w in zip(values, weights, strict=True))
    assert total - exact_kept(values, weights, labels) == exact_program(
        values, weights, n_bins
    )


@pytest.mark.parametrize("n_bins", [2, 7, 40])
@pytest.mark.parametrize("law", ["normal", "cauchy", "lognormal"])
def test_larger_tables_agree_with_the_quadratic_program(law, n_bins):
    rng = np.random.default_rng(1)
    draw = {
        "normal": lambda: rng.normal(size=100),
        "cauchy": lambda: rng.standard_cauchy(size=100),
        "lognormal": lambda: np.exp(4 * rng.normal(size=100)),
    }
    values = np.sort(draw[law]())
    weights = np.exp(3 * rng.normal(size=100))
    costs = np.full((101, 101), np.inf)
    for i in range(100):
        for j in range(i + 1, 101):
            x, w = values[i:j], weights[i:j]
            costs[i, j] = w @ (x - np.average(x, weights=w)) ** 2
    least = costs[0]
    for _ in range(n_bins - 1):
        least = np.min(least[:, None] + costs, axis=0)
    starts = optimal_intervals(values.copy(), weights, n_bins)
    found = sum(costs[i, j] for i, j in zip(starts, [*starts[1:], 100], strict=True))
    assert found == pytest.approx(least[-1], rel=1e-11)


def test_prefix_sums_carry_two_doubles():
    rng = np.random.default_rng(2)
    values = np.sort(rng.normal(size=40))
    weights = np.exp(5 * rng.normal(size=40))
    prefix, costs = np.empty((41, 6)), np.empty(41)
    prefix_sums(values, weights, prefix)
    first_layer(prefix, costs)
    sums, sizes = [Fraction(0)] * 3, [Fraction(0)] * 3
    assert costs[0] == 0 and (prefix[0] == 0).all()
    for i, (value, weight) in enumerate(zip(values, weights, strict=True)):
        value, weight = Fraction(value), Fraction(weight)
        terms = [weight, weight * value, weight * value**2]
        for p, term in enumerate(terms):
            sums[p] += term
            sizes[p] += abs(term)
            high, low = prefix[i + 1, 2 * p : 2 * p + 2]
            error = Fraction(high) + Fraction(low) - sums[p]
            assert abs(error) <= sizes[p] * Fraction(2) ** -98
        exact = float(sums[2] - sums[1] ** 2 / sums[0])
        assert costs[i + 1] == pytest.approx(exact, rel=1e-10, abs=1e-28)


def test_costs_that_cancel_keep_their_digits():
    # a narrow group far from the value in the middle
    values = np.array([-1e6, -1e6 + 1e-3, -1e6 + 3e-3, 0.0])
    prefix, costs = np.empty((5, 6)), np.empty(5)
    prefix_sums(values, np.array([1.0, 1e8, 1.0, 1.0]), prefix)
    first_layer(prefix, costs)
    exact = [Fraction(value) for value in values[:3]]
    weights = [Fraction(1), Fraction(10**8), Fraction(1)]
    for j in (2, 3):
        w = sum(weights[:j])
        m = sum(a * b for a, b in zip(weights[:j], exact[:j], strict=True))
        q = sum(a * b * b for a, b in zip(weights[:j], exact[:j], strict=True))
        # the digits of two doubles; those of one end at 1e-16 * q, above the cost
        assert costs[j] == pytest.approx(float(q - m * m / w), abs=float(q) * 1e-30)


# --- rank one ------------------------------------------------------------------------


@pytest.mark.parametrize("n, n_bins", [(6, 2), (8, 3), (9, 3), (9, 4), (8, 7), (5, 1)])
def test_no_labeling_is_better_under_any_criterion(n, n_bins):
    rng = np.random.default_rng(n)
    for shift in (0.0, 1.5):
        scores = rng.normal(size=(n, 1)) + shift
        weights = rng.exponential(size=n)
        full = weights @ scores[:, 0] ** 2
        best = max(
            slow_binned(scores, np.array(labels), weights, n_bins)[0, 0]
            for labels in set_partitions(n, n_bins)
        )
        fits = [
            IntervalQuantizer(n_bins, criterion=criterion).fit(
                scores, sample_weight=weights
            )
            for criterion in CRITERIA
        ]
        for fit in fits:
            kept = slow_binned(scores, fit.labels_, weights, n_bins)[0, 0]
            assert kept == pytest.approx(best, rel=1e-12)
            assert fit.retention_ == pytest.approx(best / full, rel=1e-12)
            np.testing.assert_array_equal(fit.labels_, fits[0].labels_)
            ascending = fit.labels_[np.argsort(scores[:, 0])]
            assert (np.diff(ascending) >= 0).all()


@pytest.mark.parametrize("offset", [0, 10**4, 10**8, 10**12])
def test_integer_scores_are_solved_exactly(offset):
    rng = np.random.default_rng(3)
    for n_bins in (1, 2, 3, 5):
        values = integer_table(rng, 12, offset, False)
        weights = [int(weight) for weight in rng.integers(1, 5, size=12)]
        fit = IntervalQuantizer(n_bins).fit(
            np.array(values, dtype=float)[:, None], sample_weight=weights
        )
        kept = exact_kept(values, weights, fit.labels_.tolist())
        assert kept == exact_best(values, weights, n_bins)
        total = sum(w * v * v for v, w in zip(values, weights, strict=True))
        assert fit.retention_ == pytest.approx(float(kept / total), rel=1e-12)


def test_a_common_offset_does_not_matter():
    scores = np.random.default_rng(20).normal(size=(500, 1))
    plain = IntervalQuantizer(5).fit(scores)
    for offset in (1.0, 1e4, 1e6, 1e7, 1e8):
        moved = IntervalQuantizer(5).fit(scores + offset)
        np.testing.assert_array_equal(moved.labels_, plain.labels_)
        np.testing.assert_array_equal(moved.predict(scores + offset), plain.labels_)
        atol = 4 * np.spacing(offset)
        np.testing.assert_allclose(moved.edges_ - offset, plain.edges_, atol=atol)


def test_float32_probes_far_from_the_origin():
    scores = np.array([[100000.0], [100001.0]], dtype=np.float32)
    fit = IntervalQuantizer(2).fit(scores)
    np.testing.assert_allclose(fit.cell_means_, [[100000], [100001]], rtol=1e-15)
    assert fit.edges_.tolist() == [100000.5]
    probes = np.linspace(99999.5, 100001.5, 100, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(fit.predict(probes), probes[:, 0] > 100000.5)


def test_no_other_estimator_keeps_more():
    scores = np.random.default_rng(4).standard_t(2, size=(400, 1))
    interval = IntervalQuantizer(6).fit(scores)
    exchange = DExchangeQuantizer(6, random_state=0).fit(scores)
    assert interval.retention_ >= exchange.retention_ - 1e-12


# --- weights and repetition ----------------------------------------------------------


def test_weights_are_repetition():
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(60, 1)) + 0.5
    weights = rng.integers(0, 4, size=60)
    order = rng.permutation(weights.sum())
    repeated = np.repeat(scores, weights, axis=0)[order]
    one = IntervalQuantizer(5).fit(scores, sample_weight=weights)
    two = IntervalQuantizer(5).fit(repeated)
    np.testing.assert_array_equal(one.edges_, two.edges_)
    assert one.rule_ == two.rule_
    np.testing.assert_array_equal(one.labels_, two.predict(scores))
    np.testing.assert_array_equal(np.repeat(one.labels_, weights)[order], two.labels_)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 150000.0, 1e300])
def test_scale_of_the_weights_does_not_matter(scale):
    rng = np.random.default_rng(6)
    scores, weights = rng.normal(size=(200, 1)), rng.exponential(size=200)
    one = IntervalQuantizer(5).fit(scores, sample_weight=weights)
    two = IntervalQuantizer(5).fit(scores, sample_weight=weights * scale)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert two.retention_ == pytest.approx(one.retention_, rel=1e-12)


@pytest.mark.parametrize("unit", [1e-200, 1e-150, 1e150, 1e200])
def test_unit_of_the_scores_does_not_matter(unit):
    scores = np.random.default_rng(7).normal(size=(200, 1)) + 0.3
    one = IntervalQuantizer(5).fit(scores)
    two = IntervalQuantizer(5).fit(scores * unit)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_allclose(two.edges_, one.edges_ * unit, rtol=1e-12)
    assert two.retention_ == pytest.approx(one.retention_, rel=1e-12)


def test_weights_decide_the_cells():
    scores = np.array([[2.0], [2], [7], [7], [90], [90]])
    weights = np.array([1e8] * 4 + [1e-8] * 2)
    fit = IntervalQuantizer(2).fit(scores, sample_weight=weights)
    assert fit.labels_.tolist() == [0, 0, 1, 1, 1, 1]
    np.testing.assert_allclose(fit.cell_means_, [[2], [7]], atol=1e-6)
    plain = IntervalQuantizer(2).fit(scores)
    assert plain.labels_.tolist() == [0, 0, 0, 0, 1, 1]
    assert plain.retention_ == pytest.approx(0.9984668220287, abs=1e-12)


def test_a_row_without_weight_is_absent():
    scores = np.random.default_rng(8).normal(size=(50, 1))
    more = np.vstack([scores, [[1e8], [-3e7]]])
    weights = np.r_[np.ones(50), 0, 0]
    fit = IntervalQuantizer(4).fit(more, sample_weight=weights)
    plain = IntervalQuantizer(4).fit(scores)
    assert fit.rule_ == plain.rule_
    np.testing.assert_array_equal(fit.edges_, plain.edges_)
    assert fit.labels_.tolist() == [*plain.labels_, 3, 0]


def test_many_ties():
    scores = np.array([-1.0] * 6 + [0, 0, 1, 2])[:, None]
    fit = IntervalQuantizer(3).fit(scores)
    assert fit.labels_.tolist() == [0] * 6 + [1, 1, 2, 2]
    assert fit.retention_ == pytest.approx(0.9545454545454544, abs=1e-12)


@pytest.mark.parametrize("n_bins", [3, 4, 12])
def test_more_cells_than_distinct_rows(n_bins):
    scores = np.repeat([[1.0], [-1.0], [5.0]], 4, axis=0)
    fit = IntervalQuantizer(n_bins)
    if n_bins > 3:
        with pytest.warns(ConvergenceWarning, match="distinct rows"):
            fit.fit(scores)
    else:
        fit.fit(scores)
    assert fit.n_bins_ == 3
    assert fit.retention_ == pytest.approx(1.0, abs=1e-12)
    assert fit.labels_.tolist() == [1] * 4 + [0] * 4 + [2] * 4
    assert fit.edges_.tolist() == pytest.approx([0.0, 3.0])


# --- the fitted object ---------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, -1e3, 1e8])
@pytest.mark.parametrize("law", ["normal", "t", "integers"])
def test_labels_are_those_of_the_rule_and_of_the_edges(law, offset):
    rng = np.random.default_rng(9)
    draw = {
        "normal": lambda: rng.normal(size=2000),
        "t": lambda: rng.standard_t(1.5, size=2000),
        "integers": lambda: rng.integers(-40, 40, size=2000).astype(float),
    }
    scores = draw[law]()[:, None] + offset
    weights = rng.exponential(size=2000)
    fit = IntervalQuantizer(16).fit(scores, sample_weight=weights)
    assert fit.labels_.dtype == np.int32
    np.testing.assert_array_equal(fit.labels_, fit.predict(scores))
    assert fit.rule_agreement_ == 1.0
    assert fit.n_bins_ == 16 and fit.edges_.shape == (15,)
    assert fit.direction_.tolist() == [1.0] and fit.n_iter_ == 1 and fit.rank_ == 1
    assert (np.diff(fit.edges_) > 0).all()
    expected = np.searchsorted(fit.edges_, scores[:, 0], side="left")
    np.testing.assert_array_equal(fit.labels_, expected)
    fresh = draw[law]()[:, None] + offset
    expected = np.searchsorted(fit.edges_, fresh[:, 0], side="left")
    far = np.abs(fresh - fit.edges_).min(axis=1) > 1e-12 * max(1, abs(offset))
    np.testing.assert_array_equal(fit.predict(fresh)[far], expected[far])
    means = np.bincount(fit.labels_, weights * scores[:, 0]) / fit.cell_weights_
    np.testing.assert_allclose(fit.cell_means_[:, 0], means, rtol=1e-12)
    np.testing.assert_allclose(
        fit.edges_, 0.5 * (means[1:] + means[:-1]), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("scores", [[-1, 0, 4, 5], [0, 1, 2, 7], [3, 5, 9, 30]])
def test_an_edge_belongs_to_the_lower_interval(scores):
    for n_bins in (2, 3, 4):
        fit = IntervalQuantizer(n_bins).fit(np.array(scores, dtype=float)[:, None])
        labels = fit.predict(fit.edges_[:, None])
        np.testing.assert_array_equal(labels, np.arange(n_bins - 1))
        above = np.nextafter(fit.edges_, np.inf) + 1e-12
        np.testing.assert_array_equal(fit.predict(above[:, None]), np.arange(1, n_bins))


def test_row_order_does_not_matter():
    rng = np.random.default_rng(10)
    scores, weights = rng.normal(size=(300, 1)), rng.exponential(size=300)
    order = rng.permutation(300)
    one = IntervalQuantizer(6).fit(scores, sample_weight=weights)
    two = IntervalQuantizer(6).fit(scores[order], sample_weight=weights[order])
    assert one.rule_ == two.rule_
    np.testing.assert_array_equal(one.labels_[order], two.labels_)


def test_input_is_not_changed():
    scores = np.random.default_rng(11).normal(size=(40, 1))
    weights = np.ones(40)
    before = scores.tobytes(), weights.tobytes()
    scores.setflags(write=False)
    weights.setflags(write=False)
    IntervalQuantizer(4).fit(scores, sample_weight=weights)
    assert before == (scores.tobytes(), weights.tobytes())


# --- directions ----------------------------------------------------------------------


@pytest.mark.parametrize("second", [2.0, -0.5, 1e-8, 1e8])
def test_collinear_columns_are_scalar(second):
    column = np.random.default_rng(12).normal(size=200) + 0.2
    scores = np.column_stack([column, second * column])
    fit = IntervalQuantizer(5).fit(scores)
    alone = IntervalQuantizer(5).fit(column[:, None])
    assert fit.rank_ == 1
    np.testing.assert_array_equal(fit.labels_, alone.labels_)
    np.testing.assert_array_equal(fit.labels_, fit.predict(scores))
    assert fit.retention_ == pytest.approx(alone.retention_, rel=1e-12)
    assert np.abs(fit.direction_).max() == 1.0
    projection = scores @ fit.direction_
    interval = np.searchsorted(fit.edges_, projection, side="left")
    assert partition(interval) == partition(fit.labels_)


def test_a_zero_column_has_no_say():
    column = np.random.default_rng(13).normal(size=200)
    scores = np.column_stack([np.zeros(200), column])
    fit = IntervalQuantizer(5).fit(scores)
    alone = IntervalQuantizer(5).fit(column[:, None])
    assert partition(fit.labels_) == partition(alone.labels_)
    assert fit.direction_.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "direction", [[1.0, 0.0], [0.0, 1.0], [1.0, -2.0], [-3.0, 0.1], [1e-100, 2e-100]]
)
def test_a_given_direction_is_quantized_exactly(direction):
    scores = normal_table(14, 250, L)
    weights = np.random.default_rng(14).exponential(size=250)
    fit = IntervalQuantizer(6, direction=direction)
    with pytest.warns(UserWarning, match=f"{RANK_WARNING}; got rank 2") as caught:
        fit.fit(scores, sample_weight=weights)
    assert len(caught) == 1
    assert "DExchangeQuantizer" in str(caught[0].message)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(fit.direction_, direction)
    projection = scores @ np.array(direction)
    alone = IntervalQuantizer(6).fit(projection[:, None], sample_weight=weights)
    assert partition(fit.labels_) == partition(alone.labels_)
    size = np.abs(projection).max()
    np.testing.assert_allclose(fit.edges_, alone.edges_, rtol=0, atol=1e-12 * size)
    np.testing.assert_array_equal(fit.predict(scores), fit.labels_)
    interval = np.searchsorted(fit.edges_, projection, side="left")
    assert partition(interval) == partition(fit.labels_)
    assert fit.retention_ == pytest.approx(
        fit.score(scores, sample_weight=weights), rel=1e-12
    )


@pytest.mark.filterwarnings(f"ignore:IntervalQuantizer is {RANK_WARNING}:UserWarning")
def test_length_and_sign_of_the_direction_do_not_matter():
    scores = normal_table(15, 250, L)
    one = IntervalQuantizer(6, direction=[1.0, -2.0]).fit(scores)
    two = IntervalQuantizer(6, direction=np.array([-4.0, 8.0])).fit(scores)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_allclose(two.edges_, -4 * one.edges_[::-1], rtol=1e-9)


@pytest.mark.parametrize("criterion", ["D", "trace", "A", "E"])
def test_the_direction_by_default_is_good(criterion):
    scores = normal_table(16, 400, B) * [1.0, 5.0, 1e-3]
    fit = IntervalQuantizer(6, criterion=criterion)
    with pytest.warns(UserWarning, match=f"{RANK_WARNING}; got rank 3"):
        fit.fit(scores)
    assert np.abs(fit.direction_).max() == 1.0
    assert fit.retention_ > 0
    # at least that of any single column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for direction in np.eye(3):
            single = IntervalQuantizer(6, criterion=criterion, direction=direction)
            assert fit.retention_ >= single.fit(scores).retention_ - 1e-12
        given = IntervalQuantizer(6, criterion=criterion, direction=fit.direction_)
        given.fit(scores)
    np.testing.assert_array_equal(given.labels_, fit.labels_)


def test_one_noisy_direction_does_not_hide_the_signal():
    # almost rank one: the direction is that of the signal
    rng = np.random.default_rng(17)
    signal = rng.normal(size=500) + 1.0
    scores = np.outer(signal, [1.0, 2.0]) + 1e-3 * rng.normal(size=(500, 2))
    with pytest.warns(UserWarning, match=RANK_WARNING):
        fit = IntervalQuantizer(8, criterion="trace").fit(scores)
    alone = IntervalQuantizer(8, criterion="trace").fit(signal[:, None])
    # half of the two whitened directions is the signal's
    assert fit.retention_ >= 0.5 * alone.retention_ - 1e-3


def test_fewer_distinct_projections_than_cells():
    rng = np.random.default_rng(18)
    scores = np.column_stack([rng.integers(0, 3, size=50), rng.normal(size=50)])
    fit = IntervalQuantizer(5, direction=[1.0, 0.0])
    with (
        pytest.warns(UserWarning, match=RANK_WARNING),
        pytest.warns(ConvergenceWarning, match="distinct projections, 3"),
    ):
        fit.fit(scores)
    assert fit.n_bins_ == 3
    np.testing.assert_array_equal(fit.labels_, scores[:, 0])


@pytest.mark.filterwarnings(f"ignore:IntervalQuantizer is {RANK_WARNING}:UserWarning")
@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("direction", [(1, 0), (1, 1), (1, -2), (3, 7)])
def test_equal_projections_share_a_cell(direction, offset):
    rng = np.random.default_rng(21)
    scores = rng.integers(-6, 7, size=(200, 2)) + offset
    # divided by 10: inexact weights of the same direction
    given = np.array(direction) / 10
    fit = IntervalQuantizer(5, direction=given).fit(scores)
    exact = IntervalQuantizer(5).fit((scores @ direction)[:, None])
    assert partition(fit.labels_) == partition(exact.labels_)
    np.testing.assert_array_equal(fit.predict(scores), fit.labels_)
    assert fit.rule_agreement_ == 1.0
    np.testing.assert_allclose(10 * fit.edges_, exact.edges_, rtol=1e-12, atol=1e-9)


def test_noise_below_the_rank_tolerance_is_no_information():
    rng = np.random.default_rng(22)
    column = rng.integers(-2, 3, size=300).astype(float)
    scores = np.column_stack([column, column + 1e-13 * rng.normal(size=300)])
    fit = IntervalQuantizer(3).fit(scores)
    assert fit.rank_ == 1 and fit.rule_agreement_ == 1.0
    np.testing.assert_array_equal(fit.predict(scores), fit.labels_)
    alone = IntervalQuantizer(3).fit(column[:, None])
    assert partition(fit.labels_) == partition(alone.labels_)
    with pytest.raises(ValueError, match="along which all scores are zero"):
        IntervalQuantizer(3, direction=[1.0, -1.0]).fit(scores)


@pytest.mark.parametrize(
    "direction, message",
    [
        ([1.0], "direction must hold 2 finite weights"),
        ([1.0, 2.0, 3.0], "direction must hold 2 finite weights"),
        ([[1.0, 2.0]], "direction must hold 2 finite weights"),
        ([1.0, np.nan], "direction must hold 2 finite weights"),
        ([np.inf, 1.0], "direction must hold 2 finite weights"),
        ([0.0, 0.0], "direction must have information"),
    ],
)
def test_bad_directions(direction, message):
    fit = IntervalQuantizer(3, direction=direction)
    with pytest.raises(ValueError, match=message), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        fit.fit(normal_table(19, 50, L))
    assert not hasattr(fit, "labels_")


def test_a_direction_along_which_nothing_happens():
    column = np.random.default_rng(20).normal(size=50)
    zero = np.column_stack([column, np.zeros(50)])
    with pytest.raises(ValueError, match="along which all scores are zero"):
        IntervalQuantizer(3, direction=[0.0, 1.0]).fit(zero)
    equal = np.column_stack([column, column])
    with pytest.raises(ValueError, match="along which all scores are zero"):
        IntervalQuantizer(3, direction=[1.0, -1.0]).fit(equal)
