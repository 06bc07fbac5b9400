"""What wrong scores cost, from replicas of the scores."""

from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from skquant._checks import check_scores, single_threaded
from skquant._moments import cell_moments, moment_information, table_information
from skquant._table import criterion_coordinates, read_table
from skquant._tolerances import SINGULAR
from skquant.criteria import retained_eigensystem

# Cells of one replica, and the product of two others' moments.
_FEWEST_REPLICAS = 3


@dataclass(frozen=True)
class ScoreErrorBudget:
    """What a rule on estimated scores loses, by its cells and by the scores' errors.

    All are means over the replicas.

    Attributes
    ----------
    promised : float
        Retention of the cells of a replica by its own scores: what ``score`` says.
    exchanged : float
        Retention of the cells of a replica by the scores of another one.
    retention : float
        Estimate of the retention of the cells of a replica by the exact scores; NaN
        unless ``status`` is ``"ok"``.
    standard_error : float
        Of ``retention``, by the jackknife over replicas; NaN for three of them, or
        where a replica less leaves no estimate.
    loss_from_bins : float
        ``1 - promised``: by the number of cells.
    loss_from_scores : float
        ``promised - retention``: by the errors of the scores, in the cells and in the
        number that was promised.
    share_from_scores : float
        ``loss_from_scores`` over the whole loss, ``1 - retention``.
    status : str
        ``"ok"``, or ``"errors_too_large"`` where products of two replicas are no
        information: a retained eigenvalue of theirs is negative or above 1.
    n_replicas : int
        Tables of scores.
    """

    promised: float
    exchanged: float
    retention: float
    standard_error: float
    loss_from_bins: float
    loss_from_scores: float
    share_from_scores: float
    status: str
    n_replicas: int

    def __str__(self):
        if self.status != "ok":
            return f"retention {self.promised:.6f} promised, no estimate: {self.status}"
        return (
            f"retention {self.promised:.6f} promised, {self.retention:.6f} by exact "
            f"scores; {100 * self.share_from_scores:.0f}% of the loss by the scores"
        )


class _Moments:
    """Moments of every replica in the cells of every replica."""

    def __init__(self, criterion, tables, shares, labelings, n_bins):
        self._criterion = criterion
        n, d = len(tables), tables[0].shape[1]
        self._cell_shares = np.empty((n, n_bins))
        self._means = np.empty((n, n, n_bins, d))
        self._full = np.empty((n, n, d, d))
        for b, points in enumerate(tables):
            for a, labels in enumerate(labelings):
                self._cell_shares[a], self._means[a, b] = cell_moments(
                    points, shares, labels, n_bins
                )
            self._full[b, b] = table_information(points, shares)
            for c, other in enumerate(tables[:b]):
                product = (shares[:, None] * points).T @ other
                self._full[b, c] = self._full[c, b] = 0.5 * (product + product.T)

    def by_one(self, a, b):
        """Efficiency of the cells of a replica by the scores of one."""
        return self._criterion.efficiency(
            moment_information(self._cell_shares[a], self._means[a, b]),
            self._full[b, b],
        )

    def by_pairs(self, replicas):
        """Mean efficiency of the cells of each by products of two others, or NaN."""
        found = []
        for a in replicas:
            others = [b for b in replicas if b != a]
            n_pairs = len(others) * (len(others) - 1)
            means = self._means[a, others]
            weighted = self._cell_shares[a][:, None] * means
            # all pairs less those of a replica with itself
            retained = weighted.sum(axis=0).T @ means.sum(axis=0)
            retained -= np.einsum("bki,bkj->ij", weighted, means)
            full = self._full[np.ix_(others, others)].sum(axis=(0, 1))
            full -= self._full[others, others].sum(axis=0)
            retained, full = (
                0.5 * (each + each.T) / n_pairs for each in (retained, full)
            )
            if not np.linalg.eigvalsh(full)[0] > 0.0:
                return np.nan
            # shifted, since what is negative would be taken for zero
            eigenvalues = retained_eigensystem(retained + full, full)[0] - 1.0
            rounding = SINGULAR * len(full)
            if eigenvalues[0] < -rounding or eigenvalues[-1] > 1.0 + rounding:
                return np.nan
            found.append(self._criterion.efficiency(retained, full))
        return float(np.mean(found))


def _labelings(replicas, table, given, weights):
    """Return the labels of every replica's cells, and their number."""
    if hasattr(given, "predict"):
        given = [
            clone(given).fit(scores, sample_weight=weights).predict(scores)
            for scores in replicas
        ]
    given = list(given)
    if len(given) != len(replicas):
        raise ValueError(
            f"labels_or_quantizer must hold {len(replicas)} labelings, one a replica; "
            f"got {len(given)}."
        )
    pairs = [table.labels(each, name="labels_or_quantizer") for each in given]
    return [labels for labels, _ in pairs], max(n_bins for _, n_bins in pairs)


