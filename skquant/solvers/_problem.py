"""The problem that every solver gets: atoms in whitened coordinates."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from skquant._kernels.coarse import merge_neighbors
from skquant._moments import cell_moments, moment_information, row_blocks, share_weights
from skquant._priors import profile_out
from skquant._table import (
    InformativeSubspace,
    add_base,
    criterion_columns,
    full_reference,
    informative_subspace,
    merge_rows,
    prior_base,
    require_full_rank,
    warn_of_offset,
)
from skquant.solvers._limits import Limits

# So many atoms tell where the others lie.
_COARSENED_ATOMS = 250_000


def table_rounding(subspace):
    """Return the relative error of an efficiency that rounding of a table could be."""
    # Sums cost some hundred of the smallest errors; nearly collinear columns that of
    # their whitened coordinates (exact arithmetic on small tables: a tenth of it).
    return 1e-11 + 32.0 * np.finfo(np.float64).eps * subspace.condition


@dataclass(frozen=True)
class Problem:
    """Weighted atoms and what to maximize.

    Attributes
    ----------
    points : ndarray of shape (n, r)
        Whitened scores of the atoms relative to ``origin``, in a shuffled order, so
        that the first rows are a random subsample. Every gain depends on
        differences of scores alone; the shift keeps their digits.
    origin : ndarray of shape (r,)
        The whitened mean score.
    weights : ndarray of shape (n,)
        Shares of the total weight.
    criterion : object
        Resolved criterion.
    columns : ndarray of shape (r, c) or None
        Maps whitened coordinates to those of the criterion; None is the identity.
    reference : ndarray of shape (c, c)
        Full information in the coordinates of the criterion, the base included.
    base : ndarray of shape (c, c) or None
        Information that is there whatever the labels, a prior's, in the coordinates of
        the criterion, per unit of total weight; None is none. Coordinates of which the
        data know nothing come last.
    rounding : float
        Relative error of an efficiency, from above or below, that rounding could be.
    """

    points: np.ndarray
    origin: np.ndarray
    weights: np.ndarray
    criterion: object
    columns: np.ndarray | None
    reference: np.ndarray
    base: np.ndarray | None = None
    rounding: float = 1e-11

    def head(self, n_points):
        """Return the problem of the first atoms."""
        if n_points >= len(self.points):
            return self
        weights = self.weights[:n_points]
        return replace(
            self, points=self.points[:n_points], weights=weights / weights.sum()
        )

    def coarse(self, n_points, random_state):
        """Return the problem of the weighted means of neighboring atoms.

        At most ``n_points`` of them, in random order, narrow where atoms are many or
        far out; of a large table those of its first atoms.
        """
        table = self.head(_COARSENED_ATOMS)
        r = table.points.shape[1]
        weights, means = np.empty(n_points), np.empty((n_points, r))
        size = merge_neighbors(
            table.points.copy(),
            table.weights.copy(),
            weights,
            means,
            np.empty((4, n_points), dtype=np.intp),
            np.empty((len(table.points), 1 + r)),
            np.empty(n_points + 1 + 2 * r),
        )
        order = random_state.permutation(size)
        return replace(self, points=means[order], weights=weights[order])

    def with_criterion(self, criterion):
        """Return the problem of another criterion in the same coordinates."""
        if criterion is self.criterion:
            return self
        return replace(self, criterion=criterion)

    def whitened(self, criterion):
        """Return the problem of an invariant criterion, in whitened coordinates."""
        reference = np.eye(len(self.origin))
        return replace(
            self, criterion=criterion, columns=None, reference=reference, base=None
        )

    def information(self, cell_weights, cell_means):
        """Return the retained information, whitened, of cells given about origin."""
        return moment_information(cell_weights, cell_means + self.origin)

    def label_information(self, labels, n_bins):
        """Return the retained information, whitened, of a labeling."""
        moments = cell_moments(self.points, self.weights, labels, n_bins)
        return self.information(*moments)

    def full_information(self):
        """Return the full information, whitened; the identity but for rounding."""
        square, mean = 0.0, 0.0
        for block, _ in row_blocks(len(self.points)):
            weighted = self.weights[block, None] * self.points[block]
            square = square + weighted.T @ self.points[block]
            mean = mean + self.weights[block] @ self.points[block]
        cross = np.outer(mean, self.origin)
        return square + cross + cross.T + np.outer(self.origin, self.origin)

    def in_columns(self, information):
        """Return whitened information in the coordinates of the criterion."""
        if self.columns is not None:
            information = self.columns.T @ information @ self.columns
        return add_base(information, self.base)

    def value(self, information):
        """Return the criterion's value of whitened information."""
        return self.criterion.value(self.in_columns(information), self.reference)

    def efficiency(self, information):
        """Return the criterion's efficiency of whitened information."""
        return self.criterion.efficiency(self.in_columns(information), self.reference)

    @cached_property
    def sizes(self):
        """Norms of the points, rounded up; ndarray of float32 of shape (n,)."""
        sizes = np.empty(len(self.points), dtype=np.float32)
        for block, _ in row_blocks(len(self.points)):
            square = np.einsum("ij,ij->i", self.points[block], self.points[block])
            sizes[block] = np.nextafter(np.sqrt(square).astype(np.float32), np.inf)
        return sizes

    @cached_property
    def log_det_terms(self):
        """Coefficients (t,), bases (t, r, r), ranks (t,), and what is added (t, r, r).

        A term is the log determinant of information in the span of its basis, which
        has orthonormal columns, as many as its rank, and then zeros, plus what is
        added, in that basis; of full rank, in whitened coordinates.
        """
        r = self.points.shape[1]
        terms = self.criterion.log_det_terms(len(self.reference))
        if self.base is not None:
            return self._terms_with_base(terms)
        columns = np.eye(r) if self.columns is None else self.columns
        bases = np.zeros((len(terms), r, r))
        for basis, (_, indices) in zip(bases, terms, strict=True):
            basis[:, : len(indices)] = np.linalg.qr(columns[:, indices])[0]
        coefficients = np.array([coefficient for coefficient, _ in terms])
        ranks = np.array([len(indices) for _, indices in terms], dtype=np.int32)
        return coefficients, bases, ranks, np.zeros_like(bases)

    def _terms_with_base(self, terms):
        r, known = len(self.origin), len(self.reference)
        columns = np.zeros((r, known))
        mapped = np.eye(r) if self.columns is None else self.columns
        columns[:, : mapped.shape[1]] = mapped
        values, vectors = np.linalg.eigh(self.base)
        root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        bases, added = np.zeros((2, len(terms), r, r))
        ranks = np.zeros(len(terms), dtype=np.int32)
        for t, (_, indices) in enumerate(terms):
            left, singular, right = np.linalg.svd(columns[:, indices])
            tolerance = 1e3 * np.finfo(np.float64).eps * known
            rank = int(np.sum(singular > tolerance * singular[0]))
            # in parameters in which the data's block is the identity on its span
            inside = right[:rank].T / singular[:rank]
            profiled, _ = profile_out(
                root[:, indices], inside, right[rank:].T, tolerance
            )
            bases[t, :, :rank], ranks[t] = left[:, :rank], rank
            block = profiled.T @ profiled
            if rank == r:
                block = left @ block @ left.T
            added[t, : len(block), : len(block)] = block
        coefficients = np.array([coefficient for coefficient, _ in terms])
        return coefficients, bases, ranks, added

    def gradient(self, information):
        """Return the criterion's gradient as a metric of whitened scores."""
        gradient = self.criterion.gradient(self.in_columns(information), self.reference)
        if self.base is not None:
            known = len(self.origin) if self.columns is None else self.columns.shape[1]
            gradient = gradient[:known, :known]
        if self.columns is None:
            return gradient
        return self.columns @ gradient @ self.columns.T


