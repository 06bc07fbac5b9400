/* Sums of weights and weighted points by cell. */

#ifndef SKQUANT_MOMENTS_H
#define SKQUANT_MOMENTS_H

#include "lanes.h"

SKQUANT_INLINE void skquant_add_moments_known(
    const double* SKQUANT_RESTRICT points, const double* SKQUANT_RESTRICT weights,
    const int* SKQUANT_RESTRICT labels, Py_ssize_t n, const Py_ssize_t r,
    double* SKQUANT_RESTRICT cell_weights, double* SKQUANT_RESTRICT moments)
{
    for (Py_ssize_t i = 0; i < n; i++) {
        const double weight = weights[i];
        double* SKQUANT_RESTRICT sums = moments + labels[i] * r;
        cell_weights[labels[i]] += weight;
        for (Py_ssize_t j = 0; j < r; j++) sums[j] += weight * points[i * r + j];
    }
}

/* A known number of coordinates unrolls the inner loop. */
#define SKQUANT_MOMENTS(R) case R: skquant_add_moments_known( \
    points, weights, labels, n, R, cell_weights, moments); break;

/* Add every row to its cell. IN points (n, r), weights (n,), labels (n,);
   INOUT cell_weights (k,), moments (k, r). */
static void skquant_add_moments(
    const double* points, const double* weights, const int* labels, Py_ssize_t n,
    Py_ssize_t r, double* cell_weights, double* moments)
{
    switch (r) {
        SKQUANT_MOMENTS(1) SKQUANT_MOMENTS(2) SKQUANT_MOMENTS(3) SKQUANT_MOMENTS(4)
        SKQUANT_MOMENTS(5) SKQUANT_MOMENTS(6) SKQUANT_MOMENTS(7) SKQUANT_MOMENTS(8)
        default: skquant_add_moments_known(
            points, weights, labels, n, r, cell_weights, moments);
    }
}

#endif
