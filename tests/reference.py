"""Independent routes to right values: slow twins, enumeration, reference tables."""

import itertools
import json
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"
T7 = np.array(
    [
        [0.3, -1.0],
        [1.2, 0.4],
        [-0.7, 0.9],
        [-1.1, -0.2],
        [0.5, 0.8],
        [-0.4, -1.3],
        [1.6, -0.5],
    ]
)
