"""Deterministic rules in place of randomized ones: moments, recomputed."""

import numpy as np
import pytest
from reference import (
    B,
    L,
    normal_table,
    responsibility_table,
    slow_binned,
    slow_fractional,
    slow_information,
)
from sklearn.exceptions import ConvergenceWarning

from skquant import SoftVoronoiQuantizer
from skquant.purification import PurificationResult, QuadraticMaxRule, purify

pytestmark = pytest.mark.usefixtures("one_thread")


def soft_table(scores, n_bins, seed, temperature=0.8):
    """Softmax responsibilities about random rows."""
    centers = np.random.default_rng(seed + 1000).choice(scores, n_bins, replace=False)
    logits = -np.sum((scores[:, None] - centers) ** 2, axis=2) / (2 * temperature**2)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def whitened(scores, weights):
    """Scores whose second moments, uncentred, are the identity."""
    full = (scores * weights[:, None]).T @ scores / weights.sum()
    return scores @ np.linalg.cholesky(np.linalg.inv(full))


def residuals(scores, shares, labels, weights):
    """Differences of weights and whitened moments, in shares of the weight."""
    features = np.column_stack([np.ones(len(scores)), whitened(scores, weights)])
    features *= (weights / weights.sum())[:, None]
    return np.array(
        [
            features[labels == b].sum(axis=0) - shares[:, b] @ features
            for b in range(shares.shape[1])
        ]
    )


def coin_flips(shares, n_flips, seed=0):
    """Labels drawn from the responsibilities."""
    rng = np.random.default_rng(seed)
    steps = np.cumsum(shares, axis=1)[:, :-1]
    for _ in range(n_flips):
        yield np.sum(steps < rng.uniform(size=(len(shares), 1)), axis=1)


def d_retention(information, scores, weights):
    full = slow_information(scores, weights)
    return np.linalg.det(np.linalg.solve(full, information)) ** (1 / len(full))


def assert_closer_than_coins(scores, shares, labels, weights, factor):
    found = residuals(scores, shares, labels, weights)
    flips = [
        residuals(scores, shares, flip, weights) for flip in coin_flips(shares, 20)
    ]
    assert np.sqrt(np.mean(np.square(flips))) >= factor * np.sqrt(np.mean(found**2))
    largest = [np.abs(flip).max() for flip in flips]
    assert np.sqrt(np.mean(np.square(largest))) >= factor * np.abs(found).max()


# --- how close -----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_normal_table(seed):
    scores = normal_table(seed, 2000, L)
    weights = np.ones(2000)
    shares = soft_table(scores, 4, seed)
    labels = purify(scores, shares).labels
    assert np.abs(residuals(scores, shares, labels, weights)).max() < 1e-3
    randomized = d_retention(slow_fractional(scores, shares, weights), scores, weights)
    hard = d_retention(slow_binned(scores, labels, weights, 4), scores, weights)
    assert abs(hard - randomized) < 2e-3
    assert_closer_than_coins(scores, shares, labels, weights, 5)


def test_seed_randomized_quantizer():
    scores, shares = responsibility_table()
    weights = np.ones(2000)
    labels = purify(scores, shares).labels
    assert np.abs(residuals(scores, shares, labels, weights)).max() < 1e-3
    assert_closer_than_coins(scores, shares, labels, weights, 5)
    kept = np.linalg.slogdet(slow_binned(scores, labels, weights, 4))[1]
    # a coin flip is 0.027 off
    assert abs(kept - 14.193591979924182) < 0.005


def test_large_normal_table():
    scores = normal_table(0, 20_000, B)
    shares = soft_table(scores, 8, 0)
    labels = purify(scores, shares).labels
    assert np.abs(residuals(scores, shares, labels, np.ones(20_000))).max() < 3e-4


