"""The soft solvers and their estimator: gradients, annealing, randomized rules."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from reference import (
    B,
    L,
    instance,
    load,
    normal_table,
    partition,
    slow_binned,
    slow_fractional,
    slow_information,
)
from scipy.special import softmax
from scipy.stats import chi2
from sklearn.exceptions import ConvergenceWarning
from skquant._kernels.soft import scratch_size, softmax_pass

from skquant import (
    AOptimality,
    DExchangeQuantizer,
    DOptimality,
    NormalizedTrace,
    PowerMean,
    ProfiledDOptimality,
    SoftVoronoiQuantizer,
)
from skquant.exceptions import RuleExtensionWarning
from skquant.responsibilities import RELAXATIONS
from skquant.solvers import _soft, _soft_search
from skquant.solvers._assignment import fill_empty_cells
from skquant.solvers._problem import build_problem
from skquant.solvers._seeding import random_start
from skquant.solvers._soft import (
    FAMILIES,
    SoftObjective,
    hard_information,
    nearest_center_distance,
)
from skquant.solvers._soft_search import center_rule

pytestmark = pytest.mark.usefixtures("one_thread")

SMOOTH = [
    NormalizedTrace(),
    DOptimality(),
    AOptimality(),
    PowerMean(-4),
    ProfiledDOptimality((0,), 0.1),
]
every_family = pytest.mark.parametrize("family", sorted(FAMILIES))
every_relaxation = pytest.mark.parametrize("relaxation", sorted(RELAXATIONS))
every_solver = pytest.mark.parametrize("solver", ["adam", "lbfgs"])
HISTORY = [
    "steps",
    "objective",
    "soft_retention",
    "hard_retention",
    "temperature",
    "gradient_norm",
]


def soft(n_bins=4, **options):
    return SoftVoronoiQuantizer(n_bins, **{"random_state": 0, **options})


def short(n_bins=4, **options):
    """With less search than by default."""
    return soft(n_bins, **{"n_init": 1, "max_iter": 12, "record_every": 4, **options})


# --- the compiled passes -------------------------------------------------------------


def kernel_table(n, r, n_bins, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n, r)) + shift,
        rng.exponential(size=n),
        rng.normal(size=(n_bins, r)),
        rng.normal(size=n_bins),
    )


def slow_shares(points, slopes, offsets, temperature):
    """Softmax rows, one at a time."""
    shares = []
    for point in points:
        logits = slopes @ point + offsets
        with np.errstate(over="ignore", under="ignore"):
            powers = np.exp((logits - logits.max()) / temperature / temperature)
        shares.append(powers / powers.sum())
    return np.array(shares)


SIZES = [(1, 1, 1), (7, 1, 3), (50, 2, 4), (50, 3, 1), (200, 8, 64)]


def kernel_sums(points, weights, slopes, offsets, temperature, ascent, level):
    n_bins, r = slopes.shape
    sums = np.full((n_bins, 1 + r), 3.0)
    scratch = np.full(scratch_size(r, n_bins), np.nan)
    cells = np.full(2 * n_bins, -1, dtype=np.int32)
    arrays = points, weights, slopes, offsets
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    softmax_pass(*arrays, temperature, ascent, level, sums, scratch, cells)
    assert [array.tobytes() for array in arrays] == before
    return sums


def with_ones(points):
    return np.column_stack([np.ones(len(points)), points])


@pytest.mark.parametrize("n, r, n_bins", SIZES)
@pytest.mark.parametrize("temperature", [0.05, 1.0, 30.0])
def test_compiled_moments_agree_with_loops(n, r, n_bins, temperature):
    points, weights, slopes, offsets = kernel_table(n, r, n_bins)
    shares = slow_shares(points, slopes, offsets, temperature) * weights[:, None]
    sums = kernel_sums(points, weights, slopes, offsets, temperature, None, None)
    np.testing.assert_allclose(sums, shares.T @ with_ones(points), atol=1e-12)


@pytest.mark.parametrize("n, r, n_bins", SIZES)
@pytest.mark.parametrize("temperature", [0.05, 1.0, 30.0])
def test_compiled_gradient_agrees_with_loops(n, r, n_bins, temperature):
    points, weights, slopes, offsets = kernel_table(n, r, n_bins)
    rng = np.random.default_rng(1)
    ascent, level = rng.normal(size=(n_bins, r)), rng.normal(size=n_bins)
    shares = slow_shares(points, slopes, offsets, temperature)
    expected = np.zeros((n, n_bins))
    for i, (point, share) in enumerate(zip(points, shares, strict=True)):
        jacobian = np.diag(share) - np.outer(share, share)
        expected[i] = weights[i] * jacobian @ (ascent @ point + level)
    sums = kernel_sums(points, weights, slopes, offsets, temperature, ascent, level)
    np.testing.assert_allclose(sums, expected.T @ with_ones(points), atol=1e-12)


@pytest.mark.parametrize("logit", [0.0, -1e-300, -0.3, -20.0, -99.9])
def test_compiled_exponential(logit):
    # two cells, one point at 0: the share of the second is 1 / (1 + exp(-logit))
    table = np.zeros((1, 1)), np.ones(1), np.zeros((2, 1)), np.array([0.0, logit])
    share = kernel_sums(*table, 1.0, None, None)[1, 0]
    np.testing.assert_allclose(share, np.exp(logit - np.log1p(np.exp(logit))), 1e-13)


@pytest.mark.parametrize("temperature", [1e-8, 1e-100, 1e-200, 1e-320])
def test_compiled_passes_at_a_vanishing_temperature(temperature):
    points, weights, slopes, offsets = kernel_table(60, 2, 4)
    hard = np.eye(4)[np.argmax(points @ slopes.T + offsets, axis=1)] * weights[:, None]
    arrays = points, weights, slopes, offsets, temperature
    sums = kernel_sums(*arrays, None, None)
    np.testing.assert_allclose(sums, hard.T @ with_ones(points), rtol=1e-12)
    gradients = kernel_sums(*arrays, np.ones((4, 2)), np.arange(4.0))
    np.testing.assert_array_equal(gradients, 0.0)


# --- value and gradient --------------------------------------------------------------


def small_problem(criterion, seed=0, n=60, matrix=B, shift=0.4):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, len(matrix))) @ matrix + shift
    weights = rng.exponential(size=n)
    problem, _ = build_problem(
        scores, weights, criterion, 1e-10, np.random.RandomState(seed)
    )
    return problem


def random_parameters(family, problem, n_bins, unit, seed=0):
    """Centers far enough apart for every criterion to be finite."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_bins, problem.points.shape[1]))
    offsets = -0.5 * np.sum(centers**2, axis=1)
    if family == "affine_max":
        offsets += 0.3 * rng.normal(size=n_bins)
    return FAMILIES[family].pack(centers, offsets, unit)


