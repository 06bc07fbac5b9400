# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Labels of affine rules: the largest of ``c_b + a_b1 s_1 + a_b2 s_2 + ...``.

Sums run in that order, as everywhere a rule is evaluated, so that labels agree bit for
bit. Eight rows go side by side, one a lane, which is what compilers vectorize.
"""

cdef extern from "_lanes.h":
    pass

cdef extern from *:
    """
    #include <math.h>

    /* Cell of the largest logit, the first of equal ones, for eight points at once.
       IN points (lanes, d); OUT x (d, lanes), where (lanes,); INOUT largest (2, lanes),
       sizes of entries, and 0 or, once one was not finite, NaN. */
    SKQUANT_INLINE void skquant_argmax_known(
        const double* SKQUANT_RESTRICT points, const double* SKQUANT_RESTRICT coef,
        const double* SKQUANT_RESTRICT intercept, const Py_ssize_t d,
        const Py_ssize_t k, double* SKQUANT_RESTRICT x,
        double* SKQUANT_RESTRICT largest, double* SKQUANT_RESTRICT where)
    {
        double best[SKQUANT_LANES], sum[SKQUANT_LANES], cell[SKQUANT_LANES];
        for (int l = 0; l < SKQUANT_LANES; l++)
            for (Py_ssize_t j = 0; j < d; j++)
                x[j * SKQUANT_LANES + l] = points[l * d + j];
        for (Py_ssize_t j = 0; j < d; j++)
            SKQUANT_EACH_LANE {
                const double size = fabs(x[j * SKQUANT_LANES + l]);
                largest[l] = size > largest[l] ? size : largest[l];
                largest[SKQUANT_LANES + l] += size - size;
            }
        SKQUANT_EACH_LANE {
            best[l] = -1.7976931348623157e308;
            cell[l] = 0.0;
        }
        for (Py_ssize_t b = 0; b < k; b++) {
            const double first = intercept[b], index = (double) b;
            SKQUANT_EACH_LANE sum[l] = first;
            for (Py_ssize_t j = 0; j < d; j++) {
                const double slope = coef[b * d + j];
                SKQUANT_EACH_LANE sum[l] += x[j * SKQUANT_LANES + l] * slope;
            }
            SKQUANT_EACH_LANE {
                /* sums instead of a choice keep the cells in registers */
                const double better = sum[l] > best[l] ? 1.0 : 0.0;
                cell[l] += better * (index - cell[l]);
                best[l] = sum[l] > best[l] ? sum[l] : best[l];
            }
        }
        SKQUANT_EACH_LANE where[l] = cell[l];
    }

    /* A known number of columns keeps the sums in registers. */
    #define SKQUANT_KNOWN(D) case D: \\
        skquant_argmax_known(points, coef, intercept, D, k, x, largest, where); break;

    SKQUANT_CLONES
    static void skquant_argmax_lanes(
        const double* points, const double* coef, const double* intercept,
        Py_ssize_t d, Py_ssize_t k, double* x, double* largest, double* where)
    {
        switch (d) {
            SKQUANT_KNOWN(1) SKQUANT_KNOWN(2) SKQUANT_KNOWN(3) SKQUANT_KNOWN(4)
            SKQUANT_KNOWN(5) SKQUANT_KNOWN(6) SKQUANT_KNOWN(7) SKQUANT_KNOWN(8)
            default:
                skquant_argmax_known(points, coef, intercept, d, k, x, largest, where);
        }
    }
    """
    void argmax_lanes "skquant_argmax_lanes"(
        const double* points, const double* coef, const double* intercept,
        Py_ssize_t d, Py_ssize_t k, double* x, double* largest, double* where
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
    cdef Py_ssize_t start = 0, lane, j, n_rows
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
            rows = &points[start, 0]
            if n_rows < LANES:
                # the last row fills the lanes that are left
                for lane in range(LANES):
                    for j in range(d):
                        last[lane * d + j] = points[
                            start + lane if lane < n_rows else n - 1, j
                        ]
                rows = last
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
