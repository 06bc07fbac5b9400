"""Compressors: chunks, merges, exact totals, and what the atoms are good for."""

import os

import joblib
import numpy as np
import pandas as pd
import pytest
from dask.distributed import Client, LocalCluster
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans

from skquant import DExchangeQuantizer, ScoreCompressor


def table(n_rows, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)) @ np.triu(
        np.ones((n_features, n_features))
    )
    return X, rng.exponential(size=n_rows)


@pytest.mark.parametrize("n_features", [3, 10])  # a tree of codewords, and none
def test_chunks_merges_and_one_pass_agree(n_features):
    X, weights = table(5000, n_features)
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


@pytest.mark.parametrize("n_features", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_fit_on_atoms_is_the_fit_on_all_rows_on_fresh_rows(n_features, seed):
    # skewed columns: one optimum, unlike round laws with a circle of them
    rng = np.random.default_rng(seed)
    X, fresh = rng.exponential(size=(2, 20_000, n_features)) @ np.triu(
        np.ones((n_features, n_features))
    )
    atoms = ScoreCompressor(random_state=seed).fit(X - 0.5)
    full = DExchangeQuantizer(4, random_state=seed).fit(X - 0.5)
    small = DExchangeQuantizer(4, random_state=seed).fit(
        atoms.atoms_, sample_weight=atoms.atom_weights_
    )
    assert len(atoms.atoms_) < 4097
    assert small.score(fresh - 0.5) == pytest.approx(full.score(fresh - 0.5), abs=1e-3)


@pytest.mark.parametrize("n_features", [3, 10])
def test_learned_codebook_is_no_worse_than_k_means(n_features):
    X, _ = table(6000, n_features)
    fresh, _ = table(6000, n_features, seed=1)
    compressor = ScoreCompressor(300, random_state=0).fit(X)
    whitener = np.linalg.inv(np.linalg.cholesky(X.T @ X / len(X))).T
    model = KMeans(300, n_init=1, max_iter=10, tol=0, random_state=0)
    peer = model.fit(X[:4800] @ whitener).cluster_centers_

    def distortion(codebook):
        return cdist(fresh @ whitener, codebook, "sqeuclidean").min(axis=1).mean()

    assert len(compressor.codebook_) == 300
    ours = distortion(compressor.codebook_ @ whitener)
    assert ours < 1.03 * distortion(peer)


def test_few_distinct_rows_are_their_own_codewords():
    X = np.repeat([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]], 5, axis=0)
    compressor = ScoreCompressor(10, random_state=0).fit(X)
    atoms = np.unique(compressor.atoms_, axis=0)
    np.testing.assert_allclose(atoms, np.unique(X, axis=0), rtol=1e-15)
    np.testing.assert_array_equal(compressor.atom_weights_, [5.0, 5.0, 5.0])
    # weights that underflow as shares are drawn never, and stop no draw
    weights = np.where(np.arange(200) < 2, 1.0, 1e-320)
    rows, _ = table(200)
    few = ScoreCompressor(100, random_state=0).fit(rows, sample_weight=weights)
    assert 2 <= len(few.codebook_) <= 100


def test_merge_compares_feature_names():
    X, _ = table(50, 2)
    first = ScoreCompressor(codebook=X[:5]).fit(pd.DataFrame(X, columns=["a", "b"]))
    for names in (["b", "a"], None):
        rows = X if names is None else pd.DataFrame(X, columns=names)
        other = ScoreCompressor(codebook=X[:5]).fit(rows)
        with pytest.raises(ValueError, match=r"names; got \['a', 'b'\] and"):
            first.merge(other)
    assert first.total_weight_ == 50


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


def test_dask_workers_give_the_atoms_of_one_process():
    X, _ = table(4000)
    whole = ScoreCompressor(50, random_state=0).fit(X)
    codebook = whole.codebook_

    def compress(rows):
        part = ScoreCompressor(codebook=codebook).partial_fit(rows)
        return part, os.getpid()

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    )
    with cluster, Client(cluster) as client:
        futures = client.map(compress, np.array_split(X, 4))
        parts, processes = zip(*client.gather(futures), strict=True)
    assert os.getpid() not in processes
    assert len(set(processes)) == 2
    merged = parts[0]
    for part in parts[1:]:
        merged.merge(part)
    np.testing.assert_allclose(merged.atoms_, whole.atoms_, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(merged.atom_weights_, whole.atom_weights_)


def test_restarts_on_dask_give_the_fit_of_one_process():
    X, _ = table(2000)
    options = {"n_bins": 4, "n_init": 4, "random_state": 0}
    alone = DExchangeQuantizer(**options).fit(X)
    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
    )
    with cluster, Client(cluster), joblib.parallel_backend("dask"):
        there = DExchangeQuantizer(**options, n_jobs=2).fit(X)
        assert cluster.scheduler.transition_counter >= options["n_init"]
    np.testing.assert_array_equal(there.labels_, alone.labels_)
