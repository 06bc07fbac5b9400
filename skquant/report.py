"""How much information labels keep: the report, its text and its interval."""

from dataclasses import dataclass, replace

import numpy as np

from skquant._checks import (
    check_labels,
    check_scores,
    check_weights,
    rank_tolerance,
    single_threaded,
)
from skquant._moments import (
    effective_sample_size,
    information_pair,
    rescale,
    share_weights,
)
from skquant._priors import total_weight
from skquant._table import (
    add_base,
    column_names,
    criterion_coordinates,
    informative_subspace,
    prior_base,
    require_full_rank,
    warn_of_table_offset,
)
from skquant._warnings import warn_user
from skquant.criteria import (
    AOptimality,
    DOptimality,
    EOptimality,
    NormalizedTrace,
    resolve_criterion,
    retained_eigensystem,
)
from skquant.inspection import retention_interval

__all__ = ["InformationReport", "information_report"]


@dataclass(frozen=True, eq=False)
class InformationReport:
    """How much Fisher information labels keep, and in which cells.

    Attributes
    ----------
    information : ndarray of shape (d, d)
        Full information per unit of total weight.
    binned_information : ndarray of shape (d, d)
        Information of the labels per unit of total weight.
    retained_eigenvalues : ndarray of shape (rank,)
        Eigenvalues of the retained matrix, ascending, in [0, 1]; without negative
        weights, which may bring them above 1.
    arithmetic_mean, geometric_mean, harmonic_mean, minimum : float
        Efficiencies under the trace, D, A and E criteria, in [0, 1].
    rank : int
        Number of informative directions.
    dropped_columns : tuple of int or str
        Columns that are zero or depend on those before them.
    mean_shift : float
        Norm of the whitened weighted mean score, in [0, 1].
    cell_weights : ndarray of shape (K,)
        Total weight of each cell.
    cell_counts : ndarray of int of shape (K,)
        Rows in each cell whose weight is not zero.
    effective_sample_sizes : ndarray of shape (K,)
        ``(sum w)^2 / sum w^2`` of each cell; 0 for an empty one.
    efficiency : float or None
        Efficiency under the criterion that was given, if one was.
    nuisance_retention : float or None
        Smallest retained eigenvalue of the nuisance block, for a profiled criterion.
    prior_efficiency : float or None
        Efficiency of the prior alone, without any row: the floor. For a criterion with
        a prior.
    standard_errors : dict of int or str to tuple of (float, float), or None
        Standard error of each parameter of interest, in its unit, with all rows kept
        and with the labels alone, other parameters profiled out; infinite where the
        labels do not determine it. For a profiled criterion. It is the root of the
        inverse information of ``expected_events``, by default the sum of the weights,
        and of the prior.
    interval : skquant.inspection.RetentionInterval or None
        The efficiency's sampling error on these rows, if a level was given.
    """

    information: np.ndarray
    binned_information: np.ndarray
    retained_eigenvalues: np.ndarray
    arithmetic_mean: float
    geometric_mean: float
    harmonic_mean: float
    minimum: float
    rank: int
    dropped_columns: tuple
    mean_shift: float
    cell_weights: np.ndarray
    cell_counts: np.ndarray
    effective_sample_sizes: np.ndarray
    efficiency: float | None = None
    nuisance_retention: float | None = None
    prior_efficiency: float | None = None
    standard_errors: dict | None = None
    interval: object | None = None

    @property
    def empty_cells(self):
        """Labels of the cells without a row of positive weight."""
        return np.flatnonzero(self.cell_counts == 0)

    def __str__(self):
        d = len(self.information)
        lines = [
            f"Fisher information kept by {len(self.cell_weights)} cells",
            f"  rank {self.rank} of {d} columns"
            + (
                f", dropped: {', '.join(map(str, self.dropped_columns))}"
                if self.dropped_columns
                else ""
            ),
            f"  mean retention   arithmetic {self.arithmetic_mean:.6f} (trace)",
            f"                   geometric  {self.geometric_mean:.6f} (D)",
            f"                   harmonic   {self.harmonic_mean:.6f} (A)",
            f"  worst direction  {self.minimum:.6f} (E)",
        ]
        if self.efficiency is not None:
            lines.append(f"  efficiency       {self.efficiency:.6f} (given criterion)")
        if self.interval is not None:
            lines.append(f"  on fresh rows    {self.interval}")
        if self.nuisance_retention is not None:
            lines.append(f"  nuisance block   {self.nuisance_retention:.6f} retained")
        if self.prior_efficiency is not None:
            lines.append(f"  prior alone      {self.prior_efficiency:.6f}")
        for name, (before, after) in (self.standard_errors or {}).items():
            lines.append(
                f"  standard error   {after:.6g} of {name} ({before:.6g} unbinned)"
            )
        lines += [
            f"  mean shift       {self.mean_shift:.3g}",
            "  cell      weight   share    rows  effective",
        ]
        shares = share_weights(self.cell_weights)
        for cell, weight in enumerate(self.cell_weights):
            empty = "  (empty)" if self.cell_counts[cell] == 0 else ""
            lines.append(
                f"  {cell:4d}  {weight:10.4g}  {shares[cell]:6.3f}  "
                f"{self.cell_counts[cell]:6d}  "
                f"{self.effective_sample_sizes[cell]:9.1f}{empty}"
            )
        return "\n".join(lines)


