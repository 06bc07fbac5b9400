"""Ratios of times against other programs, growth with the table, visits and memory.

Each comparison alternates the two programs in one run, with a new seed for both in each
repetition, and prints the ratio of their median times, the medians of how good the
results are, and the mean of their difference with its standard error. One seed is luck,
and so is one table: the peer gets a new table each time, too. Programs that are not
installed are left out and said so: scikit-learn's KMeans is always there, kmeans1d,
ckwrap and faiss are imported where they can be, and scorequant 0.4.0 needs a Python >=
3.12 of its own, whose second call counts::

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE \
        python tests/benchmarks/bench_speed.py --peer PYTHON --json bench_speed.json

``--only`` names the parts to run. ``--first`` is a directory into which the first
version with ``purify`` was installed (``pip install --target``), for its comparison.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from unittest import mock

import numpy as np

PEER = """
import sys, time, warnings
import numpy as np
import scorequant as sq
warnings.simplefilter("ignore")
path, n_bins, kind, seed = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
scores = np.load(path)
for call in range(2):
    start = time.perf_counter()
    if kind == "exchange":
        fit = sq.optimize_partition(
            scores, n_bins=n_bins, config=sq.DExchangeConfig(seed=seed)
        )
    else:
        fit = sq.fit_quantizer(
            sq.ScoreSample(scores), n_bins=n_bins, criterion=sq.DOptimality(),
            config=sq.SoftVoronoiConfig(
                seed=seed, initializer_restarts=4, max_iter=300, record_every=25
            ),
        )
    retention = float(fit.train_report.geometric_mean_retention)
    seconds = time.perf_counter() - start
print(seconds, retention)
"""

PURIFY = """
import sys, time
import numpy as np
from skquant.purification import purify
scores, shares = np.load(sys.argv[1]), np.load(sys.argv[2])
times = []
for _ in range(5):
    start = time.perf_counter()
    result = purify(scores, shares)
    times.append(time.perf_counter() - start)
