"""Score quantizers: hard labels that keep the most Fisher information.

The public names are imported when they are first used, so that
``skquant.rules``, the deployment side, needs NumPy and nothing else.
"""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_MODULE_OF = {
    "KMeansQuantizer": "skquant.quantizers._kmeans",
    "DExchangeQuantizer": "skquant.quantizers._d_exchange",
    "FigureOfMeritQuantizer": "skquant.quantizers._figure_of_merit",
    "IntervalQuantizer": "skquant.quantizers._interval",
    "SoftVoronoiQuantizer": "skquant.quantizers._soft_voronoi",
    "CellConstraints": "skquant.constraints",
    "NormalizedTrace": "skquant.criteria",
    "DOptimality": "skquant.criteria",
    "AOptimality": "skquant.criteria",
    "EOptimality": "skquant.criteria",
    "PowerMean": "skquant.criteria",
    "ProfiledDOptimality": "skquant.criteria",
    "AffineMaxRule": "skquant.rules",
    "ScoreCompressor": "skquant.compression",
}

__all__ = [
    "AOptimality",
    "AffineMaxRule",
    "CellConstraints",
    "DExchangeQuantizer",
    "DOptimality",
    "EOptimality",
    "FigureOfMeritQuantizer",
    "IntervalQuantizer",
    "KMeansQuantizer",
    "NormalizedTrace",
    "PowerMean",
    "ProfiledDOptimality",
    "ScoreCompressor",
    "SoftVoronoiQuantizer",
]

if TYPE_CHECKING:
    from skquant.compression import ScoreCompressor
    from skquant.constraints import CellConstraints
    from skquant.criteria import (
        AOptimality,
        DOptimality,
        EOptimality,
        NormalizedTrace,
        PowerMean,
        ProfiledDOptimality,
    )
    from skquant.quantizers._d_exchange import DExchangeQuantizer
    from skquant.quantizers._figure_of_merit import FigureOfMeritQuantizer
    from skquant.quantizers._interval import IntervalQuantizer
    from skquant.quantizers._kmeans import KMeansQuantizer
    from skquant.quantizers._soft_voronoi import SoftVoronoiQuantizer
    from skquant.rules import AffineMaxRule


_SUBMODULES = {
    "compression",
    "criteria",
    "exceptions",
    "histograms",
    "information",
    "inspection",
    "plotting",
    "purification",
    "relaxation",
    "rules",
    "scores",
}


def __getattr__(name):
    if name in _SUBMODULES:
        return importlib.import_module(f"skquant.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'skquant' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__) | _SUBMODULES)
