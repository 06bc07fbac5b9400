"""Maximization of a figure without a gradient, by smoothing of its parameters."""

import numpy as np
from scipy.optimize import OptimizeResult

from skquant._checks import (
    check_choice,
    check_count,
    check_finite,
    check_scale,
)
from skquant._noise import noise_generator, noise_law, sample_noise

__all__ = ["optimize_rule"]


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
        ``figure(parameters) -> float`` of an array of the shape of start. It is
        deterministic, and may be piecewise constant.
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
            bad = values[~np.isfinite(values)]
            raise ValueError(f"figure must return finite numbers; got {bad}.")
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