def slow_objective(problem, family, relaxation, parameters, unit, temperature):
    """The criterion of the information of a randomized rule, from its definition."""
    if family == "voronoi":
        centers = parameters * unit
        logits = -0.5 * np.sum((problem.points[:, None] - centers) ** 2, axis=2)
    else:
        logits = problem.points @ (parameters[:, :-1] * unit).T
        logits = logits + parameters[:, -1] * unit**2
    shares = RELAXATIONS[relaxation].forward(logits / temperature**2)
    information = slow_fractional(
        problem.points + problem.origin, shares, problem.weights
    )
    return problem.value(information), information


@every_relaxation
@every_family
@pytest.mark.parametrize("criterion", SMOOTH, ids=repr)
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_gradient_agrees_with_finite_differences(
    criterion, family, relaxation, temperature
):
    problem = small_problem(criterion)
    unit = 0.8
    objective = SoftObjective(problem, FAMILIES[family], RELAXATIONS[relaxation], unit)
    for seed in range(3):
        parameters = random_parameters(family, problem, 5, unit, seed)
        plan = family, relaxation
        value, gradient, information = objective.value_and_gradient(
            parameters, temperature, criterion
        )
        expected, matrix = slow_objective(problem, *plan, parameters, unit, temperature)
        assert value == pytest.approx(expected, rel=1e-10)
        np.testing.assert_allclose(information, matrix, atol=1e-12)
        direction = np.random.default_rng(seed + 10).normal(size=parameters.shape)
        # rows on a kink of sparsemax between the two points would show here
        step = 1e-5
        ends = [
            slow_objective(
                problem, *plan, parameters + sign * step * direction, unit, temperature
            )[0]
            for sign in (1, -1)
        ]
        numerical = (ends[0] - ends[1]) / (2 * step)
        found = np.sum(gradient * direction)
        assert abs(numerical) > 1e-3
        assert found == pytest.approx(numerical, rel=1e-6)


@every_family
@every_relaxation
def test_gradient_of_every_parameter(family, relaxation):
    criterion = DOptimality()
    problem = small_problem(criterion, n=40, matrix=L)
    unit = 1.3
    objective = SoftObjective(problem, FAMILIES[family], RELAXATIONS[relaxation], unit)
    parameters = random_parameters(family, problem, 3, unit)
    _, gradient, _ = objective.value_and_gradient(parameters, 0.9, criterion)
    expected = np.zeros_like(parameters)
    for index in np.ndindex(parameters.shape):
        for sign in (1, -1):
            moved = parameters.copy()
            moved[index] += sign * 1e-5
            value = objective.value_and_gradient(moved, 0.9, criterion)[0]
            expected[index] += sign * value / 2e-5
    size = np.abs(expected).max()
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-6 * size)


@every_family
def test_compiled_and_plain_softmax_agree(family):
    class Plain:
        """Softmax that the compiled passes do not know."""

        forward = staticmethod(RELAXATIONS["softmax"].forward)
        vjp = staticmethod(RELAXATIONS["softmax"].vjp)

    problem = small_problem(AOptimality(), n=5000)
    parameters = random_parameters(family, problem, 5, 1.0)
    results = [
        SoftObjective(problem, FAMILIES[family], each, 1.0).value_and_gradient(
            parameters, 0.7, AOptimality()
        )
        for each in (RELAXATIONS["softmax"], Plain())
    ]
    for compiled, plain in zip(*results, strict=True):
        np.testing.assert_allclose(compiled, plain, rtol=1e-10)


