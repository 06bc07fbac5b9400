"""Import time of skquant over that of scikit-learn's KMeans, in fresh processes.

Run: env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python
tests/benchmarks/bench_import.py
"""

import subprocess
import sys
import time

import numpy as np

OURS = "from skquant import DExchangeQuantizer"
THEIRS = "from sklearn.cluster import KMeans"


def seconds(code):
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main():
    pairs = np.array([[seconds(OURS), seconds(THEIRS)] for _ in range(16)])[1:]
    ours, theirs = np.median(pairs, axis=0)
    print(f"{OURS}: {ours:.3f} s, {THEIRS}: {theirs:.3f} s, ratio {ours / theirs:.3f}")
    code = (
        "import skquant.rules, sys; "
        "print(sorted({'sklearn', 'scipy', 'joblib'} & set(sys.modules)))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    print(f"loaded by skquant.rules: {loaded.stdout.strip()}")


if __name__ == "__main__":
    main()
