"""Displays: stored arrays by independent routes, and what is drawn from them."""

import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.linalg import eigh
from sklearn.exceptions import NotFittedError

from skquant import (
    AffineMaxRule,
    DExchangeQuantizer,
    IntervalQuantizer,
    KMeansQuantizer,
    SoftVoronoiQuantizer,
)
from skquant.information import information_report
from skquant.inspection import retention_interval
from skquant.plotting import (
    AnnealingDisplay,
    CellsDisplay,
    RetentionDisplay,
    SpectrumDisplay,
)
from skquant.plotting._style import MARKERS, ordered_colors

mpl.use("Agg")

MIXING = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def table(n, d, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, d)) @ MIXING[:d, :d] + 0.1
    return scores, rng.integers(0, 4, size=n).astype(float)


@pytest.fixture(scope="module")
def plane():
    scores, weights = table(400, 2)
    quantizer = DExchangeQuantizer(5, n_init=1, n_swaps=1, random_state=0)
    return scores, weights, quantizer.fit(scores, sample_weight=weights)


@pytest.fixture(scope="module")
def space():
    scores, weights = table(500, 3)
    quantizer = DExchangeQuantizer(7, n_init=1, n_swaps=1, random_state=0)
    return scores, weights, quantizer.fit(scores, sample_weight=weights)


def means_by_loop(points, labels, weights, n_bins):
    means, shares = np.empty((n_bins, points.shape[1])), np.empty(n_bins)
    for cell in range(n_bins):
        inside = labels == cell
        shares[cell] = weights[inside].sum() / weights.sum()
        means[cell] = np.average(points[inside], axis=0, weights=weights[inside])
    return means, shares


def matrices(scores, labels, weights, n_bins):
    """Retained and full information by loops over cells and rows."""
    retained = 0.0
    for cell in range(n_bins):
        inside = labels == cell
        moment = weights[inside] @ scores[inside]
        retained = retained + np.outer(moment, moment) / weights[inside].sum()
    full = sum(w * np.outer(s, s) for w, s in zip(weights, scores, strict=True))
    return retained / weights.sum(), full / weights.sum()


# --- cells ---------------------------------------------------------------------------


def test_cells_of_a_plane_are_those_of_its_rows(plane):
    scores, weights, quantizer = plane
    before = scores.copy(), weights.copy()
    display = CellsDisplay.from_estimator(quantizer, scores, sample_weight=weights)
    used = weights > 0
    assert 0 < used.sum() < len(used)
    np.testing.assert_array_equal(display.points, scores[used])
    np.testing.assert_array_equal(display.labels, quantizer.predict(scores[used]))
    means, shares = means_by_loop(scores, quantizer.predict(scores), weights, 5)
    np.testing.assert_allclose(display.cell_means, means, rtol=1e-12)
    np.testing.assert_allclose(display.cell_shares, shares, rtol=1e-12)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(weights, before[1])


def test_margins_are_positive_in_the_predicted_cell_alone(plane):
    scores, _, quantizer = plane
    display = CellsDisplay.from_estimator(quantizer, scores)
    x, y = display.grid
    for i, j in [(0, 0), (30, 170), (111, 57), (200, 200), (100, 90)]:
        cell = quantizer.predict([[x[j], y[i]]])[0]
        assert np.flatnonzero(display.margins[:, i, j] > 0).tolist() == [cell]


def test_boundaries_are_where_two_logits_tie(plane):
    scores, _, quantizer = plane
    display = CellsDisplay.from_estimator(quantizer, scores)
    assert len(display.boundaries_) == 5
    for contours in display.boundaries_:
        ((vertices,),) = contours.allsegs
        assert len(vertices) > 20
        logits = np.sort(quantizer.decision_function(vertices), axis=1)
        gaps = logits[:, -1] - logits[:, -2]
        # off a corner of the cell a zero line of affine functions is exact
        spread = np.ptp(quantizer.decision_function(scores))
        assert np.median(gaps) < 1e-10 * spread
        assert gaps.max() < 1e-2 * spread


