"""Fresh profiled retention against the nuisance weight, over laws, sizes and interests.

The regret of a weight on a table is the fresh retention it gives up against the best
weight of the grid. Run: env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python
tests/benchmarks/bench_nuisance_weight.py
"""

import itertools
import warnings

import numpy as np

from skquant import DExchangeQuantizer, ProfiledDOptimality

GRID = [0.0, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, "auto"]


def law(name, n, d, rng):
    """Scores of one law; every one has correlated columns."""
    if name == "normal":
        z = rng.normal(size=(n, d))
    elif name == "student4":
        z = rng.standard_t(4, size=(n, d))
    elif name == "laplace":
        z = rng.laplace(size=(n, d))
    elif name == "shifted":
        z = rng.normal(size=(n, d)) + 1.0
    else:
        z = rng.normal(size=(n, d)) * np.exp(0.4 * rng.normal(size=(n, 1)))
    return z @ (np.eye(d) + 0.5 * np.triu(np.ones((d, d)), 1) / (1 + np.arange(d)))


def main():
    warnings.simplefilter("ignore")
    laws = ["normal", "student4", "laplace", "shifted", "scale mixture"]
    shapes = [(3, (0,)), (3, (0, 1)), (5, (0,))]
    cases = itertools.product(laws, shapes, [300, 1000, 3000], [6, 12])
    kept = []
    for number, (name, (d, interest), n, n_bins) in enumerate(cases):
        rng = np.random.default_rng(number)
        train, fresh = law(name, n, d, rng), law(name, 10_000, d, rng)
        row = []
        for weight in GRID:
            quantizer = DExchangeQuantizer(
                n_bins,
                criterion=ProfiledDOptimality(interest, weight),
                n_init=3,
                n_swaps=4,
                random_state=0,
            )
            row.append(quantizer.fit(train).score(fresh))
        kept.append(row)
    kept = np.array(kept)
    regret = kept.max(axis=1, keepdims=True) - kept
    print(f"{len(kept)} tables; fresh retention, regret mean and worst")
    for i, weight in enumerate(GRID):
        print(
            f"weight {weight!s:6s}  mean {kept[:, i].mean():.4f}  "
            f"regret {regret[:, i].mean():.4f}  worst {regret[:, i].max():.4f}"
        )


if __name__ == "__main__":
    main()
