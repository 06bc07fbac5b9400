"""scikit-learn's own checks, with no expected failures."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_get_feature_names_out_error,
    check_global_output_transform_pandas,
    check_global_set_output_transform_polars,
    check_inplace_ensure_writeable,
    check_param_validation,
    check_set_output_transform,
    check_set_output_transform_pandas,
    check_set_output_transform_polars,
    check_transformer_get_feature_names_out,
    check_transformer_get_feature_names_out_pandas,
    parametrize_with_checks,
)

from skquant import (
    DExchangeQuantizer,
    FigureOfMeritQuantizer,
    IntervalQuantizer,
    KMeansQuantizer,
    ScoreCompressor,
    SoftVoronoiQuantizer,
)
from skquant.scores import IntensityScore, MixtureScore

pytestmark = [
    # tables of fewer distinct rows than cells
    pytest.mark.filterwarnings("default:n_bins=:sklearn.exceptions.ConvergenceWarning"),
    # scores of more than one column
    pytest.mark.filterwarnings("default:IntervalQuantizer is exact:UserWarning"),
    # two cells of thirty columns
    pytest.mark.filterwarnings(
        "default:n_bins=:skquant.exceptions.DegenerateInformationWarning"
    ),
    # the output checks of scikit-learn raise it for its own estimators too
    pytest.mark.filterwarnings(
        "default:X (has|does not have valid) feature names:UserWarning"
    ),
    # max_iter=2 in some checks
    pytest.mark.filterwarnings(
        "default:.*stopped at max_iter:sklearn.exceptions.ConvergenceWarning"
    ),
    # columns about 100
    pytest.mark.filterwarnings(
        "default:the weighted mean:skquant.exceptions.ScoreOffsetWarning"
    ),
    pytest.mark.filterwarnings(
        "default:the rule places:skquant.exceptions.RuleExtensionWarning"
    ),
]


class LightestCell:
    """A figure of merit, the weight of the lightest cell, with a name of its own."""

    def __call__(self, labels, X, y, sample_weight):
        return float(np.bincount(labels, sample_weight, minlength=3).min())

    def __repr__(self):
        return "LightestCell()"


# every estimator at its defaults once; the checks do not depend on the search's length
ESTIMATORS = [
    KMeansQuantizer(),
    DExchangeQuantizer(),
    SoftVoronoiQuantizer(),
    SoftVoronoiQuantizer(
        family="affine_max", relaxation="sparsemax", n_init=1, random_state=0
    ),
    SoftVoronoiQuantizer(n_bins=3, solver="adam", n_init=1, max_iter=20),
    DExchangeQuantizer(n_bins=3, criterion="A", random_state=0),
    DExchangeQuantizer(n_bins=3, criterion="E", n_init=2, n_swaps=1, random_state=0),
    IntervalQuantizer(n_bins=2),
    IntervalQuantizer(n_bins=3),
    IntervalQuantizer(),
    FigureOfMeritQuantizer(LightestCell(), n_bins=3, max_iter=5, random_state=0),
    ScoreCompressor(n_atoms=16, random_state=0),
    MixtureScore(GaussianNB()),
    IntensityScore(GaussianNB()),
] + [
    kind(n_bins, criterion=criterion, random_state=0, **options)
    for kind, options in (
        (KMeansQuantizer, {"n_init": 2}),
        (DExchangeQuantizer, {"n_init": 2, "n_swaps": 2}),
        (SoftVoronoiQuantizer, {"n_init": 1}),
    )
    for n_bins in (2, 3, 8)
    for criterion in ("trace", "D")
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "estimator",
    [
        KMeansQuantizer(),
        DExchangeQuantizer(),
        SoftVoronoiQuantizer(),
        IntervalQuantizer(),
        FigureOfMeritQuantizer(LightestCell(), n_bins=3, max_iter=2),
    ],
)
@pytest.mark.parametrize(
    "check",
    [
        check_param_validation,
        check_set_output_transform,
        check_set_output_transform_pandas,
        check_set_output_transform_polars,
        check_global_output_transform_pandas,
        check_global_set_output_transform_polars,
        check_transformer_get_feature_names_out,
        check_transformer_get_feature_names_out_pandas,
        check_get_feature_names_out_error,
        check_dataframe_column_names_consistency,
        check_inplace_ensure_writeable,
    ],
)
def test_more_checks(estimator, check):
    check(type(estimator).__name__, estimator)
