"""Evaluation with weights of either sign."""

import warnings

import numpy as np
import pytest

from skquant import DExchangeQuantizer, ProfiledDOptimality
from skquant.information import (
    binned_fisher_information,
    fisher_information,
    fractional_fisher_information,
    information_report,
)
from skquant.inspection import retention_interval


def positive_table(n=300, d=2, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, d)) + 0.2
    return scores, rng.integers(0, 5, size=n), rng.exponential(size=n)


def with_pairs(scores, labels, weights, n_pairs=80, seed=1):
    """Add rows of weight 1 and -1 at equal scores, which cancel in every sum."""
    rows = np.random.default_rng(seed).integers(0, len(scores), size=n_pairs)
    return (
        np.vstack([scores, scores[rows], scores[rows]]),
        np.concatenate([labels, labels[rows], labels[rows]]),
        np.concatenate([weights, np.ones(n_pairs), -np.ones(n_pairs)]),
    )


def twin(scores, labels, weights):
    """Full and retained information by their formulas."""
    full = np.einsum("i,ij,ik->jk", weights, scores, scores)
    binned = np.zeros_like(full)
    for cell in np.unique(labels):
        inside = labels == cell
        moment = weights[inside] @ scores[inside]
        binned += np.outer(moment, moment) / weights[inside].sum()
    return full, binned


def signed_table(n=4000, d=2, seed=0, share=0.15):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, d)) + 0.3
    labels = (scores[:, 0] > 0).astype(int) + 2 * (scores[:, 1] > 0.2)
    return scores, labels, np.where(rng.random(n) < share, -1.0, 1.0)


def test_informations_are_the_sums():
    scores, labels, weights = signed_table()
    full, binned = twin(scores, labels, weights)
    np.testing.assert_allclose(fisher_information(scores, weights), full)
    np.testing.assert_allclose(
        binned_fisher_information(scores, labels, weights), binned
    )
    np.testing.assert_allclose(
        fractional_fisher_information(scores, np.eye(4)[labels], weights), binned
    )
    report = information_report(scores, labels, weights)
    total = weights.sum()
    np.testing.assert_allclose(report.information, full / total)
    np.testing.assert_allclose(report.binned_information, binned / total)
    np.testing.assert_allclose(
        report.retained_eigenvalues,
        np.sort(np.linalg.eigvals(np.linalg.solve(full, binned))),
    )
    np.testing.assert_allclose(report.cell_weights, np.bincount(labels, weights))
    np.testing.assert_allclose(
        report.effective_sample_sizes,
        np.bincount(labels, weights) ** 2 / np.bincount(labels),
    )


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
@pytest.mark.parametrize("criterion", ["D", "A", "E", ProfiledDOptimality([0])])
def test_pairs_that_cancel_leave_no_trace(criterion, scale):
    table = positive_table()
    with_them = with_pairs(*table)
    one = information_report(*table, criterion=criterion)
    scores, labels, weights = with_them
    two = information_report(scores, labels, weights * scale, criterion=criterion)
    np.testing.assert_allclose(two.information, one.information)
    np.testing.assert_allclose(two.retained_eigenvalues, one.retained_eigenvalues)
    assert two.efficiency == pytest.approx(one.efficiency, rel=1e-10)
    assert two.mean_shift == pytest.approx(one.mean_shift, rel=1e-10)
    plug_in = retention_interval(
        scores, labels, weights * scale, criterion=criterion
    ).plug_in
    assert plug_in == pytest.approx(one.efficiency, rel=1e-10)


def test_score_of_a_fitted_rule():
    scores, labels, weights = positive_table()
    quantizer = DExchangeQuantizer(5, random_state=0).fit(scores, sample_weight=weights)
    expected = quantizer.score(scores, sample_weight=weights)
    more, _, signed = with_pairs(scores, labels, weights)
    assert quantizer.score(more, sample_weight=signed) == pytest.approx(expected)
    report = quantizer.information_report(more, sample_weight=signed)
    assert report.efficiency == pytest.approx(expected)


def test_cells_without_positive_weight_are_named():
    scores = np.array([[1.0], [2.0], [-1.0], [3.0], [-2.0]])
    labels = [0, 1, 1, 2, 2]
    weights = np.array([9.0, 1.0, -1.0, 2.0, -2.5])
    bins = r"sums of \[0.0, -0.111111\] of .* in the cells \[1, 2\]"
    for function in (binned_fisher_information, information_report, retention_interval):
        with pytest.raises(ValueError, match=bins):
            function(scores, labels, weights)
    with pytest.raises(ValueError, match=bins):
        fractional_fisher_information(scores, np.eye(3)[labels], weights)
    quantizer = DExchangeQuantizer(2, random_state=0).fit([[-2.0], [2.0]])
    # the rows -1 and -2 have the weights -1 and -2.5
    with pytest.raises(ValueError, match=r"\[-1.0\] of .* in the cells \[0\]"):
        quantizer.score(scores, sample_weight=weights)


