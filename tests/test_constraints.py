"""Limits of cells: right values by enumeration, errors, reports."""

import re
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn import config_context
from sklearn.base import clone

from skquant import (
    CellConstraints,
    DExchangeQuantizer,
    FigureOfMeritQuantizer,
    IntervalQuantizer,
    KMeansQuantizer,
    SoftVoronoiQuantizer,
)
from skquant.constraints import ConstraintReport
from skquant.solvers._interval import interval_cells, most_cells
from skquant.solvers._limits import build_limits

pytestmark = pytest.mark.usefixtures("one_thread")

SINGLE_LIMITS = {
    "weight": {"min_weight": 2.4},
    "error": {"max_relative_error": 0.75},
    "entries": {"min_effective_entries": 1.9},
    "group": {"min_weight_per_group": 0.8},
    "one group": {"min_weight_per_group": {"b": 0.7}},
    "error of a group": {"max_relative_error": {"a": 1.0001}},
}
LIMITS = SINGLE_LIMITS | {
    "weight and error": {"min_weight": 2.0, "max_relative_error": 0.75},
    "entries and group": {"min_effective_entries": 1.5, "min_weight_per_group": 0.6},
}


def holds(limits, weights, groups):
    """Whether rows of one cell satisfy limits, from their definitions."""
    names = ["a", "b"]

    def parts(name, value):
        if isinstance(value, dict):
            yield from ((weights[groups == each], v) for each, v in value.items())
        elif name == "min_weight_per_group":
            yield from ((weights[groups == each], value) for each in names)
        else:
            yield weights, value

    for name, value in limits.items():
        for part, least in parts(name, value):
            total, square = part.sum(), np.sum(part**2)
            if total == 0.0:
                return False
            found = {
                "max_relative_error": least >= np.sqrt(square) / total,
                "min_effective_entries": total**2 / square >= least,
            }
            if not found.get(name, total >= least):
                return False
    return True


def limits_of(constraints, weights, groups):
    thresholds = CellConstraints(**constraints).thresholds(["a", "b"])
    codes = (groups == "b").astype(int)
    return build_limits(thresholds, np.arange(len(weights)), codes, weights)


def small_table(seed, n, d):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n, d)),
        np.exp(0.6 * rng.normal(size=n)),
        np.where(rng.permutation(n) % 2, "a", "b"),
    )


# --- intervals -----------------------------------------------------------------------


