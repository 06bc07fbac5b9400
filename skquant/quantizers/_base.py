"""What all quantizers share: the table, the fitted attributes, the deployed rule."""

from abc import ABC, abstractmethod
from numbers import Integral, Real

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClusterMixin,
    OneToOneFeatureMixin,
    TransformerMixin,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skquant._checks import (
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    check_weights,
    fit_context,
    rank_tolerance,
    single_threaded,
    validate_table,
)
from skquant._moments import (
    cell_counts,
    cell_moments,
    effective_sample_size,
    information_pair,
    moment_information,
    rescale,
    share_weights,
    table_factor,
)
from skquant._negative_weights import MergedTable, merge_negative_weights
from skquant._priors import total_weight
from skquant._table import (
    add_base,
    criterion_coordinates,
    prior_base,
    refuse_signed_prior,
    require_positive_definite,
)
from skquant._warnings import warn_user
from skquant.constraints import CellConstraints
from skquant.criteria import CRITERION_METHODS, resolve_criterion
from skquant.exceptions import DegenerateInformationWarning, RuleExtensionWarning
from skquant.quantizers._constraints import limit_atoms, report_constraints
from skquant.report import build_report, retained_eigenvalues
from skquant.rules import AffineMaxRule
from skquant.solvers._problem import build_problem
from skquant.solvers._solution import Notice, Status


