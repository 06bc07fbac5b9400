"""The soft solvers and their estimator: gradients, annealing, randomized rules."""

import warnings

import numpy as np
import pytest
from reference import (
    B,
    L,
    instance,
    load,
    normal_table,
    partition,
    slow_fractional,
    slow_information,
)
from scipy.stats import chi2
from sklearn.base import clone

from skquant import (
    AOptimality,
    DExchangeQuantizer,
    DOptimality,
    EOptimality,
    NormalizedTrace,
    PowerMean,
    ProfiledDOptimality,
    SoftVoronoiQuantizer,
)
from skquant.exceptions import RuleExtensionWarning
from skquant.relaxation._responsibilities import RELAXATIONS, relax_logits
from skquant.solvers._problem import build_problem
from skquant.solvers._soft import (
    FAMILIES,
    SoftObjective,
    anneal_adam,
    hard_information,
    nearest_center_distance,
)
from skquant.solvers._soft_kernel import softmax_gradient, softmax_moments

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


@pytest.mark.parametrize("n, r, n_bins", SIZES)
@pytest.mark.parametrize("temperature", [0.05, 1.0, 30.0])
def test_compiled_moments_agree_with_loops(n, r, n_bins, temperature):
    points, weights, slopes, offsets = kernel_table(n, r, n_bins)
    shares = slow_shares(points, slopes, offsets, temperature) * weights[:, None]
    # added to what is there
    cell_weights, moments = np.full(n_bins, 2.0), np.full((r, n_bins), -3.0)
    columns = np.ascontiguousarray(slopes.T)
    arrays = points, weights, columns, offsets
    before = [array.tobytes() for array in arrays]
    for array in arrays:
        array.setflags(write=False)
    softmax_moments(*arrays, temperature, cell_weights, moments, np.empty(n_bins))
    np.testing.assert_allclose(cell_weights - 2.0, shares.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments + 3.0, points.T @ shares, atol=1e-12)
    assert [array.tobytes() for array in arrays] == before


@pytest.mark.parametrize("n, r, n_bins", SIZES)
@pytest.mark.parametrize("temperature", [0.05, 1.0, 30.0])
def test_compiled_gradient_agrees_with_loops(n, r, n_bins, temperature):
    points, weights, slopes, offsets = kernel_table(n, r, n_bins)
    rng = np.random.default_rng(1)
    ascent, level = rng.normal(size=(r, n_bins)), rng.normal(size=n_bins)
    shares = slow_shares(points, slopes, offsets, temperature)
    expected = np.zeros((n, n_bins))
    for i, (point, share) in enumerate(zip(points, shares, strict=True)):
        jacobian = np.diag(share) - np.outer(share, share)
        expected[i] = weights[i] * jacobian @ (point @ ascent + level)
    slope_gradient, offset_gradient = np.full((r, n_bins), 2.0), np.full(n_bins, -3.0)
    softmax_gradient(
        points,
        weights,
        np.ascontiguousarray(slopes.T),
        offsets,
        temperature,
        ascent,
        level,
        slope_gradient,
        offset_gradient,
        np.empty((2, n_bins)),
    )
    np.testing.assert_allclose(slope_gradient - 2.0, points.T @ expected, atol=1e-12)
    np.testing.assert_allclose(offset_gradient + 3.0, expected.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize("temperature", [1e-8, 1e-100, 1e-200, 1e-320])
def test_compiled_passes_at_a_vanishing_temperature(temperature):
    points, weights, slopes, offsets = kernel_table(60, 2, 4)
    hard = np.eye(4)[np.argmax(points @ slopes.T + offsets, axis=1)] * weights[:, None]
    cell_weights, moments = np.zeros(4), np.zeros((2, 4))
    columns = np.ascontiguousarray(slopes.T)
    arrays = points, weights, columns, offsets, temperature
    softmax_moments(*arrays, cell_weights, moments, np.empty(4))
    np.testing.assert_allclose(cell_weights, hard.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(moments, points.T @ hard, rtol=1e-12)
    gradients = np.zeros((2, 4)), np.zeros(4)
    softmax_gradient(
        *arrays, np.ones((2, 4)), np.arange(4.0), *gradients, np.empty((2, 4))
    )
    for gradient in gradients:
        np.testing.assert_array_equal(gradient, 0.0)


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
        expected, matrix = slow_objective(
            problem, *plan, parameters, unit, temperature
        )
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
