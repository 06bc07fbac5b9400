"""The frozen, deployable rule. Needs NumPy and the standard library only."""

import json
import numbers
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from skquant.responsibilities import RELAXATIONS, relax_logits

try:
    from skquant._kernels.rule import affine_argmax, scratch_size
except ImportError:  # the sources alone, where nothing was compiled
    affine_argmax = None

__all__ = ["AffineMaxRule"]

_FORMAT = "skquant.AffineMaxRule"
_FORMAT_VERSION = 1
_BLOCK_BYTES = 1 << 20
_BLOCK_ROWS = 1 << 16
# Products of rows, cells and columns from which threads pay.
_THREADED_WORK = 5_000_000


def _frozen_array(value, name, shape):
    """Return a read-only float64 copy of the wanted shape (None is any length)."""
    array = np.array(value, dtype=np.float64, order="C")
    fits = array.ndim == len(shape) and all(
        want is None or want == have
        for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = tuple("any" if want is None else want for want in shape)
        raise ValueError(f"{name} must have shape {wanted}; got {array.shape}.")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; got NaN or infinity.")
    array.setflags(write=False)
    return array


def _without_repeats(pairs):
    """Make the dict of a JSON object whose names are all different."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError(
            f"names must not repeat; got {sorted(name for name, _ in pairs)}"
        )
    return entries


def _holds_truth(value):
    """Whether a JSON array holds true or false, which NumPy takes for numbers."""
    if isinstance(value, list):
        return any(map(_holds_truth, value))
    return isinstance(value, bool)


def _available_cores():
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # no such call on this system
        return os.cpu_count() or 1


class AffineMaxRule:
    """Label a score by the largest of K affine functions.

    The logits are ``intercept_b + sum_j x_j coef_bj``, summed in the order of the
    columns, and the label is the first largest. Nearest-mean rules in any common
    metric are of this kind.

    Parameters
    ----------
    coef : array-like of shape (K, d)
        Slopes, in inverse units of the scores.
    intercept : array-like of shape (K,)
        Offsets, dimensionless.
    temperature : float, default=None
        Number that divides the logits in ``predict_proba``; 0 is the hard limit.
        None: the rule has no responsibilities.
    relaxation : {"softmax", "sparsemax"}, default="softmax"
        Map from scaled logits to responsibilities.
    cell_means : array-like of shape (K, d), default=None
        Mean score of each training cell, in units of the scores.
    feature_names : sequence of str of length d, default=None
        Column names that a table with columns has to show, in this order.
    metadata : dict, default=None
        Anything that strict JSON can hold; kept as JSON returns it.

    Raises
    ------
    ValueError
        For arrays that do not fit together or are not finite, a negative
        temperature, an unknown relaxation, or metadata that is not strict JSON.

    Examples
    --------
    >>> from skquant import AffineMaxRule
    >>> rule = AffineMaxRule([[-1.0], [1.0]], [0.0, -0.5])
    >>> rule.predict([[-2.0], [0.0], [3.0]])
    array([0, 0, 1], dtype=int32)
    """

    def __init__(
        self,
        coef,
        intercept,
        *,
        temperature=None,
        relaxation="softmax",
        cell_means=None,
        feature_names=None,
        metadata=None,
    ):
        self.coef = _frozen_array(coef, "coef", (None, None))
        if 0 in self.coef.shape:
            raise ValueError(
                "coef must have at least one cell and one column; got shape "
                f"{self.coef.shape}."
            )
        n_bins, n_features = self.coef.shape
        self.intercept = _frozen_array(intercept, "intercept", (n_bins,))
        if temperature is not None and not (
            isinstance(temperature, numbers.Real) and 0 <= temperature < np.inf
        ):
            raise ValueError(
                f"temperature must be None or a number >= 0; got {temperature!r}."
            )
        self.temperature = None if temperature is None else float(temperature)
        if relaxation not in RELAXATIONS:
            raise ValueError(
                f"relaxation must be one of {sorted(RELAXATIONS)}; got {relaxation!r}."
            )
        self.relaxation = relaxation
        self.cell_means = (
            None
            if cell_means is None
            else _frozen_array(cell_means, "cell_means", (n_bins, n_features))
        )
        if feature_names is not None:
            feature_names = tuple(str(name) for name in feature_names)
            if len(feature_names) != n_features:
                raise ValueError(
                    f"feature_names must have {n_features} names; got "
                    f"{len(feature_names)}."
                )
            if len(set(feature_names)) < n_features:
                raise ValueError(
                    f"feature_names must be different names; got {list(feature_names)}."
                )
        self.feature_names = feature_names
        try:
            self.metadata = json.loads(json.dumps(metadata, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ValueError(f"metadata must be strict JSON: {error}.") from error

    @property
    def n_bins(self):
        """Number of cells K."""
        return self.coef.shape[0]

    @property
    def n_features(self):
        """Number of columns d."""
        return self.coef.shape[1]

    def _check(self, X):
        columns = getattr(X, "columns", None)
        if self.feature_names is not None and columns is not None:
            names = tuple(str(name) for name in columns)
            if names != self.feature_names:
                raise ValueError(
                    "X must have the columns of the rule in their order, "
                    f"{list(self.feature_names)}; got {list(names)}."
                )
        array = np.asarray(X)
        if array.dtype.kind not in "fiub":
            try:
                if array.dtype.kind not in "OSU":
                    raise TypeError("neither numbers nor text")
                array = array.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"X must be numeric; got dtype {array.dtype}."
                ) from error
        if array.ndim != 2 or array.shape[1] != self.n_features:
            raise ValueError(
                f"X must have shape (n, {self.n_features}); got {array.shape}."
            )
        return array

    def _blocks(self, X):
        """Yield row slices and their logits, a block of bounded size at a time."""
        rows = max(1, _BLOCK_BYTES // (8 * self.n_bins))
        for start in range(0, len(X), rows):
            block = np.asarray(X[start : start + rows], dtype=np.float64)
            if not np.isfinite(block).all():
                raise ValueError("X must be finite; got NaN or infinity.")
            logits = np.repeat(self.intercept[None, :], len(block), axis=0)
            for j in range(self.n_features):
                logits += block[:, j, None] * self.coef[:, j]
            yield slice(start, start + rows), logits

    def decision_function(self, X):
        """Return the logits.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Returns
        -------
        logits : ndarray of shape (n, K)
            Dimensionless; not divided by the temperature.

        Raises
        ------
        ValueError
            For a table with other columns, or entries that are not finite.
        """
        X = self._check(X)
        result = np.empty((len(X), self.n_bins))
        for rows, logits in self._blocks(X):
            result[rows] = logits
        return result

    def predict(self, X):
        """Return the label of each row.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores; an empty table gives no labels.

        Returns
        -------
        labels : ndarray of int32 of shape (n,)
            In ``0..K-1``; the first of equal logits wins.

        Raises
        ------
        ValueError
            For a table with other columns, or entries that are not finite.
        """
        X = self._check(X)
        result = np.empty(len(X), dtype=np.int32)
        if affine_argmax is None:
            for rows, logits in self._blocks(X):
                result[rows] = np.argmax(logits, axis=1)
            return result
        starts = range(0, len(X), _BLOCK_ROWS)

        def label(start):
            rows = slice(start, start + _BLOCK_ROWS)
            self._label(X[rows], result[rows])

        n_threads = min(len(starts), _available_cores())
        if n_threads > 1 and result.size * self.coef.size > _THREADED_WORK:
            with ThreadPoolExecutor(n_threads) as pool:
                list(pool.map(label, starts))
        else:
            for start in starts:
                label(start)
        return result

    def _label(self, X, result):
        """Label a block of rows by the compiled kernel."""
        block = np.ascontiguousarray(X, dtype=np.float64)
        scratch = np.empty(scratch_size(self.n_features))
        largest = affine_argmax(block, self.coef, self.intercept, result, scratch)
        if np.isnan(largest):
            raise ValueError("X must be finite; got NaN or infinity.")
        with np.errstate(over="ignore"):
            bound = np.abs(self.intercept).max()
            bound += self.n_features * largest * np.abs(self.coef).max()
        if not np.isfinite(bound):
            for rows, logits in self._blocks(block):
                result[rows] = np.argmax(logits, axis=1)

    def predict_proba(self, X):
        """Return the responsibilities at the temperature of the rule.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Returns
        -------
        responsibilities : ndarray of shape (n, K)
            Rows sum to one; their argmax is ``predict``.

        Raises
        ------
        ValueError
            If the rule has no temperature, or for a table with other columns or
            entries that are not finite.
        """
        if self.temperature is None:
            raise ValueError("the rule has no temperature, so no responsibilities.")
        X = self._check(X)
        result = np.empty((len(X), self.n_bins))
        for rows, logits in self._blocks(X):
            result[rows] = relax_logits(
                logits, RELAXATIONS[self.relaxation], self.temperature
            )
        return result

    def to_dict(self):
        """Return the rule as plain data, the content of its file.

        Returns
        -------
        document : dict
            Lists, numbers and strings only.
        """
        return {
            "format": _FORMAT,
            "version": _FORMAT_VERSION,
            "coef": self.coef.tolist(),
            "intercept": self.intercept.tolist(),
            "temperature": self.temperature,
            "relaxation": self.relaxation,
            "cell_means": None if self.cell_means is None else self.cell_means.tolist(),
            "feature_names": (
                None if self.feature_names is None else list(self.feature_names)
            ),
            "metadata": self.metadata,
        }

    def save(self, path):
        """Write the rule to a JSON file that ``load`` reads back exactly.

        Parameters
        ----------
        path : str or path-like
            File to write.
        """
        text = json.dumps(self.to_dict(), allow_nan=False)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")

    @classmethod
    def load(cls, path):
        """Read a rule that ``save`` wrote. No code of the file is executed.

        Parameters
        ----------
        path : str or path-like
            File to read.

        Returns
        -------
        rule : AffineMaxRule
            Equal to the rule that was saved.

        Raises
        ------
        ValueError
            If the file is not such a rule, or of an unknown format version.
        """
        with open(path, encoding="utf-8") as file:
            try:
                document = json.load(file, object_pairs_hook=_without_repeats)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path} is not a JSON file: {error}.") from error
        if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
            raise ValueError(f"{path} does not hold a {_FORMAT}.")
        version = document.pop("version", None)
        if version != _FORMAT_VERSION:
            raise ValueError(
                f"{path} has format version {version!r}; this skquant reads version "
                f"{_FORMAT_VERSION}."
            )
        for name in ("coef", "intercept", "temperature", "cell_means"):
            if _holds_truth(document.get(name)):
                raise ValueError(
                    f"{path} must hold numbers as {name}; got true or false."
                )
        try:
            return cls(document.pop("coef"), document.pop("intercept"), **document)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} lacks or adds an entry: {error}.") from error

    def to_c(self, name):
        """Return the rule as C99 source without dependencies.

        Parameters
        ----------
        name : str
            Name of the function ``int name(const double *score)``.

        Returns
        -------
        source : str
            The function returns the label that ``predict`` gives, bit for bit.

        Raises
        ------
        ValueError
            If the name is not a C identifier.

        Examples
        --------
        >>> from skquant import AffineMaxRule
        >>> rule = AffineMaxRule([[-1.0], [1.0]], [0.0, -0.5])
        >>> print(rule.to_c("cell").splitlines()[0])
        /* Label 0..1 of a score of 1 columns. */
        """
        from skquant._exports import to_c

        return to_c(self, name)

    def to_sql(self, columns=None):
        """Return the label as one expression for a SELECT of SQLite or DuckDB.

        Parameters
        ----------
        columns : sequence of str of length d, default=None
            Columns that hold the scores; None is the rule's feature names.

        Returns
        -------
        expression : str
            A scalar subquery.

        Raises
        ------
        ValueError
            If the columns do not fit the rule.

        Examples
        --------
        >>> import sqlite3
        >>> from skquant import AffineMaxRule
        >>> rule = AffineMaxRule([[-1.0], [1.0]], [0.0, -0.5])
        >>> base = sqlite3.connect(":memory:")
        >>> query = f"SELECT {rule.to_sql(['x'])} FROM (SELECT 3.0 AS x)"
        >>> base.execute(query).fetchall()
        [(1,)]
        >>> base.close()
        """
        from skquant._exports import to_sql

        return to_sql(self, columns)

    def to_onnx(self, path=None):
        """Return the rule as an ONNX model in float64; needs the ``onnx`` extra.

        Parameters
        ----------
        path : str or path-like, default=None
            File to write, too.

        Returns
        -------
        model : onnx.ModelProto
            Input ``scores`` (n, d); output ``label`` (n,) and, for softmax at a
            positive temperature, ``responsibilities`` (n, K).

        Raises
        ------
        ImportError
            Without the onnx package.

        Examples
        --------
        >>> from skquant import AffineMaxRule
        >>> rule = AffineMaxRule([[-1.0], [1.0]], [0.0, -0.5], temperature=0.1)
        >>> [output.name for output in rule.to_onnx().graph.output]
        ['label', 'responsibilities']
        """
        from skquant._exports import to_onnx

        return to_onnx(self, path)

    def __eq__(self, other):
        if not isinstance(other, AffineMaxRule):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __setstate__(self, state):
        self.__dict__.update(state)
        for array in (self.coef, self.intercept, self.cell_means):
            if array is not None:
                array.setflags(write=False)

    def __repr__(self):
        soft = "" if self.temperature is None else f", temperature={self.temperature:g}"
        return (
            f"AffineMaxRule({self.n_bins} cells of {self.n_features} "
            f"column{'s' if self.n_features > 1 else ''}{soft})"
        )
