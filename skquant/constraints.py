"""Limits of what a cell may be, and the report of how they are met."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real

import numpy as np
from sklearn.base import BaseEstimator

__all__ = ["CellConstraints", "ConstraintReport"]


class CellConstraints(BaseEstimator):
    """Limits that every cell of a quantizer has to satisfy on the training table.

    The cells that are meant are those of the deployed rule: what ``predict`` gives on
    the training rows. Where the limits cannot be met, ``fit`` raises.

    A number is asked of the whole cell. A mapping of groups to numbers is asked of the
    rows of those groups in each cell; ``fit`` then takes ``groups``, the group of each
    row, a process name say.

    Parameters
    ----------
    min_weight : float or mapping of group to float, default=None
        Least sum of the weights, in their unit.
    max_relative_error : float or mapping of group to float, default=None
        Largest ``sqrt(sum w^2) / sum w``: the relative error of a cell's simulated
        sum.
    min_effective_entries : float or mapping of group to float, default=None
        Least ``(sum w)^2 / sum w^2``, the inverse square of the relative error.
    min_weight_per_group : float or mapping of group to float, default=None
        Least sum of the weights of each group, or of those named.

    See Also
    --------
    ConstraintReport : The numbers of each cell, and what the limits cost.

    Notes
    -----
    Sums of squares count rows: a row of weight 3 is one simulated event, unlike three
    rows of weight 1. Identical rows share a cell. A limit counts as met within a
    relative 1e-9, so that rounding does not decide.

    References
    ----------
    .. [1] R. Barlow, C. Beeston, "Fitting using finite Monte Carlo samples", Comput.
       Phys. Commun. 77 (1993). https://doi.org/10.1016/0010-4655(93)90005-W

    Examples
    --------
    >>> from skquant import CellConstraints, IntervalQuantizer
    >>> scores = [[-3.0], [0.0], [0.5], [1.0], [1.5]]
    >>> IntervalQuantizer(n_bins=2).fit(scores).cell_weights_
    array([1., 4.])
    >>> limits = CellConstraints(min_weight=2)
    >>> quantizer = IntervalQuantizer(n_bins=2, constraints=limits).fit(scores)
    >>> quantizer.cell_weights_
    array([2., 3.])
    """

    def __init__(
        self,
        min_weight=None,
        max_relative_error=None,
        min_effective_entries=None,
        min_weight_per_group=None,
    ):
        self.min_weight = min_weight
        self.max_relative_error = max_relative_error
        self.min_effective_entries = min_effective_entries
        self.min_weight_per_group = min_weight_per_group

    def thresholds(self, groups=None):
        """Return the limits as numbers, checked.

        Parameters
        ----------
        groups : array-like of shape (g,), default=None
            Names of the groups there are; None: no groups were given.

        Returns
        -------
        names : list of str
            The limits that are asked.
        least_weights : ndarray of shape (n_limits, g + 1)
            Least weight of each group in a cell, and, last, of all rows; 0 is none.
        least_entries : ndarray of shape (n_limits, g + 1)
            Least number of effective entries, alike.

        Raises
        ------
        ValueError
            For a limit that is no positive number, a group that there is not, or limits
            of groups without ``groups``.

        Examples
        --------
        >>> from skquant import CellConstraints
        >>> limits = CellConstraints(max_relative_error=0.1)
        >>> names, least_weights, least_entries = limits.thresholds()
        >>> names, least_entries.round(6)
        (['max_relative_error'], array([[100.]]))
        """
        known = [] if groups is None else list(groups)
        asked = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if value is not None
        }
        least_weights, least_entries = np.zeros((2, len(asked), len(known) + 1))
        for row, (name, value) in enumerate(asked.items()):
            if groups is None and (
                isinstance(value, Mapping) or name == "min_weight_per_group"
            ):
                raise ValueError(
                    f"{name}={value!r} is a limit of groups: pass groups, the group of "
                    "each row, to fit; got none."
                )
            if not isinstance(value, Mapping):
                columns = [-1]
                if name == "min_weight_per_group":
                    columns = range(len(known))
                value = dict.fromkeys(columns, value)
            else:
                unknown = [group for group in value if group not in known]
                if unknown:
                    raise ValueError(
                        f"{name} must name groups of the table, {known}; got {unknown}."
                    )
                value = {known.index(group): each for group, each in value.items()}
            for column, each in value.items():
                if not (isinstance(each, Real) and 0 < each < np.inf):
                    raise ValueError(
                        f"{name} must be a positive number, or a mapping of groups to "
                        f"such; got {each!r}."
                    )
                if name == "max_relative_error":
                    least_entries[row, column] = 1.0 / each**2
                elif name == "min_effective_entries":
                    least_entries[row, column] = each
                else:
                    least_weights[row, column] = each
        return list(asked), least_weights, least_entries


@dataclass(frozen=True)
class ConstraintReport:
    """How the cells of a fitted rule meet their limits; print it.

    Attributes
    ----------
    groups : tuple
        Names of the groups, empty without any.
    weights : ndarray of shape (K, g + 1)
        Sum of the weights of each group in each cell, and, last, of all rows.
    relative_errors : ndarray of shape (K, g + 1)
        ``sqrt(sum w^2) / sum w``, infinite without rows.
    effective_entries : ndarray of shape (K, g + 1)
        ``(sum w)^2 / sum w^2``.
    margins : dict of str to float
        For each limit the smallest ratio, over cells and groups, of what there is to
        what is asked (of a largest error: of what is asked to what there is): at least
        1.
    retention : float
        Retention on the training table under all limits.
    retention_without : float
        Retention without any.
    retention_with : dict of str to float
        Retention with each limit alone: what it costs is the distance to
        ``retention_without``.
    """

    groups: tuple
    weights: np.ndarray
    relative_errors: np.ndarray
    effective_entries: np.ndarray
    margins: dict
    retention: float
    retention_without: float
    retention_with: dict

    def __str__(self):
        columns = [*map(str, self.groups), "all"]
        width = max(10, *(len(name) for name in columns))
        lines = [
            "cell  " + " ".join(f"{name:>{width + 9}}" for name in columns),
        ]
        for cell, (weights, errors) in enumerate(
            zip(self.weights, self.relative_errors, strict=True)
        ):
            numbers = " ".join(
                f"{weight:{width}.4g} +-{100 * error:5.1f}%"
                for weight, error in zip(weights, errors, strict=True)
            )
            lines.append(f"{cell:4d}  {numbers}")
        lines.append(f"retention without limits {self.retention_without:.4f}")
        for name, each in self.retention_with.items():
            lines.append(
                f"with {name} alone {each:.4f} (margin {self.margins[name]:.3g})"
            )
        lines.append(f"with all limits {self.retention:.4f}")
        return "\n".join(lines)
