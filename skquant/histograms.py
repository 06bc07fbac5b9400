"""Histograms of labels for the tools of a likelihood fit.

Needs the packages of the optional extra ``histograms``, and each of them only in the
function that returns its object.
"""

import importlib

import numpy as np

from skquant._checks import check_finite, check_labels

__all__ = ["pyhf_model", "to_boost_histogram", "to_hist"]


def _require(module, package):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"This function needs {package}, which is not installed: "
            f"pip install {package}, or pip install 'skquant[histograms]'."
        ) from error


def _row_weights(name, weights, n_rows):
    weights = check_finite(name, weights)
    if weights.shape != (n_rows,):
        raise ValueError(
            f"{name} must have shape ({n_rows},), one weight a row; got "
            f"{weights.shape}."
        )
    return weights


def _cell_sums(labels, sample_weight, n_bins):
    """Return sums of weights and of squared weights, and the number of cells."""
    labels, n_bins = check_labels(labels, len(np.atleast_1d(labels)), n_bins)
    weights = np.ones(len(labels))
    if sample_weight is not None:
        weights = _row_weights("sample_weight", sample_weight, len(labels))
    sums = np.bincount(labels, weights, minlength=n_bins)
    squares = np.bincount(labels, weights**2, minlength=n_bins)
    return sums, squares, n_bins


def _check_names(names, n_bins):
    names = [str(name) for name in names]
    if len(names) != n_bins or len(set(names)) != n_bins:
        raise ValueError(
            f"names must hold {n_bins} different names, one a cell; got {names!r}."
        )
    return names


def _filled(histogram, sums, squares):
    view = histogram.view()
    view["value"], view["variance"] = sums, squares
    return histogram


def to_boost_histogram(labels, sample_weight=None, *, n_bins=None, names=None):
    """Return the labels' histogram as a ``boost_histogram.Histogram``.

    Parameters
    ----------
    labels : array-like of int of shape (n,)
        Cell of each row, in ``0..n_bins-1``.
    sample_weight : array-like of shape (n,), default=None
        Finite weights, in the unit that the histogram is to have; negative ones are
        summed like others. Ones when None.
    n_bins : int, default=None
        Number of cells; the largest label plus one when None.
    names : sequence of str of length n_bins, default=None
        Names of the cells: the axis is then one of categories. None: an axis of
        integers.

    Returns
    -------
    histogram : boost_histogram.Histogram
        One axis without overflow, ``Weight`` storage: the value of a cell is ``sum
        w``, its variance ``sum w^2``.

    Raises
    ------
    ImportError
        If boost-histogram is not installed.
    ValueError
        For invalid labels, weights or names.

    References
    ----------
    .. [1] H. Schreiner, H. Dembinski, S. Liu, J. Pivarski, "Boost-histogram:
       High-performance histograms as objects", SciPy Proceedings (2020).
       https://doi.org/10.25080/Majora-342d178e-009

    Examples
    --------
    >>> from skquant.histograms import to_boost_histogram
    >>> histogram = to_boost_histogram([0, 1, 1], [2.0, 1.0, 3.0])
    >>> histogram.values(), histogram.variances()
    (array([2., 4.]), array([ 4., 10.]))
    """
    bh = _require("boost_histogram", "boost-histogram")
    sums, squares, n_bins = _cell_sums(labels, sample_weight, n_bins)
    if names is None:
        axis = bh.axis.Integer(0, n_bins, underflow=False, overflow=False)
    else:
        axis = bh.axis.StrCategory(_check_names(names, n_bins), overflow=False)
    return _filled(bh.Histogram(axis, storage=bh.storage.Weight()), sums, squares)


def to_hist(labels, sample_weight=None, *, n_bins=None, names=None, axis_name="cell"):
    """Return the labels' histogram as a ``hist.Hist``.

    Parameters
    ----------
    labels : array-like of int of shape (n,)
        Cell of each row, in ``0..n_bins-1``.
    sample_weight : array-like of shape (n,), default=None
        Finite weights, in the unit that the histogram is to have; negative ones are
        summed like others. Ones when None.
    n_bins : int, default=None
        Number of cells; the largest label plus one when None.
    names : sequence of str of length n_bins, default=None
        Names of the cells: the axis is then one of categories. None: an axis of
        integers.
    axis_name : str, default="cell"
        Name of the axis.

    Returns
    -------
    histogram : hist.Hist
        One axis without overflow, ``Weight`` storage: the value of a cell is ``sum
        w``, its variance ``sum w^2``.

    Raises
    ------
    ImportError
        If hist is not installed.
    ValueError
        For invalid labels, weights or names.

    References
    ----------
    .. [1] H. Schreiner, H. Dembinski, S. Liu, J. Pivarski, "Boost-histogram:
       High-performance histograms as objects", SciPy Proceedings (2020).
       https://doi.org/10.25080/Majora-342d178e-009

    Examples
    --------
    >>> from skquant.histograms import to_hist
    >>> histogram = to_hist([0, 1, 1], [2.0, 1.0, 3.0], names=["low", "high"])
    >>> float(histogram["high"].value), float(histogram["high"].variance)
    (4.0, 10.0)
    """
    hist = _require("hist", "hist")
    sums, squares, n_bins = _cell_sums(labels, sample_weight, n_bins)
    if names is None:
        axis = hist.axis.Integer(0, n_bins, name=axis_name, flow=False)
    else:
        cells = _check_names(names, n_bins)
        axis = hist.axis.StrCategory(cells, name=axis_name, overflow=False)
    return _filled(hist.Hist(axis, storage=hist.storage.Weight()), sums, squares)


