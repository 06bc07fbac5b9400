"""Intervals of a retention: standard errors, bias, statuses, peer's numbers."""

import numpy as np
import pytest
from reference import normal_table

from skquant import AOptimality, DExchangeQuantizer, PowerMean, ProfiledDOptimality
from skquant._moments import information_pair
from skquant.criteria import resolve_criterion
from skquant.information import information_report
from skquant.inspection import optimism, retention_interval
from skquant.inspection._efficiency import efficiency_gradients

MIXING = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])
CRITERIA = [
    "trace",
    "D",
    "A",
    "E",
    PowerMean(-2.0),
    ProfiledDOptimality(0, nuisance_weight=0.1),
    ProfiledDOptimality((0, 2), nuisance_weight=0.5),
]
pytestmark = pytest.mark.usefixtures("one_thread")


def table(seed=0, n=600, n_bins=8):
    """Return scores, weights, and labels whose retained eigenvalues are apart."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 3)) @ MIXING
    labels = (scores[:, 0] > 0) + 2 * (scores[:, 1] > 0.3) + 4 * (scores[:, 2] > 1.0)
    return scores, rng.exponential(size=n), labels.astype(int) % n_bins


def retention(scores, weights, labels, criterion):
    """Plug-in retention from the columns at unit root mean square."""
    shares = weights / weights.sum()
    scaled = scores / np.sqrt(shares @ scores**2)
    retained = np.zeros((3, 3))
    for cell in np.unique(labels):
        moment = (shares * (labels == cell)) @ scaled
        retained += np.outer(moment, moment) / shares[labels == cell].sum()
    full = (scaled * shares[:, None]).T @ scaled
    return resolve_criterion(criterion, 3).efficiency(retained, full)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_gradients_are_finite_differences(criterion):
    scores, weights, labels = table()
    criterion = resolve_criterion(criterion, 3)
    scaled = scores / np.sqrt(np.mean(scores**2, axis=0))
    retained, full = information_pair(scaled, weights, labels, 8)
    gradients = efficiency_gradients(criterion, retained, full)
    rng = np.random.default_rng(1)
    for which in (0, 1):
        step = rng.normal(size=(3, 3))
        step = 1e-5 * (step + step.T)
        change = [np.zeros((3, 3)), np.zeros((3, 3))]
        change[which] = step
        above = criterion.efficiency(retained + change[0], full + change[1])
        below = criterion.efficiency(retained - change[0], full - change[1])
        expected = np.sum(gradients[which] * step)
        assert (above - below) / 2 == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA, ids=str)
def test_standard_error_is_the_infinitesimal_jackknife(criterion):
    scores, weights, labels = table()
    result = retention_interval(scores, labels, weights, criterion=criterion)
    assert result.status == "ok"
    plug_in = retention(scores, weights, labels, criterion)
    assert result.plug_in == pytest.approx(plug_in, rel=1e-12)
    influences = np.empty(len(scores))
    for i in range(len(scores)):
        pair = []
        for factor in (1.0 + 1e-4, 1.0 - 1e-4):
            perturbed = weights.copy()
            perturbed[i] *= factor
            pair.append(retention(scores, perturbed, labels, criterion))
        influences[i] = (pair[0] - pair[1]) / 2e-4
    expected = np.sqrt(np.sum(influences**2))
    assert result.first_order_error == pytest.approx(expected, rel=1e-5)
    assert expected < result.standard_error < 1.1 * expected


@pytest.mark.parametrize("criterion", CRITERIA[:3] + CRITERIA[5:], ids=str)
def test_bias_is_that_of_the_jackknife(criterion):
    # delete-one jackknife: the same bias to the next order in 1 / n
    scores, weights, labels = table(n=700)
    weights = np.ones(len(scores))
    result = retention_interval(scores, labels, criterion=criterion)
    left_out = np.empty(len(scores))
    for i in range(len(scores)):
        kept = weights.copy()
        kept[i] = 0.0
        left_out[i] = retention(scores, kept, labels, criterion)
    n = len(scores)
    expected = (n - 1) * (left_out.mean() - result.plug_in)
    assert result.estimate - result.plug_in == pytest.approx(-expected, rel=0.1)


def test_bias_grows_with_the_cells():
    scores = normal_table(3, 2000, MIXING)
    quantizer = DExchangeQuantizer(24, n_init=1, n_swaps=0, random_state=0)
    quantizer.fit(normal_table(4, 2000, MIXING))
    result = retention_interval(scores, quantizer)
    # a cell takes about its share of the lost information over n
    lost = 1.0 - result.plug_in
    assert result.plug_in == pytest.approx(quantizer.score(scores), rel=1e-12)
    bias = (result.plug_in - result.estimate) / (24 * lost / 2000)
    assert 0.5 < bias < 1.5


def test_coverage_on_simulated_tables():
    quantizer = DExchangeQuantizer(20, n_init=1, n_swaps=0, random_state=0)
    quantizer.fit(normal_table(4, 1000, MIXING))
    rule = quantizer.rule_
    truth = quantizer.score(normal_table(5, 200_000, MIXING))
    results = [
        retention_interval(normal_table([6, k], 400, MIXING), rule) for k in range(300)
    ]
    covered = np.mean([r.interval[0] <= truth <= r.interval[1] for r in results])
    assert 0.92 <= covered <= 0.98
    plug_in = np.mean(
        [abs(r.plug_in - truth) < 1.96 * r.standard_error for r in results]
    )
    assert plug_in < covered - 0.05
    simulated = np.std([r.estimate for r in results], ddof=1)
    assert np.mean([r.standard_error for r in results]) == pytest.approx(
        simulated, rel=0.1
    )


@pytest.mark.parametrize("criterion", ["D", "trace", CRITERIA[5]], ids=str)
def test_bootstrap_agrees(criterion):
    scores, weights, labels = table(n=2000)
    options = dict(criterion=criterion, sample_weight=weights)
    influence = retention_interval(scores, labels, **options)
    bootstrap = retention_interval(
        scores, labels, **options, method="bootstrap", n_resamples=600
    )
    assert bootstrap.estimate == influence.estimate
    assert bootstrap.standard_error == pytest.approx(influence.standard_error, rel=0.1)
    again = retention_interval(
        scores, labels, **options, method="bootstrap", n_resamples=600
    )
    assert again == bootstrap


def test_interval_is_the_logit_of_the_estimate():
    scores, weights, labels = table()
    narrow = retention_interval(scores, labels, weights, level=0.5)
    wide = retention_interval(scores, labels, weights, level=0.99)
    odds = np.log(np.array(wide.interval) / (1 - np.array(wide.interval)))
    middle = np.log(wide.estimate / (1 - wide.estimate))
    assert odds.mean() == pytest.approx(middle, rel=1e-12)
    half = 2.5758293035489004 * wide.standard_error
    half /= wide.estimate * (1 - wide.estimate)
    assert odds[1] - middle == pytest.approx(half, rel=1e-12)
    assert wide.interval[0] < narrow.interval[0] < narrow.interval[1] < wide.interval[1]
    assert 0 < wide.interval[0] and wide.interval[1] < 1
    assert "99% interval" in str(wide)


def test_peer_unweighted_d_interval():
    # scorequant 0.4.0, retention_uncertainty(default_rng(7).normal(500, 2) @ L,
    # (s0 > 0) + 2 (s1 > 0.4)), float64: its plug-in estimate and standard error
    scores = normal_table(7, 500, np.array([[1.0, 0.5], [0.0, 1.2]]))
    labels = (scores[:, 0] > 0) + 2 * (scores[:, 1] > 0.4)
    result = retention_interval(scores, labels)
    assert result.plug_in == pytest.approx(0.5656294198943111, abs=1e-9)
    assert result.first_order_error == pytest.approx(0.01573770144307942, abs=1e-9)


def test_invariance():
    scores, weights, labels = table()
    base = retention_interval(scores, labels, weights)
    for other in (
        retention_interval(scores @ MIXING * 1e100, labels, weights),
        retention_interval(scores, labels, weights * 1e-200),
        retention_interval(np.column_stack([scores, scores[:, 0]]), labels, weights),
        retention_interval(
            np.vstack([scores, 9 * scores]),
            np.append(labels, labels),
            np.append(weights, 0 * weights),
        ),
    ):
        assert other.estimate == pytest.approx(base.estimate, rel=1e-8)
        assert other.standard_error == pytest.approx(base.standard_error, rel=1e-7)


def status(scores, labels, **options):
    result = retention_interval(scores, labels, **options)
    if result.status != "ok":
        assert np.isnan(
            [result.estimate, result.standard_error, *result.interval]
        ).all()
        assert result.status in str(result)
    return result.status


def test_statuses():
    scores, _, labels = table(seed=2)
    assert status(scores, labels * 0) == "too_few_cells"
    assert status(scores, labels % 2) == "too_few_cells"
    # three cells of centred scores span a plane
    assert status(scores, (labels % 4) % 3) == "too_few_cells"
    assert status(scores, labels % 2, criterion="trace") == "ok"
    # more than enough cells, none of which knows the last two directions
    intervals = np.digitize(scores[:, 0], [-1.5, -1.0, -0.5, 0.0, 0.5, 1.0])
    assert status(scores, intervals) == "singular_information"
    grid = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert status(np.tile(grid, (5, 1)), np.tile(np.arange(4), 5)) == "zero_variance"
    rng = np.random.default_rng(0)
    square = rng.normal(size=(4000, 2))
    quadrants = (square[:, 0] > 0) + 2 * (square[:, 1] > 0)
    assert status(square, quadrants, criterion="E") == "eigenvalues_not_separated"
    assert status(square, quadrants, criterion=PowerMean(-np.inf)) == (
        "eigenvalues_not_separated"
    )
    assert status(square, quadrants, criterion="A") == "ok"
    uneven = np.digitize(square[:, 0], [-0.5, 0.5]) + 3 * (square[:, 1] > 1.0)
    assert status(square, uneven, criterion="E") == "ok"


def test_status_of_a_profiled_trap():
    scores = normal_table(1, 2000, MIXING)
    labels = np.digitize(scores[:, 0], np.linspace(-1.5, 1.5, 7))
    criterion = ProfiledDOptimality(0, nuisance_weight=0.1)
    assert status(scores, labels, criterion=criterion) == "nuisance_retention"


class TenfoldD:
    """A user's criterion whose efficiency is not of degree one."""

    concave = True

    def value(self, information, reference):
        return 10.0 * AOptimality().value(information, reference)

    def gradient(self, information, reference):
        return 10.0 * AOptimality().gradient(information, reference)

    def efficiency(self, information, reference):
        return AOptimality().efficiency(information, reference) ** self.power

    def __init__(self, power):
        self.power = power


