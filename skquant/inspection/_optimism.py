"""Training minus cross-validated retention of an estimator."""

from dataclasses import dataclass

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.model_selection import check_cv, cross_validate

from skquant._checks import check_scores, check_weights


@dataclass(frozen=True, eq=False)
class Optimism:
    """How much better an estimator scores on its training rows.

    Attributes
    ----------
    optimism : float
        Mean over folds of the training minus the held-out score.
    standard_error : float
        Of the optimism: the folds' standard deviation times ``sqrt(1 / k + held-out
        over training rows)``, since training tables overlap. NaN for one fold.
    train_scores, test_scores : ndarray of shape (k,)
        Scores of each fold's rule on its training and on its held-out rows.
    """

    optimism: float
    standard_error: float
    train_scores: np.ndarray
    test_scores: np.ndarray


def optimism(estimator, scores, sample_weight=None, *, cv=5):
    """Return training minus cross-validated retention, with its error.

    Parameters
    ----------
    estimator : estimator with ``score``
        A quantizer, or a pipeline that ends in one; it is cloned, never fitted.
    scores : array-like of shape (n, d)
        Score vectors, one row an event.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights, routed to ``fit`` and ``score``; for these the estimator
        must be a quantizer itself.
    cv : int, cross-validation splitter or iterable, default=5
        As in scikit-learn: an integer is the number of consecutive folds.

    Returns
    -------
    result : Optimism
        In units of the retention.

    Raises
    ------
    ValueError
        For invalid scores or weights, or an impossible ``cv``.

    References
    ----------
    .. [1] B. Efron, "How biased is the apparent error rate of a prediction rule?",
       J. Am. Stat. Assoc. 81 (1986). https://doi.org/10.1080/01621459.1986.10478291
    .. [2] C. Nadeau, Y. Bengio, "Inference for the generalization error", Machine
       Learning 52 (2003). https://doi.org/10.1023/A:1024068626366

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import KMeansQuantizer
    >>> from skquant.inspection import optimism
    >>> scores = np.random.default_rng(0).normal(size=(300, 2))
    >>> result = optimism(KMeansQuantizer(n_bins=6, random_state=0), scores)
    >>> bool(0 < result.optimism < 0.1)
    True
    """
    X, _ = check_scores(scores)
    estimator = clone(estimator)
    splitter = check_cv(cv)
    splits = list(splitter.split(X))
    params = {}
    routing = sklearn.get_config()["enable_metadata_routing"]
    if sample_weight is not None:
        params = {"sample_weight": check_weights(sample_weight, X)}
        routing = True
    with sklearn.config_context(enable_metadata_routing=routing):
        if params:
            estimator.set_fit_request(sample_weight=True)
            estimator.set_score_request(sample_weight=True)
        folds = cross_validate(
            estimator,
            scores,
            cv=splits,
            params=params,
            return_train_score=True,
            error_score="raise",
        )
    differences = folds["train_score"] - folds["test_score"]
    k = len(splits)
    overlap = np.mean([len(test) / len(train) for train, test in splits])
    error = np.nan
    if k > 1:
        error = np.std(differences, ddof=1) * np.sqrt(1.0 / k + overlap)
    return Optimism(
        optimism=float(np.mean(differences)),
        standard_error=float(error),
        train_scores=folds["train_score"],
        test_scores=folds["test_score"],
    )