def best_intervals(values, weights, groups, n_bins, limits):
    """Least squares of the best feasible intervals, by enumeration; inf without."""
    order = np.argsort(values)
    values, weights, groups = values[order], weights[order], groups[order]
    best = np.inf
    for inner in combinations(range(1, len(values)), n_bins - 1):
        cells = [
            slice(*pair)
            for pair in zip((0, *inner), (*inner, len(values)), strict=True)
        ]
        if all(holds(limits, weights[each], groups[each]) for each in cells):
            means = [np.average(values[each], weights=weights[each]) for each in cells]
            squares = [
                weights[each] @ (values[each] - mean) ** 2
                for each, mean in zip(cells, means, strict=True)
            ]
            best = min(best, sum(squares))
    return best


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_intervals_are_the_best_of_all_feasible_ones(limits):
    n_met, n_unmet = 0, 0
    for seed in range(12):
        X, weights, groups = small_table(seed, 14, 1)
        best = best_intervals(X[:, 0], weights, groups, 4, limits)
        quantizer = IntervalQuantizer(4, constraints=CellConstraints(**limits))
        fit = dict(sample_weight=weights, groups=groups)
        if best == np.inf:
            n_unmet += 1
            with pytest.raises(ValueError, match="constraints must be such"):
                quantizer.fit(X, **fit)
            continue
        n_met += 1
        labels = quantizer.fit(X, **fit).predict(X)
        means = np.array(
            [
                np.average(X[labels == b, 0], weights=weights[labels == b])
                for b in range(4)
            ]
        )
        assert weights @ (X[:, 0] - means[labels]) ** 2 == pytest.approx(best)
        for b in range(4):
            assert holds(limits, weights[labels == b], groups[labels == b])
    assert n_met >= 3 and n_met + n_unmet == 12


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.floats(0.05, 1.3))
def test_intervals_of_forty_values_against_a_plain_program(seed, n_bins, tightness):
    rng = np.random.default_rng(seed)
    n = 40
    values = np.sort(rng.normal(size=n))
    weights = np.exp(rng.choice([0.0, 0.5, 2.0]) * rng.normal(size=n))
    groups = np.where(rng.permutation(n) % 2, "a", "b")
    asked = {
        "min_weight": weights.sum() / n_bins,
        "min_effective_entries": 0.3 * n / n_bins,
        "min_weight_per_group": 0.3 * weights.sum() / n_bins,
    }
    names = rng.choice(list(asked), size=2, replace=False)
    limits = {name: tightness * asked[name] for name in names}
    costs = np.full((n_bins + 1, n + 1), np.inf)
    costs[0, 0] = 0.0
    counts = np.full(n + 1, -np.inf)
    counts[0] = 0
    for end in range(1, n + 1):
        for start in range(end):
            part = slice(start, end)
            if not holds(limits, weights[part], groups[part]):
                continue
            counts[end] = max(counts[end], counts[start] + 1)
            mean = np.average(values[part], weights=weights[part])
            cost = weights[part] @ (values[part] - mean) ** 2
            costs[1:, end] = np.minimum(costs[1:, end], costs[:-1, start] + cost)
    found = interval_cells(values, weights, n_bins, limits_of(limits, weights, groups))
    most = most_cells(values, weights, limits_of(limits, weights, groups))
    assert most == max(0, counts[n])
    if found is None:
        assert costs[n_bins, n] == np.inf
        return
    labels = found[0]
    means = np.bincount(labels, weights * values) / np.bincount(labels, weights)
    cost = weights @ (values - means[labels]) ** 2
    assert cost == pytest.approx(costs[n_bins, n], rel=1e-9, abs=1e-12)


def test_equal_projections_share_a_cell():
    X = np.repeat([[-1.0], [0.0], [0.1], [1.0]], [3, 3, 3, 3], axis=0)
    quantizer = IntervalQuantizer(3, constraints=CellConstraints(min_weight=2)).fit(X)
    assert quantizer.labels_.tolist() == np.repeat([0, 1, 1, 2], 3).tolist()


