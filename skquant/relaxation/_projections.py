"""Regularized linear programs over simplices and transport polytopes.

Each function maximizes ``<x, p> - temperature * f(p)`` over a polytope, for a strictly
convex f. A temperature of 0 is the linear program itself.
"""

import warnings

import numpy as np
from scipy.special import expit, logsumexp
from sklearn.exceptions import ConvergenceWarning

from skquant._checks import (
    check_choice,
    check_count,
    check_finite,
    check_logits,
    check_scale,
)
from skquant.responsibilities import RELAXATIONS, relax_logits

__all__ = [
    "birkhoff_projection",
    "capped_simplex",
    "capped_simplex_vjp",
    "sinkhorn",
    "softmax",
    "softmax_vjp",
    "sparsemax",
    "sparsemax_vjp",
]


def _project(kind, x, temperature, axis):
    x = np.moveaxis(np.asarray(x, dtype=np.float64), axis, -1)
    x = check_logits(x, "x")
    temperature = check_scale("temperature", temperature, positive=False)
    return np.moveaxis(relax_logits(x, RELAXATIONS[kind], temperature), -1, axis)


def _project_vjp(kind, p, v, temperature, axis):
    temperature = check_scale("temperature", temperature)
    p, v = check_finite("p", p), check_finite("v", v)
    p, v = (np.moveaxis(array, axis, -1) for array in np.broadcast_arrays(p, v))
    return np.moveaxis(RELAXATIONS[kind].vjp(p, v) / temperature, -1, axis)


def softmax(x, *, temperature=1.0, axis=-1):
    """Maximize ``<x, p> + temperature * entropy(p)`` over the simplex.

    Parameters
    ----------
    x : array-like of shape (..., n)
        Utilities; -inf has probability 0.
    temperature : float, default=1.0
        Nonnegative; at 0 the first largest gets all.
    axis : int, default=-1
        Axis of the categories.

    Returns
    -------
    p : ndarray of the shape of x
        Probability vectors.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, or a negative temperature.

    Notes
    -----
    It is the law of the largest of ``x + temperature * Gumbel``.

    References
    ----------
    .. [1] M. Blondel, A. Martins, V. Niculae, "Learning with Fenchel-Young Losses",
       JMLR 21, 2020. arXiv:1901.02324.

    Examples
    --------
    >>> from skquant.relaxation import softmax
    >>> softmax([0.9, 0.3, -0.2, 0.1], temperature=0.7)
    array([0.51255041, 0.21751248, 0.10648142, 0.16345569])
    """
    return _project("softmax", x, temperature, axis)


def softmax_vjp(p, v, temperature=1.0, *, axis=-1):
    """Multiply a cotangent by the Jacobian of `softmax`, which is symmetric.

    Parameters
    ----------
    p : array-like of shape (..., n)
        The output of `softmax`.
    v : array-like of shape (..., n)
        Cotangent.
    temperature : float, default=1.0
        That of the forward call; positive.
    axis : int, default=-1
        Axis of the categories.

    Returns
    -------
    product : ndarray of shape (..., n)
        ``p * (v - <p, v>) / temperature``.

    Raises
    ------
    ValueError
        For input that is not finite or a temperature that is not positive.

    References
    ----------
    .. [1] M. Blondel, A. Martins, V. Niculae, "Learning with Fenchel-Young Losses",
       JMLR 21, 2020. arXiv:1901.02324.

    Examples
    --------
    >>> from skquant.relaxation import softmax_vjp
    >>> softmax_vjp([0.5, 0.5], [1.0, 0.0], 0.1)
    array([ 2.5, -2.5])
    """
    return _project_vjp("softmax", p, v, temperature, axis)


def sparsemax(x, *, temperature=1.0, axis=-1):
    """Project ``x / temperature`` onto the simplex; most entries become zero.

    Parameters
    ----------
    x, temperature, axis : as in `softmax`
        The same as there.

    Returns
    -------
    p : ndarray of the shape of x
        Probability vectors.

    Raises
    ------
    ValueError
        As `softmax`.

    References
    ----------
    .. [1] A. Martins, R. Astudillo, "From Softmax to Sparsemax", ICML 2016.
       arXiv:1602.02068.

    Examples
    --------
    >>> from skquant.relaxation import sparsemax
    >>> sparsemax([0.5, 0.0, -0.5])
    array([0.75, 0.25, 0.  ])
    """
    return _project("sparsemax", x, temperature, axis)


