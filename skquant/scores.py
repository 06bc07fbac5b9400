"""Scores from classifiers: transformers that come before a quantizer.

A posterior over the prior of its training rows is a density ratio, and scores of
mixture models are functions of density ratios. Scores in closed form need no class
of ours: scikit-learn's ``FunctionTransformer`` holds them.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral, Real

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin, clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, check_array, get_tags, indexable

from skquant._checks import (
    HasMethods,
    Interval,
    check_is_fitted,
    check_weights,
    fit_context,
    validate_data,
)
from skquant._moments import share_weights

__all__ = [
    "CentralDifferenceScore",
    "IntensityScore",
    "MixtureScore",
    "RatioClosureReport",
    "ratio_closure_report",
]


class _ClassifierScore(MetaEstimatorMixin, TransformerMixin, BaseEstimator, ABC):
    """Scores from posteriors: fitting, cross-fitting and correction for priors."""

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit", "predict_proba"])],
        "class_prior": [None, "array-like"],
        "cv": ["cv_object"],
    }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        return tags

    @abstractmethod
    def _resolve(self, classes, totals):
        """Return attributes that depend on the classes and their total weights."""

    @abstractmethod
    def _scores(self, ratios):
        """Return scores from density ratios to a common density."""

    def _used(self, y):
        """Whether each row belongs to the classes that are told apart."""
        return np.ones(len(y), dtype=bool)

    def fit(self, X, y, sample_weight=None):
        """Fit the classifier on all rows.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Observations, whatever the classifier takes.
        y : array-like of shape (n,)
            Classes.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights.

        Returns
        -------
        self : object
            The fitted transformer.

        Raises
        ------
        ValueError
            For classes, weights, priors or reference values that do not fit.
        """
        self._fit(X, y, sample_weight, cross_fit=False)
        return self

    def fit_transform(self, X, y, sample_weight=None):
        """Fit, and return cross-fitted scores of the training rows.

        No score comes from a classifier that saw its row, so the result differs
        from ``fit(X, y).transform(X)``.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Observations.
        y : array-like of shape (n,)
            Classes.
        sample_weight : array-like of shape (n,), default=None
            Nonnegative weights.

        Returns
        -------
        scores : ndarray of shape (n, n_scores)
            In inverse units of the parameters.

        Raises
        ------
        ValueError
            As ``fit``, and for a fold whose training rows lack a class.
        """
        return self._fit(X, y, sample_weight, cross_fit=True)

    @fit_context
    def _fit(self, X, y, sample_weight, cross_fit):
        before = vars(self).copy()
        try:
            return self._fit_checked(X, y, sample_weight, cross_fit)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    def _fit_checked(self, X, y, sample_weight, cross_fit):
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        validate_data(self, X, skip_check_array=True)
        y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        if y.ndim != 1:
            raise ValueError(f"y must have shape (n,); got {y.shape}.")
        X, y = indexable(X, y)
        weights = None
        if sample_weight is not None:
            weights = check_weights(sample_weight, np.empty((len(y), 1)))
        used = self._used(y)
        self.classes_ = np.unique(y[used])
        if len(self.classes_) < 2:
            raise ValueError(
                "y must hold at least two classes; got "
                f"{'1 class' if len(self.classes_) else 'none'}, "
                f"{self.classes_.tolist()}."
            )
        totals = self._totals(y, weights, used)
        if not (totals > 0).all():
            raise ValueError(
                "sample_weight must give every class weight; got none for "
                f"{self.classes_[totals == 0].tolist()}."
            )
        self._resolve(self.classes_, totals)
        self.estimator_, self.class_prior_ = self._fit_rows(X, y, weights, used)
        if not cross_fit:
            return None
        return self._cross_fitted(X, y, weights, used)

    def _totals(self, y, weights, rows):
        index = np.searchsorted(self.classes_, y[rows])
        return np.bincount(
            index,
            None if weights is None else weights[rows],
            minlength=len(self.classes_),
        ).astype(np.float64)

    def _fit_rows(self, X, y, weights, rows):
        """Return a classifier of some rows, and the prior of its posteriors."""
        index = np.flatnonzero(rows)
        options = {} if weights is None else {"sample_weight": weights[index]}
        model = clone(self.estimator).fit(_safe_indexing(X, index), y[index], **options)
        if self.class_prior is None:
            totals = self._totals(y, weights, rows)
            return model, totals / totals.sum()
        prior = np.asarray(self.class_prior, dtype=np.float64)
        return model, _positive(prior, "class_prior", len(self.classes_))

    def _cross_fitted(self, X, y, weights, used):
        scores = None
        folds = check_cv(self.cv, y[used], classifier=True)
        rows = np.flatnonzero(used)
        seen = np.zeros(len(y), dtype=bool)
        splits = folds.split(np.zeros((len(rows), 1)), y[rows])
        for fold, (train, test) in enumerate(splits):
            training = np.zeros(len(y), dtype=bool)
            training[rows[train]] = True
            lacking = self.classes_[self._totals(y, weights, training) == 0]
            if len(lacking):
                raise ValueError(
                    f"cv must leave every class in the training rows of every fold; "
                    f"fold {fold} lacks {lacking.tolist()}."
                )
            model, prior = self._fit_rows(X, y, weights, training)
            out = np.zeros(len(y), dtype=bool)
            out[rows[test]] = True
            if fold == 0:
                # rows of other classes train no classifier of any fold
                out |= ~used
            if (seen & out).any():
                raise ValueError("cv must leave every row out exactly once.")
            seen |= out
            index = np.flatnonzero(out)
            part = self._scores(
                model.predict_proba(_safe_indexing(X, index)) / prior,
            )
            if scores is None:
                scores = np.empty((len(y), part.shape[1]))
            scores[index] = part
        if not seen.all():
            raise ValueError("cv must leave every row out exactly once.")
        return scores

    def transform(self, X):
        """Return the scores of rows that the classifier was not fitted on.

        Parameters
        ----------
        X : array-like of shape (n, p)
            Observations, with the columns of ``fit`` in their order.

        Returns
        -------
        scores : ndarray of shape (n, n_scores)
            In inverse units of the parameters.

        Raises
        ------
        ValueError
            For other columns, or a probability of 0 where the score divides by it.
        """
        check_is_fitted(self)
        # a classifier of texts was fitted without columns
        if hasattr(self, "n_features_in_") and getattr(X, "ndim", 2) == 1:
            raise ValueError(
                "X must have shape (n, p); got one dimension. Reshape your data: "
                "X.reshape(-1, 1) for one column, X.reshape(1, -1) for one row."
            )
        validate_data(self, X, skip_check_array=True, reset=False)
        return self._scores(self.estimator_.predict_proba(X) / self.class_prior_)


def _positive(values, name, n_classes):
    """Return values over their sum after checks."""
    if values.shape != (n_classes,) or not (
        np.isfinite(values).all() and (values > 0).all()
    ):
        raise ValueError(
            f"{name} must hold {n_classes} positive numbers, one a class in sorted "
            f"order; got {values.tolist()}."
        )
    return values / values.sum()


def _divide(numerator, density):
    """Return numerator over the density of the model, which must not vanish."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        result = numerator / density[:, None]
    bad = ~np.isfinite(result).all(axis=1)
    if bad.any():
        raise ValueError(
            "the model's density must be positive; probabilities of exactly 0 (or "
            f"not finite) give infinite scores in {bad.sum()} of {len(bad)} rows. "
            "Use a classifier with smoother probabilities, or calibrate it."
        )
    return result


