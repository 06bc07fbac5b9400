"""Retention against the number of cells or of training rows."""

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state

from skquant._checks import check_scores, check_weights
from skquant.inspection import retention_interval
from skquant.plotting._style import DASHES, MARKERS, ordered_colors, panels


class RetentionDisplay:
    """Retention on held-out rows against the number of cells or of training rows.

    Parameters
    ----------
    x : ndarray of shape (m,)
        Numbers of cells, or of training rows.
    retention : ndarray of shape (c, m)
        Retention of each curve, in [0, 1].
    lower, upper : ndarray of shape (c, m)
        Ends of the interval of each value; NaN where there is none.
    names : list of str
        Name of each of the c curves.
    x_name : str, default="cells"
        What ``x`` counts.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the picture.
    figure_ : matplotlib Figure
        Figure with the axes.
    curves_ : list of matplotlib ErrorbarContainer
        The curves.

    See Also
    --------
    skquant.inspection.retention_interval : The value and interval of each point.

    References
    ----------
    .. [1] A. W. van der Vaart, "Asymptotic Statistics", Cambridge, 1998 (chapter 20,
       influence functions). https://doi.org/10.1017/CBO9780511802256

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import KMeansQuantizer
    >>> from skquant.plotting import RetentionDisplay
    >>> rng = np.random.default_rng(0)
    >>> train, test = rng.normal(size=(2, 1000, 2))
    >>> display = RetentionDisplay.from_estimator(
    ...     KMeansQuantizer(random_state=0), train, test, n_bins=[4, 8, 16]
    ... )
    >>> display.retention.round(2)
    array([[0.64, 0.8 , 0.89]])
    """

    def __init__(self, x, retention, lower, upper, names, x_name="cells"):
        self.x = x
        self.retention = retention
        self.lower = lower
        self.upper = upper
        self.names = names
        self.x_name = x_name

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        X_test,
        *,
        n_bins=None,
        n_rows=None,
        criteria=None,
        sample_weight=None,
        sample_weight_test=None,
        level=0.95,
        random_state=0,
        ax=None,
    ):
        """Fit clones of quantizers over a range, and score them on held-out rows.

        Parameters
        ----------
        estimator : quantizer or dict of {str: quantizer}
            What to fit; the keys name the curves. It is not fitted itself.
        X : array-like of shape (n, d)
            Training scores.
        X_test : array-like of shape (n_test, d)
            Held-out scores.
        n_bins : sequence of int, default=None
            Numbers of cells. Either this or ``n_rows`` must be given.
        n_rows : sequence of int, default=None
            Numbers of training rows, drawn without replacement; a larger draw contains
            the smaller ones.
        criteria : sequence of {"trace", "D", "A", "E"} or objects, default=None
            Whose retention to show of every fit; None: that of the fit's criterion.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative training weights; ones when None.
        sample_weight_test : array-like of shape (n_test,), default=None
            Nonnegative held-out weights; ones when None.
        level : float in (0, 1), default=0.95
            Nominal coverage of the intervals.
        random_state : int, RandomState instance or None, default=0
            Seed of the draw of training rows.
        ax : matplotlib Axes, default=None
            Axes to draw in; None: a new figure.

        Returns
        -------
        display : RetentionDisplay
            The display, drawn. Values are corrected for bias as
            ``retention_interval`` says; where there is no interval, they are the
            retention of the held-out rows as they are.

        Raises
        ------
        ValueError
            If not exactly one of ``n_bins`` and ``n_rows`` is given, if ``n_rows`` is
            larger than the table, or for invalid scores or weights.
        ImportError
            If matplotlib is not installed.
        """
        if (n_bins is None) == (n_rows is None):
            raise ValueError(
                "exactly one of n_bins and n_rows must be given; got "
                f"n_bins={n_bins!r}, n_rows={n_rows!r}."
            )
        table, _ = check_scores(X)
        weights = check_weights(sample_weight, table)
        x = np.array(n_bins if n_rows is None else n_rows)
        if n_rows is not None and (x.min() < 1 or x.max() > len(table)):
            raise ValueError(
                f"n_rows must lie in 1..{len(table)}, the rows of X; got {x.tolist()}."
            )
        order = check_random_state(random_state).permutation(len(table))
        if not isinstance(estimator, dict):
            estimator = {type(estimator).__name__: estimator}
        own = [None] if criteria is None else list(criteria)
        names = [
            name if criterion is None else f"{name}, {_criterion_name(criterion)}"
            for name in estimator
            for criterion in own
        ]
        values = np.full((3, len(names), len(x)), np.nan)
        for i, quantizer in enumerate(estimator.values()):
            for k, size in enumerate(x):
                fitted = clone(quantizer)
                if n_rows is None:
                    fitted.set_params(n_bins=int(size)).fit(X, sample_weight=weights)
                else:
                    rows = order[:size]
                    fitted.fit(_safe_indexing(X, rows), sample_weight=weights[rows])
                for j, criterion in enumerate(own):
                    result = retention_interval(
                        X_test,
                        fitted,
                        sample_weight_test,
                        criterion=fitted.criterion_ if criterion is None else criterion,
                        level=level,
                    )
                    value = result.estimate if result.status == "ok" else result.plug_in
                    values[:, i * len(own) + j, k] = value, *result.interval
        x_name = "cells" if n_rows is None else "training rows"
        return cls(x, *values, names, x_name).plot(ax)

    def plot(self, ax=None):
        """Draw the stored arrays.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw in; None: a new figure.

        Returns
        -------
        display : RetentionDisplay
            The display itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        self.figure_, (axis,) = panels(ax, 1, 1, type(self).__name__, (5, 4))
        self.ax_ = axis
        self.curves_ = []
        colors = ordered_colors(len(self.names), type(self).__name__)
        for i, name in enumerate(self.names):
            below = self.retention[i] - self.lower[i]
            above = self.upper[i] - self.retention[i]
            curve = axis.errorbar(
                self.x,
                self.retention[i],
                yerr=None if np.isnan(below).all() else [below, above],
                color=colors[i],
                marker=MARKERS[i % len(MARKERS)],
                linestyle=DASHES[i % len(DASHES)],
                markersize=5,
                capsize=3,
                label=name,
            )
            self.curves_.append(curve)
        axis.set_xscale("log")
        axis.set_xticks(self.x, [str(each) for each in self.x])
        axis.minorticks_off()
        axis.set(xlabel=self.x_name, ylabel="retention")
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
        return self


def _criterion_name(criterion):
    return criterion if isinstance(criterion, str) else repr(criterion)
