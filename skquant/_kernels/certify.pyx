# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Branch and bound over labelings of atoms, depth first, resumable.

With every unassigned atom a cell of its own, the retained information is the full one
minus ``u u'`` for every merge so far, where ``u = sqrt(W w / (W + w)) (s - mu)`` for an
atom ``(s, w)`` that joins a cell ``(W, mu)``. No completion exceeds it. All state is
in the caller's arrays, so that a search stops after any number of nodes and goes on.
"""

from libc.math cimport INFINITY, fabs, pow, sqrt

cdef double EPSILON = 2.220446049250313e-16


cdef void eigenvalues(double* a, double* out, Py_ssize_t r) noexcept nogil:
    """Fill the eigenvalues of a symmetric matrix, by Jacobi rotations; destroys it."""
    cdef Py_ssize_t i, j, k, _sweep
    cdef double half, root, off, total, theta, t, c, s, x, y
    if r == 2:
        half = 0.5 * (a[0] - a[3])
        root = sqrt(half * half + a[1] * a[1])
        x = 0.5 * (a[0] + a[3])
        out[0] = x - root
        out[1] = x + root
        return
    for _sweep in range(60):
        off = 0.0
        total = 0.0
        for i in range(r):
            for j in range(r):
                total += a[i * r + j] * a[i * r + j]
                if i != j:
                    off += a[i * r + j] * a[i * r + j]
        if off <= EPSILON * EPSILON * total:
            break
        for i in range(r - 1):
            for j in range(i + 1, r):
                if a[i * r + j] == 0.0:
                    continue
                theta = (a[j * r + j] - a[i * r + i]) / (2.0 * a[i * r + j])
                t = 1.0 / (fabs(theta) + sqrt(theta * theta + 1.0))
                if theta < 0.0:
                    t = -t
                c = 1.0 / sqrt(t * t + 1.0)
                s = t * c
                for k in range(r):
                    x = a[k * r + i]
                    y = a[k * r + j]
                    a[k * r + i] = c * x - s * y
                    a[k * r + j] = s * x + c * y
                for k in range(r):
                    x = a[i * r + k]
                    y = a[j * r + k]
                    a[i * r + k] = c * x - s * y
                    a[j * r + k] = s * x + c * y
    for i in range(r):
        out[i] = a[i * r + i]


cdef double pivot_product(double* a, Py_ssize_t r, Py_ssize_t first) noexcept nogil:
    """Product of the pivots from ``first`` on; 0 for a singular matrix."""
    cdef Py_ssize_t i, j, k
    cdef double product = 1.0, pivot, factor, floor
    for k in range(r):
        pivot = a[k * r + k]
        floor = 1e3 * EPSILON * r
        if not pivot > floor:
            return 0.0
        if k >= first:
            product *= pivot
        for i in range(k + 1, r):
            factor = a[i * r + k] / pivot
            for j in range(k + 1, i + 1):
                a[i * r + j] -= factor * a[j * r + k]
    return product


cdef double power_mean(double* values, Py_ssize_t r, double power) noexcept nogil:
    cdef Py_ssize_t i
    cdef double smallest = values[0], largest = values[0], unit, total = 0.0
    for i in range(1, r):
        smallest = min(smallest, values[i])
        largest = max(largest, values[i])
    if power <= 0.0 and not smallest > 1e3 * EPSILON * r:
        return 0.0
    if power == -INFINITY:
        return smallest
    if power == -1.0:
        for i in range(r):
            total += 1.0 / values[i]
        return r / total
    unit = smallest if power < 0.0 else largest
    for i in range(r):
        total += pow(max(values[i], 0.0) / unit, power)
    return unit * pow(total / r, 1.0 / power)


cdef double merit(
    double* a, double* work, Py_ssize_t r, int form, Py_ssize_t first, double power
) noexcept nogil:
    """Increasing function of the efficiency of a matrix, which it destroys."""
    cdef Py_ssize_t i
    cdef double total = 0.0
    if form == 0:
        for i in range(r):
            total += a[i * r + i]
        return total / r
    if form == 1:
        return pivot_product(a, r, first)
    eigenvalues(a, work, r)
    return power_mean(work, r, power)


cdef void merge(
    const double* matrix, double* out, const double* x, double w, double W,
    const double* mean, Py_ssize_t r,
) noexcept nogil:
    """Subtract from the bound's matrix what joining a cell loses."""
    cdef Py_ssize_t i, j
    cdef double factor = W * w / (W + w), row
    for i in range(r):
        row = factor * (x[i] - mean[i])
        for j in range(r):
            out[i * r + j] = matrix[i * r + j] - row * (x[j] - mean[j])


