"""What is maximized: power means of the retained eigenvalues.

The *retained matrix* compares the information that survives the labels with the
full information. Its eigenvalues, here computed as those of the symmetric pencil
(information, reference), lie in [0, 1] and do not depend on the coordinates.
Every criterion of this module is a function of them, or of those of a block.

What a solver may use of a criterion beyond its three methods is declared in
`Criterion`, with defaults, and never guessed from the class. A user's object that does
not inherit from it is adapted once, by ``resolve_criterion``.
"""

import numbers
from abc import ABC, abstractmethod

import numpy as np
from sklearn.base import BaseEstimator, clone

from skquant._priors import (
    check_expected_events,
    column_index,
    precision_root,
    resolve_prior,
)
from skquant._tolerances import EQUAL, SINGULAR

__all__ = [
    "AOptimality",
    "Criterion",
    "DOptimality",
    "EOptimality",
    "NormalizedTrace",
    "PowerMean",
    "ProfiledDOptimality",
    "resolve_criterion",
]

# With constrained nuisances more than this costs retention on fresh rows: with 30 unit
# priors, 12 cells, 20000 rows .952 at it and .915 at .01.
_WEIGHT_WITH_PRIOR = 0.003


def retained_eigensystem(information, reference):
    """Eigenvalues of a symmetric pencil, rounding to 0 and 1 removed.

    Parameters
    ----------
    information, reference : array-like of shape (r, r)
        Symmetric matrices per unit of total weight; the reference is positive
        definite.

    Returns
    -------
    eigenvalues : ndarray of shape (r,)
        Ascending. Below ``1e3 * eps * r`` they are exactly 0, and within that of
        1 from above exactly 1.
    vectors : ndarray of shape (r, r)
        Columns ``v`` with ``v' reference v = 1``.
    """
    information = np.asarray(information, dtype=np.float64)
    reference = np.asarray(reference, dtype=np.float64)
    if (
        information.ndim != 2
        or information.shape != reference.shape
        or information.shape[0] != information.shape[1]
    ):
        raise ValueError(
            "information and reference must be square matrices of one shape; got "
            f"{information.shape} and {reference.shape}."
        )
    r = len(reference)
    if np.array_equal(reference, np.eye(r)):
        eigenvalues, vectors = np.linalg.eigh(0.5 * (information + information.T))
    else:
        # Unit diagonal first, so that neither units nor their squares matter.
        if not np.all(np.diag(reference) > 0):
            raise ValueError("reference must be positive definite.")
        scale = np.sqrt(np.diag(reference))
        pair = [m / scale / scale[:, None] for m in (information, reference)]
        try:
            lower = np.linalg.cholesky(pair[1])
        except np.linalg.LinAlgError as error:
            raise ValueError("reference must be positive definite.") from error
        half = np.linalg.solve(lower, pair[0])
        retained = np.linalg.solve(lower, half.T)
        eigenvalues, vectors = np.linalg.eigh(0.5 * (retained + retained.T))
        vectors = np.linalg.solve(lower.T, vectors)
        vectors /= scale[:, None]
    rounding = SINGULAR * r
    eigenvalues[eigenvalues < rounding] = 0.0
    eigenvalues[(eigenvalues > 1.0) & (eigenvalues < 1.0 + rounding)] = 1.0
    return eigenvalues, vectors


def _power_mean(eigenvalues, power):
    """Power mean of nonnegative numbers, relative to the smallest so that no power
    overflows."""
    smallest = eigenvalues[0]
    if smallest == 0.0 and power <= 0:
        return 0.0
    if power == -np.inf:
        return float(smallest)
    if power == 0:
        return float(np.exp(np.mean(np.log(eigenvalues))))
    unit = eigenvalues[-1] if power > 0 else smallest
    if unit == 0.0:
        return 0.0
    if smallest > 0 and abs(power) * np.log(eigenvalues[-1] / smallest) < 0.5:
        # powers close to one: their mean minus one would cancel
        logs = np.log(eigenvalues / unit)
        powers = np.expm1(power * logs)
        # of a power that small only the logarithms themselves have digits left
        if np.max(np.abs(powers)) < 1e-100:
            return float(unit * np.exp(np.mean(logs)))
        return float(unit * np.exp(np.log1p(np.mean(powers)) / power))
    return float(unit * np.mean((eigenvalues / unit) ** power) ** (1.0 / power))


