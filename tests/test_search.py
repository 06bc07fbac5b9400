"""The search on coarse points, and exchange of tables too large to visit whole."""

from types import SimpleNamespace

import numpy as np
import pytest
from reference import normal_table, slow_value

from skquant import (
    AOptimality,
    DExchangeQuantizer,
    DOptimality,
    EOptimality,
    NormalizedTrace,
    PowerMean,
    ProfiledDOptimality,
)
from skquant.exceptions import RuleExtensionWarning
from skquant.solvers import _exchange, _search
from skquant.solvers._assignment import nearest_cell
from skquant.solvers._exchange import (
    Cells,
    best_remaining_gain,
    exchange,
    make_pass,
)
from skquant.solvers._problem import build_problem
from skquant.solvers._search import _coarse_size, _ranked, _swap, search_partition

pytestmark = pytest.mark.usefixtures("one_thread")

CRITERIA = [
    DOptimality(),
    NormalizedTrace(),
    AOptimality(),
    ProfiledDOptimality([0], 0.1),
]

M3 = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])


def problem_of(n, criterion=None, weights=None, seed=0):
    scores = normal_table(seed, n, M3)
    weights = np.ones(n) if weights is None else weights
    return build_problem(
        scores, weights, criterion or DOptimality(), 1e-10, np.random.RandomState(seed)
    )[0]


def voronoi_labels(problem, n_bins, seed=0):
    rows = np.random.RandomState(seed).choice(len(problem.points), n_bins, False)
    return nearest_cell(problem.points, problem.points[rows], np.eye(3))


# --- exchange ------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [DOptimality(), NormalizedTrace()], ids=repr)
def test_a_table_visited_in_part_ends_stable(criterion):
    problem = problem_of(6_000, criterion)
    labels = voronoi_labels(problem, 5)
    result = exchange(problem, labels, 5)
    assert result.stable
    assert best_remaining_gain(problem, result.labels, 5) <= 1e-12
    assert result.value == pytest.approx(
        slow_value(problem, result.labels, 5), abs=1e-10
    )
    # the parts are small
    assert 1 < result.n_visits / 6_000 < result.n_iter + 5


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("criterion", CRITERIA, ids=repr)
def test_settling_agrees_with_its_twin(criterion, weighted):
    """Two plain passes, then means and information extrapolated through them."""
    weights = np.random.default_rng(3).exponential(size=1_003) if weighted else None
    problem = problem_of(1_003, criterion, weights)

    def state(labels):
        cells = Cells(problem, labels, 5)
        return cells.means, problem.label_information(labels, 5)

    def nearest(means, information):
        return nearest_cell(problem.points, means, problem.gradient(information))

    labels = [voronoi_labels(problem, 5)]
    for _ in range(2):
        labels.append(nearest(*state(labels[-1])))
    first, second, third = (np.vstack(state(each)) for each in labels)
    step, bend = second - first, third - 2.0 * second + first
    reach = np.linalg.norm(step[:5]) / np.linalg.norm(bend[:5])
    far = first + 2.0 * reach * step + reach**2 * bend
    if reach > 1.0:
        labels.append(nearest(far[:5], far[5:]))
    values = [slow_value(problem, each, 5) for each in labels]
    falls = np.flatnonzero(np.diff(values) <= 0.0)
    best = falls[0] if len(falls) else len(labels) - 1

    cells = Cells(problem, labels[0], 5)
    # out of reach of the target: one round
    visits = make_pass(cells, 0.0, 1e-12).settle(np.inf)
    assert visits == 1_003 * min(best + 1, len(labels) - 1)
    np.testing.assert_array_equal(cells.labels, labels[best])
    rebuilt = Cells(problem, cells.labels, 5)
    np.testing.assert_allclose(cells.weights, rebuilt.weights, rtol=1e-11)
    np.testing.assert_allclose(cells.means, rebuilt.means, atol=1e-11)
    np.testing.assert_array_equal(cells.counts, rebuilt.counts)


