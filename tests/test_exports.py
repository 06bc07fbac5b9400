"""The exported rule gives the labels of predict, wherever it runs."""

import contextlib
import ctypes
import json
import pickle
import sqlite3
import subprocess
import sys

import duckdb
import numpy as np
import onnxruntime
import pandas as pd
import pytest

from skquant import AffineMaxRule, SoftVoronoiQuantizer


def make_rule(n_bins, n_features, temperature=None):
    rng = np.random.default_rng(n_bins)
    coef = rng.standard_normal((n_bins, n_features))
    return AffineMaxRule(
        coef, -(coef**2).sum(axis=1) / 2, temperature=temperature, cell_means=coef
    )


def tables(n_features, n_rows):
    rng = np.random.default_rng(1)
    plain = rng.standard_normal((n_rows, n_features))
    sizes = 10.0 ** rng.uniform(-30, 30, (2000, n_features))
    return [plain, sizes * rng.choice([-1.0, 1.0], sizes.shape)]


TIES = AffineMaxRule([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0.0, 0.0, 0.0])
TIE_ROWS = np.array([[1.0, 1.0], [0.0, 0.0], [-1.0, 0.0], [2.0, -2.0]])
RULES = [make_rule(7, 3), make_rule(1, 2)]


def in_c(rule, X, folder):
    source, library = folder / "rule.c", folder / f"rule{rule.n_bins}.so"
    source.write_text(rule.to_c("cell"))
    subprocess.run(
        ["cc", "-std=c99", "-O3", "-Wall", "-Werror", "-pedantic", "-shared", "-fPIC"]
        + ["-o", library, source],
        check=True,
    )
    cell = ctypes.CDLL(str(library)).cell
    pointers = X.ctypes.data + X.strides[0] * np.arange(len(X))
    return np.array([cell(ctypes.c_void_p(int(each))) for each in pointers])


def in_sqlite(rule, X, folder):
    names = [f'x "{j}' for j in range(rule.n_features)]
    quoted = ", ".join('"' + name.replace('"', '""') + '" REAL' for name in names)
    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.execute(f"CREATE TABLE scores ({quoted})")
        marks = ", ".join("?" * rule.n_features)
        base.executemany(f"INSERT INTO scores VALUES ({marks})", X.tolist())
        query = f"SELECT {rule.to_sql(names)} FROM scores ORDER BY rowid"
        return np.array(base.execute(query).fetchall())[:, 0]


def in_duckdb(rule, X, folder):
    names = [f'x "{j}' for j in range(rule.n_features)]
    table = pd.DataFrame(X, columns=names)
    table["row"] = np.arange(len(X))
    with duckdb.connect() as base:
        base.register("scores", table)
        query = f'SELECT {rule.to_sql(names)} AS label FROM scores ORDER BY "row"'
        return base.execute(query).fetchnumpy()["label"]


def in_onnx(rule, X, folder):
    path = folder / "rule.onnx"
    rule.to_onnx(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["label"], {"scores": X})[0]


def in_json(rule, X, folder):
    rule.save(folder / "rule.json")
    return AffineMaxRule.load(folder / "rule.json").predict(X)


@pytest.mark.parametrize("run", [in_c, in_sqlite, in_duckdb, in_onnx, in_json])
def test_labels_agree_with_predict(run, tmp_path):
    for rule in RULES:
        for X in tables(rule.n_features, 100_000):
            np.testing.assert_array_equal(run(rule, X, tmp_path), rule.predict(X))
    np.testing.assert_array_equal(run(TIES, TIE_ROWS, tmp_path), [0, 0, 2, 0])


def test_onnx_responsibilities():
    rule = make_rule(5, 2, temperature=0.3)
    X = tables(2, 1000)[0]
    model = rule.to_onnx().SerializeToString()
    session = onnxruntime.InferenceSession(model)
    labels, proba = session.run(["label", "responsibilities"], {"scores": X})
    np.testing.assert_array_equal(labels, rule.predict(X))
    np.testing.assert_allclose(proba, rule.predict_proba(X), rtol=1e-12, atol=1e-15)


def test_sizes(tmp_path):
    rule = make_rule(64, 8, temperature=0.1)
    rule.save(tmp_path / "rule.json")
    assert len(pickle.dumps(rule)) < 12_000
    assert (tmp_path / "rule.json").stat().st_size < 24_000


def test_errors():
    rule = make_rule(3, 2)
    with pytest.raises(ValueError, match="name must be a C identifier; got '1x'"):
        rule.to_c("1x")
    with pytest.raises(ValueError, match="columns must have 2 names; got 1"):
        rule.to_sql(["a"])
    with pytest.raises(ValueError, match="columns must be a list"):
        rule.to_sql()


@pytest.mark.parametrize(
    "options", [{"temperature": 0.0}, {"temperature": 0.3, "relaxation": "sparsemax"}]
)
def test_onnx_of_other_soft_rules_has_labels_only(options, tmp_path):
    hard = make_rule(5, 2)
    rule = AffineMaxRule(hard.coef, hard.intercept, **options)
    X = tables(2, 1000)[0]
    np.testing.assert_array_equal(in_onnx(rule, X, tmp_path), rule.predict(X))
    assert [each.name for each in rule.to_onnx().graph.output] == ["label"]


def test_pickle_loads_where_importing_scikit_learn_fails(tmp_path):
    X = np.random.default_rng(0).standard_normal((500, 2))
    rule = SoftVoronoiQuantizer(4, n_init=1, random_state=0).fit(X).rule_
    (tmp_path / "rule.pickle").write_bytes(pickle.dumps(rule))
    np.save(tmp_path / "scores.npy", X)
    code = (
        "import json, pickle, sys\n"
        "for name in ('sklearn', 'scipy', 'joblib'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "rule = pickle.load(open('rule.pickle', 'rb'))\n"
        "print(json.dumps(rule.predict(np.load('scores.npy')).tolist()))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == rule.predict(X).tolist()
