"""Certificates against enumeration, and their honesty when the search is cut."""

import _thread
import signal
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
from reference import load, normal_table

from skquant import (
    DExchangeQuantizer,
    IntervalQuantizer,
    PowerMean,
    ProfiledDOptimality,
)
from skquant.exceptions import DegenerateInformationWarning
from skquant.inspection import certify_partition

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # near collinearity by a common offset
    pytest.mark.filterwarnings(
        "ignore:the weighted mean:skquant.exceptions.ScoreOffsetWarning"
    ),
]
CASES = [name for name, case in load("exact_small").items() if "optima" in case]


def labelings(n, n_bins):
    """Every labeling by restricted growth, each partition once: (count, n)."""
    table, used = np.zeros((1, 1), dtype=int), np.ones(1, dtype=int)
    for _ in range(1, n):
        grown = []
        for cell in range(n_bins):
            fits = cell <= used
            grown.append(np.column_stack([table[fits], np.full(fits.sum(), cell)]))
        table = np.vstack(grown)
        used = table.max(axis=1) + 1
    return table


def enumerated(scores, weights, n_bins):
    """Retained eigenvalues of every labeling, ascending: (count, r)."""
    table = labelings(len(scores), n_bins)
    shares = weights / weights.sum()
    lower = np.linalg.cholesky((scores * shares[:, None]).T @ scores)
    whitened = np.linalg.solve(lower, scores.T).T
    retained = np.zeros((len(table), scores.shape[1], scores.shape[1]))
    for cell in range(n_bins):
        member = (table == cell) * shares
        moment, weight = member @ whitened, member.sum(axis=1)
        outer = moment[:, :, None] * moment[:, None, :]
        retained += outer / np.where(weight > 0, weight, 1.0)[:, None, None]
    eigenvalues = np.linalg.eigvalsh(retained)
    return np.where(eigenvalues > 1e-12, eigenvalues, 0.0)


MEANS = {
    "trace": lambda e: e.mean(axis=1),
    "D": lambda e: np.prod(np.clip(e, 0, None), axis=1) ** (1 / e.shape[1]),
    "A": lambda e: e.shape[1] / np.sum(1 / np.clip(e, 1e-300, None), axis=1),
    "E": lambda e: e[:, 0],
}


def test_labelings_are_counted():
    # Stirling numbers of the second kind: 1 + 63 + 301
    assert len(labelings(7, 3)) == 365
    assert len(np.unique(labelings(7, 3), axis=0)) == 365


@pytest.mark.parametrize("seed", range(50))
def test_random_tables_equal_enumeration(seed):
    rng = np.random.default_rng(seed)
    n, d, n_bins = rng.integers(6, 10), rng.integers(1, 4), rng.integers(2, 5)
    scores = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=d)
    weights = rng.exponential(size=n)
    eigenvalues = enumerated(scores, weights, n_bins)
    for criterion, mean in MEANS.items():
        result = certify_partition(scores, n_bins, None, weights, criterion=criterion)
        assert result.status == "optimal" and result.gap == 0.0
        best = np.nan_to_num(mean(eigenvalues)).max()
        assert result.efficiency == pytest.approx(best, rel=1e-9, abs=1e-15)


def exact_determinant(matrix):
    """The determinant of fractions, by elimination."""
    matrix, result = [list(row) for row in matrix], Fraction(1)
    for k in range(len(matrix)):
        pivot = next((row for row in matrix[k:] if row[k]), None)
        if pivot is None:
            return Fraction(0)
        position = matrix.index(pivot, k)
        result *= pivot[k] * (-1) ** (position - k)
        rest = matrix[k:position] + matrix[position + 1 :]
        rest = [
            [a - row[k] / pivot[k] * b for a, b in zip(row, pivot, strict=True)]
            for row in rest
        ]
        matrix = matrix[:k] + [pivot] + rest
    return result


def exact_optima(scores, weights, n_bins):
    """The best D and profiled efficiencies of all labelings, without rounding."""
    rows = np.vectorize(Fraction, otypes=[object])(scores)
    weights = np.vectorize(Fraction, otypes=[object])(weights)

    def determinants(labels):
        total = 0
        for cell in set(labels):
            member = labels == cell
            moment = weights[member] @ rows[member]
            total = total + np.outer(moment, moment) / weights[member].sum()
        return exact_determinant(total), exact_determinant(total[1:, 1:])

    full, nuisance = determinants(np.arange(len(rows)))
    kept = [determinants(each) for each in labelings(len(rows), n_bins)]
    profiled = max(Fraction(a) / b if b else 0 for a, b in kept) * nuisance / full
    return float(max(a for a, _ in kept) / full) ** (1 / scores.shape[1]), profiled


