"""Scores in their cells."""

import numpy as np

from skquant._checks import (
    check_labels,
    check_scores,
    check_weights,
    rank_tolerance,
)
from skquant._moments import cell_moments, moment_information, share_weights
from skquant._table import informative_subspace
from skquant.criteria import retained_eigensystem
from skquant.plotting._style import (
    MARKERS,
    ordered_colors,
    panels,
    white_outline,
)
from skquant.rules import AffineMaxRule

_GRID_POINTS = 201


class CellsDisplay:
    """Scores colored by cell, with the cells' means, weights and boundaries.

    Scores of two columns are shown as they are. Scores of more columns are projected
    on the two directions whose information is retained best, in units in which the
    full information of each is 1; there the cells overlap, and no boundary is drawn.

    Parameters
    ----------
    points : ndarray of shape (n, 2)
        Scores of the rows of positive weight, or their projections.
    labels : ndarray of int32 of shape (n,)
        Cell of each row.
    shares : ndarray of shape (n,)
        Weight of each row over the total weight.
    cell_means : ndarray of shape (K, 2)
        Mean point of each cell, of these rows; NaN for an empty cell.
    cell_shares : ndarray of shape (K,)
        Weight of each cell over the total weight, of these rows.
    axis_names : tuple of two str
        What the axes show.
    limits : tuple of two (float, float)
        Shown range of each axis.
    grid : tuple of two ndarray of shape (g,), default=None
        Abscissas and ordinates of ``margins``.
    margins : ndarray of shape (K, g, g), default=None
        Logit of each cell minus the largest other one, at ``[ordinate, abscissa]``: a
        cell's boundary is its zero line. None: no boundaries.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.
    boundaries_ : list of matplotlib ContourSet
        Boundary of each cell that has one in the picture.

    See Also
    --------
    SpectrumDisplay : What the cells keep, and how heavy they are.

    References
    ----------
    .. [1] J. R. Nunez, C. R. Anderton, R. S. Renslow, "Optimizing colormaps with
       consideration for color vision deficiency to enable accurate interpretation of
       scientific data", PLoS ONE 13 (2018).
       https://doi.org/10.1371/journal.pone.0199239

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import DExchangeQuantizer
    >>> from skquant.plotting import CellsDisplay
    >>> scores = np.random.default_rng(0).normal(size=(500, 2))
    >>> quantizer = DExchangeQuantizer(n_bins=4, random_state=0).fit(scores)
    >>> display = CellsDisplay.from_estimator(quantizer, scores)
    >>> display.cell_shares.shape, display.ax_.get_xlabel()
    ((4,), 'score 0')
    """

    def __init__(
        self,
        points,
        labels,
        shares,
        cell_means,
        cell_shares,
        axis_names,
        limits,
        grid=None,
        margins=None,
    ):
        self.points = points
        self.labels = labels
        self.shares = shares
        self.cell_means = cell_means
        self.cell_shares = cell_shares
        self.axis_names = axis_names
        self.limits = limits
        self.grid = grid
        self.margins = margins

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        *,
        sample_weight=None,
        limits=None,
        ax=None,
        max_points=4000,
    ):
        """Show where a rule places given rows.

        Parameters
        ----------
        estimator : fitted quantizer or AffineMaxRule
            Its ``predict`` gives the cells, its logits the boundaries.
        X : array-like of shape (n, d)
            Scores, at least two columns.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights; ones when None.
        limits : pair of (float, float), default=None
            Shown range of each axis; None: all rows.
        ax : matplotlib Axes, default=None
            Axes to draw in; None: a new figure.
        max_points : int, default=4000
            Largest number of rows that are drawn.

        Returns
        -------
        display : CellsDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            For scores with fewer than two columns or informative directions, invalid
            weights or limits.
        ImportError
            If matplotlib is not installed.
        """
        labels = estimator.predict(X)
        rule = getattr(estimator, "rule_", estimator)
        view = _project(X, labels, sample_weight, rule.n_bins, limits)
        if view.pop("whole"):
            (left, right), (low, high) = view["limits"]
            grid = (
                np.linspace(left, right, _GRID_POINTS),
                np.linspace(low, high, _GRID_POINTS),
            )
            mesh = np.column_stack([each.ravel() for each in np.meshgrid(*grid)])
            # without feature names: the mesh has none
            nameless = AffineMaxRule(rule.coef, rule.intercept)
            margins = _margins(nameless.decision_function(mesh))
            view.update(
                grid=grid, margins=margins.T.reshape(rule.n_bins, *[_GRID_POINTS] * 2)
            )
        return cls(**view).plot(ax, max_points=max_points)

    @classmethod
    def from_predictions(
        cls,
        X,
        labels,
        *,
        sample_weight=None,
        n_bins=None,
        limits=None,
        ax=None,
        max_points=4000,
    ):
        """Show any labels of given rows, without boundaries.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores, at least two columns.
        labels : array-like of int of shape (n,)
            Cell of each row, in ``0..n_bins-1``.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights; ones when None.
        n_bins : int, default=None
            Number of cells; the largest label plus one when None.
        limits : pair of (float, float), default=None
            Shown range of each axis; None: all rows.
        ax : matplotlib Axes, default=None
            Axes to draw in; None: a new figure.
        max_points : int, default=4000
            Largest number of rows that are drawn.

        Returns
        -------
        display : CellsDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            For scores with fewer than two columns or informative directions, invalid
            labels, weights or limits.
        ImportError
            If matplotlib is not installed.
        """
        view = _project(X, labels, sample_weight, n_bins, limits)
        view.pop("whole")
        return cls(**view).plot(ax, max_points=max_points)

    def plot(self, ax=None, *, max_points=4000):
        """Draw the stored arrays.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None: a new figure.
        max_points : int, default=4000
            Largest number of rows that are drawn, evenly taken from all.

        Returns
        -------
        display : CellsDisplay
            The display itself. The area of a row's mark goes with its weight, that
            of a mean's circle with the weight of its cell.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        self.figure_, (axis,) = panels(ax, 1, 1, type(self).__name__, (5, 4.5))
        self.ax_ = axis
        n_bins, n = len(self.cell_shares), len(self.points)
        colors = ordered_colors(n_bins, type(self).__name__)
        shown = np.arange(n)
        if n > max_points:
            shown = np.linspace(0, n - 1, max_points).astype(int)
        for cell in range(n_bins):
            rows = shown[self.labels[shown] == cell]
            axis.scatter(
                *self.points[rows].T,
                s=16.0 * n * self.shares[rows],
                color=colors[cell],
                marker=MARKERS[cell % len(MARKERS)],
                alpha=0.6,
                linewidths=0,
            )
        self.boundaries_ = []
        for margin in () if self.margins is None else self.margins:
            if margin.min() < 0.0 < margin.max():
                self.boundaries_.append(
                    axis.contour(
                        *self.grid, margin, levels=[0.0], colors="k", linewidths=1.0
                    )
                )
        axis.scatter(
            *self.cell_means.T,
            s=500.0 * self.cell_shares / self.cell_shares.max(),
            facecolor="white",
            edgecolor="black",
            linewidths=0.8,
            alpha=0.85,
            zorder=3,
        )
        outline = white_outline(type(self).__name__)
        for cell, mean in enumerate(self.cell_means):
            if self.cell_shares[cell] > 0:
                axis.text(
                    *mean,
                    str(cell),
                    ha="center",
                    va="center",
                    fontsize="small",
                    path_effects=outline,
                    zorder=4,
                    clip_on=True,
                )
        axis.set(xlim=self.limits[0], ylim=self.limits[1])
        axis.set(xlabel=self.axis_names[0], ylabel=self.axis_names[1])
        return self


def _project(X, labels, sample_weight, n_bins, limits):
    """Return the constructor's arrays, and whether the plane is the whole space."""
    X, names = check_scores(X)
    weights = check_weights(sample_weight, X)
    labels, n_bins = check_labels(labels, len(X), n_bins)
    if X.shape[1] < 2:
        raise ValueError(
            "X must have at least two columns to be shown in a plane; got "
            f"{X.shape[1]}."
        )
    used = weights > 0
    tolerance = rank_tolerance(None, X.dtype)
    X, labels = X[used].astype(np.float64), labels[used]
    shares = share_weights(weights[used])
    whole = X.shape[1] == 2
    if whole:
        points = X
        axis_names = tuple(
            map(str, names if names is not None else ["score 0", "score 1"])
        )
    else:
        directions, retained = _leading_directions(X, labels, shares, n_bins, tolerance)
        points = X @ directions
        axis_names = tuple(
            f"direction {i + 1} (keeps {value:.1%})" for i, value in enumerate(retained)
        )
    cell_shares, means = cell_moments(points, shares, labels, n_bins)
    means[cell_shares == 0] = np.nan
    if limits is None:
        low, high = points.min(axis=0), points.max(axis=0)
        pad = np.where(high > low, 0.05 * (high - low), 1.0)
        limits = np.column_stack([low - pad, high + pad])
    limits = np.array(limits, dtype=np.float64)
    if limits.shape != (2, 2) or not (limits[:, 0] < limits[:, 1]).all():
        raise ValueError(
            "limits must be two pairs (low, high) of rising numbers, one an axis; got "
            f"{limits.tolist()}."
        )
    return dict(
        points=points,
        labels=labels,
        shares=shares,
        cell_means=means,
        cell_shares=cell_shares,
        axis_names=axis_names,
        limits=tuple(map(tuple, limits.tolist())),
        whole=whole,
    )


def _leading_directions(X, labels, shares, n_bins, rank_rtol):
    """Return the two directions retained best, (d, 2), and their retention."""
    subspace = informative_subspace(X, shares, rank_rtol)
    if subspace.rank < 2:
        raise ValueError(
            "X must have at least two informative directions to be shown in a plane; "
            f"got rank {subspace.rank}."
        )
    moments = cell_moments(X @ subspace.whitener, shares, labels, n_bins)
    eigenvalues, vectors = retained_eigensystem(
        moment_information(*moments), np.eye(subspace.rank)
    )
    directions = subspace.whitener @ vectors[:, [-1, -2]]
    # an eigenvector has no sign of its own: its largest part in scaled columns is up
    scaled = subspace.scale[:, None] * directions
    largest = scaled[np.abs(scaled).argmax(axis=0), [0, 1]]
    return directions * np.sign(largest), eigenvalues[[-1, -2]]


def _margins(logits):
    """Return each logit minus the largest of the others, of every row."""
    if logits.shape[1] == 1:
        return np.ones_like(logits)
    ascending = np.sort(logits, axis=1)
    top = logits.argmax(axis=1)[:, None] == np.arange(logits.shape[1])
    return logits - np.where(top, ascending[:, -2:-1], ascending[:, -1:])
