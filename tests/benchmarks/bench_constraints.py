"""What limits of cells cost in time and retention.

Run by hand: ``python tests/benchmarks/bench_constraints.py``. Correlated normal scores
of three columns, log-normal weights, ten groups, eight cells. The time is the median of
three runs over that of the fit without limits, in the same process.
"""

import time

import numpy as np

from skquant import (
    CellConstraints,
    DExchangeQuantizer,
    IntervalQuantizer,
    KMeansQuantizer,
    SoftVoronoiQuantizer,
)

MIXING = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])


def seconds(quantizer, repeats, X, **table):
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        quantizer.fit(X, **table)
        spent.append(time.perf_counter() - start)
    return np.median(spent)


def main():
    print(
        "   rows  quantizer                limits            seconds  times  retention"
    )
    for n, repeats in ((100_000, 3), (1_000_000, 1)):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, 3)) @ MIXING
        weights = np.exp(0.5 * rng.normal(size=n))
        groups = rng.integers(0, 10, n)
        total = weights.sum()
        limits = {
            "none": None,
            "weight 11 %": {"min_weight": 0.11 * total},
            "weight 12 %": {"min_weight": 0.12 * total},
            "error": {"max_relative_error": (0.11 * n / 1.284) ** -0.5},
            "group 10.8 %": {"min_weight_per_group": 0.0108 * total},
            "group 11.5 %": {"min_weight_per_group": 0.0115 * total},
        }
        for quantizer in (
            DExchangeQuantizer(random_state=0),
            KMeansQuantizer(random_state=0),
            SoftVoronoiQuantizer(random_state=0),
            IntervalQuantizer(),
        ):
            table = X[:, :1] if isinstance(quantizer, IntervalQuantizer) else X
            free = None
            for name, asked in limits.items():
                if asked is not None:
                    quantizer.set_params(constraints=CellConstraints(**asked))
                spent = seconds(
                    quantizer, repeats, table, sample_weight=weights, groups=groups
                )
                free = spent if free is None else free
                print(
                    f"{n:7d}  {type(quantizer).__name__:24s} {name:16s} {spent:8.2f} "
                    f"{spent / free:6.2f} {quantizer.retention_:10.6f}",
                    flush=True,
                )
            quantizer.set_params(constraints=None)


if __name__ == "__main__":
    main()
