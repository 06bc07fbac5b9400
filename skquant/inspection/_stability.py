"""A local certificate: does any relocation of one row gain?"""

from dataclasses import dataclass
from numbers import Real

import numpy as np

from skquant._checks import single_threaded
from skquant._table import (
    criterion_columns,
    full_reference,
    merge_rows,
    prior_base,
    read_table,
)
from skquant.solvers._assignment import nearest_cell
from skquant.solvers._exchange import Cells, make_pass
from skquant.solvers._problem import Problem, table_rounding


@dataclass(frozen=True)
class StabilityReport:
    """Result of one exact scan of a labeling.

    Attributes
    ----------
    is_stable : bool
        Whether no relocation of one row gains more than ``gain_tol`` a unit of the
        row's weight share, and the screen of the scan is exact for the criterion.
        Under E this is a weak certificate: single moves rarely raise several
        coalescing eigenvalues at once.
    best_gain : float
        Largest gain of any relocation, in the criterion's value; negative at a strict
        optimum, -inf without an allowed move, +inf where the information is singular
        and the criterion minus infinity.
    best_move : tuple of (int, int, int) or None
        Row, its cell, and the cell to which the best move takes it. Identical rows
        of one cell are moved together; the first of them is named.
    displaced_share : float
        Weight share of the rows that the labeling's own first-order rule, the
        nearest cell mean in the metric of the gradient, places elsewhere; NaN where
        the information is singular.
    efficiency : float
        Of the labeling, in [0, 1].
    certified : bool
        Whether the criterion is declared concave, so that the scan missed nothing.
    """

    is_stable: bool
    best_gain: float
    best_move: tuple | None
    displaced_share: float
    efficiency: float
    certified: bool


def labeled_problem(table, labels):
    """Return the problem of a table whose identical rows may differ in their label.

    Returns
    -------
    problem : Problem
    atom_labels : ndarray of int32 of shape (n_atoms,)
    first_row : ndarray of int of shape (n_atoms,)
        A row of positive weight of each atom.
    """
    _, first_row, _ = keyed = merge_rows(
        np.column_stack([table.X, labels]), table.shares
    )
    subspace, shares = table.subspace, keyed[2]
    X = table.X[first_row]
    center = (shares @ (X / subspace.scale)) * subspace.scale
    problem = Problem(
        points=np.ascontiguousarray((X - center) @ subspace.whitener),
        origin=center @ subspace.whitener,
        weights=shares,
        criterion=table.criterion,
        columns=criterion_columns(table.criterion, subspace),
        reference=full_reference(table.criterion, subspace),
        base=prior_base(table.criterion, subspace),
        rounding=table_rounding(subspace),
    )
    return problem, labels[first_row], first_row


@single_threaded
def exchange_stability(
    scores, labels, sample_weight=None, *, criterion="D", gain_tol=1e-12
):
    """Scan once every relocation of a row, of any labeling, ours or not.

    Parameters
    ----------
    scores : array-like of shape (n, d)
        Score vectors, one row an event. They are not centred.
    labels : array-like of int of shape (n,)
        Cell of each row; the cells are ``0..max(labels)``, and a move to one without
        rows counts.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        What is maximized.
    gain_tol : float, default=1e-12
        Gain in value per unit of the row's share of the weight that still counts as
        none.

    Returns
    -------
    report : StabilityReport
        Verdict, the best remaining move and its gain, and how far the labeling is
        from the rule that it implies.

    Raises
    ------
    ValueError
        For invalid scores, weights, labels or parameters.

    References
    ----------
    .. [1] V. V. Fedorov, "Theory of Optimal Experiments", Academic Press, 1972.

    Examples
    --------
    >>> from skquant.inspection import exchange_stability
    >>> report = exchange_stability([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 0, 1])
    >>> report.is_stable, report.best_move, round(report.best_gain, 4)
    (False, (2, 0, 1), 0.5232)
    """
    if not isinstance(gain_tol, Real) or not gain_tol >= 0:
        raise ValueError(f"gain_tol must be a number >= 0; got {gain_tol!r}.")
    table = read_table(scores, sample_weight, criterion, takes_prior=True)
    labels, n_bins = table.labels(labels)
    problem, atom_labels, first_row = labeled_problem(table, labels)
    cells = Cells(problem, atom_labels, n_bins)
    visit = make_pass(cells, 0.0, gain_tol)
    information = cells.information()
    gain, atom, cell = visit.best_move()
    move, displaced = None, np.nan
    if atom >= 0:
        row = np.flatnonzero(table.used)[first_row[atom]]
        move = (int(row), int(atom_labels[atom]), int(cell))
    metric = cells.metric()
    if metric is not None:
        occupied = np.flatnonzero(cells.counts)
        ruled = nearest_cell(problem.points, cells.means[occupied], metric)
        elsewhere = occupied[ruled] != atom_labels
        displaced = float(problem.weights[elsewhere].sum())
    moves, *_ = visit()
    return StabilityReport(
        is_stable=bool(visit.certifies and moves == 0),
        best_gain=float(gain),
        best_move=move,
        displaced_share=displaced,
        efficiency=problem.efficiency(information),
        certified=visit.certifies,
    )