def sparsemax_vjp(p, v, temperature=1.0, *, axis=-1):
    """Multiply a cotangent by the Jacobian of `sparsemax`, which is symmetric.

    Parameters
    ----------
    p : array-like of shape (..., n)
        The output of `sparsemax`; its support is what counts.
    v, temperature, axis : as in `softmax_vjp`
        The same as there.

    Returns
    -------
    product : ndarray of shape (..., n)
        On the support, v less its mean there, over the temperature; 0 elsewhere.

    Raises
    ------
    ValueError
        As `softmax_vjp`.

    References
    ----------
    .. [1] A. Martins, R. Astudillo, "From Softmax to Sparsemax", ICML 2016.
       arXiv:1602.02068.

    Examples
    --------
    >>> from skquant.relaxation import sparsemax_vjp
    >>> sparsemax_vjp([0.75, 0.25, 0.0], [1.0, 0.0, 5.0])
    array([ 0.5, -0.5,  0. ])
    """
    return _project_vjp("sparsemax", p, v, temperature, axis)


# link and its derivative as a function of its value
_LINKS = {
    "euclidean": (lambda t: np.clip(t, 0, 1), lambda p: ((p > 0) & (p < 1)) * 1.0),
    "binary": (expit, lambda p: p * (1 - p)),
    "categorical": (lambda t: np.exp(np.minimum(t, 0)), lambda p: p * (p < 1)),
}
# what the link must give for k of n equal entries
_INVERSES = {
    "euclidean": lambda share: share,
    "binary": lambda share: np.log(share) - np.log1p(-share),
    "categorical": np.log,
}


def top_k(x, k):
    """One in the k largest of the last axis, the first of equals, 0 elsewhere."""
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    result = np.zeros(x.shape)
    np.put_along_axis(result, order, 1.0, axis=-1)
    return result


def check_subset(x, k):
    """Check that k entries of every row of x can be chosen."""
    k = check_count("k", k, minimum=0)
    possible = np.isfinite(x).sum(axis=-1).min(initial=x.shape[-1])
    if k > possible:
        raise ValueError(
            f"k must be at most the number of entries that may be chosen; got {k} for "
            f"{possible}."
        )
    return k


def capped_simplex(x, k, *, regularizer="euclidean", temperature=1.0):
    """Relax the k largest entries: entries in [0, 1] that sum to k.

    Parameters
    ----------
    x : array-like of shape (..., n)
        Utilities; -inf is never chosen.
    k : int
        Sum of a row, from 0 to the number of finite entries.
    regularizer : {"euclidean", "binary", "categorical"}, default="euclidean"
        f is half the squares, the sum of ``p log p + (1 - p) log(1 - p)``, or that of
        ``p log p``.
    temperature : float, default=1.0
        Nonnegative; 0 gives the k largest, the first of equals.

    Returns
    -------
    p : ndarray of shape (..., n)
        ``link(x / temperature - t)`` with the number t, one a row, that makes the sum
        k; the link clips to [0, 1], is the logistic function, or ``min(exp, 1)``.

    Raises
    ------
    ValueError
        For NaN, +inf, a k that cannot be reached, or a parameter out of range.

    References
    ----------
    .. [1] B. Amos, V. Koltun, J. Z. Kolter, "The Limited Multi-Label Projection
       Layer", arXiv:1906.08707.

    Examples
    --------
    >>> from skquant.relaxation import capped_simplex
    >>> capped_simplex([0.9, 0.3, -0.2, 0.1], 2, temperature=0.7)
    array([1.        , 0.64285714, 0.        , 0.35714286])
    """
    x = check_logits(x, "x")
    k = check_subset(x, k)
    check_choice("regularizer", regularizer, tuple(_LINKS))
    temperature = check_scale("temperature", temperature, positive=False)
    if temperature == 0.0:
        return top_k(x, k)
    n = np.isfinite(x).sum(axis=-1, keepdims=True)
    if k == 0 or (k == n).all():
        return np.isfinite(x) * (1.0 if k else 0.0)
    with np.errstate(over="ignore"):
        z = (x - x.max(axis=-1, keepdims=True)) / temperature
    smallest = np.where(np.isfinite(z), z, 0.0).min(axis=-1, keepdims=True)
    link, inverse = _LINKS[regularizer][0], _INVERSES[regularizer]
    with np.errstate(divide="ignore"):
        share = inverse(np.minimum(k / n, 1 - 1e-16))
    low, high = smallest - share - 1e-6, -share + 1e-6
    with np.errstate(under="ignore"):
        while True:
            middle = 0.5 * (low + high)
            if ((middle <= low) | (middle >= high)).all():
                break
            above = link(z - middle).sum(axis=-1, keepdims=True) >= k
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return np.where(k == n, np.isfinite(x) * 1.0, link(z - low))


