# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Sums of weights and weighted points by cell."""

cdef extern from "moments.h":
    void add_rows "skquant_add_moments"(
        const double* points, const double* weights, const int* labels, Py_ssize_t n,
        Py_ssize_t r, double* cell_weights, double* moments
    ) noexcept nogil


def add_moments(
    const double[:, ::1] points,    # IN (n, r)
    const double[::1] weights,      # IN (n,)
    const int[::1] labels,          # IN (n,)
    double[::1] cell_weights,       # INOUT (k,), added to
    double[:, ::1] moments,         # INOUT (k, r), added to
):
    """Add the weight and the weighted point of every row to those of its cell."""
    with nogil:
        add_rows(
            &points[0, 0], &weights[0], &labels[0], points.shape[0], points.shape[1],
            &cell_weights[0], &moments[0, 0],
        )