class Criterion(BaseEstimator, ABC):
    """What is maximized, and what solvers may use of it.

    Only ``value``, ``gradient`` and ``efficiency`` have to be written. Each of the
    other members declares more, and lets solvers do more.

    Attributes
    ----------
    needs_columns : bool
        The criterion speaks of the user's columns, not of a subspace.
    concave : bool
        The value is a concave function of the information, so that its gradient bounds
        every gain from above: screening by it loses nothing, stability is certified.
    exchange_form : {"linear", "log_det", "inverse_trace"} or None
        Closed form of the gain of a relocation, for the compiled exchange.
    exponent : float or None
        The efficiency is the power mean of the retained eigenvalues to this power.
    interest : tuple of int
        Columns of interest, where the others are profiled out.
    expected_events : float or None
        The exposure that the total weight amounts to, where there is a prior.

    References
    ----------
    .. [1] F. Pukelsheim, "Optimal Design of Experiments", SIAM, 2006.
       https://doi.org/10.1137/1.9780898719109

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.criteria import Criterion
    >>> class FirstColumn(Criterion):
    ...     needs_columns = True
    ...     def value(self, information, reference):
    ...         return float(information[0, 0] / reference[0, 0])
    ...     def gradient(self, information, reference):
    ...         gradient = np.zeros_like(reference)
    ...         gradient[0, 0] = 1.0 / reference[0, 0]
    ...         return gradient
    ...     efficiency = value
    >>> FirstColumn().efficiency(np.diag([0.5, 1.0]), np.eye(2))
    0.5
    """

    needs_columns = False
    concave = False
    exchange_form = None
    exponent = None
    interest = ()
    expected_events = None

    @property
    def plain(self):
        """The user's own object.

        Returns
        -------
        criterion : object
            ``self``, but for an object that was adapted.
        """
        return self

    @abstractmethod
    def value(self, information, reference):
        """Return what solvers maximize.

        Parameters
        ----------
        information, reference : array-like of shape (r, r)
            Retained and full information per unit of total weight, in one common
            coordinate system.

        Returns
        -------
        value : float
            Minus infinity where the information is too little for any value.
        """

    @abstractmethod
    def gradient(self, information, reference):
        """Return the partial derivatives of ``value`` with respect to ``information``.

        Parameters
        ----------
        information, reference : array-like of shape (r, r)
            Retained and full information per unit of total weight, in one common
            coordinate system.

        Returns
        -------
        gradient : ndarray of shape (r, r)
            Symmetric; units of the value times total weight over information.
        """

    @abstractmethod
    def efficiency(self, information, reference):
        """Return what is reported.

        Parameters
        ----------
        information, reference : array-like of shape (r, r)
            Retained and full information per unit of total weight, in one common
            coordinate system.

        Returns
        -------
        efficiency : float
            In [0, 1]; 1 is lossless.
        """

    def resolve(self, n_features, feature_names):
        """Return a copy for one table, parameters checked.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.
        feature_names : sequence of str or None
            Names of the columns, if they have any.

        Returns
        -------
        criterion : Criterion
            Here ``self``.
        """
        return self

    def resolve_sample_size(self, n_features, effective_sample_size):
        """Return a copy with what depends on the sample size filled in.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.
        effective_sample_size : float
            Squared total weight over the total squared weight of the table.

        Returns
        -------
        criterion : Criterion
            Here ``self``.
        """
        return self

    def resolve_exposure(self, total_weight):
        """Return a copy with what depends on the total weight filled in.

        Parameters
        ----------
        total_weight : float
            Sum of the weights of the table.

        Returns
        -------
        criterion : Criterion
            Here ``self``.
        """
        return self

    def reported(self):
        """Return the criterion whose value orders tables as the efficiency does.

        Returns
        -------
        criterion : Criterion
            Here ``self``.
        """
        return self

    def continuation(self):
        """Return the criteria to solve one after the other.

        Returns
        -------
        criteria : list of Criterion
            Each is solved from the result of the last; here ``self`` alone.
        """
        return [self]

    def log_det_terms(self, n_features):
        """Return the value as signed log determinants of index blocks.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.

        Returns
        -------
        terms : list of (float, ndarray of int)
            Coefficient and indices of each block; for ``exchange_form="log_det"``.
        """
        raise NotImplementedError("exchange_form='log_det' needs log_det_terms.")

    def elimination_order(self, n_features):
        """Return an order of the columns in which they may be made orthogonal.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.

        Returns
        -------
        order : ndarray of int of shape (n_features,) or None
            None if that changes more than rounding.
        """
        return None

    def precision_root(self, n_features):
        """Return the root of the prior's precision per unit of total weight.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.

        Returns
        -------
        root : ndarray of shape (m, n_features) or None
            None without a prior.
        """
        return None

    def nuisance_retention(self, information, reference):
        """Return the smallest eigenvalue of the retained nuisance block.

        Parameters
        ----------
        information, reference : array-like of shape (r, r)
            Retained and full information per unit of total weight, in one common
            coordinate system.

        Returns
        -------
        retention : float or None
            In [0, 1]; None if nothing is profiled out.
        """
        return None


