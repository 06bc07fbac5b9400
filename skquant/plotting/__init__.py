"""Pictures of fitted quantizers, in scikit-learn's Display convention.

``from_estimator`` computes and plots; a display stores the arrays, so that ``plot``
draws them again without computing. matplotlib is imported when something is drawn.
Cells differ in lightness and marker, and lines in marker and dash, so that pictures
can be read without color.
"""

from skquant.plotting._annealing import AnnealingDisplay
from skquant.plotting._cells import CellsDisplay
from skquant.plotting._retention import RetentionDisplay
from skquant.plotting._spectrum import SpectrumDisplay

__all__ = ["AnnealingDisplay", "CellsDisplay", "RetentionDisplay", "SpectrumDisplay"]
