"""The ceiling is never below the best partition, found by enumeration."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skquant import PowerMean, ProfiledDOptimality
from skquant.criteria import Criterion, resolve_criterion
from skquant.inspection import retention_ceiling
from skquant.inspection._ceiling import _Duals
from skquant.report import information_report

# tables far from zero are among those that the bound is tried on
pytestmark = pytest.mark.filterwarnings(
    "ignore:the weighted mean:skquant.exceptions.ScoreOffsetWarning"
)

CRITERIA = ["trace", "D", "A", "E", PowerMean(0.5), PowerMean(-3.0)]
PRIORS = [
    ProfiledDOptimality(0, nuisance_weight=0.0, prior={1: 0.7}),
    resolve_criterion("D", 2).set_params(prior={0: 0.5}),
    resolve_criterion("trace", 2).set_params(prior={1: 0.5}),
    resolve_criterion("E", 2).set_params(prior={0: 0.5, 1: 0.3}),
]


class UsersTrace(Criterion):
    """A criterion of which nothing beyond its methods is known."""

    def value(self, information, reference):
        return np.trace(information)

    def gradient(self, information, reference):
        return np.eye(len(information))

    efficiency = value


def partitions(n, n_bins):
    """All labelings, cells opened in order."""

    def grow(labels, used):
        if len(labels) == n:
            yield labels
            return
        for b in range(min(used + 1, n_bins)):
            yield from grow([*labels, b], max(used, b + 1))

    return np.array(list(grow([], 0)))


def optimum(X, weights, n_bins, criterion):
    """Best efficiency of all labelings, by the definition; no prior."""
    scaled = X / np.sqrt(np.mean(X**2, axis=0))
    shares = weights / weights.sum()
    _, upper = np.linalg.qr(np.sqrt(shares)[:, None] * scaled)
    if np.linalg.svd(upper, compute_uv=False)[-1] < 1e-7:
        return None
    white = np.linalg.solve(upper.T, scaled.T).T
    best = 0.0
    for labels in partitions(len(X), n_bins):
        member = np.eye(n_bins)[labels] * shares[:, None]
        mass = member.sum(axis=0)
        means = (member.T @ white) / np.where(mass > 0, mass, 1.0)[:, None]
        information = (mass[:, None] * means).T @ means
        best = max(best, criterion.efficiency(information, np.eye(X.shape[1])))
    return best


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    d=st.integers(1, 3),
    n=st.integers(4, 7),
    n_bins=st.integers(1, 3),
    spread=st.sampled_from([0.0, 2.0, 10.0]),
    shape=st.sampled_from(["plain", "repeated", "line", "offset", "heavy"]),
    which=st.integers(0, len(CRITERIA) - 1),
)
def test_no_partition_keeps_more(seed, d, n, n_bins, spread, shape, which):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    weights = 10.0 ** rng.uniform(-spread, 0.0, size=n)
    if shape == "repeated":
        X[n // 2 :] = X[: n - n // 2]
    elif shape == "line":
        X = X[:, :1] * np.ones(d) + rng.normal(size=d)
    elif shape == "offset":
        X += 1e4
    elif shape == "heavy":
        X = rng.standard_cauchy(size=(n, d))
    criterion = resolve_criterion(CRITERIA[which], d)
    best = optimum(X, weights, n_bins, criterion)
    ceiling = retention_ceiling(
        X, n_bins, sample_weight=weights, criterion=criterion, time_limit=0.2
    )
    assert ceiling.status in ("proved", "bounded")
    # the enumeration whitens by itself, within its own rounding
    assert ceiling.efficiency <= ceiling.bound + 1e-12
    if best is not None:
        assert best <= ceiling.bound + (1e-7 if shape == "offset" else 1e-9)


@pytest.mark.parametrize("criterion", PRIORS, ids=str)
def test_profiled_and_priors(criterion):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(6, 2)) + 0.3
        weights = rng.uniform(0.1, 2.0, size=6)
        ceiling = retention_ceiling(
            X, 2, sample_weight=weights, criterion=criterion, time_limit=0.5
        )
        best = max(
            information_report(X, labels, weights, criterion=criterion).efficiency
            for labels in partitions(6, 2)
        )
        assert best <= ceiling.bound + 1e-10


def test_profiled_without_prior():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 2)) + 0.2
    criterion = ProfiledDOptimality(0, nuisance_weight=0.0)
    ceiling = retention_ceiling(X, 3, criterion=criterion)
    best = max(
        information_report(X, labels, criterion=criterion).efficiency
        for labels in partitions(7, 3)
    )
    assert best <= ceiling.bound + 1e-10


def test_pricing_is_below_a_grid():
    rng = np.random.default_rng(1)
    points, weights = rng.normal(size=(50, 2)), rng.dirichlet(np.ones(50))
    labels = rng.integers(0, 3, 50).astype(np.int32)
    dual = _Duals(points, weights, 3, labels, np.random.RandomState(0))
    dual.duals = rng.uniform(-0.2, 2.0, 50)
    value, done, _ = dual.lower_bound(0.0, 1e-6, 10**6, np.inf)
    axis = np.linspace(-3, 3, 300)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    lowest = dual.value(dual.gains(dual.distances(grid), dual.duals).min())
    assert done
    assert lowest - 0.02 <= value <= lowest + 1e-9


def test_gap_status_and_text():
    X = np.random.default_rng(0).normal(size=(300, 2))
    ceiling = retention_ceiling(X, 4, criterion="trace", time_limit=30.0)
    assert ceiling.status == "proved"
    assert 0.0 <= ceiling.gap < 0.005
    assert "no partition keeps more" in str(ceiling)
    estimate = retention_ceiling(X, 4, ceiling.labels, criterion="trace", exact=False)
    assert estimate.status == "estimate" and estimate.bound == 1.0
    assert "no proof" in str(estimate)
    assert estimate.efficiency == pytest.approx(ceiling.efficiency, rel=1e-12)
    cut = retention_ceiling(X, 4, criterion="trace", max_boxes=5)
    assert cut.status == "bounded" and cut.n_boxes == 5
    assert cut.bound >= ceiling.efficiency


def test_progress(capsys):
    X = np.random.default_rng(0).normal(size=(60, 2))
    retention_ceiling(X, 3, verbose=1)
    assert "round 0" in capsys.readouterr().out


def test_bad_input():
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match="n_bins must be a positive integer; got 0"):
        retention_ceiling(X, 0)
    with pytest.raises(ValueError, match="max_boxes must be"):
        retention_ceiling(X, 2, max_boxes=0)
    with pytest.raises(ValueError, match="time_limit must be"):
        retention_ceiling(X, 2, time_limit=-1)
    with pytest.raises(ValueError, match="criterion must be concave"):
        retention_ceiling(X, 2, criterion=UsersTrace())
    with pytest.raises(ValueError, match="identical rows one label"):
        retention_ceiling(np.vstack([X, X]), 2, [0] * 20 + [1] * 20)
