"""The worked extensions of doc/contributing.rst do what they are shown for."""

import importlib.util
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

import skquant
from skquant import DExchangeQuantizer, SoftVoronoiQuantizer
from skquant.responsibilities import RELAXATIONS

EXTENSIONS = Path(__file__).parents[1] / "doc" / "extensions"


def load(name):
    """Import one extension; what it registers is undone."""
    spec = importlib.util.spec_from_file_location(name, EXTENSIONS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # classes are pickled by the name of their module
    sys.modules[name] = module
    before = dict(RELAXATIONS)
    spec.loader.exec_module(module)
    RELAXATIONS.clear()
    RELAXATIONS.update(before)
    return module


prior_criterion = load("prior_criterion")
entmax_relaxation = load("entmax_relaxation")
farthest_point = load("farthest_point")


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=(300, 2)) @ [[1.0, 0.4], [0.0, 2.0]]


def test_criterion_gradient_is_the_derivative():
    criterion = prior_criterion.PriorDOptimality(0.3)
    rng = np.random.default_rng(0)
    half = rng.normal(size=(3, 3))
    reference = half @ half.T + np.eye(3)
    information = 0.4 * reference + 0.1 * np.diag([1.0, 2.0, 0.5])
    change = rng.normal(size=(3, 3))
    change = change + change.T
    step = 1e-6
    numeric = criterion.value(information + step * change, reference)
    numeric -= criterion.value(information - step * change, reference)
    exact = np.sum(criterion.gradient(information, reference) * change)
    assert numeric / (2 * step) == pytest.approx(exact, rel=1e-7)
    sign, logdet = np.linalg.slogdet(information + 0.3 * reference)
    logdet -= np.linalg.slogdet(reference)[1]
    assert criterion.value(information, reference) == pytest.approx(logdet)
    assert criterion.efficiency(reference, reference) == pytest.approx(1.0)


def test_criterion_works_in_the_exchange(scores):
    criterion = prior_criterion.PriorDOptimality(0.5)
    # two cells of centred scores keep nothing of one direction: D would be zero
    table = scores - scores.mean(axis=0)
    fit = DExchangeQuantizer(
        2, criterion=criterion, n_init=2, n_swaps=0, random_state=0
    )
    fit.fit(table[:40])
    assert fit.is_stable_
    values = fit.information_, fit.binned_information_
    assert fit.retention_ == pytest.approx(criterion.efficiency(*values[::-1]))
    # no other cells of two of this small table are better
    small = table[:9]
    best = max(
        criterion.efficiency(
            skquant.information.binned_fisher_information(
                small, np.array(labels), n_bins=2
            ),
            skquant.information.fisher_information(small),
        )
        for labels in product((0, 1), repeat=9)
        if 0 < sum(labels) < 9
    )
    fit.set_params(n_init=8)
    fit.fit(small)
    assert fit.retention_ == pytest.approx(best, rel=1e-12)


def test_criterion_has_parameters(scores):
    criterion = prior_criterion.PriorDOptimality()
    search = GridSearchCV(
        DExchangeQuantizer(4, criterion=criterion, n_init=1, n_swaps=0, random_state=0),
        {"criterion__prior": [1.0, 5.0]},
        cv=2,
    )
    search.fit(scores)
    # a stronger prior leaves less to lose
    assert search.best_params_ == {"criterion__prior": 5.0}
    with pytest.raises(ValueError, match="prior must be a positive number; got -1"):
        search.best_estimator_.set_params(criterion__prior=-1).fit(scores)


def test_relaxation_solves_its_problem():
    relaxation = entmax_relaxation.Entmax15()
    logits = np.array([0.9, 0.3, -0.2, 0.1])

    # maximize <p, z> + the Tsallis entropy of order 3/2 over the simplex
    def objective(p):
        return -p @ logits - 4.0 / 3.0 * np.sum(p - np.maximum(p, 0.0) ** 1.5)

    solved = minimize(
        objective,
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1.0},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert relaxation.forward(logits) == pytest.approx(solved.x, abs=1e-6)
    far = relaxation.forward(np.array([[0.0, -1e300, 5.0], [1.0, 1.0, 1.0]]))
    assert far == pytest.approx(np.array([[0, 0, 1], [1 / 3] * 3]))


def test_relaxation_vjp_is_the_derivative():
    relaxation = entmax_relaxation.Entmax15()
    rng = np.random.default_rng(1)
    logits, cotangent = rng.normal(size=(2, 20, 5))
    product_ = relaxation.vjp(relaxation.forward(logits), cotangent)
    step = 1e-6
    for j in range(5):
        moved = np.zeros(5)
        moved[j] = step
        change = relaxation.forward(logits + moved) - relaxation.forward(logits - moved)
        numeric = np.sum(change * cotangent, axis=1) / (2 * step)
        assert product_[:, j] == pytest.approx(numeric, abs=2e-5)


def test_relaxation_is_one_line_of_registration():
    # a new process: names are checked against the registry at import
    code = """
import numpy as np
import entmax_relaxation
from skquant import AffineMaxRule, SoftVoronoiQuantizer
scores = np.random.default_rng(0).normal(size=(200, 2))
soft = SoftVoronoiQuantizer(3, relaxation="entmax15", temperature_start_ratio=1.0)
soft.set_params(n_init=1, temperature_end_ratio=0.5, random_state=0).fit(scores)
shares = soft.predict_proba(scores)
assert np.allclose(shares.sum(axis=1), 1) and (shares.argmax(1) == soft.labels_).all()
assert np.any(shares == 0) and soft.history_.soft_retention[0] < 0.5
print(soft.retention_, soft.rule_.relaxation)
"""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=EXTENSIONS,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    retention, name = run.stdout.split()
    assert name == "entmax15"
    scores = np.random.default_rng(0).normal(size=(200, 2))
    soft = SoftVoronoiQuantizer(3, n_init=1, max_iter=30, random_state=0).fit(scores)
    assert float(retention) == pytest.approx(soft.retention_, abs=0.02)


def test_solver_is_within_twice_the_best_radius():
    points = np.random.default_rng(5).normal(size=(10, 2))
    distance = np.linalg.norm(points[:, None] - points, axis=2)
    best = min(
        distance[:, list(centers)].min(axis=1).max()
        for centers in product(range(10), repeat=3)
    )
    chosen = farthest_point.farthest_points(points, 3)
    radius = np.linalg.norm(points[:, None] - chosen, axis=2).min(axis=1).max()
    assert best <= radius <= 2 * best
    assert np.linalg.norm(chosen[0]) == np.linalg.norm(points, axis=1).max()


def test_solver_estimator_gives_a_rule(scores):
    fit = farthest_point.FarthestPointQuantizer(5).fit(scores)
    assert (fit.predict(scores) == fit.labels_).all()
    assert 0 < fit.retention_ == pytest.approx(fit.score(scores))
    best = DExchangeQuantizer(5, n_init=2, n_swaps=0, random_state=0).fit(scores)
    assert fit.retention_ < best.retention_


@pytest.mark.filterwarnings("default:n_bins=:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings(
    "default:the weighted mean:skquant.exceptions.ScoreOffsetWarning"
)
@pytest.mark.filterwarnings(
    "default:n_bins=:skquant.exceptions.DegenerateInformationWarning"
)
@pytest.mark.filterwarnings("default:X (has|does not have) valid feature:UserWarning")
@parametrize_with_checks([farthest_point.FarthestPointQuantizer(3)])
def test_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
