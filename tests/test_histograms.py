"""Histograms of labels and pyhf models, read back by the real libraries."""

import builtins
import sys

import numpy as np
import pytest

from skquant import DExchangeQuantizer
from skquant.histograms import pyhf_model, to_boost_histogram, to_hist
from skquant.information import information_report

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, size=50)
WEIGHTS = RNG.normal(1.0, 1.0, size=50)
SUMS = [WEIGHTS[LABELS == cell].sum() for cell in range(4)]
SQUARES = [(WEIGHTS[LABELS == cell] ** 2).sum() for cell in range(4)]
NAMES = ["a", "b", "c", "empty"]


@pytest.mark.parametrize("names", [None, NAMES])
@pytest.mark.parametrize("function", [to_boost_histogram, to_hist])
def test_value_and_variance(function, names):
    pytest.importorskip("hist", reason="hist is not installed")
    histogram = function(LABELS, WEIGHTS, n_bins=4, names=names)
    np.testing.assert_allclose(histogram.values(flow=True), SUMS)
    np.testing.assert_allclose(histogram.variances(flow=True), SQUARES)
    assert list(histogram.axes[0]) == (names or [0, 1, 2, 3])


def test_a_histogram_can_still_be_filled():
    pytest.importorskip("hist", reason="hist is not installed")
    histogram = to_hist(LABELS, n_bins=4, axis_name="bin")
    assert histogram.axes[0].name == "bin"
    histogram.fill(bin=[3, 3], weight=[2.0, 1.0])
    assert histogram.values()[3] == 3.0 and histogram.variances()[3] == 5.0


@pytest.mark.parametrize(
    ("function", "package"),
    [(to_boost_histogram, "boost-histogram"), (to_hist, "hist")],
)
def test_a_missing_package_is_named(function, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
    with pytest.raises(ImportError, match=f"pip install {package}, or"):
        function(LABELS)


def test_a_model_needs_no_package(monkeypatch):
    original = builtins.__import__

    def refuse(name, *args, **options):
        assert name.split(".")[0] not in {"pyhf", "hist", "boost_histogram"}
        return original(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert pyhf_model([0, 1], {"s": [1.0, 2.0]}, signal="s")["channels"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ["a"]}, "names must hold 3 different names"),
        ({"names": ["a", "b", "b"]}, "names must hold 3 different names"),
        ({"sample_weight": np.ones(49)}, r"sample_weight must have shape \(50,\)"),
        ({"sample_weight": np.full(50, np.nan)}, "sample_weight must be finite"),
        ({"n_bins": 2}, "labels must lie in 0..1"),
    ],
)
def test_errors_of_histograms(options, message):
    pytest.importorskip("hist", reason="hist is not installed")
    for function in (to_boost_histogram, to_hist):
        with pytest.raises(ValueError, match=message):
            function(LABELS, **options)


CELLS = [0, 0, 1]
NOMINAL = {"s": [1.0, 2.0, 3.0], "b": [4.0, 4.0, 4.0]}


def test_templates_and_modifiers():
    up, down = [2.0, 2.0, 2.0], [1.0, 1.0, 4.0]
    spec = pyhf_model(
        CELLS,
        NOMINAL,
        signal="s",
        normsys={"n": {"s": (up, down)}},
        histosys={"h": {"b": (up, down)}},
        staterror=True,
        channel="c",
        poi="k",
    )
    (channel,) = spec["channels"]
    signal, background = channel["samples"]
    assert signal["data"] == [3.0, 3.0] and background["data"] == [8.0, 4.0]
    modifiers = {each["type"]: each for each in signal["modifiers"]}
    assert modifiers["normfactor"]["name"] == "k"
    assert modifiers["normsys"]["data"] == {"hi": 1.0, "lo": 1.0}
    assert modifiers["staterror"]["data"] == [np.sqrt(5.0), 3.0]
    modifiers = {each["type"]: each for each in background["modifiers"]}
    assert modifiers["histosys"]["name"] == "h" and "normfactor" not in modifiers
    assert modifiers["histosys"]["data"] == {"hi_data": [4.0, 2.0], "lo_data": [2, 4]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signal": "t"}, r"signal must be one of the processes \['s', 'b'\]; got 't'"),
        ({"normsys": {"n": {"t": ([], [])}}}, r"normsys\['n'\] must vary .* got \['t'"),
        ({"histosys": {"n": {"s": [[1, 1, 1]]}}}, "must be a pair of weights"),
        ({"normsys": {"n": {"b": ([0] * 3, [1] * 3)}}}, "positive totals; got 12 nom"),
        ({"histosys": {"n": {"b": ([1] * 3, [1, 1, -1])}}}, r"\[-1.0\] in the cells "),
        ({"nominal": {"s": [1, -2, 1]}}, r"'s' must be nonneg.*in the cells \[0\]"),
        ({"nominal": {"s": [1, 2]}}, r"process 's' must have shape \(3,\)"),
    ],
)
def test_errors_of_models(options, message):
    arguments = {"nominal": NOMINAL, "signal": "s"} | options
    with pytest.raises(ValueError, match=message):
        pyhf_model(CELLS, **arguments)


# the score of a background's rate
@pytest.mark.filterwarnings(
    "ignore:the weighted mean:skquant.exceptions.ScoreOffsetWarning"
)
def test_the_fit_has_the_error_that_the_report_predicts():
    """Signal strength and a background known to 10 %, from a fitted quantizer."""
    pyhf = pytest.importorskip("pyhf", reason="pyhf is not installed")
    pytest.importorskip("iminuit", reason="iminuit is not installed")
    x = RNG.uniform(size=2000)
    signal = 0.2 * np.exp(-0.5 * ((x - 0.4) / 0.1) ** 2)
    background = 1.0 - 0.9 * x
    total = signal + background
    # of the strength, and of the background's size in units of its constraint
    scores = np.column_stack([signal, np.log(1.1) * background]) / total[:, None]
    quantizer = DExchangeQuantizer(5, random_state=0).fit(scores, sample_weight=total)
    labels = quantizer.labels_
    spec = pyhf_model(
        labels,
        {"signal": signal, "background": background},
        signal="signal",
        normsys={"size": {"background": (1.1 * background, background / 1.1)}},
    )
    report = information_report(scores, labels, total)
    information = report.binned_information * total.sum() + np.diag([0.0, 1.0])
    predicted = np.sqrt(np.linalg.inv(information)[0, 0])
    model = pyhf.Model(spec, poi_name="mu")
    pyhf.set_backend("numpy", pyhf.optimize.minuit_optimizer())
    try:
        data = model.expected_data(model.config.suggested_init())
        fitted = pyhf.infer.mle.fit(data, model, return_uncertainties=True)
    finally:
        pyhf.set_backend("numpy", "scipy")
    value, error = fitted[model.config.poi_index]
    assert value == pytest.approx(1.0, abs=1e-3)
    assert error == pytest.approx(predicted, rel=0.03)