print(np.median(times), abs(result.weight_residual).max() / len(scores))
"""


def normal_scores(n, d, seed=142):
    """Correlated normal scores, the recipe of the reference instances."""
    i, j = np.indices((d, d))
    mixing = np.where(i == j, 1 + 0.1 * i, (j > i) * 0.5 / (1 + abs(j - i)))
    return np.random.default_rng(seed).normal(size=(n, d)) @ mixing


def student_scores(n, d, seed=142):
    """Scores with the heavy tails of five degrees of freedom."""
    return np.random.default_rng(seed).standard_t(5, size=(n, d))


def whitened(scores):
    """Scores whose full information is the identity."""
    information = scores.T @ scores / len(scores)
    return scores @ np.linalg.inv(np.linalg.cholesky(information)).T


def timed(call):
    # threads of OpenMP spin for a while after the last call
    time.sleep(0.05)
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def output_of(python, code, *arguments, **environment):
    """Numbers that a program prints, run in a process of its own."""
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        cwd=tempfile.gettempdir(),  # what is installed, not what lies here
        capture_output=True,
        text=True,
        check=True,
    )
    return [float(word) for word in done.stdout.split()]


class Report:
    """Rows of results, printed as they come."""

    def __init__(self):
        self.rows = []

    def add(self, job, table, **values):
        self.rows.append({"job": job, "table": table, **values})
        words = "  ".join(f"{name} {value:.6g}" for name, value in values.items())
        print(f"{job:34s} {table!s:18s} {words}", flush=True)

    def compare(self, job, table, ours, theirs, repeats):
        """Alternate two calls that return seconds and a figure of the result of a
        seed."""
        ours(0)
        pairs = np.array([[theirs(seed), ours(seed)] for seed in range(repeats)])
        seconds, figures = np.median(pairs, axis=0).T
        gains = pairs[:, 1, 1] - pairs[:, 0, 1]
        difference = {"mean_gain": gains.mean()}
        if repeats > 1:
            difference["error"] = np.std(gains, ddof=1) / np.sqrt(repeats)
        self.add(
            job,
            table,
            ratio=seconds[0] / seconds[1],
            seconds=seconds[1],
            other_seconds=seconds[0],
            figure=figures[1],
            other_figure=figures[0],
            **difference,
        )


def fitted(quantizer, scores, figure="retention_", **options):
    """Seconds of a fit with a seed, and a figure of it."""

    def run(seed):
        quantizer.set_params(random_state=seed)
        seconds, result = timed(lambda: quantizer.fit(scores, **options))
        return seconds, getattr(result, figure)

    return run


def second_call(run):
    """The second of two calls, as of the peer: the first finds the caches cold."""

    def twice(seed):
        run(seed)
        return run(seed)

    return twice


def against_peer(report, peer, repeats):
    """D by exchange and by annealing against scorequant; figures are retentions."""
    from skquant import DExchangeQuantizer, SoftVoronoiQuantizer

    if not peer:
        print("no --peer: scorequant is left out", file=sys.stderr)
        return
    jobs = [
        ("exchange", DExchangeQuantizer, table)
        for table in [(1200, 2, 4), (20000, 3, 8), (100000, 3, 8), (20000, 8, 64)]
    ]
    jobs += [
        ("soft", SoftVoronoiQuantizer, table)
        for table in [(20000, 3, 8), (20000, 8, 64)]
    ]
    for kind, estimator, (n, d, n_bins) in jobs:

        def ours(seed, estimator=estimator, n=n, d=d, n_bins=n_bins):
            scores = normal_scores(n, d, 142 + seed)
            return second_call(fitted(estimator(n_bins), scores))(seed)

        def theirs(seed, kind=kind, n=n, d=d, n_bins=n_bins):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "scores.npy")
                np.save(path, normal_scores(n, d, 142 + seed))
                options = path, n_bins, kind, seed
                return output_of(peer, PEER, *options, JAX_ENABLE_X64="1")

        # a pair takes minutes at 64 cells
        report.compare(
            f"{kind} / scorequant",
            (n, d, n_bins),
            ours,
            theirs,
            repeats if n_bins < 64 else 1,
        )


def against_kmeans(report, repeats):
    """Fits of a large table against KMeans and faiss; figures are D retentions and
    inertias."""
    from sklearn.cluster import KMeans

    from skquant import DExchangeQuantizer, KMeansQuantizer
    from skquant.information import information_report

    n, d, n_bins = table = (1_000_000, 3, 8)
    scores = normal_scores(n, d)
    white = whitened(scores)

    def kmeans(seed):
        return timed(lambda: KMeans(n_bins, n_init=8, random_state=seed).fit(white))

    def retention(seed):
        seconds, fit = kmeans(seed)
        return seconds, information_report(scores, fit.labels_).geometric_mean

    def inertia(seed):
        seconds, fit = kmeans(seed)
        return seconds, fit.inertia_

    exchange = fitted(DExchangeQuantizer(n_bins), scores)
    report.compare("exchange / KMeans", table, exchange, retention, repeats)
    ours = fitted(KMeansQuantizer(n_bins), scores, "inertia_")
    report.compare("k-means / KMeans", table, ours, inertia, repeats)
    faiss = optional("faiss")
    if faiss is not None:
        single = np.ascontiguousarray(white, dtype=np.float32)

        def faiss_inertia(seed):
            fit = faiss.Kmeans(d, n_bins, niter=300, nredo=8, seed=1 + seed)
            # all rows, where it would take a part
            fit.cp.max_points_per_centroid = n
            seconds, _ = timed(lambda: fit.train(single))
            _, labels = fit.index.search(single, 1)
            offsets = white - fit.centroids[labels[:, 0]]
            return seconds, np.sum(offsets**2)

        report.compare("k-means / faiss", table, ours, faiss_inertia, repeats)


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"{name} is not installed and left out", file=sys.stderr)
        return None


def intervals(report, repeats):
    """Intervals of a scalar against kmeans1d, which takes no weights, and ckwrap;
    figures are sums of squares, weighted but for kmeans1d's."""
    from skquant import IntervalQuantizer

    n, n_bins = 1_000_000, 16
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=n), rng.exponential(size=n)

    def squares(labels, weights):
        sums = np.bincount(labels, weights * values) ** 2
        return weights @ values**2 - np.sum(sums / np.bincount(labels, weights))

    def ours(weights):
        quantizer = IntervalQuantizer(n_bins)
        seconds, _ = timed(
            lambda: quantizer.fit(values[:, None], sample_weight=weights)
        )
        return seconds, squares(quantizer.labels_, weights)

    def with_kmeans1d(_):
        seconds, fit = timed(lambda: kmeans1d.cluster(values, n_bins))
        return seconds, squares(np.array(fit.clusters), np.ones(n))

    def with_ckwrap(_):
        seconds, fit = timed(lambda: ckwrap.ckmeans(values, n_bins, weights=weights))
        return seconds, squares(np.array(fit.labels), weights)

    table = (n, 1, n_bins)
    kmeans1d, ckwrap = optional("kmeans1d"), optional("ckwrap")
    if kmeans1d is not None:
        report.compare(
            "interval / kmeans1d",
            table,
            lambda _: ours(weights),
            with_kmeans1d,
            repeats,
        )
    if ckwrap is not None:
        report.compare(
            "interval / ckwrap", table, lambda _: ours(weights), with_ckwrap, repeats
        )


