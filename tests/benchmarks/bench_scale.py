"""Rows per second and peak memory of each step; the figures of doc/guide/scale.rst.

Each step runs in a process of its own on rows that are in memory before it starts.
"""

import ctypes
import multiprocessing
import resource
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from skquant import (
    DExchangeQuantizer,
    KMeansQuantizer,
    ScoreCompressor,
    SoftVoronoiQuantizer,
)


def table(n_rows, n_features):
    """Scores, made by blocks: a second table would hide what a step needs."""
    mixing = np.triu(np.ones((n_features, n_features)))
    rng, X = np.random.default_rng(0), np.empty((n_rows, n_features))
    for start in range(0, n_rows, 10_000):
        block = X[start : start + 10_000]
        block[:] = rng.standard_normal(block.shape) @ mixing
    return X


def rule_of(n_features):
    quantizer = KMeansQuantizer(8, n_init=1, random_state=0)
    return quantizer.fit(table(2000, n_features)).rule_


def fit(kind, **options):
    return lambda X: kind(8, random_state=0, **options).fit(X)


def compress(X):
    ScoreCompressor(4096, random_state=0).fit(X)


def predict(X):
    rule = rule_of(X.shape[1])
    return lambda: rule.predict(X)


def in_c(X):
    """A loop in C over the exported function."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "rule.c"), Path(folder, "rule.so")
        loop = (
            "void cells(const double *rows, long n, int *labels) {"
            "for (long i = 0; i < n; ++i) "
            f"labels[i] = cell(rows + {X.shape[1]} * i); }}"
        )
        source.write_text(rule_of(X.shape[1]).to_c("cell") + loop)
        command = ["cc", "-std=c99", "-O2", "-shared", "-fPIC", "-o", library, source]
        subprocess.run(command, check=True)
        cells = ctypes.CDLL(str(library)).cells
    labels = np.empty(len(X), dtype=np.int32)
    return lambda: cells(
        ctypes.c_void_p(X.ctypes.data),
        ctypes.c_long(len(X)),
        ctypes.c_void_p(labels.ctypes.data),
    )


def in_sqlite(X):
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE scores (a REAL, b REAL, c REAL)")
    rows = map(np.ndarray.tolist, X)
    base.executemany("INSERT INTO scores VALUES (?, ?, ?)", rows)
    query = f"SELECT count(*) FROM scores WHERE {rule_of(3).to_sql(list('abc'))} >= 0"
    return lambda: base.execute(query).fetchall()


def in_onnx(X):
    import onnxruntime

    model = rule_of(X.shape[1]).to_onnx().SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return lambda: session.run(["label"], {"scores": X})


STEPS = {
    "fit KMeansQuantizer": (fit(KMeansQuantizer), 1_000_000, 3),
    "fit DExchangeQuantizer": (fit(DExchangeQuantizer), 1_000_000, 3),
    "fit SoftVoronoiQuantizer": (fit(SoftVoronoiQuantizer), 200_000, 3),
    "compress": (compress, 1_000_000, 3),
    "compress, d = 8": (compress, 200_000, 8),
    "compress, d = 16": (compress, 200_000, 16),
    "predict": (predict, 4_000_000, 3),
    "C": (in_c, 4_000_000, 3),
    "ONNX": (in_onnx, 1_000_000, 3),
    "SQLite": (in_sqlite, 200_000, 3),
}


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(name):
    step, n_rows, n_features = STEPS[name]
    X = table(n_rows, n_features)
    prepared = None
    if step in (predict, in_c, in_onnx, in_sqlite):
        prepared = step(X)
    before, start = peak_megabytes(), perf_counter()
    step(X) if prepared is None else prepared()
    seconds, more = perf_counter() - start, peak_megabytes() - before
    rate, memory = n_rows / seconds, more / n_rows * 1e6
    print(f"{name:26s} {rate:9.2g} rows/s  {memory:5.0f} MB per 1e6 rows", flush=True)


def main(names):
    context = multiprocessing.get_context("spawn")
    for name in names:
        process = context.Process(target=run, args=(name,))
        process.start()
        process.join()


if __name__ == "__main__":
    main(sys.argv[1:] or STEPS)
