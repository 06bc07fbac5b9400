"""From a user's constraints to limits of atoms, and to the report."""

import numpy as np

from skquant._checks import check_groups
from skquant.constraints import ConstraintReport
from skquant.solvers._limits import MET, build_limits


def table_limits(constraints, weights, groups, of_row):
    """Return the limits of the atoms that rows became, and the names of the groups."""
    names, codes = check_groups(groups, len(weights))
    if np.min(weights) < 0:
        raise ValueError(
            "constraints need nonnegative sample_weight: merged rows share a label that "
            "predict need not give them; got "
            f"{np.count_nonzero(weights < 0)} negative weights."
        )
    return build_limits(constraints.thresholds(names), of_row, codes, weights), names


def report_constraints(limits, labels, n_bins, groups, retentions, retention):
    """Return the report of the limits; refuse labels that do not meet them.

    Parameters
    ----------
    limits : Limits
    labels : ndarray of int of shape (n_atoms,)
        Those of the rule.
    n_bins : int
    groups : list or None
        Names of the groups.
    retentions : dict of str or None to float
        Retention without limits (None), and with each alone where there are several.
    retention : float
        Retention with all.
    """
    sums = limits.cell_sums(labels, n_bins)
    margins = limits.ratios(sums).min(axis=1)
    # of a largest error the ratio is that of the errors
    of_errors = [name == "max_relative_error" for name in limits.names]
    margins = np.where(of_errors, np.sqrt(margins), margins)
    margins = dict(zip(limits.names, margins.tolist(), strict=True))
    if min(margins.values(), default=1.0) < 1.0 - MET:
        raise ValueError(
            "constraints must be met by the cells of the rule; got in the worst of "
            f"n_bins={n_bins} cells {margins} times what is asked. Use fewer cells."
        )
    weights, squares = sums[:, 0], sums[:, 1]
    entries = weights**2 / np.where(squares > 0, squares, 1.0)
    with np.errstate(divide="ignore"):
        errors = 1.0 / np.sqrt(entries)
    return ConstraintReport(
        groups=() if groups is None else tuple(groups),
        weights=weights,
        relative_errors=errors,
        effective_entries=entries,
        margins=margins,
        retention=retention,
        retention_without=retentions[None],
        retention_with={name: retentions.get(name, retention) for name in limits.names},
    )
