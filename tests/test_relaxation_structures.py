"""Rows P: projections and structures, against enumeration and generic optimizers."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from skquant.relaxation import (
    Arborescence,
    ChainKSubset,
    Hypercube,
    KSubset,
    Matching,
    Simplex,
    SpanningTree,
    birkhoff_projection,
    capped_simplex,
    capped_simplex_vjp,
    sample_structure,
    sinkhorn,
    softmax,
    softmax_vjp,
    sparsemax,
    sparsemax_vjp,
)

U = np.array([0.9, 0.3, -0.2, 0.1])
V = np.array([1.0, -2.0, 0.5, 0.3])
TAU = 0.7
CHAIN = np.array([0.5, 0.0, -0.5, 0.2, 1.0, -1.0, 0.5])
TREE = np.array([0.5, -0.2, 0.1, 0.3, -0.6, 0.4])
ARCS = np.array(
    [[0, 0.5, -0.2, 0.1], [0, 0, 0.3, -0.6], [0, 0.4, 0, 0.2], [0, -0.3, 0.6, 0]]
)
SCORES = np.array([[0.9, 0.1, -0.3], [0.2, 0.5, 0.4], [-0.5, 0.6, 0.3]])

STRUCTURES = [
    Simplex(1),
    Simplex(5),
    Hypercube(4),
    KSubset(5, 2),
    KSubset(4, 0),
    KSubset(4, 4),
    ChainKSubset(1, 1),
    ChainKSubset(5, 3),
    ChainKSubset(4, 0),
    SpanningTree(1),
    SpanningTree(2),
    SpanningTree(4),
    Arborescence(1),
    Arborescence(4, root=2),
    Matching(1),
    Matching(3),
]
EXPONENTIAL = [(structure, "exponential") for structure in STRUCTURES]
OTHERS = [
    (structure, regularizer)
    for structure in STRUCTURES
    for regularizer in structure.regularizers
    if regularizer != "exponential"
]


def near(actual, expected, digits=8):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=0.51 * 10.0**-digits)


def name(pair):
    return "-".join(map(str, pair)) if isinstance(pair, tuple) else str(pair)


# --- an independent enumeration ------------------------------------------------------


def slow_vertices(structure):
    """All vertices, by filtering all vectors of bits."""
    size = int(np.prod(structure.shape))
    found = []
    for bits in itertools.product([0.0, 1.0], repeat=size):
        if slow_member(structure, np.array(bits)):
            found.append(bits)
    return np.array(found).reshape(len(found), *structure.shape)


def slow_member(structure, x):
    if isinstance(structure, Simplex):
        return x.sum() == 1
    if isinstance(structure, Hypercube):
        return True
    if isinstance(structure, KSubset):
        return x.sum() == structure.k
    if isinstance(structure, ChainKSubset):
        nodes, pairs = x[: structure.n], x[structure.n :]
        return nodes.sum() == structure.k and (pairs == nodes[1:] * nodes[:-1]).all()
    if isinstance(structure, Matching):
        x = x.reshape(structure.shape)
        return (x.sum(axis=0) == 1).all() and (x.sum(axis=1) == 1).all()
    n = structure.n_nodes
    if isinstance(structure, SpanningTree):
        adjacent = np.zeros((n, n))
        adjacent[np.triu_indices(n, 1)] = x
        adjacent += adjacent.T
        degrees, start = x.sum() == n - 1, 0
    else:
        adjacent = x.reshape(n, n)
        start = structure.root
        into = adjacent.sum(axis=0)
        degrees = into[start] == 0 and (np.delete(into, start) == 1).all()
    reached = np.linalg.matrix_power(np.eye(n) + adjacent, n)[start] > 0
    return bool(degrees and reached.all())


def utilities_of(vertices, u):
    flat = np.where(np.isfinite(u), u, -1e300).ravel()
    return vertices.reshape(len(vertices), -1) @ flat


def slow_mean(vertices, u, temperature):
    z = utilities_of(vertices, u) / temperature
    p = np.exp(z - z.max())
    p /= p.sum()
    log_partition = temperature * (np.log(np.exp(z - z.max()).sum()) + z.max())
    mean = np.tensordot(p, vertices, 1)
    flat = vertices.reshape(len(vertices), -1)
    centered = flat - mean.ravel()
    return mean, log_partition, (p[:, None] * centered).T @ centered


@pytest.mark.parametrize("structure", STRUCTURES, ids=name)
def test_vertices(structure):
    ours = structure.vertices()
    theirs = slow_vertices(structure)
    assert ours.shape == theirs.shape
    key = sorted(map(tuple, ours.reshape(len(ours), -1).tolist()))
    assert key == sorted(map(tuple, theirs.reshape(len(theirs), -1).tolist()))


@pytest.mark.parametrize("temperature", [10.0, 1.0, 0.1, 1e-2, 1e-3, 1e-5])
@pytest.mark.parametrize("structure", STRUCTURES, ids=name)
def test_marginals_and_partition_by_enumeration(structure, temperature):
    rng = np.random.default_rng(0)
    u = rng.normal(size=(3, *structure.shape))
    if isinstance(structure, Arborescence):
        # what does not count is anything
        u[..., :, structure.root] = 99.0
    vertices = structure.vertices()
    marginals = structure.marginals(u, temperature)
    log_partition = structure.log_partition(u, temperature)
    for row in range(3):
        mean, value, _ = slow_mean(vertices, u[row], temperature)
        np.testing.assert_allclose(marginals[row], mean, atol=1e-11)
        assert log_partition[row] == pytest.approx(value, rel=1e-11, abs=1e-11)
    assert marginals.min(initial=0.0) >= -1e-12
    assert marginals.max(initial=0.0) <= 1 + 1e-12


@pytest.mark.parametrize("structure", STRUCTURES, ids=name)
def test_argmax_by_enumeration_and_the_limit(structure):
    rng = np.random.default_rng(1)
    u = rng.normal(size=(20, *structure.shape))
    vertices = structure.vertices()
    best = structure.argmax(u)
    for row in range(20):
        values = utilities_of(vertices, u[row])
        np.testing.assert_array_equal(best[row], vertices[np.argmax(values)])
    np.testing.assert_array_equal(structure.relax(u, 0.0), best)
    np.testing.assert_array_equal(structure.marginals(u, 0.0), best)
    values = [structure.log_partition(u, t) for t in (1.0, 0.1, 0.01, 0.001, 0.0)]
    assert (np.diff(values, axis=0) <= 1e-12).all()
    if not isinstance(structure, Matching):
        near(structure.relax(u, 1e-4), best, 6)


@pytest.mark.parametrize("structure, regularizer", EXPONENTIAL, ids=name)
@pytest.mark.parametrize("temperature", [3.0, 0.7, 0.01])
def test_exact_vjp_is_the_covariance(structure, regularizer, temperature):
    rng = np.random.default_rng(2)
    u, v = rng.normal(size=(2, 2, *structure.shape))
    product = structure.vjp(u, v, temperature, regularizer)
    vertices = structure.vertices()
    for row in range(2):
        covariance = slow_mean(vertices, u[row], temperature)[2]
        expected = (covariance @ v[row].ravel() / temperature).reshape(structure.shape)
        np.testing.assert_allclose(product[row], expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("structure, regularizer", OTHERS, ids=name)
def test_other_regularizers_have_symmetric_exact_jacobians(structure, regularizer):
    rng = np.random.default_rng(3)
    u, v, w = rng.normal(size=(3, *structure.shape))
    two = structure.vjp(u, v, 0.7, regularizer, method="two-solve")
    if regularizer == "euclidean" and isinstance(structure, Matching):
        with pytest.raises(ValueError, match="two-solve"):
            structure.vjp(u, v, 0.7, regularizer)
        return
    exact = structure.vjp(u, v, 0.7, regularizer)
    np.testing.assert_allclose(exact, two, atol=3e-5)
    other = structure.vjp(u, w, 0.7, regularizer)
    assert np.sum(exact * w) == pytest.approx(np.sum(other * v), abs=1e-9)


def test_two_solve():  # P10, bug N4
    structure = KSubset(4, 2)
    right = [0.35411481, -0.90125375, 0.27006629, 0.27707265]
    near(structure.vjp(U, V, TAU), right)
    near(structure.vjp(U, V, TAU, method="two-solve"), right, 7)
    # the printed errors are those of the simplex
    errors, slope = [], Simplex(4).vjp(U, V, TAU)
    for step in (0.1, 0.01, 0.001):
        up, down = (Simplex(4).relax(U + s * step * V, TAU) for s in (1, -1))
        errors.append(np.abs((up - down) / (2 * step) - slope).max())
    np.testing.assert_allclose(errors, [2.3e-3, 2.3e-5, 2.3e-7], rtol=0.1)
    for scale in (1e3, 1e-10, 1e-200):
        scaled = structure.vjp(U, scale * V, TAU, method="two-solve")
        np.testing.assert_allclose(scaled / scale, right, atol=1e-7)
        np.testing.assert_allclose(
            structure.vjp(U, scale * V, TAU) / scale, right, 1e-7
        )
    for method in ("exact", "two-solve"):
        np.testing.assert_array_equal(structure.vjp(U, 0 * V, TAU, method=method), 0.0)


# --- right values --------------------------------------------------------------------


def test_simplex_values():  # P1, P2, Q1
    near(softmax(U, temperature=TAU), [0.51255041, 0.21751248, 0.10648142, 0.16345569])
    near(sparsemax([0.5, 0.0, -0.5]), [0.75, 0.25, 0.0])
    near(sparsemax([0.0, 0.5, 1.0]), [0.0, 0.25, 0.75])
    near(sparsemax([0.1, 0.2, 0.3, 0.4, 0.5]), [0.0, 0.1, 0.2, 0.3, 0.4])
    near(sparsemax(U, temperature=TAU), [0.92857143, 0.07142857, 0, 0])
    near(sparsemax(np.float32([1.37e8, 1.60e8])), [0.0, 1.0])  # bug 11
    near(softmax([1.0, 1.0, -np.inf]), [0.5, 0.5, 0.0])
    near(sparsemax([1.0, 1.0, -np.inf]), [0.5, 0.5, 0.0])


@pytest.mark.parametrize(
    "function, vjp", [(softmax, softmax_vjp), (sparsemax, sparsemax_vjp)]
)
def test_vjp_of_a_batch_and_of_an_axis(function, vjp):  # bug 12
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(2, 4, 1, 6))
    p = function(x, temperature=0.3)
    whole = vjp(p, v, 0.3)
    for i in range(4):
        np.testing.assert_allclose(whole[i, 0], vjp(p[i, 0], v[i, 0], 0.3))
        step = 1e-6
        up, down = (
            function(x[i, 0] + s * step * v[i, 0], temperature=0.3) for s in (1, -1)
        )
        np.testing.assert_allclose(whole[i, 0], (up - down) / (2 * step), atol=1e-7)
    moved = function(np.moveaxis(x, -1, 0), temperature=0.3, axis=0)
    np.testing.assert_allclose(np.moveaxis(moved, 0, -1), p)
    moved = vjp(moved, np.moveaxis(v, -1, 0), 0.3, axis=0)
    np.testing.assert_allclose(np.moveaxis(moved, 0, -1), whole)


def test_hypercube_values():  # P3
    structure = Hypercube(4)
    near(structure.marginals(U, TAU), [0.7834209, 0.60553249, 0.4290534, 0.53565367])
    near(structure.relax(U, TAU, "euclidean"), [1, 0.42857143, 0, 0.14285714])
    # the noise of a bit is logistic
    draws = sample_structure(
        structure, U / TAU, noise="logistic", n_samples=100_000, random_state=0
    )
    near(draws.mean(axis=0), structure.marginals(U, TAU), 2)


def test_k_subset_values():  # P4
    structure = KSubset(4, 2)
    near(structure.marginals(U, TAU), [0.76647694, 0.52214894, 0.29188395, 0.41949017])
    near(structure.log_partition(U / TAU), 2.78716703)
    for regularizer, right in [
        ("euclidean", [1, 0.64285714, 0, 0.35714286]),
        ("binary", [0.71107792, 0.51086882, 0.33831692, 0.43973634]),
        ("categorical", [1, 0.44622559, 0.21844601, 0.3353284]),
    ]:
        near(structure.relax(U, TAU, regularizer), right)


@pytest.mark.parametrize("regularizer", ["euclidean", "binary", "categorical"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_capped_simplex_by_a_generic_optimizer(regularizer, k):
    x = np.random.default_rng(k).normal(size=5)

    def cost(p):
        p = np.clip(p, 1e-12, 1 - 1e-12)
        f = {
            "euclidean": 0.5 * p @ p,
            "binary": np.sum(p * np.log(p) + (1 - p) * np.log(1 - p)),
            "categorical": np.sum(p * np.log(p)),
        }[regularizer]
        return 0.7 * f - x @ p

    solved = minimize(
        cost,
        np.full(5, k / 5),
        method="SLSQP",
        bounds=[(0, 1)] * 5,
        constraints={"type": "eq", "fun": lambda p: p.sum() - k},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = capped_simplex(x, k, regularizer=regularizer, temperature=0.7)
    assert ours.sum() == pytest.approx(k, abs=1e-12)
    assert cost(ours) <= cost(solved.x) + 1e-9
    np.testing.assert_allclose(ours, solved.x, atol=2e-4)


@pytest.mark.parametrize("regularizer", ["euclidean", "binary", "categorical"])
def test_capped_simplex_at_the_ends(regularizer):
    options = dict(regularizer=regularizer)
    x = [3.0, -np.inf, 1.0, 2.0]
    np.testing.assert_array_equal(capped_simplex(x, 0, **options), np.zeros(4))
    np.testing.assert_array_equal(capped_simplex(x, 3, **options), [1, 0, 1, 1])
    for temperature in (1e-5, 1e-200):
        near(capped_simplex(x, 2, temperature=temperature, **options), [1, 0, 0, 1])
    np.testing.assert_array_equal(
        capped_simplex([1.0, 1.0, 1.0], 2, temperature=0, **options), [1, 1, 0]
    )
    near(capped_simplex([1e9, 1e9 + 1], 1, **options).sum(), 1.0)
    slope = capped_simplex_vjp([1.0, 1.0], [1.0, 2.0], **options)
    np.testing.assert_array_equal(slope, [0.0, 0.0])


def test_chain_values():  # P5
    structure = ChainKSubset(4, 2)
    marginals = structure.marginals(CHAIN)
    near(marginals[:4], [0.73764033, 0.5832105, 0.24057102, 0.43857816])
    near(marginals[4:], [0.44105133, 0.02195865, 0.12020051])
    near(structure.log_partition(CHAIN), 2.31859401)


def test_spanning_tree_values():  # P6, bugs N3, 17
    structure = SpanningTree(4)
    right = [0.64059933, 0.3718351, 0.51600458, 0.56557903, 0.28479967, 0.62118228]
    near(structure.marginals(TREE), right)
    near(structure.log_partition(TREE), 3.17422686)
    assert structure.marginals(TREE).sum() == pytest.approx(3.0, abs=1e-14)
    # the plain inverse gives a marginal of 1.82 here
    near(structure.marginals(TREE, 0.002), [1, 0, 0, 1, 0, 1])
    for scale in (1e-5, 1e5, 8e5):
        marginals = structure.marginals(TREE * scale)
        assert marginals.max() <= 1 + 1e-12 and marginals.min() >= -1e-12
    absent = np.where(TREE == -0.6, -np.inf, TREE)
    without = structure.marginals(absent)
    assert without[4] == 0.0 and without.sum() == pytest.approx(3.0)


def test_edges_of_weight_zero_are_edges():  # bugs 18, N2
    best = SpanningTree(3).argmax([0.0, -1.0, -1.0])
    np.testing.assert_array_equal(best, [1, 1, 0])
    best = Arborescence(3).argmax(np.array([[0, 0.0, -1], [0, 0, 0.0], [0, 0, 0]]))
    np.testing.assert_array_equal(best, [[0, 1, 0], [0, 0, 1], [0, 0, 0]])


def test_arborescence_values():  # P7, bugs N1, N7, 20
    structure = Arborescence(4)
    near(structure.log_partition(ARCS), 3.24935822)
    near(structure.marginals(ARCS)[0, 1:], [0.59166649, 0.34160691, 0.57783055])
    u = np.array([[0, 0.1, 0.3], [0, 0, -1e16], [0, 0.25, 0]])
    before = u.copy()
    best = Arborescence(3).argmax(u)
    np.testing.assert_array_equal(best, [[0, 0, 1], [0, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(u, before)
    for level in (-20.0, 100.0):
        into = Arborescence(4).marginals(np.full((4, 4), level)).sum(axis=0)
        np.testing.assert_allclose(into, [0, 1, 1, 1], rtol=1e-13)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 5), st.booleans())
def test_best_arborescence_is_the_best(seed, n, integers):
    rng = np.random.default_rng(seed)
    u = rng.integers(-2, 3, (n, n)) * 1.0 if integers else rng.normal(size=(n, n))
    u[rng.uniform(size=(n, n)) < 0.2] = -np.inf
    structure = Arborescence(n, root=int(rng.integers(n)))
    try:
        best = structure.argmax(u)
    except ValueError:
        values = utilities_of(structure.vertices(), u)
        assert values.max(initial=-np.inf) < -1e200
        return
    values = utilities_of(structure.vertices(), u)
    assert utilities_of(best[None], u)[0] == pytest.approx(values.max(), abs=1e-12)
    assert (structure.vertices() == best).all(axis=(1, 2)).any()


def test_matching_values():  # P8, P9
    structure = Matching(3)
    near(structure.relax(SCORES, 0.5)[0], [0.74703242, 0.14749787, 0.10546970], 7)
    near(structure.marginals(SCORES, 0.5)[0], [0.90775708, 0.05252262, 0.0397203])
    block = [[1, 0, 0], [0, 0.4, 0.6], [0, 0.6, 0.4]]
    near(structure.relax(SCORES, 0.5, "euclidean"), block, 7)
    with pytest.raises(ValueError, match="permanent"):
        Matching(9).marginals(np.zeros((9, 9)))
    near(Matching(9).relax(np.zeros((9, 9))), np.full((9, 9), 1 / 9))


def test_law_of_a_perturbed_maximum():  # P11, P13
    theta = np.log([1.0, 2.0, 3.0])
    structure = SpanningTree(3)
    kwargs = dict(n_samples=3000, random_state=0)
    # two edges of three: the one left out
    out = 1.0 - sample_structure(structure, theta, **kwargs).mean(axis=0)
    right = np.array([0.58333333, 0.26666667, 0.15])
    np.testing.assert_allclose(out, right, atol=4 * np.sqrt(0.25 / 3000))
    gibbs = 1.0 - structure.marginals(theta)
    near(gibbs, [0.54545455, 0.27272727, 0.18181818])
    assert np.abs(gibbs - right).max() > 0.03
    # only the order counts there: an exponential race is the same law, and so it is
    # on the simplex, but not where utilities are added up
    race = 1.0 - sample_structure(structure, theta, noise="exponential", **kwargs)
    np.testing.assert_allclose(race.mean(axis=0), right, atol=0.03)
    race = sample_structure(Simplex(3), theta, noise="exponential", **kwargs)
    np.testing.assert_allclose(race.mean(axis=0), [1 / 6, 1 / 3, 1 / 2], atol=0.03)
    bits = Hypercube(2)
    assert sample_structure(bits, theta[:2], **kwargs).any()
    assert not sample_structure(bits, theta[:2], noise="exponential", **kwargs).any()


def test_relaxed_samples_share_the_noise_of_hard_ones():  # P12
    structure = KSubset(5, 2)
    kwargs = dict(n_samples=50, random_state=0)
    hard = sample_structure(structure, np.zeros(5), **kwargs)
    soft = sample_structure(structure, np.zeros(5), temperature=1e-6, **kwargs)
    near(soft, hard, 5)
    softer = sample_structure(structure, np.zeros(5), temperature=1.0, **kwargs)
    np.testing.assert_allclose(softer.sum(axis=1), 2.0)
    value = [Simplex(4).log_partition(U, t) for t in (1.0, 0.1, 0.01, 0.001)]
    entropy = [-t * np.log(4) for t in (1.0, 0.1, 0.01, 0.001)]
    # the row's regularizer is the negative entropy less its smallest value
    near(np.add(value, entropy)[2:], [0.88613706, 0.89861371], 8)
    near(np.add(value, entropy)[:2], [0.36000801, 0.76165326], 8)


# --- transport -----------------------------------------------------------------------


def test_sinkhorn_with_zero_sums_and_low_temperature():  # bugs 14, 15, 16, O1
    scores = -np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    rows, columns = np.full(3, 1 / 3), np.array([0.5, 0.5, 0.0])
    for temperature in (0.1, 1e-3, 1e-5):
        plan, info = sinkhorn(
            scores, rows, columns, temperature=temperature, return_info=True
        )
        assert info["converged"], temperature
        assert np.abs(plan.sum(axis=1) - rows).max() < 1e-9
        np.testing.assert_allclose(plan.sum(axis=0), columns, atol=1e-12)
        assert (plan[:, 2] == 0).all()
    # the plan of the linear program, at a cost of 1 / 6 + 1 / 3 in all
    assert -np.sum(plan * scores) == pytest.approx(0.5, abs=1e-4)


def test_sinkhorn_says_when_it_stops():
    scores = np.random.default_rng(0).normal(size=(30, 30))
    with pytest.warns(ConvergenceWarning, match="errors"):
        _, info = sinkhorn(
            scores,
            np.ones(30),
            np.ones(30),
            temperature=1e-3,
            max_iter=3,
            return_info=True,
        )
    assert not info["converged"] and info["row_error"] > 1e-9


def test_rectangular_sinkhorn_is_optimal():
    scores = np.random.default_rng(0).normal(size=(4, 3))
    scores[0, 1] = -np.inf
    plan = sinkhorn(scores, np.full(4, 0.25), [0.2, 0.3, 0.5], temperature=0.3)
    assert plan[0, 1] == 0.0
    # log plan - scores / temperature is a sum of a row and a column number
    rest = np.log(plan[1:]) - scores[1:] / 0.3
    double = rest - rest[:1] - rest[:, :1] + rest[0, 0]
    np.testing.assert_allclose(double, 0.0, atol=1e-10)


def test_birkhoff_projection_is_optimal():
    target = np.random.default_rng(1).normal(size=(4, 4))
    plan = birkhoff_projection(target, tol=1e-13)
    np.testing.assert_allclose(plan.sum(axis=1), 1.0, atol=1e-12)
    gradient = target - plan
    vertices = Matching(4).vertices()
    # no vertex is better to first order
    gains = utilities_of(vertices, gradient) - np.sum(plan * gradient)
    assert gains.max() < 1e-9
    with pytest.warns(ConvergenceWarning, match="column sums"):
        birkhoff_projection(target * 50, max_iter=2)


# --- size ----------------------------------------------------------------------------


def test_large_structures():
    rng = np.random.default_rng(0)
    start = time.process_time()
    tree = SpanningTree(200)
    marginals = tree.marginals(rng.normal(size=tree.shape), 0.1)
    assert marginals.sum() == pytest.approx(199.0, abs=1e-8)
    subset = KSubset(10_000, 100)
    marginals = subset.marginals(rng.normal(size=10_000), 0.5)
    assert marginals.sum() == pytest.approx(100.0, abs=1e-8)
    # seconds, not minutes: the times themselves are in the notes
    assert time.process_time() - start < 60


# --- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize("structure", STRUCTURES, ids=name)
def test_bad_utilities(structure):
    if not np.prod(structure.shape):
        return
    for bad in (np.nan, np.inf):
        u = np.zeros(structure.shape)
        u[(0,) * u.ndim] = bad
        for call in (structure.argmax, structure.marginals, structure.relax):
            with pytest.raises(ValueError, match="u must"):
                call(u)
    with pytest.raises(ValueError, match="u must have shape"):
        structure.argmax(np.zeros((2, 77)))
    u = np.zeros(structure.shape)
    for temperature in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="temperature"):
            structure.vjp(u, u, temperature)
    with pytest.raises(ValueError, match="temperature"):
        structure.relax(u, -1.0)
    with pytest.raises(ValueError, match="regularizer"):
        structure.relax(u, 1.0, "ridge")


@pytest.mark.parametrize(
    "structure, u",
    [
        (Simplex(2), [-np.inf, -np.inf]),
        (KSubset(3, 2), [0.0, -np.inf, -np.inf]),
        (ChainKSubset(2, 2), [0.0, 0.0, -np.inf]),
        (SpanningTree(3), [0.0, -np.inf, -np.inf]),
        (Arborescence(2), [[0.0, -np.inf], [0.0, 0.0]]),
        (Matching(2), [[-np.inf, -np.inf], [0.0, 0.0]]),
    ],
    ids=name,
)
def test_nothing_allowed(structure, u):
    for call in (structure.argmax, structure.relax):
        with pytest.raises(ValueError):
            call(u)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: softmax([np.nan, 1.0]), "x must"),
        (lambda: softmax([-np.inf, -np.inf]), "finite entry"),
        (lambda: softmax([1.0, 2.0], temperature=-1), "temperature"),
        (lambda: softmax_vjp([0.5, 0.5], [1, 2], 0.0), "temperature"),
        (lambda: sparsemax_vjp([0.5, 0.5], [1, np.nan]), "v must"),
        (lambda: capped_simplex([1.0, 2.0], 3), "k must"),
        (lambda: capped_simplex([1.0, 2.0], 1, regularizer="l1"), "regularizer"),
        (lambda: sinkhorn([1.0], [1.0], [1.0], temperature=1.0), "shape"),
        (lambda: sinkhorn([[1.0]], [1.0], [2.0], temperature=1.0), "one total"),
        (lambda: sinkhorn([[1.0]], [-1.0], [1.0], temperature=1.0), "row_sums"),
        (lambda: sinkhorn([[1.0]], [1.0], [1.0], temperature=0.0), "temperature"),
        (lambda: sinkhorn([[-np.inf]], [1.0], [1.0], temperature=1.0), "allow"),
        (lambda: birkhoff_projection([[1.0, 2.0]]), "shape"),
        (lambda: KSubset(2, 3), "k must"),
        (lambda: Arborescence(2, root=2), "root"),
        (lambda: sample_structure(Simplex(2), [0, 1], noise="cauchy"), "noise"),
        (lambda: Hypercube(25).vertices(), "vertices"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(ValueError, match=match):
        call()