def capped_simplex_vjp(p, v, *, regularizer="euclidean", temperature=1.0):
    """Multiply a cotangent by the Jacobian of `capped_simplex`, which is symmetric.

    Parameters
    ----------
    p : array-like of shape (..., n)
        The output of `capped_simplex`.
    v : array-like of shape (..., n)
        Cotangent.
    regularizer, temperature : as in `capped_simplex`
        Those of the forward call; the temperature is positive.

    Returns
    -------
    product : ndarray of shape (..., n)
        ``d * (v - <d, v> / sum d) / temperature`` with d the derivative of the link.

    Raises
    ------
    ValueError
        For input that is not finite or a parameter out of range.

    References
    ----------
    .. [1] B. Amos, V. Koltun, J. Z. Kolter, "The Limited Multi-Label Projection
       Layer", arXiv:1906.08707.

    Examples
    --------
    >>> from skquant.relaxation import capped_simplex_vjp
    >>> capped_simplex_vjp([1.0, 0.75, 0.0, 0.25], [4.0, 1.0, 2.0, 0.0])
    array([ 0. ,  0.5,  0. , -0.5])
    """
    check_choice("regularizer", regularizer, tuple(_LINKS))
    temperature = check_scale("temperature", temperature)
    p, v = np.broadcast_arrays(check_finite("p", p), check_finite("v", v))
    slope = _LINKS[regularizer][1](p)
    total = slope.sum(axis=-1, keepdims=True)
    mean = np.sum(slope * v, axis=-1, keepdims=True) / np.where(total > 0, total, 1.0)
    return slope * (v - mean) / temperature


def _check_sums(name, sums, n):
    sums = check_finite(name, sums)
    if sums.shape != (n,) or (sums < 0).any() or not sums.sum() > 0:
        raise ValueError(
            f"{name} must be {n} nonnegative numbers with a positive sum; got {sums}."
        )
    return sums