class _Adapted(Criterion):
    """A user's plain object with the defaults of what it does not declare."""

    _DECLARATIONS = (
        "needs_columns",
        "concave",
        "exchange_form",
        "log_det_terms",
        "elimination_order",
        "precision_root",
        "nuisance_retention",
    )

    def __init__(self, plain):
        self._plain = plain
        self.value, self.gradient = plain.value, plain.gradient
        self.efficiency = plain.efficiency
        for name in self._DECLARATIONS:
            if hasattr(plain, name):
                setattr(self, name, getattr(plain, name))

    value = gradient = efficiency = None

    def __repr__(self):
        return repr(self._plain)

    @property
    def plain(self):
        return self._plain

    def _resolved(self, method, *arguments):
        resolve = getattr(self._plain, method, None)
        return self if resolve is None else _Adapted(resolve(*arguments))

    def resolve(self, n_features, feature_names):
        return self._resolved("resolve", n_features, feature_names)

    def resolve_sample_size(self, n_features, effective_sample_size):
        return self._resolved("resolve_sample_size", n_features, effective_sample_size)

    def resolve_exposure(self, total_weight):
        return self._resolved("resolve_exposure", total_weight)

    def continuation(self):
        steps = getattr(self._plain, "continuation", None)
        return [self] if steps is None else [_adapt(each) for each in steps()]


def _adapt(criterion):
    return criterion if isinstance(criterion, Criterion) else _Adapted(criterion)


class _ConstrainedCriterion(Criterion):
    """A criterion of the information of data and prior together."""

    # of criteria that were stored before there were priors
    prior = None

    def resolve(self, n_features, feature_names):
        """Return a copy for one table, columns of the prior by index.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.
        feature_names : sequence of str or None
            Names of the columns, if they have any.

        Returns
        -------
        criterion : object
            A copy.

        Raises
        ------
        ValueError
            For a prior that does not fit the table or an ``expected_events`` that is
            not positive and finite.
        """
        check_expected_events(self.expected_events)
        prior = resolve_prior(self.prior, n_features, feature_names)
        return clone(self).set_params(prior=prior)

    def resolve_exposure(self, total_weight):
        """Return a copy whose ``expected_events`` is a number, where it matters.

        Parameters
        ----------
        total_weight : float
            Sum of the weights of the table.

        Returns
        -------
        criterion : object
            A copy; ``self`` without a prior or with a number already.

        Raises
        ------
        ValueError
            If the weights cannot be counts of events because their sum overflows.
        """
        if self.prior is None or self.expected_events is not None:
            return self
        if not 0.0 < total_weight < np.inf:
            raise ValueError(
                "expected_events must be given where the sum of the weights is no "
                f"number of events; got the sum {total_weight!r}."
            )
        return clone(self).set_params(expected_events=total_weight)

    def precision_root(self, n_features):
        """Return the root of the prior's precision per unit of total weight.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.

        Returns
        -------
        root : ndarray of shape (m, d) or None
            ``root.T @ root`` is the precision over ``expected_events``; None without
            a prior.
        """
        if self.prior is None:
            return None
        if self.expected_events is None:
            raise ValueError(
                "expected_events=None depends on the table; give a number, or let an "
                "estimator or resolve_criterion resolve it."
            )
        root = precision_root(self.prior, n_features)
        return root / np.sqrt(self.expected_events)


