"""Combinatorial structures behind one interface: vertices of a polytope.

Every structure maximizes ``<u, x>`` over its vertices (``argmax``), averages them under
``exp(<u, x> / temperature)`` (``marginals``, ``log_partition``), relaxes the maximum
(``relax``, ``vjp``) and can list them (``vertices``).
"""

from itertools import combinations, permutations, product

import numpy as np
from scipy.optimize import linear_sum_assignment

from skquant._checks import check_count
from skquant._noise import noise_generator, sample_noise
from skquant.relaxation._projections import (
    birkhoff_projection,
    capped_simplex,
    capped_simplex_vjp,
    sinkhorn,
    top_k,
)
from skquant.relaxation._structure_base import Structure
from skquant.relaxation._subsets import (
    chain_marginals,
    chain_subset,
    log_add,
    log_sum,
    subset_marginals,
)
from skquant.relaxation._trees import (
    arborescence_marginals,
    best_arborescence,
    best_spanning_tree,
)
from skquant.responsibilities import RELAXATIONS, relax_logits

__all__ = [
    "Arborescence",
    "ChainKSubset",
    "Hypercube",
    "KSubset",
    "Matching",
    "Simplex",
    "SpanningTree",
    "sample_structure",
]

_MOST_PERMUTED = 8


class Simplex(Structure):
    """One-hot vectors.

    Parameters
    ----------
    n : int
        Number of categories.

    References
    ----------
    .. [1] M. Blondel, A. Martins, V. Niculae, "Learning with Fenchel-Young Losses",
       JMLR 21, 2020. arXiv:1901.02324.

    Examples
    --------
    >>> from skquant.relaxation import Simplex
    >>> Simplex(4).marginals([0.9, 0.3, -0.2, 0.1], 0.7)
    array([0.51255041, 0.21751248, 0.10648142, 0.16345569])
    """

    regularizers = ("exponential", "euclidean")
    _size = 1

    def __init__(self, n):
        self.n = check_count("n", n)

    @property
    def shape(self):
        """Shape of the utilities and of a vertex."""
        return (self.n,)

    def _feasible(self, u):
        if (u.max(axis=-1) == -np.inf).any():
            raise ValueError("u must have a finite entry in every row; got -inf alone.")

    def _best(self, u):
        return top_k(u, 1)

    def _family(self, z):
        log_partition = log_sum(z)
        with np.errstate(under="ignore"):
            return np.exp(z - log_partition[..., None]), log_partition

    def _relax(self, u, temperature, regularizer):
        return relax_logits(u, RELAXATIONS["sparsemax"], temperature)

    def _exact_vjp(self, u, v, temperature, regularizer):
        p = self._relax(u, temperature, regularizer)
        return RELAXATIONS["sparsemax"].vjp(p, v) / temperature

    def _list(self):
        return iter(np.eye(self.n))


class Hypercube(Structure):
    """All vectors of bits. A bit is on if its utility is positive.

    Parameters
    ----------
    n : int
        Number of bits.

    Notes
    -----
    The noise that makes a bit's marginal the logistic function is logistic, the
    difference of two Gumbels.

    References
    ----------
    .. [1] M. Paulus et al., "Gradient Estimation with Stochastic Softmax Tricks",
       NeurIPS 2020. arXiv:2006.08063.

    Examples
    --------
    >>> from skquant.relaxation import Hypercube
    >>> Hypercube(4).marginals([0.9, 0.3, -0.2, 0.1], 0.7)
    array([0.7834209 , 0.60553249, 0.4290534 , 0.53565367])
    """

    regularizers = ("exponential", "euclidean")

    def __init__(self, n):
        self.n = check_count("n", n)

    @property
    def shape(self):
        """Shape of the utilities and of a vertex."""
        return (self.n,)

    def _best(self, u):
        return (u > 0) * 1.0

    def _scaled(self, u, temperature):
        # 0 is the other bit: no shift
        with np.errstate(over="ignore"):
            return np.clip(u / temperature, -1e300, 1e300), 0.0

    def _family(self, z):
        log_each = log_add(z, np.zeros_like(z))
        with np.errstate(under="ignore"):
            return np.exp(z - log_each), log_each.sum(axis=-1)

    def _relax(self, u, temperature, regularizer):
        return np.clip(u / temperature, 0.0, 1.0)

    def _exact_vjp(self, u, v, temperature, regularizer):
        p = self._relax(u, temperature, regularizer)
        return ((p > 0) & (p < 1)) * v / temperature

    def _list(self):
        return product([0.0, 1.0], repeat=self.n)


