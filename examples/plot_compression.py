"""
=====================================================
A table on many workers, compressed to a few thousand
=====================================================

Each worker compresses its chunks with one codebook; the compressors merge in any
order, and a quantizer is fitted on their atoms. Needs the ``dask`` extra.
"""

import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster

from skquant import DExchangeQuantizer, ScoreCompressor

# %%
# One codebook, from the first chunk
# ----------------------------------
N_CHUNKS, N_ROWS = 8, 20_000


def load(chunk):
    """Return the scores of one chunk."""
    return np.random.default_rng(chunk).standard_normal((N_ROWS, 2))


codebook = ScoreCompressor(1024, random_state=0).fit(load(0)).codebook_


# %%
# Compress and merge
# ------------------
def compress(chunk):
    """Return the compressor of one chunk."""
    return ScoreCompressor(codebook=codebook).partial_fit(load(chunk))


def main():
    """Compress on two worker processes, fit and draw."""
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        parts = client.gather(client.map(compress, range(N_CHUNKS)))
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    quantizer = DExchangeQuantizer(6, random_state=0)
    quantizer.fit(total.atoms_, sample_weight=total.atom_weights_)
    retention = quantizer.score(load(N_CHUNKS))
    print(f"{total.total_weight_:.0f} rows, {len(total.atoms_)} atoms")
    print(f"D retention on fresh rows: {retention:.4f}")
    plt.scatter(*total.atoms_.T, c=quantizer.labels_, s=6, cmap="tab10")
    plt.title("Atoms and their cells")
    plt.savefig("plot_compression.png", dpi=110)


if __name__ == "__main__":
    main()