def predictions(report, repeats):
    """Labels of a large table against KMeans; figures are shares of equal labels."""
    from sklearn.cluster import KMeans

    from skquant import AffineMaxRule

    for d, n_bins in [(3, 8), (8, 64)]:
        scores = normal_scores(1_000_000, d)
        kmeans = KMeans(n_bins, init=scores[:n_bins], n_init=1, max_iter=1)
        kmeans.fit(scores[:10_000])
        centers = kmeans.cluster_centers_
        rule = AffineMaxRule(2.0 * centers, -np.sum(centers**2, axis=1))
        agree = np.mean(rule.predict(scores) == kmeans.predict(scores))
        report.compare(
            "predict / KMeans",
            (len(scores), d, n_bins),
            lambda _, rule=rule, scores=scores, agree=agree: (
                timed(lambda: rule.predict(scores))[0],
                agree,
            ),
            lambda _, kmeans=kmeans, scores=scores: (
                timed(lambda: kmeans.predict(scores))[0],
                1.0,
            ),
            5 * repeats,
        )


def purification(report, first, repeats):
    """Purification against its first version; figures are residuals of weights."""
    if not first:
        print("no --first: the first purify is left out", file=sys.stderr)
        return
    scores = normal_scores(20_000, 3)
    centers = scores[:8]
    squares = np.sum((scores[:, None] - centers) ** 2, axis=2)
    for temperature in (0.3, 1.0):
        shares = np.exp(
            -(squares - squares.min(axis=1, keepdims=True)) / (2.0 * temperature**2)
        )
        shares /= shares.sum(axis=1, keepdims=True)
        with tempfile.TemporaryDirectory() as folder:
            paths = [
                os.path.join(folder, name) for name in ("scores.npy", "shares.npy")
            ]
            for path, array in zip(paths, (scores, shares), strict=True):
                np.save(path, array)
            report.compare(
                f"purify {temperature} / its first version",
                (20_000, 3, 8),
                lambda _, paths=paths: output_of(sys.executable, PURIFY, *paths),
                lambda _, paths=paths: output_of(
                    sys.executable, PURIFY, *paths, PYTHONPATH=first
                ),
                repeats,
            )


def visits(report, _):
    """How often a default D fit looks at a row of the whole table."""
    from skquant import DOptimality
    from skquant.solvers import _search
    from skquant.solvers._assignment import nearest_cell
    from skquant.solvers._problem import build_problem

    n, d, n_bins = 1_000_000, 3, 8
    for name, scores in [
        ("normal", normal_scores(n, d)),
        ("t5", student_scores(n, d)),
    ]:
        problem, _ = build_problem(
            scores, np.ones(n), DOptimality(), 1e-10, np.random.RandomState(0)
        )
        visits = []
        for seed in range(8):
            seen = []
            spies = {
                "exchange": spied(_search.exchange, n, seen),
                "nearest_cell": spied(nearest_cell, n, seen),
            }
            with mock.patch.multiple(_search, **spies):
                _search.search_partition(
                    problem, n_bins, np.random.RandomState(seed), n_init=8, n_swaps=20
                )
            visits.append(sum(seen) / n)
        report.add(
            f"visits a row, {name}",
            (n, d, n_bins),
            median=np.median(visits),
            most=max(visits),
        )