@every_relaxation
@every_family
def test_objective_at_temperature_zero_is_that_of_the_labels(family, relaxation):
    problem = small_problem(DOptimality())
    objective = SoftObjective(problem, FAMILIES[family], RELAXATIONS[relaxation], 1.0)
    parameters = random_parameters(family, problem, 5, 1.0)
    hard = hard_information(problem, *FAMILIES[family].logits(parameters, 1.0))
    for temperature in (1e-6, 1e-100, 1e-200):
        value, gradient, information = objective.value_and_gradient(
            parameters, temperature, DOptimality()
        )
        np.testing.assert_allclose(information, hard, rtol=0, atol=1e-14)
        assert value == pytest.approx(problem.value(hard), rel=1e-12)
        np.testing.assert_array_equal(gradient, 0.0)


@every_family
@pytest.mark.parametrize("criterion", [DOptimality(), AOptimality()], ids=repr)
def test_gradient_is_zero_where_the_information_is_singular(family, criterion):
    problem = small_problem(criterion)
    objective = SoftObjective(problem, FAMILIES[family], RELAXATIONS["softmax"], 1.0)
    parameters = random_parameters(family, problem, 2, 1.0)
    value, gradient, _ = objective.value_and_gradient(parameters, 1.0, criterion)
    assert value == -np.inf
    np.testing.assert_array_equal(gradient, 0.0)


def test_unit_of_the_parameters_does_not_matter():
    problem = small_problem(DOptimality())
    for family in FAMILIES.values():
        for unit in (0.01, 50.0):
            slopes = np.random.default_rng(0).normal(size=(4, 3))
            offsets = -0.5 * np.sum(slopes**2, axis=1)
            packed = family.pack(slopes, offsets, unit)
            for back, given in zip(
                family.logits(packed, unit), (slopes, offsets), strict=True
            ):
                np.testing.assert_allclose(back, given, rtol=1e-13)
            objective = SoftObjective(problem, family, RELAXATIONS["softmax"], unit)
            plain = SoftObjective(problem, family, RELAXATIONS["softmax"], 1.0)
            value, gradient, _ = objective.value_and_gradient(
                packed, 0.9, DOptimality()
            )
            expected = plain.value_and_gradient(
                family.pack(slopes, offsets, 1.0), 0.9, DOptimality()
            )
            assert value == pytest.approx(expected[0], rel=1e-12)
            powers = np.full(packed.shape, unit)
            if packed.shape[1] > 3:
                powers[:, -1] = unit**2
            np.testing.assert_allclose(gradient, powers * expected[1], rtol=1e-9)


def test_nearest_center_distance():
    centers = np.array([[0.0, 0], [3, 4], [3, 5], [10, 4]])
    assert nearest_center_distance(centers) == pytest.approx(3.0)
    assert nearest_center_distance(np.ones((1, 2))) == 1.0
    assert nearest_center_distance(np.ones((3, 2))) == 1.0
    # coincident centers have no say
    twice = np.vstack([centers, centers[:1]])
    assert nearest_center_distance(twice) == pytest.approx(1.0)


# --- never below the start -----------------------------------------------------------


