"""What the cells keep in each direction, and how heavy they are."""

import numpy as np

from skquant._moments import share_weights
from skquant.plotting._style import panels


class SpectrumDisplay:
    """Retained eigenvalues, and the weight and effective size of each cell.

    Parameters
    ----------
    retained_eigenvalues : ndarray of shape (rank,)
        Eigenvalues of the retained matrix, ascending, in [0, 1].
    cell_weights : ndarray of shape (K,)
        Total weight of each cell.
    effective_sample_sizes : ndarray of shape (K,)
        ``(sum w)^2 / sum w^2`` of each cell, in rows; 0 for an empty one.

    Attributes
    ----------
    ax_ : ndarray of three matplotlib Axes
        Eigenvalues, shares of the weight, effective sizes on a log scale.
    figure_ : matplotlib Figure
        Figure with the axes.
    bars_ : list of three matplotlib BarContainer
        What is drawn in each.

    See Also
    --------
    skquant.information.information_report : The numbers shown.

    References
    ----------
    .. [1] L. Kish, "Survey Sampling", Wiley, 1965 (effective sample size).

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import DExchangeQuantizer
    >>> from skquant.plotting import SpectrumDisplay
    >>> scores = np.random.default_rng(0).normal(size=(500, 3))
    >>> quantizer = DExchangeQuantizer(n_bins=8, random_state=0).fit(scores)
    >>> display = SpectrumDisplay.from_estimator(quantizer, scores)
    >>> display.retained_eigenvalues.shape, display.cell_weights.shape
    ((3,), (8,))
    """

    def __init__(self, retained_eigenvalues, cell_weights, effective_sample_sizes):
        self.retained_eigenvalues = retained_eigenvalues
        self.cell_weights = cell_weights
        self.effective_sample_sizes = effective_sample_sizes

    @classmethod
    def from_estimator(cls, estimator, X, *, sample_weight=None, ax=None):
        """Show what a quantizer keeps of given rows.

        Parameters
        ----------
        estimator : fitted quantizer
            Its ``information_report`` of the rows is shown.
        X : array-like of shape (n, d)
            Scores.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights; ones when None.
        ax : matplotlib Axes or array of three, default=None
            Axes to draw in, or one whose place three take; None: a new figure.

        Returns
        -------
        display : SpectrumDisplay
            The display, drawn.

        Raises
        ------
        ValueError
            For invalid scores or weights.
        ImportError
            If matplotlib is not installed.
        """
        return cls.from_report(estimator.information_report(X, sample_weight), ax=ax)

    @classmethod
    def from_report(cls, report, *, ax=None):
        """Show a report, of our labels or anyone's.

        Parameters
        ----------
        report : InformationReport
            What ``information_report`` returns.
        ax : matplotlib Axes or array of three, default=None
            Axes to draw in, or one whose place three take; None: a new figure.

        Returns
        -------
        display : SpectrumDisplay
            The display, drawn.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        return cls(
            report.retained_eigenvalues,
            report.cell_weights,
            report.effective_sample_sizes,
        ).plot(ax)

    def plot(self, ax=None):
        """Draw the stored arrays.

        Parameters
        ----------
        ax : matplotlib Axes or array of three, default=None
            Axes to draw in, or one whose place three take; None: a new figure.

        Returns
        -------
        display : SpectrumDisplay
            The display itself.

        Raises
        ------
        ValueError
            For a number of axes other than one or three.
        ImportError
            If matplotlib is not installed.
        """
        self.figure_, self.ax_ = panels(ax, 1, 3, type(self).__name__, (10, 3.2))
        shares = share_weights(self.cell_weights)
        directions = np.arange(1, len(self.retained_eigenvalues) + 1)
        cells = np.arange(len(shares))
        self.bars_ = []
        for axis, x, heights, color, hatch, xlabel, ylabel in [
            (
                self.ax_[0],
                directions,
                self.retained_eigenvalues,
                "#7f9fc6",
                "",
                "direction",
                "retained eigenvalue",
            ),
            (self.ax_[1], cells, shares, "#c9c9c9", "", "cell", "share of weight"),
            (
                self.ax_[2],
                cells,
                self.effective_sample_sizes,
                "#f3e3a4",
                "///",
                "cell",
                "effective rows",
            ),
        ]:
            bars = axis.bar(x, heights, color=color, edgecolor="black", hatch=hatch)
            self.bars_.append(bars)
            axis.set(xlabel=xlabel, ylabel=ylabel)
            axis.xaxis.get_major_locator().set_params(integer=True)
            axis.grid(axis="y", alpha=0.3)
            axis.set_axisbelow(True)
        self.ax_[0].set_ylim(0.0, 1.0)
        if self.effective_sample_sizes.max() > 0:
            self.ax_[2].set(yscale="log", ylim=(0.8, None))
        return self
