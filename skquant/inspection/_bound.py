"""A bound on the profiled information of every labeling."""

from dataclasses import dataclass, field
from numbers import Integral

import numpy as np

from skquant._checks import check_labels, single_threaded
from skquant._moments import cell_moments, information_pair
from skquant._table import Table, criterion_coordinates, read_table
from skquant.criteria import ProfiledDOptimality
from skquant.solvers._interval import interval_cells


@dataclass(frozen=True, eq=False)
class EfficientScoreBound:
    """The most profiled information that any labeling can keep.

    Attributes
    ----------
    bound : float
        Upper bound of the profiled retention of every labeling with at most
        ``n_bins`` cells, in [0, 1].
    profiled_information : float
        Full profiled information of the parameter of interest, per unit of weight.
    labels : ndarray of int32 of shape (n,)
        The intervals of the efficient score that reach the bound for it alone; a
        start for the exchange. Rows of zero weight take the nearest interval.
    efficient_scores : ndarray of shape (n,)
        Score of interest minus its regression on the nuisance scores.
    n_bins : int
        Cells of ``labels``; fewer than asked for only with fewer distinct values.
    """

    bound: float
    profiled_information: float
    labels: np.ndarray
    efficient_scores: np.ndarray
    n_bins: int
    _table: Table = field(repr=False)

    def gap_to(self, labels):
        """Return the bound minus the profiled retention of a labeling.

        Parameters
        ----------
        labels : array-like of int of shape (n,)
            Cell of each row of the table of the bound.

        Returns
        -------
        gap : float
            In units of the retention; nonnegative but for rounding for a labeling
            of at most ``n_bins`` cells.
        """
        table = self._table
        labels, n_cells = table.labels(labels)
        pair = information_pair(table.points, table.shares, labels, n_cells)
        return self.bound - table.criterion.efficiency(*pair)


@single_threaded
def efficient_score_bound(scores, interest, n_bins, sample_weight=None):
    """Bound the profiled information of every labeling, for one parameter.

    The information that a label keeps about one parameter, the others profiled out,
    is at most what it keeps of the full-data efficient score, and that is largest
    for intervals of the efficient score, found exactly.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event. They are not centred.
    interest : int or str
        Column of the one parameter of interest, or its name.
    n_bins : int
        Number of cells K.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.

    Returns
    -------
    result : EfficientScoreBound
        The bound, the intervals that reach it, and ``gap_to(labels)``.

    Raises
    ------
    ValueError
        For invalid scores or weights, more than one parameter of interest, or a
        singular full information.

    References
    ----------
    .. [1] P. J. Bickel, C. A. J. Klaassen, Y. Ritov, J. A. Wellner, "Efficient and
       Adaptive Estimation for Semiparametric Models", Springer, 1998.

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.inspection import efficient_score_bound
    >>> scores = np.random.default_rng(0).normal(size=(200, 2))
    >>> result = efficient_score_bound(scores, interest=0, n_bins=4)
    >>> round(result.bound, 4), result.gap_to(result.labels) > 0
    (0.8852, True)
    """
    if not isinstance(n_bins, Integral) or isinstance(n_bins, bool) or n_bins < 1:
        raise ValueError(f"n_bins must be a positive integer; got {n_bins!r}.")
    criterion = ProfiledDOptimality(interest, nuisance_weight=0.0)
    table = read_table(scores, sample_weight, criterion)
    columns = table.criterion.interest
    if len(columns) != 1:
        raise ValueError(
            "interest must be one column: intervals are the best cells of one "
            f"efficient score only; got {interest!r}."
        )
    (column,) = columns
    # the last in the order of elimination: what the nuisances do not explain
    efficient = table.points[:, column]
    mean = table.shares @ efficient
    labels, edges = interval_cells(efficient - mean, table.shares, n_bins)
    cell_shares, means = cell_moments(
        efficient[:, None], table.shares, labels, len(edges) + 1
    )
    full = table.shares @ efficient**2
    bound = min(1.0, float(cell_shares @ means[:, 0] ** 2 / full))

    along = criterion_coordinates(table.criterion, table.subspace)[:, column]
    X = np.asarray(scores, dtype=np.float64)
    every = X @ along
    all_labels = np.searchsorted(edges + mean, every).astype(np.int32)
    all_labels[table.used] = labels
    all_labels, _ = check_labels(all_labels, len(X), len(edges) + 1)
    with np.errstate(over="ignore"):
        information = float(full / along[column] / along[column])
    return EfficientScoreBound(
        bound=bound,
        profiled_information=information,
        labels=all_labels,
        efficient_scores=every / along[column],
        n_bins=len(edges) + 1,
        _table=table,
    )