def search(
    const double[:, ::1] points,      # IN (n, r), in the order of assignment
    const double[::1] weights,        # IN (n,)
    int form,                         # IN 0 trace, 1 determinant, 2 power mean
    Py_ssize_t first,                 # IN pivots before it do not count (form 1)
    double power,                     # IN of the mean (form 2)
    double tolerance,                 # IN relative; smaller improvements do not count
    long long max_nodes,              # IN bounds to evaluate in this call
    double[:, :, ::1] matrices,       # INOUT (n + 1, r, r); the first is the full one
    double[::1] cell_weights,         # INOUT (K,)
    double[:, ::1] cell_means,        # INOUT (K, r)
    double[::1] saved_weights,        # INOUT (n,)
    double[:, ::1] saved_means,       # INOUT (n, r)
    int[:, ::1] children,             # INOUT (n, K): cells, best bound first
    double[:, ::1] bounds,            # INOUT (n, K)
    int[::1] n_children,              # INOUT (n + 1,): -1 before expansion
    int[::1] position,                # INOUT (n,): child that is being searched
    int[::1] n_cells,                 # INOUT (n + 1,): cells in use
    int[::1] best_labels,             # INOUT (n,)
    double[::1] best,                 # INOUT (1,): merit of best_labels
    Py_ssize_t[::1] depth,            # INOUT (1,)
    double[::1] scratch,              # OUT (r * r + r,)
):
    """Search on; return the number of nodes, and whether the tree is exhausted."""
    cdef Py_ssize_t n = points.shape[0], r = points.shape[1], t = depth[0]
    cdef Py_ssize_t k = cell_weights.shape[0], b, c, i, last
    cdef long long nodes = 0
    cdef bint done = False
    cdef double value, W, w, total
    cdef double* work = &scratch[0]
    with nogil:
        while nodes < max_nodes and not done:
            if t < n and n_children[t] < 0:
                n_children[t] = 0
                position[t] = 0
                last = min(n_cells[t] + 1, k)
                for b in range(last):
                    nodes += 1
                    if b < n_cells[t]:
                        merge(
                            &matrices[t, 0, 0], work, &points[t, 0], weights[t],
                            cell_weights[b], &cell_means[b, 0], r,
                        )
                    else:
                        for i in range(r * r):
                            work[i] = (&matrices[t, 0, 0])[i]
                    value = merit(work, work + r * r, r, form, first, power)
                    if not value > best[0] * (1.0 + tolerance):
                        continue
                    c = n_children[t]
                    while c > 0 and bounds[t, c - 1] < value:
                        bounds[t, c] = bounds[t, c - 1]
                        children[t, c] = children[t, c - 1]
                        c -= 1
                    bounds[t, c] = value
                    children[t, c] = b
                    n_children[t] += 1
            if (
                t < n
                and position[t] < n_children[t]
                and bounds[t, position[t]] > best[0] * (1.0 + tolerance)
            ):
                b = children[t, position[t]]
                w = weights[t]
                W = cell_weights[b] if b < n_cells[t] else 0.0
                if b < n_cells[t]:
                    merge(
                        &matrices[t, 0, 0], &matrices[t + 1, 0, 0], &points[t, 0], w,
                        W, &cell_means[b, 0], r,
                    )
                else:
                    for i in range(r * r):
                        (&matrices[t + 1, 0, 0])[i] = (&matrices[t, 0, 0])[i]
                saved_weights[t] = W
                total = W + w
                cell_weights[b] = total
                for i in range(r):
                    saved_means[t, i] = cell_means[b, i]
                    if W > 0.0:
                        cell_means[b, i] += (
                            w / total * (points[t, i] - cell_means[b, i])
                        )
                    else:
                        cell_means[b, i] = points[t, i]
                n_cells[t + 1] = n_cells[t] + (b == n_cells[t])
                t += 1
                n_children[t] = -1
                if t < n:
                    continue
                # a leaf is its own bound, and better than the best so far
                best[0] = bounds[n - 1, position[n - 1]]
                for i in range(n):
                    best_labels[i] = children[i, position[i]]
            if t == 0:
                done = True
                break
            t -= 1
            b = children[t, position[t]]
            cell_weights[b] = saved_weights[t]
            for i in range(r):
                cell_means[b, i] = saved_means[t, i]
            position[t] += 1
    depth[0] = t
    return nodes, done
