# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Exact one-dimensional quantization: costs of intervals and row minima.

The cost of an interval is its weighted sum of squares about its own mean, from
prefix sums. Prefix sums are kept as unevaluated sums of two doubles, and a cost whose
digits cancel is computed in that arithmetic: far outliers and heavy rows cost no
digits.
"""

from libc.math cimport INFINITY

# Below this share of the interval's raw second moment a cost is computed again in
# double-double.
cdef double CANCELLED = 1e-5

cdef enum:
    BLOCK = 64


cdef inline double two_sum(double a, double b, double* error) noexcept nogil:
    cdef double total = a + b
    cdef double part = total - a
    error[0] = (a - (total - part)) + (b - part)
    return total


cdef inline double two_product(double a, double b, double* error) noexcept nogil:
    cdef double product = a * b
    cdef double split = 134217729.0 * a
    cdef double a_high = split - (split - a)
    cdef double a_low = a - a_high
    split = 134217729.0 * b
    cdef double b_high = split - (split - b)
    cdef double b_low = b - b_high
    error[0] = ((a_high * b_high - product) + a_high * b_low + a_low * b_high)
    error[0] += a_low * b_low
    return product


cdef inline void add(double* high, double* low, double a, double b) noexcept nogil:
    """Add a + b to the pair."""
    cdef double error
    high[0] = two_sum(high[0], a, &error)
    low[0] += error + b


def prefix_sums(
    const double[::1] values,     # IN (n,), ascending
    const double[::1] weights,    # IN (n,)
    double[:, ::1] prefix,        # OUT (n + 1, 6): w, wx, wxx, each high and low
):
    """Fill prefix sums of weights, first and second moments."""
    cdef Py_ssize_t i, p, n = values.shape[0]
    cdef double high[3]
    cdef double low[3]
    cdef double moment, error, square, error2
    with nogil:
        for p in range(3):
            high[p] = 0.0
            low[p] = 0.0
            prefix[0, 2 * p] = 0.0
            prefix[0, 2 * p + 1] = 0.0
        for i in range(n):
            moment = two_product(weights[i], values[i], &error)
            square = two_product(moment, values[i], &error2)
            add(&high[0], &low[0], weights[i], 0.0)
            add(&high[1], &low[1], moment, error)
            add(&high[2], &low[2], square, error2 + error * values[i])
            for p in range(3):
                prefix[i + 1, 2 * p] = high[p]
                prefix[i + 1, 2 * p + 1] = low[p]


cdef double cancelled_cost(const double* start, const double* end) noexcept nogil:
    """The cost in double-double."""
    cdef double w, w_low, m, m_low, q, q_low, top, top_low, ratio, back, back_low, rest
    w = two_sum(end[0], -start[0], &w_low)
    m = two_sum(end[2], -start[2], &m_low)
    q = two_sum(end[4], -start[4], &q_low)
    w = two_sum(w, w_low + (end[1] - start[1]), &w_low)
    m = two_sum(m, m_low + (end[3] - start[3]), &m_low)
    q = two_sum(q, q_low + (end[5] - start[5]), &q_low)
    top = two_product(m, m, &top_low)
    top_low += 2.0 * m * m_low
    ratio = top / w
    back = two_product(ratio, w, &back_low)
    rest = ((top - back) - back_low + top_low - ratio * w_low) / w
    rest = (q - ratio) + (q_low - rest)
    return rest if rest > 0.0 else 0.0


cdef inline double interval_cost(
    const double* prefix, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    """Weighted squares of values i..j-1 about their mean."""
    cdef const double* start = prefix + 6 * i
    cdef const double* end = prefix + 6 * j
    cdef double w = (end[0] - start[0]) + (end[1] - start[1])
    cdef double m = (end[2] - start[2]) + (end[3] - start[3])
    cdef double q = (end[4] - start[4]) + (end[5] - start[5])
    cdef double cost = q - m * m / w
    if cost > CANCELLED * q:
        return cost
    return cancelled_cost(start, end)


cdef inline double entry(
    const double* prefix, const double* previous, Py_ssize_t end, Py_ssize_t row,
    Py_ssize_t column
) noexcept nogil:
    """Cost of the first ``row`` values with the last interval from ``column`` on, which
    has to lie before ``end``."""
    if column >= end:
        return INFINITY
    return previous[column] + interval_cost(prefix, column, row)


def first_layer(const double[:, ::1] prefix, double[::1] costs):
    """Costs of one interval over the first j values; OUT costs (n + 1,)."""
    cdef Py_ssize_t j
    with nogil:
        costs[0] = 0.0
        for j in range(1, prefix.shape[0]):
            costs[j] = interval_cost(&prefix[0, 0], 0, j)


def reduce_columns(
    const double[:, ::1] prefix,   # IN
    const double[::1] previous,       # IN (n + 1,)
    Py_ssize_t first_row,             # IN rows are first_row, first_row + step, ...
    Py_ssize_t step,                  # IN
    Py_ssize_t n_rows,                # IN
    const int[::1] columns,           # IN ascending
    const int[::1] ends,              # IN (n + 1,) first column a row may not have,
                                      # ascending and at most the row
    int[::1] kept,                    # OUT (n_rows,) columns that may hold a minimum
):
    """Drop columns without a row minimum (totally monotone matrix); return how many
    are kept."""
    cdef Py_ssize_t c, top = 0, row
    cdef int column
    cdef const double* p = &prefix[0, 0]
    cdef const double* old = &previous[0]
    with nogil:
        for c in range(columns.shape[0]):
            column = columns[c]
            while top > 0:
                row = first_row + (top - 1) * step
                if entry(p, old, ends[row], row, kept[top - 1]) <= entry(
                    p, old, ends[row], row, column
                ):
                    break
                top -= 1
            if top < n_rows:
                kept[top] = column
                top += 1
    return top


def fill_minima(
    const double[:, ::1] prefix,
    const double[::1] previous,
    Py_ssize_t first_row,             # IN rows are first_row, first_row + step, ...
    Py_ssize_t step,
    Py_ssize_t n_rows,
    const int[::1] columns,           # IN
    const int[::1] ends,              # IN (n + 1,)
    double[::1] costs,                # OUT (n + 1,), minimum of each row
    int[::1] argmin,                  # INOUT (n + 1,), its column
):
    """Find the minima of every other row, given those of the rows between them."""
    cdef Py_ssize_t r, c = 0, row
    cdef Py_ssize_t last = columns.shape[0] - 1
    cdef double best, value
    cdef int best_column, limit
    cdef const double* p = &prefix[0, 0]
    cdef const double* old = &previous[0]
    with nogil:
        for r in range(0, n_rows, 2):
            row = first_row + r * step
            # the next row's minimum bounds this one's from the right
            limit = argmin[row + step] if r + 1 < n_rows else columns[last]
            best = INFINITY
            best_column = columns[c]
            while True:
                value = entry(p, old, ends[row], row, columns[c])
                if value < best:
                    best = value
                    best_column = columns[c]
                if columns[c] >= limit or c == last:
                    break
                c += 1
            costs[row] = best
            argmin[row] = best_column


cdef inline bint is_allowed(
    const double* sums, const double* least, Py_ssize_t n_columns, Py_ssize_t i,
    Py_ssize_t from_squares, Py_ssize_t j
) noexcept nogil:
    """Whether values i..j-1 have enough weight, and effective entries with the squares
    of those from another value on."""
    cdef Py_ssize_t c
    cdef const double* start = sums + 2 * n_columns * i
    cdef const double* squares = sums + 2 * n_columns * from_squares
    cdef const double* end = sums + 2 * n_columns * j
    cdef double weight
    for c in range(n_columns):
        weight = end[c] - start[c]
        if weight < least[c] or not weight > 0.0:
            return False
        if weight * weight < least[n_columns + c] * (
            end[n_columns + c] - squares[n_columns + c]
        ):
            return False
    return True


def narrow_ends(
    const double[:, :, ::1] sums,     # IN (n + 1, 2, c) prefix sums, weights, squares
    const double[:, ::1] least,       # IN (2, c) least weight and effective entries
    int[::1] first,                   # INOUT (n + 1,) columns below are allowed
    int[::1] last,                    # INOUT (n + 1,) columns from there on are not
):
    """Move the ends of each row to a column that is not allowed and one that is.

    Blocks of columns are passed over at once where the least weight with the most
    squares is allowed, or the most weight with the least squares is not.
    """
    cdef Py_ssize_t row, column, c = sums.shape[2]
    cdef const double* s = &sums[0, 0, 0]
    cdef const double* l = &least[0, 0]
    with nogil:
        for row in range(1, sums.shape[0]):
            column = first[row]
            while column < last[row]:
                if column + BLOCK <= last[row] and is_allowed(
                    s, l, c, column + BLOCK - 1, column, row
                ):
                    column += BLOCK
                elif is_allowed(s, l, c, column, column, row):
                    column += 1
                else:
                    break
            first[row] = <int> column
            column = last[row]
            while column > first[row]:
                if column - BLOCK >= first[row] and not is_allowed(
                    s, l, c, column - BLOCK, column - 1, row
                ):
                    column -= BLOCK
                elif not is_allowed(s, l, c, column - 1, column - 1, row):
                    column -= 1
                else:
                    break
            last[row] = <int> column


def fill_between(
    const double[:, ::1] prefix,      # IN
    const double[::1] previous,       # IN (n + 1,)
    const double[:, :, ::1] sums,     # IN (n + 1, 2, c) prefix sums, weights, squares
    const double[:, ::1] least,       # IN (2, c) least weight and effective entries
    const int[::1] first,             # IN (n + 1,) columns below are allowed
    const int[::1] last,              # IN (n + 1,) columns from there on are not
    Py_ssize_t first_row,             # IN
    double[::1] costs,                # INOUT (n + 1,), minimum of each row
    int[::1] argmin,                  # INOUT (n + 1,), its column
):
    """Look at the columns of which each has to be asked whether it is allowed."""
    cdef Py_ssize_t row, column
    cdef double value
    with nogil:
        for row in range(first_row, prefix.shape[0]):
            for column in range(first[row], last[row]):
                if not previous[column] < costs[row]:
                    continue
                if not is_allowed(
                    &sums[0, 0, 0], &least[0, 0], sums.shape[2], column, column, row
                ):
                    continue
                value = previous[column] + interval_cost(&prefix[0, 0], column, row)
                if value < costs[row]:
                    costs[row] = value
                    argmin[row] = <int> column


def most_intervals(
    const double[:, :, ::1] sums,     # IN (n + 1, 2, c)
    const double[:, ::1] least,       # IN (2, c)
    const int[::1] first,             # IN (n + 1,)
    const int[::1] last,              # IN (n + 1,)
    int[::1] counts,                  # OUT (n + 1,) most allowed intervals, -1 without
):
    """Count how many allowed intervals the first values can be cut into, at most."""
    cdef Py_ssize_t row, column, seen = 0
    cdef int best = -1, count
    with nogil:
        counts[0] = 0
        for row in range(1, sums.shape[0]):
            while seen < first[row]:
                best = counts[seen] if counts[seen] > best else best
                seen += 1
            count = best
            for column in range(first[row], last[row]):
                if counts[column] > count and is_allowed(
                    &sums[0, 0, 0], &least[0, 0], sums.shape[2], column, column, row
                ):
                    count = counts[column]
            counts[row] = count + 1 if count >= 0 else -1