class _SpectralCriterion(_ConstrainedCriterion):
    """A symmetric function of the retained eigenvalues."""

    concave = True

    def __init__(self, *, prior=None, expected_events=None):
        self.prior = prior
        self.expected_events = expected_events

    def _spectral_value(self, eigenvalues):
        if self.exponent < 1 and eigenvalues[0] == 0.0:
            return -np.inf
        return _power_mean(eigenvalues, self.exponent)

    @abstractmethod
    def _derivative(self, eigenvalues):
        """Partial derivatives of the value in the (positive) eigenvalues."""

    def value(self, information, reference):
        """Return what solvers maximize.

        Parameters
        ----------
        information, reference : array-like of shape (r, r)
            Retained and full information per unit of total weight, in one common
            coordinate system.

        Returns
        -------
        value : float
            Minus infinity where the information is singular, but for the trace:
            a solver finds no way up from there.
        """
        return self._spectral_value(retained_eigensystem(information, reference)[0])

    def gradient(self, information, reference):
        """Return the partial derivatives of ``value`` with respect to ``information``.

        Parameters
        ----------
        information, reference : array-like of shape (r, r)
            As in ``value``.

        Returns
        -------
        gradient : ndarray of shape (r, r)
            Symmetric; units of the value times total weight over information.

        Raises
        ------
        ValueError
            Where the information is singular and the criterion needs its inverse.
        """
        eigenvalues, vectors = retained_eigensystem(information, reference)
        if self.exponent < 1 and np.isfinite(self.exponent) and eigenvalues[0] == 0:
            raise ValueError(
                f"{type(self).__name__} has no gradient where the retained "
                "information is singular."
            )
        return (vectors * self._derivative(eigenvalues)) @ vectors.T

    def efficiency(self, information, reference):
        """Return the power mean of the retained eigenvalues.

        Parameters
        ----------
        information, reference : array-like of shape (r, r)
            As in ``value``.

        Returns
        -------
        efficiency : float
            In [0, 1]; 1 is lossless.
        """
        eigenvalues, _ = retained_eigensystem(information, reference)
        return _power_mean(eigenvalues, self.exponent)


class NormalizedTrace(_SpectralCriterion):
    """Trace of the retained matrix: weighted k-means in whitened coordinates.

    The efficiency is the arithmetic mean of the retained eigenvalues.

    Parameters
    ----------
    prior : mapping of int or str to float, or array-like of shape (d, d), default=None
        What is known about the parameters beside the data: the standard deviation of
        each constrained parameter, in its unit, by column index or name, or a
        precision matrix, a row and a column for each parameter. Added to the
        information, all of it and what labels keep, in total units.
    expected_events : float, default=None
        The exposure to which the total weight of the table amounts, where there is a
        prior; None: the sum of the weights, which then are expected counts.

    References
    ----------
    .. [1] F. Pukelsheim, "Optimal Design of Experiments", SIAM, 2006.
       https://doi.org/10.1137/1.9780898719109

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import NormalizedTrace
    >>> NormalizedTrace().efficiency(np.diag([0.5, 1.0]), np.eye(2))
    0.75
    """

    exchange_form = "linear"
    exponent = 1.0

    def _spectral_value(self, eigenvalues):
        return float(np.sum(eigenvalues))

    def _derivative(self, eigenvalues):
        return np.ones_like(eigenvalues)


class DOptimality(_SpectralCriterion):
    """Log determinant of the retained matrix.

    The value is ``log det information - log det reference``, 0 when nothing is
    lost; the efficiency is the geometric mean of the retained eigenvalues.

    Parameters
    ----------
    prior : mapping of int or str to float, or array-like of shape (d, d), default=None
        What is known about the parameters beside the data: the standard deviation of
        each constrained parameter, in its unit, by column index or name, or a
        precision matrix, a row and a column for each parameter. Added to the
        information, all of it and what labels keep, in total units.
    expected_events : float, default=None
        The exposure to which the total weight of the table amounts, where there is a
        prior; None: the sum of the weights, which then are expected counts.

    References
    ----------
    .. [1] F. Pukelsheim, "Optimal Design of Experiments", SIAM, 2006.
       https://doi.org/10.1137/1.9780898719109

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import DOptimality
    >>> round(DOptimality().efficiency(np.diag([0.25, 1.0]), np.eye(2)), 12)
    0.5
    """

    exchange_form = "log_det"
    exponent = 0.0

    def log_det_terms(self, n_features):
        """Return the value as signed log determinants of index blocks.

        Parameters
        ----------
        n_features : int
            Number of coordinates.

        Returns
        -------
        terms : list of (float, ndarray of int)
            Coefficient and indices of each block.
        """
        return [(1.0, np.arange(n_features))]

    def _spectral_value(self, eigenvalues):
        if eigenvalues[0] == 0.0:
            return -np.inf
        return float(np.sum(np.log(eigenvalues)))

    def _derivative(self, eigenvalues):
        return 1.0 / eigenvalues


