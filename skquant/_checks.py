"""Checks of user input; the only module that imports scikit-learn's private helpers."""

import numbers
from contextlib import contextmanager

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils.parallel import _threadpool_controller_decorator
from sklearn.utils.validation import (
    _check_sample_weight,
    _get_feature_names,
    check_array,
    check_is_fitted,
    validate_data,
)

__all__ = [
    "CANCELLED",
    "HasMethods",
    "Interval",
    "StrOptions",
    "check_cell_weights",
    "check_choice",
    "check_count",
    "check_finite",
    "check_groups",
    "check_is_fitted",
    "check_labels",
    "check_logits",
    "check_responsibilities",
    "check_scale",
    "check_scores",
    "check_weights",
    "fit_context",
    "rank_tolerance",
    "single_threaded",
    "validate_table",
]

fit_context = _fit_context(prefer_skip_nested_validation=True)

# Sums of BLAS and OpenMP loops depend on their number of threads; results must not.
single_threaded = _threadpool_controller_decorator(limits=1, user_api=None)

# Below this share of the absolute weight a sum of signed weights is rounding.
CANCELLED = 1e3 * np.finfo(np.float64).eps

FLOAT_DTYPES = [np.float64, np.float32]


@contextmanager
def _naming_columns(table, name):
    """Name the columns without numbers, where a conversion fails because of them.

    And those that share a name, which nothing could tell apart.
    """
    names = [str(each) for each in getattr(table, "columns", ())]
    if len(set(names)) < len(names):
        repeated = sorted({each for each in names if names.count(each) > 1})
        raise ValueError(
            f"{name} must have columns of different names; got {repeated} more than "
            "once."
        )
    try:
        yield
    except (TypeError, ValueError) as error:
        columns = getattr(table, "columns", ())
        bad = {each: table[each].dtype for each in columns if not _is_real(table[each])}
        if bad:
            found = ", ".join(f"{each!r} of {dtype}" for each, dtype in bad.items())
            raise ValueError(
                f"{name} must have columns of numbers; got {found}."
            ) from error
        raise


def _is_real(column):
    array = np.asarray(column)
    if array.ndim != 1:
        return True
    if array.dtype.kind in "mMc":
        return False
    try:
        array.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def check_scores(scores):
    """Return the score table as C-contiguous floats, with its column names or None."""
    with _naming_columns(scores, "scores"):
        names = _get_feature_names(scores)
        X = check_array(scores, dtype=FLOAT_DTYPES, order="C", input_name="scores")
    return X, names


def validate_table(estimator, X, *, reset=True):
    """Return the table of an estimator as C-contiguous floats; record its columns."""
    with _naming_columns(X, "X"):
        return validate_data(estimator, X, dtype=FLOAT_DTYPES, order="C", reset=reset)


def check_weights(sample_weight, X, *, signed=False):
    """Return float64 weights of the rows of X, finite, nonnegative, not all zero.

    Signed ones, where cells are only evaluated, need a positive total instead.
    """
    if sample_weight is None:
        # one number, seen as many
        return np.broadcast_to(1.0, len(X))
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    negative = weights < 0
    if signed and negative.any():
        largest = np.max(np.abs(weights))
        total = np.sum(weights / largest)
        if not total > CANCELLED * np.sum(np.abs(weights / largest)):
            raise ValueError(
                "sample_weight must have a positive total; got "
                f"{total * largest:.6g} with {negative.sum()} negative weights of "
                f"{len(weights)}."
            )
    elif negative.any():
        magnitude = np.abs(weights / np.max(np.abs(weights)))
        share = magnitude[negative].sum() / magnitude.sum()
        raise ValueError(
            f"sample_weight must be nonnegative; got {negative.sum()} negative "
            f"weights of {len(weights)}, {share:.3g} of the total absolute weight. "
            "Remove or merge those rows (a quantizer's negative_weights='merge' does), "
            "or fit on another sample of the same law; a fitted rule may be evaluated "
            "with them."
        )
    if not (weights > 0).any():
        raise ValueError(
            "sample_weight must hold at least one non-zero weight; got "
            f"{len(weights)} zero weights."
        )
    return weights


def check_cell_weights(cell_weights, absolute_weights):
    """Refuse cells that hold rows but no positive weight; they have no information."""
    bad = (absolute_weights > 0) & ~(cell_weights > CANCELLED * absolute_weights)
    if bad.any():
        cells = np.flatnonzero(bad)
        raise ValueError(
            "sample_weight must have a positive sum in every cell that holds rows; got "
            f"sums of {(cell_weights / absolute_weights)[cells].round(6).tolist()} of "
            f"the absolute weight in the cells {cells.tolist()}. Merge those cells "
            "with others."
        )


