import json
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pytest

from skquant import AffineMaxRule

NAMES = ["mass", "width", "phase"]


def random_rule(n_bins=5, d=3, seed=0, **options):
    rng = np.random.default_rng(seed)
    return AffineMaxRule(
        rng.normal(size=(n_bins, d)), rng.normal(size=n_bins), **options
    )


def full_rule():
    """A rule with every optional entry, and numbers that print badly."""
    return random_rule(
        temperature=0.1 + 0.2,
        cell_means=np.random.default_rng(1).normal(size=(5, 3))
        * [1e-150, 1 / 3, 1e150],
        feature_names=NAMES,
        metadata={"note": "Ünïcode", "shares": [0.1, 1 / 3], "nested": {"n": None}},
    )


def table(n=200, d=3, seed=2):
    return np.random.default_rng(seed).normal(size=(n, d))


def slow_logits(rule, X):
    """The stated order: the intercept, then += x_j * coef_bj for j ascending."""
    result = []
    for row in X.tolist():
        logits = []
        for slopes, total in zip(
            rule.coef.tolist(), rule.intercept.tolist(), strict=True
        ):
            for x, slope in zip(row, slopes, strict=True):
                total += x * slope
            logits.append(total)
        result.append(logits)
    return np.array(result)


# --- the three functions -------------------------------------------------------------


@pytest.mark.parametrize("n_bins, d", [(1, 1), (2, 1), (5, 3), (64, 8)])
def test_logits_equal_loops_bit_for_bit(n_bins, d):
    rule, X = random_rule(n_bins, d), table(d=d)
    expected = slow_logits(rule, X)
    assert rule.decision_function(X).tobytes() == expected.tobytes()
    labels = rule.predict(X)
    assert labels.dtype == np.int32
    assert labels.tolist() == [row.index(max(row)) for row in expected.tolist()]


@pytest.mark.parametrize("temperature", [1e-3, 0.7, 1.0, 50.0])
def test_proba_is_softmax(temperature):
    rule, X = random_rule(temperature=temperature), table()
    scaled = slow_logits(rule, X) / temperature
    expected = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    proba = rule.predict_proba(X)
    np.testing.assert_allclose(proba, expected, rtol=1e-9, atol=1e-300)
    np.testing.assert_array_equal(np.argmax(proba, axis=1), rule.predict(X))


@pytest.mark.parametrize("temperature", [0.0, 1e-12, 1e-200, 5e-324])
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e150])
def test_proba_at_a_vanishing_temperature(temperature, scale):
    rule = random_rule(temperature=temperature)
    X = table() * scale
    one_hot = np.eye(5)[rule.predict(X)]
    np.testing.assert_array_equal(rule.predict_proba(X), one_hot)


def test_proba_rows_sum_to_one():
    proba = random_rule(64, 8, temperature=3.0).predict_proba(table(5000, 8))
    assert (proba >= 0).all()
    assert np.abs(proba.sum(axis=1) - 1).max() < 1e-12


def test_proba_needs_a_temperature():
    with pytest.raises(ValueError, match="no temperature"):
        random_rule().predict_proba(table())


def test_labels_do_not_depend_on_the_batch():
    rule = random_rule(64, 8, temperature=0.5)
    X = table(5000, 8)
    whole = rule.predict(X), rule.decision_function(X), rule.predict_proba(X)
    for size in (1, 7, 2048, 4999):
        starts = range(0, 70 if size == 1 else 5000, size)
        stop = min(5000, starts[-1] + size)
        for function, expected in zip(
            (rule.predict, rule.decision_function, rule.predict_proba),
            whole,
            strict=True,
        ):
            pieces = np.concatenate(
                [function(X[start : min(start + size, stop)]) for start in starts]
            )
            assert pieces.tobytes() == expected[:stop].tobytes()


