import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import (
    L,
    normal_table,
    responsibility_table,
    retained_eigenvalues,
    seed_value,
    slow_binned,
    slow_fractional,
    slow_information,
    slow_profiled,
)

from skquant import ProfiledDOptimality
from skquant.criteria import resolve_criterion
from skquant.information import (
    binned_fisher_information,
    fisher_information,
    fractional_fisher_information,
    information_report,
    responsibility_gradient,
)

pytestmark = pytest.mark.usefixtures("one_thread")


def random_table(seed, n=30, d=3, n_bins=4):
    """Scores, labels with no empty cell, weights, responsibilities."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, d)) + 0.3
    labels = rng.permutation(np.arange(n) % n_bins)
    return (
        scores,
        labels,
        rng.exponential(size=n),
        rng.dirichlet(np.ones(n_bins), size=n),
    )


def log_det(matrix):
    return np.linalg.slogdet(matrix)[1]


# --- against loops -------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_matrices_agree_with_loops(weighted):
    scores, labels, weights, shares = random_table(0)
    weights = weights if weighted else np.ones(len(scores))
    given_weights = weights if weighted else None
    for fast, slow in [
        (
            fisher_information(scores, given_weights),
            slow_information(scores, weights),
        ),
        (
            binned_fisher_information(scores, labels, given_weights),
            slow_binned(scores, labels, weights, 4),
        ),
        (
            fractional_fisher_information(scores, shares, given_weights),
            slow_fractional(scores, shares, weights),
        ),
    ]:
        np.testing.assert_allclose(fast, slow, rtol=1e-12)


def test_hard_responsibilities_are_labels():
    scores, labels, weights, _ = random_table(1)
    np.testing.assert_allclose(
        fractional_fisher_information(scores, np.eye(4)[labels], weights),
        binned_fisher_information(scores, labels, weights),
        rtol=1e-13,
    )


def test_empty_cells_carry_nothing():
    scores, labels, weights, shares = random_table(2)
    np.testing.assert_array_equal(
        binned_fisher_information(scores, labels, weights, n_bins=9),
        binned_fisher_information(scores, labels, weights),
    )
    padded = np.column_stack([shares, np.zeros(len(shares))])
    np.testing.assert_allclose(
        fractional_fisher_information(scores, padded, weights),
        fractional_fisher_information(scores, shares, weights),
        rtol=1e-13,
    )


def test_weights_are_repetition():
    scores, labels, _, shares = random_table(3)
    times = np.arange(len(scores)) % 4
    rows = np.repeat(np.arange(len(scores)), times)
    for function, *arguments in [
        (fisher_information,),
        (binned_fisher_information, labels),
        (fractional_fisher_information, shares),
    ]:
        weighted = function(scores, *arguments, sample_weight=times)
        repeated = function(scores[rows], *(x[rows] for x in arguments))
        np.testing.assert_allclose(weighted, repeated, rtol=1e-12)


@pytest.mark.parametrize("unit", [1e-150, 1e150])
@pytest.mark.parametrize("scale", [1e-300, 1.0])
def test_matrices_of_extreme_units(unit, scale):
    scores, labels, weights, _ = random_table(4, d=1)
    weights = scale * weights / weights.max()
    expected = binned_fisher_information(scores, labels, weights)
    matrix = binned_fisher_information(scores * unit, labels, weights)
    np.testing.assert_allclose(matrix, expected * unit * unit, rtol=1e-9, atol=1e-323)


# --- order ---------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(4, 40), d=st.integers(1, 4))
def test_labels_and_coins_never_add_information(seed, n, d):
    scores, labels, weights, shares = random_table(seed, n, d)
    full = fisher_information(scores, weights)
    for kept in (
        binned_fisher_information(scores, labels, weights),
        fractional_fisher_information(scores, shares, weights),
    ):
        assert np.linalg.eigvalsh(full - kept)[0] >= -1e-12 * np.trace(full)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(8, 40), d=st.integers(1, 4))
def test_refinement_never_loses_information(seed, n, d):
    scores, labels, weights, _ = random_table(seed, n, d)
    fine = 2 * labels + np.random.default_rng(seed).integers(0, 2, size=n)
    change = binned_fisher_information(scores, fine, weights)
    change -= binned_fisher_information(scores, labels, weights)
    scale = np.trace(fisher_information(scores, weights))
    assert np.linalg.eigvalsh(change)[0] >= -1e-12 * scale


@pytest.mark.parametrize("n_bins", [1, 2, 3, 4])
@pytest.mark.parametrize("centred", [False, True])
def test_rank_ceiling(n_bins, centred):
    scores, labels, weights, _ = random_table(5, n=60, d=4, n_bins=n_bins)
    if centred:
        scores = scores - np.average(scores, axis=0, weights=weights)
    ceiling = n_bins - int(centred)
    report = information_report(scores, labels, weights)
    assert np.count_nonzero(report.retained_eigenvalues) == ceiling
    for name in ("geometric_mean", "harmonic_mean", "minimum"):
        assert (getattr(report, name) == 0.0) == (ceiling < 4)


# --- the seed text -------------------------------------------------------------------


def test_seed_randomized_quantizer():
    scores, shares = responsibility_table()
    information = fractional_fisher_information(scores, shares)
    np.testing.assert_allclose(
        information, seed_value("soft_information_matrix"), rtol=1e-12
    )
    np.testing.assert_allclose(
        shares.sum(axis=0), seed_value("soft_cell_weights"), rtol=1e-12
    )
    np.testing.assert_allclose(
        shares.T @ scores, seed_value("soft_cell_moments"), rtol=1e-12
    )
    assert abs(log_det(information) - seed_value("soft_logdet")) < 1e-9
    direct = slow_fractional(scores, shares, np.ones(len(scores)))
    assert np.abs(information - direct).max() < 1e-9


def test_seed_coin_flip():
    scores, shares = responsibility_table()
    rng = np.random.default_rng(5)
    labels = np.array([rng.choice(4, p=row) for row in shares])
    report = information_report(scores, labels)
    assert report.cell_counts.tolist() == seed_value("coin_flip_cell_counts")
    expected = shares.sum(axis=0)
    deviation = np.max(np.abs(report.cell_counts - expected) / expected)
    assert deviation == pytest.approx(seed_value("coin_flip_weight_rel_dev"), rel=1e-9)
    assert deviation < 0.05
    hard = log_det(binned_fisher_information(scores, labels))
    assert abs(hard - seed_value("coin_flip_hard_logdet")) < 1e-9
    assert abs(hard - seed_value("soft_logdet")) < 0.1


@pytest.mark.parametrize("row, cell", [(3, 2), (17, 0), (250, 3)])
def test_seed_gradient(row, cell):
    scores, shares = responsibility_table()
    gradient = responsibility_gradient(scores, shares, "D")
    recorded = seed_value(f"gradient_fd_row{row}_cell{cell}")
    assert gradient[row, cell] == pytest.approx(recorded["analytic"], rel=1e-10)
    step = 1e-6
    values = []
    for sign in (1, -1):
        moved = shares.copy()
        moved[row, cell] += sign * step
        values.append(log_det(slow_fractional(scores, moved, np.ones(len(scores)))))
    assert abs(gradient[row, cell] - (values[0] - values[1]) / (2 * step)) < 1e-5


def test_seed_gradient_is_a_completed_square():
    scores, shares = responsibility_table()
    information = fractional_fisher_information(scores, shares)
    metric = np.linalg.inv(information)
    means = (shares.T @ scores) / shares.sum(axis=0)[:, None]
    offsets = scores[:, None] - means
    distances = np.einsum("nkd,de,nke->nk", offsets, metric, offsets)
    own = np.einsum("nd,de,ne->n", scores, metric, scores)
    gradient = responsibility_gradient(scores, shares, "D")
    assert np.abs(gradient - (own[:, None] - distances)).max() < 1e-9


def test_seed_scalar_objective_is_convex():
    scores = np.random.default_rng(31).normal(size=(40, 1))
    worst = np.inf
    for trial in range(200):
        rng = np.random.default_rng(trial)
        one, two = (rng.dirichlet(np.ones(3), 40) for _ in range(2))
        ends = [fractional_fisher_information(scores, r)[0, 0] for r in (one, two)]
        middle = fractional_fisher_information(scores, 0.5 * (one + two))[0, 0]
        worst = min(worst, sum(ends) - 2 * middle)
    assert worst > 0
    assert abs(worst - seed_value("scalar_convexity_worst_chord")) < 1e-9


# --- the gradient --------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "criterion",
    ["trace", "D", "A", ProfiledDOptimality([0, 2], 0.1), ProfiledDOptimality(1)],
    ids=str,
)
def test_responsibility_gradient_agrees_with_finite_differences(criterion, weighted):
    scores, _, weights, shares = random_table(6)
    weights = weights if weighted else np.ones(len(scores))
    total = weights.sum()
    resolved = resolve_criterion(
        criterion, 3, effective_sample_size=total**2 / (weights**2).sum()
    )
    full = slow_information(scores, weights) / total
    gradient = responsibility_gradient(scores, shares, criterion, weights)

    # the total weight stays, responsibilities are free
    step = 1e-6
    rows = [0, 7, 29]
    expected = np.empty((len(rows), 4))
    for i, row in enumerate(rows):
        for cell in range(4):
            values = []
            for sign in (1, -1):
                moved = shares.copy()
                moved[row, cell] += sign * step
                kept = slow_fractional(scores, moved, weights) / total
                values.append(resolved.value(kept, full))
            expected[i, cell] = (values[0] - values[1]) / (2 * step)
    error = np.abs(gradient[rows] - expected)
    assert error.max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("criterion", ["trace", "D", "A", ProfiledDOptimality(0, 0.1)])
def test_responsibility_gradient_is_free_of_units(criterion):
    scores, _, weights, shares = random_table(7)
    gradient = responsibility_gradient(scores, shares, criterion, weights)
    units = [1e-150, 1.0, 1e150]
    for scale in (1e-300, 1e300):
        moved = responsibility_gradient(
            scores * units, shares, criterion, weights * scale
        )
        np.testing.assert_allclose(moved, gradient, rtol=1e-9, atol=1e-12)


def test_responsibility_gradient_into_an_empty_cell():
    scores, _, weights, shares = random_table(8)
    padded = np.column_stack([shares, np.zeros(len(shares))])
    gradient = responsibility_gradient(scores, padded, "trace", weights)
    full = slow_information(scores, weights)
    own = np.einsum("nd,de,ne->n", scores, np.linalg.inv(full), scores)
    np.testing.assert_allclose(gradient[:, 4], weights * own, rtol=1e-10)


def test_responsibility_gradient_needs_a_nonsingular_matrix():
    scores, labels, _, _ = random_table(9, n_bins=2)
    with pytest.raises(ValueError, match="singular"):
        responsibility_gradient(scores, np.eye(2)[labels], "D")


# --- refusals ------------------------------------------------------------------------


def _not_normalized(shares):
    shares[2] *= 1.001


def _negative(shares):
    shares[2, :2] = shares[2, 0] + shares[2, 1] + 0.1, -0.1


def _nan(shares):
    shares[2, 1] = np.nan


@pytest.mark.parametrize(
    "spoil, message",
    [
        (_not_normalized, "sum to 1 in every row; row 2 sums to 1.001"),
        (_negative, "nonnegative; got a minimum of -0.1"),
        (_nan, "responsibilities contains NaN"),
    ],
)
@pytest.mark.parametrize(
    "function", [fractional_fisher_information, responsibility_gradient]
)
def test_rows_must_be_probability_vectors(function, spoil, message):
    scores, _, _, shares = random_table(10)
    spoil(shares)
    extra = () if function is fractional_fisher_information else ("D",)
    with pytest.raises(ValueError, match=message):
        function(scores, shares, *extra)


def test_responsibilities_need_a_row_a_score():
    scores, _, _, shares = random_table(10)
    with pytest.raises(ValueError, match="29 rows for 30 scores"):
        fractional_fisher_information(scores, shares[1:])


@pytest.mark.parametrize(
    "scores, name",
    [
        ([[1.0], [np.nan]], "NaN"),
        ([[1.0], [np.inf]], "infinity"),
        ([1.0, 2.0], "2D array"),
        ([["a"], ["b"]], "convert"),
        (np.empty((0, 2)), "0 sample"),
    ],
)
def test_bad_scores(scores, name):
    with pytest.raises(ValueError, match=name):
        fisher_information(scores)


@pytest.mark.parametrize(
    "weights, message",
    [
        ([1.0, -4.0, 3.0], "positive total; got 0 with 1 negative weights of 3"),
        ([-1.0, -1.0, -2.0], "positive total; got -4 with 3 negative weights of 3"),
        ([1.0, 1.0, -1.0], "must be positive definite"),
        ([0.0, 0.0, 0.0], "(?i)sample.weights? must .* at least one non-zero"),
        ([1.0, np.nan, 1.0], "NaN"),
        ([1.0, np.inf, 1.0], "infinity"),
        ([1.0, 1.0], "sample_weight.shape"),
    ],
)
def test_bad_weights(weights, message):
    with pytest.raises(ValueError, match=message):
        fisher_information([[1.0], [2.0], [3.0]], weights)


def test_negative_zero_is_zero():
    information = fisher_information([[1.0], [2.0]], [-0.0, 1.0])
    np.testing.assert_array_equal(information, [[4.0]])


@pytest.mark.parametrize(
    "labels, n_bins, message",
    [
        ([0, 1, -1], None, r"0\.\.1; got -1\.\.1"),
        ([0, 1, 2], 2, r"0\.\.1; got 0\.\.2"),
        ([0.0, 0.5, 1.0], None, "integers"),
        (["a", "b", "c"], None, "integers"),
        ([0, 1], None, r"shape \(3,\)"),
        ([[0], [1], [1]], None, r"shape \(3,\)"),
        ([0, 1, 1], 0, "n_bins must be a positive integer"),
        ([0, 1, 1], 2.5, "n_bins must be a positive integer"),
    ],
)
def test_bad_labels(labels, n_bins, message):
    for function in (binned_fisher_information, information_report):
        with pytest.raises(ValueError, match=message):
            function([[1.0], [2.0], [3.0]], labels, n_bins=n_bins)


# --- the report ----------------------------------------------------------------------


def test_report_agrees_with_numpy():
    scores, labels, weights, _ = random_table(11)
    report = information_report(scores, labels, weights)
    total = weights.sum()
    full = slow_information(scores, weights) / total
    kept = slow_binned(scores, labels, weights, 4) / total
    eigenvalues = retained_eigenvalues(kept, full)
    np.testing.assert_allclose(report.information, full, rtol=1e-12)
    np.testing.assert_allclose(report.binned_information, kept, rtol=1e-12)
    np.testing.assert_allclose(report.retained_eigenvalues, eigenvalues, rtol=1e-10)
    expected = {
        "arithmetic_mean": eigenvalues.mean(),
        "geometric_mean": eigenvalues.prod() ** (1 / 3),
        "harmonic_mean": 1 / np.mean(1 / eigenvalues),
        "minimum": eigenvalues[0],
        "rank": 3,
    }
    for name, value in expected.items():
        assert getattr(report, name) == pytest.approx(value, rel=1e-10)
    mean = weights @ scores / total
    assert report.mean_shift == pytest.approx(
        np.sqrt(mean @ np.linalg.solve(full, mean)), rel=1e-10
    )
    for cell in range(4):
        inside = weights[labels == cell]
        assert report.cell_weights[cell] == pytest.approx(inside.sum(), rel=1e-13)
        assert report.cell_counts[cell] == len(inside)
        assert report.effective_sample_sizes[cell] == pytest.approx(
            inside.sum() ** 2 / (inside**2).sum(), rel=1e-12
        )
    assert report.efficiency is None and report.nuisance_retention is None


def test_report_is_frozen():
    report = information_report([[1.0], [2.0]], [0, 1])
    with pytest.raises(AttributeError):
        report.rank = 2


def test_report_of_a_profiled_criterion():
    scores, labels, weights, _ = random_table(12)
    criterion = ProfiledDOptimality("b")
    table = pd.DataFrame(scores, columns=["a", "b", "c"])
    report = information_report(table, labels, weights, criterion=criterion)
    pair = report.binned_information, report.information
    assert report.efficiency == pytest.approx(slow_profiled(*pair, [1]), rel=1e-10)
    block = np.ix_([0, 2], [0, 2])
    smallest = retained_eigenvalues(pair[0][block], pair[1][block])[0]
    assert report.nuisance_retention == pytest.approx(smallest, rel=1e-10)
    assert f"{report.efficiency:.6f} (given criterion)" in str(report)
    assert f"{smallest:.6f} retained" in str(report)


def test_report_of_an_invariant_criterion():
    scores, labels, weights, _ = random_table(12)
    report = information_report(scores, labels, weights, criterion="A")
    assert report.efficiency == report.harmonic_mean
    assert report.nuisance_retention is None


def test_report_of_empty_cells():
    report = information_report(
        [[1.0], [2.0], [9.0]], [0, 2, 3], [1.0, 2.0, 0.0], n_bins=5
    )
    assert report.empty_cells.tolist() == [1, 3, 4]
    assert report.cell_counts.tolist() == [1, 0, 1, 0, 0]
    assert report.cell_weights.tolist() == [1.0, 0.0, 2.0, 0.0, 0.0]
    assert report.effective_sample_sizes.tolist() == [1.0, 0.0, 1.0, 0.0, 0.0]
    assert str(report).count("(empty)") == 3


def test_report_text():
    scores, labels, weights, _ = random_table(13)
    report = information_report(scores, labels, weights)
    text = str(report)
    lines = text.splitlines()
    assert lines[0] == "Fisher information kept by 4 cells"
    assert "rank 3 of 3 columns" in lines[1] and "dropped" not in text
    for name in ("arithmetic", "geometric", "harmonic"):
        (line,) = (line for line in lines if name in line)
        assert f"{getattr(report, name + '_mean'):.6f}" in line
    assert f"worst direction  {report.minimum:.6f}" in text
    assert f"{report.mean_shift:.3g}" in text
    assert [int(line.split()[0]) for line in lines[-4:]] == [0, 1, 2, 3]
    assert [int(line.split()[3]) for line in lines[-4:]] == report.cell_counts.tolist()
    assert "empty" not in text


def test_collinear_columns_are_dropped():
    scores, labels, weights, _ = random_table(14, d=2)
    wide = np.column_stack([scores, scores.sum(axis=1)])
    report = information_report(wide, labels, weights)
    plain = information_report(scores, labels, weights)
    assert report.rank == 2
    assert report.dropped_columns == (2,)
    assert "rank 2 of 3 columns, dropped: 2" in str(report)
    np.testing.assert_allclose(
        report.retained_eigenvalues, plain.retained_eigenvalues, rtol=1e-9
    )


@pytest.mark.parametrize("noise, rank", [(1e-7, 3), (1e-13, 2)])
def test_nearly_collinear_columns(noise, rank):
    scores, labels, _, _ = random_table(14, n=200, d=2)
    third = scores.sum(axis=1)
    third += noise * np.random.default_rng(14).normal(size=200)
    report = information_report(np.column_stack([scores, third]), labels)
    assert report.rank == rank
    assert report.dropped_columns == (2,) * (rank == 2)
    loose = information_report(np.column_stack([scores, third]), labels, rank_rtol=1e-4)
    assert loose.rank == 2


def test_dropped_columns_have_names():
    scores, labels, _, _ = random_table(15, d=2)
    table = pd.DataFrame(
        {
            "zero": 0.0,
            "mass": scores[:, 0],
            "twice": 2 * scores[:, 0],
            "width": scores[:, 1],
        }
    )
    report = information_report(table, labels)
    assert report.dropped_columns == ("zero", "twice")
    assert "dropped: zero, twice" in str(report)
    with pytest.raises(ValueError, match=r"\['zero', 'twice'\].*rank 2 of 4"):
        information_report(table, labels, criterion=ProfiledDOptimality("mass"))


@pytest.mark.parametrize("constant", [14.62, [14.62 * (1 + 2**-52)] + [14.62] * 299])
def test_constant_column_is_informative(constant):
    scores = np.random.default_rng(0).normal(size=(300, 2))
    scores[:, 1] = constant
    report = information_report(scores, (scores[:, 0] > 0).astype(int))
    assert report.rank == 2
    assert report.dropped_columns == ()
    assert report.mean_shift == pytest.approx(1.0, abs=1e-2)
    assert report.mean_shift <= 1.0 + 1e-12


def test_zero_column_is_dropped():
    scores = np.random.default_rng(0).normal(size=(300, 2))
    scores[:, 1] = 0.0
    report = information_report(scores, (scores[:, 0] > 0).astype(int))
    assert report.rank == 1
    assert report.dropped_columns == (1,)


def test_scores_that_are_all_zero_are_refused():
    with pytest.raises(ValueError, match="scores must not all be zero"):
        information_report([[0.0, 0.0], [0.0, 0.0]], [0, 1])
    with pytest.raises(ValueError, match="scores must not all be zero"):
        information_report([[0.0], [3.0]], [0, 1], [1.0, 0.0])


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_report_is_free_of_units(scale):
    scores, labels, weights, _ = random_table(16)
    weights /= weights.sum()
    plain = information_report(scores, labels, weights)
    units = np.array([1e-150, 1.0, 1e150])
    report = information_report(scores * units, labels, weights * scale)
    assert report.rank == 3
    np.testing.assert_allclose(
        report.retained_eigenvalues, plain.retained_eigenvalues, rtol=1e-11
    )
    np.testing.assert_allclose(
        report.information, plain.information * units * units[:, None], rtol=1e-12
    )
    for name in ("mean_shift", "geometric_mean", "minimum", "effective_sample_sizes"):
        np.testing.assert_allclose(
            getattr(report, name), getattr(plain, name), rtol=1e-11
        )
    np.testing.assert_allclose(
        report.cell_weights, plain.cell_weights * scale, rtol=1e-13
    )


def test_float32_does_not_carry_the_default_rank_tolerance():
    scores = normal_table(17, 300, L).astype(np.float32)
    third = (scores[:, 0] + scores[:, 1]) * np.float32(1.1)
    table = np.column_stack([scores, third])
    assert table.dtype == np.float32
    labels = np.arange(300) % 5
    assert information_report(table, labels).rank == 2
    assert information_report(table, labels, rank_rtol=1e-12).rank == 2
    # the rounding of float32 is a direction of its own in float64
    assert information_report(table.astype(np.float64), labels).rank == 3


def test_tables_of_other_types():
    scores, labels, weights, _ = random_table(18)
    expected = fisher_information(scores, weights)
    np.testing.assert_array_equal(
        fisher_information(scores.tolist(), weights.tolist()), expected
    )
    np.testing.assert_array_equal(
        fisher_information(pd.DataFrame(scores), pd.Series(weights)), expected
    )
    np.testing.assert_array_equal(
        fisher_information(np.asfortranarray(scores), weights), expected
    )
    np.testing.assert_array_equal(
        binned_fisher_information(scores, labels.astype(float), weights),
        binned_fisher_information(scores, labels.tolist(), weights),
    )
