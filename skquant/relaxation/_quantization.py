"""What a quantizer needs of relaxations: responsibilities, occupancy, black boxes."""

import warnings

import numpy as np
from scipy.optimize import OptimizeResult
from sklearn.exceptions import ConvergenceWarning

from skquant.relaxation._categorical import gumbel_max
from skquant.relaxation._checks import (
    check_choice,
    check_count,
    check_finite,
    check_logits,
    check_scale,
)
from skquant.relaxation._noise import noise_generator, noise_law, sample_noise
from skquant.relaxation._responsibilities import RELAXATIONS, relax_logits

__all__ = [
    "balanced_responsibilities",
    "occupancy_prices",
    "optimize_rule",
    "perturbed_labels",
    "soft_responsibilities",
]

_BLOCK_ROWS = 8192


def soft_responsibilities(logits, *, temperature, kind="softmax"):
    """Relax the largest logit of every row.

    Parameters
    ----------
    logits : array-like of shape (..., K)
        Logits of the cells; -inf excludes a cell.
    temperature : float
        Nonnegative; 0 gives one-hot rows, the first of equals.
    kind : {"softmax", "sparsemax"}, default="softmax"
        Softmax is the law of `perturbed_labels`; sparsemax has exact zeros.

    Returns
    -------
    responsibilities : ndarray of shape (..., K)
        Rows are probability vectors.

    Raises
    ------
    ValueError
        For NaN, +inf, a row of -inf alone, or a parameter out of range.

    References
    ----------
    .. [1] A. Martins, R. Astudillo, "From Softmax to Sparsemax", ICML 2016.
       arXiv:1602.02068.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import soft_responsibilities
    >>> logits = -((0.6 - np.array([-1.0, 0.0, 2.0])) ** 2)
    >>> soft_responsibilities(logits, temperature=0.5).round(4)
    array([0.0117, 0.9496, 0.0387])
    >>> soft_responsibilities(logits, temperature=0.5, kind="sparsemax")
    array([0., 1., 0.])
    """
    logits = check_logits(logits)
    check_choice("kind", kind, tuple(RELAXATIONS))
    temperature = check_scale("temperature", temperature, positive=False)
    return relax_logits(logits, RELAXATIONS[kind], temperature)


def perturbed_labels(logits, *, temperature, random_state=None):
    """Draw the largest of ``logits + temperature * Gumbel`` of every row.

    Parameters
    ----------
    logits : array-like of shape (..., K)
        Logits of the cells; -inf excludes a cell.
    temperature : float
        Scale of the noise, nonnegative; 0 gives the largest, the first of equals.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    labels : ndarray of int of shape (...)
        Their law is the softmax `soft_responsibilities`.

    Raises
    ------
    ValueError
        As `soft_responsibilities`.

    References
    ----------
    .. [1] C. Maddison, D. Tarlow, T. Minka, "A* Sampling", NeurIPS 2014.
       arXiv:1411.0030.

    Examples
    --------
    >>> from skquant.relaxation import perturbed_labels
    >>> perturbed_labels([[0.0, 5.0], [5.0, 0.0]], temperature=0.1, random_state=0)
    array([1, 0])
    """
    logits = check_logits(logits)
    temperature = check_scale("temperature", temperature, positive=False)
    if temperature == 0.0:
        return np.argmax(logits, axis=-1)
    with np.errstate(over="ignore"):
        scaled = (logits - logits.max(axis=-1, keepdims=True)) / temperature
    return gumbel_max(scaled, random_state=random_state)


def occupancy_prices(moments, least, *, tol, max_iter=200):
    """Logit offsets g >= 0 that lift the weights of cells to their least.

    The dual of the transport problem with column sums of at least ``least``: it is
    concave in g, solved by Newton steps on the cells that need lifting, guarded by the
    exact single-cell step ``g_b += log(least_b / W_b)``.

    Parameters
    ----------
    moments : callable
        ``moments(g)`` returns the weights (K,) of the cells and their derivative
        (K, K) in the offsets.
    least : ndarray of shape (K,)
        Weights to reach, over the total.
    tol : float
        Largest shortfall, over the total.
    max_iter : int, default=200
        Evaluations.

    Returns
    -------
    prices : ndarray of shape (K,)
    shortfall : float
        Largest remaining violation of the conditions of optimality.
    """
    prices = np.zeros(len(least))
    best = np.inf
    for _ in range(max_iter):
        weights, slope = moments(prices)
        short = least - weights
        # a lifted cell must be exact, any other at least at its least
        error = float(np.max(np.where(prices > 0, np.abs(short), short), initial=0.0))
        if error <= tol:
            break
        active = (prices > 0) | (short > 0)
        step = np.zeros(len(least))
        if error < 0.5 * best:
            # some cell must stay free: a common offset does nothing
            block = slope[np.ix_(active, active)]
            step[active] = np.linalg.lstsq(block, short[active], rcond=1e-12)[0]
            step = np.clip(step, -2.0, 2.0)
        else:
            positive = active & (weights > 0)
            ratio = least[positive] / weights[positive]
            step[positive] = np.clip(np.log(np.maximum(ratio, 1e-300)), -20.0, 20.0)
            step[active & (weights == 0)] = 20.0
        best = min(best, error)
        prices = np.maximum(prices + step, 0.0)
        if active.all():
            prices -= prices.min()
    return prices, error


