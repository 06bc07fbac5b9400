"""What combinatorial structures share: checks, batches, and derivatives."""

import numpy as np

from skquant._checks import check_choice, check_scale

__all__ = ["Structure"]

_MOST_VERTICES = 1_000_000


class Structure:
    """What the structures share.

    A subclass has ``shape`` (of one vertex), ``regularizers`` (the first is the
    exponential family), ``_check`` (feasibility), ``_best(u)``, ``_family(z)``, which
    returns marginals and log partition at temperature 1 for real or complex z, and
    ``_list()``.
    """

    regularizers: tuple[str, ...] = ("exponential",)

    def __repr__(self):
        options = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({options})"

    def _utilities(self, u, name="u"):
        u = np.asarray(u, dtype=np.float64)
        core = len(self.shape)
        if u.shape[u.ndim - core :] != self.shape or u.ndim < core:
            raise ValueError(
                f"{name} must have shape (..., {', '.join(map(str, self.shape))}) for "
                f"{self!r}; got {u.shape}."
            )
        if np.isnan(u).any() or (u == np.inf).any():
            raise ValueError(
                f"{name} must be finite or -inf; got {np.isnan(u).sum()} NaN and "
                f"{(u == np.inf).sum()} +inf."
            )
        return u

    def _rows(self, u):
        """Utilities with the batch axes made one."""
        lead = u.shape[: u.ndim - len(self.shape)]
        return u.reshape(int(np.prod(lead)), *self.shape)

    def argmax(self, u):
        """Return the vertex of largest utility; the first of equals where that is said.

        Parameters
        ----------
        u : array-like of shape ``(..., *shape)``
            Utilities; -inf is forbidden.

        Returns
        -------
        x : ndarray of the shape of u
            Zeros and ones.

        Raises
        ------
        ValueError
            For NaN, +inf, or where nothing is allowed.
        """
        return self._vertex(self._utilities(u))

    def _vertex(self, u):
        """The best vertex, or ValueError where there is none."""
        self._feasible(u)
        return self._best(u)

    def _feasible(self, u):
        pass

    def _scaled(self, u, temperature):
        # differences to the largest: a low temperature must not overflow
        axes = tuple(range(-len(self.shape), 0))
        top = u.max(axis=axes, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(over="ignore"):
            return (u - top) / temperature, np.squeeze(top, axis=axes)

    def marginals(self, u, temperature=1.0):
        """Return the mean vertex under ``exp(<u, x> / temperature)``.

        Parameters
        ----------
        u : array-like of shape ``(..., *shape)``
            Utilities.
        temperature : float, default=1.0
            Nonnegative; 0 gives `argmax`.

        Returns
        -------
        mean : ndarray of the shape of u
            In the convex hull of the vertices.

        Raises
        ------
        ValueError
            As `argmax`, or for a negative temperature.
        """
        u = self._utilities(u)
        self._feasible(u)
        temperature = check_scale("temperature", temperature, positive=False)
        if temperature == 0.0:
            return self._best(u)
        return self._family(self._scaled(u, temperature)[0])[0]

    def log_partition(self, u, temperature=1.0):
        """Return ``temperature * log sum_x exp(<u, x> / temperature)``.

        Parameters
        ----------
        u : array-like of shape ``(..., *shape)``
            Utilities.
        temperature : float, default=1.0
            Nonnegative; 0 gives the largest utility. The value falls to it as the
            temperature does.

        Returns
        -------
        value : ndarray of shape (...)
            Its gradient is `marginals`.

        Raises
        ------
        ValueError
            As `marginals`.
        """
        u = self._utilities(u)
        self._feasible(u)
        temperature = check_scale("temperature", temperature, positive=False)
        axes = tuple(range(-len(self.shape), 0))
        if temperature == 0.0:
            best = self._best(u)
            return np.sum(np.where(best > 0, u, 0.0), axis=axes)
        if self._size is None:
            return temperature * self._family(u / temperature)[1]
        z, top = self._scaled(u, temperature)
        return temperature * self._family(z)[1] + top * self._size

    # ones in a vertex; None if vertices differ in it
    _size: int | None = None

    def relax(self, u, temperature=1.0, regularizer=None):
        """Return the maximizer of ``<u, x> - temperature * f(x)`` over the polytope.

        Parameters
        ----------
        u : array-like of shape ``(..., *shape)``
            Utilities.
        temperature : float, default=1.0
            Nonnegative; 0 gives `argmax`.
        regularizer : str, default=None
            One of ``regularizers``; None is the first.

        Returns
        -------
        x : ndarray of the shape of u
            Points of the polytope.

        Raises
        ------
        ValueError
            As `marginals`, or for an unknown regularizer.
        """
        regularizer = self._regularizer(regularizer)
        temperature = check_scale("temperature", temperature, positive=False)
        if regularizer == "exponential" or temperature == 0.0:
            return self.marginals(u, temperature)
        u = self._utilities(u)
        self._feasible(u)
        return self._relax(u, temperature, regularizer)

    def _regularizer(self, regularizer):
        if regularizer is None:
            return self.regularizers[0]
        return check_choice("regularizer", regularizer, self.regularizers)

    def vjp(self, u, v, temperature=1.0, regularizer=None, method="exact"):
        """Multiply a cotangent by the Jacobian of `relax`, which is symmetric.

        Parameters
        ----------
        u : array-like of shape ``(..., *shape)``
            Utilities.
        v : array-like
            Cotangent; broadcasts to the shape of u.
        temperature : float, default=1.0
            Positive.
        regularizer : str, default=None
            As in `relax`.
        method : {"exact", "two-solve"}, default="exact"
            "exact" is a closed form, or for the exponential family the derivative of
            its program along v by a complex step: the covariance of the vertices times
            ``v / temperature``. "two-solve" is a central difference of `relax`, of
            step ``1e-5 max(1, |u|) / |v|``.

        Returns
        -------
        product : ndarray of the shape of u
            The cotangent times the Jacobian by u.

        Raises
        ------
        ValueError
            As `relax`; also for a temperature of 0, where there is no derivative, and
            for "exact" where there is no closed form.

        References
        ----------
        .. [1] J. Domke, "Implicit Differentiation by Perturbation", NeurIPS 2010.
        .. [2] W. Squire, G. Trapp, "Using Complex Variables to Estimate Derivatives of
           Real Functions", SIAM Review 40, 1998.
           https://doi.org/10.1137/S003614459631241X
        """
        regularizer = self._regularizer(regularizer)
        check_choice("method", method, ("exact", "two-solve"))
        temperature = check_scale("temperature", temperature)
        u = self._utilities(u)
        self._feasible(u)
        v = np.broadcast_to(np.asarray(v, dtype=np.float64), u.shape)
        if not np.isfinite(v).all():
            raise ValueError("v must be finite; got NaN or infinite entries.")
        if method == "two-solve":
            return self._two_solve(u, v, temperature, regularizer)
        if regularizer != "exponential":
            return self._exact_vjp(u, v, temperature, regularizer)
        axes = tuple(range(-len(self.shape), 0))
        size = np.abs(v).max(axis=axes, keepdims=True, initial=0.0)
        # far below rounding, so that no second-order term is left
        step = 1e-30 / np.where(size > 0, size, 1.0)
        z = self._scaled(u, temperature)[0] + 1j * (v * step)
        product = self._family(z)[0].imag / step / temperature
        return np.where(size > 0, product, 0.0)

    def _exact_vjp(self, u, v, temperature, regularizer):
        raise ValueError(
            f"method='exact' is not known for regularizer={regularizer!r} of {self!r}; "
            "use 'two-solve'."
        )

    def _two_solve(self, u, v, temperature, regularizer):
        axes = tuple(range(-len(self.shape), 0))
        finite = np.where(np.isfinite(u), u, 0.0)
        norms = []
        for array in (finite, v):
            size = np.abs(array).max(axis=axes, keepdims=True, initial=0.0)
            squares = (array / np.where(size > 0, size, 1.0)) ** 2
            norms.append(size * np.sqrt(np.sum(squares, axis=axes, keepdims=True)))
        step = 1e-5 * np.maximum(1.0, norms[0]) / np.where(norms[1] > 0, norms[1], 1.0)
        up, down = (
            self.relax(u + sign * step * v, temperature, regularizer)
            for sign in (1, -1)
        )
        return np.where(norms[1] > 0, (up - down) / (2 * step), 0.0)

    def vertices(self):
        """Return all vertices; for small sizes.

        Returns
        -------
        vertices : ndarray of shape ``(m, *shape)``
            Zeros and ones, each vertex once.

        Raises
        ------
        ValueError
            If there are more than a million.
        """
        found = []
        for vertex in self._list():
            found.append(vertex)
            if len(found) > _MOST_VERTICES:
                raise ValueError(f"{self!r} has more than {_MOST_VERTICES} vertices.")
        return np.array(found, dtype=np.float64).reshape(len(found), *self.shape)
