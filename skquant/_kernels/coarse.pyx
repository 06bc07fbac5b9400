# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Cells of neighboring points: a table split again and again across its widest cell."""

cdef extern from *:
    """
    #include "lanes.h"

    /* Weight, weighted sums and weighted sums of squares of points relative to the
       first of them: their differences have the digits.
       IN points (n, r), weights (n,); OUT sums (1 + 2 r,). */
    SKQUANT_INLINE void skquant_sum_squares_known(
        const double* SKQUANT_RESTRICT points, const double* SKQUANT_RESTRICT weights,
        const Py_ssize_t n, const Py_ssize_t r, double* SKQUANT_RESTRICT sums)
    {
        for (Py_ssize_t j = 0; j < 1 + 2 * r; j++) sums[j] = 0.0;
        for (Py_ssize_t i = 0; i < n; i++) {
            sums[0] += weights[i];
            for (Py_ssize_t j = 0; j < r; j++) {
                const double offset = points[i * r + j] - points[j];
                const double weighted = weights[i] * offset;
                sums[1 + j] += weighted;
                sums[1 + r + j] += weighted * offset;
            }
        }
    }

    /* Put the points below a level along an axis first, without a branch: where a
       point belongs cannot be foreseen. Returns their number.
       INOUT points (n, r), weights (n,); scratch others (n, 1 + r). */
    SKQUANT_INLINE Py_ssize_t skquant_partition_known(
        double* points, double* weights, const Py_ssize_t n, const Py_ssize_t r,
        const Py_ssize_t axis, const double level, double* SKQUANT_RESTRICT others)
    {
        Py_ssize_t low = 0, high = 0;
        for (Py_ssize_t i = 0; i < n; i++) {
            const Py_ssize_t below = points[i * r + axis] < level;
            double* SKQUANT_RESTRICT other = others + high * (1 + r);
            other[0] = weights[i];
            weights[low] = other[0];
            for (Py_ssize_t j = 0; j < r; j++) other[1 + j] = points[i * r + j];
            for (Py_ssize_t j = 0; j < r; j++) points[low * r + j] = other[1 + j];
            low += below;
            high += 1 - below;
        }
        for (Py_ssize_t i = 0; i < high; i++) {
            weights[low + i] = others[i * (1 + r)];
            for (Py_ssize_t j = 0; j < r; j++)
                points[(low + i) * r + j] = others[i * (1 + r) + 1 + j];
        }
        return low;
    }

    /* A known number of coordinates keeps the sums in registers. */
    #define SKQUANT_KNOWN(R) case R: { \
        double kept[1 + 2 * R]; \
        skquant_sum_squares_known(points, weights, n, R, kept); \
        for (Py_ssize_t j = 0; j < 1 + 2 * R; j++) sums[j] = kept[j]; \
        break; }

    static void skquant_sum_squares(
        const double* points, const double* weights, Py_ssize_t n, Py_ssize_t r,
        double* sums)
    {
        switch (r) {
            SKQUANT_KNOWN(1) SKQUANT_KNOWN(2) SKQUANT_KNOWN(3) SKQUANT_KNOWN(4)
            SKQUANT_KNOWN(5) SKQUANT_KNOWN(6) SKQUANT_KNOWN(7) SKQUANT_KNOWN(8)
            default: skquant_sum_squares_known(points, weights, n, r, sums);
        }
    }

    #undef SKQUANT_KNOWN
    #define SKQUANT_KNOWN(R) case R: \
        return skquant_partition_known(points, weights, n, R, axis, level, others);

    static Py_ssize_t skquant_partition(
        double* points, double* weights, Py_ssize_t n, Py_ssize_t r, Py_ssize_t axis,
        double level, double* others)
    {
        switch (r) {
            SKQUANT_KNOWN(1) SKQUANT_KNOWN(2) SKQUANT_KNOWN(3) SKQUANT_KNOWN(4)
            SKQUANT_KNOWN(5) SKQUANT_KNOWN(6) SKQUANT_KNOWN(7) SKQUANT_KNOWN(8)
            default: return skquant_partition_known(
                points, weights, n, r, axis, level, others);
        }
    }
    """
    Py_ssize_t partition "skquant_partition"(
        double* points, double* weights, Py_ssize_t n, Py_ssize_t r, Py_ssize_t axis,
        double level, double* others
    ) noexcept nogil
    void sum_squares "skquant_sum_squares"(
        const double* points, const double* weights, Py_ssize_t n, Py_ssize_t r,
        double* sums
    ) noexcept nogil

