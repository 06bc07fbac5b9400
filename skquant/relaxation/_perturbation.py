"""Black-box functions and linear-program solvers under random perturbation.

Everywhere ``Z`` has independent coordinates with density ``exp(-nu(z)) / C`` and
mean zero, and ``f_sigma(mu)`` is the mean of ``f(mu + sigma Z)``.
"""

import math

import numpy as np

from skquant._checks import (
    check_choice,
    check_count,
    check_finite,
)
from skquant._noise import noise_generator, noise_law, sample_noise

__all__ = [
    "forward_mode_gradient",
    "perturbed_argmax",
    "perturbed_argmax_jacobian",
    "perturbed_argmax_vjp",
    "perturbed_gradient",
    "perturbed_max",
    "perturbed_value",
]

_BLOCK = 2**20


class _Perturbation:
    """Points, the scale of their noise, and averages over draws."""

    def __init__(self, name, mu, sigma, noise, point_ndim, vectorized, positive=False):
        self.mu = check_finite(name, mu)
        if self.mu.ndim == 0:
            point_ndim = 0
        self.point_ndim = check_count("point_ndim", point_ndim, minimum=0)
        if self.mu.ndim < point_ndim or self.mu.size == 0:
            raise ValueError(
                f"{name} must have {point_ndim} axes for a point, and an entry; got "
                f"shape {self.mu.shape}."
            )
        self.batch = self.mu.shape[: self.mu.ndim - point_ndim]
        self.point = self.mu.shape[self.mu.ndim - point_ndim :]
        self.axes = tuple(range(-point_ndim, 0))
        self.sigma = check_finite("sigma", sigma)
        low = self.sigma.min(initial=np.inf)
        if low < 0 or (positive and low == 0):
            rule = "positive" if positive else "nonnegative"
            raise ValueError(f"sigma must be {rule}; got {sigma!r}.")
        try:
            np.broadcast_to(self.sigma, self.mu.shape)
        except ValueError as error:
            raise ValueError(
                f"sigma must broadcast to the shape {self.mu.shape} of {name}; got "
                f"shape {self.sigma.shape}."
            ) from error
        self.noise = noise
        self.law = noise_law(noise)
        self.vectorized = vectorized

    def evaluate(self, name, function, points, *others, result=()):
        """Call a function of points (..., *point) once a point; result is its shape."""
        lead = points.shape[: points.ndim - self.point_ndim]
        shape = (math.prod(lead), *self.point)
        # copies: the function may change its arguments
        rows = [array.reshape(shape).copy() for array in (points, *others)]
        if self.vectorized:
            values = function(*rows)
        else:
            values = [function(*arguments) for arguments in zip(*rows, strict=True)]
        try:
            values = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name} must return numbers.") from error
        if values.shape != (len(rows[0]), *result):
            raise ValueError(
                f"{name} must return shape {result} for a point of shape "
                f"{self.point}; {len(rows[0])} points got shape {values.shape}."
            )
        bad = values.size - np.count_nonzero(np.isfinite(values))
        if bad:
            raise ValueError(
                f"{name} must return finite numbers; got {bad} NaN or infinite of "
                f"{values.size}."
            )
        return values.reshape((*lead, *result))

    def expand(self, values):
        """Add the axes of a point."""
        return values.reshape(values.shape + (1,) * self.point_ndim)

    def inner(self, a, b):
        return np.sum(a * b, axis=self.axes)

    def average(self, draw, n_samples, return_std, random_state, width=1):
        """Mean of draw(z) over its first axis and, on request, its standard error.

        Every draw and point has its own noise; ``width`` is the size of a result a
        coordinate of mu.
        """
        n_samples = check_count("n_samples", n_samples, 2 if return_std else 1)
        rng = noise_generator(random_state)
        block = max(1, _BLOCK // (self.mu.size * width))
        n, mean, spread = 0, 0.0, 0.0
        while n < n_samples:
            m = min(block, n_samples - n)
            values = draw(sample_noise(self.noise, (m, *self.mu.shape), rng))
            center = values.mean(axis=0)
            shift = center - mean
            if return_std:
                spread = spread + np.sum((values - center) ** 2, axis=0)
                spread += shift**2 * (n * m / (n + m))
            mean = mean + shift * (m / (n + m))
            n += m
        return (mean, np.sqrt(spread / (n - 1) / n)) if return_std else mean

    def smooth(self, function, n_samples, return_std, random_state):
        """Mean of function(mu + sigma z); without noise, its value at mu."""
        if not self.sigma.any():
            value = function(self.mu)
            return (value, np.zeros_like(value)) if return_std else value
        return self.average(
            lambda z: function(self.mu + self.sigma * z),
            n_samples,
            return_std,
            random_state,
        )


def perturbed_value(
    fun,
    mu,
    *,
    sigma,
    n_samples=1000,
    noise="normal",
    point_ndim=1,
    vectorized=False,
    return_std=False,
    random_state=None,
):
    """Monte Carlo estimate of ``E f(mu + sigma Z)``.

    Parameters
    ----------
    fun : callable
        Maps a point of shape (M,) to a number; with ``vectorized=True``, points of
        shape (N, M) to (N,) numbers.
    mu : array-like of shape (..., M)
        Points; leading axes are separate ones, with independent noise.
    sigma : float or array-like
        Scale of the noise, in the units of mu; an array broadcasts to its shape. At 0
        nothing is drawn.
    n_samples : int, default=1000
        Draws a point.
    noise : {"normal", "gumbel", "laplace", "logistic"}, default="normal"
        Law of Z, of mean zero and unit scale (not unit variance).
    point_ndim : int, default=1
        Number of trailing axes that make one point; a scalar mu is a point without
        axes.
    vectorized : bool, default=False
        Whether ``fun`` takes many points at a time.
    return_std : bool, default=False
        Whether to return the standard error too.
    random_state : int, RandomState, Generator or None, default=None
        An int gives common random numbers to several calls.

    Returns
    -------
    value : ndarray of shape (...)
        The estimate.
    std : ndarray of shape (...)
        Standard error of ``value``; only if ``return_std``.

    Raises
    ------
    ValueError
        If a parameter is out of range, or ``fun`` returns anything but finite numbers.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.4.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import perturbed_value
    >>> def cube(u):
    ...     return u**3
    >>> value, std = perturbed_value(  # exact: mu^3 + 3 mu sigma^2 = 42.98
    ...     cube, 3.5, sigma=0.1, vectorized=True, return_std=True, random_state=0
    ... )
    >>> bool(abs(value - 42.98) < 4 * std)
    True
    """
    p = _Perturbation("mu", mu, sigma, noise, point_ndim, vectorized)

    def value(points):
        return p.evaluate("fun", fun, points)

    return p.smooth(value, n_samples, return_std, random_state)


def perturbed_gradient(
    fun,
    mu,
    *,
    sigma,
    method="central",
    noise="normal",
    n_samples=1000,
    jac=None,
    wrt="mu",
    point_ndim=1,
    vectorized=False,
    return_std=False,
    random_state=None,
):
    """Monte Carlo estimate of the gradient of ``E f(mu + sigma Z)``.

    Parameters
    ----------
    fun : callable or None
        As in `perturbed_value`; it may jump. None is enough for "pathwise".
    mu : array-like of shape (..., M)
        Points; leading axes are separate ones, with independent noise.
    sigma : float or array-like
        Scale of the noise, positive (for "pathwise" nonnegative).
    method : {"central", "forward", "score", "pathwise"}, default="central"
        What is averaged, with ``u = mu + sigma Z``:

        - "score": ``f(u) nu'(Z) / sigma``. Its standard deviation grows like
          ``|f(mu)| / sigma``; seldom a good choice.
        - "forward": ``(f(u) - f(mu)) nu'(Z) / sigma``, one call a draw.
        - "central": ``(f(u) - f(mu - sigma Z)) nu'(Z) / (2 sigma)``, two calls a draw;
          the even part of f drops out. It needs symmetric noise: not "gumbel".
        - "pathwise": ``f'(u)`` from ``jac``. Wrong if f jumps: a step gives 0.
    noise, n_samples : as in `perturbed_value`
        The same as there.
    jac : callable, default=None
        Gradient of ``fun``, for "pathwise": (M,) to (M,), or (N, M) to (N, M).
    wrt : {"mu", "sigma"}, default="mu"
        What to differentiate by; "sigma" needs a scalar sigma.
    point_ndim, vectorized : as in `perturbed_value`
        The same as there.
    return_std : bool, default=False
        Whether to return the standard error too.
    random_state : as in `perturbed_value`
        The same as there.

    Returns
    -------
    gradient : ndarray of shape (..., M), or (...) for ``wrt="sigma"``
        Unbiased for the gradient of the smoothed function (for ``u^3`` that is
        ``3 mu^2 + 3 sigma^2``: the second term is what smoothing costs).
    std : ndarray of the same shape
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        If a parameter is out of range, "central" meets asymmetric noise, "pathwise"
        has no ``jac``, or a function returns anything but finite numbers.

    Notes
    -----
    Corrected against [1]_: a location-scale density in M dimensions carries the factor
    ``sigma ** -M``, and ``nu`` is the negative log-density, up to a constant. Its
    figure 14.4 is at ``mu = 3.5``.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.4.
    .. [2] Y. Nesterov, V. Spokoiny, "Random Gradient-Free Minimization of Convex
       Functions", Found. Comput. Math. 17, 2017.
       https://doi.org/10.1007/s10208-015-9296-2

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import perturbed_gradient
    >>> def step(u):  # its smoothed gradient is a Gaussian density
    ...     return (u[:, 0] >= 0) * 1.0
    >>> gradient, std = perturbed_gradient(
    ...     step, [0.3], sigma=0.5, vectorized=True, return_std=True, random_state=0
    ... )
    >>> bool(abs(gradient[0] - 0.66644921) < 4 * std[0])
    True
    """
    check_choice("method", method, ("central", "forward", "score", "pathwise"))
    check_choice("wrt", wrt, ("mu", "sigma"))
    positive = method != "pathwise"
    p = _Perturbation("mu", mu, sigma, noise, point_ndim, vectorized, positive)
    if method == "central" and not p.law.symmetric:
        raise ValueError(
            f"method='central' needs symmetric noise; got {noise!r}. Use 'forward'."
        )
    if method == "pathwise" and not callable(jac):
        raise ValueError(f"method='pathwise' needs the gradient jac; got {jac!r}.")
    if wrt == "sigma" and p.sigma.ndim:
        raise ValueError(
            f"wrt='sigma' needs one number as sigma; got shape {p.sigma.shape}."
        )

    def value(points):
        return p.evaluate("fun", fun, points)

    # the value at mu, where it serves as a control variate
    needs_center = method == "forward" or (method == "central" and wrt == "sigma")
    center = value(p.mu) if needs_center else 0.0

    def draw(z):
        if method == "pathwise":
            slopes = p.evaluate("jac", jac, p.mu + p.sigma * z, result=p.point)
            return slopes if wrt == "mu" else p.inner(slopes, z)
        values = value(p.mu + p.sigma * z)
        if wrt == "sigma":
            if method == "central":
                values = 0.5 * (values + value(p.mu - p.sigma * z))
            moment = p.inner(z, p.law.slope(z)) - math.prod(p.point)
            return (values - center) * moment / p.sigma
        if method == "central":
            values = 0.5 * (values - value(p.mu - p.sigma * z))
        return p.expand(values - center) * p.law.slope(z) / p.sigma

    return p.average(draw, n_samples, return_std, random_state)


def forward_mode_gradient(
    directional,
    mu,
    *,
    n_samples=1000,
    point_ndim=1,
    vectorized=False,
    return_std=False,
    random_state=None,
):
    """Gradient from directional derivatives in random directions.

    The mean of ``<f'(mu), Z> Z`` over normal Z: the limit of the "forward" and
    "central" methods of `perturbed_gradient` as sigma falls to 0. The trace of the
    covariance of one draw is ``(M + 1) |f'(mu)|^2``.

    Parameters
    ----------
    directional : callable
        ``directional(mu, z)``, the derivative of f at mu along z: a number for two
        arrays of shape (M,), or (N,) numbers for (N, M) with ``vectorized=True``.
    mu : array-like of shape (..., M)
        Points.
    n_samples, point_ndim, vectorized : as in `perturbed_gradient`
        The same as there.
    return_std, random_state : as in `perturbed_gradient`
        The same as there.

    Returns
    -------
    gradient : ndarray of shape (..., M)
        The estimate.
    std : ndarray of shape (..., M)
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        As `perturbed_gradient`.

    References
    ----------
    .. [1] A. Baydin et al., "Gradients without Backpropagation", arXiv:2202.08587.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import forward_mode_gradient
    >>> gradient = forward_mode_gradient(
    ...     lambda mu, z: 2 * mu @ z, [0.5, -1.0], n_samples=4000, random_state=0
    ... )
    >>> bool(np.allclose(gradient, [1.0, -2.0], atol=0.2))
    True
    """
    p = _Perturbation("mu", mu, 0.0, "normal", point_ndim, vectorized)

    def draw(z):
        mu = np.broadcast_to(p.mu, z.shape)
        return p.expand(p.evaluate("directional", directional, mu, z)) * z

    return p.average(draw, n_samples, return_std, random_state)


def perturbed_max(
    solver,
    theta,
    *,
    sigma,
    n_samples=1000,
    noise="gumbel",
    point_ndim=1,
    vectorized=False,
    return_std=False,
    random_state=None,
):
    """Monte Carlo estimate of ``E max_y <y, theta + sigma Z>`` over a finite set.

    Parameters
    ----------
    solver : callable
        Maps utilities of shape (M,) to the vertex y of shape (M,) that maximizes
        ``<y, u>``; with ``vectorized=True``, (N, M) to (N, M).
    theta : array-like of shape (..., M)
        Mean utilities.
    sigma : float or array-like
        Scale of the noise; 0 is the maximum itself.
    n_samples, noise, point_ndim, vectorized : as in `perturbed_value`
        The same as there; the default noise is Gumbel, of mean zero. Matrices
        of utilities have ``point_ndim=2``.
    return_std, random_state : as in `perturbed_value`
        The same as there.

    Returns
    -------
    value : ndarray of shape (...)
        The estimate.
    std : ndarray of shape (...)
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        If a parameter is out of range, or ``solver`` returns anything but finite
        arrays of the shape of its argument.

    See Also
    --------
    perturbed_argmax : Its gradient.

    Notes
    -----
    On the one-hot vectors with Gumbel noise it is ``sigma logsumexp(theta / sigma)``
    exactly, without the ``sigma`` times Euler's constant that uncentered Gumbel noise
    adds. It is convex in theta. Strictly so only if the vertices span the space
    (corrected against [1]_): on the simplex a common shift of theta adds itself.

    The other estimator of its gradient is `perturbed_gradient` of the maximum, with
    ``method="forward"``; it has the larger variance.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.5.
    .. [2] Q. Berthet et al., "Learning with Differentiable Perturbed Optimizers",
       NeurIPS 2020. arXiv:2002.08676.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import perturbed_max
    >>> def one_hot(u):
    ...     return np.eye(len(u))[np.argmax(u)]
    >>> value, std = perturbed_max(
    ...     one_hot, [0.5, 0.0, -0.5], sigma=1.0, return_std=True, random_state=0
    ... )
    >>> bool(abs(value - 1.18026967) < 4 * std)
    True
    """
    p = _Perturbation("theta", theta, sigma, noise, point_ndim, vectorized)

    def value(u):
        return p.inner(u, p.evaluate("solver", solver, u, result=p.point))

    return p.smooth(value, n_samples, return_std, random_state)


def perturbed_argmax(
    solver,
    theta,
    *,
    sigma,
    n_samples=1000,
    noise="gumbel",
    point_ndim=1,
    vectorized=False,
    return_std=False,
    random_state=None,
):
    """Monte Carlo estimate of the mean vertex ``E argmax_y <y, theta + sigma Z>``.

    It lies in the convex hull of the vertices and is the gradient of `perturbed_max`.

    Parameters
    ----------
    solver, theta, sigma, n_samples, noise : as in `perturbed_max`
        The same as there; ``sigma=0`` gives the vertex itself.
    point_ndim, vectorized, return_std, random_state : as in `perturbed_max`
        The same as there.

    Returns
    -------
    vertex : ndarray of shape (..., M)
        Estimated mean vertex.
    std : ndarray of shape (..., M)
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        As `perturbed_max`.

    References
    ----------
    .. [1] Q. Berthet et al., "Learning with Differentiable Perturbed Optimizers",
       NeurIPS 2020. arXiv:2002.08676.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import perturbed_argmax
    >>> def one_hot(u):
    ...     return np.eye(u.shape[-1])[np.argmax(u, axis=-1)]
    >>> mean, std = perturbed_argmax(
    ...     one_hot,
    ...     [0.5, 0.0, -0.5],
    ...     sigma=1.0,
    ...     vectorized=True,
    ...     return_std=True,
    ...     random_state=0,
    ... )
    >>> bool((abs(mean - [0.50648039, 0.30719589, 0.18632372]) < 4 * std).all())
    True
    """
    p = _Perturbation("theta", theta, sigma, noise, point_ndim, vectorized)

    def vertex(u):
        return p.evaluate("solver", solver, u, result=p.point)

    return p.smooth(vertex, n_samples, return_std, random_state)


def _jacobian_setup(
    solver, theta, sigma, noise, point_ndim, vectorized, method, control_variate
):
    """Return the perturbation and a function of z: vertex or value, centered."""
    check_choice("method", method, ("argmax", "max"))
    p = _Perturbation("theta", theta, sigma, noise, point_ndim, vectorized, True)
    if method == "max" and p.law.curvature is None:
        raise ValueError(
            f"method='max' needs noise with a smooth log-density; got {noise!r}."
        )

    def result(u):
        vertex = p.evaluate("solver", solver, u, result=p.point)
        return vertex if method == "argmax" else p.inner(u, vertex)

    center = result(p.mu) if control_variate else 0.0
    return p, lambda z: result(p.mu + p.sigma * z) - center


def perturbed_argmax_vjp(
    solver,
    theta,
    v,
    *,
    sigma,
    n_samples=1000,
    noise="gumbel",
    method="argmax",
    control_variate=True,
    point_ndim=1,
    vectorized=False,
    return_std=False,
    random_state=None,
):
    """Monte Carlo estimate of v times the Jacobian of the mean vertex.

    Parameters
    ----------
    solver, theta : as in `perturbed_max`
        The same as there.
    v : array-like
        Cotangent; broadcasts to the shape (..., M) of theta.
    sigma : float or array-like
        Scale of the noise, positive.
    n_samples, noise : as in `perturbed_max`
        The same as there.
    method : {"argmax", "max"}, default="argmax"
        What is averaged, with ``u = theta + sigma Z``, the vertex y and the value
        ``f = <y, u>``:

        - "argmax": ``<v, y(u)> nu'(Z) / sigma``.
        - "max": ``f(u) (nu'(Z) nu'(Z)' - nu''(Z)) v / sigma^2``. Several times the
          standard deviation; not for "laplace" noise, whose ``nu`` has a kink.
    control_variate : bool, default=True
        Subtract ``y(theta)`` or ``f(theta)``: the mean stays, and the variance no
        longer explodes where sigma is small beside the gaps. One more call.
    point_ndim, vectorized : as in `perturbed_max`
        The same as there.
    return_std, random_state : as in `perturbed_max`
        The same as there.

    Returns
    -------
    product : ndarray of shape (..., M)
        The Jacobian is symmetric, so this is the Jacobian-vector product too.
    std : ndarray of shape (..., M)
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        As `perturbed_max`; also at ``sigma=0``, where the vertex has no Jacobian.

    References
    ----------
    .. [1] Q. Berthet et al., "Learning with Differentiable Perturbed Optimizers",
       NeurIPS 2020. arXiv:2002.08676.
    .. [2] J. Abernethy, C. Lee, A. Tewari, "Perturbation Techniques in Online Learning
       and Optimization", in Perturbations, Optimization, and Statistics, 2016.
       https://doi.org/10.7551/mitpress/10761.003.0009

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import perturbed_argmax_vjp
    >>> def one_hot(u):
    ...     return np.eye(u.shape[-1])[np.argmax(u, axis=-1)]
    >>> product, std = perturbed_argmax_vjp(
    ...     one_hot,
    ...     [0.5, 0.0, -0.5],
    ...     [1.0, 0.0, 0.0],
    ...     sigma=0.7,
    ...     vectorized=True,
    ...     return_std=True,
    ...     random_state=0,
    ... )
    >>> bool((abs(product - [0.34838343, -0.23388633, -0.1144971]) < 4 * std).all())
    True
    """
    p, centered = _jacobian_setup(
        solver, theta, sigma, noise, point_ndim, vectorized, method, control_variate
    )
    v = check_finite("v", v)
    try:
        v = np.broadcast_to(v, p.mu.shape)
    except ValueError as error:
        raise ValueError(
            f"v must broadcast to the shape {p.mu.shape} of theta; got {v.shape}."
        ) from error

    def draw(z):
        slope = p.law.slope(z) / p.sigma
        if method == "argmax":
            return p.expand(p.inner(v, centered(z))) * slope
        curvature = p.law.curvature(z) / p.sigma**2
        product = p.expand(p.inner(v, slope)) * slope - curvature * v
        return p.expand(centered(z)) * product

    return p.average(draw, n_samples, return_std, random_state)


def perturbed_argmax_jacobian(
    solver,
    theta,
    *,
    sigma,
    n_samples=1000,
    noise="gumbel",
    method="argmax",
    control_variate=True,
    vectorized=False,
    return_std=False,
    random_state=None,
):
    """Monte Carlo estimate of the Jacobian of the mean vertex.

    Parameters
    ----------
    solver, theta, sigma, n_samples, noise : as in `perturbed_argmax_vjp`
        The same as there, for points with one axis.
    method, control_variate, vectorized : as in `perturbed_argmax_vjp`
        The same as there.
    return_std, random_state : as in `perturbed_argmax_vjp`
        The same as there.

    Returns
    -------
    jacobian : ndarray of shape (..., M, M)
        Entry (i, j) is the derivative of coordinate i of the mean vertex by
        ``theta_j``; symmetric but for the noise.
    std : ndarray of shape (..., M, M)
        Standard error; only if ``return_std``.

    Raises
    ------
    ValueError
        As `perturbed_argmax_vjp`.

    References
    ----------
    .. [1] Q. Berthet et al., "Learning with Differentiable Perturbed Optimizers",
       NeurIPS 2020. arXiv:2002.08676.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import perturbed_argmax_jacobian
    >>> def one_hot(u):
    ...     return np.eye(u.shape[-1])[np.argmax(u, axis=-1)]
    >>> jacobian = perturbed_argmax_jacobian(
    ...     one_hot, np.zeros((4, 2)), sigma=0.7, vectorized=True, random_state=0
    ... )
    >>> jacobian.shape
    (4, 2, 2)
    """
    if np.ndim(theta) == 0:
        raise ValueError("theta must have shape (..., M); got a number.")
    p, centered = _jacobian_setup(
        solver, theta, sigma, noise, 1, vectorized, method, control_variate
    )

    def draw(z):
        slope = p.law.slope(z) / p.sigma
        if method == "argmax":
            return centered(z)[..., :, None] * slope[..., None, :]
        curvature = p.law.curvature(z) / p.sigma**2
        second = slope[..., :, None] * slope[..., None, :]
        second -= curvature[..., None] * np.eye(p.mu.shape[-1])
        return centered(z)[..., None, None] * second

    width = p.mu.shape[-1]
    return p.average(draw, n_samples, return_std, random_state, width)
