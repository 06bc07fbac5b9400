"""What the displays share: matplotlib, imported late, panels, colors and markers."""

import numpy as np

MARKERS = ["o", "s", "^", "v", "D", "P", "X", "*"]
DASHES = ["-", "--", "-.", ":"]


def pyplot(caller):
    """Return ``matplotlib.pyplot``, or say who needs it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} requires matplotlib. You can install it with "
            "`pip install matplotlib`."
        ) from error
    return plt


def panels(ax, rows, columns, caller, figsize):
    """Return a figure and an array of ``rows * columns`` axes.

    ``ax`` is None for a new figure, as many axes as there are panels, or one axes
    of a subplot grid, whose place the panels take.
    """
    plt = pyplot(caller)
    n_panels = rows * columns
    if ax is None:
        figure, axes = plt.subplots(
            rows, columns, figsize=figsize, layout="constrained", squeeze=False
        )
        return figure, axes.ravel()
    axes = np.asarray(ax, dtype=object).ravel()
    if len(axes) not in (1, n_panels):
        raise ValueError(
            f"ax must be None, one axes or {n_panels} axes; got {len(axes)} axes."
        )
    figure = axes[0].figure
    if len(axes) < n_panels:
        place = axes[0].get_subplotspec()
        if place is None:
            raise ValueError(
                f"ax must be an axes of a subplot grid to be split in {n_panels}, or "
                f"{n_panels} axes; got {axes[0]!r}."
            )
        axes[0].set_axis_off()
        grid = place.subgridspec(rows, columns)
        axes = np.array(
            [figure.add_subplot(grid[i, j]) for i, j in np.ndindex(rows, columns)]
        )
    return figure, axes


def ordered_colors(n_colors, caller):
    """Return ``n_colors`` colors of rising lightness, (n_colors, 4)."""
    # the lightest end of cividis is hard to see on white
    return pyplot(caller).get_cmap("cividis")(np.linspace(0.0, 0.85, n_colors))


def white_outline(caller):
    """Return path effects that keep text readable on marks and lines."""
    pyplot(caller)
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=2.5, foreground="white")]
