"""What a solver returns to the estimator that called it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np


class Status(Enum):
    """How a solver ended; the value says it, with the estimator's parameters."""

    CONVERGED = "ended by itself"
    MAX_ITER = "stopped at max_iter={max_iter} before it converged; increase max_iter"

    @classmethod
    def ended(cls, converged):
        """Return the status of a solver that did, or did not, end by itself."""
        return cls.CONVERGED if converged else cls.MAX_ITER


class Notice(NamedTuple):
    """What a solver noticed, for the estimator to warn of."""

    message: str
    category: type = UserWarning


@dataclass(frozen=True)
class Solution:
    """Cells of a problem's atoms and the rule that deploys them.

    Attributes
    ----------
    labels : ndarray of int32 of shape (n_atoms,) or None
        Free labels of the atoms; None: those of the rule.
    coef, intercept : ndarray of shapes (K, r) and (K,)
        Logits of the rule in the problem's coordinates.
    n_iter : int
        Iterations.
    status : Status
        How the solver ended.
    temperature : float or None
        What divides the logits.
    relaxation : str
        Map from scaled logits to responsibilities.
    attributes : dict
        Further fitted attributes.
    notices : tuple of Notice
        What the user is warned of.
    snapshots : tuple of Snapshot
        States on the way, for solvers that record them.
    retentions : dict of str or None to float
        Where cells are limited: the efficiency without limits (None), and with each
        limit alone.
    """

    labels: np.ndarray | None
    coef: np.ndarray
    intercept: np.ndarray
    n_iter: int
    status: Status = Status.CONVERGED
    temperature: float | None = None
    relaxation: str = "softmax"
    attributes: dict = field(default_factory=dict)
    notices: tuple = ()
    snapshots: tuple = ()
    retentions: dict = field(default_factory=dict)
