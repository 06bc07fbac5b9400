"""(1e6, 3) through 4096 atoms: seconds, retention on fresh rows, peak memory."""

import resource
import tempfile
from pathlib import Path
from time import perf_counter

import numpy as np

from skquant import DExchangeQuantizer, ScoreCompressor


def peak_megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    rng = np.random.default_rng(0)
    mixing = np.triu(np.ones((3, 3)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "scores.npy")
        table = np.lib.format.open_memmap(path, "w+", shape=(1_000_000, 3))
        for start in range(0, len(table), 10_000):
            table[start : start + 10_000] = rng.standard_normal((10_000, 3)) @ mixing
        table.flush()
        X = np.load(path, mmap_mode="r")
        before, start = peak_megabytes(), perf_counter()
        compressor = ScoreCompressor(4096, random_state=0).fit(X)
        print(f"compress: {perf_counter() - start:.2f} s, peak +", end="")
        print(f"{peak_megabytes() - before:.0f} MB, mapped pages (24 MB) included")
        fresh = rng.standard_normal((200_000, 3)) @ mixing
        quantizer = DExchangeQuantizer(8, random_state=0)
        scores = {}
        for name, rows, weights in (
            ("atoms", compressor.atoms_, compressor.atom_weights_),
            ("all rows", X, None),
        ):
            start = perf_counter()
            quantizer.fit(rows, sample_weight=weights)
            seconds = perf_counter() - start
            scores[name] = quantizer.score(fresh)
            print(f"fit on {name}: {seconds:.2f} s, fresh D {scores[name]:.6f}")
        start = perf_counter()
        quantizer.predict(fresh)
        print(f"predict: {len(fresh) / (perf_counter() - start):.3g} rows a second")
        print(f"difference {scores['atoms'] - scores['all rows']:+.2e}")


if __name__ == "__main__":
    main()