class AOptimality(_SpectralCriterion):
    """Minus the trace of the inverse retained matrix.

    The efficiency is the harmonic mean of the retained eigenvalues: the total
    variance of efficient estimates in whitened parameters, before over after.

    Parameters
    ----------
    prior : mapping of int or str to float, or array-like of shape (d, d), default=None
        What is known about the parameters beside the data: the standard deviation of
        each constrained parameter, in its unit, by column index or name, or a
        precision matrix, a row and a column for each parameter. Added to the
        information, all of it and what labels keep, in total units.
    expected_events : float, default=None
        The exposure to which the total weight of the table amounts, where there is a
        prior; None: the sum of the weights, which then are expected counts.

    References
    ----------
    .. [1] F. Pukelsheim, "Optimal Design of Experiments", SIAM, 2006.
       https://doi.org/10.1137/1.9780898719109

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import AOptimality
    >>> AOptimality().value(np.diag([0.25, 1.0]), np.eye(2))
    -5.0
    """

    exchange_form = "inverse_trace"
    exponent = -1.0

    def _spectral_value(self, eigenvalues):
        if eigenvalues[0] == 0.0:
            return -np.inf
        return float(-np.sum(1.0 / eigenvalues))

    def _derivative(self, eigenvalues):
        return eigenvalues**-2.0


class PowerMean(_SpectralCriterion):
    """Power mean of the retained eigenvalues.

    ``NormalizedTrace``, ``DOptimality``, ``AOptimality`` and ``EOptimality`` have
    the efficiencies of powers 1, 0, -1 and minus infinity. Value and efficiency
    are the same number here where the information is nonsingular.

    Parameters
    ----------
    power : float, default=0.0
        At most 1, where the mean is a concave function of the information;
        ``-np.inf`` is the minimum.
    prior : mapping of int or str to float, or array-like of shape (d, d), default=None
        What is known about the parameters beside the data: the standard deviation of
        each constrained parameter, in its unit, by column index or name, or a
        precision matrix, a row and a column for each parameter. Added to the
        information, all of it and what labels keep, in total units.
    expected_events : float, default=None
        The exposure to which the total weight of the table amounts, where there is a
        prior; None: the sum of the weights, which then are expected counts.

    References
    ----------
    .. [1] J. Kiefer, "General equivalence theory for optimum designs", Ann.
       Statist. 2 (1974). https://doi.org/10.1214/aos/1176342810

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import PowerMean
    >>> round(PowerMean(-1).efficiency(np.diag([0.25, 1.0]), np.eye(2)), 12)
    0.4
    """

    def __init__(self, power=0.0, *, prior=None, expected_events=None):
        super().__init__(prior=prior, expected_events=expected_events)
        self.power = power

    def resolve(self, n_features, feature_names):
        """Return a copy for one table, after checking the power.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.
        feature_names : sequence of str or None
            Names of the columns.

        Returns
        -------
        criterion : PowerMean
            A copy.

        Raises
        ------
        ValueError
            If ``power`` is not a number of at most 1, or for a prior that does not
            fit the table.
        """
        self.exponent  # noqa: B018  (checks)
        return super().resolve(n_features, feature_names)

    @property
    def exponent(self):
        """Power of the mean that is the efficiency.

        Returns
        -------
        exponent : float
            At most 1.

        Raises
        ------
        ValueError
            If ``power`` is no number, or larger.
        """
        if not isinstance(self.power, numbers.Real) or not self.power <= 1:
            raise ValueError(f"power must be a number <= 1; got {self.power!r}.")
        return float(self.power)

    def _derivative(self, eigenvalues):
        p = self.exponent
        if p == -np.inf:
            return EOptimality()._derivative(eigenvalues)
        mean = _power_mean(eigenvalues, p)
        return (eigenvalues / mean) ** (p - 1.0) / len(eigenvalues)


