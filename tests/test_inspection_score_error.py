"""The loss by wrong scores, against laws whose exact scores are known."""

import numpy as np
import pytest
from reference import L, mixing, slow_binned

from skquant import DExchangeQuantizer, KMeansQuantizer
from skquant.criteria import ProfiledDOptimality, resolve_criterion
from skquant.inspection import score_error_budget

pytestmark = pytest.mark.usefixtures("one_thread")


def smooth_error(rng, features, size, d):
    """A random function of the features, of mean zero over the draws."""
    waves = rng.normal(size=(features.shape[1], 40))
    heights = rng.normal(size=(40, d)) / np.sqrt(20)
    return size * np.cos(features @ waves + rng.uniform(0, 2 * np.pi, 40)) @ heights


def law(seed, n, d, size, n_replicas):
    """Exact scores and replicas."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 3))
    exact = features[:, :d] @ mixing(d)
    errors = [smooth_error(rng, features, size, d) for _ in range(n_replicas)]
    return exact, [exact + error for error in errors]


def kept(scores, labels, weights, criterion):
    """Retention of labels, cell by cell."""
    shares = weights / weights.sum()
    full = np.einsum("i,ij,ik->jk", shares, scores, scores)
    binned = slow_binned(scores, labels, shares, labels.max() + 1)
    return resolve_criterion(criterion, scores.shape[1]).efficiency(binned, full)


@pytest.mark.parametrize("size", [0.1, 0.25, 0.4])
@pytest.mark.parametrize("criterion", ["D", "trace", "A", "E"])
def test_estimated_loss_is_near_the_true_one(criterion, size):
    exact, replicas = law([1, int(100 * size)], 2000, 2, size, 6)
    quantizer = KMeansQuantizer(6, n_init=2, random_state=0)
    labelings = [quantizer.fit_predict(each) for each in replicas]
    budget = score_error_budget(replicas, labelings, criterion=criterion)
    weights = np.ones(len(exact))
    true = np.mean([kept(exact, each, weights, criterion) for each in labelings])
    assert budget.status == "ok"
    assert 1 - budget.retention == pytest.approx(1 - true, rel=0.2)
    assert abs(budget.retention - true) < 4 * budget.standard_error
    promised = [
        kept(scores, labels, weights, criterion)
        for scores, labels in zip(replicas, labelings, strict=True)
    ]
    assert budget.promised == pytest.approx(np.mean(promised), rel=1e-9)
    # the number of cells costs about what it costs exact scores
    best = kept(exact, quantizer.fit_predict(exact), weights, criterion)
    assert budget.loss_from_bins == pytest.approx(1 - best, rel=0.25)
    assert budget.exchanged < budget.promised


def test_equals_loops_over_pairs():
    _, replicas = law(3, 60, 2, 0.2, 4)
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=60)
    shares = weights / weights.sum()
    labelings = [(each[:, 0] > 0) + 2 * (each[:, 1] > 0) for each in replicas]

    def pair_moments(labels, left, right):
        total = np.zeros((2, 2))
        for cell in range(4):
            share = shares * (labels == cell)
            total += np.outer(share @ left, share @ right) / share.sum()
        return total

    found = []
    for a, labels in enumerate(labelings):
        retained, full = np.zeros((2, 2, 2))
        for b, left in enumerate(replicas):
            for c, right in enumerate(replicas):
                if a not in (b, c) and b != c:
                    retained += pair_moments(labels, left, right)
                    full += (shares[:, None] * left).T @ right
        found.append(
            resolve_criterion("D", 2).efficiency(
                (retained + retained.T) / 2, (full + full.T) / 2
            )
        )
    budget = score_error_budget(replicas, labelings, weights)
    assert budget.retention == pytest.approx(np.mean(found), rel=1e-10)
    swapped = [
        kept(replicas[b], labelings[a], weights, "D")
        for a in range(4)
        for b in range(4)
        if a != b
    ]
    assert budget.exchanged == pytest.approx(np.mean(swapped), rel=1e-10)


def test_jackknife():
    _, replicas = law(5, 400, 2, 0.2, 5)
    quantizer = KMeansQuantizer(5, n_init=1, random_state=0)
    whole = score_error_budget(replicas, quantizer)
    without = [
        score_error_budget([*replicas[:k], *replicas[k + 1 :]], quantizer).retention
        for k in range(5)
    ]
    expected = np.sqrt(0.8 * np.sum((without - np.mean(without)) ** 2))
    # coordinates come from the mean of all replicas: a matter of rounding
    assert whole.standard_error == pytest.approx(expected, rel=1e-9)
    assert np.isnan(score_error_budget(replicas[:3], quantizer).standard_error)


def test_exact_replicas_lose_by_cells_only():
    exact, _ = law(2, 300, 2, 0.0, 1)
    budget = score_error_budget([exact] * 3, DExchangeQuantizer(5, random_state=0))
    assert budget.retention == pytest.approx(budget.promised, rel=1e-12)
    assert budget.exchanged == pytest.approx(budget.promised, rel=1e-12)
    assert budget.share_from_scores == pytest.approx(0.0, abs=1e-9)
    assert budget.loss_from_bins == pytest.approx(1 - budget.promised)


def test_invariances():
    _, replicas = law(4, 200, 2, 0.2, 4)
    weights = np.random.default_rng(1).integers(0, 3, size=200)
    labelings = [(each[:, 0] > 0) + 2 * (each[:, 1] > 0) for each in replicas]
    budget = score_error_budget(replicas, labelings, weights)
    order = np.random.default_rng(2).permutation(200)

    def same(replicas, labelings, weights):
        other = score_error_budget(replicas, labelings, weights)
        for name in ("retention", "promised", "exchanged", "standard_error"):
            assert getattr(other, name) == pytest.approx(getattr(budget, name), 1e-9)

    same([x[order] for x in replicas], [x[order] for x in labelings], weights[order])
    repeated = [np.repeat(each, weights, axis=0) for each in replicas]
    same(repeated, [np.repeat(each, weights) for each in labelings], None)
    same([each * [1e140, 1e-140] for each in replicas], labelings, weights * 1e-200)
    same([each @ L for each in replicas], labelings, weights)
    same(replicas[::-1], labelings[::-1], weights)


def test_too_large_errors_have_a_status():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(3, 50, 2))
    budget = score_error_budget(noise, KMeansQuantizer(3, random_state=0))
    assert budget.status == "errors_too_large"
    assert np.isnan(budget.retention) and np.isnan(budget.share_from_scores)
    assert "no estimate: errors_too_large" in str(budget)


def test_errors_and_inputs():
    _, replicas = law(4, 40, 2, 0.2, 3)
    labels = [np.arange(40) % 4] * 3
    before = [each.copy() for each in replicas]
    score_error_budget(
        replicas, labels, criterion=ProfiledDOptimality(0, nuisance_weight=0.1)
    )
    for each, copy in zip(replicas, before, strict=True):
        np.testing.assert_array_equal(each, copy)
    for arguments, message in [
        ((replicas[:2], labels[:2]), "at least 3 tables of scores; got 2"),
        (([*replicas[:2], replicas[2][:9]], labels), "replicas must have one shape"),
        ((replicas, labels[:2]), "must hold 3 labelings, one a replica; got 2"),
        ((replicas, [np.zeros(40)] * 2 + [np.zeros(9)]), "labels_or_quantizer must"),
    ]:
        with pytest.raises(ValueError, match=message):
            score_error_budget(*arguments)
