"""The course of an annealed fit."""

from skquant._checks import check_is_fitted
from skquant.plotting._style import panels


class AnnealingDisplay:
    """Soft and hard retention while the temperature falls.

    Parameters
    ----------
    steps : ndarray of int of shape (m,)
        Updates made at each snapshot.
    soft_retention, hard_retention : ndarray of shape (m,)
        Efficiency of the randomized rule and of its hard limit, in [0, 1].
    temperature : ndarray of shape (m,)
        Temperature tau, in whitened score units.
    gradient_norm : ndarray of shape (m,)
        Norm of the objective's gradient in the parameters.

    Attributes
    ----------
    ax_ : ndarray of two matplotlib Axes
        Retention above; temperature and gradient norm, on a log scale, below.
    figure_ : matplotlib Figure
        Figure with the axes.

    See Also
    --------
    skquant.SoftVoronoiQuantizer : The estimator whose ``history_`` is shown.

    References
    ----------
    .. [1] K. Rose, "Deterministic annealing for clustering, compression,
       classification, regression, and related optimization problems", Proc. IEEE 86
       (1998). https://doi.org/10.1109/5.726788

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import SoftVoronoiQuantizer
    >>> from skquant.plotting import AnnealingDisplay
    >>> scores = np.random.default_rng(0).normal(size=(300, 2))
    >>> quantizer = SoftVoronoiQuantizer(
    ...     n_bins=4, solver="adam", n_init=1, max_iter=50, random_state=0
    ... ).fit(scores)
    >>> AnnealingDisplay.from_estimator(quantizer).steps
    array([ 0, 25, 50])
    """

    def __init__(
        self, steps, soft_retention, hard_retention, temperature, gradient_norm
    ):
        self.steps = steps
        self.soft_retention = soft_retention
        self.hard_retention = hard_retention
        self.temperature = temperature
        self.gradient_norm = gradient_norm

    @classmethod
    def from_estimator(cls, estimator, *, ax=None):
        """Show the history of a fit.

        Parameters
        ----------
        estimator : fitted SoftVoronoiQuantizer
            Any fitted estimator with such a ``history_``.
        ax : matplotlib Axes or array of two, default=None
            Axes to draw in, or one whose place two take; None: a new figure.

        Returns
        -------
        display : AnnealingDisplay
            The display, drawn.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        TypeError
            If it keeps no history.
        ImportError
            If matplotlib is not installed.
        """
        check_is_fitted(estimator)
        history = getattr(estimator, "history_", None)
        if history is None:
            raise TypeError(
                "estimator must have a history_, as SoftVoronoiQuantizer does; got "
                f"{type(estimator).__name__}."
            )
        return cls(
            steps=history["steps"],
            soft_retention=history["soft_retention"],
            hard_retention=history["hard_retention"],
            temperature=history["temperature"],
            gradient_norm=history["gradient_norm"],
        ).plot(ax)

    def plot(self, ax=None):
        """Draw the stored arrays.

        Parameters
        ----------
        ax : matplotlib Axes or array of two, default=None
            Axes to draw in, or one whose place two take; None: a new figure.

        Returns
        -------
        display : AnnealingDisplay
            The display itself.

        Raises
        ------
        ValueError
            For a number of axes other than one or two.
        ImportError
            If matplotlib is not installed.
        """
        self.figure_, self.ax_ = panels(ax, 2, 1, type(self).__name__, (5, 5))
        above, below = self.ax_
        for axis, values, name, style, color in [
            (above, self.soft_retention, "soft", "o-", "#0072B2"),
            (above, self.hard_retention, "hard", "s--", "black"),
            (below, self.temperature, "temperature", "^-", "#0072B2"),
            (below, self.gradient_norm, "gradient norm", "v--", "black"),
        ]:
            axis.plot(self.steps, values, style, color=color, markersize=4, label=name)
        above.set_ylabel("retention")
        below.set(yscale="log", xlabel="step")
        above.sharex(below)
        above.tick_params(labelbottom=False)
        for axis in self.ax_:
            axis.grid(alpha=0.3)
            axis.legend(loc="best", fontsize="small")
        return self