class BaseQuantizer(
    OneToOneFeatureMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC
):
    """Base class of the quantizers."""

    _parameter_constraints: dict = {
        "n_bins": [Interval(Integral, 1, None, closed="left")],
        "criterion": [
            StrOptions({"trace", "D", "A", "E"}),
            HasMethods(CRITERION_METHODS),
        ],
        "constraints": [CellConstraints, None],
        "negative_weights": [StrOptions({"error", "merge"})],
        "rank_rtol": [Interval(Real, 0, 1, closed="left")],
        "n_jobs": [None, Integral],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    # of quantizers stored before there were priors, or without the parameter
    _base = None
    constraints = None
    negative_weights = "error"

    @abstractmethod
    def _solve(self, problem, n_bins, atoms, random_state):
        """Return the ``Solution`` of a problem of more than ``n_bins`` atoms."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @fit_context
    @single_threaded
    def fit(self, X, y=None, sample_weight=None, groups=None):
        """Learn the cells.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores, one row an event. They are not centred: the origin counts.
        y : None
            Ignored, but by a quantizer whose figure of merit takes it.
        sample_weight : array-like of shape (n,), default=None
            Weights; a row of weight zero is as if absent, and a row of weight 3 as if
            there three times. Negative ones need ``negative_weights="merge"``.
        groups : array-like of shape (n,), default=None
            Group of each row, a process name or number, for limits of groups in
            ``constraints``.

        Returns
        -------
        self : object
            The fitted quantizer.

        Raises
        ------
        ValueError
            For scores or weights that are not finite, negative weights unless they are
            to be merged, weights without a positive total, scores that are all zero, a
            criterion that does not fit the table, or constraints that were not met.

        Warns
        -----
        ConvergenceWarning
            If there are fewer distinct rows than cells, or the solver stopped at
            ``max_iter``.
        DegenerateInformationWarning
            If ``n_bins`` lies below the rank ceiling of the criterion, or a profiled
            rule keeps almost nothing of its nuisance block.
        RuleExtensionWarning
            If the rule does not reproduce every label.
        ScoreOffsetWarning
            If the mean of a column is more than ten times its spread.
        """
        before = vars(self).copy()
        try:
            self._fit(X, y, sample_weight, groups)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    def _fit(self, X, y, sample_weight, groups):
        X = validate_table(self, X)
        merging = self.negative_weights == "merge"
        weights = check_weights(sample_weight, X, signed=merging)
        tolerance = rank_tolerance(self.rank_rtol, X.dtype)
        merged = MergedTable(X, weights, None)
        if np.min(weights) < 0:
            merged = merge_negative_weights(X, weights, tolerance)
        names = getattr(self, "feature_names_in_", None)
        # an exact solver has no seed among its parameters
        random_state = check_random_state(getattr(self, "random_state", 0))
        problem, atoms = build_problem(
            merged.X,
            merged.weights,
            resolve_criterion(
                self.criterion,
                X.shape[1],
                names,
                effective_sample_size=effective_sample_size(merged.weights),
                total_weight=total_weight(merged.weights),
            ),
            tolerance,
            random_state,
            names,
        )
        if merged.of_row is not None:
            atoms = atoms.of_merged(merged)
        if merging:
            self.merged_weight_share_ = merged.share
            self.merged_radius_ = merged.radius
        self._check_table(X, y, weights, atoms)
        atoms = limit_atoms(self, atoms, weights, groups)
        n_atoms = len(problem.points)
        n_bins = min(self.n_bins, n_atoms)
        solution = self._solve(problem, n_bins, atoms, random_state)
        pair = self._adopt(X, weights, problem, atoms, solution)
        vars(self).pop("constraint_report_", None)
        if atoms.limits is not None:
            self.constraint_report_ = report_constraints(self, atoms, solution)
        notices = [
            *self._notices_of_size(n_atoms),
            *solution.notices,
            *self._notices_of_status(solution.status),
            *self._notices_of_limits(problem, atoms.subspace, pair, merged.weights),
        ]
        for notice in notices:
            warn_user(*notice)
        atoms.warn_of_offset(problem, names)

    def _check_table(self, X, y, weights, atoms):
        """Check parameters against the table, and take from it what is needed."""
        least = getattr(self, "min_bin_weight", 0.0)
        if self.n_bins * least > 1.0 + 1e-12:
            raise ValueError(
                "n_bins * min_bin_weight must be at most 1; got "
                f"{self.n_bins} * {least} = {self.n_bins * least:.4g}."
            )

    def _adopt(self, X, weights, problem, atoms, solution):
        """Set the fitted attributes from a solution.

        Returns the retained and the full information in the criterion's columns.
        """
        criterion, subspace = problem.criterion, atoms.subspace
        coef, intercept = original_logits(solution.coef, solution.intercept, atoms)
        rule = AffineMaxRule(coef, intercept)
        n_bins = len(coef)
        table, first_row = atoms.table, atoms.first_row
        ruled = rule.predict(table)[first_row]
        labels = solution.labels
        if labels is None or atoms.limits is not None:
            labels = ruled
        elif self._prefer_rule(problem, labels, ruled, n_bins):
            labels = ruled

        cell_shares, means = cell_moments(
            table, problem.weights, labels, n_bins, subspace.scale, first_row
        )
        order = self._cell_order(cell_shares, means)
        position = np.empty(n_bins, dtype=np.int32)
        position[order] = np.arange(n_bins)
        labels, ruled = position[labels], position[ruled]
        cell_shares, means = cell_shares[order], means[order]
        cell_means = means * subspace.scale

        self.criterion_ = criterion.plain
        self.n_bins_ = n_bins
        self.rank_ = subspace.rank
        self.cell_means_ = cell_means
        self._coordinates = criterion_coordinates(criterion, subspace)
        self._base = prior_base(criterion, subspace)
        self._rank_rtol = rank_tolerance(self.rank_rtol, X.dtype)
        names = getattr(self, "feature_names_in_", None)
        self.rule_ = AffineMaxRule(
            coef[order],
            intercept[order],
            temperature=solution.temperature,
            relaxation=solution.relaxation,
            cell_means=cell_means,
            feature_names=names,
        )
        absent = atoms.of_row < 0
        self.labels_ = labels[atoms.of_row]
        if absent.any():
            self.labels_[absent] = self.rule_.predict(X[absent])
        self.cell_weights_ = cell_counts(self.labels_, n_bins, weights)
        factor = subspace.factor
        self.information_ = rescale(factor.T @ factor, subspace.scale)
        self.binned_information_ = rescale(
            moment_information(cell_shares, means), subspace.scale
        )
        self.rule_agreement_ = float(
            min(1.0, 1.0 - problem.weights[ruled != labels].sum())
        )
        pair = (
            problem.in_columns(problem.label_information(labels, n_bins)),
            problem.in_columns(problem.full_information()),
        )
        self.retention_ = criterion.efficiency(*pair)
        self.n_iter_ = max(1, int(solution.n_iter))
        for name, value in solution.attributes.items():
            setattr(self, name, value)
        self._adopt_cells(problem, atoms, solution, order)
        return pair

    def _adopt_cells(self, problem, atoms, solution, order):
        """Set what a quantizer adds; ``order`` are the solution's cells as numbered."""

    def _cell_order(self, cell_shares, means):
        """Cells in ascending order of their means; empty ones, which only a rule
        without free labels can have, last."""
        return np.lexsort([*means.T[::-1], cell_shares == 0])

    def _prefer_rule(self, problem, labels, ruled, n_bins):
        """Whether the rule's labels are as good as the free ones to rounding.

        So ties within the tolerance take the label that ``predict`` gives, and so
        does an exchange that was stopped early, where that is no loss.
        """
        if np.array_equal(labels, ruled):
            return True
        shares = cell_counts(ruled, n_bins, problem.weights)
        lightest = getattr(self, "min_bin_weight", 0.0) * (1.0 - 1e-12)
        if not shares.min() > 0.0 or shares.min() < lightest:
            return False
        free, hard = (
            problem.value(problem.label_information(each, n_bins))
            for each in (labels, ruled)
        )
        return hard >= free - 1e-12 * max(1.0, abs(free))

    def _notices_of_light_cells(self, problem, labels, n_bins):
        shares = cell_counts(labels, n_bins, problem.weights)
        if shares.min() < self.min_bin_weight * (1.0 - 1e-12):
            yield Notice(
                f"min_bin_weight={self.min_bin_weight} was not reached: the lightest "
                f"of {n_bins} cells has {shares.min():.4g} of the weight, and the rows "
                "are too heavy to share out better. Use fewer cells.",
                ConvergenceWarning,
            )

    def _notices_of_size(self, n_atoms):
        if n_atoms < self.n_bins:
            yield Notice(
                f"n_bins={self.n_bins} is larger than the number of distinct rows of "
                f"positive weight, {n_atoms}: every one is its own cell and n_bins_ "
                f"is {n_atoms}.",
                ConvergenceWarning,
            )

    def _notices_of_status(self, status):
        if status is not Status.CONVERGED:
            message = status.value.format(**self.get_params(deep=False))
            yield Notice(f"{type(self).__name__} {message}.", ConvergenceWarning)

    def _notices_of_limits(self, problem, subspace, pair, weights):
        criterion = problem.criterion
        # directions with a prior need no cells
        free = np.ones(self.rank_, dtype=bool)
        if subspace.base is not None:
            free = subspace.base[: self.rank_] <= 1e3 * np.finfo(np.float64).eps
        n_free = int(np.count_nonzero(free))
        if self.retention_ == 0.0 and len(self.cell_weights_) <= n_free:
            shift = float(np.sum(problem.origin[free] ** 2))
            centred = shift <= 1e3 * np.finfo(np.float64).eps * self.rank_
            needed = n_free + int(centred)
            yield Notice(
                f"n_bins={self.n_bins_} cells cannot keep information in all "
                f"{n_free} directions{' of centred scores' if centred else ''}"
                f"{' without a prior' if n_free < self.rank_ else ''}: "
                f"the retention under {criterion!r} is 0 for every labeling, and the "
                f"cells are those of the trace criterion. Use n_bins >= {needed}.",
                DegenerateInformationWarning,
            )
        elif (kept := criterion.nuisance_retention(*pair)) is not None:
            n_eff = effective_sample_size(weights)
            floor = max(0.01, 5.0 * self.n_bins_ / n_eff)
            self.nuisance_retention_ = kept
            # what a prior holds together fresh rows do not take apart
            if subspace.base is None and kept < floor:
                yield Notice(
                    "the smallest retained eigenvalue of the nuisance block, "
                    f"{kept:.3g}, is below {floor:.3g}: the "
                    "profiled retention in sample will not be met by fresh rows. "
                    "Increase nuisance_weight or n_bins, and score held-out rows.",
                    DegenerateInformationWarning,
                )
        if self.rule_agreement_ < 1.0:
            yield Notice(
                f"the rule places {1.0 - self.rule_agreement_:.3g} of the weight "
                "elsewhere than labels_, which are free labels of the training rows; "
                "retention_ is that of labels_, score that of the rule.",
                RuleExtensionWarning,
            )

    def _validated(self, X):
        check_is_fitted(self)
        return validate_table(self, X, reset=False)

    def predict(self, X):
        """Return the label of each row by the frozen rule.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Returns
        -------
        labels : ndarray of int32 of shape (n,)
            In ``0..n_bins_-1``.
        """
        X = self._validated(X)
        return self.rule_.predict(X)

    def decision_function(self, X):
        """Return the logits of the frozen rule.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Returns
        -------
        logits : ndarray of shape (n, K)
            Dimensionless; the largest decides the label.
        """
        X = self._validated(X)
        return self.rule_.decision_function(X)

    def transform(self, X):
        """Replace each row by the mean score of its cell: the score of its label.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.

        Returns
        -------
        X_new : ndarray of shape (n, d)
            In units of the scores, in the dtype of X.
        """
        X = self._validated(X)
        return self.cell_means_.astype(X.dtype)[self.rule_.predict(X)]

    def score(self, X, y=None, sample_weight=None):
        """Return the efficiency of the frozen rule on given rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores, better not those of the training rows.
        y : None
            Ignored.
        sample_weight : array-like of shape (n,), default=None
            Weights; negative ones are legal while every cell's weight is positive.

        Returns
        -------
        efficiency : float
            Efficiency of ``criterion_`` in the informative subspace of the training
            table, in [0, 1]; 1 is lossless.

        Raises
        ------
        ValueError
            If the rows have no information in some direction that the training
            table had: the retention there is 0/0. For negative weights that leave a
            cell without positive weight, or the full information not positive
            definite.

        Warns
        -----
        UserWarning
            If negative weights bring a retained eigenvalue above 1.
        """
        X = self._validated(X)
        weights = check_weights(sample_weight, X, signed=True)
        return self._efficiency(X, self.rule_.predict(X), weights)

    @single_threaded
    def _efficiency(self, X, labels, weights):
        used = weights != 0
        X, labels, weights = X[used], labels[used], weights[used]
        points = X @ self._coordinates
        # signed weights give no table whose singular values could be taken
        absolute = share_weights(np.abs(weights))
        _, singular, right = np.linalg.svd(table_factor(points, absolute))
        tolerance = max(self._rank_rtol, 1e-10) * singular.max()
        rank = int(np.sum(singular > tolerance))
        # where a prior is, rows need none
        if rank < points.shape[1] and self._base is None:
            raise ValueError(
                f"X must have information in all {points.shape[1]} informative "
                f"directions of the training table; got rows of rank {rank}."
            )
        pair = information_pair(points, weights, labels, self.n_bins_)
        if np.min(weights) < 0:
            refuse_signed_prior(weights, self._base)
            whitener = right.T / singular
            require_positive_definite(whitener.T @ pair[1] @ whitener)
            retained_eigenvalues(*pair)
        pair = (add_base(each, self._base) for each in pair)
        return self.criterion_.efficiency(*pair)

    def information_report(self, X, sample_weight=None):
        """Report how much information the frozen rule keeps on given rows.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Scores.
        sample_weight : array-like of shape (n,), default=None
            Weights; negative ones are legal while every cell's weight is positive.

        Returns
        -------
        report : InformationReport
            With the efficiency of ``criterion_``; print it.
        """
        X = self._validated(X)
        weights = check_weights(sample_weight, X, signed=True)
        return build_report(
            X,
            self.rule_.predict(X),
            weights,
            self.n_bins_,
            rank_tolerance(self.rank_rtol, X.dtype),
            self.criterion_,
            getattr(self, "feature_names_in_", None),
        )


def original_logits(coef, intercept, atoms):
    """Return slopes and offsets in original coordinates.

    The problem's points are ``(s - center) @ whitener``.
    """
    coef = coef @ atoms.subspace.whitener.T
    return coef, intercept - coef @ atoms.center
