"""Smoothing by convolution: Gaussian kernels, soft infimal convolution, conjugates.

Functions live on uniform grids along the last axis, any leading axes are separate
functions, and every sum that stands for an integral carries the grid step.
"""

import numpy as np
from scipy import fft
from scipy.ndimage import gaussian_filter1d
from scipy.special import erfcx, ndtr

from skquant._checks import (
    check_choice,
    check_count,
    check_finite,
    check_scale,
)

__all__ = [
    "gaussian_kernel",
    "gaussian_smooth",
    "smoothed_relu",
    "smoothed_step",
    "soft_biconjugate",
    "soft_conjugate",
    "soft_infimal_convolution",
    "soft_moreau_envelope",
]

_METHODS = ("auto", "fft", "logsumexp")
_MODES = ("constant", "mirror", "nearest", "reflect", "wrap")
_BLOCK = 2**20
_MAX_SLOPES = 2**15


def gaussian_kernel(sigma, *, step=1.0, truncate=8.0):
    """Sample a Gaussian density at an odd number of nodes and normalize its sum.

    Parameters
    ----------
    sigma : float
        Standard deviation, in the units of ``step``; 0 gives the single weight 1.
    step : float, default=1.0
        Distance of the nodes: that of the signal to be smoothed.
    truncate : float, default=8.0
        Radius of the kernel in standard deviations.

    Returns
    -------
    weights : ndarray of shape (2 * radius + 1,)
        Symmetric, with sum 1.

    Raises
    ------
    ValueError
        If a parameter is out of range.

    Notes
    -----
    At ``truncate=8`` the variance of the weights is ``sigma ** 2`` to 1e-6 from
    ``sigma = step`` on, and to rounding from twice that. Below half a step the kernel
    is badly sampled and its variance falls short.

    References
    ----------
    .. [1] P. Getreuer, "A Survey of Gaussian Convolution Algorithms", Image
       Processing On Line 3, 2013. https://doi.org/10.5201/ipol.2013.87

    Examples
    --------
    >>> from skquant.relaxation import gaussian_kernel
    >>> gaussian_kernel(1.0, truncate=1.0).round(4)
    array([0.2741, 0.4519, 0.2741])
    """
    sigma = check_scale("sigma", sigma, positive=False)
    step = check_scale("step", step)
    radius = int(check_scale("truncate", truncate) * sigma / step + 0.5)
    if radius == 0:
        return np.ones(1)
    nodes = np.arange(-radius, radius + 1) * (step / sigma)
    with np.errstate(under="ignore"):
        weights = np.exp(-0.5 * nodes**2)
    return weights / weights.sum()


def gaussian_smooth(y, sigma, *, step=1.0, axis=-1, order=0, mode="reflect"):
    """Convolve a sampled function, or differentiate its convolution.

    The kernel is that of `gaussian_kernel`, on the nodes of the signal. Smooth one
    axis after the other for a product kernel in several dimensions.

    Parameters
    ----------
    y : array-like of shape (..., n)
        Values on a uniform grid.
    sigma : float
        Standard deviation of the kernel, in the units of ``step``; 0 leaves ``y``.
    step : float, default=1.0
        Distance of the nodes.
    axis : int, default=-1
        Axis of the grid.
    order : int, default=0
        Order of the derivative, per unit of ``step`` to that power. It falls on the
        kernel: ``y`` may jump, but ``sigma`` must be at least one step.
    mode : {"reflect", "constant", "mirror", "nearest", "wrap"}, default="reflect"
        What lies beyond the ends, as in `scipy.ndimage`; "constant" is zero and drags
        the ends toward it. Within 8 sigma of an end the result depends on it.

    Returns
    -------
    smoothed : ndarray of the shape of y
        The smoothed samples, or their derivative.

    Raises
    ------
    ValueError
        If an input is out of range, or a derivative is asked at ``sigma < step``,
        where the kernel is too badly sampled for one.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import gaussian_smooth
    >>> t = np.linspace(-4, 4, 801)
    >>> smooth = gaussian_smooth(t**2, 0.5, step=0.01)
    >>> smooth[[400, 450]].round(6)  # t^2 + sigma^2, at 0 and 0.5
    array([0.25, 0.5 ])
    >>> gaussian_smooth(t**2, 0.5, step=0.01, order=1)[[400, 450]].round(6)
    array([0., 1.])
    """
    y = check_finite("y", y)
    sigma = check_scale("sigma", sigma, positive=False)
    step = check_scale("step", step)
    order = check_count("order", order, minimum=0)
    check_choice("mode", mode, _MODES)
    if y.ndim == 0 or y.size == 0:
        raise ValueError(f"y must have a grid axis with nodes; got shape {y.shape}.")
    if order and sigma < step:
        raise ValueError(
            f"sigma must be at least the step {step} for order={order}; got {sigma}."
        )
    if sigma == 0.0:
        return y.copy()
    smooth = gaussian_filter1d(
        y, sigma / step, axis=axis, order=order, mode=mode, truncate=8.0
    )
    return smooth / step**order