@single_threaded
def score_error_budget(
    replicas, labels_or_quantizer, sample_weight=None, *, criterion="D"
):
    """Tell what estimated scores cost, from replicas of them, without the exact ones.

    Estimated scores play two parts. They make the cells, and worse scores make worse
    cells; and they evaluate them, where their errors count as information and follow
    the cells that they made. Replicas whose errors are independent, of mean zero at
    every event, take both apart: with the cells of replica ``a``, the product of the
    moments of two others, ``sum_b W_b mu_b mu_b'`` with one mean of each, is on average
    the information that the exact scores have in those cells, and likewise in full. It
    is taken over all pairs of others.

    What all replicas get wrong alike is not seen, a training sample or a bias that they
    share, say: then the loss is larger. Retention is that of the given rows, as
    ``score`` reports it.

    Parameters
    ----------
    replicas : sequence of array-like of shape (n, d)
        Scores of the same events, from at least three fits whose errors are
        independent: on parts of the simulation, better than on bootstrap samples of
        all of it.
    labels_or_quantizer : quantizer or sequence of array-like of int of shape (n,)
        A quantizer, of which a clone is fitted to each replica, or the labels of the
        rule of each.
    sample_weight : array-like of shape (n,), default=None
        Nonnegative weights; ones when None.
    criterion : {"D", "trace", "A", "E"} or object, default="D"
        Whose efficiency is the retention.

    Returns
    -------
    budget : ScoreErrorBudget
        Retention promised, by another replica and by the exact scores, and the loss
        by cells and by scores. A rule on the mean of m replicas has about 1 / m of the
        loss by scores.

    Raises
    ------
    ValueError
        For fewer than three replicas, replicas of different shapes, or invalid scores,
        weights or labels.

    See Also
    --------
    alignment_report : Where a simulation knows the exact scores.

    References
    ----------
    .. [1] R. J. Carroll, D. Ruppert, L. A. Stefanski, C. M. Crainiceanu, "Measurement
       Error in Nonlinear Models", Chapman and Hall, 2006 (replicates).
       https://doi.org/10.1201/9781420010138

    Examples
    --------
    >>> import numpy as np
    >>> from skquant import KMeansQuantizer
    >>> from skquant.inspection import score_error_budget
    >>> rng = np.random.default_rng(0)
    >>> exact = rng.normal(size=(2000, 1))
    >>> replicas = exact + 0.3 * rng.normal(size=(4, 2000, 1))
    >>> print(score_error_budget(replicas, KMeansQuantizer(8, random_state=0)))
    retention 0.965431 promised, 0.887662 by exact scores; 69% of the loss by the scores
    """
    tables = [check_scores(each)[0].astype(np.float64) for each in replicas]
    if len(tables) < _FEWEST_REPLICAS:
        raise ValueError(
            f"replicas must hold at least {_FEWEST_REPLICAS} tables of scores; got "
            f"{len(tables)}."
        )
    shapes = {each.shape for each in tables}
    if len(shapes) > 1:
        raise ValueError(f"replicas must have one shape; got {sorted(shapes)}.")
    n = len(tables)
    with np.errstate(over="ignore"):
        table = read_table(sum(each / n for each in tables), sample_weight, criterion)
    labelings, n_bins = _labelings(
        list(replicas), table, labels_or_quantizer, sample_weight
    )
    coordinates = criterion_coordinates(table.criterion, table.subspace)
    points = [each[table.used] @ coordinates for each in tables]
    moments = _Moments(table.criterion, points, table.shares, labelings, n_bins)

    every = list(range(n))
    promised = float(np.mean([moments.by_one(a, a) for a in every]))
    exchanged = [moments.by_one(a, b) for a in every for b in every if a != b]
    retention, error = moments.by_pairs(every), np.nan
    if n > _FEWEST_REPLICAS:
        without = [moments.by_pairs([b for b in every if b != a]) for a in every]
        error = float(np.sqrt((n - 1.0) * np.var(without)))
    loss, lost = 1.0 - retention, promised - retention
    return ScoreErrorBudget(
        promised=promised,
        exchanged=float(np.mean(exchanged)),
        retention=retention,
        standard_error=error,
        loss_from_bins=1.0 - promised,
        loss_from_scores=lost,
        share_from_scores=0.0 if loss == 0.0 else lost / loss,
        status="errors_too_large" if np.isnan(retention) else "ok",
        n_replicas=n,
    )