@pytest.mark.parametrize("heavy_weights", [False, True])
@pytest.mark.parametrize("heavy_tails", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_weights_and_tails(seed, heavy_tails, heavy_weights):
    rng = np.random.default_rng(seed + 50)
    draw = (
        rng.standard_t(3, size=(2000, 2)) if heavy_tails else rng.normal(size=(2000, 2))
    )
    scores = draw @ L
    weights = rng.exponential(size=2000) if heavy_weights else np.ones(2000)
    shares = soft_table(scores, 4, seed)
    result = purify(scores, shares, sample_weight=weights)
    floor = 4 * 3 * weights.max() / weights.sum()
    assert result.floor == pytest.approx(floor, rel=1e-12)
    found = residuals(scores, shares, result.labels, weights)
    assert np.abs(found).max() < 4 * floor
    # far below it, in fact
    assert np.abs(found).max() < 0.5 * floor


def test_a_fitted_randomized_rule():
    scores = normal_table(1, 2000, L)
    soft = SoftVoronoiQuantizer(
        4,
        solver="adam",
        n_init=1,
        max_iter=30,
        temperature_end_ratio=0.5,
        random_state=0,
    ).fit(scores)
    shares = soft.predict_proba(scores)
    labels = purify(scores, shares).labels
    assert np.abs(residuals(scores, shares, labels, np.ones(2000))).max() < 1e-3


def test_coin_labels_are_matched_too():
    # nothing about the randomized rule is smooth
    scores = normal_table(2, 2000, L)
    shares = np.random.default_rng(2).dirichlet(np.ones(3) / 2, size=2000)
    for table in (shares, np.eye(3)[np.argmax(shares, axis=1)]):
        labels = purify(scores, table).labels
        assert np.abs(residuals(scores, table, labels, np.ones(2000))).max() < 2e-3


def test_hard_convex_cells_are_kept():
    scores = normal_table(3, 2000, L)
    centers = np.array([[2.0, 0], [-2, 1], [0, -2]])
    hard = np.argmin(np.sum((scores[:, None] - centers) ** 2, axis=2), axis=1)
    labels = purify(scores, np.eye(3)[hard]).labels
    assert (
        np.abs(residuals(scores, np.eye(3)[hard], labels, np.ones(2000))).max() < 1e-3
    )


# --- the result ----------------------------------------------------------------------


def weighted_case(d=2, n=600):
    rng = np.random.default_rng(4)
    scores = rng.normal(size=(n, d)) + 0.5
    return scores, soft_table(scores, 4, 4), rng.exponential(size=n)


def test_fields():
    scores, shares, weights = weighted_case()
    result = purify(scores, shares, sample_weight=weights)
    assert isinstance(result, PurificationResult)
    assert isinstance(result.rule, QuadraticMaxRule)
    assert result.labels.dtype == np.int32 and result.labels.shape == (600,)
    assert result.n_iter > 0
    np.testing.assert_array_equal(result.rule.predict(scores), result.labels)
    for b in range(4):
        cell = result.labels == b
        weight = weights[cell].sum() - weights @ shares[:, b]
        moment = weights[cell] @ scores[cell] - (weights * shares[:, b]) @ scores
        assert result.weight_residual[b] == pytest.approx(weight, abs=1e-10)
        np.testing.assert_allclose(result.moment_residual[b], moment, atol=1e-10)
    assert result.weight_residual.shape == (4,)
    assert result.moment_residual.shape == (4, 2)
    assert np.abs(result.weight_residual).max() > 0
    with pytest.raises(AttributeError):
        result.labels = None


def test_cells_are_cut_by_quadrics_of_one_form():
    scores, shares, weights = weighted_case()
    rule = purify(scores, shares, sample_weight=weights).rule
    fresh = np.random.default_rng(5).normal(size=(300, 2)) * 2
    points = (fresh - rule.center) @ rule.whitener
    lifted = np.column_stack([points, np.sum(points**2, axis=1)])
    logits = lifted @ rule.lifted.coef.T + rule.lifted.intercept
    np.testing.assert_array_equal(rule.predict(fresh), np.argmax(logits, axis=1))
    curvatures = rule.lifted.coef[:, -1]
    assert len(np.unique(curvatures)) == 4


def test_labels_do_not_depend_on_the_batch():
    scores, shares, weights = weighted_case()
    result = purify(scores, shares, sample_weight=weights)
    order = np.random.default_rng(6).permutation(600)
    np.testing.assert_array_equal(
        result.rule.predict(scores[order]), result.labels[order]
    )
    one_by_one = np.concatenate([result.rule.predict(row[None]) for row in scores])
    np.testing.assert_array_equal(one_by_one, result.labels)
    strided = np.repeat(scores, 2, axis=0)[::2]
    np.testing.assert_array_equal(result.rule.predict(strided), result.labels)
    fortran = np.asfortranarray(scores)
    np.testing.assert_array_equal(result.rule.predict(fortran), result.labels)


def test_input_is_not_changed():
    arrays = weighted_case()
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    purify(*arrays)
    assert [array.tobytes() for array in arrays] == before


def test_result_is_repeatable():
    arrays = weighted_case()
    np.testing.assert_array_equal(purify(*arrays).labels, purify(*arrays).labels)


# --- weights, order, units -----------------------------------------------------------


def test_a_row_without_weight_is_absent():
    scores, shares, weights = weighted_case()
    more = np.vstack([scores, [[1e6, -1e6], [3.0, 1.0]]])
    more_shares = np.vstack([shares, [[1, 0, 0, 0], [0, 0.5, 0.5, 0]]])
    result = purify(scores, shares, weights)
    padded = purify(more, more_shares, np.r_[weights, 0.0, 0.0])
    np.testing.assert_array_equal(padded.labels[:-2], result.labels)
    np.testing.assert_array_equal(padded.labels, result.rule.predict(more))
    np.testing.assert_array_equal(padded.weight_residual, result.weight_residual)
    assert padded.floor == result.floor


def test_weights_are_repetition():
    scores, shares, _ = weighted_case()
    weights = np.random.default_rng(7).integers(0, 4, size=600)
    order = np.random.default_rng(8).permutation(weights.sum())
    one = purify(scores, shares, weights)
    two = purify(
        np.repeat(scores, weights, axis=0)[order],
        np.repeat(shares, weights, axis=0)[order],
    )
    np.testing.assert_array_equal(np.repeat(one.labels, weights)[order], two.labels)
    assert one.floor == pytest.approx(two.floor, rel=1e-12)


def test_row_order_does_not_matter():
    scores, shares, weights = weighted_case()
    order = np.random.default_rng(9).permutation(600)
    one = purify(scores, shares, weights)
    two = purify(scores[order], shares[order], weights[order])
    np.testing.assert_array_equal(one.labels[order], two.labels)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e300])