def smoothed_step(x, sigma):
    """Step function with Gaussian noise in its argument: ``Phi(x / sigma)``.

    Parameters
    ----------
    x : array-like
        Where to evaluate.
    sigma : float
        Standard deviation of the noise; 0 is the limit: the step, 0.5 at 0.

    Returns
    -------
    value : ndarray of the shape of x
        In [0, 1].

    Raises
    ------
    ValueError
        If ``x`` is not finite or ``sigma`` negative.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.3.

    Examples
    --------
    >>> from skquant.relaxation import smoothed_step
    >>> smoothed_step([-0.3, 0.0, 0.3], 0.5).round(4)
    array([0.2743, 0.5 , 0.7257])
    """
    return smoothed_relu(x, sigma, order=1)


def smoothed_relu(x, sigma, *, order=0):
    """Positive part with Gaussian noise in its argument, or a derivative of it.

    Parameters
    ----------
    x : array-like
        Where to evaluate.
    sigma : float
        Standard deviation of the noise; 0 is the limit.
    order : {0, 1, 2}, default=0
        0 is ``x Phi(x / sigma) + sigma phi(x / sigma)``, 1 the smoothed step
        ``Phi(x / sigma)``, 2 the Gaussian density of width ``sigma`` at ``x``.

    Returns
    -------
    value : ndarray of the shape of x
        Nonnegative. The left tail keeps its relative precision.

    Raises
    ------
    ValueError
        If an input is out of range, or the density is asked at ``sigma=0``.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.3.

    Examples
    --------
    >>> from skquant.relaxation import smoothed_relu
    >>> smoothed_relu([-4.0, 0.3], 0.5)
    array([3.77513121e-17, 3.84336366e-01])
    """
    x = check_finite("x", x)
    sigma = check_scale("sigma", sigma, positive=False)
    if check_count("order", order, minimum=0) > 2:
        raise ValueError(f"order must be 0, 1 or 2; got {order}.")
    if sigma == 0.0:
        if order == 2:
            raise ValueError("sigma must be positive for order=2; got 0.")
        return np.heaviside(x, 0.5) if order else np.maximum(x, 0.0)
    with np.errstate(over="ignore", under="ignore"):
        t = x / sigma
        if order == 1:
            return ndtr(t)
        density = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
        if order == 2:
            return density / sigma
        right = x * ndtr(t) + sigma * density
        # phi(t) + t Phi(t) cancels; the Mills ratio takes phi(t) out of it
        mills = np.sqrt(np.pi / 2) * erfcx(np.maximum(-t, 0.0) / np.sqrt(2))
        t = np.clip(t, -1e5, 0.0)
        left = sigma * density * np.maximum(1.0 + t * mills, 0.0)
    return np.where(x < 0, left, right)


def _check_function(name, value):
    """Values on a grid: +inf is outside of the domain."""
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} must have a grid axis; got shape {array.shape}.")
    smallest = array.min(axis=-1)
    if not np.isfinite(smallest).all():
        raise ValueError(
            f"{name} must be finite or +inf, with a finite value in every row; got "
            f"{np.isnan(array).sum()} NaN, {(array == -np.inf).sum()} -inf and "
            f"{(smallest == np.inf).sum()} rows of +inf alone."
        )
    return array