def test_the_first_of_equal_logits_wins():
    rule = AffineMaxRule([[1.0], [1.0], [-1.0], [-1.0]], [0.0, 0.0, 0.0, 0.0])
    assert rule.predict([[1.0], [0.0], [-1.0]]).tolist() == [0, 0, 2]
    hard = AffineMaxRule(rule.coef, rule.intercept, temperature=0.0)
    assert hard.predict_proba([[-1.0]]).tolist() == [[0.0, 0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    "convert",
    [
        lambda X: X.tolist(),
        np.asfortranarray,
        lambda X: np.repeat(X[::-1], 2, axis=0)[::-2],
        lambda X: pd.DataFrame(X),
        lambda X: pl.DataFrame(X),
        lambda X: X.astype(object),
    ],
)
def test_tables_of_other_types(convert):
    rule, X = random_rule(), table()
    np.testing.assert_array_equal(rule.predict(convert(X)), rule.predict(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8, bool])
def test_other_dtypes_are_promoted(dtype):
    rule, X = random_rule(), (3 * np.abs(table())).astype(dtype)
    expected = rule.decision_function(X.astype(np.float64))
    np.testing.assert_array_equal(rule.decision_function(X), expected)
    assert rule.predict(X).dtype == np.int32


def test_float32_far_from_the_origin():
    # the boundary at 100000.5, which float32 holds
    means = np.array([[100000.0], [100001.0]])
    rule = AffineMaxRule(2 * means, -np.sum(means**2, axis=1))
    probes = np.linspace(99999.5, 100001.5, 100).astype(np.float32)
    labels = rule.predict(probes[:, None])
    np.testing.assert_array_equal(labels, probes > np.float32(100000.5))


# --- bad tables ----------------------------------------------------------------------


def test_an_empty_table_has_no_labels():
    rule = random_rule(temperature=1.0)
    labels = rule.predict(np.empty((0, 3)))
    assert labels.shape == (0,) and labels.dtype == np.int32
    assert rule.decision_function(np.empty((0, 3))).shape == (0, 5)
    assert rule.predict_proba(np.empty((0, 3))).shape == (0, 5)


METHODS = ["predict", "decision_function", "predict_proba"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "X, message",
    [
        (np.zeros((2, 2)), r"shape \(n, 3\); got \(2, 2\)"),
        (np.zeros((0, 4)), r"shape \(n, 3\); got \(0, 4\)"),
        (np.zeros(3), r"shape \(n, 3\); got \(3,\)"),
        ([[0.0, np.nan, 0.0]], "NaN or infinity"),
        ([[0.0, 0.0, 0.0], [0.0, -np.inf, 0.0]], "NaN or infinity"),
        ([["a", "b", "c"]], "numeric"),
        ([[1j, 0, 0]], "numeric"),
        (np.zeros((2, 3), dtype="datetime64[s]"), "numeric"),
        ([[None, 0, "x"]], "numeric"),
    ],
)
def test_bad_tables(method, X, message):
    with pytest.raises(ValueError, match=message):
        getattr(random_rule(temperature=1.0), method)(X)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_columns_by_name(kind):
    rule = random_rule(feature_names=NAMES)
    X = table()
    data = dict(zip(NAMES, X.T, strict=True))
    expected = rule.predict(X)
    np.testing.assert_array_equal(rule.predict(kind(data)), expected)
    for names in (
        ["width", "mass", "phase"],
        ["mass", "width"],
        ["mass", "width", "phase", "more"],
        ["mass", "width", "Phase"],
    ):
        columns = {name: data.get(name, X[:, 0]) for name in names}
        with pytest.raises(ValueError, match="columns of the rule in their order"):
            rule.predict(kind(columns))


# --- construction --------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (([1.0], [0.0]), {}, "coef must have shape"),
        (([[1.0]], [0.0, 1.0]), {}, r"intercept must have shape \(1,\)"),
        ((np.empty((0, 2)), []), {}, "at least one cell"),
        ((np.empty((2, 0)), [0, 0]), {}, "at least one cell"),
        (([[np.nan]], [0.0]), {}, "coef must be finite"),
        (([[1.0]], [np.inf]), {}, "intercept must be finite"),
        (([[1.0]], [0.0]), {"temperature": -1.0}, "temperature must be"),
        (([[1.0]], [0.0]), {"temperature": np.nan}, "temperature must be"),
        (([[1.0]], [0.0]), {"temperature": np.inf}, "temperature must be"),
        (([[1.0]], [0.0]), {"temperature": "1"}, "temperature must be"),
        (([[1.0]], [0.0]), {"relaxation": "hard"}, "relaxation must be"),
        (([[1.0]], [0.0]), {"cell_means": [[1.0], [2.0]]}, "cell_means must have"),
        (([[1.0]], [0.0]), {"feature_names": ["a", "b"]}, "must have 1 names; got 2"),
        (([[1.0]], [0.0]), {"metadata": {"x": np.nan}}, "strict JSON"),
        (([[1.0]], [0.0]), {"metadata": {"x": object()}}, "strict JSON"),
    ],
)
def test_bad_arguments(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        AffineMaxRule(*arguments, **options)


def test_arrays_are_frozen_copies():
    coef = np.ones((2, 3))
    rule = AffineMaxRule(coef, np.zeros(2), cell_means=coef)
    coef[:] = 7
    assert (rule.coef == 1).all() and (rule.cell_means == 1).all()
    for array in (rule.coef, rule.intercept, rule.cell_means):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    assert (rule.n_bins, rule.n_features) == (2, 3)


def test_metadata_is_normalized_through_json():
    rule = random_rule(metadata={1: (2, 3)})
    assert rule.metadata == {"1": [2, 3]}


def test_repr():
    assert repr(random_rule()) == "AffineMaxRule(5 cells of 3 columns)"
    rule = AffineMaxRule([[1.0]], [0.0], temperature=0.25)
    assert repr(rule) == "AffineMaxRule(1 cells of 1 column, temperature=0.25)"


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.3},
        {"cell_means": None},
        {"feature_names": None},
        {"metadata": {}},
        {"intercept": np.zeros(5)},
        {"coef": np.zeros((5, 3))},
    ],
)
def test_equality(change):
    rule = full_rule()
    entries = {
        name: getattr(rule, name)
        for name in (
            "coef",
            "intercept",
            "temperature",
            "cell_means",
            "feature_names",
            "metadata",
        )
    }
    assert AffineMaxRule(**entries) == rule
    assert AffineMaxRule(**{**entries, **change}) != rule
    assert rule != "rule"
    with pytest.raises(TypeError, match="unhashable"):
        hash(rule)


