# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Sums of weights and weighted points by cell."""


def add_moments(
    const double[:, ::1] points,    # IN (n, r)
    const double[::1] weights,      # IN (n,)
    const int[::1] labels,          # IN (n,)
    double[::1] cell_weights,       # INOUT (k,), added to
    double[:, ::1] moments,         # INOUT (k, r), added to
):
    """Add the weight and the weighted point of every row to those of its cell."""
    cdef Py_ssize_t row, j, r = points.shape[1]
    cdef double weight
    cdef const double* point
    cdef double* sums
    with nogil:
        for row in range(points.shape[0]):
            weight = weights[row]
            point = &points[row, 0]
            sums = &moments[labels[row], 0]
            cell_weights[labels[row]] += weight
            for j in range(r):
                sums[j] += weight * point[j]
