"""Compressors: chunks, merges, exact totals, and what the atoms are good for."""

import numpy as np
import pytest
from dask.distributed import Client, LocalCluster

from skquant import DExchangeQuantizer, ScoreCompressor


def table(n_rows, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)) @ np.triu(
        np.ones((n_features, n_features))
    )
    return X, rng.exponential(size=n_rows)


def test_chunks_merges_and_one_pass_agree():
    X, weights = table(5000)
    whole = ScoreCompressor(100, random_state=0).fit(X, sample_weight=weights)
    parts = [slice(0, 700), slice(700, 3000), slice(3000, 5000)]
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        chunked = ScoreCompressor(codebook=whole.codebook_)
        merged = ScoreCompressor(codebook=whole.codebook_)
        merged.partial_fit(X[parts[order[0]]], sample_weight=weights[parts[order[0]]])
        for position, part in enumerate(order):
            rows = X[parts[part]], weights[parts[part]]
            chunked.partial_fit(rows[0], sample_weight=rows[1])
            if position:
                other = ScoreCompressor(codebook=whole.codebook_)
                merged.merge(other.partial_fit(rows[0], sample_weight=rows[1]))
        for each in (chunked, merged):
            for name in ("atoms_", "atom_weights_", "information_", "total_weight_"):
                np.testing.assert_allclose(
                    getattr(each, name), getattr(whole, name), rtol=1e-12, atol=1e-12
                )


def test_totals_and_nearest_codewords():
    X, weights = table(2000)
    book = X[:50]
    compressor = ScoreCompressor(codebook=book).fit(X, sample_weight=weights)
    inverse = np.linalg.inv(book.T @ book)
    steps = X[:, None] - book
    labels = np.einsum("nkd,de,nke->nk", steps, inverse, steps).argmin(axis=1)
    sums = np.array([weights[labels == b].sum() for b in range(50)])
    means = np.array(
        [
            np.average(X[labels == b], axis=0, weights=weights[labels == b])
            for b in range(50)
        ]
    )
    np.testing.assert_allclose(compressor.atom_weights_, sums, rtol=1e-12)
    np.testing.assert_allclose(compressor.atoms_, means, rtol=1e-10, atol=1e-12)
    information = (weights[:, None] * X).T @ X / weights.sum()
    np.testing.assert_allclose(compressor.information_, information, rtol=1e-12)
    assert compressor.total_weight_ == pytest.approx(weights.sum(), rel=1e-12)


def test_fit_on_atoms_loses_little_on_fresh_rows():
    X, _ = table(20_000)
    fresh, _ = table(20_000, seed=1)
    atoms = ScoreCompressor(2048, random_state=0).fit(X)
    options = {"n_bins": 6, "random_state": 0}  # the search at its defaults
    full = DExchangeQuantizer(**options).fit(X)
    small = DExchangeQuantizer(**options).fit(
        atoms.atoms_, sample_weight=atoms.atom_weights_
    )
    # one-sided: the coarser table often leads the search to the better optimum
    assert small.score(fresh) > full.score(fresh) - 1e-3


def test_errors_leave_the_compressor_as_it_was():
    X, _ = table(200)
    first = ScoreCompressor(20, random_state=0).fit(X)
    before = first.atoms_
    with pytest.raises(ValueError, match="other must share the codebook"):
        first.merge(ScoreCompressor(20, random_state=1).fit(X))
    with pytest.raises(ValueError, match="NaN"):
        first.partial_fit(np.full((3, 3), np.nan))
    np.testing.assert_array_equal(first.atoms_, before)
    with pytest.raises(ValueError, match=r"codebook must have shape \(any, 3\)"):
        ScoreCompressor(codebook=np.ones((4, 2))).fit(X)


def test_dask_gives_the_atoms_of_one_process():
    X, _ = table(4000)
    whole = ScoreCompressor(50, random_state=0).fit(X)

    def compress(rows):
        return ScoreCompressor(codebook=whole.codebook_).partial_fit(rows)

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    )
    with cluster, Client(cluster) as client:
        parts = client.gather(client.map(compress, np.array_split(X, 4)))
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    np.testing.assert_allclose(merged.atoms_, whole.atoms_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(merged.atom_weights_, whole.atom_weights_)