def _check_subset(n, k):
    """Return the number of items and of those chosen."""
    n, k = check_count("n", n), check_count("k", k, minimum=0)
    if k > n:
        raise ValueError(f"k must be at most n; got k={k} and n={n}.")
    return n, k


class KSubset(Structure):
    """Subsets of k of n, as vectors of bits.

    Parameters
    ----------
    n, k : int
        Size of the whole, and of a subset.

    References
    ----------
    .. [1] K. Swersky et al., "Probabilistic n-Choose-k Models for Classification and
       Ranking", NeurIPS 2012 (the dynamic program).
    .. [2] M. Paulus et al., "Gradient Estimation with Stochastic Softmax Tricks",
       NeurIPS 2020. arXiv:2006.08063.

    Examples
    --------
    >>> from skquant.relaxation import KSubset
    >>> KSubset(4, 2).marginals([0.9, 0.3, -0.2, 0.1], 0.7)
    array([0.76647694, 0.52214894, 0.29188395, 0.41949017])
    """

    regularizers = ("exponential", "euclidean", "binary", "categorical")

    def __init__(self, n, k):
        self.n, self.k = _check_subset(n, k)

    @property
    def shape(self):
        """Shape of the utilities and of a vertex."""
        return (self.n,)

    @property
    def _size(self):
        return self.k

    def _feasible(self, u):
        possible = np.isfinite(u).sum(axis=-1).min(initial=self.n)
        if possible < self.k:
            raise ValueError(
                f"u must have at least k={self.k} finite entries in every row; got "
                f"{possible}."
            )

    def _best(self, u):
        return top_k(u, self.k)

    def _family(self, z):
        return subset_marginals(z, self.k)

    def _relax(self, u, temperature, regularizer):
        return capped_simplex(
            u, self.k, regularizer=regularizer, temperature=temperature
        )

    def _exact_vjp(self, u, v, temperature, regularizer):
        p = self._relax(u, temperature, regularizer)
        return capped_simplex_vjp(
            p, v, regularizer=regularizer, temperature=temperature
        )

    def _list(self):
        for chosen in combinations(range(self.n), self.k):
            vertex = np.zeros(self.n)
            vertex[list(chosen)] = 1.0
            yield vertex


class ChainKSubset(Structure):
    """Subsets of k of n nodes in a row, with utilities of neighboring pairs.

    A vertex holds the n bits of the nodes, then the n - 1 products of neighbors.

    Parameters
    ----------
    n, k : int
        Number of nodes, and size of a subset.

    References
    ----------
    .. [1] M. Paulus et al., "Gradient Estimation with Stochastic Softmax Tricks",
       NeurIPS 2020. arXiv:2006.08063.

    Examples
    --------
    >>> from skquant.relaxation import ChainKSubset
    >>> u = [0.5, 0.0, -0.5, 0.2, 1.0, -1.0, 0.5]
    >>> ChainKSubset(4, 2).marginals(u).round(4)
    array([0.7376, 0.5832, 0.2406, 0.4386, 0.4411, 0.022 , 0.1202])
    """

    def __init__(self, n, k):
        self.n, self.k = _check_subset(n, k)

    @property
    def shape(self):
        """Shape of the utilities and of a vertex."""
        return (2 * self.n - 1,)

    def _feasible(self, u):
        best = self._best(u)
        allowed = np.where(best > 0, u, 0.0).min(axis=-1) > -np.inf
        if not (allowed & (best[..., : self.n].sum(axis=-1) == self.k)).all():
            raise ValueError(
                f"u must allow a subset of k={self.k} nodes in every row; got none."
            )

    def _with_pairs(self, nodes):
        return np.concatenate([nodes, nodes[..., 1:] * nodes[..., :-1]], axis=-1)

    def _best(self, u):
        return self._with_pairs(
            chain_subset(u[..., : self.n], u[..., self.n :], self.k)
        )

    def _scaled(self, u, temperature):
        # subsets of one size have one number of nodes, but not of pairs
        with np.errstate(over="ignore"):
            return u / temperature, 0.0

    def _family(self, z):
        on, both, log_partition = chain_marginals(
            z[..., : self.n], z[..., self.n :], self.k
        )
        return np.concatenate([on, both], axis=-1), log_partition

    def _list(self):
        for vertex in KSubset(self.n, self.k)._list():
            yield self._with_pairs(vertex)


