import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import retained_eigenvalues, slow_profiled
from sklearn.base import clone

from skquant import (
    AOptimality,
    DOptimality,
    EOptimality,
    NormalizedTrace,
    PowerMean,
    ProfiledDOptimality,
)
from skquant.criteria import resolve_criterion, retained_eigensystem

pytestmark = pytest.mark.usefixtures("one_thread")

INVARIANT = [
    NormalizedTrace(),
    DOptimality(),
    AOptimality(),
    EOptimality(),
    PowerMean(0.5),
    PowerMean(0.0),
    PowerMean(-3.0),
    PowerMean(-np.inf),
]
PROFILED = [
    ProfiledDOptimality(0, 0.0),
    ProfiledDOptimality((2, 0), 0.02),
    ProfiledDOptimality([1], 0.5),
    ProfiledDOptimality(3, 1.0),
]
EVERY = [*INVARIANT, *PROFILED]
MEANS = [
    (NormalizedTrace(), np.mean),
    (DOptimality(), lambda x: np.prod(x) ** (1 / len(x))),
    (AOptimality(), lambda x: 1 / np.mean(1 / x)),
    (EOptimality(), np.min),
    (PowerMean(1), np.mean),
    (PowerMean(0.5), lambda x: np.mean(np.sqrt(x)) ** 2),
    (PowerMean(0), lambda x: np.prod(x) ** (1 / len(x))),
    (PowerMean(-2), lambda x: np.mean(x**-2.0) ** -0.5),
    (PowerMean(-np.inf), np.min),
]


def positive_definite(rng, d):
    root = rng.normal(size=(d + 3, d))
    return root.T @ root / (d + 3)