def test_projection_is_on_the_directions_retained_best(space):
    scores, weights, quantizer = space
    display = CellsDisplay.from_estimator(quantizer, scores, sample_weight=weights)
    used = weights > 0
    labels = quantizer.predict(scores)
    retained, full = matrices(scores[used], labels[used], weights[used], 7)
    eigenvalues, vectors = eigh(retained, full)
    leading = vectors[:, [-1, -2]]
    signs = np.sign(np.sum((scores[used] @ leading) * display.points, axis=0))
    np.testing.assert_allclose(
        display.points, scores[used] @ leading * signs, rtol=1e-8, atol=1e-10
    )
    assert display.axis_names == (
        f"direction 1 (keeps {eigenvalues[-1]:.1%})",
        f"direction 2 (keeps {eigenvalues[-2]:.1%})",
    )
    assert display.margins is None
    assert display.boundaries_ == []


def test_projection_has_a_definite_sign():
    for seed in range(6):
        scores, _ = table(100, 3, seed)
        labels = np.digitize(scores[:, seed % 3], [-1.0, 0.0, 0.5])
        labels += 4 * (scores.sum(axis=1) > 0)
        display = CellsDisplay.from_predictions(scores, labels)
        directions = np.linalg.lstsq(scores, display.points, rcond=None)[0]
        parts = directions * np.sqrt(np.mean(scores**2, axis=0))[:, None]
        np.testing.assert_array_equal(parts.max(axis=0), np.abs(parts).max(axis=0))
        # independent of the order of rows and the units of columns
        again = CellsDisplay.from_predictions(
            scores[::-1] * [1e3, 1.0, 1.0], labels[::-1]
        )
        np.testing.assert_allclose(again.points, display.points[::-1], atol=1e-9)


def test_a_weight_is_so_many_copies(plane):
    scores, weights, quantizer = plane
    weighted = CellsDisplay.from_estimator(quantizer, scores, sample_weight=weights)
    copies = CellsDisplay.from_estimator(
        quantizer, np.repeat(scores, weights.astype(int), axis=0)
    )
    np.testing.assert_allclose(copies.cell_means, weighted.cell_means, rtol=1e-12)
    np.testing.assert_allclose(copies.cell_shares, weighted.cell_shares, rtol=1e-12)


def test_a_rule_alone_and_a_frame_with_names():
    scores, _ = table(200, 2)
    frame = pd.DataFrame(scores, columns=["rate", "slope"])
    quantizer = KMeansQuantizer(3, random_state=0).fit(frame)
    display = CellsDisplay.from_estimator(quantizer.rule_, frame)
    assert display.axis_names == ("rate", "slope")
    assert display.ax_.get_xlabel() == "rate"
    assert display.margins.shape == (3, 201, 201)


def test_empty_cells_and_cells_out_of_view_are_left_out():
    rule = AffineMaxRule([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], [0.0, 0.0, -50.0])
    scores, _ = table(100, 2)
    display = CellsDisplay.from_estimator(rule, scores)
    assert display.cell_shares[2] == 0.0
    assert np.isnan(display.cell_means[2]).all()
    assert len(display.boundaries_) == 2
    assert [each.get_text() for each in display.ax_.texts] == ["0", "1"]


def test_one_cell_has_no_boundary():
    scores, _ = table(50, 2)
    display = CellsDisplay.from_estimator(AffineMaxRule([[0.0, 0.0]], [0.0]), scores)
    assert display.boundaries_ == []
    np.testing.assert_allclose(display.cell_shares, [1.0], rtol=1e-12)


def test_areas_go_with_weights(plane):
    scores, weights, quantizer = plane
    display = CellsDisplay.from_estimator(quantizer, scores, sample_weight=weights)
    drawn = display.ax_.collections
    sizes = np.concatenate([each.get_sizes() for each in drawn[:5]])
    order = np.argsort(display.labels, kind="stable")
    expected = weights[weights > 0][order]
    np.testing.assert_allclose(sizes / sizes.sum(), expected / expected.sum())
    means = drawn[-1].get_sizes()
    np.testing.assert_allclose(means / means.sum(), display.cell_shares)


