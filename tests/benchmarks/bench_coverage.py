"""Coverage of ``retention_interval``: frozen rules on simulated held-out tables.

For each criterion, number of cells and kind of weights: the share of the tables whose
nominal 95% interval holds the retention on a table a thousand times larger, and the
standard errors of both methods over the simulated one::

    python tests/benchmarks/bench_coverage.py --tables 2000 --json bench_coverage.json
"""

import argparse
import json
import time
import warnings

import numpy as np
from sklearn.cluster import KMeans

from skquant import AffineMaxRule, DExchangeQuantizer, ProfiledDOptimality
from skquant.criteria import resolve_criterion
from skquant.inspection import retention_interval

N_ROWS = 2000
N_LARGE = 1000
MIXING = np.array([[1.0, 0.6, -0.3], [0.0, 1.1, 0.4], [0.0, 0.0, 0.9]])
CRITERIA = {
    "D": "D",
    "trace": "trace",
    "profiled": ProfiledDOptimality(0, nuisance_weight=0.1),
    "A": "A",
    "E": "E",
    "stretched E": "E",
}


def draw(rng, kind):
    """Return scores and weights of one table."""
    scores = rng.normal(size=(N_ROWS, 3)) @ MIXING
    weights = np.ones(N_ROWS) if kind == "unit" else rng.exponential(size=N_ROWS)
    return scores, weights


def true_retention(rule, criterion, kind, n_bins):
    """Return the rule's retention over ``N_LARGE`` tables taken as one."""
    rng = np.random.default_rng(77)
    total, moments = np.zeros(n_bins), np.zeros((n_bins, 3))
    full, weight = np.zeros((3, 3)), 0.0
    for _ in range(N_LARGE):
        scores, weights = draw(rng, kind)
        labels = rule.predict(scores)
        total += np.bincount(labels, weights, minlength=n_bins)
        for j in range(3):
            moments[:, j] += np.bincount(
                labels, weights * scores[:, j], minlength=n_bins
            )
        full += scores.T @ (weights[:, None] * scores)
        weight += weights.sum()
    retained = moments.T @ (moments / total[:, None]) / weight
    criterion = resolve_criterion(criterion, 3)
    return criterion.efficiency(retained, full / weight)


def stretched_rule(n_bins):
    """Return a rule that keeps unlike shares of the directions.

    E-optimal cells keep equal shares, where the smallest eigenvalue is not regular.
    """
    stretch = np.array([1.6, 1.3, 1.0])
    rows = np.random.default_rng(5).normal(size=(3000, 3)) * stretch
    centers = KMeans(n_bins, n_init=2, random_state=0).fit(rows).cluster_centers_
    coef = 2.0 * centers * stretch @ np.linalg.inv(MIXING).T
    return AffineMaxRule(coef, -np.sum(centers**2, axis=1))


def study(name, n_bins, kind, n_tables, n_bootstrap):
    """Return the row of one setting."""
    criterion = CRITERIA[name]
    fitted = DExchangeQuantizer(
        n_bins, criterion=criterion, n_init=2, n_swaps=2, random_state=0
    )
    with warnings.catch_warnings():
        # profiled and E rules do not reproduce every free label; only the rule counts
        warnings.simplefilter("ignore")
        fitted.fit(np.random.default_rng(5).normal(size=(3000, 3)) @ MIXING)
    rule = stretched_rule(n_bins) if name == "stretched E" else fitted.rule_
    truth = true_retention(rule, criterion, kind, n_bins)
    rng = np.random.default_rng([n_bins, kind == "unit", len(name)])
    covered = covered_plug_in = 0
    estimates, errors, bootstrap, statuses = [], [], [], {}
    for _ in range(n_tables):
        scores, weights = draw(rng, kind)
        labels = rule.predict(scores)
        result = retention_interval(scores, labels, weights, criterion=criterion)
        statuses[result.status] = statuses.get(result.status, 0) + 1
        if result.status != "ok":
            continue
        low, high = result.interval
        covered += low <= truth <= high
        covered_plug_in += abs(result.plug_in - truth) <= 1.96 * result.standard_error
        estimates.append(result.estimate)
        errors.append(result.standard_error)
        if len(bootstrap) < n_bootstrap:
            again = retention_interval(
                scores,
                labels,
                weights,
                criterion=criterion,
                method="bootstrap",
                n_resamples=200,
            )
            bootstrap.append(again.standard_error / result.standard_error)
    row = {"criterion": name, "n_bins": n_bins, "weights": kind, "truth": truth}
    row["statuses"] = statuses
    if len(estimates) > 1:
        simulated = np.std(estimates, ddof=1)
        row.update(
            coverage=covered / len(estimates),
            coverage_plug_in=covered_plug_in / len(estimates),
            bias_over_error=(np.mean(estimates) - truth) / simulated,
            influence_over_simulated=np.mean(errors) / simulated,
            bootstrap_over_simulated=np.mean(errors) / simulated * np.mean(bootstrap),
        )
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--bootstrap", type=int, default=20)
    parser.add_argument("--criteria", nargs="+", default=list(CRITERIA))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    started, rows = time.perf_counter(), []
    for name in arguments.criteria:
        for n_bins in (6, 24):
            for kind in ("unit", "exponential"):
                row = study(name, n_bins, kind, arguments.tables, arguments.bootstrap)
                rows.append(row)
                numbers = {k: round(float(v), 4) for k, v in list(row.items())[5:]}
                print(name, n_bins, kind, row["statuses"], numbers, flush=True)
    print(f"{time.perf_counter() - started:.0f} s")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1, default=float)


if __name__ == "__main__":
    main()