@pytest.mark.parametrize("power", range(10))
@pytest.mark.parametrize("spread", [0, 6])
def test_nearly_collinear_columns(power, spread):
    rng = np.random.default_rng([power, spread])
    scores = np.outer(rng.normal(size=6), rng.normal(size=3))
    scores += 10.0**-power * rng.normal(size=(6, 3)) + 10.0 ** rng.integers(4)
    weights = rng.exponential(size=6) * 10.0 ** rng.integers(spread + 1, size=6)
    profiled = ProfiledDOptimality([0], nuisance_weight=0.0)
    root = np.sqrt(weights)[:, None] * scores
    condition = np.linalg.cond(root / np.linalg.norm(root, axis=0))
    margin = 1e-11 + 1e-14 * condition
    if condition > 1e10:
        # a direction is taken for dependent: refused, or left out
        with pytest.raises(ValueError, match="nonsingular"):
            certify_partition(scores, 3, None, weights, criterion=profiled)
        return
    exact_d, exact_profiled = exact_optima(scores, weights, 3)
    for criterion, best in [("D", exact_d), (profiled, exact_profiled)]:
        result = certify_partition(scores, 3, None, weights, criterion=criterion)
        assert result.status == "optimal"
        assert result.efficiency == pytest.approx(float(best), rel=margin)
    with pytest.warns(DegenerateInformationWarning, match="nuisance block"):
        quantizer = IntervalQuantizer(3, criterion=profiled).fit(scores, None, weights)
    assert quantizer.upper_bound_ >= exact_profiled


@pytest.mark.parametrize("criterion", ["trace", "D", "A", "E", "profiled"])
@pytest.mark.parametrize("name", CASES)
def test_exact_small(name, criterion):
    case = load("exact_small")[name]
    optimum = case["optima"][criterion]
    scores, weights = np.array(case["scores"]), np.array(case["weights"], dtype=float)
    if criterion == "profiled":
        criterion = ProfiledDOptimality(tuple(case["interest"]), nuisance_weight=0.4)
    n_bins = max(optimum["labels"]) + 1
    result = certify_partition(scores, n_bins, None, weights, criterion=criterion)
    assert result.status == "optimal"
    assert result.upper_bound == result.efficiency
    assert result.efficiency == pytest.approx(optimum["value"], abs=1e-9)
    positive = result.labels[weights > 0]
    same = positive[:, None] == positive
    expected = np.array(optimum["labels"])
    np.testing.assert_array_equal(same, expected[:, None] == expected)


def test_search_finds_what_a_bad_incumbent_misses(monkeypatch):
    # without the exchange's labels, the tree alone has to reach the optimum
    scores = normal_table(0, 12, np.eye(2))
    bad = np.arange(12) % 3
    monkeypatch.setattr(
        "skquant.inspection._certify.search_partition",
        lambda problem, *_, **__: type("P", (), {"labels": np.arange(12) % 3}),
    )
    for criterion, mean in MEANS.items():
        result = certify_partition(scores, 3, bad, criterion=criterion)
        best = mean(enumerated(scores, np.ones(12), 3)).max()
        assert result.efficiency == pytest.approx(best, rel=1e-10)
        assert result.incumbent_was_optimal is False


@pytest.mark.parametrize("power", [-np.inf, -3.0, -1.0, 0.0, 0.5, 1.0])
def test_power_means_equal_enumeration(power):
    scores, weights = normal_table(4, 9, np.eye(3)), np.arange(1.0, 10.0)
    eigenvalues = np.clip(enumerated(scores, weights, 4), 1e-14, None)
    if power == 0:
        best = MEANS["D"](eigenvalues).max()
    elif power == -np.inf:
        best = eigenvalues[:, 0].max()
    else:
        best = (np.mean(eigenvalues**power, axis=1) ** (1 / power)).max()
    result = certify_partition(scores, 4, None, weights, criterion=PowerMean(power))
    assert result.efficiency == pytest.approx(best, rel=1e-9)