def test_criteria_of_users():
    scores, weights, labels = table()
    ours = retention_interval(scores, labels, weights, criterion="A")
    users = retention_interval(scores, labels, weights, criterion=TenfoldD(1.0))
    assert users.standard_error == pytest.approx(ours.standard_error, rel=1e-12)
    with pytest.raises(ValueError, match="degree one"):
        retention_interval(scores, labels, weights, criterion=TenfoldD(0.5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level must be a number in"),
        ({"method": "magic"}, "method must be 'influence' or 'bootstrap'"),
        ({"n_resamples": 1}, "n_resamples must be an integer >= 2"),
        ({"criterion": "B"}, "criterion must be one of"),
        ({"sample_weight": -np.ones(600)}, "sample_weight must have a positive total"),
    ],
)
def test_errors(options, message):
    scores, _, labels = table()
    with pytest.raises(ValueError, match=message):
        retention_interval(scores, labels, **options)


def test_labels_are_checked():
    scores, _, labels = table()
    with pytest.raises(ValueError, match="labels_or_rule must have shape"):
        retention_interval(scores, labels[:-1])


def test_report_gains_the_interval():
    scores, weights, labels = table()
    plain = information_report(scores, labels, weights, criterion="D")
    assert plain.interval is None
    report = information_report(scores, labels, weights, criterion="D", level=0.9)
    expected = retention_interval(scores, labels, weights, criterion="D", level=0.9)
    assert report.interval == expected
    assert report.efficiency == pytest.approx(expected.plug_in, rel=1e-12)
    assert str(expected) in str(report)
    with pytest.raises(ValueError, match="level needs a criterion"):
        information_report(scores, labels, level=0.9)


def test_optimism():
    scores = normal_table(9, 300, MIXING)
    quantizer = DExchangeQuantizer(8, n_init=1, n_swaps=0, random_state=0)
    result = optimism(quantizer, scores, cv=3)
    fold = np.arange(100)
    rest = np.arange(100, 300)
    fitted = quantizer.fit(scores[rest])
    assert result.train_scores[0] == fitted.score(scores[rest])
    assert result.test_scores[0] == fitted.score(scores[fold])
    differences = result.train_scores - result.test_scores
    assert result.optimism == pytest.approx(differences.mean())
    assert result.optimism > 0
    expected = differences.std(ddof=1) * np.sqrt(1 / 3 + 100 / 200)
    assert result.standard_error == pytest.approx(expected)


def test_optimism_routes_weights():
    scores = normal_table(9, 200, MIXING)
    weights = np.random.default_rng(0).integers(0, 3, size=200).astype(float)
    quantizer = DExchangeQuantizer(5, n_init=1, n_swaps=0, random_state=0)
    result = optimism(quantizer, scores, weights, cv=2)
    fitted = quantizer.fit(scores[100:], sample_weight=weights[100:])
    held_out = fitted.score(scores[:100], sample_weight=weights[:100])
    assert result.test_scores[0] == held_out