def information_report(
    scores,
    labels,
    sample_weight=None,
    *,
    n_bins=None,
    rank_rtol=None,
    criterion=None,
    level=None,
):
    """Report how much information a labeling keeps, ours or anyone's.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    labels : array-like of int of shape (n,)
        Cell of each row, in ``0..n_bins-1``.
    sample_weight : array-like of shape (n,), default=None
        Weights; ones when None. They may be negative as long as the weight of every
        cell that holds rows is positive.
    n_bins : int, default=None
        Number of cells; the largest label plus one when None.
    rank_rtol : float, default=None
        Singular values of the weighted table, columns at unit root mean square,
        below this share of the largest do not count. None is 1e-10, and 1e-6 for
        float32 scores.
    criterion : {"trace", "D", "A", "E"} or object, default=None
        A criterion whose efficiency to report as well.
    level : float in (0, 1), default=None
        Nominal coverage of an interval of that efficiency, for labels of a rule that
        did not see these rows; None: no interval. See
        ``skquant.inspection.retention_interval``.

    Returns
    -------
    report : InformationReport
        A record with a readable ``str``.

    Raises
    ------
    ValueError
        For invalid scores, weights or labels, scores that are all zero, a cell without
        positive weight, negative weights that leave the full information not positive
        definite, or a level without a criterion.

    Warns
    -----
    UserWarning
        If negative weights make the full information smaller than the labels' in some
        direction: a retained eigenvalue is above 1, and reported as it is.
    ScoreOffsetWarning
        If the mean of a column is more than ten times its spread.

    References
    ----------
    .. [1] F. Pukelsheim, "Optimal Design of Experiments", SIAM, 2006.
       https://doi.org/10.1137/1.9780898719109

    Examples
    --------
    >>> from skquant.information import information_report
    >>> report = information_report([[1.0], [2.0], [-1.0]], [0, 0, 1])
    >>> round(report.geometric_mean, 4)
    0.9167
    >>> report.cell_counts
    array([2, 1])
    """
    X, names = check_scores(scores)
    weights = check_weights(sample_weight, X, signed=True)
    labels, n_bins = check_labels(labels, len(X), n_bins)
    warn_of_table_offset(X, weights, names)
    report = build_report(
        X, labels, weights, n_bins, rank_tolerance(rank_rtol, X.dtype), criterion, names
    )
    if level is None:
        return report
    if criterion is None:
        raise ValueError(
            "level needs a criterion, whose efficiency the interval is about; got "
            f"level={level!r} and criterion=None."
        )
    interval = retention_interval(
        scores, labels, sample_weight, criterion=criterion, level=level
    )
    return replace(report, interval=interval)


