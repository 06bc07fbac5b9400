"""Certificates of normal tables, d = 2 and K = 3, beside the peer's.

The peer is scorequant 0.4.0 in an environment of its own (float64)::

    python tests/benchmarks/bench_certify.py --peer /path/to/python
"""

import argparse
import os
import subprocess
import time

import numpy as np

from skquant.inspection import certify_partition

PEER = """
import dataclasses, sys, time
import numpy as np
from scorequant.certify import CertificationConfig, certify_partition
from scorequant.certify import DExchangeConfig
import scorequant as sq
n, seed = int(sys.argv[1]), int(sys.argv[2])
scores = np.random.default_rng(seed).normal(size=(n, 2))
# the incumbent, and JAX's compilation, are not the search's time
labels = sq.optimize_partition(
    scores, n_bins=3, config=sq.DExchangeConfig(seed=0)
).labels
config = CertificationConfig(max_rows=n, max_nodes=2_000_000)
certify_partition(scores[:12], n_bins=3)
start = time.perf_counter()
result = certify_partition(scores, n_bins=3, incumbent=labels, config=config)
print(time.perf_counter() - start)
print(result)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", default=os.environ.get("SKQUANT_PEER"))
    parser.add_argument("--atoms", type=int, nargs="+", default=[40, 48, 60])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--criteria", nargs="+", default=["D"])
    parser.add_argument("--time-limit", type=float, default=60.0)
    arguments = parser.parse_args()
    certify_partition(np.random.default_rng(0).normal(size=(12, 2)), 3)
    for n in arguments.atoms:
        for seed in range(arguments.seeds):
            scores = np.random.default_rng(seed).normal(size=(n, 2))
            for criterion in arguments.criteria:
                start = time.perf_counter()
                result = certify_partition(
                    scores,
                    3,
                    criterion=criterion,
                    max_nodes=10**12,
                    time_limit=arguments.time_limit,
                )
                seconds = time.perf_counter() - start
                print(
                    f"n = {n}, seed {seed}, {criterion}: {seconds:.3f} s, "
                    f"{result.status}, efficiency {result.efficiency:.9f}, gap "
                    f"{result.gap:.2e}, {result.n_nodes} nodes",
                    flush=True,
                )
            if arguments.peer and n == arguments.atoms[0]:
                output = subprocess.run(
                    [arguments.peer, "-c", PEER, str(n), str(seed)],
                    env={**os.environ, "JAX_ENABLE_X64": "1"},
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                print(f"  peer: {output.strip()}", flush=True)


if __name__ == "__main__":
    main()
