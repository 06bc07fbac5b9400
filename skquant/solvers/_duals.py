"""Offsets of logits at which the cells of a softmax rule have given weights."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp


def occupancy_prices(evaluate, shares, start, *, at_least, tol):
    """Logit offsets of cells, the prices, at which their weights are given shares.

    With ``at_least`` prices are nonnegative, and positive only for cells that would
    otherwise be lighter. Newton steps on the cells that count, from a start; where they
    do not halve the error, L-BFGS on the convex dual first.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(prices)`` returns the weighted mean of the log partition of the rows,
        the weights (K,) of the cells, which are its gradient, and its Hessian (K, K).
    shares : ndarray of shape (K,)
        Shares to reach.
    start : ndarray of shape (K,)
        Prices to start from.
    at_least : bool
        Whether cells may be heavier than their share.
    tol : float
        Largest error of a share.

    Returns
    -------
    prices : ndarray of shape (K,)
    error : float
        Largest error of a share there.
    """

    def error_of(prices, weights):
        short = shares - weights
        if at_least:
            # a lifted cell must be exact, any other at least at its share
            short = np.where(prices > 0, np.abs(short), short)
        return float(np.abs(short).max() if not at_least else max(short.max(), 0.0))

    def newton(prices, most):
        best, best_error = prices, np.inf
        for _ in range(most):
            _, weights, hessian = evaluate(prices)
            error = error_of(prices, weights)
            stuck = error > 0.5 * best_error
            if error < best_error:
                best, best_error = prices, error
            if error <= tol or stuck:
                break
            active = np.ones(len(shares), dtype=bool)
            if at_least:
                active = (prices > 0) | (shares > weights)
            step = np.zeros(len(shares))
            block = hessian[np.ix_(active, active)]
            right = (shares - weights)[active]
            step[active] = np.linalg.lstsq(block, right, rcond=1e-13)[0]
            prices = prices + np.clip(step, -2.0, 2.0)
            if at_least:
                prices = np.maximum(prices, 0.0)
        return best, best_error

    def dual(prices):
        value, weights, _ = evaluate(prices)
        return value - shares @ prices, weights - shares

    prices, error = newton(start, 8)
    if error > tol:
        solved = minimize(
            dual,
            prices,
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, None)] * len(shares) if at_least else None,
            options={"maxiter": 1000, "ftol": 0.0, "gtol": 0.1 * tol},
        )
        other, other_error = newton(solved.x, 20)
        if other_error < error:
            prices, error = other, other_error
    return prices, error


def log_partition_and_weights(scaled, weights, prices):
    """What `occupancy_prices` evaluates, for logits (n, K) over the temperature."""
    shifted = scaled + prices
    log_partition = logsumexp(shifted, axis=1)
    with np.errstate(under="ignore"):
        relaxed = np.exp(shifted - log_partition[:, None])
        cells = weights @ relaxed
        hessian = np.diag(cells) - (relaxed.T * weights) @ relaxed
    return weights @ log_partition, cells, hessian