def test_scale_of_the_weights_does_not_matter(scale):
    scores, shares, weights = weighted_case(n=200)
    one, two = (purify(scores, shares, weights * s) for s in (1.0, scale))
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_allclose(two.weight_residual / scale, one.weight_residual)


@pytest.mark.parametrize(
    "units", [[1e-150, 1e150], [2.0**-40, 2.0**60], [1e100, 1e100]]
)
def test_units_of_the_columns_do_not_matter(units):
    scores, shares, weights = weighted_case(n=200)
    one, two = (purify(scores * u, shares, weights) for u in (1.0, np.array(units)))
    np.testing.assert_array_equal(one.labels, two.labels)


def test_a_common_offset_costs_nothing():
    scores, shares, weights = weighted_case(n=2000)
    for offset in (0.0, 30.0, 1e4):
        result = purify(scores + offset, shares, weights)
        total = weights.sum()
        floor = 4 * 3 * weights.max() / total
        assert np.abs(result.weight_residual).max() / total < 0.5 * floor
        # about the mean, in units of the spread
        moments = result.moment_residual - np.outer(
            result.weight_residual, np.average(scores + offset, axis=0, weights=weights)
        )
        assert np.abs(moments).max() / total < 0.5 * floor


def test_collinear_columns():
    scores, shares, weights = weighted_case()
    wide = np.column_stack([scores, scores.sum(axis=1), np.zeros(600)])
    result = purify(wide, shares, weights)
    found = residuals(scores, shares, result.labels, weights)
    assert np.abs(found).max() < 0.5 * 4 * 3 * weights.max() / weights.sum()
    np.testing.assert_array_equal(result.rule.predict(wide), result.labels)


def test_float32_scores():
    scores, shares, weights = weighted_case()
    single = scores.astype(np.float32)
    one = purify(single, shares, weights)
    two = purify(single.astype(np.float64), shares, weights)
    np.testing.assert_array_equal(one.labels, two.labels)
    np.testing.assert_array_equal(one.rule.predict(single), one.labels)


# --- degenerate tables ---------------------------------------------------------------


def test_identical_rows_share_a_label():
    rng = np.random.default_rng(10)
    scores = rng.integers(-6, 7, size=(2000, 2)).astype(float)
    shares = rng.dirichlet(np.ones(3), size=2000)
    result = purify(scores, shares)
    rows, index, counts = np.unique(
        scores, axis=0, return_inverse=True, return_counts=True
    )
    index = index.ravel()
    assert len(rows) < 200
    for atom in range(len(rows)):
        assert len(np.unique(result.labels[index == atom])) == 1
    assert result.floor == pytest.approx(3 * 3 * counts.max() / 2000, rel=1e-12)
    found = residuals(scores, shares, result.labels, np.ones(2000))
    assert np.abs(found).max() < 4 * result.floor


def test_an_empty_randomized_cell_stays_empty():
    scores, shares, weights = weighted_case()
    padded = np.insert(shares, [0, 2], 0.0, axis=1)
    result = purify(scores, padded, weights)
    assert set(result.labels.tolist()) == {1, 2, 4, 5}
    assert result.weight_residual.shape == (6,)
    np.testing.assert_array_equal(result.weight_residual[[0, 3]], 0.0)
    np.testing.assert_array_equal(result.moment_residual[[0, 3]], 0.0)
    plain = purify(scores, shares, weights)
    np.testing.assert_array_equal(result.labels, np.array([1, 2, 4, 5])[plain.labels])