def _check_grid(name, value):
    """Return a uniform ascending grid and its step."""
    grid = check_finite(name, value)
    if grid.ndim != 1 or len(grid) < 2:
        raise ValueError(
            f"{name} must be a grid of at least two nodes; got shape {grid.shape}."
        )
    step = (grid[-1] - grid[0]) / (len(grid) - 1)
    error = np.abs(np.diff(grid) - step).max()
    if step <= 0 or error > 1e-6 * step + 4 * np.spacing(np.abs(grid).max()):
        raise ValueError(
            f"{name} must be uniform and ascending; got steps from "
            f"{np.diff(grid).min():.6g} to {np.diff(grid).max():.6g}."
        )
    return grid, step


def _soft_maximum(exponents, n_out, width, eps, step):
    """``eps log(step sum exp(exponents / eps))`` over the last axis, in blocks.

    ``exponents(rows)`` gives those of a slice of the outputs, (..., rows, n);
    ``width`` is their number for one output.
    """
    size = max(1, _BLOCK // width)
    blocks = []
    for start in range(0, n_out, size):
        values = exponents(slice(start, min(start + size, n_out)))
        largest = values.max(axis=-1)
        if eps == 0.0:
            blocks.append(largest)
            continue
        shift = np.where(np.isfinite(largest), largest, 0.0)
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            sums = np.exp((values - shift[..., None]) / eps).sum(axis=-1)
            blocks.append(shift + eps * (np.log(sums) + np.log(step)))
    return np.concatenate(blocks, axis=-1)


def _fft_sums(f, g, eps):
    """Convolution of the exponentials, as (log scale, sums, absolute error)."""
    with np.errstate(under="ignore"):
        factors = [np.exp((a.min(axis=-1, keepdims=True) - a) / eps) for a in (f, g)]
    n_out = f.shape[-1] + g.shape[-1] - 1
    size = fft.next_fast_len(n_out, real=True)
    spectrum = fft.rfft(factors[0], size) * fft.rfft(factors[1], size)
    sums = fft.irfft(spectrum, size)[..., :n_out]
    norms = [np.sqrt(np.sum(a**2, axis=-1, keepdims=True)) for a in factors]
    return sums, np.finfo(np.float64).eps * norms[0] * norms[1]


def _infimal(f, g, outputs, step, eps, method):
    """The entries `outputs`, a slice, of the full soft infimal convolution."""
    check_choice("method", method, _METHODS)
    if eps > 0 and method != "logsumexp":
        sums, error = _fft_sums(f, g, eps)
        sums = sums[..., outputs]
        # rounding is absolute: it must be small beside the smallest sum
        if (sums > error * (1e3 if method == "fft" else 1e10)).all():
            base = f.min(axis=-1, keepdims=True) + g.min(axis=-1, keepdims=True)
            return base - eps * (np.log(sums) + np.log(step))
        if method == "fft":
            raise ValueError(
                "method='fft' needs sums above its rounding; got a smallest sum of "
                f"{sums.min():.3g} and a rounding of {error.max():.3g}. Use "
                "'logsumexp', or a larger eps."
            )
    elif method == "fft":
        raise ValueError("method='fft' needs a positive eps; got 0.")
    n, m = f.shape[-1], g.shape[-1]
    beyond = np.full((*g.shape[:-1], n - 1), np.inf)
    padded = np.concatenate([beyond, g, beyond], axis=-1)
    first = np.arange(n + m - 1)[outputs]

    def exponents(rows):
        index = first[rows, None] - np.arange(n) + (n - 1)
        return -(f[..., None, :] + padded[..., index])

    width = n * int(np.prod(np.broadcast_shapes(f.shape[:-1], g.shape[:-1])))
    return -_soft_maximum(exponents, len(first), width, eps, step)


def soft_infimal_convolution(f, g, *, step, eps, method="auto"):
    """Soft minimum over the ways to split a point: ``softmin_u f(u) + g(x - u)``.

    With ``eps > 0`` it is ``-eps log(step sum_j exp(-(f_j + g_(i-j)) / eps))``, the
    convolution of the exponentials; ``eps = 0`` is the infimal convolution.

    Parameters
    ----------
    f : array-like of shape (..., n)
        Values on a uniform grid; +inf is outside of the domain.
    g : array-like of shape (..., m)
        Values on another grid of the same step.
    step : float
        Distance of the nodes: the sums stand for integrals.
    eps : float
        Temperature, in the units of f; nonnegative.
    method : {"auto", "fft", "logsumexp"}, default="auto"
        "fft" costs O(n log n), but its rounding is relative to the *largest* sum;
        "logsumexp" costs O(n m) and is right everywhere. "auto" takes the first
        where it keeps ten digits of every sum.

    Returns
    -------
    h : ndarray of shape (..., n + m - 1)
        On the grid that starts at the sum of the two first nodes.

    Raises
    ------
    ValueError
        For NaN, -inf, a row of +inf alone, a parameter out of range, or "fft" where
        rounding hides a sum.

    Notes
    -----
    Ref. [1]_ writes the sum without the grid step, which shifts the result by
    ``-eps log(step)``.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import soft_infimal_convolution
    >>> x = np.linspace(-4, 4, 801)
    >>> huber = soft_infimal_convolution(np.abs(x), x**2 / 2, step=0.01, eps=0.0)
    >>> huber[[800, 840, 1050]].round(6)  # at 0, 0.4 and 2.5
    array([0.  , 0.08, 2.  ])
    """
    f, g = _check_function("f", f), _check_function("g", g)
    step = check_scale("step", step)
    eps = check_scale("eps", eps, positive=False)
    return _infimal(f, g, slice(None), step, eps, method)


def soft_moreau_envelope(f, *, step, eps, method="auto"):
    """Soft infimal convolution with ``z^2 / 2``, on the grid of the function.

    Parameters
    ----------
    f : array-like of shape (..., n)
        Values on a uniform grid; +inf is outside of the domain.
    step : float
        Distance of the nodes.
    eps : float
        Temperature; 0 is the Moreau envelope (of the absolute value: Huber's loss).
    method : {"auto", "fft", "logsumexp"}, default="auto"
        As in `soft_infimal_convolution`.

    Returns
    -------
    envelope : ndarray of shape (..., n)
        Its values at the grid points.

    Raises
    ------
    ValueError
        As `soft_infimal_convolution`.

    Notes
    -----
    With a Gaussian kernel of variance ``eps`` this is ``-eps log`` of the smoothed
    ``exp(-f / eps)``, minus ``(eps / 2) log(2 pi eps)``; it is not the smoothed f,
    which lies above it but for that constant.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.1.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import soft_moreau_envelope
    >>> x = np.linspace(-4, 4, 801)
    >>> for eps in [0.1, 0.01, 0.0]:  # at 0.4 and 2.5, without the constant
    ...     envelope = soft_moreau_envelope(np.abs(x), step=0.01, eps=eps)
    ...     constant = eps / 2 * np.log(2 * np.pi * eps) if eps else 0.0
    ...     print((envelope + constant)[[440, 650]].round(3))
    [0.214 2.   ]
    [0.103 2.   ]
    [0.08 2.  ]
    """
    f = _check_function("f", f)
    step = check_scale("step", step)
    eps = check_scale("eps", eps, positive=False)
    n = f.shape[-1]
    parabola = 0.5 * (np.arange(1 - n, n) * step) ** 2
    return _infimal(f, parabola, slice(n - 1, 2 * n - 1), step, eps, method)


def soft_conjugate(f, x, v=None, *, eps, method="auto"):
    """Soft convex conjugate: ``eps log(step sum_j exp((v x_j - f_j) / eps))``.

    Parameters
    ----------
    f : array-like of shape (..., n)
        Values on the grid; +inf is outside of the domain.
    x : array-like of shape (n,)
        Uniform ascending grid. A finite grid makes the result asymptotically linear
        in v beyond the slopes of f.
    v : array-like of shape (k,), default=None
        Slopes; None takes the grid itself.
    eps : float
        Temperature; 0 is the convex conjugate on the grid.
    method : {"auto", "fft", "logsumexp"}, default="auto"
        "fft" writes it as the soft Moreau envelope of ``f - x^2 / 2`` and needs
        ``v=None``. As in `soft_infimal_convolution`.

    Returns
    -------
    conjugate : ndarray of shape (..., k)
        Its values at the slopes.

    Raises
    ------
    ValueError
        For NaN, -inf, a grid that is not uniform, a parameter out of range, or "fft"
        with other slopes or where rounding hides a sum.

    Notes
    -----
    Up to the factor ``eps log`` it is a two-sided Laplace transform, of
    ``exp(-f / eps)`` at ``-v / eps``. Corrected against [1]_: the sums carry the grid
    step; the entries of its vector q are functions of the integration variable u, not
    of v; the conjugate of ``f(t - t0)`` is ``f*(s) + t0 s``, not ``f*(s) + t0``.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.2.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import soft_conjugate
    >>> x = np.linspace(-5, 5, 1001)
    >>> soft_conjugate(x**2, x, [0.6], eps=0.1)
    array([0.03210724])
    """
    f = _check_function("f", f)
    x, step = _check_grid("x", x)
    eps = check_scale("eps", eps, positive=False)
    check_choice("method", method, _METHODS)
    if f.shape[-1] != len(x):
        raise ValueError(
            f"f must have one value a node of x; got {f.shape[-1]} for {len(x)}."
        )
    if v is None and eps > 0 and method != "logsumexp":
        # about the middle of the grid, so that an offset of x is not squared
        center = 0.5 * (x[0] + x[-1])
        z = x - center
        bent = f - center * x - 0.5 * z**2
        envelope = soft_moreau_envelope(bent, step=step, eps=eps, method=method)
        return (0.5 * z + center) * z - envelope
    if method == "fft":
        raise ValueError(
            f"method='fft' needs v=None and a positive eps; got eps={eps} and "
            f"{'no slopes' if v is None else 'slopes'}."
        )
    v = x if v is None else check_finite("v", v)
    if v.ndim != 1:
        raise ValueError(f"v must have shape (k,); got {v.shape}.")

    def exponents(rows):
        return v[rows, None] * x - f[..., None, :]

    return _soft_maximum(exponents, len(v), f.size, eps, step)


def soft_biconjugate(f, x, *, eps, slopes=None):
    """Soft convex envelope: the soft conjugate of the soft conjugate.

    Parameters
    ----------
    f : array-like of shape (..., n)
        Values on the grid; +inf is outside of the domain.
    x : array-like of shape (n,)
        Uniform ascending grid.
    eps : float
        Temperature; 0 is the lower convex hull, up to the grid of slopes.
    slopes : array-like of shape (k,), default=None
        Uniform ascending grid of slopes. None spans the finite differences of f, with
        a margin, so that only within a tenth of the range of an end of x something
        is missing.

    Returns
    -------
    envelope : ndarray of shape (..., n)
        Its values at the grid points.

    Raises
    ------
    ValueError
        As `soft_conjugate`.

    Notes
    -----
    For ``a x^2 / 2`` the result is too high by exactly ``eps log(a)``.

    References
    ----------
    .. [1] M. Blondel, V. Roulet, "The Elements of Differentiable Programming",
       arXiv:2403.14606, section 14.2.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import soft_biconjugate
    >>> x = np.linspace(-3, 3, 301)
    >>> wiggly = x**2 + 0.3 * np.sin(6 * np.pi * x)
    >>> round(float(soft_biconjugate(wiggly, x, eps=0.001)[150]), 2)
    -0.28
    """
    f = _check_function("f", f)
    x, _ = _check_grid("x", x)
    eps = check_scale("eps", eps, positive=False)
    if f.shape[-1] != len(x):
        raise ValueError(
            f"f must have one value a node of x; got {f.shape[-1]} for {len(x)}."
        )
    if slopes is None:
        slopes = _slope_grid(f, x, eps)
    conjugate = soft_conjugate(f, x, slopes, eps=eps, method="logsumexp")
    return soft_conjugate(conjugate, slopes, x, eps=eps, method="logsumexp")


def _slope_grid(f, x, eps):
    with np.errstate(invalid="ignore"):
        found = np.diff(f, axis=-1) / np.diff(x)
    found = found[np.isfinite(found)]
    low, high = (found.min(), found.max()) if found.size else (0.0, 0.0)
    length = x[-1] - x[0]
    # exp(-40) at a tenth of the range from an end
    margin = 400.0 * eps / length
    if high == low and margin == 0.0:
        margin = max(np.abs(low), 1.0)
    low, high = low - margin, high + margin
    if eps == 0.0:
        return np.linspace(low, high, _MAX_SLOPES // 4)
    fine = 2.0 * (high - low) * length / eps
    return np.linspace(low, high, int(np.clip(fine, 4 * len(x), _MAX_SLOPES)))