def spied(function, n, seen):
    """Note how many rows of a table of n a function of the search looks at."""

    def call(problem_or_points, *arguments, **options):
        result = function(problem_or_points, *arguments, **options)
        if len(getattr(problem_or_points, "points", problem_or_points)) == n:
            seen.append(getattr(result, "n_visits", n))
        return result

    return call


def growth(report, repeats, largest):
    """Exponents of time a row over n, and of time over d and K."""
    from skquant import DExchangeQuantizer

    def seconds(n, d, n_bins):
        scores = normal_scores(n, d)
        quantizer = DExchangeQuantizer(n_bins, random_state=0)
        return np.median(
            [timed(lambda: quantizer.fit(scores))[0] for _ in range(repeats)]
        )

    sizes = [n for n in (10**4, 10**5, 10**6, 10**7) if n <= largest]
    for name, tables, by_row in [
        ("n", [(n, 3, 8) for n in sizes], True),
        ("d", [(50_000, d, 32) for d in (2, 4, 8, 16)], False),
        ("K", [(50_000, 4, n_bins) for n_bins in (8, 16, 32, 64)], False),
    ]:
        axis = {"n": 0, "d": 1, "K": 2}[name]
        times = []
        for table in tables:
            times.append(seconds(*table) / (table[0] if by_row else 1))
            report.add(f"growth over {name}", table, seconds=times[-1])
        arguments = [table[axis] for table in tables]
        exponent = np.polyfit(np.log(arguments), np.log(times), 1)[0]
        report.add(f"exponent over {name}", "", exponent=exponent)


# What is loaded late is loaded before; the peak of a process is at least its parent's.
MEMORY = """
import sys, tracemalloc
import numpy as np
import skquant
name, n, d, n_bins = sys.argv[1], *map(int, sys.argv[2:])
quantizer = getattr(skquant, name)(n_bins, random_state=0)
scores = np.random.default_rng(0).normal(size=(n, d))
quantizer.fit(scores[:3000])
tracemalloc.start()
quantizer.fit(scores)
print(tracemalloc.get_traced_memory()[1])
"""


def memory(report, largest):
    """What a fit allocates at its peak, beyond the table, in a process of its own."""
    for name, table in [
        ("KMeansQuantizer", (1_000_000, 3, 8)),
        ("SoftVoronoiQuantizer", (1_000_000, 8, 64)),
        ("DExchangeQuantizer", (1_000_000, 8, 8)),
        *(("DExchangeQuantizer", (n, 3, 8)) for n in (10**6, 10**7) if n <= largest),
    ]:
        (added,) = output_of(sys.executable, MEMORY, name, *table)
        size = 8 * table[0] * table[1]
        report.add(f"memory, {name}", table, MB=added / 2**20, tables=added / size)


PARTS = [
    "peer",
    "kmeans",
    "intervals",
    "predict",
    "purify",
    "visits",
    "memory",
    "growth",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=os.environ.get("SKQUANT_PEER"))
    parser.add_argument("--first", help="where the first purify is installed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--largest", type=float, default=1e7, help="largest n")
    parser.add_argument("--only", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    report = Report()
    parts = {
        "peer": lambda: against_peer(report, arguments.peer, arguments.repeats),
        "kmeans": lambda: against_kmeans(report, arguments.repeats),
        "intervals": lambda: intervals(report, arguments.repeats),
        "predict": lambda: predictions(report, arguments.repeats),
        "purify": lambda: purification(report, arguments.first, arguments.repeats),
        "visits": lambda: visits(report, arguments.repeats),
        "memory": lambda: memory(report, arguments.largest),
        "growth": lambda: growth(report, arguments.repeats, arguments.largest),
    }
    for name in arguments.only:
        parts[name]()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(report.rows, file, indent=1)


if __name__ == "__main__":
    main()