def retained_eigenvalues(binned, full):
    """Return the retained eigenvalues, ascending; warn of one above 1.

    Negative weights alone give one.
    """
    eigenvalues = retained_eigensystem(binned, full)[0]
    if eigenvalues[-1] > 1.0:
        warn_user(
            f"the labels keep {eigenvalues[-1]:.6g} of the full information in one "
            "direction: the negative weights make the full information smaller than "
            "that of the cells. Retentions are reported as they are.",
        )
    return eigenvalues


@single_threaded
def build_report(X, labels, weights, n_bins, rank_rtol, criterion, names):
    """Build the report of validated arrays."""
    X = X.astype(np.float64, copy=False)
    used = weights != 0
    X, labels, weights = X[used], labels[used], weights[used]
    shares = share_weights(weights)
    subspace = informative_subspace(X, shares, rank_rtol)
    points = X @ subspace.whitener
    binned, full = information_pair(points, weights, labels, n_bins)
    mean_score = shares @ points
    eigenvalues = retained_eigenvalues(binned, full)

    efficiency = nuisance_retention = prior_efficiency = standard_errors = None
    if criterion is not None:
        criterion = resolve_criterion(
            criterion,
            X.shape[1],
            names,
            effective_sample_size=effective_sample_size(weights),
            total_weight=total_weight(weights),
        )
        of_criterion = subspace
        prior = criterion.precision_root(X.shape[1])
        if prior is not None:
            of_criterion = informative_subspace(X, shares, rank_rtol, prior)
        require_full_rank(criterion, of_criterion, names)
        base = prior_base(criterion, of_criterion)
        coordinates = criterion_coordinates(criterion, of_criterion)
        pair = [
            add_base(each, base)
            for each in information_pair(
                X @ coordinates,
                weights,
                labels,
                n_bins,
            )
        ]
        efficiency = criterion.efficiency(*pair)
        if base is not None:
            prior_efficiency = criterion.efficiency(base, pair[1])
        nuisance_retention = criterion.nuisance_retention(*pair)
        if criterion.interest:
            events = criterion.expected_events
            standard_errors = _standard_errors(
                pair,
                criterion.interest,
                coordinates,
                total_weight(weights) if events is None else events,
                efficiency,
                names,
            )

    relative = weights / np.max(np.abs(weights))
    sums = np.bincount(labels, relative, minlength=n_bins)
    squares = np.bincount(labels, relative**2, minlength=n_bins)
    occupied = squares > 0
    sizes = np.zeros(n_bins)
    sizes[occupied] = sums[occupied] ** 2 / squares[occupied]
    columns = information_pair(X / subspace.scale, weights, labels, n_bins)
    binned_information, information = (
        rescale(matrix, subspace.scale) for matrix in columns
    )
    return InformationReport(
        information=information,
        binned_information=binned_information,
        retained_eigenvalues=eigenvalues,
        arithmetic_mean=NormalizedTrace().efficiency(binned, full),
        geometric_mean=DOptimality().efficiency(binned, full),
        harmonic_mean=AOptimality().efficiency(binned, full),
        minimum=EOptimality().efficiency(binned, full),
        rank=subspace.rank,
        dropped_columns=column_names(subspace.dropped, names),
        mean_shift=float(np.sqrt(np.sum(mean_score**2))),
        cell_weights=np.bincount(labels, weights, minlength=n_bins),
        cell_counts=np.bincount(labels, minlength=n_bins),
        effective_sample_sizes=sizes,
        efficiency=efficiency,
        nuisance_retention=nuisance_retention,
        prior_efficiency=prior_efficiency,
        standard_errors=standard_errors,
    )


def _standard_errors(pair, interest, coordinates, events, efficiency, names):
    """Return the standard errors of parameters, by name, before and after binning."""
    interest = list(interest)
    errors = np.full((2, len(interest)), np.inf)
    for row, information in zip(errors, pair[::-1], strict=True):
        if efficiency > 0.0 or information is pair[1]:
            unit = np.sqrt(np.diag(information))
            covariance = np.linalg.inv(information / unit / unit[:, None])
            along = coordinates[interest] / unit
            row[:] = np.sqrt(np.sum((along @ covariance) * along, axis=1))
    errors /= np.sqrt(events)
    named = column_names(interest, names)
    return {
        name: (float(before), float(after))
        for name, before, after in zip(named, *errors, strict=True)
    }