def balanced_responsibilities(
    logits,
    *,
    temperature,
    occupancy=None,
    sample_weight=None,
    at_least=False,
    tol=1e-9,
):
    """Softmax responsibilities whose cells have given shares of the weight.

    Every cell gets an offset of its logits, the same for all rows: the entropic
    transport plan between rows and cells.

    Parameters
    ----------
    logits : array-like of shape (n, K)
        Logits of the cells; finite.
    temperature : float
        Positive.
    occupancy : float or array-like of shape (K,), default=None
        Share of the total weight of each cell; None is ``1 / K``. Shares sum to 1, or
        with ``at_least`` to at most 1.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative; None is one each.
    at_least : bool, default=False
        Whether cells may be heavier: only those below their share are lifted.
    tol : float, default=1e-9
        Largest error of a share.

    Returns
    -------
    responsibilities : ndarray of shape (n, K)
        Rows are probability vectors; ``sample_weight @ responsibilities`` over the
        total is the occupancy.

    Raises
    ------
    ValueError
        For input that is not finite, shares that cannot be, or a parameter out of
        range.

    Warns
    -----
    ConvergenceWarning
        If a share is off by more than ``tol``; the error is in the message.

    References
    ----------
    .. [1] M. Cuturi, "Sinkhorn Distances", NeurIPS 2013. arXiv:1306.0895.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import balanced_responsibilities
    >>> points = np.array([0.0, 0.1, 0.2, 0.9, 1.0, 5.0])
    >>> logits = -((points[:, None] - [0.0, 0.5, 1.0]) ** 2)
    >>> shares = balanced_responsibilities(logits, temperature=0.1)
    >>> shares.sum(axis=0).round(6)
    array([2., 2., 2.])
    """
    logits = check_finite("logits", check_logits(logits))
    if logits.ndim != 2:
        raise ValueError(f"logits must have shape (n, K); got {logits.shape}.")
    n, n_bins = logits.shape
    temperature = check_scale("temperature", temperature)
    tol = check_scale("tol", tol)
    weights = np.ones(n) if sample_weight is None else sample_weight
    weights = check_finite("sample_weight", weights)
    if weights.shape != (n,) or (weights < 0).any() or not weights.sum() > 0:
        raise ValueError(
            f"sample_weight must be {n} nonnegative numbers with a positive sum; got "
            f"shape {weights.shape}."
        )
    weights = weights / weights.max()
    weights /= weights.sum()
    shares = check_finite("occupancy", 1.0 / n_bins if occupancy is None else occupancy)
    if shares.shape not in ((), (n_bins,)):
        raise ValueError(
            f"occupancy must be a number or {n_bins} of them; got {shares.shape}."
        )
    shares = np.broadcast_to(shares, (n_bins,))
    total = shares.sum()
    if (shares < 0).any() or total > 1 + 1e-9 or (not at_least and total < 1 - 1e-9):
        rule = "at most 1" if at_least else "1"
        raise ValueError(
            f"occupancy must be nonnegative with a sum of {rule}; got a sum of {total}."
        )
    used = shares > 0 if not at_least else np.ones(n_bins, dtype=bool)
    with np.errstate(over="ignore"):
        scaled = (logits - logits.max(axis=1, keepdims=True)) / temperature
    scaled = scaled[:, used]

    def moments(prices):
        relaxed = RELAXATIONS["softmax"].forward(scaled + prices)
        occupied = weights @ relaxed
        slope = np.diag(occupied) - (relaxed.T * weights) @ relaxed
        return occupied, slope

    if at_least:
        prices, error = occupancy_prices(moments, shares[used], tol=tol)
    else:
        prices, error = _exact_prices(moments, shares[used], tol)
    if error > tol:
        warnings.warn(
            f"balanced_responsibilities stopped with an error of {error:.2g} of a "
            f"share, above tol={tol}. Raise the temperature.",
            ConvergenceWarning,
            stacklevel=2,
        )
    result = np.zeros(logits.shape)
    result[:, used] = RELAXATIONS["softmax"].forward(scaled + prices)
    return result


def _exact_prices(moments, shares, tol, max_iter=2000):
    """Offsets at which the weights of the cells are the shares."""
    prices = np.zeros(len(shares))
    before = np.inf
    for _ in range(max_iter):
        weights, slope = moments(prices)
        error = float(np.abs(weights - shares).max())
        if error <= tol:
            break
        if error < 0.5 * before and (weights > 0).all():
            step = np.linalg.lstsq(slope, shares - weights, rcond=1e-12)[0]
            prices = prices + np.clip(step, -2.0, 2.0)
        else:
            with np.errstate(divide="ignore"):
                prices = prices + np.clip(np.log(shares / weights), -20.0, 20.0)
        before = error
    return prices, error


