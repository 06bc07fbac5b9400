"""Checks of the input of `skquant.relaxation`; every failure is a ValueError."""

import numbers

import numpy as np

__all__ = ["check_choice", "check_count", "check_finite", "check_logits", "check_scale"]


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
