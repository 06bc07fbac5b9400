"""Tables that are no scores: columns far from zero, columns of one name."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

from skquant import (
    AffineMaxRule,
    DExchangeQuantizer,
    FigureOfMeritQuantizer,
    IntervalQuantizer,
    KMeansQuantizer,
    ProfiledDOptimality,
    ScoreCompressor,
    SoftVoronoiQuantizer,
)
from skquant.exceptions import ScoreOffsetWarning
from skquant.information import fisher_information, information_report
from skquant.inspection import exchange_stability, retention_interval

WEIGHTS = np.random.default_rng(1).integers(0, 4, 300).astype(float)


def table(offset):
    """Two columns, the second with that weighted mean and unit spread."""
    X = np.random.default_rng(0).standard_normal((300, 2))
    second = X[:, 1] - np.average(X[:, 1], weights=WEIGHTS)
    second /= np.sqrt(np.average(second**2, weights=WEIGHTS))
    return np.column_stack([X[:, 0], second + offset])


def fit(quantizer):
    return lambda X, labels: quantizer.fit(X, sample_weight=WEIGHTS)


def lightest(labels, X, y, sample_weight):
    return float(np.bincount(labels, minlength=3).min())


CALLS = [
    fit(KMeansQuantizer(3, n_init=1, random_state=0)),
    fit(DExchangeQuantizer(3, n_init=1, n_swaps=0, random_state=0)),
    fit(SoftVoronoiQuantizer(3, n_init=1, max_iter=200, random_state=0)),
    fit(IntervalQuantizer(3, direction=[0.0, 1.0])),
    fit(FigureOfMeritQuantizer(lightest, 3, max_iter=1, random_state=0)),
    lambda X, labels: information_report(X, labels, WEIGHTS),
    lambda X, labels: exchange_stability(X, labels, WEIGHTS),
    lambda X, labels: retention_interval(X, labels, WEIGHTS),
]


@pytest.mark.parametrize("call", CALLS)
def test_the_figure_is_named_at_the_line_of_the_user(call):
    labels = np.arange(300) % 3
    for offset in (10.2, -1234.0, 1e9):
        for unit in (1e-150, 1.0, 1e150):
            X = pd.DataFrame(table(offset) * unit, columns=["shape", "ratio"])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(X, labels)
            (found,) = [each for each in caught if each.category is ScoreOffsetWarning]
            assert found.filename == __file__
            figure, name = re.search(
                r"spread: (\S+) \((.*?)\)", str(found.message)
            ).groups()
            assert name == "'ratio'"
            np.testing.assert_allclose(float(figure), abs(offset), rtol=5e-3)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("second", ["spread", "constant", "rounded constant"])
def test_scores_and_rates_pass(call, second):
    X = table(9.9)
    if second != "spread":
        X[:, 1] = 14.62
    if second == "rounded constant":
        X[::7, 1] *= 1 + 2**-52
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", ScoreOffsetWarning)
        call(X, np.arange(300) % 3)


@pytest.mark.parametrize(
    "call",
    [
        *CALLS,
        lambda X, labels: ScoreCompressor(n_atoms=8).fit(X),
        lambda X, labels: fisher_information(X),
        lambda X, labels: information_report(
            X, labels, criterion=ProfiledDOptimality(["score"])
        ),
    ],
)
def test_columns_of_one_name(call):
    X = pd.DataFrame(table(0.0), columns=["score", "score"])
    with pytest.raises(ValueError, match=r"must have columns of different.*'score'"):
        call(X, np.arange(300) % 3)


def test_a_rule_has_columns_of_different_names():
    with pytest.raises(ValueError, match=r"feature_names must be different.*'a', 'a'"):
        AffineMaxRule([[1.0, 2.0], [0.0, 0.0]], [0.0, 0.0], feature_names=["a", "a"])