cdef struct Tree:
    Py_ssize_t r
    double* points        # (n, r), the points of a leaf side by side
    double* weights       # (n,)
    double* leaf_weights  # (m,)
    double* leaf_means    # (m, r)
    Py_ssize_t* starts    # (m,), a leaf's first point
    Py_ssize_t* stops     # (m,), the point after its last
    Py_ssize_t* axes      # (m,), a leaf's widest coordinate
    double* spreads       # (m,), weight times variance along it
    Py_ssize_t* heap      # (m,), leaves, the widest first
    double* sums          # (1 + 2 r,), of a leaf


cdef void describe(Tree* t, Py_ssize_t leaf) noexcept nogil:
    """Set weight, mean, widest coordinate and spread of a leaf."""
    cdef Py_ssize_t r = t.r, start = t.starts[leaf], j
    cdef double total, offset, spread
    sum_squares(
        t.points + start * r, t.weights + start, t.stops[leaf] - start, r, t.sums
    )
    total = t.sums[0]
    t.leaf_weights[leaf] = total
    t.spreads[leaf] = 0.0
    t.axes[leaf] = 0
    for j in range(r):
        offset = t.sums[1 + j] / total
        t.leaf_means[leaf * r + j] = t.points[start * r + j] + offset
        spread = t.sums[1 + r + j] - offset * t.sums[1 + j]
        if spread > t.spreads[leaf]:
            t.spreads[leaf] = spread
            t.axes[leaf] = j


cdef void sink(Tree* t, Py_ssize_t size) noexcept nogil:
    """Restore the order of a heap whose first leaf has become narrower."""
    cdef Py_ssize_t place = 0, child, leaf = t.heap[0]
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and (
            t.spreads[t.heap[child + 1]] > t.spreads[t.heap[child]]
        ):
            child += 1
        if not t.spreads[t.heap[child]] > t.spreads[leaf]:
            break
        t.heap[place] = t.heap[child]
        place = child
    t.heap[place] = leaf


cdef void rise(Tree* t, Py_ssize_t place) noexcept nogil:
    """Restore the order of a heap with a new last leaf."""
    cdef Py_ssize_t parent, leaf = t.heap[place]
    while place > 0:
        parent = (place - 1) // 2
        if not t.spreads[leaf] > t.spreads[t.heap[parent]]:
            break
        t.heap[place] = t.heap[parent]
        place = parent
    t.heap[place] = leaf


def merge_neighbors(
    double[:, ::1] points,          # IN (n, r), put into another order
    double[::1] weights,            # IN (n,), positive, put into another order
    double[::1] leaf_weights,       # OUT (m,)
    double[:, ::1] leaf_means,      # OUT (m, r)
    Py_ssize_t[:, ::1] places,      # scratch (4, m)
    double[:, ::1] others,          # scratch (n, 1 + r)
    double[::1] scratch,            # scratch (m + 1 + 2 r,)
):
    """Split the leaf of the widest coordinate at its mean, until there are m leaves.

    Returns the number of leaves, fewer than m if there are no more distinct points.
    """
    cdef Tree t
    cdef Py_ssize_t most = leaf_weights.shape[0], size = 1, leaf, start, axis, middle
    with nogil:
        t.r = points.shape[1]
        t.points, t.weights = &points[0, 0], &weights[0]
        t.leaf_weights, t.leaf_means = &leaf_weights[0], &leaf_means[0, 0]
        t.starts, t.stops = &places[0, 0], &places[1, 0]
        t.axes, t.heap = &places[2, 0], &places[3, 0]
        t.spreads, t.sums = &scratch[0], &scratch[most]
        t.starts[0], t.stops[0], t.heap[0] = 0, points.shape[0], 0
        describe(&t, 0)
        while size < most:
            leaf = t.heap[0]
            if not t.spreads[leaf] > 0.0:
                break
            start = t.starts[leaf]
            axis = t.axes[leaf]
            middle = start + partition(
                t.points + start * t.r, t.weights + start, t.stops[leaf] - start, t.r,
                axis, t.leaf_means[leaf * t.r + axis], &others[0, 0],
            )
            if middle == start or middle == t.stops[leaf]:
                # equal but for rounding
                t.spreads[leaf] = 0.0
                sink(&t, size)
                continue
            t.starts[size], t.stops[size] = middle, t.stops[leaf]
            t.stops[leaf] = middle
            describe(&t, leaf)
            describe(&t, size)
            sink(&t, size)
            t.heap[size] = size
            size += 1
            rise(&t, size - 1)
    return size
