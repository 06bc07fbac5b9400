"""Warnings come once, at the user's own line, from wherever a fit is called."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from skquant import (
    DExchangeQuantizer,
    IntervalQuantizer,
    KMeansQuantizer,
    SoftVoronoiQuantizer,
)
from skquant.exceptions import DegenerateInformationWarning

FEW = np.array([[-1.0, 0.5], [0.5, 1.0], [1.0, -2.0]])
MANY = np.random.default_rng(0).normal(size=(60, 2))


def in_pipeline(quantizer):
    return make_pipeline(FunctionTransformer(), quantizer)


def warned(call):
    """Return what a call warns of, all of it at a line of this file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert {each.filename for each in caught} <= {__file__}
    return caught


CALLS = {
    "fit": lambda quantizer, X: quantizer.fit(X),
    "fit_predict": lambda quantizer, X: quantizer.fit_predict(X),
    "fit_transform": lambda quantizer, X: quantizer.fit_transform(X),
    "pipeline": lambda quantizer, X: in_pipeline(quantizer).fit(X),
    "pipeline fit_predict": lambda quantizer, X: in_pipeline(quantizer).fit_predict(X),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "quantizer",
    [
        DExchangeQuantizer(n_bins=5, n_jobs=2),
        KMeansQuantizer(n_bins=5, n_jobs=2),
        SoftVoronoiQuantizer(n_bins=5, n_jobs=2),
        IntervalQuantizer(n_bins=5, direction=[1.0, 1.0]),
    ],
    ids=lambda quantizer: type(quantizer).__name__,
)
def test_too_few_rows_are_told_once(quantizer, call):
    caught = warned(lambda: call(quantizer, FEW))
    told = [each for each in caught if "n_bins=5 is larger" in str(each.message)]
    assert [each.category for each in told] == [ConvergenceWarning] * len(told)
    # intervals may also lack distinct projections
    assert len(told) == 1


def test_searches_warn_once_a_fit():
    # one cell keeps nothing of two directions of scores that are not centred
    search = GridSearchCV(
        DExchangeQuantizer(criterion="D", random_state=0),
        {"n_bins": [1, 4]},
        cv=2,
        refit=False,
    )
    caught = warned(lambda: search.fit(MANY))
    assert [each.category for each in caught] == [DegenerateInformationWarning] * 2


def test_searches_in_threads_warn_once_a_fit():
    # a thread's stack does not reach back to the user, but names no file of ours
    with (
        warnings.catch_warnings(record=True) as caught,
        parallel_config("threading", n_jobs=2),
    ):
        warnings.simplefilter("always")
        cross_val_score(DExchangeQuantizer(n_bins=1, random_state=0), MANY)
    assert [each.category for each in caught] == [DegenerateInformationWarning] * 5
    assert not any("skquant" in Path(each.filename).parts for each in caught)


def test_cross_validation_names_the_users_line():
    caught = warned(
        lambda: cross_val_score(DExchangeQuantizer(n_bins=1, random_state=0), MANY)
    )
    assert len(caught) == 5


def test_stopped_fits_say_which_parameter():
    quantizer = DExchangeQuantizer(
        n_bins=8, max_iter=1, n_init=1, n_swaps=0, init="random", random_state=0
    )
    caught = warned(lambda: quantizer.fit(MANY))
    assert "DExchangeQuantizer stopped at max_iter=1 before it converged" in " ".join(
        str(each.message) for each in caught
    )


def test_a_warning_that_is_an_error_leaves_nothing_fitted():
    quantizer = DExchangeQuantizer(n_bins=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            quantizer.fit(FEW)
    assert not hasattr(quantizer, "labels_")
