# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Passes over the points of a softmax rule that form no (n, K) array.

Slopes, moments and gradients are stored (r, k), cells contiguous.
"""

from libc.math cimport exp


cdef void softmax_row(
    const double* x,             # IN (r,)
    const double* slopes,        # IN (r, k)
    const double* offsets,       # IN (k,)
    double temperature,          # IN tau; logits are divided by it twice
    double* shares,              # OUT (k,)
    Py_ssize_t r,
    Py_ssize_t k,
) noexcept nogil:
    cdef Py_ssize_t j, b
    cdef double largest, total = 0.0, value
    for b in range(k):
        shares[b] = offsets[b]
    for j in range(r):
        value = x[j]
        for b in range(k):
            shares[b] += value * slopes[j * k + b]
    largest = shares[0]
    for b in range(1, k):
        largest = shares[b] if shares[b] > largest else largest
    for b in range(k):
        value = (shares[b] - largest) / temperature / temperature
        # exp underflows to zero here anyway
        value = exp(value) if value > -745.2 else 0.0
        shares[b] = value
        total += value
    total = 1.0 / total
    for b in range(k):
        shares[b] *= total


def softmax_moments(
    const double[:, ::1] points,    # IN (n, r)
    const double[::1] weights,      # IN (n,)
    const double[:, ::1] slopes,    # IN (r, k)
    const double[::1] offsets,      # IN (k,)
    double temperature,             # IN
    double[::1] cell_weights,       # INOUT (k,), added to
    double[:, ::1] moments,         # INOUT (r, k), added to
    double[::1] shares,             # scratch (k,)
):
    """Add up weights and moments of the cells."""
    cdef Py_ssize_t i, j, b, r = points.shape[1], k = offsets.shape[0]
    cdef double value
    with nogil:
        for i in range(points.shape[0]):
            softmax_row(
                &points[i, 0], &slopes[0, 0], &offsets[0], temperature, &shares[0], r, k
            )
            for b in range(k):
                shares[b] *= weights[i]
                cell_weights[b] += shares[b]
            for j in range(r):
                value = points[i, j]
                for b in range(k):
                    moments[j, b] += value * shares[b]


def softmax_gradient(
    const double[:, ::1] points,      # IN (n, r)
    const double[::1] weights,        # IN (n,)
    const double[:, ::1] slopes,      # IN (r, k)
    const double[::1] offsets,        # IN (k,)
    double temperature,               # IN
    const double[:, ::1] ascent,      # IN (r, k), slopes of dF/dr over the weight
    const double[::1] level,          # IN (k,), its offsets
    double[:, ::1] slope_gradient,    # INOUT (r, k), added to; times tau^2
    double[::1] offset_gradient,      # INOUT (k,), added to; times tau^2
    double[:, ::1] scratch,           # scratch (2, k)
):
    """Add up the gradient in slopes and offsets through the Jacobian of softmax."""
    cdef Py_ssize_t i, j, b, r = points.shape[1], k = offsets.shape[0]
    cdef double value, mean
    cdef double* shares = &scratch[0, 0]
    cdef double* push = &scratch[1, 0]
    with nogil:
        for i in range(points.shape[0]):
            softmax_row(
                &points[i, 0], &slopes[0, 0], &offsets[0], temperature, shares, r, k
            )
            for b in range(k):
                push[b] = level[b]
            for j in range(r):
                value = points[i, j]
                for b in range(k):
                    push[b] += value * ascent[j, b]
            mean = 0.0
            for b in range(k):
                mean += shares[b] * push[b]
            for b in range(k):
                push[b] = weights[i] * shares[b] * (push[b] - mean)
                offset_gradient[b] += push[b]
            for j in range(r):
                value = points[i, j]
                for b in range(k):
                    slope_gradient[j, b] += value * push[b]
