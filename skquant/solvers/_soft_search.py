"""Global search over randomized rules: starts, a subsample, and annealing."""

import numpy as np
from joblib import Parallel, delayed

from skquant._moments import cell_moments
from skquant.responsibilities import RELAXATIONS
from skquant.solvers._search import draw_seeds, search_partition
from skquant.solvers._seeding import kmeans_starts
from skquant.solvers._soft import (
    FAMILIES,
    SoftObjective,
    anneal_adam,
    anneal_lbfgs,
    nearest_center_distance,
)

# Restarts and random swaps of the exchange that precedes L-BFGS.
_RESTARTS_A_START = 2
_SWAPS_A_START = 7

# L-BFGS: the largest fall of the temperature between stages, their number, and the
# iterations of one.
_STAGE_FALL = 5.0
_MOST_STAGES = 4
_STAGE_ITERATIONS = 40


def partition_rule(problem, labels, n_bins):
    """Return slopes and offsets of a labeling's first-order rule.

    With the criterion's gradient G, ``argmin_b (s - mu_b)' G (s - mu_b) = argmax_b
    (G mu_b)' s - mu_b' G mu_b / 2``. The metric has unit mean eigenvalue, so that
    the logits are on the scale of the logits of whitened centers.
    """
    weights, means = cell_moments(problem.points, problem.weights, labels, n_bins)
    information = problem.information(weights, means)
    if not np.isfinite(problem.value(information)):
        return center_rule(means)
    metric = problem.gradient(information)
    scale = abs(np.trace(metric)) / len(metric) or 1.0
    slopes = means @ metric / scale
    return slopes, -0.5 * np.sum(slopes * means, axis=1)


def center_rule(centers):
    """Return slopes and offsets of the nearest center in whitened coordinates."""
    return centers, -0.5 * np.sum(centers**2, axis=1)


def _anneal(
    problem, rule, whole, report, family, relaxation, solver, options, n_jobs=None
):
    """Anneal one start; return its snapshots."""
    slopes, offsets = rule
    unit = nearest_center_distance(slopes)
    objective = SoftObjective(
        problem,
        FAMILIES[family],
        relaxation,
        unit,
        options.get("min_bin_weight", 0.0),
        n_jobs,
    )
    start = objective.family.pack(slopes, offsets, unit)
    criteria = problem.criterion.continuation()
    # the last of a continuation is the nonsmooth one that it leads to
    criteria = criteria[:-1] if len(criteria) > 1 else criteria
    hottest = unit * options["temperature_start_ratio"]
    end_ratio = options["temperature_end_ratio"]
    snapshots = []

    def record(*state):
        snapshots.append(objective.snapshot(*state, whole, report))
        return snapshots[-1]

    if solver == "adam":
        fractions = np.linspace(0.0, 1.0, options["max_iter"] + 1)
        anneal_adam(
            objective,
            start,
            criteria,
            hottest * end_ratio**fractions,
            record,
            learning_rate=options["learning_rate"],
            gradient_clip=options["gradient_clip"],
            record_every=options["record_every"],
        )
    else:
        falls = np.log(1.0 / end_ratio) / np.log(_STAGE_FALL)
        n_stages = min(1 + int(np.ceil(falls)), _MOST_STAGES)
        n_stages = min(max(n_stages, len(criteria)), options["max_iter"])
        fractions = np.linspace(0.0, 1.0, n_stages) if n_stages > 1 else np.ones(1)
        anneal_lbfgs(
            objective,
            start,
            criteria,
            hottest * end_ratio**fractions,
            record,
            max_iter=min(_STAGE_ITERATIONS, options["max_iter"] // n_stages),
            record_every=options["record_every"],
        )
    return snapshots


def anneal_rule(problem, rule):
    """Improve an affine rule by L-BFGS; return slopes and offsets of its hard limit."""
    options = dict(
        temperature_start_ratio=0.1,
        temperature_end_ratio=0.05,
        max_iter=_MOST_STAGES * _STAGE_ITERATIONS * 2,
        record_every=_STAGE_ITERATIONS,
    )
    plan = ("affine_max", RELAXATIONS["softmax"], "lbfgs", options)
    best = best_snapshot(_anneal(problem, rule, problem, problem, *plan))
    return best.slopes, best.offsets


def best_snapshot(snapshots):
    """Return the snapshot of the best hard rule, the last of equal ones."""
    return max(snapshots[::-1], key=_rank)


def _rank(snapshot):
    """Cells of enough weight first, then the criterion."""
    return snapshot.occupied, snapshot.hard_value


def search_soft(
    problem,
    n_bins,
    random_state,
    report,
    *,
    family,
    relaxation,
    solver,
    n_init,
    n_jobs,
    verbose,
    **options,
):
    """Return the snapshots of the best of several annealed starts.

    L-BFGS starts from a partition by exchange, chosen among restarts and random
    swaps; Adam from ``n_init`` k-means fits. Starts and snapshots are compared by the
    criterion of the hard rule. The affine family starts from the result of the
    Voronoi family and from the exchange's own rule, so it is never below either.
    """
    first = problem.with_criterion(problem.criterion.continuation()[0])
    plan = (relaxation, solver, options)
    side_by_side = Parallel(n_jobs=n_jobs, prefer="threads")
    # drawn first: both families of a seed share their starts
    seeds = draw_seeds(random_state, n_init)
    starts = []
    if solver != "adam" or family == "affine_max":
        labels = search_partition(
            first,
            n_bins,
            random_state,
            n_init=_RESTARTS_A_START * n_init,
            n_swaps=_SWAPS_A_START * n_init,
            n_jobs=n_jobs,
            verbose=verbose,
            min_bin_weight=options.get("min_bin_weight", 0.0),
        ).labels
        _, means = cell_moments(problem.points, problem.weights, labels, n_bins)
        own_rule = partition_rule(first, labels, n_bins)
        starts = [means]
        del labels
    if solver == "adam":
        fits = kmeans_starts(problem, n_bins, seeds, side_by_side)
        starts = [fit.cluster_centers_ for fit in fits]

    def anneal_all(rules, family):
        fits = side_by_side(
            delayed(_anneal)(problem, rule, problem, report, family, *plan, n_jobs)
            for rule in rules
        )
        best = [best_snapshot(fit) for fit in fits]
        if verbose:
            for number, (fit, each) in enumerate(zip(fits, best, strict=True)):
                print(
                    f"{family} start {number}: hard retention "
                    f"{fit[0].hard_retention:.9g} -> {each.hard_retention:.9g} at step "
                    f"{each.step}"
                )
        ranks = [_rank(each) for each in best]
        return fits[ranks.index(max(ranks))]

    fit = anneal_all([center_rule(centers) for centers in starts], "voronoi")
    if family == "affine_max":
        chosen = best_snapshot(fit)
        fit = anneal_all([(chosen.slopes, chosen.offsets), own_rule], family)
    return fit