class MixtureScore(_ClassifierScore):
    """Scores of mixture fractions, from a probabilistic classifier.

    With density ratios ``r_k = p_k / prior_k`` the score of fraction k is ``(r_k -
    r_reference) / sum_l fraction_l r_l``: the reference class takes what the others
    leave.

    Parameters
    ----------
    estimator : object
        Classifier with ``predict_proba``.
    fractions : array-like of shape (C,), default=None
        Positive fractions of the sorted classes at which the score is taken;
        normalized to sum to one. None: the weighted training shares.
    reference : int, default=-1
        Position of the class whose fraction is not free.
    class_prior : array-like of shape (C,), default=None
        Prior that the posteriors imply. None: the weighted shares of the rows that
        each classifier was trained on. Give it for ``class_weight="balanced"``.
    cv : int, splitter or iterable, default=5
        Folds of the cross-fitted scores that ``fit_transform`` returns.

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        Sorted classes.
    class_prior_, fractions_ : ndarray of shape (C,)
        What was used.
    estimator_ : object
        Classifier of all training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skquant.scores import MixtureScore
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> transformer = MixtureScore(GaussianNB()).set_output(transform="pandas")
    >>> transformer.fit_transform(X, y).columns.tolist()
    ['fraction_0', 'fraction_1']
    """

    _parameter_constraints: dict = {
        **_ClassifierScore._parameter_constraints,
        "fractions": [None, "array-like"],
        "reference": [Integral],
    }

    def __init__(
        self, estimator, *, fractions=None, reference=-1, class_prior=None, cv=5
    ):
        self.estimator = estimator
        self.fractions = fractions
        self.reference = reference
        self.class_prior = class_prior
        self.cv = cv

    def _resolve(self, classes, totals):
        if not -len(classes) <= self.reference < len(classes):
            raise ValueError(
                f"reference must be a position among {len(classes)} classes; got "
                f"{self.reference}."
            )
        values = totals if self.fractions is None else np.asarray(self.fractions, float)
        self.fractions_ = _positive(values, "fractions", len(classes))

    def _scores(self, ratios):
        free = np.delete(ratios, self.reference, axis=1)
        others = ratios[:, self.reference, None]
        return _divide(free - others, ratios @ self.fractions_)

    def get_feature_names_out(self, input_features=None):
        """Return ``fraction_<class>`` for each free class.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        names : ndarray of str of shape (C - 1,)
            Names of the scores.
        """
        check_is_fitted(self)
        free = np.delete(self.classes_, self.reference)
        return np.array([f"fraction_{each}" for each in free], dtype=object)


