"""Relative sizes below which numbers are rounding; all are free of units."""

import numpy as np

EPS = np.finfo(np.float64).eps

# Eigenvalues of unit scale, or what is left of a sum, below this (times their number
# where there are several) are zeros that were rounded.
SINGULAR = 1e3 * EPS

# Singular values of a table below this share of the largest are no information, unless
# the user says otherwise; float32 scores have fewer digits.
RANK_RTOL = 1e-10
RANK_RTOL_FLOAT32 = 1e-6

# Values and sums of shares nearer than this are equal.
EQUAL = 1e-12
