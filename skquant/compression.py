"""Tables too large for one machine, replaced by a few thousand weighted atoms."""

from numbers import Integral

import numpy as np
from scipy.spatial import cKDTree
from sklearn.base import BaseEstimator
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.utils import check_random_state

from skquant._checks import (
    Interval,
    check_is_fitted,
    check_weights,
    fit_context,
    rank_tolerance,
    single_threaded,
    validate_table,
)
from skquant._moments import cell_moments, rescale, row_blocks
from skquant._table import informative_subspace
from skquant._tolerances import RANK_RTOL

__all__ = ["ScoreCompressor"]

_SAMPLE_ROWS_PER_ATOM = 16
_FIRST_CODEWORDS = 64
_LLOYD_STEPS = 5
# A tree of codewords prunes little in more columns.
_TREE_COLUMNS = 8


def _nearest(points, codewords):
    """Return the nearest codeword of each point, and the squared distance."""
    if points.shape[1] <= _TREE_COLUMNS:
        distances, labels = cKDTree(codewords).query(points)
        return labels, distances**2
    return pairwise_distances_argmin_min(points, codewords, metric="sqeuclidean")


def _draw(size, odds, room, random_state):
    """Draw distinct rows in proportion to odds: size, or as many as there can be."""
    largest = odds.max()
    if largest == 0.0:
        return np.zeros(0, dtype=np.intp)
    odds = odds / largest
    odds /= odds.sum()
    size = min(size, room, np.count_nonzero(odds))
    return random_state.choice(len(odds), size, replace=False, p=odds)


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
        Codewords in units of the scores. None: k-means centers of a random sample of
        the first chunk, of at most 16 rows an atom.
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
            X = validate_table(self, X, reset=first)
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
            codebook, np.full(n_codewords, 1 / n_codewords), RANK_RTOL
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
        _, distinct = np.unique(points, axis=0, return_index=True)
        if len(distinct) <= self.n_atoms:
            return sample[distinct]
        codewords = points[_draw(_FIRST_CODEWORDS, shares, self.n_atoms, random_state)]
        while len(codewords) < self.n_atoms:
            # k-means++ by doubling: rows in proportion to their squared distance
            odds = shares * _nearest(points, codewords)[1]
            room = self.n_atoms - len(codewords)
            rows = _draw(len(codewords), odds, room, random_state)
            if not len(rows):
                break
            codewords = np.vstack([codewords, points[rows]])
        for _ in range(_LLOYD_STEPS):
            labels, _ = _nearest(points, codewords)
            sums, means = cell_moments(points, shares, labels, len(codewords))
            codewords = means[sums > 0]
        labels, _ = _nearest(points, codewords)
        sums, means = cell_moments(sample, shares, labels, len(codewords))
        return means[sums > 0]

    def _add(self, X, weights):
        codewords = self.codebook_ @ self._whitener
        n_codewords = len(self.codebook_)
        total, moments = self._weights.copy(), self._moments.copy()
        products = self._products.copy()
        for block, _ in row_blocks(len(X)):
            rows = X[block].astype(np.float64)
            labels, _ = _nearest(rows @ self._whitener, codewords)
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
            If the codebooks or the feature names differ.

        Examples
        --------
        >>> from skquant import ScoreCompressor
        >>> first = ScoreCompressor(codebook=[[0.0], [1.0]]).partial_fit([[0.5]])
        >>> other = ScoreCompressor(codebook=[[0.0], [1.0]]).partial_fit([[2.0]])
        >>> first.merge(other).total_weight_
        2.0
        """
        check_is_fitted(self, "codebook_")
        check_is_fitted(other, "codebook_")
        if not np.array_equal(self.codebook_, other.codebook_):
            raise ValueError(
                "other must share the codebook; got codebooks of shapes "
                f"{self.codebook_.shape} and {other.codebook_.shape} that differ."
            )
        names = [list(getattr(each, "feature_names_in_", [])) for each in (self, other)]
        if names[0] != names[1]:
            raise ValueError(
                "other must share the feature names; got "
                f"{names[0] or None} and {names[1] or None}."
            )
        self._weights = self._weights + other._weights
        self._moments = self._moments + other._moments
        self._products = self._products + other._products
        return self

    @property
    def atoms_(self):
        """Mean score of every occupied cell, in units of the scores.

        Examples
        --------
        >>> from skquant import ScoreCompressor
        >>> ScoreCompressor(codebook=[[0.0], [4.0]]).fit([[1.0], [3.0], [5.0]]).atoms_
        array([[1.],
               [4.]])
        """
        check_is_fitted(self, "codebook_")
        used = self._weights > 0
        return self._moments[used] / self._weights[used, None] * self._scale

    @property
    def atom_weights_(self):
        """Total weight of every occupied cell, in units of the weights.

        Examples
        --------
        >>> from skquant import ScoreCompressor
        >>> compressor = ScoreCompressor(codebook=[[0.0], [4.0]])
        >>> compressor.fit([[1.0], [3.0], [5.0]]).atom_weights_
        array([1., 2.])
        """
        check_is_fitted(self, "codebook_")
        return self._weights[self._weights > 0]

    @property
    def total_weight_(self):
        """Total weight of the rows seen, in units of the weights.

        Examples
        --------
        >>> from skquant import ScoreCompressor
        >>> ScoreCompressor(1).fit([[1.0], [3.0]], sample_weight=[1, 4]).total_weight_
        5.0
        """
        check_is_fitted(self, "codebook_")
        return float(self._weights.sum())

    @property
    def information_(self):
        """Full information of the rows seen, per unit of total weight.

        Examples
        --------
        >>> from skquant import ScoreCompressor
        >>> ScoreCompressor(1).fit([[1.0], [3.0]]).information_
        array([[5.]])
        """
        check_is_fitted(self, "codebook_")
        return rescale(self._products / self._weights.sum(), self._scale)