class EOptimality(_SpectralCriterion):
    """The smallest retained eigenvalue: the worst direction's retention.

    The value is not differentiable where the smallest eigenvalues meet, which is
    where its optima are: ``gradient`` is then the supergradient that shares the
    weight equally.

    Parameters
    ----------
    prior : mapping of int or str to float, or array-like of shape (d, d), default=None
        What is known about the parameters beside the data: the standard deviation of
        each constrained parameter, in its unit, by column index or name, or a
        precision matrix, a row and a column for each parameter. Added to the
        information, all of it and what labels keep, in total units.
    expected_events : float, default=None
        The exposure to which the total weight of the table amounts, where there is a
        prior; None: the sum of the weights, which then are expected counts.

    References
    ----------
    .. [1] F. Pukelsheim, "Optimal Design of Experiments", SIAM, 2006.
       https://doi.org/10.1137/1.9780898719109

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import EOptimality
    >>> EOptimality().efficiency(np.diag([0.25, 1.0]), np.eye(2))
    0.25
    """

    exponent = -np.inf

    def continuation(self):
        """Return the smooth criteria that lead to this one.

        Returns
        -------
        criteria : list
            A-optimality, power means from -2 to -256, and the criterion itself.
        """
        powers = [-(2.0**k) for k in range(1, 9)]
        return [AOptimality(), *map(PowerMean, powers), self]

    def _derivative(self, eigenvalues):
        lowest = eigenvalues <= eigenvalues[0] * (1.0 + EQUAL)
        return lowest / np.count_nonzero(lowest)


