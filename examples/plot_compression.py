"""
=====================================================
A table on many workers, compressed to a few thousand
=====================================================

Each worker compresses its chunks with one codebook; the compressors merge in any
order, and a quantizer is fitted on their atoms. A thousand atoms give a rule that
keeps as much as the rule of all rows. Needs the ``dask`` extra.
"""

import matplotlib.pyplot as plt
import numpy as np
from dask.distributed import Client, LocalCluster

from skquant import DExchangeQuantizer, ScoreCompressor
from skquant.plotting import CellsDisplay

N_CHUNKS, N_ROWS, N_BINS = 8, 12_500, 12
SIZES = [32, 64, 128, 256, 1024]


def load(chunk):
    """Return the scores of one chunk: two columns, one of heavy tails."""
    rng = np.random.default_rng(chunk)
    return np.column_stack(
        [rng.standard_normal(N_ROWS), rng.standard_t(5, size=N_ROWS)]
    )


# %%
# Compress and merge
# ------------------
# The first chunk fixes the codebook, which travels to the workers with each chunk's
# number; what comes back is a weight and a mean score for each atom.
def compress(chunk, codebook):
    """Return the compressor of one chunk."""
    return ScoreCompressor(codebook=codebook).partial_fit(load(chunk))


def merged(client, n_atoms):
    """Return the compressor of all chunks, each compressed by some worker."""
    codebook = ScoreCompressor(n_atoms, random_state=0).fit(load(0)).codebook_
    parts = client.map(compress, range(N_CHUNKS), codebook=codebook)
    total, *others = client.gather(parts)
    for part in others:
        total.merge(part)
    return total


# %%
# Atoms against all rows
# ----------------------
# Rules are compared on fresh rows, of twenty chunks that nothing was fitted on. The
# rule of all rows has the whole table in memory, which the others never need.
def main():
    """Compress on two worker processes, fit on the atoms, compare and draw."""
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        compressors = [merged(client, n_atoms) for n_atoms in SIZES]
    quantizer = DExchangeQuantizer(N_BINS, n_init=4, n_swaps=10, random_state=0)
    fresh = np.vstack([load(100 + chunk) for chunk in range(20)])
    quantizer.fit(np.vstack([load(chunk) for chunk in range(N_CHUNKS)]))
    whole = quantizer.score(fresh)
    print(f"{len(quantizer.labels_):7d} rows   D retention of fresh rows {whole:.4f}")
    kept = []
    for total in compressors:
        quantizer.fit(total.atoms_, sample_weight=total.atom_weights_)
        kept.append(quantizer.score(fresh))
        print(f"{len(total.atoms_):7d} atoms  D retention of fresh rows {kept[-1]:.4f}")

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10.5, 4.5), layout="constrained", width_ratios=[1.2, 1]
    )
    left.plot(SIZES, kept, "o-", color="#0072B2")
    left.axhline(whole, color="black", linestyle="--")
    left.text(34, whole - 1e-4, f"rule of all {N_CHUNKS * N_ROWS} rows", va="top")
    left.text(200, kept[0], "rules of atoms", color="#0072B2")
    left.set(xscale="log", xlabel="atoms", ylabel="D retention of fresh rows")
    left.set_xticks(SIZES, [str(each) for each in SIZES])
    left.set_ylim(top=whole + 0.1 * (whole - kept[0]))
    left.minorticks_off()
    left.grid(alpha=0.3)
    left.set_title("What a rule fitted on atoms keeps")
    CellsDisplay.from_estimator(
        quantizer,
        compressors[-1].atoms_,
        sample_weight=compressors[-1].atom_weights_,
        limits=[(-4, 4), (-6, 6)],
        ax=right,
    )
    right.set_title(f"{SIZES[-1]} atoms, by weight, in {N_BINS} cells")
    plt.savefig("plot_compression.png", dpi=110)


if __name__ == "__main__":
    main()