def optimize_rule(
    figure,
    start,
    *,
    sigma,
    step_size,
    n_iter,
    method="central",
    noise="normal",
    n_samples=16,
    batch=map,
    random_state=None,
):
    """Maximize a black-box figure by Gaussian smoothing of its parameters.

    Every iteration draws perturbations, estimates the gradient of the smoothed figure
    from differences with common random numbers, and takes a step of a length that
    depends on the *direction* of the gradient alone (Adam), so that the unit of the
    figure does not matter. The best point seen is returned: never below the start.

    Parameters
    ----------
    figure : callable
        ``figure(parameters) -> float`` of an array of the shape of start; deterministic.
        It may be piecewise constant.
    start : array-like
        Parameters, each on the scale of 1.
    sigma : float
        Standard deviation of the perturbations; it falls linearly to a quarter.
    step_size : float
        Length of a step a parameter, in the same unit; it falls with sigma.
    n_iter : int
        Iterations.
    method : {"central", "forward"}, default="central"
        Two evaluations a draw, or one and one in common.
    noise : {"normal", "laplace", "logistic"}, default="normal"
        Law of the perturbations; "central" needs a symmetric one.
    n_samples : int, default=16
        Draws an iteration.
    batch : callable, default=map
        ``batch(figure, list_of_parameters)`` evaluates them, in parallel perhaps.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    result : OptimizeResult
        ``x`` and ``fun``, the best parameters and figure; ``history``, the figure at
        the current parameters of every iteration; ``nfev`` and ``nit``.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the figure is not a finite number.

    References
    ----------
    .. [1] Y. Nesterov, V. Spokoiny, "Random Gradient-Free Minimization of Convex
       Functions", Found. Comput. Math. 17, 2017.
       https://doi.org/10.1007/s10208-015-9296-2
    .. [2] T. Salimans et al., "Evolution Strategies as a Scalable Alternative to
       Reinforcement Learning", arXiv:1703.03864.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import optimize_rule
    >>> points = np.linspace(0, 1, 101)
    >>> def figure(t):  # fewest mistakes at 0.7
    ...     return -np.mean((points > t[0]) != (points > 0.7))
    >>> found = optimize_rule(
    ...     figure, [0.2], sigma=0.1, step_size=0.05, n_iter=50, random_state=0
    ... )
    >>> bool(abs(found.x[0] - 0.7) < 0.02)
    True
    """
    start = check_finite("start", start)
    sigma, step_size = check_scale("sigma", sigma), check_scale("step_size", step_size)
    n_iter = check_count("n_iter", n_iter, minimum=0)
    n_samples = check_count("n_samples", n_samples)
    check_choice("method", method, ("central", "forward"))
    law = noise_law(noise)
    if method == "central" and not law.symmetric:
        raise ValueError(
            f"method='central' needs symmetric noise; got {noise!r}. Use 'forward'."
        )
    rng = noise_generator(random_state)

    def evaluate(points):
        values = np.array([float(value) for value in batch(figure, points)])
        if not np.isfinite(values).all():
            raise ValueError(
                f"figure must return finite numbers; got {values[~np.isfinite(values)]}."
            )
        return values

    current = start.copy()
    value = evaluate([current])[0]
    best, best_value, n_evaluations = current, value, 1
    history = [value]
    first, second = np.zeros_like(start), np.zeros_like(start)
    for iteration in range(n_iter):
        scale = 1.0 - 0.75 * iteration / n_iter
        width = sigma * scale
        noises = sample_noise(noise, (n_samples, *start.shape), rng)
        points = [current + width * z for z in noises]
        if method == "central":
            points += [current - width * z for z in noises]
        values = evaluate(points)
        n_evaluations += len(values)
        if method == "central":
            differences = 0.5 * (values[:n_samples] - values[n_samples:])
        else:
            differences = values - value
        slopes = law.slope(noises)
        gradient = np.tensordot(differences, slopes, 1) / (n_samples * width)
        # second moments are shared: rotations of the parameters change nothing
        first = 0.8 * first + 0.2 * gradient
        second = 0.95 * second + 0.05 * np.mean(gradient**2)
        mean = first / (1 - 0.8 ** (iteration + 1))
        spread = np.sqrt(second / (1 - 0.95 ** (iteration + 1)))
        moving = spread > 0
        current = current + step_size * scale * np.where(
            moving, mean / np.where(moving, spread, 1.0), 0.0
        )
        # the best of the draws is a candidate too
        at = int(np.argmax(values))
        if values[at] > best_value:
            best, best_value = points[at], values[at]
        value = evaluate([current])[0]
        n_evaluations += 1
        history.append(value)
        if value > best_value:
            best, best_value = current, value
    return OptimizeResult(
        x=np.array(best),
        fun=float(best_value),
        history=np.array(history),
        nfev=n_evaluations,
        nit=n_iter,
    )