# --- files ---------------------------------------------------------------------------


@pytest.mark.parametrize("make", [random_rule, full_rule])
def test_json_round_trip_is_exact(make, tmp_path):
    rule = make()
    rule.save(tmp_path / "rule.json")
    loaded = AffineMaxRule.load(str(tmp_path / "rule.json"))
    assert loaded == rule
    for name in ("coef", "intercept", "cell_means"):
        one, two = getattr(rule, name), getattr(loaded, name)
        assert (one is None and two is None) or one.tobytes() == two.tobytes()
    for name in ("temperature", "relaxation", "feature_names", "metadata"):
        assert getattr(loaded, name) == getattr(rule, name)
    X = table()
    assert loaded.decision_function(X).tobytes() == rule.decision_function(X).tobytes()


def test_a_file_is_strict_json(tmp_path):
    full_rule().save(tmp_path / "rule.json")
    document = json.loads((tmp_path / "rule.json").read_text("utf-8"))
    assert document == full_rule().to_dict()
    assert (document["format"], document["version"]) == ("skquant.AffineMaxRule", 1)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"version": 99}, "format version 99; this skquant reads version 1"),
        ({"version": None}, "format version None"),
        ({"format": "other"}, "does not hold a skquant.AffineMaxRule"),
        ({"extra": 1}, "lacks or adds an entry"),
        ({"coef": [[1.0, 2.0], [3.0]]}, "shape|inhomogeneous"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": True}, "numbers as temperature; got true or false"),
        ({"coef": [[True, 1.0]]}, "numbers as coef; got true or false"),
        ({"intercept": [False]}, "numbers as intercept; got true or false"),
    ],
)
def test_a_changed_file_is_refused(change, message, tmp_path):
    path = tmp_path / "rule.json"
    path.write_text(json.dumps({**full_rule().to_dict(), **change}))
    with pytest.raises(ValueError, match=message):
        AffineMaxRule.load(path)


@pytest.mark.parametrize("name", ["coef", "intercept"])
def test_a_file_that_lacks_an_entry_is_refused(name, tmp_path):
    document = full_rule().to_dict()
    del document[name]
    (tmp_path / "rule.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match=f"lacks or adds an entry.*{name}"):
        AffineMaxRule.load(tmp_path / "rule.json")


@pytest.mark.parametrize(
    "text", ["", "not json", "[1, 2]", "3", "[" * 1_000_000, '{"a": 1, "a": 1}']
)
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "rule.json").write_text(text)
    with pytest.raises(ValueError, match="is not a JSON file|does not hold"):
        AffineMaxRule.load(tmp_path / "rule.json")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol):
    rule = full_rule()
    loaded = pickle.loads(pickle.dumps(rule, protocol))
    assert loaded == rule
    assert not loaded.coef.flags.writeable
    X = table()
    assert loaded.decision_function(X).tobytes() == rule.decision_function(X).tobytes()


def test_pickle_is_small():
    rule = random_rule(64, 8, temperature=1.0, cell_means=np.ones((64, 8)))
    assert len(pickle.dumps(rule)) < 10_000


# --- deployment ----------------------------------------------------------------------

_ALONE = """
import sys
sys.modules["sklearn"] = sys.modules["scipy"] = None
import numpy as np
from skquant.rules import AffineMaxRule
rule = AffineMaxRule.load(sys.argv[1])
sys.stdout.write(repr(rule.predict(np.load(sys.argv[2])).tolist()))
"""

_IMPORTS = """
import sys
import skquant.rules
print([name for name in sys.modules if name.split(".")[0] in ("sklearn", "scipy")])
"""


def run_python(code, *arguments):
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_saved_rule_needs_numpy_only(tmp_path):
    rule, X = full_rule(), table()
    rule.save(tmp_path / "rule.json")
    np.save(tmp_path / "table.npy", X)
    output = run_python(_ALONE, tmp_path / "rule.json", tmp_path / "table.npy")
    assert json.loads(output) == rule.predict(X).tolist()


def test_import_of_the_rule_loads_no_other_package():
    assert run_python(_IMPORTS).strip() == "[]"