@pytest.mark.parametrize("criterion", CRITERIA, ids=repr)
def test_compiled_value_and_gradient_are_those_of_the_criterion(criterion):
    problem = problem_of(500, criterion)
    # two cells of three coordinates, too
    for n_bins, seed in [(5, 0), (5, 1), (5, 2), (2, 0)]:
        cells = Cells(problem, voronoi_labels(problem, n_bins, seed), n_bins)
        value, metric = make_pass(cells, 0.0, 1e-12).evaluate()
        assert value == pytest.approx(cells.value(), rel=1e-11)
        if cells.metric() is None:
            assert metric is None
        else:
            np.testing.assert_allclose(metric, cells.metric(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("criterion", CRITERIA, ids=repr)
def test_settling_never_loses(criterion):
    """Not with weights of all sizes, light cells or a singular start either."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        weights = np.exp(rng.uniform(0.0, 12.0) * rng.normal(size=300))
        problem = problem_of(300, criterion, weights, seed)
        n_bins, floor = rng.integers(2, 12), 0.01 * (seed % 2)
        options = dict(max_iter=0, min_bin_weight=floor)
        start = voronoi_labels(problem, n_bins, seed)
        plain = exchange(problem, start, n_bins, **options)
        settled = exchange(problem, start, n_bins, settle=True, **options)
        assert settled.n_iter == 0 and not settled.converged
        value = slow_value(problem, settled.labels, n_bins)
        assert value >= plain.value - 1e-9 * max(1.0, abs(plain.value))
        shares = np.bincount(settled.labels, problem.weights, minlength=n_bins)
        assert shares.min() > 0.0
        assert shares.min() >= min(floor, plain.cell_weights.min()) * (1.0 - 1e-9)


def test_rows_of_a_part_move_alone():
    problem = problem_of(300)
    labels = voronoi_labels(problem, 4)
    cells = Cells(problem, labels, 4)
    visit = make_pass(cells, 0.0, 1e-12)
    rows = np.arange(0, 300, 3)
    before = cells.value()
    moves, gain, *_ = visit(rows, 5)
    changed = np.flatnonzero(cells.labels != labels)
    assert moves >= len(changed) > 0
    assert np.isin(changed, rows).all()
    assert cells.value() - before == pytest.approx(gain, rel=1e-9)
    moved = cells.weights.copy(), cells.means.copy(), cells.counts.copy()
    cells.rebuild()
    for each, rebuilt in zip(
        moved, (cells.weights, cells.means, cells.counts), strict=True
    ):
        np.testing.assert_allclose(each, rebuilt, rtol=1e-10, atol=1e-12)


def test_a_row_that_is_nearly_all_of_its_cell_waits_for_the_whole_table():
    weights = np.ones(300)
    weights[7] = 1e9
    problem = problem_of(300, weights=weights)
    heavy = int(np.argmax(problem.weights))
    labels = voronoi_labels(problem, 4)
    cells = Cells(problem, labels, 4)
    visit = make_pass(cells, 0.0, -1.0)  # any move is a gain
    assert visit(np.array([heavy])) == (0, 0.0, 1, 1)


@pytest.mark.parametrize("floor", [0.0, 0.15])
@pytest.mark.parametrize("spread", [0.0, 2.0])
@pytest.mark.parametrize("criterion", CRITERIA, ids=repr)
def test_rows_far_from_a_boundary_are_left_out_without_a_difference(
    criterion, spread, floor
):
    weights = np.exp(spread * np.random.default_rng(0).normal(size=5_000))
    problem = problem_of(5_000, criterion, weights=weights)
    cells = [Cells(problem, voronoi_labels(problem, 5), 5) for _ in range(2)]
    lasting = make_pass(cells[0], floor, 1e-12)
    visits, moves = [], np.inf
    while moves:
        moves, gain, _, seen = lasting()
        # without a memory of earlier visits
        assert make_pass(cells[1], floor, 1e-12)() == (moves, gain, 1, 5_000)
        np.testing.assert_array_equal(cells[0].labels, cells[1].labels)
        visits.append(seen)
        # the drift of the means is bounded, too
        step = 0.01 * np.random.default_rng(len(visits)).normal(size=(5, 3))
        rise, seen = lasting.follow(step)
        assert make_pass(cells[1], floor, 1e-12).follow(step) == (rise, 5_000)
        np.testing.assert_array_equal(cells[0].labels, cells[1].labels)
        visits.append(seen)
    assert visits[0] == 5_000
    if floor == 0.0:
        assert visits[-2] < 2_500


@pytest.mark.parametrize("floor", [0.0, 0.2])
@pytest.mark.parametrize("criterion", [DOptimality(), PowerMean(-2.0)], ids=repr)
def test_means_are_moved_on_only_uphill(criterion, floor):
    problem = problem_of(2_000, criterion)
    best = exchange(problem, voronoi_labels(problem, 4), 4, min_bin_weight=floor)
    start = exchange(problem, voronoi_labels(problem, 4), 4, max_iter=1)
    rng = np.random.default_rng(0)
    taken = 0
    for _ in range(40):
        step = 0.3 * rng.normal(size=(4, 3))
        cells = Cells(problem, start.labels, 4)
        labels, before = cells.labels.copy(), cells.value()
        rise, visits = make_pass(cells, floor, 1e-12).follow(step)
        assert visits == 2_000
        assert cells.value() == pytest.approx(before + rise, abs=1e-12)
        if rise > 0.0:
            taken += 1
            assert cells.weights.min() >= floor
        else:
            np.testing.assert_array_equal(cells.labels, labels)
    assert taken > 0
    # nothing is above an optimum by a hair
    cells = Cells(problem, best.labels, 4)
    visit = make_pass(cells, floor, 1e-12)
    assert visit.follow(np.zeros((4, 3)))[0] <= 1e-12


def test_drift_is_followed(monkeypatch):
    """The optimum of a rotationally symmetric law is nearly flat along rotations."""
    problem = problem_of(30_000)
    labels = voronoi_labels(problem, 6, seed=3)
    followed = exchange(problem, labels, 6)
    monkeypatch.setattr(_exchange._CompiledPass, "follow", lambda *_: (0.0, 0))
    waited = exchange(problem, labels, 6)
    assert followed.stable and waited.stable
    assert followed.n_iter < waited.n_iter


# --- search --------------------------------------------------------------------------


def slow_neighbors(points, weights, n_leaves):
    """Split the leaf of the widest coordinate at its mean; the twin of the kernel."""

    def described(rows):
        mean = weights[rows] @ points[rows] / weights[rows].sum()
        return weights[rows] @ (points[rows] - mean) ** 2, mean

    leaves = [np.arange(len(points))]
    while len(leaves) < n_leaves:
        spreads = [described(rows)[0].max() for rows in leaves]
        widest = int(np.argmax(spreads))
        if not spreads[widest] > 1e-28:
            break
        rows = leaves.pop(widest)
        spread, mean = described(rows)
        below = points[rows, spread.argmax()] < mean[spread.argmax()]
        leaves += [rows[below], rows[~below]]
    return leaves


@pytest.mark.parametrize("d", [1, 3, 8, 10])
@pytest.mark.parametrize("n_leaves", [1, 2, 7, 64])
def test_neighbors_agree_with_their_twin(n_leaves, d):
    rng = np.random.default_rng(n_leaves)
    scores, weights = rng.normal(size=(700, d)), rng.exponential(size=700)
    problem = build_problem(
        scores, weights, DOptimality(), 1e-10, np.random.RandomState(0)
    )[0]
    leaves = slow_neighbors(problem.points, problem.weights, n_leaves)
    coarse = problem.coarse(n_leaves, np.random.RandomState(0))
    weights = np.array([problem.weights[rows].sum() for rows in leaves])
    means = [problem.weights[rows] @ problem.points[rows] for rows in leaves]
    means = np.array(means) / weights[:, None]
    order, twin_order = np.lexsort(coarse.points.T), np.lexsort(means.T)
    np.testing.assert_allclose(coarse.points[order], means[twin_order], atol=1e-12)
    np.testing.assert_allclose(coarse.weights[order], weights[twin_order], rtol=1e-12)


def test_neighbors_keep_weight_mean_and_what_they_can_of_the_information():
    problem = problem_of(3_000)
    points, weights = problem.points.copy(), problem.weights.copy()
    kept = []
    for n_points in (1, 10, 100, 1_000, 2_999, 3_000, 9_000):
        coarse = problem.coarse(n_points, np.random.RandomState(0))
        assert len(coarse.points) == min(n_points, 3_000)
        assert coarse.weights.sum() == pytest.approx(1.0, rel=1e-12)
        np.testing.assert_allclose(coarse.weights @ coarse.points, 0.0, atol=1e-12)
        kept.append(np.trace(coarse.full_information()) / 3.0)
    assert (np.diff(kept) >= -1e-12).all()
    assert kept[2] > 0.85 and kept[3] > 0.97
    assert kept[-1] == pytest.approx(1.0, rel=1e-12)
    # what it came from stays as it is
    np.testing.assert_array_equal(problem.points, points)
    np.testing.assert_array_equal(problem.weights, weights)


def test_neighbors_of_ties_and_outliers():
    rng = np.random.default_rng(0)
    scores = np.round(rng.standard_cauchy((5_000, 3)), 0)
    weights = np.exp(20.0 * rng.normal(size=5_000))
    problem = build_problem(
        scores, weights, DOptimality(), 1e-10, np.random.RandomState(0)
    )[0]
    coarse = problem.coarse(500, np.random.RandomState(0))
    assert np.isfinite(coarse.points).all() and (coarse.weights > 0.0).all()
    assert coarse.weights.sum() == pytest.approx(1.0, rel=1e-12)
    # few distinct points: those that there are
    few = problem_of(3)
    few = few.coarse(10, np.random.RandomState(0))
    assert len(few.points) == 3


@pytest.mark.parametrize("n_atoms", [10, 3_999, 4_001, 50_000, 10**7])
def test_coarse_size(n_atoms):
    size = _coarse_size(n_atoms, 8, 3)
    if n_atoms < 4_000:
        assert size == n_atoms
    else:
        assert 2_000 <= size <= min(n_atoms / 2, 20_000)


def test_ranks_skip_what_is_alike():
    assert _ranked([1.0, 3.0, 3.0 - 1e-9, 2.0, 3.0, -np.inf]) == [1, 3, 0, 5]
    assert _ranked([-np.inf, -np.inf]) == [0]


def test_the_search_ends_stable(capsys):
    problem = problem_of(20_000)
    result = search_partition(
        problem, 6, np.random.RandomState(0), n_init=4, n_swaps=4, verbose=1
    )
    assert capsys.readouterr().out.count("start") == 4
    assert result.stable
    assert best_remaining_gain(problem, result.labels, 6) <= 1e-12
    # as good as exchange of the whole table from many starts
    alone = max(
        exchange(problem, voronoi_labels(problem, 6, seed), 6).value
        for seed in range(8)
    )
    assert result.value >= alone - 2e-3


def test_partitions_of_a_large_table_are_judged_by_its_atoms(monkeypatch):
    """The best of the coarse points is given up where the atoms say otherwise."""
    problem = problem_of(20_000)
    seen = []
    follow = _search._follow

    def spy(there, *arguments, **options):
        result = follow(there, *arguments, **options)
        seen.append((len(there.points), result.value))
        return result

    monkeypatch.setattr(_search, "_follow", spy)
    result = search_partition(problem, 6, np.random.RandomState(1), n_init=6, n_swaps=3)
    whole = [value for size, value in seen if size == 20_000]
    assert {size for size, _ in seen} == {_coarse_size(20_000, 6, 3), 20_000}
    assert 1 <= len(whole) <= 2 and result.value == max(whole)


def test_partitions_that_fall_behind_on_the_whole_table_are_given_up(monkeypatch):
    """By the criterion of the exchange; not where another one chooses."""
    n = 60_000
    problem = problem_of(n)
    seen = []
    follow = _search._follow

    def spy(there, *arguments, **options):
        result = follow(there, *arguments, **options)
        if len(there.points) == n:
            seen.append((options.get("target", -np.inf), result))
        return result

    monkeypatch.setattr(_search, "_follow", spy)
    result = search_partition(problem, 6, np.random.RandomState(0), n_swaps=3)
    first, *others = seen
    assert first[0] == -np.inf and first[1].stable and result.stable
    assert {target for target, _ in others} == {first[1].value}
    given_up = [each for _, each in others if not each.converged]
    assert given_up and all(each.value < first[1].value for each in given_up)

    seen.clear()
    search_partition(
        problem.whitened(NormalizedTrace()),
        6,
        np.random.RandomState(0),
        n_swaps=3,
        selection=problem,
    )
    assert len(seen) > 1 and all(each.stable for _, each in seen)


@pytest.mark.parametrize("n, settles", [(1_199, False), (1_200, True)])
def test_small_tables_of_full_cells_settle_first(monkeypatch, n, settles):
    problem = problem_of(n)
    seen = []
    follow = _search._follow

    def spy(*arguments, **options):
        seen.append(options["settle"])
        return follow(*arguments, **options)

    monkeypatch.setattr(_search, "_follow", spy)
    assert search_partition(problem, 4, np.random.RandomState(0), n_init=2).stable
    assert seen == [settles] * 2


@pytest.mark.parametrize("max_iter", [None, 1])
def test_swaps_on_the_whole_table_where_coarse_points_lose_much(max_iter):
    """In eight coordinates they do; the winner is exchanged to its end."""
    scores = np.random.default_rng(0).normal(size=(6_000, 8))
    problem = build_problem(
        scores, np.ones(6_000), DOptimality(), 1e-10, np.random.RandomState(0)
    )[0]
    values = []
    for n_swaps in (0, 6):
        result = search_partition(
            problem, 12, np.random.RandomState(0), n_swaps=n_swaps, max_iter=max_iter
        )
        assert result.stable == (max_iter is None)
        values.append(result.value)
    assert values[1] > values[0]


def test_the_number_of_threads_does_not_matter_on_a_large_table():
    scores = normal_table(4, 9_000, M3)
    one, two = (
        DExchangeQuantizer(5, n_init=3, n_swaps=2, n_jobs=n_jobs, random_state=0).fit(
            scores
        )
        for n_jobs in (None, 2)
    )
    np.testing.assert_array_equal(one.labels_, two.labels_)
    assert one.n_iter_ == two.n_iter_ and one.n_moves_ == two.n_moves_


def test_a_continuation_is_followed_on_the_whole_table():
    problem = problem_of(5_000, EOptimality())
    result = search_partition(problem, 5, np.random.RandomState(0), n_init=2, n_swaps=1)
    assert result.value == pytest.approx(
        slow_value(problem, result.labels, 5), abs=1e-10
    )


def test_a_given_labeling_is_never_made_worse():
    problem = problem_of(9_000)
    good = search_partition(problem, 5, np.random.RandomState(0), n_init=4, n_swaps=4)
    again = search_partition(
        problem, 5, np.random.RandomState(1), init=good.labels, n_swaps=2
    )
    assert again.value >= good.value - 1e-12


def test_swaps_end_when_they_lead_nowhere_else():
    problem = problem_of(200)
    best = exchange(problem, voronoi_labels(problem, 3), 3)

    def attempts(n_swaps, climb):
        random_state = np.random.RandomState(0)
        return len(_swap(problem, [best], 3, n_swaps, random_state, climb))

    found = [attempts(n, lambda *_, **__: best) for n in (2, 20, 100)]
    assert found == [4, 5, 21]
    # one that is worse does not count
    worse = SimpleNamespace(value=best.value - 1.0, settled_value=best.value - 1.5)
    assert attempts(20, lambda *_, **__: worse) == 40


def test_swaps_are_followed_only_where_exchanges_gained_twice_as_much():
    """Others keep the labels to which they settled."""
    problem = problem_of(5_000)
    starts = [
        exchange(problem, voronoi_labels(problem, 8, seed), 8, settle=True)
        for seed in range(3)
    ]
    starts.sort(key=lambda each: -each.value)

    def climb(there, labels, **ends):
        return exchange(there, labels, 8, settle=True, **ends)

    found = _swap(problem, starts, 8, 20, np.random.RandomState(0), climb)
    left = 0
    for number, each in enumerate(found):
        before = [*starts, *found[:number]]
        best = max(each.value for each in before)
        gain = max(each.value - each.settled_value for each in before)
        assert (each.n_iter == 0) == (each.settled_value < best - 0.5 * gain)
        left += each.n_iter == 0
    assert 3 < left < len(found) - 3


@pytest.mark.parametrize("seed", range(4))
def test_cells_at_the_limit_are_not_reported_as_light(seed, recwarn):
    """Sums of weights over many decades round differently in another order."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(30_000, 3))
    weights = np.exp(6.0 * rng.normal(size=30_000))
    DExchangeQuantizer(6, min_bin_weight=0.05, random_state=seed).fit(
        scores, sample_weight=weights
    )
    assert not [each for each in recwarn if "not reached" in str(each.message)]


@pytest.mark.parametrize("n", [8_000, 20_000])
def test_cells_of_equal_weight_are_still_good(n):
    """Rounding bars no row of the repair that makes them equal."""
    scores = np.random.default_rng(n).normal(size=(n, 2))
    quantizer = DExchangeQuantizer(5, min_bin_weight=0.2, random_state=0)
    with pytest.warns(RuleExtensionWarning):
        quantizer.fit(scores)
    np.testing.assert_array_equal(quantizer.cell_weights_, n / 5)
    free = DExchangeQuantizer(5, random_state=0).fit(scores).retention_
    assert quantizer.retention_ > 0.95 * free