def test_no_more_points_are_drawn_than_asked(plane):
    scores, _, quantizer = plane
    display = CellsDisplay.from_estimator(quantizer, scores, max_points=60)
    drawn = np.vstack([each.get_offsets() for each in display.ax_.collections[:5]])
    assert len(np.unique(drawn, axis=0)) == len(drawn) == 60
    assert len(display.points) == 400


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones((5, 1)), "at least two columns to be shown in a plane; got 1"),
        (np.ones((5, 3)), "two informative directions to be shown in a plane; got ra"),
    ],
)
def test_what_has_no_plane_is_refused(scores, message):
    with pytest.raises(ValueError, match=message):
        CellsDisplay.from_predictions(scores, [0, 1, 0, 1, 0])


def test_limits_are_checked_and_kept(plane):
    scores, _, quantizer = plane
    display = CellsDisplay.from_estimator(quantizer, scores, limits=[(-1, 2), (0, 3)])
    assert display.ax_.get_xlim() == (-1.0, 2.0)
    assert display.grid[1][[0, -1]].tolist() == [0.0, 3.0]
    for wrong in ([(1, 0), (0, 1)], [0, 1], [(0, 1)]):
        with pytest.raises(ValueError, match="limits must be two pairs"):
            CellsDisplay.from_estimator(quantizer, scores, limits=wrong)


def test_unfitted_is_refused():
    scores, _ = table(20, 2)
    with pytest.raises(NotFittedError):
        CellsDisplay.from_estimator(KMeansQuantizer(), scores)
    with pytest.raises(NotFittedError):
        SpectrumDisplay.from_estimator(KMeansQuantizer(), scores)
    with pytest.raises(NotFittedError):
        AnnealingDisplay.from_estimator(SoftVoronoiQuantizer())


# --- retention -----------------------------------------------------------------------


def test_retention_is_that_of_fits_on_held_out_rows():
    train, weights = table(300, 2)
    test, test_weights = table(800, 2, seed=1)
    quantizers = {
        "exchange": DExchangeQuantizer(n_init=1, n_swaps=0, random_state=0),
        "k-means": KMeansQuantizer(n_init=1, random_state=0),
    }
    display = RetentionDisplay.from_estimator(
        quantizers,
        train,
        test,
        n_bins=[4, 7],
        criteria=["D", "E"],
        sample_weight=weights,
        sample_weight_test=test_weights,
        level=0.9,
    )
    assert display.names == ["exchange, D", "exchange, E", "k-means, D", "k-means, E"]
    assert not hasattr(quantizers["exchange"], "rule_")
    for k, n_bins in enumerate([4, 7]):
        kmeans = KMeansQuantizer(n_bins, n_init=1, random_state=0)
        kmeans.fit(train, sample_weight=weights)
        labels = kmeans.predict(test)
        result = retention_interval(test, labels, test_weights, level=0.9)
        assert display.retention[2, k] == pytest.approx(result.estimate, rel=1e-12)
        ends = display.lower[2, k], display.upper[2, k]
        assert ends == pytest.approx(result.interval, rel=1e-12)
        # the plug-in, by loops and a determinant
        used = test_weights > 0
        pair = matrices(test[used], labels[used], test_weights[used], n_bins)
        determinant = np.prod(eigh(*pair, eigvals_only=True)) ** 0.5
        assert ends[0] < determinant < ends[1] + 0.02
    assert (display.retention[1] < display.retention[0]).all()


def test_drawn_curves_and_bars_are_the_stored_ones():
    display = RetentionDisplay(
        np.array([4, 8]),
        np.array([[0.5, 0.75], [0.4, 0.6]]),
        np.array([[0.4, 0.7], [np.nan, 0.5]]),
        np.array([[0.55, 0.8], [np.nan, 0.7]]),
        ["a", "b"],
    ).plot()
    assert [each.get_label() for each in display.curves_] == ["a", "b"]
    for i, (line, _, (bars,)) in enumerate(display.curves_):
        np.testing.assert_array_equal(line.get_ydata(), display.retention[i])
        # a bar with an end at NaN has no segment
        ends = [each[:, 1] for each in bars.get_segments() if len(each)]
        expected = np.column_stack([display.lower[i], display.upper[i]])
        expected = expected[np.isfinite(expected[:, 0])]
        np.testing.assert_allclose(ends, expected, atol=1e-15)
    styles = {(c[0].get_marker(), c[0].get_linestyle()) for c in display.curves_}
    assert len(styles) == 2


