"""Limits of cells as numbers: what a labeling of atoms does to them."""

from dataclasses import dataclass, replace

import numpy as np

# Limits count as met within this relative distance: by a solver, and at the end, where
# the sums were taken in another order.
ROUNDING = 5e-10
MET = 1e-9

# Bisections of the best number that can be reached.
_HALVINGS = 40


@dataclass(frozen=True)
class Limits:
    """Rows of the atoms, by atom, and what every cell has to have of them.

    Attributes
    ----------
    names : tuple of str
        The limits.
    least_weights, least_entries : ndarray of shape (n_limits, g + 1)
        Least weight, and least number of effective entries, of each group in a cell
        and, last, of all rows; 0 is none.
    starts : ndarray of int of shape (n_atoms + 1,)
        Where the rows of each atom start.
    groups : ndarray of int of shape (n_rows,)
        Group of each row.
    weights : ndarray of shape (n_rows,)
        Weights in their unit.
    group_names : tuple
        Names of the groups.
    """

    names: tuple
    least_weights: np.ndarray
    least_entries: np.ndarray
    starts: np.ndarray
    groups: np.ndarray
    weights: np.ndarray
    group_names: tuple = ()

    def alone(self, limit):
        """Return one of the limits."""
        only = slice(limit, limit + 1)
        return replace(
            self,
            names=self.names[only],
            least_weights=self.least_weights[only],
            least_entries=self.least_entries[only],
        )

    def scaled(self, scale):
        """Return limits of which each least number is multiplied by a scale."""
        return replace(
            self,
            least_weights=self.least_weights * scale,
            least_entries=self.least_entries * scale,
        )

    @property
    def n_columns(self):
        return self.least_weights.shape[1]

    def _table(self, keys, n_keys, groups, weights):
        """Sums of weights and of squares, (n_keys, 2, g + 1)."""
        n_groups = max(1, self.n_columns - 1)
        keys = keys * n_groups + groups
        sums = np.stack(
            [
                np.bincount(keys, each, minlength=n_keys * n_groups)
                for each in (weights, weights**2)
            ],
            axis=-1,
        ).reshape(n_keys, n_groups, 2)
        sums = sums.transpose(0, 2, 1)
        total = sums.sum(axis=2, keepdims=True)
        return total if self.n_columns == 1 else np.concatenate([sums, total], axis=2)

    def cell_sums(self, labels, n_bins):
        """Return sums of weights and of squares of the cells, (K, 2, g + 1)."""
        of_row = np.repeat(labels.astype(np.intp), np.diff(self.starts))
        return self._table(of_row, n_bins, self.groups, self.weights)

    def atom_sums(self, atoms):
        """Return sums of weights and of squares of some atoms, (m, 2, g + 1)."""
        counts = self.starts[atoms + 1] - self.starts[atoms]
        which = np.repeat(np.arange(len(atoms)), counts)
        rows = np.arange(len(which)) + np.repeat(
            self.starts[atoms] - np.cumsum(counts) + counts, counts
        )
        return self._table(which, len(atoms), self.groups[rows], self.weights[rows])

    def ratios(self, sums):
        """Return what there is over what is asked, the least of it, (n_limits, ...).

        Of sums of weights and squares, (..., 2, g + 1); infinite where nothing is
        asked.
        """
        weights, squares = sums[..., 0, :], sums[..., 1, :]
        entries = weights**2 / np.where(squares > 0, squares, 1.0)
        found = np.full((len(self.names), *weights.shape[:-1]), np.inf)
        for row, pair in enumerate(
            zip(self.least_weights, self.least_entries, strict=True)
        ):
            for have, least in zip((weights, entries), pair, strict=True):
                asked = least > 0
                if asked.any():
                    ratio = (have[..., asked] / least[asked]).min(axis=-1)
                    found[row] = np.minimum(found[row], ratio)
        return found

    def violation(self, sums):
        """Return how far cells are below their limits, summed over limits, (...)."""
        short = 1.0 - self.ratios(sums)
        return np.sum(np.where(short > ROUNDING, short, 0.0), axis=0)

    def barred(self, labels, n_bins):
        """Return what tells of atoms which cells they may not move to, (m, K)."""
        sums = self.cell_sums(labels, n_bins)

        def barred(atoms):
            moved = self.atom_sums(atoms)
            left = self.violation(sums[labels[atoms]] - moved) > 0.0
            return left[:, None] | (self.violation(sums + moved[:, None]) > 0.0)

        return barred

    def met(self, labels, n_bins):
        """Whether a labeling of the atoms satisfies every limit."""
        return bool(self.ratios(self.cell_sums(labels, n_bins)).min() >= 1.0 - MET)


def build_limits(thresholds, of_row, groups, weights):
    """Return the limits of the atoms that rows became.

    Parameters
    ----------
    thresholds : tuple
        Names, least weights and least entries.
    of_row : ndarray of int of shape (n,)
        Atom of each row; -1 for zero weight.
    groups : ndarray of int of shape (n,) or None
        Group of each row.
    weights : ndarray of shape (n,)
    """
    names, least_weights, least_entries = thresholds
    order = np.argsort(of_row, kind="stable")
    order = order[np.searchsorted(of_row[order], 0) :]
    counts = np.bincount(of_row[order])
    return Limits(
        names=tuple(names),
        least_weights=least_weights,
        least_entries=least_entries,
        starts=np.concatenate([[0], np.cumsum(counts)]),
        groups=(
            np.zeros(len(order), dtype=np.intp) if groups is None else groups[order]
        ),
        weights=np.array(weights[order], dtype=np.float64),
    )


def unreachable(limits, n_bins, most):
    """Return the error about limits that so many cells cannot meet.

    Parameters
    ----------
    limits : Limits
    n_bins : int
    most : callable
        The largest number of cells that were found to meet some limits.
    """
    guilty = [
        each
        for each in map(limits.alone, range(len(limits.names)))
        if most(each) < n_bins
    ]
    if not guilty:
        guilty = [limits]
    told = [_told(each, _reachable_scale(each, n_bins, most)) for each in guilty]
    enough = most(limits)
    advice = f"n_bins={enough} would do" if enough else "no n_bins would do"
    return ValueError(
        f"constraints must be such that n_bins={n_bins} cells can meet them; got "
        f"{'; '.join(told)}. For all limits {advice}."
    )


def _reachable_scale(limits, n_bins, most):
    """Return the largest share of what is asked that was found to be reachable."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if most(limits.scaled(middle)) >= n_bins:
            low = middle
        else:
            high = middle
    return low


def _told(limits, scale):
    name = " and ".join(limits.names)
    weights, entries = (
        each[each > 0] for each in (limits.least_weights, limits.least_entries)
    )
    asked = np.unique(np.concatenate([weights, entries]))
    if len(limits.names) > 1 or len(asked) > 1:
        return f"{name}, of which {scale:.4g} times what is asked can be reached"
    asked, best, sign = asked[0], asked[0] * scale, -1.0
    if limits.names[0] == "max_relative_error":
        with np.errstate(divide="ignore"):
            asked, best, sign = asked**-0.5, best**-0.5, 1.0
    if 0.0 < best < np.inf:
        # to the side from which it can be asked
        unit = 10.0 ** (np.floor(np.log10(best)) - 5.0)
        best = sign * np.ceil(sign * best / unit) * unit
    return f"{name}={asked:.6g}, where {best:.6g} can be reached"
