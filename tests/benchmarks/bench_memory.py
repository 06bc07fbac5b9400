"""Peak memory that a fit adds, over the size of its table, in fresh processes.

Run: env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python
tests/benchmarks/bench_memory.py
"""

import subprocess
import sys

CODE = """
import resource, sys
import numpy as np
import skquant
name, n, d, n_bins = sys.argv[1], *map(int, sys.argv[2:])
estimator = getattr(skquant, name)
X = np.random.default_rng(0).normal(size=(n, d))
options = {} if name == "IntervalQuantizer" else {"random_state": 0}
estimator(n_bins, **options).fit(X[:3000])  # what is loaded late
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
estimator(n_bins, **options).fit(X)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024 / X.nbytes)
"""


def main():
    for table in [(1_000_000, 3, 8), (1_000_000, 8, 8), (2_000_000, 2, 8)]:
        for name in ["KMeansQuantizer", "DExchangeQuantizer", "SoftVoronoiQuantizer"]:
            command = [sys.executable, "-c", CODE, name, *map(str, table)]
            output = subprocess.run(command, capture_output=True, text=True, check=True)
            print(
                f"{name:22s} {table}  {float(output.stdout):5.2f} times X", flush=True
            )


if __name__ == "__main__":
    main()
