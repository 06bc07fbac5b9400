# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Relocation of single points between cells, in one pass over given rows.

The gain of moving a point from cell a to cell b follows from the change

    alpha v v' - beta u u',   alpha = w R / W_a,  beta = w W_b / (W_b + w),

of the retained information, with R = W_a - w the weight that stays, v the point
minus the mean of what stays and u the point minus the mean of b. A pass screens
every cell by the first-order gain in the metric G (the criterion's gradient), which
bounds the gain from above for a concave criterion, and evaluates the rest exactly.
"""

from libc.math cimport INFINITY, fabs, log1p, sqrt

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define SKQUANT_RESTRICT __restrict
    #else
    #define SKQUANT_RESTRICT __restrict__
    #endif

    /* The arrays never overlap, which Cython cannot say: y[i] -= a x[i]. */
    static inline void skquant_subtract(
        double* SKQUANT_RESTRICT y, const double* SKQUANT_RESTRICT x, double a,
        Py_ssize_t n)
    {
        for (Py_ssize_t i = 0; i < n; i++) y[i] -= a * x[i];
    }
    """
    void subtract "skquant_subtract"(
        double* y, const double* x, double a, Py_ssize_t n
    ) noexcept nogil

# Forms of the exact gain, shared with the Python side.
cdef enum:
    LINEAR = 0
    LOG_DET = 1
    INVERSE_TRACE = 2

# Rows heavier than this share of their cell get the mean of the others by summation:
# the difference W_a - w has no digits left.
cdef double DOMINANT = 1e-6


cdef struct State:
    Py_ssize_t n
    Py_ssize_t r
    Py_ssize_t k
    const double* points
    const double* weights
    const double* origin
    int* labels
    double* cell_weights
    double* cell_means
    int* cell_counts
    int form
    Py_ssize_t n_terms
    const double* coefficients
    const double* bases
    const int* ranks
    # scratch
    double* information
    double* inverses       # (n_terms, r, r)
    double* metric         # (r, r), G
    double* products       # (r, k), G mu
    double* squares        # (k,), mu' G mu
    double* inverse_weights  # (k,)
    double* distances      # (k,)
    double* u
    double* v
    double* block          # (r, r)
    double* half           # (r, r)
    double* kept           # (2, r)


cdef inline double quadratic(
    const double* matrix, const double* x, const double* y, Py_ssize_t r
) noexcept nogil:
    """x' M y."""
    cdef Py_ssize_t i, j
    cdef double total = 0.0, row
    for i in range(r):
        row = 0.0
        for j in range(r):
            row += matrix[i * r + j] * y[j]
        total += x[i] * row
    return total


cdef int invert(double* a, double* out, Py_ssize_t m, Py_ssize_t stride) noexcept nogil:
    """Invert a symmetric positive definite (m, m) matrix; 1 if it is singular.

    IN/OUT a (m, m) with row length m, overwritten by its Cholesky factor;
    OUT out (m, m) with row length stride.
    """
    cdef Py_ssize_t i, j, l
    cdef double total, scale
    for j in range(m):
        scale = a[j * m + j]
        total = scale
        for l in range(j):
            total -= a[j * m + l] * a[j * m + l]
        if not total > 1e-15 * scale:
            return 1
        total = sqrt(total)
        a[j * m + j] = total
        for i in range(j + 1, m):
            scale = a[i * m + j]
            for l in range(j):
                scale -= a[i * m + l] * a[j * m + l]
            a[i * m + j] = scale / total
    # the inverse factor, in the upper triangle of out, transposed
    for j in range(m):
        out[j * stride + j] = 1.0 / a[j * m + j]
        for i in range(j + 1, m):
            total = 0.0
            for l in range(j, i):
                total -= a[i * m + l] * out[j * stride + l]
            out[j * stride + i] = total / a[i * m + i]
    # out = (inverse factor)' (inverse factor)
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            for l in range(j, m):
                total += out[i * stride + l] * out[j * stride + l]
            a[i * m + j] = total
    for i in range(m):
        for j in range(i, m):
            out[i * stride + j] = a[i * m + j]
            out[j * stride + i] = a[i * m + j]
    return 0


cdef int refresh(State* s) noexcept nogil:
    """Recompute information, metric and products from the cells; 1 if singular."""
    cdef Py_ssize_t r = s.r, k = s.k, b, i, j, t, m, l
    cdef double weight, total
    cdef double* mean
    cdef const double* basis
    cdef double* inverse
    for i in range(r * r):
        s.information[i] = 0.0
    for b in range(k):
        mean = s.cell_means + b * r
        weight = s.cell_weights[b]
        s.inverse_weights[b] = 1.0 / weight
        for i in range(r):
            s.u[i] = mean[i] + s.origin[i]
        for i in range(r):
            total = weight * s.u[i]
            for j in range(i + 1):
                s.information[i * r + j] += total * s.u[j]
    for i in range(r):
        for j in range(i):
            s.information[j * r + i] = s.information[i * r + j]

    if s.form == LINEAR:
        for i in range(r * r):
            s.metric[i] = s.bases[i]
    elif s.form == INVERSE_TRACE:
        for i in range(r * r):
            s.block[i] = s.information[i]
        if invert(s.block, s.inverses, r, r):
            return 1
        for i in range(r):
            for j in range(r):
                total = 0.0
                for l in range(r):
                    total += s.inverses[i * r + l] * s.inverses[l * r + j]
                s.metric[i * r + j] = total
    else:
        for i in range(r * r):
            s.metric[i] = 0.0
        for t in range(s.n_terms):
            m = s.ranks[t]
            basis = s.bases + t * r * r      # (r, r), its first m columns count
            inverse = s.inverses + t * r * r
            if m == r:
                for i in range(r * r):
                    s.block[i] = s.information[i]
                if invert(s.block, inverse, r, r):
                    return 1
            else:
                # half = I Q, block = Q' I Q
                for i in range(r):
                    for j in range(m):
                        total = 0.0
                        for l in range(r):
                            total += s.information[i * r + l] * basis[l * r + j]
                        s.half[i * r + j] = total
                for i in range(m):
                    for j in range(m):
                        total = 0.0
                        for l in range(r):
                            total += basis[l * r + i] * s.half[l * r + j]
                        s.block[i * m + j] = total
                if invert(s.block, inverse, m, r):
                    return 1
                # half = Q block^-1, inverse = half Q'
                for i in range(r):
                    for j in range(m):
                        total = 0.0
                        for l in range(m):
                            total += basis[i * r + l] * inverse[l * r + j]
                        s.half[i * r + j] = total
                for i in range(r):
                    for j in range(r):
                        total = 0.0
                        for l in range(m):
                            total += s.half[i * r + l] * basis[j * r + l]
                        inverse[i * r + j] = total
            for i in range(r * r):
                s.metric[i] += s.coefficients[t] * inverse[i]

    for b in range(k):
        mean = s.cell_means + b * r
        weight = 0.0
        for i in range(r):
            total = 0.0
            for j in range(r):
                total += s.metric[i * r + j] * mean[j]
            s.products[i * k + b] = total
            weight += mean[i] * total
        s.squares[b] = weight
    return 0


cdef double remainder_of(State* s, Py_ssize_t row, double* v) noexcept nogil:
    """Weight that stays in the cell when the row leaves; OUT v, row minus its mean."""
    cdef Py_ssize_t i, p, r = s.r
    cdef int a = s.labels[row]
    cdef const double* x = s.points + row * r
    cdef double total = s.cell_weights[a]
    cdef double rest = total - s.weights[row]
    if rest >= DOMINANT * total:
        for i in range(r):
            v[i] = (x[i] - s.cell_means[a * r + i]) * (total / rest)
        return rest
    rest = 0.0
    for i in range(r):
        v[i] = 0.0
    for p in range(s.n):
        if s.labels[p] == a and p != row:
            rest += s.weights[p]
            for i in range(r):
                v[i] += s.weights[p] * (x[i] - s.points[p * r + i])
    for i in range(r):
        v[i] /= rest
    return rest


cdef double exact_gain(State* s, double alpha, double beta) noexcept nogil:
    """Gain of the move with vectors s.v (leaving) and s.u (arriving)."""
    cdef Py_ssize_t r = s.r, t
    cdef double q_vv, q_uu, q_uv, p_vv, p_uu, p_uv, small, total = 0.0, a, b, det
    if s.form == LINEAR:
        q_vv = quadratic(s.metric, s.v, s.v, r)
        q_uu = quadratic(s.metric, s.u, s.u, r)
        return alpha * q_vv - beta * q_uu
    if s.form == LOG_DET:
        for t in range(s.n_terms):
            q_vv = quadratic(s.inverses + t * r * r, s.v, s.v, r)
            q_uu = quadratic(s.inverses + t * r * r, s.u, s.u, r)
            q_uv = quadratic(s.inverses + t * r * r, s.u, s.v, r)
            small = alpha * q_vv - beta * q_uu
            small -= alpha * beta * (q_vv * q_uu - q_uv * q_uv)
            if small <= -1.0:
                return -INFINITY
            total += s.coefficients[t] * log1p(small)
        return total
    # minus the change of tr(I^-1): Woodbury with C = D^-1 + U' A U, D = (alpha, -beta)
    q_vv = quadratic(s.inverses, s.v, s.v, r)
    q_uu = quadratic(s.inverses, s.u, s.u, r)
    q_uv = quadratic(s.inverses, s.u, s.v, r)
    p_vv = quadratic(s.metric, s.v, s.v, r)
    p_uu = quadratic(s.metric, s.u, s.u, r)
    p_uv = quadratic(s.metric, s.u, s.v, r)
    # multiplied through by D, so that a vanishing weight divides nothing
    a = 1.0 + alpha * q_vv
    b = 1.0 - beta * q_uu
    det = a * b + alpha * beta * q_uv * q_uv
    if det <= 0.0:
        return -INFINITY
    return (
        alpha * b * p_vv - beta * a * p_uu + 2.0 * alpha * beta * q_uv * p_uv
    ) / det


cdef double screen(State* s, Py_ssize_t row, double rest, double* threshold) noexcept nogil:
    """Fill s.distances with q_b - threshold (1 + w / W_b), negative where the
    first-order gain is positive; OUT the threshold; return the smallest over other
    cells, less a guard for rounding."""
    cdef Py_ssize_t r = s.r, k = s.k, b, j
    cdef int a = s.labels[row]
    cdef const double* x = s.points + row * r
    cdef double* d = s.distances
    cdef double own = quadratic(s.metric, x, x, r)
    cdef double level, rate, best0 = INFINITY, best1 = INFINITY
    for b in range(k):
        d[b] = s.squares[b]
    for j in range(r):
        subtract(d, s.products + j * k, 2.0 * x[j], k)
    if rest >= DOMINANT * s.cell_weights[a]:
        level = (own + d[a]) * (s.cell_weights[a] / rest)
    else:
        level = quadratic(s.metric, s.v, s.v, r) * (rest / s.cell_weights[a])
    threshold[0] = level
    rate = level * s.weights[row]
    level -= own
    for b in range(k):
        d[b] -= level
    subtract(d, s.inverse_weights, rate, k)
    d[a] = INFINITY
    b = 0
    while b + 1 < k:
        best0 = d[b] if d[b] < best0 else best0
        best1 = d[b + 1] if d[b + 1] < best1 else best1
        b += 2
    if b < k and d[b] < best0:
        best0 = d[b]
    return (best0 if best0 < best1 else best1) - 1e-14 * (fabs(own) + fabs(level))


cdef void describe(
    State* s,
    const double[:, ::1] points,
    const double[::1] weights,
    const double[::1] origin,
    int[::1] labels,
    double[::1] cell_weights,
    double[:, ::1] cell_means,
    int[::1] cell_counts,
    int form,
    const double[::1] coefficients,
    const double[:, :, ::1] bases,
    const int[::1] ranks,
    double[::1] scratch,
) noexcept nogil:
    """Point the state at the arrays."""
    cdef Py_ssize_t r = points.shape[1], k = cell_weights.shape[0]
    cdef Py_ssize_t n_terms = coefficients.shape[0]
    cdef double* free = &scratch[0]
    s.n, s.r, s.k = points.shape[0], r, k
    s.points, s.weights, s.origin = &points[0, 0], &weights[0], &origin[0]
    s.labels, s.cell_weights = &labels[0], &cell_weights[0]
    s.cell_means, s.cell_counts = &cell_means[0, 0], &cell_counts[0]
    s.form, s.n_terms = form, n_terms
    s.coefficients, s.bases, s.ranks = &coefficients[0], &bases[0, 0, 0], &ranks[0]
    s.information = free
    free += r * r
    s.inverses = free
    free += n_terms * r * r
    s.metric = free
    free += r * r
    s.products = free
    free += r * k
    s.squares = free
    free += k
    s.inverse_weights = free
    free += k
    s.distances = free
    free += k
    s.u = free
    free += r
    s.v = free
    free += r
    s.block = free
    free += r * r
    s.half = free
    free += r * r
    s.kept = free


def scratch_size(Py_ssize_t r, Py_ssize_t k, Py_ssize_t n_terms):
    """Number of doubles that the functions of this module need as scratch."""
    return (4 + n_terms) * r * r + (r + 3) * k + 4 * r


def exchange_pass(
    const double[:, ::1] points,    # IN (n, r), relative to origin
    const double[::1] weights,      # IN (n,)
    const double[::1] origin,       # IN (r,)
    const int[::1] rows,            # IN rows to visit, in this order
    int[::1] labels,                # INOUT (n,)
    double[::1] cell_weights,       # INOUT (k,)
    double[:, ::1] cell_means,      # INOUT (k, r), relative to origin
    int[::1] cell_counts,           # INOUT (k,)
    int form,                       # IN
    const double[::1] coefficients,  # IN (t,)
    const double[:, :, ::1] bases,  # IN (t, r, r)
    const int[::1] ranks,           # IN (t,)
    double gain_tol,                # IN gain per unit of the row's weight
    double min_weight,              # IN weight that a cell must keep
    int most_passes,                # IN passes over the rows, fewer once none moves
    double[::1] slack,              # OUT (len(rows),) first-order distance to a move
    double[::1] scratch,            # scratch
):
    """Move every visited row to its best cell, at once, if that gains; repeat.

    Returns the number of moves, or -1 if the information is singular.
    """
    cdef State s
    cdef Py_ssize_t position, row, b, best, i, r = points.shape[1]
    cdef Py_ssize_t k = cell_weights.shape[0], moves = 0, before
    cdef int a, sweep
    cdef double weight, rest, threshold, nearest, guard, gain, best_gain, alpha, beta
    cdef double old_a, old_b
    cdef const double* x
    with nogil:
        describe(
            &s, points, weights, origin, labels, cell_weights, cell_means,
            cell_counts, form, coefficients, bases, ranks, scratch,
        )
        if refresh(&s):
            moves = -1
        else:
            for sweep in range(most_passes):
                before = moves
                for position in range(rows.shape[0]):
                    row = rows[position]
                    a = s.labels[row]
                    slack[position] = INFINITY
                    if s.cell_counts[a] == 1:
                        continue
                    weight = s.weights[row]
                    rest = s.cell_weights[a] - weight
                    if rest < min_weight:
                        continue
                    if rest < DOMINANT * s.cell_weights[a]:
                        rest = remainder_of(&s, row, s.v)
                    nearest = screen(&s, row, rest, &threshold)
                    slack[position] = nearest
                    if nearest >= 0.0:
                        continue
                    rest = remainder_of(&s, row, s.v)
                    alpha = weight * (rest / s.cell_weights[a])
                    x = s.points + row * r
                    best = -1
                    best_gain = gain_tol * weight
                    # cells within the guard of the screen
                    guard = 1e-14 * (
                        fabs(quadratic(s.metric, x, x, r)) + fabs(threshold)
                    ) * 2.0
                    for b in range(k):
                        if s.distances[b] >= guard:
                            continue
                        for i in range(r):
                            s.u[i] = x[i] - s.cell_means[b * r + i]
                        beta = weight * (
                            s.cell_weights[b] / (s.cell_weights[b] + weight)
                        )
                        gain = exact_gain(&s, alpha, beta)
                        if gain > best_gain:
                            best_gain = gain
                            best = b
                    if best < 0:
                        continue
                    old_a, old_b = s.cell_weights[a], s.cell_weights[best]
                    for i in range(r):
                        s.kept[i] = s.cell_means[a * r + i]
                        s.kept[r + i] = s.cell_means[best * r + i]
                        s.cell_means[a * r + i] = x[i] - s.v[i]
                        s.cell_means[best * r + i] += (
                            weight / (old_b + weight)
                        ) * (x[i] - s.cell_means[best * r + i])
                    s.cell_weights[a] = rest
                    s.cell_weights[best] = old_b + weight
                    if refresh(&s):
                        # singular to working precision: take the move back
                        s.cell_weights[a], s.cell_weights[best] = old_a, old_b
                        for i in range(r):
                            s.cell_means[a * r + i] = s.kept[i]
                            s.cell_means[best * r + i] = s.kept[r + i]
                        refresh(&s)
                        continue
                    moves += 1
                    s.labels[row] = <int> best
                    s.cell_counts[a] -= 1
                    s.cell_counts[best] += 1
                    slack[position] = -INFINITY
                if moves == before:
                    break
    return moves


def best_move(
    const double[:, ::1] points,
    const double[::1] weights,
    const double[::1] origin,
    int[::1] labels,
    double[::1] cell_weights,
    double[:, ::1] cell_means,
    int[::1] cell_counts,
    int form,
    const double[::1] coefficients,
    const double[:, :, ::1] bases,
    const int[::1] ranks,
    double min_weight,
    double[::1] scratch,
):
    """Return the largest gain of any allowed move, its row and its cell.

    Arguments as in ``exchange_pass``; nothing is moved. A move whose first-order
    gain is no larger than the best exact gain so far is not evaluated. The gain is
    -inf (row -1) without an allowed move, and +inf if the information is singular.
    """
    cdef State s
    cdef Py_ssize_t row, b, i, r = points.shape[1], k = cell_weights.shape[0]
    cdef Py_ssize_t best_row = -1, best_cell = -1
    cdef int a
    cdef double weight, rest, threshold, gain, alpha, beta, bound, best_gain = -INFINITY
    cdef const double* x
    with nogil:
        describe(
            &s, points, weights, origin, labels, cell_weights, cell_means,
            cell_counts, form, coefficients, bases, ranks, scratch,
        )
        if refresh(&s):
            best_gain = INFINITY
        else:
            for row in range(points.shape[0]):
                a = s.labels[row]
                if s.cell_counts[a] == 1:
                    continue
                weight = s.weights[row]
                if s.cell_weights[a] - weight < min_weight:
                    continue
                rest = remainder_of(&s, row, s.v)
                screen(&s, row, rest, &threshold)
                alpha = weight * (rest / s.cell_weights[a])
                x = s.points + row * r
                for b in range(k):
                    if b == a:
                        continue
                    beta = weight * (
                        s.cell_weights[b] / (s.cell_weights[b] + weight)
                    )
                    # the first-order gain, and what rounding may hide
                    bound = -beta * s.distances[b]
                    bound += 1e-14 * weight * (
                        fabs(quadratic(s.metric, x, x, r)) + fabs(threshold)
                    )
                    if bound <= best_gain:
                        continue
                    for i in range(r):
                        s.u[i] = x[i] - s.cell_means[b * r + i]
                    gain = exact_gain(&s, alpha, beta)
                    if gain > best_gain:
                        best_gain, best_row, best_cell = gain, row, b
    return best_gain, best_row, best_cell
