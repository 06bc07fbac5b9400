import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import slow_gains, slow_information, slow_pass, slow_value

from skquant import (
    AOptimality,
    DOptimality,
    EOptimality,
    NormalizedTrace,
    PowerMean,
    ProfiledDOptimality,
)
from skquant._table import merge_rows
from skquant.criteria import resolve_criterion
from skquant.solvers._assignment import (
    fill_empty_cells,
    nearest_cell,
    raise_light_cells,
)
from skquant.solvers._exchange import (
    Cells,
    _GenericPass,
    best_remaining_gain,
    exchange,
    make_pass,
)
from skquant.solvers._problem import build_problem

pytestmark = pytest.mark.usefixtures("one_thread")

COMPILED = [
    NormalizedTrace(),
    DOptimality(),
    AOptimality(),
    ProfiledDOptimality(0, 0.0),
    ProfiledDOptimality([0], 0.1),
]
GENERIC = [PowerMean(0.5), PowerMean(-2.0), EOptimality()]


def small_problem(criterion, seed=0, n=12, d=2, centred=False, spread=1.0):
    """Atoms with heavy weights (a normal law of given spread on the log scale)."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, d)) + (0.0 if centred else 0.7)
    weights = np.exp(spread * rng.normal(size=n))
    if centred:
        scores -= np.average(scores, axis=0, weights=weights)
    problem, _ = build_problem(
        scores, weights, criterion, 1e-13, np.random.RandomState(seed)
    )
    return problem


def balanced_labels(n, n_bins, seed):
    labels = np.arange(n) % n_bins
    return np.random.default_rng(seed).permutation(labels).astype(np.int32)


def assert_best_gain(problem, labels, n_bins, rtol=1e-9, atol=1e-11):
    gains = slow_gains(problem, labels, n_bins)
    expected = max(gains.values(), default=-np.inf)
    found = best_remaining_gain(problem, labels, n_bins)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


# --- the gain of a move --------------------------------------------------------------


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("criterion", [*COMPILED, *GENERIC], ids=repr)
def test_best_remaining_gain_agrees_with_enumeration(criterion, d, centred):
    if getattr(criterion, "needs_columns", False):
        d = max(d, 2)
    n_bins = d + 2
    for seed in range(2):
        problem = small_problem(criterion, seed, n=11, d=d, centred=centred)
        assert_best_gain(problem, balanced_labels(11, n_bins, seed), n_bins)


@pytest.mark.parametrize("criterion", COMPILED, ids=repr)
def test_gain_of_heavy_and_light_rows(criterion):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(12, 2)) + 0.5
    checked = 0
    for heavy in (1e-12, 1e-6, 1e6, 1e12):
        weights = rng.exponential(size=12)
        weights[[2, 5, 9]] *= heavy
        problem, _ = build_problem(
            scores, weights, criterion, 1e-13, np.random.RandomState(0)
        )
        for seed in range(4):
            labels = balanced_labels(12, 4, seed)
            information = problem.label_information(labels, 4)
            if np.linalg.cond(information) < 1e6:
                assert_best_gain(problem, labels, 4, rtol=1e-6)
                checked += 1
    assert checked >= 8


@pytest.mark.parametrize("criterion", COMPILED, ids=repr)
def test_gain_where_the_origin_is_far(criterion):
    scores = np.random.default_rng(1).normal(size=(12, 2)) + [300.0, -500.0]
    problem, _ = build_problem(
        scores, np.ones(12), criterion, 1e-13, np.random.RandomState(0)
    )
    assert_best_gain(problem, balanced_labels(12, 4, 1), 4, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("criterion", [DOptimality(), EOptimality()], ids=repr)
def test_no_allowed_move(criterion):
    problem = small_problem(criterion, n=4)
    labels = np.arange(4, dtype=np.int32)
    assert best_remaining_gain(problem, labels, 4) == -np.inf


@pytest.mark.parametrize("criterion", [DOptimality(), EOptimality()], ids=repr)
def test_gain_of_a_blocked_move(criterion):
    problem = small_problem(criterion, n=16)
    labels = balanced_labels(16, 4, 0)
    shares = np.bincount(labels, problem.weights)
    for floor in (0.0, np.sort(shares)[1] * 0.9, shares.min() * 0.5):
        gains = slow_gains(problem, labels, 4, floor)
        np.testing.assert_allclose(
            best_remaining_gain(problem, labels, 4, min_bin_weight=floor),
            max(gains.values(), default=-np.inf),
            rtol=1e-9,
        )


@pytest.mark.parametrize("criterion", [DOptimality(), AOptimality()], ids=repr)
def test_gain_from_singular_information_is_infinite(criterion):
    problem = small_problem(criterion, d=3)
    labels = balanced_labels(12, 2, 0)
    assert best_remaining_gain(problem, labels, 2) == np.inf


# --- the screen ----------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    d=st.integers(2, 4),
    choice=st.integers(0, len(COMPILED) + len(GENERIC) - 1),
    spread=st.sampled_from([0.0, 1.0, 4.0]),
    centred=st.booleans(),
)
def test_the_screen_never_misses_a_positive_gain(seed, d, choice, spread, centred):
    criterion = [*COMPILED, *GENERIC][choice]
    problem = small_problem(criterion, seed, n=11, d=d, centred=centred, spread=spread)
    labels = balanced_labels(11, d + 2, seed)
    if np.linalg.cond(problem.label_information(labels, d + 2)) > 1e8:
        return
    gains = slow_gains(problem, labels, d + 2)
    cells = Cells(problem, labels, d + 2)
    # an impossible tolerance: every row is screened and nothing moves
    visit = make_pass(cells, 0.0, 1e30)
    assert visit() == (0, 0.0, 1, 11)
    np.testing.assert_array_equal(cells.labels, labels)
    size = max(1.0, np.abs(list(gains.values())).max())
    for (row, _), gain in gains.items():
        if gain > 1e-9 * size:
            assert visit.slack[row] < 0


# --- one pass ------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("criterion", [*COMPILED, *GENERIC[:2]], ids=repr)
def test_one_pass_agrees_with_its_twin(criterion, d):
    if getattr(criterion, "needs_columns", False):
        d = max(d, 2)
    for seed in range(3):
        problem = small_problem(criterion, seed, n=14, d=d)
        labels = balanced_labels(14, d + 2, seed)
        cells = Cells(problem, labels, d + 2)
        visit = make_pass(cells, 0.0, 1e-12)
        if isinstance(visit, _GenericPass):
            # it takes its rows from a screen at the start of the pass; none is barred
            rows = np.arange(14)
            metric = problem.gradient(problem.label_information(labels, d + 2))
            first_order = visit._first_order(rows, metric)
            if not (first_order.max(axis=1) > 0).all():
                continue
        before = cells.value()
        # what the cells hold does not matter to a pass that starts from the labels
        cells.weights[:], cells.means[:] = np.nan, np.nan
        moves, gain, *_ = visit(from_labels=True)
        expected, expected_moves = slow_pass(problem, labels, d + 2, 1e-12)
        np.testing.assert_array_equal(cells.labels, expected)
        assert moves == expected_moves > 0
        np.testing.assert_allclose(cells.value() - before, gain, rtol=1e-9)
        moved = cells.weights.copy(), cells.means.copy(), cells.counts.copy()
        cells.rebuild()
        for updated, rebuilt in zip(
            moved, (cells.weights, cells.means, cells.counts), strict=True
        ):
            np.testing.assert_allclose(updated, rebuilt, rtol=1e-10, atol=1e-12)


# --- a whole exchange ----------------------------------------------------------------


@pytest.mark.parametrize("criterion", [*COMPILED, *GENERIC], ids=repr)
def test_the_end_is_stable_and_no_worse_than_the_start(criterion):
    for seed in range(3):
        problem = small_problem(criterion, seed, n=20, d=2)
        labels = balanced_labels(20, 4, seed)
        result = exchange(problem, labels, 4)
        assert result.converged and result.stable
        assert result.n_moves > 0 and result.n_iter >= 2
        value = slow_value(problem, result.labels, 4)
        assert result.value == pytest.approx(value, rel=1e-9)
        assert value > slow_value(problem, labels, 4)
        assert max(slow_gains(problem, result.labels, 4).values()) < 1e-10
        assert best_remaining_gain(problem, result.labels, 4) < 1e-10
        assert np.bincount(result.labels, minlength=4).min() > 0
        assert result.labels.dtype == np.int32


@pytest.mark.parametrize("criterion", [*COMPILED, GENERIC[1]], ids=repr)
def test_every_pass_is_monotone(criterion):
    problem = small_problem(criterion, 7, n=80, d=3)
    labels = balanced_labels(80, 6, 7)
    values = [problem.value(problem.label_information(labels, 6))]
    for max_iter in (1, 2, 3, 5, 8):
        result = exchange(problem, labels, 6, max_iter=max_iter)
        assert result.n_iter <= max_iter
        values.append(result.value)
    assert np.all(np.diff(values) >= -1e-12)
    assert values[-1] > values[0]


def test_a_stopped_exchange_is_not_called_stable():
    problem = small_problem(DOptimality(), 7, n=80, d=3)
    result = exchange(problem, balanced_labels(80, 6, 7), 6, max_iter=1)
    assert not result.converged and not result.stable
    assert best_remaining_gain(problem, result.labels, 6) > 1e-6


def test_a_criterion_that_is_not_declared_concave_is_not_certified():
    class Plain:
        value = staticmethod(DOptimality().value)
        gradient = staticmethod(DOptimality().gradient)
        efficiency = staticmethod(DOptimality().efficiency)

    problem = small_problem(resolve_criterion(Plain(), 3), n=20)
    result = exchange(problem, balanced_labels(20, 4, 0), 4)
    assert result.converged and not result.stable


@pytest.mark.parametrize("criterion", [*COMPILED, GENERIC[1]], ids=repr)
@pytest.mark.parametrize("floor", [0.05, 0.15, 0.21])
def test_min_bin_weight_is_respected(criterion, floor):
    problem = small_problem(criterion, 8, n=40, d=2, spread=0.3)
    start = balanced_labels(40, 4, 8)
    result = exchange(problem, start, 4, min_bin_weight=floor)
    shares = np.bincount(result.labels, problem.weights, minlength=4)
    assert shares.min() >= floor * (1 - 1e-12)
    gains = slow_gains(problem, result.labels, 4, floor)
    assert max(gains.values(), default=-np.inf) < 1e-10


def test_gain_tol_is_per_unit_of_share():
    problem = small_problem(DOptimality(), 9, n=40)
    labels = exchange(problem, balanced_labels(40, 4, 9), 4, gain_tol=0.5).labels
    gains = slow_gains(problem, labels, 4)
    relative = [gain / problem.weights[row] for (row, _), gain in gains.items()]
    assert 0 < max(relative) <= 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("criterion", [DOptimality(), EOptimality()], ids=repr)
def test_inputs_may_be_read_only_and_stay_unchanged(criterion):
    problem = small_problem(criterion, 10, n=30)
    labels = balanced_labels(30, 4, 10)
    expected = exchange(problem, labels.copy(), 4).labels
    arrays = problem.points, problem.weights, problem.origin, labels
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    result = exchange(problem, labels, 4, min_bin_weight=0.0)
    best_remaining_gain(problem, labels, 4)
    np.testing.assert_array_equal(result.labels, expected)
    assert [array.tobytes() for array in arrays] == before


# --- atoms ---------------------------------------------------------------------------


def test_identical_rows_are_one_atom():
    X = np.array([[1.0, 2], [0, 1], [1, 2], [1, 3], [0, 1], [5, 5], [-0.0, 1]])
    weights = np.array([1.0, 2, 3, 4, 5, 0, 6])
    of_row, first_row, atom_weights = merge_rows(X, weights)
    assert of_row[5] == -1
    assert of_row[0] == of_row[2]
    assert of_row[1] == of_row[4] == of_row[6]
    assert len(first_row) == len(atom_weights) == 3
    for atom, (first, weight) in enumerate(zip(first_row, atom_weights, strict=True)):
        assert of_row[first] == atom
        assert weight == weights[of_row == atom].sum()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(1, 30), d=st.integers(1, 3))
def test_atoms_depend_on_content_alone(seed, n, d):
    rng = np.random.default_rng(seed)
    X = rng.integers(-1, 2, size=(n, d)).astype(float)
    weights = rng.exponential(size=n)
    order = rng.permutation(n)
    of_row, first_row, atom_weights = merge_rows(X, weights)
    again = merge_rows(X[order], weights[order])
    np.testing.assert_array_equal(again[0], of_row[order])
    np.testing.assert_array_equal(X[order][again[1]], X[first_row])
    np.testing.assert_array_equal(again[2], atom_weights)
    assert len(first_row) == len(np.unique(X, axis=0))


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_a_problem_is_whitened(offset):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(50, 3)) * [1e-150, 1.0, 1e150]
    scores[:, 1] += offset
    problem, atoms = build_problem(
        scores, rng.exponential(size=50), DOptimality(), 1e-13, np.random.RandomState(0)
    )
    whole = problem.points + problem.origin
    np.testing.assert_allclose(
        slow_information(whole, problem.weights), np.eye(3), atol=1e-8
    )
    np.testing.assert_allclose(problem.full_information(), np.eye(3), atol=1e-8)
    assert problem.weights.sum() == pytest.approx(1.0, abs=1e-14)
    np.testing.assert_allclose(
        whole @ atoms.subspace.basis / atoms.subspace.scale,
        scores[atoms.first_row] / atoms.subspace.scale,
        rtol=1e-8,
        atol=1e-8,
    )


# --- repairs -------------------------------------------------------------------------


def test_nearest_cell_agrees_with_loops():
    rng = np.random.default_rng(4)
    points, centers = rng.normal(size=(50, 3)), rng.normal(size=(7, 3))
    root = rng.normal(size=(3, 3))
    metric = root.T @ root
    expected = [
        int(np.argmin([(p - c) @ metric @ (p - c) for c in centers])) for p in points
    ]
    assert nearest_cell(points, centers, metric).tolist() == expected


@pytest.mark.parametrize("present", [[0], [1, 3], [0, 1, 2, 3, 4]])
def test_empty_cells_are_filled(present):
    problem = small_problem(NormalizedTrace(), 5, n=9)
    labels = np.array(present, dtype=np.int32)[np.arange(9) % len(present)]
    before = labels.copy()
    filled = fill_empty_cells(problem, labels, 5)
    assert np.bincount(filled, minlength=5).min() >= 1
    assert np.count_nonzero(filled != labels) == 5 - len(present)
    np.testing.assert_array_equal(labels, before)
    kept = slow_value(problem, filled, 5)
    assert kept >= slow_value(problem, labels, 5) - 1e-12


def test_an_empty_cell_takes_the_farthest_atom():
    problem = small_problem(NormalizedTrace(), 6, n=9)
    labels = np.zeros(9, dtype=np.int32)
    mean = problem.weights @ problem.points
    worst = np.argmax(problem.weights * np.sum((problem.points - mean) ** 2, axis=1))
    assert np.flatnonzero(fill_empty_cells(problem, labels, 2)).tolist() == [worst]


def test_an_exchange_fills_empty_cells():
    problem = small_problem(DOptimality(), 6, n=30)
    result = exchange(problem, np.zeros(30, dtype=np.int32), 5)
    assert np.bincount(result.labels, minlength=5).min() >= 1
    assert result.stable


@pytest.mark.parametrize("floor", [0.1, 0.2, 0.24])
def test_light_cells_are_raised(floor):
    problem = small_problem(NormalizedTrace(), 7, n=80, spread=0.3)
    labels = np.zeros(80, dtype=np.int32)
    labels[:3] = [1, 2, 3]
    before = labels.copy()
    raised = raise_light_cells(problem, labels, 4, floor)
    shares = np.bincount(raised, problem.weights, minlength=4)
    assert shares.min() >= floor * (1 - 1e-12)
    np.testing.assert_array_equal(labels, before)


def test_cells_at_the_floor_are_left_alone():
    problem = small_problem(NormalizedTrace(), 7, n=8, spread=0.0)
    labels = balanced_labels(8, 4, 0)
    assert raise_light_cells(problem, labels, 4, 0.2) is labels
    assert raise_light_cells(problem, labels, 4, 0.0) is labels
    raised = raise_light_cells(problem, labels, 4, 0.25)
    shares = np.bincount(raised, problem.weights, minlength=4)
    np.testing.assert_allclose(shares, 0.25, rtol=1e-12)