def test_a_cell_of_rows_without_weight_is_empty():
    scores, shares, weights = weighted_case()
    padded = np.column_stack([shares, np.zeros(600)])
    padded[:3] = [0, 0, 0, 0, 1]
    weights[:3] = 0.0
    result = purify(scores, padded, weights)
    assert 4 not in result.labels
    assert result.weight_residual[4] == 0.0


def test_one_cell():
    scores, _, weights = weighted_case()
    result = purify(scores, np.ones((600, 1)), weights)
    np.testing.assert_array_equal(result.labels, 0)
    np.testing.assert_allclose(result.weight_residual, [0.0], atol=1e-9)
    np.testing.assert_allclose(result.moment_residual, [[0.0, 0.0]], atol=1e-9)


def test_one_row():
    result = purify([[1.0, 2.0]], [[0.3, 0.7]])
    assert result.labels.tolist() in ([0], [1])
    assert np.abs(result.weight_residual).tolist() in (
        pytest.approx([0.7, 0.7]),
        pytest.approx([0.3, 0.3]),
    )
    assert result.floor == pytest.approx(6.0)


def test_one_column():
    rng = np.random.default_rng(11)
    scores = rng.standard_t(3, size=(2000, 1)) + 0.2
    shares = soft_table(scores, 3, 11)
    result = purify(scores, shares)
    found = residuals(scores, shares, result.labels, np.ones(2000))
    assert np.abs(found).max() < 1e-3


def test_a_row_that_carries_the_moments_cannot_be_purified():
    # its moment is far above its share of the weight, and has to go to one cell
    scores = np.random.default_rng(12).normal(size=(2000, 1))
    scores[7] = 1e6
    shares = np.full((2000, 2), 0.5)
    with pytest.warns(ConvergenceWarning, match="four times the floor") as caught:
        result = purify(scores, shares)
    assert caught[0].filename == __file__
    found = residuals(scores, shares, result.labels, np.ones(2000))
    assert np.abs(found).max() > 4 * result.floor
    assert f"{np.abs(found).max():.3g}" in str(caught[0].message)


def test_few_heavy_rows_say_so_in_the_floor():
    scores, shares, _ = weighted_case(n=5)
    heavy = purify(scores, shares, np.full(5, 400.0))
    copies = purify(np.repeat(scores, 400, axis=0), np.repeat(shares, 400, axis=0))
    assert heavy.floor == pytest.approx(4 * 3 / 5) == copies.floor
    # nothing near what 2000 rows allow
    assert np.abs(heavy.weight_residual).max() > 2000 * 1e-3


# --- refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shares, message",
    [
        (np.full((3, 2), 0.4), "sum to 1 in every row; row 0 sums to 0.8"),
        (np.array([[1.5, -0.5]] * 3), "nonnegative; got a minimum of -0.5"),
        (np.full((3, 2), np.nan), "responsibilities contains NaN"),
        (np.full((3, 2), np.inf), "responsibilities contains infinity"),
        (np.full((4, 2), 0.5), "one row a score; got 4 rows for 3 scores"),
        (np.ones(3), "Expected 2D array"),
        (np.empty((3, 0)), "0 feature"),
    ],
)
def test_bad_responsibilities(shares, message):
    with pytest.raises(ValueError, match=message):
        purify(np.arange(6.0).reshape(3, 2), shares)


@pytest.mark.parametrize(
    "scores, weights, message",
    [
        ([[np.nan], [1.0]], None, "scores contains NaN"),
        ([[np.inf], [1.0]], None, "scores contains infinity"),
        ([1.0, 2.0], None, "Expected 2D array"),
        ([[1.0], [2.0]], [1.0, -1.0], "1 negative"),
        ([[1.0], [2.0]], [0.0, 0.0], "at least one non-zero"),
        ([[1.0], [2.0]], [1.0], "sample_weight"),
        ([[1.0], [2.0]], [1.0, np.nan], "sample_weight"),
    ],
)
def test_bad_scores_and_weights(scores, weights, message):
    with pytest.raises(ValueError, match=message):
        purify(scores, [[0.5, 0.5]] * 2, weights)


def test_the_rule_refuses_other_tables():
    scores, shares, weights = weighted_case(n=100)
    rule = purify(scores, shares, weights).rule
    with pytest.raises(ValueError, match="must have 2 columns; got 3"):
        rule.predict(np.ones((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        rule.predict([[np.nan, 0.0]])