def test_numbers_of_rows_are_nested_draws():
    train, _ = table(300, 1)
    test, _ = table(800, 1, seed=1)
    seen = []

    class Recording(IntervalQuantizer):
        def fit(self, X, y=None, sample_weight=None):
            seen.append((X, sample_weight))
            return super().fit(X, y, sample_weight)

    weights = np.arange(1.0, 301.0)
    display = RetentionDisplay.from_estimator(
        Recording(4, criterion="trace"),
        train,
        test,
        n_rows=[50, 120, 300],
        sample_weight=weights,
        random_state=3,
    )
    assert display.x_name == display.ax_.get_xlabel() == "training rows"
    assert display.names == ["Recording"]
    assert [len(X) for X, _ in seen] == [50, 120, 300]
    np.testing.assert_array_equal(seen[1][0][:50], seen[0][0])
    np.testing.assert_array_equal(np.sort(seen[2][1]), weights)
    np.testing.assert_array_equal(train[seen[0][1].astype(int) - 1], seen[0][0])
    last = IntervalQuantizer(4, criterion="trace").fit(train, sample_weight=weights)
    result = retention_interval(test, last, criterion="trace")
    assert display.retention[0, 2] == pytest.approx(result.estimate, rel=1e-12)


def test_where_there_is_no_interval_the_plug_in_is_shown():
    scores = np.array([[1.0], [-1.0]] * 20)
    display = RetentionDisplay.from_estimator(
        IntervalQuantizer(criterion="trace"), scores, scores, n_bins=[2]
    )
    # two values in two cells: lossless
    assert display.retention.tolist() == [[1.0]]
    assert np.isnan(display.lower).all()
    assert np.isnan(display.upper).all()


def test_range_of_retention_is_checked():
    scores, _ = table(30, 2)
    quantizer = KMeansQuantizer(random_state=0)
    for given in ({}, {"n_bins": [2], "n_rows": [20]}):
        with pytest.raises(ValueError, match="exactly one of n_bins and n_rows"):
            RetentionDisplay.from_estimator(quantizer, scores, scores, **given)
    for rows in ([10, 31], [0, 10]):
        with pytest.raises(ValueError, match=r"n_rows must lie in 1\.\.30"):
            RetentionDisplay.from_estimator(quantizer, scores, scores, n_rows=rows)


# --- annealing -----------------------------------------------------------------------


def test_annealing_draws_the_history():
    scores, _ = table(200, 2)
    quantizer = SoftVoronoiQuantizer(
        4, solver="adam", n_init=1, max_iter=40, record_every=10, random_state=0
    ).fit(scores)
    display = AnnealingDisplay.from_estimator(quantizer)
    names = ["soft_retention", "hard_retention", "temperature", "gradient_norm"]
    lines = [line for axis in display.ax_ for line in axis.lines]
    for name, line in zip(names, lines, strict=True):
        assert line.get_label().replace(" ", "_") == name.removesuffix("_retention")
        np.testing.assert_array_equal(line.get_ydata(), quantizer.history_[name])
        np.testing.assert_array_equal(line.get_xdata(), [0, 10, 20, 30, 40])
    # independent: the staged rules on the training rows
    staged = list(quantizer.staged_score(scores))
    np.testing.assert_allclose(display.hard_retention, staged, rtol=1e-9)
    assert display.ax_[1].get_yscale() == "log"


def test_annealing_needs_a_history():
    scores, _ = table(30, 2)
    quantizer = KMeansQuantizer(2, random_state=0).fit(scores)
    with pytest.raises(TypeError, match="must have a history_.* got KMeansQuantizer"):
        AnnealingDisplay.from_estimator(quantizer)