def _template(name, labels, weights, n_bins):
    """Return the cells' sums of a process, which a likelihood needs nonnegative."""
    weights = _row_weights(f"the weights of {name}", weights, len(labels))
    sums = np.bincount(labels, weights, minlength=n_bins)
    negative = np.flatnonzero(sums < 0)
    if len(negative):
        raise ValueError(
            f"The template of {name} must be nonnegative in every cell; got "
            f"{sums[negative].tolist()} in the cells {negative.tolist()}."
        )
    return sums


def _variations(kind, table, process, labels, n_bins):
    """Yield name, and upper and lower templates of a process's variations."""
    for name, processes in (table or {}).items():
        if process not in processes:
            continue
        pair = processes[process]
        if len(pair) != 2:
            raise ValueError(
                f"{kind}[{name!r}][{process!r}] must be a pair of weights, up and "
                f"down; got {len(pair)} entries."
            )
        yield (
            name,
            *(
                _template(f"process {process!r}, {name!r} {side}", labels, each, n_bins)
                for side, each in zip(("up", "down"), pair, strict=True)
            ),
        )


def pyhf_model(
    labels,
    nominal,
    *,
    signal,
    n_bins=None,
    normsys=None,
    histosys=None,
    staterror=False,
    channel="cells",
    poi="mu",
):
    """Return the model dictionary of a binned likelihood for ``pyhf.Model``.

    Each process is a template ``sum w`` over the cells. A row may belong to one
    process (its weight is 0 for the others) or to several. The dictionary is made of
    Python numbers and needs no package: ``pyhf.Model(spec, poi_name=poi)`` reads it.

    Parameters
    ----------
    labels : array-like of int of shape (n,)
        Cell of each row, in ``0..n_bins-1``.
    nominal : mapping of str to array-like of shape (n,)
        Weights of the rows for each process, in expected events.
    signal : str
        The process whose yield ``poi`` multiplies.
    n_bins : int, default=None
        Number of cells; the largest label plus one when None.
    normsys : mapping, default=None
        ``{nuisance: {process: (up, down)}}`` with the varied weights of the rows, each
        of shape (n,): the ratio of the totals scales the nominal template.
    histosys : mapping, default=None
        The same, where the varied weights give a template of their own, its total
        included.
    staterror : bool, default=False
        Whether the templates' simulation errors, the roots of ``sum w^2``, are part of
        the likelihood.
    channel : str, default="cells"
        Name of the channel.
    poi : str, default="mu"
        Name of the parameter of interest.

    Returns
    -------
    spec : dict
        Channels, samples and modifiers.

    Raises
    ------
    ValueError
        For invalid labels or weights, a signal or a varied process that is not among
        the processes, a template that is negative in a cell (the message names the
        cells), or a ``normsys`` variation whose total is not positive.

    References
    ----------
    .. [1] L. Heinrich, M. Feickert, G. Stark, K. Cranmer, "pyhf: pure-Python
       implementation of HistFactory statistical models", J. Open Source Softw. 6
       (2021). https://doi.org/10.21105/joss.02823

    Examples
    --------
    >>> from skquant.histograms import pyhf_model
    >>> spec = pyhf_model(
    ...     [0, 1, 1], {"s": [0.0, 1.0, 1.0], "b": [5.0, 2.0, 1.0]}, signal="s"
    ... )
    >>> [(each["name"], each["data"]) for each in spec["channels"][0]["samples"]]
    [('s', [0.0, 2.0]), ('b', [5.0, 3.0])]
    """
    labels, n_bins = check_labels(labels, len(np.atleast_1d(labels)), n_bins)
    if signal not in nominal:
        raise ValueError(
            f"signal must be one of the processes {list(nominal)}; got {signal!r}."
        )
    for kind, table in (("normsys", normsys), ("histosys", histosys)):
        for name, processes in (table or {}).items():
            unknown = [process for process in processes if process not in nominal]
            if unknown:
                raise ValueError(
                    f"{kind}[{name!r}] must vary processes of nominal, "
                    f"{list(nominal)}; got {unknown}."
                )
    samples = []
    for process, weights in nominal.items():
        data = _template(f"process {process!r}", labels, weights, n_bins)
        modifiers = []
        if process == signal:
            modifiers.append({"name": poi, "type": "normfactor", "data": None})
        for name, up, down in _variations("normsys", normsys, process, labels, n_bins):
            total = data.sum()
            if not min(total, up.sum(), down.sum()) > 0:
                raise ValueError(
                    f"normsys[{name!r}][{process!r}] needs positive totals; got "
                    f"{total:.6g} nominal, {up.sum():.6g} up, {down.sum():.6g} down."
                )
            ratios = {"hi": float(up.sum() / total), "lo": float(down.sum() / total)}
            modifiers.append({"name": name, "type": "normsys", "data": ratios})
        for name, up, down in _variations(
            "histosys", histosys, process, labels, n_bins
        ):
            templates = {"hi_data": up.tolist(), "lo_data": down.tolist()}
            modifiers.append({"name": name, "type": "histosys", "data": templates})
        if staterror:
            squares = np.bincount(
                labels, np.asarray(weights, dtype=np.float64) ** 2, minlength=n_bins
            )
            modifiers.append(
                {
                    "name": f"staterror_{channel}",
                    "type": "staterror",
                    "data": np.sqrt(squares).tolist(),
                }
            )
        samples.append({"name": process, "data": data.tolist(), "modifiers": modifiers})
    return {"channels": [{"name": channel, "samples": samples}]}