class SpanningTree(Structure):
    """Spanning trees of a graph: bits of its edges, the upper triangle row by row.

    Parameters
    ----------
    n_nodes : int
        Number of nodes; an absent edge has utility -inf.

    Notes
    -----
    Marginals are those of arborescences from node 0, both directions together.

    References
    ----------
    .. [1] M. Paulus et al., "Gradient Estimation with Stochastic Softmax Tricks",
       NeurIPS 2020. arXiv:2006.08063.
    .. [2] W. Grassmann, M. Taksar, D. Heyman, "Regenerative Analysis and Steady State
       Distributions for Markov Chains", Operations Research 33, 1985 (elimination
       without subtraction). https://doi.org/10.1287/opre.33.5.1107

    Examples
    --------
    >>> from skquant.relaxation import SpanningTree
    >>> SpanningTree(4).marginals([0.5, -0.2, 0.1, 0.3, -0.6, 0.4]).round(4)
    array([0.6406, 0.3718, 0.516 , 0.5656, 0.2848, 0.6212])
    """

    def __init__(self, n_nodes):
        self.n_nodes = check_count("n_nodes", n_nodes)

    @property
    def shape(self):
        """Shape of the utilities and of a vertex."""
        return (self.n_nodes * (self.n_nodes - 1) // 2,)

    @property
    def _size(self):
        return self.n_nodes - 1

    def _feasible(self, u):
        self._vertex(u)

    def _vertex(self, u):
        best = self._best(u)
        if (best.sum(axis=-1) < self.n_nodes - 1).any():
            raise ValueError("u must allow a connected graph in every row; got none.")
        return best

    def _best(self, u):
        rows = [best_spanning_tree(row, self.n_nodes) for row in self._rows(u)]
        return np.array(rows).reshape(u.shape)

    def _family(self, z):
        upper = np.triu_indices(self.n_nodes, 1)
        table = np.full(
            (*z.shape[:-1], self.n_nodes, self.n_nodes), -np.inf, dtype=z.dtype
        )
        table[..., upper[0], upper[1]] = z
        table[..., upper[1], upper[0]] = z
        both, log_partition = arborescence_marginals(table, 0)
        both = both + np.swapaxes(both, -1, -2)
        return both[..., upper[0], upper[1]], log_partition

    def _list(self):
        upper = np.transpose(np.triu_indices(self.n_nodes, 1))
        for chosen in (
            KSubset(len(upper), self.n_nodes - 1)._list()
            if len(upper)
            else [np.zeros(0)]
        ):
            group = np.arange(self.n_nodes)
            for a, b in upper[chosen > 0]:
                group[group == group[a]] = group[b]
            if (group == group[0]).all():
                yield chosen


class Arborescence(Structure):
    """Directed spanning trees from a root: bits (n, n) of edges from head to dependent.

    Parameters
    ----------
    n_nodes : int
        Number of nodes.
    root : int, default=0
        The node without a head. Utilities of the diagonal and of edges into the root
        do not count.

    References
    ----------
    .. [1] J. Edmonds, "Optimum Branchings", J. Res. NBS 71B, 1967.
       https://doi.org/10.6028/jres.071b.032
    .. [2] T. Koo et al., "Structured Prediction Models via the Matrix-Tree Theorem",
       EMNLP 2007. https://aclanthology.org/D07-1015

    Examples
    --------
    >>> import numpy as np
    >>> from skquant.relaxation import Arborescence
    >>> u = np.array([[0, 0.1, 0.3], [0, 0, -1e16], [0, 0.25, 0]])
    >>> Arborescence(3).argmax(u)
    array([[0., 0., 1.],
           [0., 0., 0.],
           [0., 1., 0.]])
    """

    def __init__(self, n_nodes, root=0):
        self.n_nodes = check_count("n_nodes", n_nodes)
        self.root = check_count("root", root, minimum=0)
        if self.root >= self.n_nodes:
            raise ValueError(f"root must be below n_nodes={n_nodes}; got {root}.")

    @property
    def shape(self):
        """Shape of the utilities and of a vertex."""
        return (self.n_nodes, self.n_nodes)

    @property
    def _size(self):
        return self.n_nodes - 1

    def _utilities(self, u, name="u"):
        u = super()._utilities(u, name).copy()
        diagonal = np.arange(self.n_nodes)
        u[..., diagonal, diagonal] = -np.inf
        u[..., :, self.root] = -np.inf
        return u

    def _feasible(self, u):
        reached = np.zeros(u.shape[:-1], dtype=bool)
        reached[..., self.root] = True
        for _ in range(self.n_nodes):
            reached |= (reached[..., :, None] & np.isfinite(u)).any(axis=-2)
        if not reached.all():
            raise ValueError("u must allow a path from the root to every node.")

    def _best(self, u):
        result = np.zeros((len(self._rows(u)), *self.shape))
        for vertex, row in zip(result, self._rows(u), strict=True):
            heads = best_arborescence(row, self.root)
            used = np.flatnonzero(heads >= 0)
            vertex[heads[used], used] = 1.0
        return result.reshape(u.shape)

    def _family(self, z):
        return arborescence_marginals(z, self.root)

    def _list(self):
        nodes = [i for i in range(self.n_nodes) if i != self.root]
        for heads in product(range(self.n_nodes), repeat=len(nodes)):
            parent = dict(zip(nodes, heads, strict=True))
            if all(self._reaches(node, parent) for node in nodes):
                vertex = np.zeros(self.shape)
                vertex[list(heads), nodes] = 1.0
                yield vertex

    def _reaches(self, node, parent):
        for _ in range(self.n_nodes):
            if node == self.root:
                return True
            node = parent[node]
        return False


class Matching(Structure):
    """Perfect matchings: permutation matrices (n, n).

    Its regularizers are three different relaxations: "entropy" is the entropic plan
    (Sinkhorn), "exponential" the mean permutation (a permanent, up to n = 8),
    "euclidean" the projection onto the doubly stochastic matrices.

    Parameters
    ----------
    n : int
        Number of rows.

    References
    ----------
    .. [1] G. Mena et al., "Learning Latent Permutations with Gumbel-Sinkhorn
       Networks", ICLR 2018. arXiv:1802.08665.

    Examples
    --------
    >>> from skquant.relaxation import Matching
    >>> u = [[0.9, 0.1, -0.3], [0.2, 0.5, 0.4], [-0.5, 0.6, 0.3]]
    >>> Matching(3).marginals(u, 0.5)[0].round(6)
    array([0.907757, 0.052523, 0.03972 ])
    >>> Matching(3).relax(u, 0.5)[0].round(6)
    array([0.747032, 0.147498, 0.10547 ])
    """

    regularizers = ("entropy", "euclidean", "exponential")

    def __init__(self, n):
        self.n = check_count("n", n)

    @property
    def shape(self):
        """Shape of the utilities and of a vertex."""
        return (self.n, self.n)

    @property
    def _size(self):
        return self.n

    def _feasible(self, u):
        self._best(u)

    def _vertex(self, u):
        return self._best(u)

    def _best(self, u):
        result = np.zeros((len(self._rows(u)), *self.shape))
        for vertex, row in zip(result, self._rows(u), strict=True):
            # an infeasible cost raises ValueError
            vertex[linear_sum_assignment(row, maximize=True)] = 1.0
        return result.reshape(u.shape)

    def _family(self, z):
        if self.n > _MOST_PERMUTED:
            raise ValueError(
                f"n must be at most {_MOST_PERMUTED} for the mean permutation, a "
                f"permanent; got {self.n}. Use relax with 'entropy'."
            )
        orders = np.array(list(permutations(range(self.n))))
        utilities = sum(z[..., i, orders[:, i]] for i in range(self.n))
        log_partition = log_sum(utilities)
        with np.errstate(under="ignore"):
            shares = np.exp(utilities - log_partition[..., None])
        return np.tensordot(shares, np.eye(self.n)[orders], 1), log_partition

    def _relax(self, u, temperature, regularizer):
        if regularizer == "euclidean":
            return birkhoff_projection(u, temperature=temperature)
        ones = np.ones(self.n)
        plans = [
            sinkhorn(row, ones, ones, temperature=temperature) for row in self._rows(u)
        ]
        return np.array(plans).reshape(u.shape)

    def _exact_vjp(self, u, v, temperature, regularizer):
        if regularizer != "entropy":
            return super()._exact_vjp(u, v, temperature, regularizer)
        plan = self._relax(u, temperature, regularizer)
        # the plan times what is left of v when sums of rows and columns are held
        n = self.n
        system = np.zeros((*plan.shape[:-2], 2 * n, 2 * n))
        diagonal = np.arange(n)
        system[..., diagonal, diagonal] = plan.sum(axis=-1)
        system[..., n + diagonal, n + diagonal] = plan.sum(axis=-2)
        system[..., :n, n:] = plan
        system[..., n:, :n] = np.swapaxes(plan, -1, -2)
        moved = plan * v
        right = np.concatenate([moved.sum(axis=-1), moved.sum(axis=-2)], axis=-1)
        held = np.linalg.pinv(system, hermitian=True) @ right[..., None]
        rows, columns = held[..., :n, :], np.swapaxes(held[..., n:, :], -1, -2)
        return plan * (v - rows - columns) / temperature

    def _list(self):
        for order in permutations(range(self.n)):
            yield np.eye(self.n)[list(order)]


def sample_structure(
    structure,
    theta,
    *,
    temperature=None,
    regularizer=None,
    noise="gumbel",
    n_samples=None,
    random_state=None,
):
    """Draw a vertex by perturbing utilities, or a relaxed vertex.

    Parameters
    ----------
    structure : Simplex, KSubset or another structure
        Any of the structures.
    theta : array-like of shape ``(..., *shape)``
        Mean utilities; -inf is forbidden.
    temperature : float, default=None
        None or 0 gives vertices, a positive one `relax` of the same utilities.
    regularizer : str, default=None
        As in the structure's ``relax``.
    noise : {"gumbel", "normal", "laplace", "logistic", "exponential"}, \
default="gumbel"
        Added to theta, of mean zero; "exponential" makes the utilities
        ``-E exp(-theta)`` with standard exponential E: the same law as Gumbel noise on
        the simplex (an exponential race), another law on other structures.
    n_samples : int, default=None
        Independent repetitions, in a new leading axis.
    random_state : int, RandomState, Generator or None, default=None
        Source of randomness.

    Returns
    -------
    x : ndarray of shape ``(..., *shape)`` or ``(n_samples, ..., *shape)``
        Vertices, or points of the relaxed polytope.

    Raises
    ------
    ValueError
        As the structure's ``relax``, or for an unknown noise.

    Notes
    -----
    Except on the simplex, the law of a vertex is not the Gibbs law
    ``exp(<theta, x>)``.

    References
    ----------
    .. [1] M. Paulus et al., "Gradient Estimation with Stochastic Softmax Tricks",
       NeurIPS 2020. arXiv:2006.08063.

    Examples
    --------
    >>> from skquant.relaxation import KSubset, sample_structure
    >>> x = sample_structure(KSubset(4, 2), [3, 2, 1, 0], n_samples=5, random_state=0)
    >>> x.sum(axis=1)
    array([2., 2., 2., 2., 2.])
    """
    theta = structure._utilities(theta, "theta")
    lead = () if n_samples is None else (check_count("n_samples", n_samples),)
    rng = noise_generator(random_state)
    if noise == "exponential":
        with np.errstate(over="ignore"):
            rates = np.exp(-theta)
        utilities = -rates * rng.standard_exponential(lead + theta.shape)
    else:
        utilities = theta + sample_noise(noise, lead + theta.shape, rng)
    if not temperature:
        return structure.argmax(utilities)
    return structure.relax(utilities, temperature, regularizer)