class IntensityScore(_ClassifierScore):
    """Scores of the intensities of an extended mixture, one a class.

    With density ratios ``r_k`` the score of intensity k is ``r_k / sum_l nu_l r_l``:
    the sum of its products over events is the information of the Poisson process.

    Parameters
    ----------
    estimator : object
        Classifier with ``predict_proba``.
    intensities : array-like of shape (C,), default=None
        Positive expected numbers of events of the sorted classes. None: the total
        training weights.
    class_prior : array-like of shape (C,), default=None
        As in ``MixtureScore``.
    cv : int, splitter or iterable, default=5
        As in ``MixtureScore``.

    Attributes
    ----------
    classes_, class_prior_, intensities_ : ndarray of shape (C,)
        Sorted classes and what was used.
    estimator_ : object
        Classifier of all training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from skquant.scores import IntensityScore
    >>> IntensityScore(GaussianNB()).fit_transform(*load_wine(return_X_y=True)).shape
    (178, 3)
    """

    _parameter_constraints: dict = {
        **_ClassifierScore._parameter_constraints,
        "intensities": [None, "array-like"],
    }

    def __init__(self, estimator, *, intensities=None, class_prior=None, cv=5):
        self.estimator = estimator
        self.intensities = intensities
        self.class_prior = class_prior
        self.cv = cv

    def _resolve(self, classes, totals):
        given = self.intensities
        values = totals if given is None else np.array(given, dtype=np.float64)
        _positive(values, "intensities", len(classes))
        self.intensities_ = values

    def _scores(self, ratios):
        return _divide(ratios, ratios @ self.intensities_)

    def get_feature_names_out(self, input_features=None):
        """Return ``intensity_<class>`` for each class.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        names : ndarray of str of shape (C,)
            Names of the scores.
        """
        check_is_fitted(self)
        return np.array([f"intensity_{each}" for each in self.classes_], dtype=object)