def sinkhorn(
    scores,
    row_sums,
    col_sums,
    *,
    temperature,
    tol=1e-9,
    max_iter=10_000,
    return_info=False,
):
    """Entropic transport plan: given row and column sums, the best scores.

    Maximizes ``<scores, plan> + temperature * entropy(plan)``.

    Parameters
    ----------
    scores : array-like of shape (n, m)
        Utilities of a unit moved; -inf is forbidden.
    row_sums, col_sums : array-like of shapes (n,) and (m,)
        Nonnegative, of equal total. A zero gives a row or column of zeros.
    temperature : float
        Positive. Low ones are approached from above.
    tol : float, default=1e-9
        Largest error of a row or column sum, over the total.
    max_iter : int, default=10000
        Sweeps at the last temperature.
    return_info : bool, default=False
        Whether to return the errors too.

    Returns
    -------
    plan : ndarray of shape (n, m)
        Column sums are exact to rounding, row sums to the tolerance.
    info : dict
        ``row_error``, ``col_error`` (absolute, over the total), ``n_iter`` and
        ``converged``; only if ``return_info``.

    Raises
    ------
    ValueError
        For NaN, +inf, sums that do not fit, or a parameter out of range.

    Warns
    -----
    ConvergenceWarning
        If the errors stay above ``tol``; they are in the message.

    References
    ----------
    .. [1] M. Cuturi, "Sinkhorn Distances", NeurIPS 2013. arXiv:1306.0895.
    .. [2] B. Schmitzer, "Stabilized Sparse Scaling Algorithms for Entropy Regularized
       Transport Problems", SIAM J. Sci. Comput. 41, 2019.
       https://doi.org/10.1137/16M1106018

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import sinkhorn
    >>> scores = np.array([[0.9, 0.1, -0.3], [0.2, 0.5, 0.4], [-0.5, 0.6, 0.3]])
    >>> sinkhorn(scores, np.ones(3), np.ones(3), temperature=0.5)[0].round(6)
    array([0.747032, 0.147498, 0.10547 ])
    """
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or 0 in scores.shape:
        raise ValueError(f"scores must have shape (n, m); got {scores.shape}.")
    if np.isnan(scores).any() or (scores == np.inf).any():
        raise ValueError("scores must be finite or -inf; got NaN or +inf.")
    rows = _check_sums("row_sums", row_sums, scores.shape[0])
    columns = _check_sums("col_sums", col_sums, scores.shape[1])
    total = rows.sum()
    if abs(columns.sum() - total) > 1e-9 * total:
        raise ValueError(
            f"row_sums and col_sums must have one total; got {total} and "
            f"{columns.sum()}."
        )
    temperature = check_scale("temperature", temperature)
    tol, max_iter = check_scale("tol", tol), check_count("max_iter", max_iter)

    used = np.ix_(rows > 0, columns > 0)
    part = scores[used]
    finite = np.isfinite(part)
    if not (finite.any(axis=0).all() and finite.any(axis=1).all()):
        raise ValueError(
            "scores must allow something in every row and column of positive sum."
        )
    log_rows = np.log(rows[rows > 0] / total)
    log_columns = np.log(columns[columns > 0] / columns.sum())
    duals, n_iter = _column_duals(
        part, log_rows, log_columns, temperature, tol, max_iter
    )
    with np.errstate(under="ignore"):
        exponent = (part + duals) / temperature
        exponent += (log_rows - logsumexp(exponent, axis=1))[:, None]
        exponent += log_columns - logsumexp(exponent, axis=0)
        inner = np.exp(exponent)
    plan = np.zeros(scores.shape)
    plan[used] = inner * total
    info = {
        "row_error": float(np.abs(plan.sum(axis=1) - rows).max() / total),
        "col_error": float(np.abs(plan.sum(axis=0) - columns).max() / total),
        "n_iter": n_iter,
    }
    info["converged"] = max(info["row_error"], info["col_error"]) <= tol
    if not info["converged"]:
        warnings.warn(
            f"sinkhorn stopped after {n_iter} sweeps with errors "
            f"{info['row_error']:.2g} of the row and {info['col_error']:.2g} of the "
            f"column sums, above tol={tol}. Raise max_iter or the temperature.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return (plan, info) if return_info else plan


def _column_duals(scores, log_rows, log_columns, temperature, tol, max_iter):
    """Return what is to be added to the columns of scores, and the sweeps it took.

    The softmax of every row, in shares of the rows, then has column sums
    ``exp(log_columns)``. The temperature falls by stages, each from the duals of the
    last.
    """
    finite = scores[np.isfinite(scores)]
    stages = [temperature]
    while stages[0] * 50 < finite.max() - finite.min():
        stages.insert(0, stages[0] * 4)
    duals = np.zeros(scores.shape[1])
    for stage in stages:
        last = stage == temperature
        duals, n_iter = _sweeps(
            scores / stage,
            log_rows,
            log_columns,
            duals / stage,
            0.3 * tol if last else 1e-3 / len(log_columns),
            max_iter if last else 50,
        )
        duals = duals * stage
    return duals, n_iter


def _sweeps(part, log_rows, log_columns, duals, tol, max_iter):
    """Alternate exact rows and exact columns, at temperature 1.

    Sweeps are slow where a plan is nearly a vertex. A Newton step of the column duals
    is tried now and then, again after every success, and taken if it halves the error.
    """
    targets = np.exp(log_columns)
    n_iter, newton_helps = 0, False
    with np.errstate(under="ignore"):
        while n_iter < max_iter:
            n_iter += 1
            row_duals = log_rows - logsumexp(part + duals, axis=1)
            shifted = logsumexp(part + row_duals[:, None], axis=0)
            before, duals = duals, log_columns - shifted
            # rows were exact before this update
            sums = np.exp(shifted + before)
            error = np.abs(targets - sums).max()
            if error <= tol:
                break
            if newton_helps or n_iter % 10 == 0:
                plan = np.exp(part + before + row_duals[:, None])
                trial = _newton(plan, log_rows, before, targets - sums)
                plan = np.exp(log_rows)[:, None] * RELAXATIONS["softmax"].forward(
                    part + trial
                )
                left = np.abs(targets - plan.sum(axis=0)).max()
                newton_helps = bool(left < 0.5 * error)
                if newton_helps:
                    duals = trial
    return duals, n_iter


def _newton(plan, log_rows, duals, gap):
    """Duals after a Newton step from a plan with exact rows; unchanged if singular."""
    # a constant added to all changes nothing: one column stays as it is
    free = np.arange(len(duals)) != np.argmax(plan.sum(axis=0))
    hessian = -(plan * np.exp(-log_rows)[:, None]).T @ plan
    diagonal = np.arange(len(duals))
    hessian[diagonal, diagonal] = 0.0
    # its rows sum to zero: no digits are lost to shares near 1
    hessian[diagonal, diagonal] = -hessian.sum(axis=1)
    result = duals.copy()
    try:
        step = np.linalg.solve(hessian[np.ix_(free, free)], gap[free])
    except np.linalg.LinAlgError:
        return result
    if np.isfinite(step).all():
        result[free] += step
    return result


def birkhoff_projection(scores, *, temperature=1.0, tol=1e-10, max_iter=10_000):
    """Project ``scores / temperature`` onto the doubly stochastic matrices.

    Parameters
    ----------
    scores : array-like of shape (..., n, n)
        Utilities of a matching; finite.
    temperature : float, default=1.0
        Positive.
    tol : float, default=1e-10
        Largest change in a round, and error of a column sum.
    max_iter : int, default=10000
        Rounds of alternating projections.

    Returns
    -------
    plan : ndarray of shape (..., n, n)
        Rows are exact probability vectors, columns are to the tolerance.

    Raises
    ------
    ValueError
        For scores that are not finite and square, or a parameter out of range.

    Warns
    -----
    ConvergenceWarning
        If the columns are not within ``tol``.

    References
    ----------
    .. [1] J. Boyle, R. Dykstra, "A Method for Finding Projections onto the
       Intersection of Convex Sets in Hilbert Spaces", 1986.
       https://doi.org/10.1007/978-1-4613-9940-7_3

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import birkhoff_projection
    >>> scores = np.array([[0.9, 0.1, -0.3], [0.2, 0.5, 0.4], [-0.5, 0.6, 0.3]])
    >>> birkhoff_projection(scores, temperature=0.5).round(6) + 0.0
    array([[1. , 0. , 0. ],
           [0. , 0.4, 0.6],
           [0. , 0.6, 0.4]])
    """
    scores = check_finite("scores", scores)
    if scores.ndim < 2 or scores.shape[-1] != scores.shape[-2] or not scores.size:
        raise ValueError(f"scores must have shape (..., n, n); got {scores.shape}.")
    temperature = check_scale("temperature", temperature)
    tol, max_iter = check_scale("tol", tol), check_count("max_iter", max_iter)
    project = RELAXATIONS["sparsemax"].forward
    plan = scores / temperature
    corrections = [np.zeros_like(plan), np.zeros_like(plan)]
    for _ in range(max_iter):
        before = plan
        moved = plan + corrections[0]
        by_column = np.swapaxes(project(np.swapaxes(moved, -1, -2)), -1, -2)
        corrections[0] = moved - by_column
        moved = by_column + corrections[1]
        plan = project(moved)
        corrections[1] = moved - plan
        error = np.abs(plan.sum(axis=-2) - 1.0).max()
        if max(error, np.abs(plan - before).max()) <= tol:
            return plan
    warnings.warn(
        f"birkhoff_projection stopped after {max_iter} rounds with an error "
        f"{error:.2g} of the column sums, above tol={tol}.",
        ConvergenceWarning,
        stacklevel=2,
    )
    return plan
