"""Constrained nuisances: time, retention, bound, and retention of fresh rows.

Run by hand: ``python tests/benchmarks/bench_priors.py``. The law: six normal variables,
one signal score, nuisance scores of a bounded, a curved and a constant part, unit
priors, an exposure of 3000 events.
"""

import time
import warnings

import numpy as np

from skquant import DExchangeQuantizer, IntervalQuantizer, ProfiledDOptimality

# rows, nuisances, cells, and whether the exchange is run
CASES = [
    (20_000, 5, 6, True),
    (20_000, 30, 4, True),
    (20_000, 30, 12, True),
    (20_000, 100, 12, False),
    (1_000_000, 30, 12, False),
]


def nuisance_table(n, n_nuisance, seed):
    """Scores of one parameter of interest, then those of the nuisances."""
    law = np.random.default_rng(0)
    center = law.normal(size=6)
    slopes = law.normal(size=(n_nuisance, 6))
    constants = law.normal(size=n_nuisance)
    which = law.integers(0, 6, n_nuisance)
    x = np.random.default_rng(seed).normal(size=(n, 6))
    signal = np.exp(-np.sum((x - center) ** 2, axis=1) / 4)
    nuisance = np.tanh(x @ slopes.T) + 0.2 * (x[:, which] ** 2 - 1) + constants
    return np.column_stack([signal / (0.3 + signal), 0.15 * nuisance])


def main():
    print("   rows nuisances cells  solver    seconds  trained    bound    fresh")
    for n, n_nuisance, n_bins, with_exchange in CASES:
        X, fresh = (nuisance_table(m, n_nuisance, s) for m, s in ((n, 1), (50_000, 2)))
        criterion = ProfiledDOptimality(
            0, prior={j: 1.0 for j in range(1, n_nuisance + 1)}, expected_events=3000
        )
        solvers = {"interval": IntervalQuantizer(n_bins, criterion=criterion)}
        if with_exchange:
            solvers["exchange"] = DExchangeQuantizer(
                n_bins, criterion=criterion, random_state=0
            )
        for name, solver in solvers.items():
            start = time.perf_counter()
            solver.fit(X)
            seconds = time.perf_counter() - start
            bound = getattr(solver, "upper_bound_", np.nan)
            print(
                f"{n:7d} {n_nuisance:9d} {n_bins:5d}  {name}  {seconds:7.2f}  "
                f"{solver.retention_:.5f}  {bound:.5f}  {solver.score(fresh):.5f}",
                flush=True,
            )


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
