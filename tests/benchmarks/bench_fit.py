"""Ratios of fit times in one run: exchange over its start, and the peer over skquant.

The peer is scorequant 0.4.0 in an environment of its own (Python >= 3.12, second call
in its process, float64); without one the comparison is left out and said so::

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python tests/benchmarks/bench_fit.py \
        --peer /path/to/python --json bench_fit.json
"""

import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

PEER = """
import sys, time, warnings
import numpy as np
import scorequant as sq
warnings.simplefilter("ignore")
path, n_bins, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
scores = np.load(path)
for call in range(2):
    start = time.perf_counter()
    if kind == "exchange":
        fit = sq.optimize_partition(
            scores, n_bins=n_bins, config=sq.DExchangeConfig(seed=0)
        )
    else:
        fit = sq.fit_quantizer(
            sq.ScoreSample(scores), n_bins=n_bins, criterion=sq.DOptimality(),
            config=sq.SoftVoronoiConfig(
                seed=0, initializer_restarts=4, max_iter=300, record_every=25
            ),
        )
    retention = float(fit.train_report.geometric_mean_retention)
    seconds = time.perf_counter() - start
print(seconds, retention)
"""


def normal_scores(n, d, seed=142):
    """Correlated normal scores, the recipe of the reference instances."""
    mixing = np.array(
        [
            [
                1 + 0.1 * i if i == j else (j > i) * 0.5 / (1 + abs(j - i))
                for j in range(d)
            ]
            for i in range(d)
        ]
    )
    return np.random.default_rng(seed).normal(size=(n, d)) @ mixing


def exchange_over_start(n, d, n_bins, repeats):
    """Median seconds of a k-means start and of the exchange that follows it."""
    from skquant import DOptimality
    from skquant._validation import single_threaded
    from skquant.solvers._exchange import exchange
    from skquant.solvers._problem import build_problem
    from skquant.solvers._seeding import kmeans_start

    @single_threaded
    def run():
        problem, _ = build_problem(
            normal_scores(n, d),
            np.ones(n),
            DOptimality(),
            1e-10,
            np.random.RandomState(0),
        )
        times = []
        for seed in range(repeats):
            start = time.perf_counter()
            labels, _, _ = kmeans_start(problem, n_bins, np.random.RandomState(seed))
            middle = time.perf_counter()
            exchange(problem, labels, n_bins)
            times.append((middle - start, time.perf_counter() - middle))
        return np.median(times, axis=0)

    return run()


def against_peer(n, d, n_bins, kind, peer, repeats):
    """Alternate the two programs; return median seconds and retention of each."""
    from skquant import DExchangeQuantizer, SoftVoronoiQuantizer

    scores = normal_scores(n, d)
    path = f"/tmp/skquant_bench_{n}_{d}.npy"
    np.save(path, scores)
    estimator = DExchangeQuantizer if kind == "exchange" else SoftVoronoiQuantizer
    ours, theirs = [], []
    estimator(n_bins, random_state=0).fit(scores)
    for _ in range(repeats):
        command = [peer, "-c", PEER, path, str(n_bins), kind]
        environment = {**os.environ, "JAX_ENABLE_X64": "1"}
        output = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout
        theirs.append([float(word) for word in output.split()])
        start = time.perf_counter()
        fitted = estimator(n_bins, random_state=0).fit(scores)
        ours.append([time.perf_counter() - start, fitted.retention_])
    os.remove(path)
    return np.median(ours, axis=0), np.median(theirs, axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=os.environ.get("SKQUANT_PEER"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="the peer at K = 64 too")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    rows = []
    for table in [(20000, 3, 8), (20000, 8, 64)]:
        start, exchanged = exchange_over_start(*table, arguments.repeats)
        rows.append({"job": "exchange / k-means start", "table": table})
        rows[-1].update(ratio=exchanged / start, seconds=exchanged)
        print(f"{rows[-1]['job']:26s} {table}  ratio {exchanged / start:6.2f}")
    jobs = [("exchange", (1200, 2, 4)), ("exchange", (20000, 3, 8))]
    jobs += [("soft", (20000, 3, 8))]
    if arguments.large:
        jobs += [("exchange", (20000, 8, 64)), ("soft", (20000, 8, 64))]
    if not arguments.peer:
        print("no peer given: its comparison is left out", file=sys.stderr)
        jobs = []
    for kind, table in jobs:
        ours, theirs = against_peer(*table, kind, arguments.peer, arguments.repeats)
        rows.append({"job": f"peer {kind} / ours", "table": table})
        rows[-1].update(ratio=theirs[0] / ours[0], seconds=ours[0])
        rows[-1].update(retention=ours[1], peer_retention=theirs[1])
        print(
            f"{rows[-1]['job']:26s} {table}  ratio {theirs[0] / ours[0]:6.2f}  "
            f"({theirs[0]:.2f} s / {ours[0]:.3f} s), retention {ours[1]:.6f} against "
            f"{theirs[1]:.6f}",
            flush=True,
        )
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
