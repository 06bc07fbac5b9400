/* The largest of affine logits, eight points side by side. */

#ifndef SKQUANT_ARGMAX_H
#define SKQUANT_ARGMAX_H

#include <math.h>

#include "lanes.h"

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
#define SKQUANT_ARGMAX(D) case D: \
    skquant_argmax_known(points, coef, intercept, D, k, x, largest, where); break;

SKQUANT_CLONES
static void skquant_argmax_lanes(
    const double* points, const double* coef, const double* intercept,
    Py_ssize_t d, Py_ssize_t k, double* x, double* largest, double* where)
{
    switch (d) {
        SKQUANT_ARGMAX(1) SKQUANT_ARGMAX(2) SKQUANT_ARGMAX(3) SKQUANT_ARGMAX(4)
        SKQUANT_ARGMAX(5) SKQUANT_ARGMAX(6) SKQUANT_ARGMAX(7) SKQUANT_ARGMAX(8)
        default:
            skquant_argmax_known(points, coef, intercept, d, k, x, largest, where);
    }
}

#endif