def matrix_pair(seed, identity, d=4):
    """Retained and full information with eigenvalues in (0.1, 0.9)."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.normal(size=(d, d)))
    retained = (turn * np.linspace(0.1, 0.9, d)) @ turn.T
    if identity:
        return retained, np.eye(d)
    root = rng.normal(size=(d, d)) + 2 * np.eye(d)
    return root.T @ retained @ root, root.T @ root


def numerical_gradient(criterion, information, reference, step=1e-5):
    gradient = np.zeros_like(information)
    for i, j in np.ndindex(information.shape):
        change = np.zeros_like(information)
        change[i, j] += 0.5 * step
        change[j, i] += 0.5 * step
        gradient[i, j] = (
            criterion.value(information + change, reference)
            - criterion.value(information - change, reference)
        ) / (2 * step)
    return gradient


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("criterion", EVERY, ids=repr)
def test_gradient_agrees_with_finite_differences(criterion, identity):
    pair = matrix_pair(0, identity)
    gradient = criterion.gradient(*pair)
    expected = numerical_gradient(criterion, *pair)
    np.testing.assert_allclose(gradient, gradient.T, rtol=1e-12)
    assert np.abs(gradient - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize(
    "criterion, mean", MEANS, ids=[repr(criterion) for criterion, _ in MEANS]
)
def test_efficiency_is_power_mean_of_retained_eigenvalues(criterion, mean, identity):
    pair = matrix_pair(1, identity)
    eigenvalues = retained_eigenvalues(*pair)
    np.testing.assert_allclose(
        criterion.efficiency(*pair), mean(eigenvalues), rtol=1e-12
    )


def test_values():
    pair = matrix_pair(2, False)
    eigenvalues = retained_eigenvalues(*pair)
    expected = {
        NormalizedTrace(): eigenvalues.sum(),
        DOptimality(): np.log(eigenvalues).sum(),
        AOptimality(): -(1 / eigenvalues).sum(),
        EOptimality(): eigenvalues[0],
        PowerMean(-1): 1 / np.mean(1 / eigenvalues),
    }
    for criterion, value in expected.items():
        np.testing.assert_allclose(criterion.value(*pair), value, rtol=1e-12)


@pytest.mark.parametrize("criterion", INVARIANT, ids=repr)
def test_invariance_under_congruence(criterion):
    information, reference = matrix_pair(3, False)
    rng = np.random.default_rng(33)
    change = rng.normal(size=(4, 4)) * [1e-6, 1.0, 1e3, 1e8]
    moved = change.T @ information @ change, change.T @ reference @ change
    for method in ("value", "efficiency"):
        np.testing.assert_allclose(
            getattr(criterion, method)(*moved),
            getattr(criterion, method)(information, reference),
            rtol=1e-9,
        )
    np.testing.assert_allclose(
        change @ criterion.gradient(*moved) @ change.T,
        criterion.gradient(information, reference),
        rtol=1e-8,
        atol=1e-8,
    )


@pytest.mark.parametrize("criterion", PROFILED, ids=repr)
def test_profiled_is_invariant_to_column_units(criterion):
    information, reference = matrix_pair(3, False)
    units = np.array([1e-100, 1e-3, 1.0, 1e100])
    scaled = [m * units * units[:, None] for m in (information, reference)]
    for method in ("value", "efficiency", "nuisance_retention"):
        np.testing.assert_allclose(
            getattr(criterion, method)(*scaled),
            getattr(criterion, method)(information, reference),
            rtol=1e-11,
        )


@pytest.mark.parametrize("interest", [[0], [2], [0, 3], [1, 2, 3]])
def test_profiled_efficiency_is_schur_complement(interest):
    pair = matrix_pair(4, False)
    expected = slow_profiled(*pair, interest)
    for weight in (0.0, 0.3, 1.0):
        criterion = ProfiledDOptimality(interest, weight)
        np.testing.assert_allclose(criterion.efficiency(*pair), expected, rtol=1e-11)
    pure = ProfiledDOptimality(interest, 0.0)
    np.testing.assert_allclose(
        pure.value(*pair), len(interest) * np.log(expected), rtol=1e-10
    )


def test_profiled_value_at_full_weight_is_d_optimality():
    pair = matrix_pair(5, False)
    full = ProfiledDOptimality(1, 1.0)
    np.testing.assert_allclose(
        full.value(*pair), DOptimality().value(*pair), rtol=1e-12
    )
    np.testing.assert_allclose(full.gradient(*pair), DOptimality().gradient(*pair))


def test_profiled_value_is_a_compound():
    information, reference = matrix_pair(5, False)
    block = np.ix_([1, 2, 3], [1, 2, 3])
    log_det = [np.linalg.slogdet(m)[1] for m in (information, reference)]
    inner = [np.linalg.slogdet(m[block])[1] for m in (information, reference)]
    expected = log_det[0] - log_det[1] - 0.9 * (inner[0] - inner[1])
    value = ProfiledDOptimality(0, 0.1).value(information, reference)
    np.testing.assert_allclose(value, expected, rtol=1e-11)


def test_nuisance_retention_is_smallest_eigenvalue_of_the_block():
    information, reference = matrix_pair(6, False)
    block = np.ix_([1, 3], [1, 3])
    expected = retained_eigenvalues(information[block], reference[block])[0]
    criterion = ProfiledDOptimality([0, 2], 0.0)
    np.testing.assert_allclose(
        criterion.nuisance_retention(information, reference), expected, rtol=1e-12
    )


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize(
    "criterion",
    [
        DOptimality(),
        AOptimality(),
        EOptimality(),
        PowerMean(0),
        PowerMean(-2),
        ProfiledDOptimality(0, 0.0),
        ProfiledDOptimality(1, 0.5),
    ],
    ids=repr,
)
def test_singular_information_keeps_exactly_nothing(criterion, identity):
    _, reference = matrix_pair(7, identity, d=3)
    factor = np.random.default_rng(7).normal(size=(2, 3))
    information = factor.T @ factor
    information *= 0.5 / retained_eigenvalues(information, reference)[-1]
    assert criterion.efficiency(information, reference) == 0.0
    assert criterion.value(information, reference) in (0.0, -np.inf)


@pytest.mark.parametrize(
    "criterion",
    [DOptimality(), AOptimality(), PowerMean(0.5), ProfiledDOptimality(0, 0.0)],
    ids=repr,
)
def test_gradient_refuses_singular_information(criterion):
    with pytest.raises(ValueError, match="singular"):
        criterion.gradient(np.diag([0.0, 1.0]), np.eye(2))


def test_eigenvalues_snap_to_zero_and_one():
    rounding = 1e3 * np.finfo(float).eps * 3
    information = np.diag([0.5 * rounding, 2 * rounding, 1 + 0.5 * rounding])
    eigenvalues, _ = retained_eigensystem(information, np.eye(3))
    assert eigenvalues.tolist() == [0.0, 2 * rounding, 1.0]


@pytest.mark.parametrize("criterion", EVERY, ids=repr)
def test_lossless_is_one(criterion):
    _, reference = matrix_pair(8, False)
    assert criterion.efficiency(reference, reference) == pytest.approx(1.0, abs=1e-13)


@pytest.mark.parametrize("power", [-256.0, -1e4])
def test_power_means_do_not_overflow(power):
    information = np.diag([1e-9, 0.5, 1.0])
    pair = information, np.eye(3)
    criterion = PowerMean(power)
    assert criterion.efficiency(*pair) == pytest.approx(1e-9, rel=0.1)
    assert np.isfinite(criterion.gradient(*pair)).all()


def test_minimum_shares_its_gradient_where_eigenvalues_meet():
    gradient = EOptimality().gradient(np.diag([0.5, 0.5, 0.9]), np.eye(3))
    np.testing.assert_allclose(gradient, np.diag([0.5, 0.5, 0.0]), atol=1e-15)


def test_continuation_ends_with_the_criterion():
    criterion = EOptimality()
    steps = criterion.continuation()
    assert [type(step) for step in steps[:1]] == [AOptimality]
    assert [step.power for step in steps[1:-1]] == [-(2.0**k) for k in range(1, 9)]
    assert steps[-1] is criterion


@pytest.mark.parametrize(
    "information, reference, message",
    [
        (np.eye(2), np.eye(3), "square matrices of one shape"),
        (np.ones(2), np.ones(2), "square matrices of one shape"),
        (np.ones((2, 3)), np.ones((2, 3)), "square matrices of one shape"),
        (np.eye(2), np.diag([1.0, -1.0]), "positive definite"),
        (np.eye(2), np.ones((2, 2)) + [[0, 1], [1, 0]], "positive definite"),
    ],
)
def test_bad_matrices_are_refused(information, reference, message):
    with pytest.raises(ValueError, match=message):
        DOptimality().value(information, reference)


# concave: the gradient bounds every gain from above
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    d=st.integers(2, 4),
    size=st.floats(1e-3, 1.0),
    choice=st.integers(0, 9),
)
def test_concavity_inequality(seed, d, size, choice):
    criteria = [
        NormalizedTrace(),
        DOptimality(),
        AOptimality(),
        EOptimality(),
        PowerMean(0.5),
        PowerMean(-3),
        PowerMean(-64),
        ProfiledDOptimality(0, 0.0),
        ProfiledDOptimality(0, 0.1),
        ProfiledDOptimality(d - 1, 1.0),
    ]
    criterion = criteria[choice]
    assert criterion.concave
    rng = np.random.default_rng(seed)
    start, end = positive_definite(rng, d), positive_definite(rng, d)
    end = (1 - size) * start + size * end
    reference = 3 * positive_definite(rng, d) + np.eye(d)
    gradient = criterion.gradient(start, reference)
    gain = criterion.value(end, reference) - criterion.value(start, reference)
    bound = np.sum(gradient * (end - start))
    assert gain <= bound + 1e-9 * (1 + abs(bound) + abs(gain))


# --- resolution ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, kind",
    [
        ("trace", NormalizedTrace),
        ("D", DOptimality),
        ("A", AOptimality),
        ("E", EOptimality),
    ],
)
def test_names(name, kind):
    assert type(resolve_criterion(name, 3)) is kind


@pytest.mark.parametrize("name", ["d", "PowerMean", ""])
def test_unknown_name(name):
    with pytest.raises(ValueError, match=f"criterion must be one of .*got {name!r}"):
        resolve_criterion(name, 3)


@pytest.mark.parametrize("thing", [None, 3, object(), DOptimality])
def test_not_a_criterion(thing):
    with pytest.raises(TypeError, match="methods"):
        resolve_criterion(thing, 3)


@pytest.mark.parametrize("power", [1.5, np.nan, np.inf, "0", None])
def test_bad_power(power):
    with pytest.raises(ValueError, match="power must be a number <= 1"):
        resolve_criterion(PowerMean(power), 2)


@pytest.mark.parametrize(
    "interest, expected",
    [
        (1, (1,)),
        (np.int64(2), (2,)),
        ("b", (1,)),
        (["c", 0], (2, 0)),
        (np.array([0, 1]), (0, 1)),
    ],
)
def test_interest_becomes_indices_and_the_parameter_stays(interest, expected):
    criterion = ProfiledDOptimality(interest, 0.25)
    resolved = resolve_criterion(criterion, 3, ["a", "b", "c"])
    assert resolved is not criterion
    assert resolved.interest == expected
    assert resolved.nuisance_weight == 0.25
    assert criterion.interest is interest


@pytest.mark.parametrize(
    "interest, names, message",
    [
        ("mass", ["a", "b", "c"], "got 'mass'"),
        ("mass", None, "no column names"),
        ([0, 1, 2], None, "at least one nuisance column"),
        ([1, 1], None, "distinct"),
        ([1, "b"], ["a", "b", "c"], "distinct"),
        ([], None, "at least one"),
        (True, None, "got True"),
        ([False], None, "got False"),
        (3, None, "between 0 and 2"),
        (-1, None, "between 0 and 2"),
        (1.0, None, "interest"),
        (None, None, "interest"),
    ],
)
def test_bad_interest(interest, names, message):
    with pytest.raises(ValueError, match=message):
        ProfiledDOptimality(interest).resolve(3, names)


@pytest.mark.parametrize("weight", [-0.1, 1.1, np.nan, "automatic", None])
def test_bad_nuisance_weight(weight):
    with pytest.raises(ValueError, match="nuisance_weight must be 'auto' or"):
        ProfiledDOptimality(0, weight).resolve(3, None)


@pytest.mark.parametrize(
    "d, n_eff, expected", [(3, 900, 0.02), (2, 1e9, 0.01 + 6e-9), (5, 10, 1.0)]
)
def test_automatic_nuisance_weight(d, n_eff, expected):
    resolved = resolve_criterion(ProfiledDOptimality(0), d, effective_sample_size=n_eff)
    assert resolved.nuisance_weight == pytest.approx(expected, rel=1e-14)
    fixed = resolve_criterion(
        ProfiledDOptimality(0, 0.5), d, effective_sample_size=n_eff
    )
    assert fixed.nuisance_weight == 0.5


def test_automatic_nuisance_weight_needs_a_table():
    criterion = resolve_criterion(ProfiledDOptimality(0), 2)
    assert criterion.nuisance_weight == "auto"
    for method in (criterion.value, criterion.gradient):
        with pytest.raises(ValueError, match="depends on the table"):
            method(np.eye(2), np.eye(2))
    assert criterion.efficiency(np.eye(2), np.eye(2)) == 1.0


@pytest.mark.parametrize("criterion", EVERY, ids=repr)
def test_clone_keeps_parameters(criterion):
    copy = clone(criterion)
    assert copy is not criterion
    assert copy.get_params() == criterion.get_params()


def test_a_user_object_passes_through():
    class Mine:
        value = gradient = efficiency = staticmethod(lambda information, reference: 0)

        concave = True

    mine = Mine()
    adapted = resolve_criterion(mine, 3)
    assert adapted.plain is mine
    assert repr(adapted) == repr(mine)
    # what it declares is taken, and the rest has the defaults
    assert adapted.concave and not adapted.needs_columns
    assert adapted.continuation() == [adapted]
    assert adapted.efficiency(np.eye(2), np.eye(2)) == 0


def test_steps_of_a_user_objects_continuation_are_adapted():
    class Step:
        value = gradient = efficiency = staticmethod(lambda information, reference: 0)

    class Mine(Step):
        def resolve(self, n_features, feature_names):
            return Mine()

        def continuation(self):
            return [Step(), self]

    mine = Mine()
    adapted = resolve_criterion(mine, 3)
    assert adapted.plain is not mine
    first, last = adapted.continuation()
    assert isinstance(first.plain, Step) and last.plain is adapted.plain
    assert last.exchange_form is None


@pytest.mark.parametrize("power", [1e-320, 1e-17, -1e-17, 1e-15, -1e-8, 1e-3])
def test_powers_near_zero_do_not_cancel(power):
    eigenvalues = np.array([0.25, 1.0])
    # of two logarithms +-h about their mean the cumulant is log cosh(power h) / power
    half = 0.5 * np.log(4.0)
    expected = 0.5 * np.exp(0.5 * power * half**2)
    mean = PowerMean(power).efficiency(np.diag(eigenvalues), np.eye(2))
    assert mean == pytest.approx(expected, rel=1e-10)