def test_labels_are_judged():
    scores = normal_table(3, 20, np.eye(2))
    best = certify_partition(scores, 3)
    assert certify_partition(scores, 3, best.labels).incumbent_was_optimal is True
    worse = best.labels.copy()
    worse[0] = (worse[0] + 1) % 3
    result = certify_partition(scores, 3, worse)
    assert result.incumbent_was_optimal is False
    assert result.efficiency == best.efficiency


def test_budget_is_honest():
    scores = normal_table(1, 40, np.eye(2))
    optimum = certify_partition(scores, 3)
    assert optimum.status == "optimal"
    bounds = []
    for max_nodes in (1, 1000, 100_000):
        cut = certify_partition(scores, 3, max_nodes=max_nodes)
        assert cut.status == "budget_exhausted"
        assert cut.n_nodes <= max_nodes + 3
        assert cut.efficiency <= optimum.efficiency <= cut.upper_bound
        assert cut.gap > 0 and cut.incumbent_was_optimal is not True
        bounds.append(cut.upper_bound)
    assert bounds[0] > bounds[-1]
    timed = certify_partition(scores, 3, time_limit=0.0)
    assert timed.status == "budget_exhausted"
    assert timed.upper_bound == 1.0 and timed.n_nodes == 0


@pytest.fixture
def interruptible():
    """Hear an interrupt even where a shell lets its background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_interrupt_returns_the_state(interruptible):
    scores = normal_table(1, 120, np.eye(2))
    timer = threading.Timer(1.5, _thread.interrupt_main)
    started = time.monotonic()
    timer.start()
    result = certify_partition(scores, 5, time_limit=60.0, max_nodes=10**15)
    assert time.monotonic() - started < 20
    assert result.status == "budget_exhausted"
    assert result.n_nodes > 0
    assert result.efficiency < result.upper_bound <= 1.0


def test_weights_are_copies():
    scores = normal_table(2, 10, np.eye(2))
    weights = np.array([1, 2, 0, 1, 3, 1, 1, 2, 1, 1])
    weighted = certify_partition(scores, 3, None, weights)
    copies = certify_partition(np.repeat(scores, weights, axis=0), 3)
    assert weighted.efficiency == pytest.approx(copies.efficiency, rel=1e-12)
    assert weighted.n_nodes == copies.n_nodes


def test_units_do_not_matter():
    scores = normal_table(2, 14, np.eye(2))
    base = certify_partition(scores, 3)
    scaled = certify_partition(scores * [1e-120, 1e120], 3, None, np.full(14, 1e-200))
    assert scaled.status == "optimal"
    assert scaled.efficiency == pytest.approx(base.efficiency, rel=1e-10)


def test_tables_without_a_search():
    rng = np.random.default_rng(5)
    scalar = rng.normal(size=(3000, 1))
    result = certify_partition(scalar, 6)
    assert result.status == "optimal" and result.n_nodes == 0
    exchanged = DExchangeQuantizer(6, random_state=0).fit(scalar)
    assert result.efficiency >= exchanged.retention_ - 1e-12
    plane = rng.normal(size=(40, 2))
    assert certify_partition(plane, 1).efficiency == 0.0
    assert certify_partition(plane, 1).status == "optimal"
    assert certify_partition(plane[:4], 9).efficiency == pytest.approx(1.0, rel=1e-12)


def test_errors():
    scores = normal_table(2, 8, np.eye(2))
    for options, message in [
        (dict(n_bins=0), "n_bins must be a positive integer"),
        (dict(n_bins=3, max_nodes=0), "max_nodes must be a positive integer"),
        (dict(n_bins=3, time_limit=-1), "time_limit must be a number >= 0"),
        (dict(n_bins=3, labels=np.arange(8)), "labels must lie in 0..2"),
    ]:
        with pytest.raises(ValueError, match=message):
            certify_partition(scores, **options)
    with pytest.raises(ValueError, match="identical rows one label"):
        certify_partition(np.ones((8, 2)) * [1, 2], 2, np.arange(8) % 2)

    class Own:
        value = gradient = efficiency = staticmethod(lambda a, b: np.trace(a))

    with pytest.raises(ValueError, match="monotone bound is compiled"):
        certify_partition(scores, 3, criterion=Own())
