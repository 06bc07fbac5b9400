"""Information that does not come from the table: priors, and other channels.

A prior with precision ``P`` on the parameters (zero where there is none) is added to
the information of the data, all of it and what labels keep. Here it is held as a root
``A`` with ``A'A = P``, so that nothing is squared, and everything that depends on it
is done once, in coordinates: which directions it determines, what it says about those
of the data, and where the sum of both is the identity.
"""

from collections.abc import Mapping
from numbers import Integral, Real

import numpy as np

from skquant._tolerances import SINGULAR

# Asymmetry and negative eigenvalues of a matrix of unit diagonal that are rounding.
_ASYMMETRY = 1e-8


def column_index(entry, n_features, names, parameter):
    """Return the index of a column given by index or name."""
    if isinstance(entry, str):
        if names is None:
            raise ValueError(
                f"{parameter} names the column {entry!r}, but the table has no "
                "column names; give indices or a DataFrame."
            )
        names = list(names)
        if entry not in names:
            raise ValueError(
                f"{parameter} must name columns of the table {names}; got {entry!r}."
            )
        return names.index(entry)
    if (
        isinstance(entry, Integral)
        and not isinstance(entry, bool)
        and 0 <= entry < n_features
    ):
        return int(entry)
    raise ValueError(
        f"{parameter} must hold column indices between 0 and {n_features - 1} or "
        f"column names; got {entry!r}."
    )


def resolve_prior(prior, n_features, names):
    """Return a checked copy of a prior, columns by index; None where it says nothing.

    Parameters
    ----------
    prior : None, mapping of int or str to float, or array-like of shape (d, d)
        Standard deviations of parameters, or a precision matrix.
    n_features : int
        Number of columns of the table.
    names : sequence of str or None
        Names of the columns, if they have any.

    Returns
    -------
    prior : None, dict or ndarray of shape (d, d)

    Raises
    ------
    ValueError
        For an unknown or repeated column, a standard deviation that is not positive
        and finite, or a matrix that is not symmetric nonnegative definite.
    """
    if prior is None:
        return None
    if isinstance(prior, Mapping):
        resolved = {}
        for column, deviation in prior.items():
            index = column_index(column, n_features, names, "prior")
            if index in resolved:
                raise ValueError(
                    f"prior must give each column once; got column {index} again as "
                    f"{column!r}."
                )
            number = isinstance(deviation, Real) and not isinstance(deviation, bool)
            if not number or not 0.0 < deviation < np.inf:
                raise ValueError(
                    "prior must hold positive finite standard deviations; got "
                    f"{deviation!r} for {column!r}. Leave out a parameter without a "
                    "prior."
                )
            resolved[index] = float(deviation)
        return resolved or None
    try:
        precision = np.array(prior, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "prior must be a mapping of columns to standard deviations or a precision "
            f"matrix; got {prior!r}."
        ) from error
    if precision.shape != (n_features, n_features):
        raise ValueError(
            f"prior must be a precision matrix of shape {(n_features, n_features)}, a "
            f"row and a column for each parameter; got shape {precision.shape}."
        )
    if not np.isfinite(precision).all():
        raise ValueError("prior must be a finite precision matrix.")
    if not precision.any():
        return None
    _matrix_root(precision)
    return precision


def _matrix_root(precision):
    """Return A with A'A the matrix, after checking it."""
    diagonal = np.diag(precision)
    if np.any(diagonal < 0.0):
        column = int(np.argmin(diagonal))
        raise ValueError(
            "prior must be nonnegative definite; got the precision "
            f"{diagonal[column]:.6g} of column {column}."
        )
    scale = np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    unit = precision / scale / scale[:, None]
    asymmetry = np.abs(unit - unit.T)
    if asymmetry.max() > _ASYMMETRY:
        i, j = np.unravel_index(np.argmax(asymmetry), unit.shape)
        raise ValueError(
            f"prior must be symmetric; got {precision[i, j]!r} in row {i}, column {j} "
            f"and {precision[j, i]!r} in row {j}, column {i}."
        )
    if unit[diagonal == 0.0].any():
        column = int(np.flatnonzero((unit != 0.0).any(axis=1) & (diagonal == 0.0))[0])
        raise ValueError(
            "prior must be nonnegative definite; got a precision of 0 of column "
            f"{column} with other entries in its row."
        )
    eigenvalues, vectors = np.linalg.eigh(0.5 * (unit + unit.T))
    if eigenvalues[0] < -_ASYMMETRY * eigenvalues[-1]:
        raise ValueError(
            "prior must be nonnegative definite; over the roots of its diagonal its "
            f"smallest eigenvalue is {eigenvalues[0]:.6g}."
        )
    rounding = SINGULAR * len(scale) * eigenvalues[-1]
    kept = eigenvalues > rounding
    return np.sqrt(eigenvalues[kept])[:, None] * vectors[:, kept].T * scale


def precision_root(prior, n_features):
    """Return the root A, (m, d), of the precision of a resolved prior, in total units.

    The rows of several, on top of each other, are the root of their sum.
    """
    if prior is None:
        return np.zeros((0, n_features))
    if isinstance(prior, Mapping):
        columns = list(prior)
        root = np.zeros((len(columns), n_features))
        root[np.arange(len(columns)), columns] = 1.0 / np.array(list(prior.values()))
        return root
    return _matrix_root(np.asarray(prior, dtype=np.float64))


def check_expected_events(expected_events):
    """Check the exposure of a criterion."""
    number = isinstance(expected_events, Real) and not isinstance(expected_events, bool)
    if expected_events is not None and not (number and 0 < expected_events < np.inf):
        raise ValueError(
            "expected_events must be None or a positive finite number; got "
            f"{expected_events!r}."
        )


def total_weight(weights):
    """Return the sum of the weights; infinite where it overflows."""
    largest = np.max(weights)
    with np.errstate(over="ignore"):
        return float(largest * np.sum(weights / largest))


def profile_out(root, directions, others, rtol):
    """Return what a root says about directions when others are free.

    Parameters
    ----------
    root : ndarray of shape (m, d)
        Of the precision.
    directions, others : ndarray of shapes (d, r) and (d, f)

    Returns
    -------
    profiled : ndarray of shape (m, r)
        Root of the Schur complement.
    n_determined : int
        How many of the other directions the precision determines.
    """
    left, singular, _ = np.linalg.svd(root @ others, full_matrices=False)
    rank = int(np.sum(singular > rtol * singular.max(initial=0.0)))
    left = left[:, :rank]
    inside = root @ directions
    return inside - left @ (left.T @ inside), rank