def test_rounding_is_no_weight():
    with pytest.raises(ValueError, match=r"in the cells \[1\]"):
        binned_fisher_information(np.ones((4, 1)), [0, 1, 1, 1], [1, 0.1, 0.2, -0.3])


def test_full_information_has_to_be_positive_definite():
    # along the second column the negative rows outweigh the others
    scores = np.array([[1.0, 0.1], [-1.0, 0.1], [1.0, 2.0], [-1.0, 2.0]])
    weights = [3.0, 3.0, -1.0, -1.0]
    labels = [0, 1, 0, 1]
    for call in (
        lambda: fisher_information(scores, weights),
        lambda: information_report(scores, labels, weights),
        lambda: retention_interval(scores, labels, weights),
    ):
        with pytest.raises(ValueError, match="full information .* positive definite"):
            call()
    quantizer = DExchangeQuantizer(2, random_state=0, criterion="trace").fit(scores)
    with pytest.raises(ValueError, match="positive definite|positive sum"):
        quantizer.score(scores, sample_weight=weights)


def test_a_retention_above_one_is_reported_and_warned_of():
    # rows 1, 1, and 1 +- 0.5 of negative weight: the spread within the cell is negative
    scores = np.array([[1.0], [1.5], [0.5], [-1.0]])
    weights = np.array([5.0, -1.0, -1.0, 1.0])
    labels = [0, 0, 0, 1]
    full, binned = twin(scores, labels, weights)
    assert binned[0, 0] > full[0, 0]
    with pytest.warns(UserWarning, match="keep 1.* of the full information") as record:
        report = information_report(scores, labels, weights, criterion="D")
    assert record[0].filename == __file__
    assert report.efficiency == pytest.approx(binned[0, 0] / full[0, 0])
    quantizer = DExchangeQuantizer(2, random_state=0).fit([[-1.0], [1.0]])
    with pytest.warns(UserWarning, match="keep 1.* of the full") as record:
        score = quantizer.score(scores, sample_weight=weights)
    assert record[0].filename == __file__
    assert score == pytest.approx(binned[0, 0] / full[0, 0])
    interval = retention_interval(scores, labels, weights)
    assert interval.status == "retention_above_one" and np.isnan(interval.estimate)
    assert interval.plug_in == pytest.approx(score)


def test_a_prior_needs_nonnegative_weights():
    scores, labels, weights = positive_table()
    criterion = ProfiledDOptimality([0], prior={1: 0.1})
    quantizer = DExchangeQuantizer(5, criterion=criterion, random_state=0)
    quantizer.fit(scores, sample_weight=weights)
    more, labels, signed = with_pairs(scores, labels, weights)
    for call in (
        lambda: quantizer.score(more, sample_weight=signed),
        lambda: quantizer.information_report(more, sample_weight=signed),
        lambda: information_report(more, labels, signed, criterion=criterion),
    ):
        with pytest.raises(ValueError, match="prior; got 80 negative weights of 460"):
            call()


def test_positive_weights_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        information_report(*positive_table())


def test_the_interval_has_the_spread_of_signed_tables():
    """Standard deviation and mean of the estimate over tables of one law."""
    tables = [signed_table(n=1000, seed=seed) for seed in range(300)]
    results = [retention_interval(*table) for table in tables]
    estimates = np.array([each.estimate for each in results])
    errors = np.array([each.standard_error for each in results])
    scores, labels, weights = signed_table(n=400_000, seed=1000)
    full, binned = twin(scores, labels, weights)
    truth = np.sqrt(np.linalg.det(binned) / np.linalg.det(full))
    # the spread of 300 draws is known to 4 %, their mean to 0.06 of it
    assert np.mean(errors) == pytest.approx(np.std(estimates), rel=0.15)
    assert abs(np.mean(estimates) - truth) < 0.2 * np.std(estimates)
    # without the signs the error would be too small
    unsigned = retention_interval(scores[:1000], labels[:1000]).standard_error
    assert unsigned < 0.85 * np.mean(errors)


def test_the_bootstrap_refuses_negative_weights():
    with pytest.raises(ValueError, match="method='bootstrap' needs nonnegative"):
        retention_interval(*signed_table(100), method="bootstrap")