class ProfiledDOptimality(_ConstrainedCriterion):
    """Log determinant of the information about some parameters, others profiled out.

    The profiled information of the parameters of interest is the Schur complement
    of the nuisance block. The value, relative to the reference, is ``log det I_q -
    (1 - nuisance_weight) log det C_q`` with ``C_q`` the nuisance block of ``I_q``;
    at weight 0 it is the log determinant of the Schur complement, at 1 plain
    D-optimality. The efficiency is always the pure profiled retention.

    Parameters
    ----------
    interest : int, str or sequence of int or str, default=0
        Columns (indices or feature names) of the parameters of interest. At least
        one column must be left as a nuisance.
    nuisance_weight : "auto" or float in [0, 1], default="auto"
        Share of the nuisance block's own log determinant. Small tables need more
        of it: without it free labels reach their value by making the retained
        nuisance block nearly singular, which no fresh row repeats. ``"auto"`` is
        ``0.01 + 3 d / n_eff``, at most 1, and 0.003 with a prior, which holds the
        nuisances together by itself.
    prior : mapping of int or str to float, or array-like of shape (d, d), default=None
        What is known about the parameters beside the data: the standard deviation of
        each constrained parameter, in its unit, by column index or name, or a
        precision matrix, a row and a column for each parameter. Added to the
        information, all of it and what labels keep, in total units. With all nuisances
        constrained, cells fewer than parameters have a profiled retention above 0. A
        prior on a parameter of interest counts as information about it.
    expected_events : float, default=None
        The exposure to which the total weight of the table amounts, where there is a
        prior; None: the sum of the weights, which then are expected counts.

    References
    ----------
    .. [1] A. C. Atkinson, A. N. Donev, R. D. Tobias, "Optimum Experimental
       Designs, with SAS", Oxford, 2007 (D_s and compound criteria).

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import ProfiledDOptimality
    >>> criterion = ProfiledDOptimality(interest=0, nuisance_weight=0.0)
    >>> round(criterion.efficiency(np.diag([0.25, 0.5]), np.eye(2)), 12)
    0.25
    """

    needs_columns = True
    concave = True
    exchange_form = "log_det"

    def __init__(
        self, interest=0, nuisance_weight="auto", *, prior=None, expected_events=None
    ):
        self.interest = interest
        self.nuisance_weight = nuisance_weight
        self.prior = prior
        self.expected_events = expected_events

    def resolve(self, n_features, feature_names):
        """Return a copy whose ``interest`` is a tuple of column indices.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.
        feature_names : sequence of str or None
            Names of the columns, if they have any.

        Returns
        -------
        criterion : ProfiledDOptimality
            A copy with indices.

        Raises
        ------
        ValueError
            For an unknown, repeated or missing column, when no nuisance column is
            left, or for a ``nuisance_weight`` outside [0, 1].
        """
        indices = self._interest_columns(n_features, feature_names)
        weight = self.nuisance_weight
        automatic = isinstance(weight, str) and weight == "auto"
        if not automatic and not (
            isinstance(weight, numbers.Real) and 0.0 <= weight <= 1.0
        ):
            raise ValueError(
                f"nuisance_weight must be 'auto' or a number in [0, 1]; got {weight!r}."
            )
        resolved = super().resolve(n_features, feature_names)
        return resolved.set_params(interest=indices)

    def _interest_columns(self, n_features, feature_names):
        single = isinstance(self.interest, str) or not np.iterable(self.interest)
        entries = [self.interest] if single else list(self.interest)
        indices = []
        for entry in entries:
            indices.append(column_index(entry, n_features, feature_names, "interest"))
        if not indices or len(set(indices)) < len(indices):
            raise ValueError(
                f"interest must hold distinct columns, at least one; got "
                f"{self.interest!r}."
            )
        if len(indices) == n_features:
            raise ValueError(
                "interest must leave at least one nuisance column; got all "
                f"{n_features} columns."
            )
        return tuple(indices)

    def resolve_sample_size(self, n_features, effective_sample_size):
        """Return a copy whose ``nuisance_weight`` is a number.

        Parameters
        ----------
        n_features : int
            Number of columns of the table.
        effective_sample_size : float
            Squared total weight over the total squared weight of the table.

        Returns
        -------
        criterion : ProfiledDOptimality
            A copy; the same parameters when the weight was a number already.
        """
        weight = self.nuisance_weight
        if isinstance(weight, str):
            weight = min(1.0, 0.01 + 3.0 * n_features / effective_sample_size)
            if self.prior is not None:
                weight = _WEIGHT_WITH_PRIOR
        return clone(self).set_params(nuisance_weight=weight)

    def _nuisance(self, n_features):
        resolved = self._interest_columns(n_features, None)
        return np.setdiff1d(np.arange(n_features), resolved)

    def _numeric_weight(self):
        if isinstance(self.nuisance_weight, str):
            raise ValueError(
                "nuisance_weight='auto' depends on the table; give a number, or let an "
                "estimator or resolve_criterion resolve it."
            )
        return float(self.nuisance_weight)

    def elimination_order(self, n_features):
        """Return an order of the columns in which they may be made orthogonal.

        Neither value nor efficiency changes where each column is replaced by what
        those before it in this order do not explain, times a factor.

        Parameters
        ----------
        n_features : int
            Number of columns.

        Returns
        -------
        order : ndarray of int of shape (n_features,)
            The nuisances, and then the parameters of interest.
        """
        interest = np.array(self._interest_columns(n_features, None), dtype=np.intp)
        return np.append(self._nuisance(n_features), interest)

    def log_det_terms(self, n_features):
        """Return the value as signed log determinants of index blocks.

        Parameters
        ----------
        n_features : int
            Number of columns.

        Returns
        -------
        terms : list of (float, ndarray of int)
            Coefficient and indices of each block.
        """
        terms = [(1.0, np.arange(n_features))]
        share = 1.0 - self._numeric_weight()
        if share > 0.0:
            terms.append((-share, self._nuisance(n_features)))
        return terms

    def _eigenvalues(self, information, reference):
        nuisance = self._nuisance(len(information))
        block = np.ix_(nuisance, nuisance)
        information, reference = np.asarray(information), np.asarray(reference)
        full, _ = retained_eigensystem(information, reference)
        inner, _ = retained_eigensystem(information[block], reference[block])
        return full, inner

    def value(self, information, reference):
        """Return what solvers maximize.

        Parameters
        ----------
        information, reference : array-like of shape (d, d)
            Retained and full information per unit of total weight, in the user's
            columns up to a positive factor each.

        Returns
        -------
        value : float
            Minus infinity where the information is singular.
        """
        share = 1.0 - self._numeric_weight()
        full, inner = self._eigenvalues(information, reference)
        if full[0] == 0.0 or inner[0] == 0.0:
            return -np.inf
        return float(np.sum(np.log(full)) - share * np.sum(np.log(inner)))

    def gradient(self, information, reference):
        """Return the partial derivatives of ``value`` with respect to ``information``.

        Parameters
        ----------
        information, reference : array-like of shape (d, d)
            As in ``value``.

        Returns
        -------
        gradient : ndarray of shape (d, d)
            Symmetric.

        Raises
        ------
        ValueError
            Where the information is singular.
        """
        share = 1.0 - self._numeric_weight()
        d = len(information)
        result = DOptimality().gradient(information, reference)
        nuisance = self._nuisance(d)
        block = np.ix_(nuisance, nuisance)
        result[block] -= share * DOptimality().gradient(
            np.asarray(information)[block], np.asarray(reference)[block]
        )
        # the difference of two inverses, each symmetric up to its own rounding
        return (result + result.T) / 2.0

    def efficiency(self, information, reference):
        """Return the pure profiled retention, whatever the nuisance weight.

        Parameters
        ----------
        information, reference : array-like of shape (d, d)
            As in ``value``.

        Returns
        -------
        efficiency : float
            ``(det Schur(information) / det Schur(reference)) ** (1 / n_interest)``,
            in [0, 1]; 0 where the information is singular.
        """
        full, inner = self._eigenvalues(information, reference)
        if full[0] == 0.0 or inner[0] == 0.0:
            return 0.0
        log_ratio = np.sum(np.log(full)) - np.sum(np.log(inner))
        return float(min(1.0, np.exp(log_ratio / (len(full) - len(inner)))))

    def reported(self):
        """Return a copy at nuisance weight 0: the efficiency is purely profiled.

        Returns
        -------
        criterion : ProfiledDOptimality
            A copy.
        """
        return clone(self).set_params(nuisance_weight=0.0)

    def nuisance_retention(self, information, reference):
        """Return the smallest eigenvalue of the retained nuisance block.

        Parameters
        ----------
        information, reference : array-like of shape (d, d)
            As in ``value``.

        Returns
        -------
        retention : float
            In [0, 1].
        """
        return float(self._eigenvalues(information, reference)[1][0])