# --- spectrum ------------------------------------------------------------------------


def test_spectrum_by_loops(space):
    scores, weights, quantizer = space
    display = SpectrumDisplay.from_estimator(quantizer, scores, sample_weight=weights)
    used = weights > 0
    labels = quantizer.predict(scores)
    pair = matrices(scores[used], labels[used], weights[used], 7)
    sums = np.array([weights[labels == cell].sum() for cell in range(7)])
    squares = np.array([(weights[labels == cell] ** 2).sum() for cell in range(7)])
    expected = [eigh(*pair, eigvals_only=True), sums / sums.sum(), sums**2 / squares]
    for bars, heights in zip(display.bars_, expected, strict=True):
        np.testing.assert_allclose([bar.get_height() for bar in bars], heights)
    np.testing.assert_allclose(display.cell_weights, sums)
    assert display.ax_[0].get_ylim() == (0.0, 1.0)


def test_spectrum_of_a_report(space):
    scores, weights, quantizer = space
    report = information_report(scores, quantizer.predict(scores), weights)
    display = SpectrumDisplay.from_report(report)
    assert display.retained_eigenvalues is report.retained_eigenvalues
    assert len(display.bars_[1]) == 7


# --- axes, colors, matplotlib --------------------------------------------------------


def displays(plane):
    scores, _, quantizer = plane
    line = np.array([1.0, 2.0])
    return [
        (CellsDisplay.from_estimator(quantizer, scores), 1),
        (RetentionDisplay(line, line[None], line[None], line[None], ["a"]), 1),
        (AnnealingDisplay(line, line, line, line, line), 2),
        (SpectrumDisplay(line, line, line), 3),
    ]


def test_plot_draws_where_it_is_told(plane):
    pyplot = mpl.pyplot
    for display, n_panels in displays(plane):
        figure, axes = pyplot.subplots(1, n_panels, squeeze=False)
        given = axes[0] if n_panels > 1 else axes[0, 0]
        assert display.plot(given) is display
        assert display.figure_ is figure
        assert np.array_equal(np.ravel(display.ax_), axes[0])
        # again, in a figure of its own
        display.plot()
        assert display.figure_ is not figure
        figure.canvas.draw()
        display.figure_.canvas.draw()


def test_one_axes_is_split_in_panels(plane):
    for display, n_panels in displays(plane)[2:]:
        figure, (left, right) = mpl.pyplot.subplots(1, 2)
        box = left.get_position()
        display.plot(left)
        assert len(display.ax_) == n_panels
        assert not left.axison
        assert right.axison
        for axis in display.ax_:
            assert axis.figure is figure
            inner = axis.get_position()
            assert inner.x0 >= box.x0 - 1e-9
            assert inner.x1 <= box.x1 + 1e-9
        with pytest.raises(ValueError, match="must be None, one axes or"):
            display.plot([right] * 4)
        loose = mpl.pyplot.figure().add_axes([0, 0, 1, 1])
        with pytest.raises(ValueError, match="must be an axes of a subplot grid"):
            display.plot(loose)


@pytest.mark.parametrize("n_colors", [2, 4, 8, 12])
def test_colors_rise_in_lightness(n_colors):
    red, green, blue = ordered_colors(n_colors, "test")[:, :3].T
    luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
    lightness = 116.0 * np.cbrt(luminance) - 16.0
    assert np.diff(lightness).min() > 50.0 / n_colors
    # on white, of lightness 100, the lightest is still seen
    assert lightness.max() < 80.0
    assert len(set(MARKERS)) == 8


def test_missing_matplotlib_is_named(plane, monkeypatch):
    drawn = displays(plane)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for display, _ in drawn:
        name = type(display).__name__
        with pytest.raises(ImportError, match=f"{name} requires matplotlib"):
            display.plot()


def test_matplotlib_is_imported_late(tmp_path):
    # from elsewhere: the checkout's own folder has no compiled kernels
    code = (
        "import sys, skquant; skquant.plotting.CellsDisplay; "
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