class CentralDifferenceScore(_ClassifierScore):
    """One parameter's score, from samples on both sides of it.

    The classifier tells samples at ``theta + delta`` from samples at ``theta -
    delta``; the score is ``log(r_plus / r_minus) / (2 delta)``. Several parameters
    through ``FeatureUnion``, each with its own pair of ``labels``.

    Parameters
    ----------
    estimator : object
        Classifier with ``predict_proba``.
    delta : float
        Half the distance of the two samples, in units of the parameter.
    labels : pair, default=None
        Classes at ``theta - delta`` and ``theta + delta``; rows of other classes do
        not train. None: the two sorted classes.
    class_prior : array-like of shape (2,), default=None
        As in ``MixtureScore``.
    cv : int, splitter or iterable, default=5
        As in ``MixtureScore``.

    Attributes
    ----------
    classes_, class_prior_ : ndarray of shape (2,)
        Sorted classes and the prior that was used.
    estimator_ : object
        Classifier of all training rows of the pair.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> from skquant.scores import CentralDifferenceScore
    >>> y = np.repeat([-1, 1], 500)
    >>> X = np.random.default_rng(0).standard_normal((1000, 1)) + 0.1 * y[:, None]
    >>> CentralDifferenceScore(LogisticRegression(), 0.1).fit_transform(X, y).shape
    (1000, 1)
    """

    _parameter_constraints: dict = {
        **_ClassifierScore._parameter_constraints,
        "delta": [Interval(Real, 0, None, closed="neither")],
        "labels": [None, "array-like"],
    }

    def __init__(self, estimator, delta, *, labels=None, class_prior=None, cv=5):
        self.estimator = estimator
        self.delta = delta
        self.labels = labels
        self.class_prior = class_prior
        self.cv = cv

    def _used(self, y):
        if self.labels is None:
            return super()._used(y)
        return np.isin(y, np.asarray(self.labels))

    def _resolve(self, classes, totals):
        wanted = classes if self.labels is None else np.asarray(self.labels)
        if len(classes) != 2 or len(wanted) != 2:
            raise ValueError(
                f"y must hold the two classes of labels; got {classes.tolist()} for "
                f"labels={self.labels!r}."
            )
        self._sign = 1.0 if wanted[1] == classes[1] else -1.0

    def _scores(self, ratios):
        bad = ~((ratios > 0) & np.isfinite(ratios)).all(axis=1)
        if bad.any():
            raise ValueError(
                "probabilities must be positive: exactly 0 (or not finite) gives "
                f"infinite scores in {bad.sum()} of {len(bad)} rows. Use a classifier "
                "with smoother probabilities, or calibrate it."
            )
        logs = np.log(ratios)
        return self._sign * (logs[:, 1:] - logs[:, :1]) / (2.0 * self.delta)

    def get_feature_names_out(self, input_features=None):
        """Return the name of the only score.

        Parameters
        ----------
        input_features : None
            Ignored.

        Returns
        -------
        names : ndarray of str of shape (1,)
            ``["score"]``.
        """
        check_is_fitted(self)
        return np.array(["score"], dtype=object)


@dataclass(frozen=True)
class RatioClosureReport:
    """Weighted means of density ratios, which are one for exact ratios.

    Attributes
    ----------
    means, standard_errors : ndarray of shape (m,)
        Means under the common density, and their standard errors.
    z_values : ndarray of shape (m,)
        ``(means - 1) / standard_errors``; 0 where both vanish.
    """

    means: np.ndarray
    standard_errors: np.ndarray
    z_values: np.ndarray


def ratio_closure_report(ratios, sample_weight=None):
    """Check that density ratios integrate to one under their common density.

    Parameters
    ----------
    ratios : array-like of shape (n, m)
        Ratios at rows drawn from the density in their denominator.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights of the rows.

    Returns
    -------
    report : RatioClosureReport
        Means, standard errors, z values.

    Raises
    ------
    ValueError
        For ratios that are negative or not finite.

    Examples
    --------
    >>> from skquant.scores import ratio_closure_report
    >>> ratio_closure_report([[0.5], [1.5]]).means
    array([1.])
    """
    table = check_array(ratios, dtype=np.float64, input_name="ratios")
    if (table < 0).any():
        raise ValueError(f"ratios must be nonnegative; got {table.min():.3g}.")
    weights = check_weights(sample_weight, table)
    shares = share_weights(weights)
    means = shares @ table
    # of the ratios' own distances from one, so that ratios of one have none
    distances = shares @ (table - 1.0)
    errors = np.sqrt(shares**2 @ (table - means) ** 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        z_values = np.where(distances == 0.0, 0.0, distances / errors)
    return RatioClosureReport(means, errors, z_values)