_NAMED = {
    "trace": NormalizedTrace,
    "D": DOptimality,
    "A": AOptimality,
    "E": EOptimality,
}

CRITERION_METHODS = ["value", "gradient", "efficiency"]


def resolve_criterion(
    criterion,
    n_features,
    feature_names=None,
    *,
    effective_sample_size=None,
    total_weight=None,
):
    """Turn what a user gave as ``criterion`` into an object for one table.

    Parameters
    ----------
    criterion : {"trace", "D", "A", "E"} or object
        A name, or an object with ``value``, ``gradient`` and ``efficiency``.
    n_features : int
        Number of columns of the table.
    feature_names : sequence of str, default=None
        Names of the columns, if they have any.
    effective_sample_size : float, default=None
        Squared total weight over the total squared weight; when given, criteria
        that depend on it (``nuisance_weight="auto"``) are resolved too.
    total_weight : float, default=None
        Sum of the weights; when given, it is the ``expected_events`` of a criterion
        with a prior and without a number of its own.

    Returns
    -------
    criterion : Criterion
        Never the object that came, where it has parameters to resolve. An object that
        is no ``Criterion`` is adapted; ``plain`` is itself, resolved.

    Raises
    ------
    ValueError
        For an unknown name, or a criterion that does not fit the table.
    TypeError
        For an object without the methods of a criterion.

    Examples
    --------
    >>> from skquant import ProfiledDOptimality
    >>> from skquant.criteria import resolve_criterion
    >>> resolve_criterion(ProfiledDOptimality("mass"), 2, ["mass", "width"]).interest
    (0,)
    """
    if isinstance(criterion, str):
        if criterion not in _NAMED:
            raise ValueError(
                f"criterion must be one of {sorted(_NAMED)} or a criterion object; "
                f"got {criterion!r}."
            )
        return _NAMED[criterion]()
    missing = [
        name
        for name in CRITERION_METHODS
        if not callable(getattr(criterion, name, None))
    ]
    if missing or isinstance(criterion, type):
        raise TypeError(
            f"criterion must be a name or an object with the methods "
            f"{CRITERION_METHODS}; got {criterion!r}, which lacks {missing}."
        )
    criterion = _adapt(criterion).resolve(n_features, feature_names)
    if effective_sample_size is not None:
        criterion = criterion.resolve_sample_size(n_features, effective_sample_size)
    if total_weight is not None:
        criterion = criterion.resolve_exposure(total_weight)
    return criterion
