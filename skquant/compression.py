"""Tables too large for one machine, replaced by a few thousand weighted atoms."""

from numbers import Integral

import numpy as np
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from skquant._validation import (
    FLOAT_DTYPES,
    Interval,
    check_is_fitted,
    check_weights,
    fit_context,
    rank_tolerance,
    single_threaded,
    validate_data,
)
from skquant.information import (
    cell_moments,
    informative_subspace,
    rescale,
    row_blocks,
)

__all__ = ["ScoreCompressor"]

_SAMPLE_ROWS_PER_ATOM = 16
_LLOYD_STEPS = 10


class ScoreCompressor(BaseEstimator):
    """Replace scores by the means and weights of many small cells.

    A quantizer fitted on ``atoms_`` with ``sample_weight=atom_weights_`` stands for
    a fit on all rows. Compressors of one codebook merge in any order.

    Parameters
    ----------
    n_atoms : int, default=4096
        Codewords to learn when no codebook is given; at most as many as the first
        chunk has distinct rows.
    codebook : array-like of shape (n_codewords, d), default=None
        Codewords in units of the scores. None: the first chunk's k-means centers.
    random_state : int, RandomState instance or None, default=None
        Seed of the sample and the k-means that learn a codebook.

    Attributes
    ----------
    codebook_ : ndarray of shape (n_codewords, d)
        Codewords; a row belongs to the nearest in the codewords' whitened metric.
    atoms_ : ndarray of shape (n, d)
        Mean score of each cell that has weight.
    atom_weights_ : ndarray of shape (n,)
        Total weight of each of them.
    information_ : ndarray of shape (d, d)
        Full information of all rows, per unit of total weight.
    total_weight_ : float
        Sum of the weights of all rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import ScoreCompressor
    >>> X = np.random.default_rng(0).standard_normal((1000, 2))
    >>> first = ScoreCompressor(64, random_state=0).partial_fit(X[:500])
    >>> other = ScoreCompressor(codebook=first.codebook_).partial_fit(X[500:])
    >>> first.merge(other).total_weight_
    1000.0
    """

    _parameter_constraints: dict = {
        "n_atoms": [Interval(Integral, 1, None, closed="left")],
        "codebook": [None, "array-like"],
        "random_state": ["random_state"],
    }

    def __init__(self, n_atoms=4096, codebook=None, random_state=None):
        self.n_atoms = n_atoms
        self.codebook = codebook
        self.random_state = random_state

    def fit(self, X, y=None, sample_weight=None):
        """Forget all chunks and compress one table.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights.

        Returns
        -------
        self : object
            The compressor.
        """
        before = vars(self).copy()
        for name in [each for each in before if each.endswith("_")]:
            delattr(self, name)
        try:
            return self.partial_fit(X, sample_weight=sample_weight)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    @fit_context
    @single_threaded
    def partial_fit(self, X, y=None, sample_weight=None):
        """Add a chunk of rows; the first one fixes the codebook.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores; a memory map is read a block at a time.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights.

        Returns
        -------
        self : object
            The compressor.

        Raises
        ------
        ValueError
            For scores, weights or a codebook that do not fit together.
        """
        before = vars(self).copy()
        try:
            first = not hasattr(self, "codebook_")
            X = validate_data(self, X, dtype=FLOAT_DTYPES, order="C", reset=first)
            weights = check_weights(sample_weight, X)
            if first:
                self._start(X, weights)
            self._add(X, weights)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    def _start(self, X, weights):
        if self.codebook is None:
            codebook = self._learn(X, weights)
        else:
            codebook = np.array(self.codebook, dtype=np.float64, order="C")
            if codebook.ndim != 2 or codebook.shape[1] != X.shape[1]:
                raise ValueError(
                    f"codebook must have shape (any, {X.shape[1]}); got "
                    f"{codebook.shape}."
                )
            if not len(codebook) or not np.isfinite(codebook).all():
                raise ValueError("codebook must hold finite rows, at least one.")
        self.codebook_ = codebook
        n_codewords, n_features = codebook.shape
        subspace = informative_subspace(
            codebook, np.full(n_codewords, 1 / n_codewords), 1e-10
        )
        self._scale, self._whitener = subspace.scale, subspace.whitener
        self._weights = np.zeros(n_codewords)
        self._moments = np.zeros((n_codewords, n_features))
        self._products = np.zeros((n_features, n_features))

    def _learn(self, X, weights):
        random_state = check_random_state(self.random_state)
        rows = np.flatnonzero(weights > 0)
        size = min(len(rows), _SAMPLE_ROWS_PER_ATOM * self.n_atoms)
        rows = np.sort(random_state.choice(rows, size, replace=False))
        sample = X[rows].astype(np.float64)
        shares = weights[rows] / weights[rows].sum()
        subspace = informative_subspace(sample, shares, rank_tolerance(None, X.dtype))
        points = sample @ subspace.whitener
        distinct = len(np.unique(points, axis=0))
        model = KMeans(
            min(self.n_atoms, distinct),
            init="random" if distinct > self.n_atoms else "k-means++",
            n_init=1,
            max_iter=_LLOYD_STEPS,
            random_state=random_state,
            tol=0.0,
        )
        labels = model.fit_predict(points, sample_weight=shares * size)
        sums, means = cell_moments(sample, shares, labels, model.n_clusters)
        return means[sums > 0]

    def _add(self, X, weights):
        tree = cKDTree(self.codebook_ @ self._whitener)
        n_codewords = len(self.codebook_)
        total, moments = self._weights.copy(), self._moments.copy()
        products = self._products.copy()
        for block, _ in row_blocks(len(X)):
            rows = X[block].astype(np.float64)
            labels = tree.query(rows @ self._whitener)[1]
            shares, means = cell_moments(
                rows, weights[block], labels, n_codewords, self._scale
            )
            total += shares
            moments += shares[:, None] * means
            scaled = rows / self._scale
            products += (weights[block, None] * scaled).T @ scaled
        self._weights, self._moments, self._products = total, moments, products

    def merge(self, other):
        """Add the rows of another compressor with the same codebook.

        Parameters
        ----------
        other : ScoreCompressor
            Fitted; stays as it is.

        Returns
        -------
        self : object
            The compressor, now of both.

        Raises
        ------
        ValueError
            If the codebooks differ.
        """
        check_is_fitted(self, "codebook_")
        check_is_fitted(other, "codebook_")
        if not np.array_equal(self.codebook_, other.codebook_):
            raise ValueError(
                "other must share the codebook; got codebooks of shapes "
                f"{self.codebook_.shape} and {other.codebook_.shape} that differ."
            )
        self._weights = self._weights + other._weights
        self._moments = self._moments + other._moments
        self._products = self._products + other._products
        return self

    @property
    def atoms_(self):
        """Mean score of every occupied cell, in units of the scores."""
        check_is_fitted(self, "codebook_")
        used = self._weights > 0
        return self._moments[used] / self._weights[used, None] * self._scale

    @property
    def atom_weights_(self):
        """Total weight of every occupied cell."""
        check_is_fitted(self, "codebook_")
        return self._weights[self._weights > 0]

    @property
    def total_weight_(self):
        """Total weight of the rows seen."""
        check_is_fitted(self, "codebook_")
        return float(self._weights.sum())

    @property
    def information_(self):
        """Full information of the rows seen, per unit of total weight."""
        check_is_fitted(self, "codebook_")
        return rescale(self._products / self._weights.sum(), self._scale)
