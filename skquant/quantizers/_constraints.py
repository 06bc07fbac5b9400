"""From a user's constraints to limits of atoms, and to the report."""

from dataclasses import replace

import numpy as np

from skquant._checks import check_groups
from skquant.constraints import ConstraintReport
from skquant.solvers._limits import MET, build_limits


def limit_atoms(quantizer, atoms, weights, groups):
    """Return atoms with their limits, of a quantizer's constraints on the rows."""
    constraints = quantizer.constraints
    names, codes = check_groups(groups, len(weights))
    thresholds = None if constraints is None else constraints.thresholds(names)
    if thresholds is None or not thresholds[0]:
        return atoms
    if np.min(weights) < 0:
        raise ValueError(
            "constraints need nonnegative sample_weight: merged rows share a label "
            "that predict need not give them; got "
            f"{np.count_nonzero(weights < 0)} negative weights."
        )
    least = getattr(quantizer, "min_bin_weight", 0.0)
    if least > 0.0:
        raise ValueError(
            "min_bin_weight must be 0 with constraints, which have min_weight; got "
            f"{least}."
        )
    limits = build_limits(thresholds, atoms.of_row, codes, weights)
    return replace(atoms, limits=replace(limits, group_names=tuple(names or ())))


def report_constraints(quantizer, atoms, solution):
    """Return the report of a fitted quantizer; refuse cells that do not meet limits."""
    limits, n_bins = atoms.limits, quantizer.n_bins_
    retention, retentions = quantizer.retention_, solution.retentions
    labels = atoms.labels(quantizer.labels_)
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
        groups=limits.group_names,
        weights=weights,
        relative_errors=errors,
        effective_entries=entries,
        margins=margins,
        retention=retention,
        retention_without=retentions[None],
        # what satisfies all limits satisfies each
        retention_with={
            name: max(retentions.get(name, retention), retention)
            for name in limits.names
        },
    )