@dataclass(frozen=True)
class Atoms:
    """How the rows of a table became the atoms of a problem.

    Attributes
    ----------
    of_row : ndarray of int of shape (n_rows,)
        Atom of each row; -1 for a row of zero weight.
    table : ndarray of shape (n_table, d)
        Scores of the problem: the rows as given, or merged for their weights.
    first_row : ndarray of int of shape (n_atoms,)
        A row of that table for each atom.
    subspace : InformativeSubspace
        Coordinates of the problem.
    center : ndarray of shape (d,)
        Mean score, the origin of the problem in original coordinates.
    limits : Limits or None
        What every cell has to have.
    """

    of_row: np.ndarray
    table: np.ndarray
    first_row: np.ndarray
    subspace: InformativeSubspace
    center: np.ndarray
    limits: Limits | None = None

    def labels(self, labels):
        """Return the labels of the atoms, from those of the rows."""
        used = self.of_row >= 0
        of_atom = np.empty(len(self.first_row), dtype=labels.dtype)
        of_atom[self.of_row[used]] = labels[used]
        return of_atom

    def of_merged(self, merged):
        """Return how the rows of a table became atoms that were merged before."""
        of_row = np.append(self.of_row, -1)[merged.of_row]
        return replace(self, of_row=of_row)

    def warn_of_offset(self, problem, names):
        """Warn of columns whose mean is many times their spread."""

        def spread_of(j):
            along = self.subspace.basis[:, j] / self.subspace.scale[j]
            return np.sqrt(problem.weights @ (problem.points @ along) ** 2)

        warn_of_offset(self.center, self.subspace.scale, spread_of, names)


def build_problem(X, weights, criterion, rank_rtol, random_state, names=None):
    """Return the problem of a validated table, and how its rows became atoms."""
    of_row, first_row, atom_weights = merge_rows(X, weights)
    n = len(first_row)
    shuffle = random_state.permutation(n).astype(of_row.dtype)
    position = np.empty_like(shuffle)
    position[shuffle] = np.arange(n, dtype=shuffle.dtype)
    of_row[of_row >= 0] = position[of_row[of_row >= 0]]
    del position
    first_row, shares = first_row[shuffle], share_weights(atom_weights)[shuffle]
    del shuffle, atom_weights

    table = X.take(first_row, axis=0).astype(np.float64, copy=False)
    subspace = informative_subspace(
        table, shares, rank_rtol, criterion.precision_root(X.shape[1])
    )
    require_full_rank(criterion, subspace, names)
    center = np.zeros(X.shape[1])
    for block, _ in row_blocks(n):
        center += shares[block] @ (table[block] / subspace.scale)
    center *= subspace.scale
    # in the place of the table, where they fit
    points = table if subspace.rank == X.shape[1] else np.empty((n, subspace.rank))
    for block, _ in row_blocks(n):
        points[block] = (table[block] - center) @ subspace.whitener
    problem = Problem(
        points=points,
        origin=center @ subspace.whitener,
        weights=shares,
        criterion=criterion,
        columns=criterion_columns(criterion, subspace),
        reference=full_reference(criterion, subspace),
        base=prior_base(criterion, subspace),
        rounding=table_rounding(subspace),
    )
    return problem, Atoms(of_row, X, first_row, subspace, center)
