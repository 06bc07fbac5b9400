# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Cells of neighboring points: a table split again and again across its widest cell."""

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
    double* sums          # (2, r)


cdef void describe(Tree* t, Py_ssize_t leaf) noexcept nogil:
    """Set weight, mean, widest coordinate and spread of a leaf."""
    cdef Py_ssize_t r = t.r, row, j
    cdef double total = 0.0, offset, spread
    # relative to one of them: their differences have the digits
    cdef const double* first = t.points + t.starts[leaf] * r
    cdef const double* x
    for j in range(2 * r):
        t.sums[j] = 0.0
    for row in range(t.starts[leaf], t.stops[leaf]):
        x = t.points + row * r
        total += t.weights[row]
        for j in range(r):
            offset = x[j] - first[j]
            t.sums[j] += t.weights[row] * offset
            t.sums[r + j] += t.weights[row] * offset * offset
    t.leaf_weights[leaf] = total
    t.spreads[leaf] = 0.0
    t.axes[leaf] = 0
    for j in range(r):
        offset = t.sums[j] / total
        t.leaf_means[leaf * r + j] = first[j] + offset
        spread = t.sums[r + j] - offset * t.sums[j]
        if spread > t.spreads[leaf]:
            t.spreads[leaf] = spread
            t.axes[leaf] = j


cdef Py_ssize_t partition(Tree* t, Py_ssize_t leaf) noexcept nogil:
    """Put the points of a leaf below its mean first; return the first of the others."""
    cdef Py_ssize_t r = t.r, axis = t.axes[leaf], j
    cdef Py_ssize_t low = t.starts[leaf], high = t.stops[leaf] - 1
    cdef double level = t.leaf_means[leaf * r + axis]
    cdef double* a
    cdef double* b
    while True:
        while low <= high and t.points[low * r + axis] < level:
            low += 1
        while low <= high and not t.points[high * r + axis] < level:
            high -= 1
        if low > high:
            return low
        a, b = t.points + low * r, t.points + high * r
        for j in range(r):
            a[j], b[j] = b[j], a[j]
        t.weights[low], t.weights[high] = t.weights[high], t.weights[low]


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
    double[::1] scratch,            # scratch (m + 2 r,)
):
    """Split the leaf of the widest coordinate at its mean, until there are m leaves.

    Returns the number of leaves, fewer than m if there are no more distinct points.
    """
    cdef Tree t
    cdef Py_ssize_t most = leaf_weights.shape[0], size = 1, leaf, middle
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
            middle = partition(&t, leaf)
            if middle == t.starts[leaf] or middle == t.stops[leaf]:
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
