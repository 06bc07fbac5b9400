# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Labels of affine rules: the largest of ``c_b + a_b1 s_1 + a_b2 s_2 + ...``.

Sums run in that order, as everywhere a rule is evaluated, so that labels agree bit for
bit. Eight rows go side by side, one a lane, which is what compilers vectorize.
"""

cdef extern from "argmax.h":
    void argmax_lanes "skquant_argmax_lanes"(
        const double* points, const double* coef, const double* intercept,
        Py_ssize_t d, Py_ssize_t k, double* x, double* largest, double* where
    ) noexcept nogil

cdef extern from "lanes.h":
    const double* fill_lanes "skquant_fill_lanes"(
        const double* points, Py_ssize_t n, Py_ssize_t d, double* filled
    ) noexcept nogil

cdef enum:
    LANES = 8


def scratch_size(Py_ssize_t d):
    """Number of doubles that ``affine_argmax`` needs as scratch."""
    return LANES * (2 * d + 3)


def affine_argmax(
    const double[:, ::1] points,    # IN (n, d)
    const double[:, ::1] coef,      # IN (k, d)
    const double[::1] intercept,    # IN (k,)
    int[::1] labels,                # OUT (n,)
    double[::1] scratch,            # scratch (scratch_size(d),)
):
    """Label every row; return the largest absolute entry, NaN if one is not finite.

    The labels hold if no logit overflows.
    """
    cdef Py_ssize_t n = points.shape[0], d = points.shape[1], k = intercept.shape[0]
    cdef Py_ssize_t start = 0, lane, n_rows
    cdef double* x = &scratch[0]
    cdef double* last = x + d * LANES
    cdef double* where = last + d * LANES
    cdef double* largest = where + LANES
    cdef const double* rows
    cdef double result = 0.0, nothing = 0.0
    with nogil:
        for lane in range(2 * LANES):
            largest[lane] = 0.0
        while start < n:
            n_rows = n - start if n - start < LANES else LANES
            rows = fill_lanes(&points[start, 0], n_rows, d, last)
            argmax_lanes(
                rows, &coef[0, 0], &intercept[0], d, k, x, largest, where
            )
            for lane in range(n_rows):
                labels[start + lane] = <int> where[lane]
            start += LANES
        for lane in range(LANES):
            nothing += largest[LANES + lane]
            result = largest[lane] if largest[lane] > result else result
    return result + nothing