def check_labels(labels, n_rows, n_bins=None, name="labels"):
    """Return int32 labels in 0..n_bins-1 and the number of cells."""
    array = np.asarray(labels)
    if array.ndim != 1 or len(array) != n_rows:
        raise ValueError(
            f"{name} must have shape ({n_rows},), one label a row; got {array.shape}."
        )
    if array.dtype.kind == "f" and np.array_equal(array, np.floor(array)):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must be integers; got dtype {array.dtype}.")
    if n_bins is None:
        n_bins = int(array.max()) + 1
    elif not isinstance(n_bins, numbers.Integral) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer; got {n_bins!r}.")
    if array.min() < 0 or array.max() >= n_bins:
        raise ValueError(
            f"{name} must lie in 0..{n_bins - 1}; got {array.min()}..{array.max()}."
        )
    return array.astype(np.int32), int(n_bins)


def check_groups(groups, n_rows):
    """Return the names of the groups and the number of each row's; None without any."""
    if groups is None:
        return None, None
    array = np.asarray(groups)
    if array.ndim != 1 or len(array) != n_rows:
        raise ValueError(
            f"groups must have shape ({n_rows},), one group a row; got {array.shape}."
        )
    if (array != array).any():
        raise ValueError("groups must name a group for every row; got NaN.")
    names, codes = np.unique(array, return_inverse=True)
    return names.tolist(), codes


def check_responsibilities(responsibilities, n_rows):
    """Return float64 responsibilities whose rows are probability vectors."""
    table = check_array(
        responsibilities, dtype=np.float64, input_name="responsibilities"
    )
    if len(table) != n_rows:
        raise ValueError(
            f"responsibilities must have one row a score; got {len(table)} rows for "
            f"{n_rows} scores."
        )
    if (table < 0).any():
        raise ValueError(
            f"responsibilities must be nonnegative; got a minimum of {table.min():.3g}."
        )
    sums = table.sum(axis=1)
    worst = int(np.argmax(np.abs(sums - 1.0)))
    if abs(sums[worst] - 1.0) > 1e-8:
        raise ValueError(
            "responsibilities must sum to 1 in every row; row "
            f"{worst} sums to {sums[worst]:.9g}."
        )
    return table


def rank_tolerance(rank_rtol, dtype):
    """Return the relative tolerance of the rank: float32 cannot carry 1e-10."""
    tolerance = 1e-10 if rank_rtol is None else rank_rtol
    return max(tolerance, 1e-6) if dtype == np.float32 else tolerance


def check_scale(name, value, *, positive=True):
    """Return a finite float, above 0 or, with positive=False, at least 0."""
    rule = "positive" if positive else "nonnegative"
    if (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and np.isfinite(value)
        and (value > 0 or (value == 0 and not positive))
    ):
        return float(value)
    raise ValueError(f"{name} must be a finite {rule} number; got {value!r}.")


def check_count(name, value, minimum=1):
    """Return an int of at least minimum."""
    if (
        not isinstance(value, numbers.Integral)
        or isinstance(value, bool)
        or value < minimum
    ):
        raise ValueError(
            f"{name} must be an integer of at least {minimum}; got {value!r}."
        )
    return int(value)


def check_choice(name, value, choices):
    """Return a string that is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {sorted(choices)}; got {value!r}.")
    return value


def _float_array(name, value):
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers; got {value!r}.") from (
            error
        )


def check_finite(name, value):
    """Return a float64 array without NaN or infinity."""
    array = _float_array(name, value)
    bad = array.size - np.count_nonzero(np.isfinite(array))
    if bad:
        raise ValueError(
            f"{name} must be finite; got {bad} NaN or infinite of {array.size} entries."
        )
    return array


def check_logits(logits, name="logits"):
    """Return float64 logits of shape (..., n): -inf is a category of probability 0."""
    array = _float_array(name, logits)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(
            f"{name} must have shape (..., n) with at least one category; got shape "
            f"{array.shape}."
        )
    largest = array.max(axis=-1)
    if np.isnan(largest).any() or (largest == np.inf).any():
        raise ValueError(
            f"{name} must be finite or -inf; got {np.isnan(array).sum()} NaN and "
            f"{(array == np.inf).sum()} +inf."
        )
    if (largest == -np.inf).any():
        raise ValueError(
            f"{name} must have a finite entry in every row; got "
            f"{(largest == -np.inf).sum()} rows of -inf alone."
        )
    return array