def test_direction_is_chosen_within_the_limits():
    """The projection whose intervals keep most is not always the one without limits."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 2)) * [1.0, 0.9]
    limits = CellConstraints(min_weight=110)
    with pytest.warns(UserWarning, match="exact for scores of rank 1"):
        limited = IntervalQuantizer(3, criterion="trace", constraints=limits).fit(X)
    report = limited.constraint_report_
    assert report.weights.min() >= 110
    assert report.retention_without >= report.retention


def test_bound_of_a_learned_direction_holds_for_limited_intervals():
    from skquant import ProfiledDOptimality

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ [[1.0, 0.6, 0.2], [0, 1, 0.3], [0, 0, 1]]
    criterion = ProfiledDOptimality([0], prior={1: 0.1, 2: 0.1})
    free = IntervalQuantizer(5, criterion=criterion).fit(X)
    limits = CellConstraints(min_weight=45)
    limited = clone(free).set_params(constraints=limits).fit(X)
    assert limited.cell_weights_.min() >= 45 > free.cell_weights_.min()
    assert limited.retention_ < free.retention_ <= limited.upper_bound_
    assert limited.constraint_report_.retention_without == pytest.approx(
        free.retention_, rel=1e-12
    )


# --- affine rules --------------------------------------------------------------------


def has_rule(X, labels, n_bins):
    """Whether an affine rule has these labels: a linear program in one margin."""
    n, d = X.shape
    rows = []
    for i, b in product(range(n), range(n_bins)):
        if b != labels[i]:
            row = np.zeros((n_bins, d + 1))
            row[b], row[labels[i]] = [*X[i], 1.0], [*-X[i], -1.0]
            rows.append(row.ravel())
    found = linprog(
        np.zeros(n_bins * (d + 1)), rows, -np.ones(len(rows)), bounds=(None, None)
    )
    return found.status == 0


def retained(X, weights, labels, n_bins):
    """Eigenvalues of the retained matrix."""
    share = weights / weights.sum()
    root = np.linalg.cholesky((X * share[:, None]).T @ X)
    whitened = np.linalg.solve(root, X.T).T
    moments = np.array(
        [share[labels == b] @ whitened[labels == b] for b in range(n_bins)]
    )
    sums = np.bincount(labels, share, minlength=n_bins)
    return np.linalg.eigvalsh(moments.T @ (moments / sums[:, None]))


MEANS = {"trace": np.mean, "D": lambda values: np.prod(values) ** (1 / len(values))}


def partitions(n, n_bins):
    for labels in product(range(n_bins), repeat=n):
        # numbered by their first row
        first = [labels.index(b) for b in range(n_bins) if b in labels]
        if len(first) == n_bins and first == sorted(first):
            yield np.array(labels)


@pytest.fixture(scope="module")
def small():
    """For two tables all partitions of eight rows, with two retentions of each."""
    tables = []
    for seed in (0, 6):
        X, weights, groups = small_table(seed, 8, 2)
        kept = [
            (labels, retained(X, weights, labels, 3)) for labels in partitions(8, 3)
        ]
        tables.append((X, weights, groups, kept))
    return tables


@pytest.mark.parametrize(
    ("quantizer", "which"),
    [
        (KMeansQuantizer(3, random_state=0), 0),
        (DExchangeQuantizer(3, random_state=0), 1),
        (SoftVoronoiQuantizer(3, n_init=1, random_state=0), 0),
    ],
    ids=["kmeans", "exchange", "soft"],
)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_rule_is_the_best_of_all_feasible_ones(small, quantizer, which, limits):
    X, weights, groups, kept = small[which]
    mean = MEANS[quantizer.criterion]
    feasible = [
        (mean(values), labels)
        for labels, values in kept
        if all(
            holds(limits, weights[labels == b], groups[labels == b]) for b in (0, 1, 2)
        )
    ]
    feasible.sort(key=lambda each: -each[0])
    best = next(value for value, labels in feasible if has_rule(X, labels, 3))
    assert len(feasible) < len(kept)
    limited = clone(quantizer).set_params(constraints=CellConstraints(**limits))
    labels = limited.fit(X, sample_weight=weights, groups=groups).predict(X)
    np.testing.assert_array_equal(labels, limited.labels_)
    assert limited.retention_ == pytest.approx(best, rel=1e-9)
    assert mean(retained(X, weights, labels, 3)) == pytest.approx(best, rel=1e-9)
    for b in range(3):
        assert holds(limits, weights[labels == b], groups[labels == b])


def lightest(labels, X, y, sample_weight):
    return -np.sum(np.bincount(labels, sample_weight, minlength=5) ** 2)


QUANTIZERS = {
    "kmeans": KMeansQuantizer(5, n_init=2),
    "exchange": DExchangeQuantizer(5, n_init=2, n_swaps=2),
    "A": DExchangeQuantizer(5, criterion="A", n_init=2, n_swaps=2),
    "soft": SoftVoronoiQuantizer(5, n_init=1, max_iter=40),
    "affine": SoftVoronoiQuantizer(5, family="affine_max", n_init=1, max_iter=40),
    "figure": FigureOfMeritQuantizer(lightest, 5, max_iter=3, n_samples=2),
}


@pytest.mark.parametrize("quantizer", QUANTIZERS.values(), ids=QUANTIZERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_cells_of_the_rule_satisfy_every_limit(quantizer, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_t(3, size=(600, 2))
    weights = np.exp(0.5 * rng.normal(size=600))
    groups = np.where(rng.random(600) < 0.4 + 0.2 * np.tanh(X[:, 0]), "a", "b")
    everything = {
        "min_weight": 90.0,
        "max_relative_error": 0.125,
        "min_effective_entries": {"a": 20.0},
        "min_weight_per_group": {"a": 28.0, "b": 25.0},
    }
    free = clone(quantizer).set_params(random_state=0).fit(X, sample_weight=weights)
    for limits in [{name: each} for name, each in everything.items()] + [everything]:
        quantizer = clone(free).set_params(constraints=CellConstraints(**limits))
        quantizer.fit(X, sample_weight=weights, groups=groups)
        labels = quantizer.predict(X)
        assert quantizer.n_bins_ == 5
        assert quantizer.rule_agreement_ == 1.0
        np.testing.assert_array_equal(labels, quantizer.labels_)
        for b in range(5):
            assert holds(limits, weights[labels == b], groups[labels == b])
        report = quantizer.constraint_report_
        assert min(report.margins.values()) >= 1.0
        assert set(report.retention_with) == set(limits)
    if not isinstance(quantizer, FigureOfMeritQuantizer):
        assert report.retention_without == pytest.approx(free.retention_, rel=1e-9)
        assert report.retention <= min(report.retention_with.values())
        assert report.retention > 0.7 * report.retention_without


def test_limits_that_do_not_bind_leave_the_rule():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    loose = CellConstraints(min_weight=1.0)
    for quantizer in QUANTIZERS.values():
        free = clone(quantizer).set_params(random_state=0)
        limited = clone(free).set_params(constraints=loose)
        assert free.fit(X).rule_ == limited.fit(X).rule_


def test_stability_is_about_allowed_moves():
    X, weights, groups = small_table(2, 60, 2)
    limits = {"min_weight": 0.9 * weights.sum() / 4}
    quantizer = DExchangeQuantizer(
        4, constraints=CellConstraints(**limits), random_state=0
    ).fit(X, sample_weight=weights)
    labels = quantizer.labels_

    def value(labels):
        return np.log(retained(X, weights, labels, 4)).sum()

    gains = []
    for row, cell in product(range(60), range(4)):
        moved = labels.copy()
        moved[row] = cell
        allowed = np.bincount(moved, weights).min() >= limits["min_weight"]
        if cell != labels[row] and allowed:
            gains.append(value(moved) - value(labels))
    assert quantizer.best_remaining_gain_ == pytest.approx(max(gains), rel=1e-6)
    assert quantizer.is_stable_ == (max(gains) <= 0.0)


def test_limits_do_not_depend_on_the_order_of_rows():
    X, weights, groups = small_table(4, 300, 2)
    limits = CellConstraints(min_weight=weights.sum() / 6, min_weight_per_group=20)
    order = np.random.default_rng(0).permutation(300)
    quantizer = DExchangeQuantizer(5, constraints=limits, random_state=0)
    labels = quantizer.fit(X, sample_weight=weights, groups=groups).labels_
    again = quantizer.fit(
        X[order], sample_weight=weights[order], groups=groups[order]
    ).labels_
    np.testing.assert_array_equal(labels[order], again)


@pytest.mark.parametrize("quantizer", QUANTIZERS.values(), ids=QUANTIZERS)
def test_error_of_a_rule_says_what_would_do(quantizer):
    X = np.random.default_rng(0).normal(size=(30, 2))
    limits = CellConstraints(min_weight=7)
    quantizer = clone(quantizer).set_params(constraints=limits, random_state=0)
    message = "min_weight=7, where 6 can be reached. For all limits n_bins=4 would do"
    with pytest.raises(ValueError, match=message):
        quantizer.fit(X)
    assert not hasattr(quantizer, "rule_")
    if not isinstance(quantizer, FigureOfMeritQuantizer):
        assert quantizer.set_params(n_bins=4).fit(X).cell_weights_.min() >= 7
    quantizer.set_params(n_bins=5, constraints__min_weight=6).fit(X)
    assert quantizer.cell_weights_.tolist() == [6.0] * 5


def test_one_of_two_lower_bounds():
    X, weights, _ = small_table(0, 50, 2)
    limits = CellConstraints(min_weight=1)
    quantizer = DExchangeQuantizer(3, constraints=limits, min_bin_weight=0.1)
    with pytest.raises(ValueError, match="min_bin_weight must be 0 with constraints"):
        quantizer.fit(X)


# --- what every quantizer has --------------------------------------------------------

TABLE = small_table(3, 120, 1)


def fitted(**limits):
    X, weights, groups = TABLE
    return IntervalQuantizer(4, constraints=CellConstraints(**limits)).fit(
        X, sample_weight=weights, groups=groups
    )


def test_report_is_what_its_names_say():
    X, weights, groups = TABLE
    asked = {"min_weight": 32.0, "min_weight_per_group": 12.0}
    quantizer = fitted(**asked)
    report, labels = quantizer.constraint_report_, quantizer.predict(X)
    assert isinstance(report, ConstraintReport)
    assert report.groups == ("a", "b")
    for column, each in enumerate([groups == "a", groups == "b", groups != ""]):
        for b in range(4):
            part = weights[each & (labels == b)]
            error = np.sqrt(np.sum(part**2)) / part.sum()
            assert report.weights[b, column] == pytest.approx(part.sum())
            assert report.relative_errors[b, column] == pytest.approx(error)
            assert report.effective_entries[b, column] == pytest.approx(error**-2)
    assert report.margins == pytest.approx(
        {
            "min_weight": report.weights[:, 2].min() / 32.0,
            "min_weight_per_group": report.weights[:, :2].min() / 12.0,
        }
    )
    free = IntervalQuantizer(4).fit(X, sample_weight=weights)
    assert report.retention == quantizer.retention_
    assert report.retention_without == pytest.approx(free.retention_, rel=1e-12)
    for name, kept in report.retention_with.items():
        alone = fitted(**{name: asked[name]})
        assert kept == pytest.approx(alone.retention_, rel=1e-12)
        assert alone.constraint_report_.retention_with == {name: alone.retention_}
        assert report.retention <= kept <= report.retention_without
    assert report.retention < min(report.retention_with.values())
    for part in ["cell", "with min_weight alone", "without limits"]:
        assert part in str(report)


def test_margin_of_an_error_is_a_ratio_of_errors():
    report = fitted(max_relative_error=0.3).constraint_report_
    worst = report.relative_errors[:, -1].max()
    assert report.margins["max_relative_error"] == pytest.approx(0.3 / worst)


def test_report_goes_with_the_constraints():
    X, weights, _ = TABLE
    quantizer = fitted(min_weight=20)
    quantizer.set_params(constraints=None).fit(X, sample_weight=weights)
    assert not hasattr(quantizer, "constraint_report_")


def test_limits_that_do_not_bind_change_nothing():
    X, weights, _ = TABLE
    free = IntervalQuantizer(4).fit(X, sample_weight=weights)
    loose = fitted(min_weight=1e-3, max_relative_error=1e3)
    np.testing.assert_array_equal(free.labels_, loose.labels_)
    assert free.rule_ == loose.rule_


def test_rows_without_weight_are_no_rows():
    X, weights, groups = TABLE
    padded = np.vstack([X, X[:5] + 0.01])
    quantizer = clone(fitted(min_weight=25, max_relative_error={"a": 0.4}))
    alone = clone(quantizer).fit(X, sample_weight=weights, groups=groups)
    quantizer.fit(
        padded,
        sample_weight=np.concatenate([weights, np.zeros(5)]),
        groups=np.concatenate([groups, groups[:5]]),
    )
    np.testing.assert_array_equal(quantizer.labels_[:120], alone.labels_)


@pytest.mark.parametrize("asked", [{"min_weight": 400.0}, {"max_relative_error": 0.05}])
def test_error_gives_the_best_value_and_number_of_cells(asked):
    (name,) = asked
    with pytest.raises(ValueError, match="constraints must be such that n_bins=4") as e:
        fitted(**asked)
    message = str(e.value)
    best = float(re.search(rf"{name}=\S+, where (\S+) can be reached", message)[1])
    assert fitted(**{name: best}).n_bins_ == 4
    beyond = best * (1.0001 if name == "min_weight" else 0.9999)
    with pytest.raises(ValueError, match=name):
        fitted(**{name: beyond})
    assert "For all limits no n_bins would do" in message


def test_error_names_a_number_of_cells_that_does():
    X, weights, groups = TABLE
    limits = CellConstraints(min_weight=weights.sum() / 3.5, min_weight_per_group=1)
    with pytest.raises(ValueError, match="n_bins=(2|3) would do") as e:
        IntervalQuantizer(4, constraints=limits).fit(
            X, sample_weight=weights, groups=groups
        )
    assert "min_weight_per_group" not in str(e.value)
    enough = int(re.search(r"n_bins=(\d) would do", str(e.value))[1])
    quantizer = IntervalQuantizer(enough, constraints=limits)
    assert quantizer.fit(X, sample_weight=weights, groups=groups).n_bins_ == enough


def test_error_of_limits_that_exclude_each_other_names_both():
    X = np.linspace(-1.0, 1.0, 9)[:, None]
    groups = np.array(list("aaaabbbbb"))
    # two cells of four and five, or one part of b on the left
    limits = dict(min_weight_per_group={"a": 4.0}, min_weight=10.0)
    with pytest.raises(ValueError, match="min_weight=10.*min_weight_per_group=4"):
        IntervalQuantizer(2, constraints=CellConstraints(**limits)).fit(
            X, groups=groups
        )


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"min_weight": -1.0}, "min_weight must be a positive number.*got -1.0"),
        ({"min_weight": "a"}, "min_weight must be a positive number"),
        ({"max_relative_error": np.nan}, "max_relative_error must be a positive"),
        ({"min_weight": {"c": 1.0}}, r"must name groups of the table, \['a', 'b'\]"),
    ],
)
def test_bad_limits(limits, message):
    with pytest.raises(ValueError, match=message):
        fitted(**limits)


def test_groups_are_needed_and_checked():
    X, weights, groups = TABLE
    quantizer = IntervalQuantizer(
        3, constraints=CellConstraints(min_weight_per_group=1)
    )
    with pytest.raises(ValueError, match="pass groups.*got none"):
        quantizer.fit(X)
    with pytest.raises(ValueError, match=r"groups must have shape \(120,\)"):
        quantizer.fit(X, groups=groups[:5])
    numbers = np.where(groups == "a", 1.0, np.nan)
    with pytest.raises(ValueError, match="got NaN"):
        quantizer.fit(X, groups=numbers)
    signed = np.where(weights > 2, -1.0, weights)
    quantizer.set_params(negative_weights="merge")
    with pytest.raises(ValueError, match="constraints need nonnegative sample_weight"):
        quantizer.fit(X, groups=groups, sample_weight=signed)
    with pytest.raises(ValueError, match="'constraints' parameter"):
        IntervalQuantizer(constraints={"min_weight": 1}).fit(X)


def test_groups_are_routed_as_metadata():
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MaxAbsScaler

    X, weights, groups = TABLE
    limits = CellConstraints(min_weight_per_group=10)
    with config_context(enable_metadata_routing=True):
        quantizer = IntervalQuantizer(3, constraints=limits)
        quantizer.set_fit_request(groups=True, sample_weight=True)
        scaler = MaxAbsScaler()
        pipeline = make_pipeline(scaler, quantizer)
        pipeline.fit(X, groups=groups, sample_weight=weights)
    report = pipeline[-1].constraint_report_
    assert report.weights[:, :2].min() >= 10


def test_no_limits_are_none():
    assert not hasattr(fitted(), "constraint_report_")


def test_limits_are_parameters_of_a_search():
    quantizer = IntervalQuantizer(constraints=CellConstraints(min_weight=3))
    changed = clone(quantizer).set_params(constraints__min_weight=5)
    assert changed.constraints.min_weight == 5
    assert quantizer.constraints.min_weight == 3
