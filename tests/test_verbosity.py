"""``verbose`` prints, and changes nothing else."""

import numpy as np
import pytest

from skquant import (
    DExchangeQuantizer,
    FigureOfMeritQuantizer,
    KMeansQuantizer,
    SoftVoronoiQuantizer,
)


def lightest_cell(labels, X, y, sample_weight):
    """Weight of the lightest of four cells."""
    return float(np.bincount(labels, sample_weight, minlength=4).min())


QUANTIZERS = {
    "k-means": KMeansQuantizer(4, n_init=2, random_state=0),
    "exchange": DExchangeQuantizer(4, n_init=2, n_swaps=2, random_state=0),
    "exchange, E": DExchangeQuantizer(
        4, criterion="E", n_init=2, n_swaps=1, random_state=0
    ),
    "lbfgs": SoftVoronoiQuantizer(4, n_init=2, max_iter=20, random_state=0),
    "adam": SoftVoronoiQuantizer(
        4, solver="adam", n_init=2, max_iter=20, random_state=0
    ),
    "affine": SoftVoronoiQuantizer(
        4, family="affine_max", n_init=1, max_iter=20, random_state=0
    ),
    "figure": FigureOfMeritQuantizer(lightest_cell, 4, max_iter=2, random_state=0),
}


# few iterations: the rule need not reproduce every label
@pytest.mark.filterwarnings("ignore::skquant.exceptions.RuleExtensionWarning")
@pytest.mark.parametrize("name", QUANTIZERS)
def test_verbose_never_changes_results(name, capsys):
    scores = np.random.default_rng(0).normal(size=(120, 2))
    quantizer = QUANTIZERS[name]
    silent = quantizer.set_params(verbose=0).fit(scores).__dict__.copy()
    assert capsys.readouterr().out == ""
    for verbose in (1, 2):
        loud = quantizer.set_params(verbose=verbose).fit(scores)
        lines = capsys.readouterr().out.splitlines()
        assert lines
        assert max(map(len, lines)) <= 88
        np.testing.assert_array_equal(loud.labels_, silent["labels_"])
        assert loud.rule_ == silent["rule_"]
        assert loud.retention_ == silent["retention_"]
        assert loud.n_iter_ == silent["n_iter_"]