def random_table(seed):
    """A small table with heavy tails or weights, and a number of cells."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 30)), int(rng.integers(2, 4))
    draw = rng.normal if seed % 2 else lambda size: rng.standard_t(2, size=size)
    scores = draw(size=(n, d)) + rng.normal(size=d)
    weights = rng.exponential(size=n) if seed % 3 else np.ones(n)
    return scores, weights, int(rng.integers(d + 1, 7))


@pytest.fixture
def poor_partition(monkeypatch):
    """Cells of random rows in place of the exchange: quick, with room for a loss."""

    def search(problem, n_bins, random_state, **options):
        labels = random_start(problem, n_bins, random_state)
        return SimpleNamespace(labels=fill_empty_cells(problem, labels, n_bins))

    monkeypatch.setattr(_soft_search, "search_partition", search)


def criterion_value(quantizer, scores, labels, weights):
    """What the solver maximizes, of labels."""
    full = slow_information(scores, weights)
    information = slow_binned(scores, labels, weights, quantizer.n_bins_)
    return quantizer.criterion_.value(information, full)


@every_solver
@pytest.mark.parametrize(
    "criterion", ["trace", "D", "A", "E", ProfiledDOptimality((0,), 0.1)], ids=str
)
@pytest.mark.filterwarnings(
    "ignore:the smallest retained:skquant.exceptions.DegenerateInformationWarning"
)
def test_the_hard_rule_is_never_below_its_start(criterion, solver, poor_partition):
    gained = 0
    for seed in range(50):
        scores, weights, n_bins = random_table(seed)
        quantizer = short(
            n_bins,
            criterion=criterion,
            solver=solver,
            max_iter=4,
            family=["voronoi", "affine_max"][seed % 4 == 0],
            relaxation=["softmax", "sparsemax"][seed % 3 == 0],
        ).fit(scores, sample_weight=weights)
        first = quantizer.history_.hard_retention[0]
        if not hasattr(criterion, "nuisance_weight"):
            # the compound criterion is not the efficiency that it reports
            assert quantizer.retention_ >= first - 1e-12
        start, end = (
            criterion_value(quantizer, scores, labels, weights)
            for labels in (
                next(quantizer.staged_predict(scores)),
                quantizer.predict(scores),
            )
        )
        assert end >= start - 1e-9 * abs(start)
        gained += quantizer.retention_ > first + 1e-6
    # the start is poor
    assert gained >= 5


@every_solver
@pytest.mark.parametrize("criterion", ["trace", "D", "A", "E"])
def test_affine_max_is_never_below_voronoi(criterion, solver, poor_partition):
    plan = dict(criterion=criterion, solver=solver, max_iter=5)
    for seed in range(6):
        scores, weights, n_bins = random_table(seed)
        voronoi, affine = (
            short(n_bins, family=family, **plan).fit(scores, sample_weight=weights)
            for family in ("voronoi", "affine_max")
        )
        assert affine.retention_ >= voronoi.retention_ - 1e-12


def test_affine_max_is_never_below_the_exchange():
    for seed in range(3):
        scores = np.random.default_rng(seed).standard_t(3, size=(100, 3))
        affine = short(6, family="affine_max", n_init=2).fit(scores)
        exchange = DExchangeQuantizer(6, random_state=0).fit(scores)
        assert affine.retention_ >= exchange.retention_ - 1e-9


# --- reference values ----------------------------------------------------------------

UP_TO_3000 = sorted(
    name
    for name, record in load("reference_instances")["instances"].items()
    if record["n"] <= 3000
)


@pytest.mark.parametrize("name", UP_TO_3000)
@pytest.mark.parametrize("family, share", [("voronoi", 0.995), ("affine_max", 0.999)])
def test_reference_instances(name, family, share):
    scores, weights, record = instance(name)
    peer = record["best_of_peer"]["D"]["value"]
    quantizer = soft(record["n_bins"], family=family)
    quantizer.fit(scores, sample_weight=weights)
    assert quantizer.retention_ >= share * peer


def test_seed_hardening_gaps():
    scores = normal_table(120, 1200, L)
    fits = [
        soft(4, solver="adam", n_init=2, temperature_end_ratio=ratio).fit(scores)
        for ratio in (0.5, 0.2, 0.05, 0.01)
    ]
    gaps = np.array([fit.hardening_gap_ for fit in fits])
    assert -0.04 <= gaps[0] <= -0.01
    assert (np.diff(np.abs(gaps)) < 0).all()
    assert abs(gaps[-1]) < 1e-6
    for fit, ratio in zip(fits, (0.5, 0.2, 0.05, 0.01), strict=True):
        history = fit.history_
        np.testing.assert_array_equal(history.steps, np.arange(0, 301, 25))
        falls = history.temperature / history.temperature[0]
        np.testing.assert_allclose(falls, ratio ** (history.steps / 300), rtol=1e-12)
    history = fits[2].history_
    # diffuse at first, while the hard rule hardly moves
    assert abs(history.soft_retention[0] - 0.08) < 0.01
    assert history.soft_retention[-1] > 0.6488
    assert np.ptp(history.hard_retention) < 0.01
    assert fits[2].retention_ >= 0.64885


def test_seed_retention():
    scores = normal_table(120, 1200, L)
    for family in FAMILIES:
        assert soft(4, family=family).fit(scores).retention_ >= 0.64885


@pytest.mark.parametrize(
    "n_bins, kept, in_exchange", [(4, 0.80, 0.79), (8, 0.92, 0.92)]
)
def test_profiled_retention_of_fresh_rows(n_bins, kept, in_exchange):
    scores, fresh = normal_table(121, 900, B), normal_table(122, 20_000, B)
    criterion = ProfiledDOptimality(interest=0)
    affine = soft(n_bins, family="affine_max", criterion=criterion).fit(scores)
    assert affine.score(fresh) >= kept
    assert affine.nuisance_retention_ > 5 * n_bins / 900
    exchange = DExchangeQuantizer(n_bins, criterion=criterion, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exchange.fit(scores)
    assert exchange.score(fresh) >= in_exchange
    assert exchange.rule_agreement_ >= 0.98
    # a warning if and only if the rule misses labels
    said = [warning.category for warning in caught]
    assert said == [RuleExtensionWarning] * (exchange.rule_agreement_ < 1)


def test_the_smallest_eigenvalue_of_fresh_labels():
    scores = np.random.default_rng(0).normal(size=(600, 2))
    exchange = DExchangeQuantizer(6, criterion="E", random_state=0)
    with pytest.warns(RuleExtensionWarning, match="the rule places"):
        exchange.fit(scores)
    share = np.mean(exchange.predict(scores) == exchange.labels_)
    assert exchange.rule_agreement_ == pytest.approx(share, abs=1e-12)
    assert 0.95 < share < 1
    assert abs(exchange.score(scores) - exchange.retention_) < 0.02
    affine = soft(6, criterion="E", family="affine_max").fit(scores)
    # a rule gives up little of what free labels keep
    assert affine.retention_ >= 0.985 * exchange.retention_
    assert affine.score(scores) == pytest.approx(affine.retention_, rel=1e-12)


# --- invariances ---------------------------------------------------------------------


def assert_same_fit(one, two):
    """Equal bit for bit."""
    assert one.rule_ == two.rule_
    assert one.temperature_ == two.temperature_
    assert one.soft_retention_ == two.soft_retention_
    np.testing.assert_array_equal(one.cell_means_, two.cell_means_)
    for name in HISTORY:
        np.testing.assert_array_equal(one.history_[name], two.history_[name])
    if one.family == "voronoi":
        np.testing.assert_array_equal(one.centers_, two.centers_)


PLANS = [
    {"solver": "adam"},
    {"solver": "lbfgs"},
    {"solver": "adam", "relaxation": "sparsemax", "family": "affine_max"},
    {"solver": "lbfgs", "relaxation": "sparsemax", "criterion": "E"},
    {"solver": "lbfgs", "family": "affine_max", "criterion": "A"},
]
every_plan = pytest.mark.parametrize("plan", PLANS, ids=lambda p: "-".join(p.values()))


@every_plan
def test_the_seed_decides(plan):
    scores = normal_table(1, 80, B)
    one = short(5, n_init=2, **plan).fit(scores)
    two = short(5, n_init=2, **plan).fit(scores)
    assert_same_fit(one, two)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    three = short(5, n_init=2, **plan, random_state=np.random.RandomState(0))
    assert_same_fit(one, three.fit(scores))
    other = short(5, n_init=2, random_state=1, **plan).fit(scores)
    assert other.rule_ != one.rule_


@every_plan
def test_the_number_of_jobs_does_not_matter(plan):
    scores = normal_table(2, 80, B)
    one = short(5, n_init=2, n_jobs=1, **plan).fit(scores)
    two = short(5, n_init=2, n_jobs=2, **plan).fit(scores)
    assert_same_fit(one, two)
    np.testing.assert_array_equal(one.labels_, two.labels_)


@every_plan
def test_weights_are_repetition_in_any_order(plan):
    rng = np.random.default_rng(3)
    scores = normal_table(3, 150, B)
    weights = rng.integers(0, 4, size=150)
    order = rng.permutation(weights.sum())
    repeated = np.repeat(scores, weights, axis=0)[order]
    one = short(5, n_init=2, **plan).fit(scores, sample_weight=weights)
    two = short(5, n_init=2, **plan).fit(repeated)
    assert_same_fit(one, two)
    np.testing.assert_array_equal(np.repeat(one.labels_, weights)[order], two.labels_)
    np.testing.assert_array_equal(one.labels_, one.predict(scores))


@every_family
def test_a_linear_change_of_parameters_does_not_matter(family):
    # the first column keeps the order of the rows, hence the draws of the starts
    change = np.array([[1.0, -3.0], [0.0, 1.5]])
    for seed in range(2):
        scores = normal_table(seed, 200, L)
        one = soft(4, family=family).fit(scores)
        two = soft(4, family=family).fit(scores @ change)
        assert partition(one.labels_) == partition(two.labels_)
        assert two.retention_ == pytest.approx(one.retention_, rel=1e-9)


def test_a_linear_change_that_reorders_the_rows():
    # other starts, and the same end
    change = np.array([[2.0, -1.0], [0.7, 1.5]])
    for seed in range(2):
        scores = normal_table(seed, 200, L)
        one = soft(4, family="affine_max").fit(scores)
        two = soft(4, family="affine_max").fit(scores @ change)
        assert partition(one.labels_) == partition(two.labels_)
        assert two.retention_ == pytest.approx(one.retention_, rel=1e-9)


@every_relaxation
@every_family
def test_adam_is_blind_to_rotations(family, relaxation):
    change = np.array([[1.0, -3.0], [0.0, 1.5]])
    scores = normal_table(4, 300, L)
    plan = dict(family=family, relaxation=relaxation, solver="adam", max_iter=20)
    one = short(4, **plan).fit(scores)
    two = short(4, **plan).fit(scores @ change)
    assert partition(one.labels_) == partition(two.labels_)
    for name in ("soft_retention", "hard_retention", "temperature"):
        np.testing.assert_allclose(one.history_[name], two.history_[name], rtol=1e-9)


def test_float32_scores():
    scores = normal_table(5, 200, B).astype(np.float32)
    for family in FAMILIES:
        one = short(5, family=family).fit(scores)
        two = short(5, family=family).fit(scores.astype(np.float64))
        assert one.retention_ == pytest.approx(two.retention_, rel=1e-12)
        assert one.labels_.dtype == np.int32
        np.testing.assert_array_equal(one.labels_, two.labels_)
        np.testing.assert_array_equal(one.predict(scores), one.labels_)
        assert one.transform(scores).dtype == np.float32
        np.testing.assert_array_equal(
            one.predict_proba(scores), one.predict_proba(scores.astype(np.float64))
        )


# --- the randomized rule -------------------------------------------------------------


@every_relaxation
@every_family
def test_the_randomized_rule_has_the_information_reported(family, relaxation):
    scores = normal_table(6, 300, L) + 0.3
    weights = np.random.default_rng(6).exponential(size=300)
    quantizer = short(
        4,
        family=family,
        relaxation=relaxation,
        temperature_start_ratio=0.7,
        temperature_end_ratio=0.9,
    ).fit(scores, sample_weight=weights)
    shares = quantizer.predict_proba(scores)
    assert 0.1 < np.mean(shares.max(axis=1) < 0.99)
    chosen = np.flatnonzero(quantizer.history_.temperature == quantizer.temperature_)
    information = slow_fractional(scores, shares, weights)
    full = slow_information(scores, weights)
    kept = np.linalg.det(np.linalg.solve(full, information)) ** 0.5
    reported = quantizer.history_.soft_retention[chosen]
    assert np.abs(reported - kept).min() < 1e-9


@every_relaxation
@every_family
@every_solver
def test_the_likeliest_cell_is_the_label(solver, family, relaxation):
    scores = normal_table(7, 300, L)
    for start, end in [(3.0, 1.0), (0.3, 0.05)]:
        quantizer = short(
            5,
            solver=solver,
            family=family,
            relaxation=relaxation,
            temperature_start_ratio=start,
            temperature_end_ratio=end,
        ).fit(scores)
        fresh = np.vstack([scores, 3 * normal_table(8, 300, L)])
        shares = quantizer.predict_proba(fresh)
        assert (shares >= 0).all() and np.abs(shares.sum(axis=1) - 1).max() < 1e-12
        np.testing.assert_array_equal(
            np.argmax(shares, axis=1), quantizer.predict(fresh)
        )


@every_relaxation
def test_law_of_the_draws(relaxation):
    scores = normal_table(9, 300, L)
    quantizer = short(
        4, relaxation=relaxation, temperature_start_ratio=0.7, temperature_end_ratio=1.0
    ).fit(scores)
    shares = quantizer.predict_proba(scores)
    uncertain = np.argsort(shares.max(axis=1))[[0, 10, 40]]
    n_draws = 20_000
    for row in uncertain:
        assert np.sum(shares[row] > 1e-3) > 1
        table = np.repeat(scores[[row]], n_draws, axis=0)
        draws = quantizer.sample_labels(table, random_state=0)
        assert draws.dtype == np.int32
        counts = np.bincount(draws, minlength=4)
        expected = n_draws * shares[row]
        # cells too rare for the law of chi-squared are one
        rare = expected < 10
        assert counts[rare].sum() <= expected[rare].sum() + 30
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        statistic = np.sum((counts - expected) ** 2 / np.maximum(expected, 1.0))
        assert statistic < chi2.ppf(1 - 1e-4, df=len(counts) - 1)


def test_draws_differ_by_row_and_by_seed():
    scores = normal_table(9, 300, L)
    quantizer = short(4, temperature_start_ratio=1.0, temperature_end_ratio=1.0)
    quantizer.fit(scores)
    one = quantizer.sample_labels(scores, random_state=0)
    np.testing.assert_array_equal(one, quantizer.sample_labels(scores, random_state=0))
    two = quantizer.sample_labels(scores, random_state=1)
    assert 0.05 < np.mean(one != two) < 0.95
    # independent rows: agreement with the label is that of the responsibilities
    draws = np.array([quantizer.sample_labels(scores, seed) for seed in range(200)])
    agreement = np.mean(draws == quantizer.predict(scores), axis=0)
    expected = quantizer.predict_proba(scores).max(axis=1)
    spread = np.sqrt(expected * (1 - expected) / 200 + 1e-4)
    assert np.abs((agreement - expected) / spread).max() < 4.5


# --- the hard limit ------------------------------------------------------------------


@every_relaxation
@every_solver
@pytest.mark.parametrize("ratio", [1e-12, 1e-30, 1e-200])
def test_vanishing_temperatures(ratio, solver, relaxation):
    scores = np.random.default_rng(0).normal(size=(300, 2))
    quantizer = soft(
        4,
        solver=solver,
        relaxation=relaxation,
        n_init=1,
        max_iter=40,
        temperature_end_ratio=ratio,
    ).fit(scores)
    history = quantizer.history_
    assert all(np.isfinite(history[name]).all() for name in HISTORY)
    end = history.temperature[-1] / history.temperature[0]
    assert end == pytest.approx(ratio, rel=1e-6)
    assert quantizer.hardening_gap_ == pytest.approx(0, abs=1e-12)
    far = 1e6 * scores
    for table in (scores, far):
        shares = quantizer.predict_proba(table)
        assert np.isfinite(shares).all() and (shares >= 0).all()
        assert np.abs(shares.sum(axis=1) - 1).max() < 1e-12
        np.testing.assert_array_equal(
            np.argmax(shares, axis=1), quantizer.predict(table)
        )
    if solver == "lbfgs":
        # the last temperature is that of the rule
        assert quantizer.temperature_ == history.temperature[-1]
        np.testing.assert_array_equal(
            quantizer.predict_proba(far), np.eye(4)[quantizer.predict(far)]
        )
        np.testing.assert_array_equal(
            quantizer.predict_proba(scores), np.eye(4)[quantizer.predict(scores)]
        )
        np.testing.assert_array_equal(
            quantizer.sample_labels(scores, random_state=0), quantizer.predict(scores)
        )


@every_solver
@every_family
@pytest.mark.parametrize("criterion", ["A", "E", "trace", ProfiledDOptimality(0, 0.1)])
def test_vanishing_temperatures_of_other_criteria(criterion, family, solver):
    scores = np.random.default_rng(0).normal(size=(100, 2))
    quantizer = short(
        4,
        criterion=criterion,
        solver=solver,
        family=family,
        temperature_end_ratio=1e-200,
        max_iter=6,
    ).fit(scores)
    assert quantizer.hardening_gap_ == pytest.approx(0, abs=1e-12)
    history = quantizer.history_
    assert all(np.isfinite(history[name]).all() for name in HISTORY)
    far = 1e6 * scores
    shares = quantizer.predict_proba(far)
    assert np.abs(shares.sum(axis=1) - 1).max() < 1e-12
    np.testing.assert_array_equal(np.argmax(shares, axis=1), quantizer.predict(far))
    if solver == "lbfgs":
        np.testing.assert_array_equal(shares, np.eye(4)[quantizer.predict(far)])


# --- the history ---------------------------------------------------------------------


@every_solver
@every_family
@every_relaxation
def test_history(solver, family, relaxation):
    scores = normal_table(10, 300, L)
    weights = np.random.default_rng(10).exponential(size=300)
    fresh = normal_table(11, 300, L)
    quantizer = short(
        4, solver=solver, family=family, relaxation=relaxation, max_iter=40
    ).fit(scores, sample_weight=weights)
    history = quantizer.history_
    assert set(history) == set(HISTORY)
    n_records = len(history.steps)
    assert n_records > 2
    assert all(history[name].shape == (n_records,) for name in HISTORY)
    assert history.steps[0] == 0 and max(1, history.steps[-1]) == quantizer.n_iter_
    assert (np.diff(history.steps) >= 0).all()
    assert (np.diff(history.temperature) <= 0).all()
    assert quantizer.temperature_ in history.temperature
    assert quantizer.soft_retention_ == history.soft_retention[-1]
    gap = history.soft_retention[-1] - history.hard_retention[-1]
    assert quantizer.hardening_gap_ == pytest.approx(gap, abs=1e-15)
    # the value of D is the log determinant
    np.testing.assert_allclose(
        np.exp(history.objective / 2), history.soft_retention, rtol=1e-9
    )
    staged = list(quantizer.staged_score(scores, sample_weight=weights))
    np.testing.assert_allclose(staged, history.hard_retention, rtol=1e-9)
    assert quantizer.retention_ == pytest.approx(max(staged), rel=1e-12)
    labels = list(quantizer.staged_predict(fresh))
    assert len(labels) == len(list(quantizer.staged_score(fresh))) == n_records
    for each, score in zip(labels, quantizer.staged_score(fresh), strict=True):
        assert each.dtype == np.int32 and each.shape == (300,)
        information = slow_binned(fresh, each, np.ones(300), 4)
        full = slow_information(fresh, np.ones(300))
        kept = np.linalg.det(np.linalg.solve(full, information)) ** 0.5
        assert score == pytest.approx(kept, rel=1e-9)
    best = np.flatnonzero(np.array(staged) >= max(staged) * (1 - 1e-12))
    assert any(np.array_equal(labels[b], quantizer.predict(fresh)) for b in best)
    if n_records - 1 in best or solver == "lbfgs":
        np.testing.assert_array_equal(labels[-1], quantizer.predict(fresh))
        assert quantizer.temperature_ == history.temperature[-1]


def test_history_of_a_subsampled_search_is_of_the_whole_table():
    scores = normal_table(12, 7000, L)
    quantizer = short(3, n_init=1, max_iter=8).fit(scores)
    staged = list(quantizer.staged_score(scores))
    np.testing.assert_allclose(staged, quantizer.history_.hard_retention, rtol=1e-9)
    assert quantizer.retention_ >= quantizer.history_.hard_retention[0]
    assert quantizer.retention_ == pytest.approx(quantizer.score(scores), rel=1e-12)


def test_adam_records_at_its_interval():
    quantizer = short(4, solver="adam", max_iter=10, record_every=4)
    quantizer.fit(normal_table(13, 60, L))
    assert quantizer.history_.steps.tolist() == [0, 4, 8, 10]


# --- one cell ------------------------------------------------------------------------


@every_solver
@every_family
@every_relaxation
def test_one_cell(solver, family, relaxation):
    scores = np.random.default_rng(17).normal(size=(200, 1))
    for weights in (np.ones(200), np.random.default_rng(17).exponential(size=200)):
        quantizer = short(1, solver=solver, family=family, relaxation=relaxation)
        quantizer.fit(scores, sample_weight=weights)
        total = weights @ scores[:, 0]
        kept = total**2 / (weights.sum() * (weights @ scores[:, 0] ** 2))
        assert quantizer.retention_ == pytest.approx(kept, rel=1e-9)
        assert quantizer.soft_retention_ == pytest.approx(kept, rel=1e-9)
        assert quantizer.hardening_gap_ == pytest.approx(0.0, abs=1e-15)
        np.testing.assert_array_equal(quantizer.predict_proba(scores), 1.0)
        np.testing.assert_array_equal(quantizer.sample_labels(scores), 0)
        assert quantizer.score(scores, sample_weight=weights) == pytest.approx(kept)


# --- least weights -------------------------------------------------------------------


@pytest.mark.parametrize("criterion", [DOptimality(), NormalizedTrace()], ids=repr)
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_gradient_with_prices_against_finite_differences(
    criterion, family, temperature
):
    problem = small_problem(criterion)
    rng = np.random.default_rng(4)
    centers = rng.normal(size=(4, problem.points.shape[1]))
    # one cell far from everything
    centers[3] += 3.0
    objective = SoftObjective(
        problem, FAMILIES[family], RELAXATIONS["softmax"], 1.0, 0.2
    )
    parameters = FAMILIES[family].pack(*center_rule(centers), 1.0)
    value, gradient, _ = objective.value_and_gradient(
        parameters, temperature, criterion
    )
    assert (objective._prices > 0).any()
    slopes, offsets = objective.logits(parameters, temperature)
    shares = softmax((problem.points @ slopes.T + offsets) / temperature**2, axis=1)
    assert (problem.weights @ shares >= 0.2 - 1e-8).all()
    numeric = np.zeros_like(gradient)
    for index in np.ndindex(*parameters.shape):
        step = np.zeros_like(parameters)
        step[index] = 1e-4
        up, down = (
            objective.value_and_gradient(parameters + s * step, temperature, criterion)
            for s in (1, -1)
        )
        numeric[index] = (up[0] - down[0]) / 2e-4
    np.testing.assert_allclose(gradient, numeric, atol=2e-6 * np.abs(numeric).max())


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
@pytest.mark.parametrize("least", [0.05, 0.15, 0.18])
def test_cells_keep_their_least_weight(solver, family, least):
    rng = np.random.default_rng(0)
    # heavy tails: the free optimum has light cells
    scores = rng.standard_t(2, size=(400, 2))
    weights = rng.exponential(size=400)
    free = SoftVoronoiQuantizer(5, random_state=0).fit(scores, sample_weight=weights)
    assert free.cell_weights_.min() / weights.sum() < 0.05
    quantizer = SoftVoronoiQuantizer(
        5,
        solver=solver,
        family=family,
        min_bin_weight=least,
        n_init=2,
        max_iter=60,
        random_state=0,
    ).fit(scores, sample_weight=weights)
    shares = quantizer.cell_weights_ / weights.sum()
    assert shares.min() >= least * (1 - 1e-9)
    np.testing.assert_array_equal(quantizer.predict(scores), quantizer.labels_)
    assert quantizer.retention_ <= free.retention_ + 1e-9
    assert quantizer.retention_ > 0.5 * free.retention_


def test_a_least_weight_that_heavy_rows_forbid_warns():
    scores = np.random.default_rng(0).normal(size=(6, 2))
    weights = np.array([10.0, 1, 1, 1, 1, 1])
    with pytest.warns(ConvergenceWarning, match="min_bin_weight"):
        SoftVoronoiQuantizer(3, min_bin_weight=0.33, random_state=0).fit(
            scores, sample_weight=weights
        )


def test_a_least_weight_that_changes_nothing():
    scores = np.random.default_rng(1).normal(size=(300, 2))
    options = dict(n_bins=3, random_state=0)
    free = SoftVoronoiQuantizer(**options).fit(scores)
    least = 0.5 * free.cell_weights_.min() / 300
    held = SoftVoronoiQuantizer(min_bin_weight=least, **options).fit(scores)
    np.testing.assert_array_equal(free.labels_, held.labels_)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"min_bin_weight": 0.4, "n_bins": 3}, "at most 1"),
        ({"min_bin_weight": 0.1, "relaxation": "sparsemax"}, "softmax"),
        ({"min_bin_weight": -0.1}, "min_bin_weight"),
    ],
)
def test_bad_least_weights(options, match):
    with pytest.raises(ValueError, match=match):
        SoftVoronoiQuantizer(**options).fit(np.eye(20))


# --- large tables --------------------------------------------------------------------


def large_objective(n_jobs=None):
    rng = np.random.default_rng(0)
    problem, _ = build_problem(
        rng.normal(size=(2_500, 2)),
        rng.exponential(size=2_500),
        DOptimality(),
        1e-10,
        np.random.RandomState(0),
    )
    return SoftObjective(
        problem, FAMILIES["voronoi"], RELAXATIONS["softmax"], 1.0, n_jobs=n_jobs
    )


def test_sums_over_parts_do_not_depend_on_threads(monkeypatch):
    centers = np.random.default_rng(1).normal(size=(4, 2))
    whole = large_objective().value_and_gradient(centers, 0.3, DOptimality())
    monkeypatch.setattr(_soft, "_PART_ROWS", 400)
    one, two = (
        large_objective(n_jobs).value_and_gradient(centers, 0.3, DOptimality())
        for n_jobs in (None, 2)
    )
    for each, same, near in zip(one, two, whole, strict=True):
        np.testing.assert_array_equal(each, same)
        np.testing.assert_allclose(each, near, rtol=1e-9, atol=1e-12)


def test_early_stages_see_a_part_and_records_are_of_the_whole(monkeypatch):
    monkeypatch.setattr(_soft, "_EARLY_ATOMS_A_PARAMETER", 50)
    seen = []
    evaluate = SoftObjective.value_and_gradient

    def spy(objective, parameters, temperature, criterion):
        seen.append((len(objective.problem.points), temperature))
        return evaluate(objective, parameters, temperature, criterion)

    monkeypatch.setattr(SoftObjective, "value_and_gradient", spy)
    objective, snapshots = large_objective(), []

    def record(*state):
        snapshots.append(
            objective.snapshot(*state, objective.problem, objective.problem)
        )
        return snapshots[-1]

    start = np.random.default_rng(2).normal(size=(4, 2))
    temperatures = [0.5, 0.2, 0.05]
    _soft.anneal_lbfgs(
        objective,
        start,
        [DOptimality()],
        temperatures,
        record,
        max_iter=20,
        record_every=1_000,
    )
    sizes = {t: {n for n, at in seen if at == t} for t in temperatures}
    assert 400 in sizes[0.5] and 400 in sizes[0.2]
    assert sizes[0.05] == {2_500}
    for each in snapshots:
        direct = evaluate(objective, each.slopes, each.temperature, DOptimality())
        assert each.objective == pytest.approx(direct[0], rel=1e-12)
        hard = hard_information(objective.problem, each.slopes, each.offsets)
        assert each.hard_value == objective.problem.value(hard)
    assert snapshots[-1].hard_value == max(each.hard_value for each in snapshots)
