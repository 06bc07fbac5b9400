# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Relocation of single points between cells, in passes over a table.

The gain of moving a point from cell a to cell b follows from the change

    alpha v v' - beta u u',   alpha = w R / W_a,  beta = w W_b / (W_b + w),

of the retained information, with R = W_a - w the weight that stays, v the point
minus the mean of what stays and u the point minus the mean of b. A pass screens
every cell by the first-order gain in the metric G (the criterion's gradient), which
bounds the gain from above for a concave criterion, and evaluates the rest exactly.

A row that was found far from a boundary is left out until the cells have drifted that
far: each block of rows keeps the state of the cells at its last visit, and what has
changed since bounds how much nearer a boundary can be.
"""

from libc.math cimport INFINITY, NAN, fabs, fmax, fmin, isnan, log, log1p, sqrt
from libc.string cimport memcpy

import numpy as np

cdef extern from "argmax.h":
    void argmax_lanes "skquant_argmax_lanes"(
        const double* points, const double* coef, const double* intercept,
        Py_ssize_t d, Py_ssize_t k, double* x, double* largest, double* where
    ) noexcept nogil

cdef extern from "lanes.h":
    const double* fill_lanes "skquant_fill_lanes"(
        const double* points, Py_ssize_t n, Py_ssize_t d, double* filled
    ) noexcept nogil

cdef extern from "moments.h":
    void add_moments "skquant_add_moments"(
        const double* points, const double* weights, const int* labels, Py_ssize_t n,
        Py_ssize_t r, double* cell_weights, double* moments
    ) noexcept nogil

cdef extern from *:
    """
    #include <math.h>

    /* Rows heavier than all but this share of their cell get the mean of the others by
       summation: the difference W_a - w has no digits left. */
    #define SKQUANT_DOMINANT 1e-6

    /* Share of the terms of a first-order gain that rounding may hide. */
    #define SKQUANT_ROUNDING 1e-14

    /* Smallest q_b - level (1 + w / W_b) over the cells b other than its own, less what
       rounding may hide, for eight points at once: the loops over lanes are what
       compilers vectorize. Infinite for a point that must stay, NaN for one that
       weighs nearly all of its cell.
       IN points (lanes, r), weights, labels (lanes,), G (r, r), mu'Gmu (k,),
       2 G mu (r, k), W, 1 / W and least weight for leaving (k,); OUT nearest.
       Returns whether any is negative or NaN. */
    SKQUANT_INLINE int skquant_screen_known(
        const double* SKQUANT_RESTRICT points, const double* SKQUANT_RESTRICT weights,
        const int* SKQUANT_RESTRICT labels, const double* SKQUANT_RESTRICT metric,
        const double* SKQUANT_RESTRICT squares,
        const double* SKQUANT_RESTRICT products,
        const double* SKQUANT_RESTRICT cell_weights,
        const double* SKQUANT_RESTRICT inverse_weights,
        const double* SKQUANT_RESTRICT least, const Py_ssize_t r, const Py_ssize_t k,
        double* SKQUANT_RESTRICT x, double* SKQUANT_RESTRICT nearest)
    {
        double own[SKQUANT_LANES], level[SKQUANT_LANES], rate[SKQUANT_LANES];
        double cell[SKQUANT_LANES], total[SKQUANT_LANES], guard[SKQUANT_LANES];
        double best[SKQUANT_LANES], d[SKQUANT_LANES], stays[SKQUANT_LANES];
        for (int l = 0; l < SKQUANT_LANES; l++) {
            const int a = labels[l];
            cell[l] = (double) a;
            total[l] = cell_weights[a];
            level[l] = squares[a];
            stays[l] = least[a];
            for (Py_ssize_t j = 0; j < r; j++) {
                x[j * SKQUANT_LANES + l] = points[l * r + j];
                level[l] -= points[l * r + j] * products[j * k + a];
            }
        }
        SKQUANT_EACH_LANE own[l] = 0.0;
        for (Py_ssize_t i = 0; i < r; i++) {
            SKQUANT_EACH_LANE d[l] = 0.0;
            for (Py_ssize_t j = 0; j < r; j++)
                SKQUANT_EACH_LANE
                    d[l] += metric[i * r + j] * x[j * SKQUANT_LANES + l];
            SKQUANT_EACH_LANE
                own[l] += d[l] * x[i * SKQUANT_LANES + l];
        }
        SKQUANT_EACH_LANE {
            const double rest = total[l] - weights[l];
            level[l] = (own[l] + level[l]) * (total[l] / rest);
            rate[l] = level[l] * weights[l];
            guard[l] = SKQUANT_ROUNDING * (fabs(own[l]) + fabs(level[l]));
            guard[l] = rest < SKQUANT_DOMINANT * total[l] ? NAN : guard[l];
            guard[l] = rest < stays[l] ? -INFINITY : guard[l];
            level[l] -= own[l];
            best[l] = INFINITY;
        }
        for (Py_ssize_t b = 0; b < k; b++) {
            const double square = squares[b], inverse = inverse_weights[b];
            const double index = (double) b;
            SKQUANT_EACH_LANE
                d[l] = square - level[l] - rate[l] * inverse;
            for (Py_ssize_t j = 0; j < r; j++)
                SKQUANT_EACH_LANE
                    d[l] -= products[j * k + b] * x[j * SKQUANT_LANES + l];
            SKQUANT_EACH_LANE {
                const double other = cell[l] == index ? INFINITY : d[l];
                best[l] = other < best[l] ? other : best[l];
            }
        }
        int any = 0;
        SKQUANT_EACH_LANE d[l] = best[l] - guard[l];
        for (int l = 0; l < SKQUANT_LANES; l++) {
            nearest[l] = d[l];
            any |= !(d[l] >= 0.0);
        }
        return any;
    }

    /* A known number of coordinates keeps the sums in registers. */
    #define SKQUANT_KNOWN(R) case R: return skquant_screen_known( \\
        points, weights, labels, metric, squares, products, cell_weights, \\
        inverse_weights, least, R, k, x, nearest);

    SKQUANT_CLONES
    static int skquant_screen_lanes(
        const double* points, const double* weights, const int* labels,
        const double* metric, const double* squares, const double* products,
        const double* cell_weights, const double* inverse_weights,
        const double* least, Py_ssize_t r, Py_ssize_t k, double* x, double* nearest)
    {
        switch (r) {
            SKQUANT_KNOWN(1) SKQUANT_KNOWN(2) SKQUANT_KNOWN(3) SKQUANT_KNOWN(4)
            SKQUANT_KNOWN(5) SKQUANT_KNOWN(6) SKQUANT_KNOWN(7) SKQUANT_KNOWN(8)
            default: return skquant_screen_known(
                points, weights, labels, metric, squares, products, cell_weights,
                inverse_weights, least, r, k, x, nearest);
        }
    }

    /* More than the rounding of a float. */
    #define SKQUANT_FLOAT_ROUNDING 2e-7

    /* How much nearer a boundary can be after a change of the cells: a polynomial in
       the norm of the point. */
    typedef struct { double constant, linear, square; } skquant_drift;

    SKQUANT_INLINE double skquant_drift_of(const skquant_drift drift, const double size)
    {
        return drift.constant + size * (drift.linear + size * drift.square);
    }

    /* The rows of at most eight points that may be nearer to a boundary than the
       drift; INOUT row, the first one to look at; scratch rows, twice as many.
       Returns their number. */
    SKQUANT_CLONES
    static Py_ssize_t skquant_near_rows(
        const float* SKQUANT_RESTRICT slack, const float* SKQUANT_RESTRICT sizes,
        const skquant_drift drift, Py_ssize_t* row, const Py_ssize_t stop,
        Py_ssize_t* SKQUANT_RESTRICT rows)
    {
        const float up = (float) (1.0 + 5.0 * SKQUANT_FLOAT_ROUNDING);
        const float constant = up * (float) drift.constant;
        const float linear = up * (float) drift.linear;
        const float square = up * (float) drift.square;
        Py_ssize_t n = 0, i = *row;
        for (; i + SKQUANT_LANES <= stop && n < SKQUANT_LANES; i += SKQUANT_LANES) {
            int near[SKQUANT_LANES], any = 0;
            SKQUANT_EACH_LANE {
                const float size = sizes[i + l];
                near[l] = !(slack[i + l] > constant + size * (linear + size * square));
            }
            for (int l = 0; l < SKQUANT_LANES; l++) any |= near[l];
            if (any) {
                for (int l = 0; l < SKQUANT_LANES; l++) {
                    rows[n] = i + l;
                    n += near[l];
                }
            }
        }
        for (; i < stop && n < SKQUANT_LANES; i++) {
            rows[n] = i;
            n += !(slack[i] > constant + sizes[i] * (linear + sizes[i] * square));
        }
        *row = n > SKQUANT_LANES ? rows[SKQUANT_LANES] : i;
        return n < SKQUANT_LANES ? n : SKQUANT_LANES;
    }

    /* Keep the distances of eight points, less a drift; NaN of a point that must stay,
       for it may be free later. */
    SKQUANT_INLINE void skquant_keep_slack(
        const double* SKQUANT_RESTRICT nearest, const float* SKQUANT_RESTRICT sizes,
        const skquant_drift drift, const Py_ssize_t* rows, const Py_ssize_t n,
        float* SKQUANT_RESTRICT slack)
    {
        for (Py_ssize_t l = 0; l < n; l++) {
            const Py_ssize_t i = rows[l];
            slack[i] = (float) (nearest[l] - skquant_drift_of(drift, sizes[i]));
            slack[i] = nearest[l] < INFINITY ? slack[i] : NAN;
        }
    }

    /* Take a drift off the slack of n points. */
    SKQUANT_CLONES
    static void skquant_take_off(
        float* SKQUANT_RESTRICT slack, const float* SKQUANT_RESTRICT sizes,
        const skquant_drift drift, const Py_ssize_t n)
    {
        for (Py_ssize_t i = 0; i < n; i++)
            slack[i] = (float) (slack[i] * (1.0 - SKQUANT_FLOAT_ROUNDING)
                - skquant_drift_of(drift, sizes[i]));
    }

    /* What the lanes hold of one point, cells side by side. OUT out (k,). */
    SKQUANT_CLONES
    static void skquant_distances(
        const double* SKQUANT_RESTRICT x, double level, double rate,
        const double* SKQUANT_RESTRICT squares,
        const double* SKQUANT_RESTRICT products,
        const double* SKQUANT_RESTRICT inverse_weights, Py_ssize_t r, Py_ssize_t k,
        double* SKQUANT_RESTRICT out)
    {
        for (Py_ssize_t b = 0; b < k; b++)
            out[b] = squares[b] - level - rate * inverse_weights[b];
        for (Py_ssize_t j = 0; j < r; j++) {
            const double entry = x[j];
            const double* row = products + j * k;
            for (Py_ssize_t b = 0; b < k; b++) out[b] -= row[b] * entry;
        }
    }

    /* M x and x'M x, coordinates side by side. IN M (r, r), symmetric; OUT out (r,). */
    SKQUANT_INLINE double skquant_multiply(
        const double* SKQUANT_RESTRICT matrix, const double* SKQUANT_RESTRICT x,
        Py_ssize_t r, double* SKQUANT_RESTRICT out)
    {
        double total = 0.0;
        for (Py_ssize_t j = 0; j < r; j++) out[j] = matrix[j] * x[0];
        for (Py_ssize_t i = 1; i < r; i++) {
            const double entry = x[i];
            const double* SKQUANT_RESTRICT row = matrix + i * r;
            for (Py_ssize_t j = 0; j < r; j++) out[j] += row[j] * entry;
        }
        for (Py_ssize_t j = 0; j < r; j++) total += out[j] * x[j];
        return total;
    }

    /* 2 G mu (r, k) and mu'Gmu (k,) of all cells. IN G (r, r), means (r, k). */
    SKQUANT_CLONES
    static void skquant_project_cells(
        const double* SKQUANT_RESTRICT metric, const double* SKQUANT_RESTRICT means,
        Py_ssize_t r, Py_ssize_t k, double* SKQUANT_RESTRICT products,
        double* SKQUANT_RESTRICT squares)
    {
        for (Py_ssize_t b = 0; b < k; b++) squares[b] = 0.0;
        for (Py_ssize_t i = 0; i < r; i++) {
            double* row = products + i * k;
            for (Py_ssize_t b = 0; b < k; b++) row[b] = 0.0;
            for (Py_ssize_t j = 0; j < r; j++) {
                const double entry = metric[i * r + j];
                const double* mean = means + j * k;
                for (Py_ssize_t b = 0; b < k; b++) row[b] += entry * mean[b];
            }
            for (Py_ssize_t b = 0; b < k; b++) {
                squares[b] += means[i * k + b] * row[b];
                row[b] *= 2.0;
            }
        }
    }
    """
    int screen_lanes "skquant_screen_lanes"(
        const double* points, const double* weights, const int* labels,
        const double* metric, const double* squares, const double* products,
        const double* cell_weights, const double* inverse_weights, const double* least,
        Py_ssize_t r, Py_ssize_t k, double* x, double* nearest
    ) noexcept nogil
    ctypedef struct Drift "skquant_drift":
        double constant
        double linear
        double square
    Py_ssize_t near_rows "skquant_near_rows"(
        const float* slack, const float* sizes, Drift drift, Py_ssize_t* row,
        Py_ssize_t stop, Py_ssize_t* rows
    ) noexcept nogil
    void keep_slack "skquant_keep_slack"(
        const double* nearest, const float* sizes, Drift drift, const Py_ssize_t* rows,
        Py_ssize_t n, float* slack
    ) noexcept nogil
    void take_off "skquant_take_off"(
        float* slack, const float* sizes, Drift drift, Py_ssize_t n
    ) noexcept nogil
    void distances "skquant_distances"(
        const double* x, double level, double rate, const double* squares,
        const double* products, const double* inverse_weights, Py_ssize_t r,
        Py_ssize_t k, double* out
    ) noexcept nogil
    double multiply "skquant_multiply"(
        const double* matrix, const double* x, Py_ssize_t r, double* out
    ) noexcept nogil
    void project_cells "skquant_project_cells"(
        const double* metric, const double* means, Py_ssize_t r, Py_ssize_t k,
        double* products, double* squares
    ) noexcept nogil
    double DOMINANT "SKQUANT_DOMINANT"
    double ROUNDING "SKQUANT_ROUNDING"

cdef enum:
    LANES = 8
    BLOCK = 8192
    # rows that share a state of the cells at their last visit
    VISIT = 1024
    # moves of them after which the next visit is to all
    UNSETTLED = 16

# More than the rounding of a double.
cdef double DOUBLE_ROUNDING = 1e-15

# Forms of the exact gain, shared with the Python side.
cdef enum:
    LINEAR = 0
    LOG_DET = 1
    INVERSE_TRACE = 2

# A thousand times the rounding of 1, as in the criteria.
cdef double SINGULAR = 2.220446049250313e-13

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
    const double* bases_added  # (n_terms, r, r), information that is always there
    # scratch
    double* information
    double* inverses       # (n_terms, r, r)
    double* metric         # (r, r), G
    double* means          # (r, k), cell_means by coordinate
    double* products       # (r, k), 2 G mu
    double* squares        # (k,), mu' G mu
    double* inverse_weights  # (k,)
    double* least          # (k,), weight that must stay; infinite for a single row
    double* distances      # (k,)
    double* u
    double* v
    double* block          # (r, r)
    double* half           # (r, r)
    double* kept           # (2 + r, r)
    double* sums           # (k, r + 1)
    double* lanes          # (r, LANES), (LANES, r), (2, LANES)
    double* slopes         # (k, r) and (k,), the rule of nearest means
    double* steps          # (3, k r + r r), of accelerated steps
    double* kept_sums      # (k, r + 1)
    double* leaving        # (n_terms + 1, r), inverses and metric times v
    double* leaving_square  # (n_terms + 1,), those times v
    double* arriving       # (r,), one of them times u
    double min_weight
    # distance that is left to a boundary
    float* slack           # (n,), a lower bound, as of the block's last visit
    const float* sizes     # (n,), norms of the points
    double* heaviest       # (blocks,), weight of the heaviest row
    double* visited        # (blocks, state_size), the cells at the last visit
    char* known            # (blocks,), whether slack holds


cdef inline double larger(double x, double y) noexcept nogil:
    return x if x > y else y


cdef Py_ssize_t state_size(State* s) noexcept nogil:
    return s.k * (s.r + 2) + s.r * s.r


cdef void keep_state(State* s, double* kept) noexcept nogil:
    """Copy what distances depend on, for drift_since."""
    cdef Py_ssize_t r = s.r, k = s.k
    memcpy(kept, s.products, r * k * sizeof(double))
    memcpy(kept + r * k, s.squares, k * sizeof(double))
    memcpy(kept + (r + 1) * k, s.inverse_weights, k * sizeof(double))
    memcpy(kept + (r + 2) * k, s.metric, r * r * sizeof(double))


cdef bint drift_since(
    State* s, const double* kept, double heaviest, Drift* drift
) noexcept nogil:
    """Bound the change of the distances since a kept state; return if that succeeds.

    The distance of x in cell a is the least, over b, of

        f_b - f_a - q_a e,    f_b = mu_b' G mu_b - 2 x' G mu_b,    q_a = x' G x + f_a,

    with e = (1 + w / W_b) / (1 - w / W_a) - 1. The first difference changes by no more
    than the spread of the changes of f, the last term by the change of q_a times e and
    q_a times the change of e.
    """
    cdef Py_ssize_t r = s.r, k = s.k, b, j
    cdef const double* products = kept
    cdef const double* squares = kept + r * k
    cdef const double* inverse_weights = kept + (r + 1) * k
    cdef const double* metric = kept + (r + 2) * k
    cdef double low = -INFINITY, high = -INFINITY, shift = 0.0
    cdef double spread = 0.0, far = 0.0, change, all_of_it, apart, reach
    cdef double share = 0.0, shares = 0.0
    cdef double excess, more, turned = 0.0, size = 0.0
    for b in range(k):
        change = s.squares[b] - squares[b]
        low, high = larger(-change, low), larger(change, high)
        change = s.inverse_weights[b] - inverse_weights[b]
        share = larger(larger(s.inverse_weights[b], inverse_weights[b]), share)
        shares = larger(larger(change, -change), shares)
    low = -low
    for j in range(r):
        s.arriving[j] = 0.0
        for b in range(k):
            s.arriving[j] += (s.products[j * k + b] - products[j * k + b]) / k
    for b in range(k):
        all_of_it = apart = reach = 0.0
        for j in range(r):
            change = s.products[j * k + b] - products[j * k + b]
            all_of_it += change * change
            change -= s.arriving[j]
            apart += change * change
            reach += s.means[j * k + b] * s.means[j * k + b]
        shift, spread = larger(all_of_it, shift), larger(apart, spread)
        far = larger(reach, far)
    for j in range(r * r):
        change = s.metric[j] - metric[j]
        turned += change * change
        size += s.metric[j] * s.metric[j]
    share *= heaviest
    if not share < 0.5:
        return False
    shares *= heaviest
    shift, far = sqrt(shift), sqrt(far)
    excess = 2.0 * share / (1.0 - share)
    more = shares * ((1.0 + share) / (1.0 - share) + 1.0) / (1.0 - share)
    size = sqrt(size) * (more + DOUBLE_ROUNDING)
    drift.constant = high - low + excess * larger(-low, high) + size * far * far
    drift.linear = 2.0 * sqrt(spread) + excess * shift + 2.0 * size * far
    drift.square = excess * sqrt(turned) + size
    return True


cdef Py_ssize_t next_rows(
    State* s,
    Py_ssize_t* position,         # INOUT the first row not looked at
    Py_ssize_t stop,
    bint every,                   # IN whether all rows must be visited
    Drift drift,                  # IN since slack held
    Py_ssize_t* rows,             # OUT (LANES,) at most, scratch (2 * LANES,)
) noexcept nogil:
    """Find the next rows that may be near a boundary; return their number."""
    cdef Py_ssize_t n_rows = 0
    if not every:
        return near_rows(s.slack, s.sizes, drift, position, stop, rows)
    while position[0] < stop and n_rows < LANES:
        rows[n_rows] = position[0]
        n_rows += 1
        position[0] += 1
    return n_rows


cdef const double* points_of(
    State* s, const Py_ssize_t* rows, Py_ssize_t n_rows
) noexcept nogil:
    """Points of a few rows side by side; the last one fills the lanes that are left."""
    cdef Py_ssize_t r = s.r, lane, j
    cdef double* filled = s.lanes + r * LANES
    cdef const double* x
    if n_rows == LANES and rows[LANES - 1] - rows[0] == LANES - 1:
        return s.points + rows[0] * r
    for lane in range(LANES):
        x = s.points + rows[lane if lane < n_rows else n_rows - 1] * r
        for j in range(r):
            filled[lane * r + j] = x[j]
    return filled


cdef int factorize(double* a, Py_ssize_t m) noexcept nogil:
    """Cholesky factor of a symmetric (m, m) matrix, in its place; 1 if it is singular.

    Whitened information: eigenvalues are at most 1, and below SINGULAR times m they
    count as 0.
    """
    cdef Py_ssize_t i, j, q
    cdef double total, scale
    for j in range(m):
        total = a[j * m + j]
        for q in range(j):
            total -= a[j * m + q] * a[j * m + q]
        if not total > SINGULAR * m:
            return 1
        total = sqrt(total)
        a[j * m + j] = total
        for i in range(j + 1, m):
            scale = a[i * m + j]
            for q in range(j):
                scale -= a[i * m + q] * a[j * m + q]
            a[i * m + j] = scale / total
    return 0


cdef int invert(double* a, double* out, Py_ssize_t m, Py_ssize_t stride) noexcept nogil:
    """Invert a symmetric positive definite (m, m) matrix; 1 if it is singular.

    IN/OUT a (m, m) with row length m, overwritten; OUT out (m, m) with row length
    stride.
    """
    cdef Py_ssize_t i, j, q
    cdef double total
    if factorize(a, m):
        return 1
    # the inverse factor, in the upper triangle of out, transposed
    for j in range(m):
        out[j * stride + j] = 1.0 / a[j * m + j]
        for i in range(j + 1, m):
            total = 0.0
            for q in range(j, i):
                total -= a[i * m + q] * out[j * stride + q]
            out[j * stride + i] = total / a[i * m + i]
    # out = (inverse factor)' (inverse factor)
    for i in range(m):
        for j in range(i, m):
            total = 0.0
            for q in range(j, m):
                total += out[i * stride + q] * out[j * stride + q]
            a[i * m + j] = total
    for i in range(m):
        for j in range(i, m):
            out[i * stride + j] = a[i * m + j]
            out[j * stride + i] = a[i * m + j]
    return 0


cdef void set_cell(State* s, Py_ssize_t b) noexcept nogil:
    """Take over weight, mean and count of a cell."""
    cdef Py_ssize_t i
    s.inverse_weights[b] = 1.0 / s.cell_weights[b]
    s.least[b] = INFINITY if s.cell_counts[b] == 1 else s.min_weight
    for i in range(s.r):
        s.means[i * s.k + b] = s.cell_means[b * s.r + i]


cdef int refresh(State* s) noexcept nogil:
    """Recompute what follows from the cells; 1 if the information is singular."""
    cdef Py_ssize_t r = s.r, b, i, j
    cdef double total
    for i in range(r * r):
        s.information[i] = 0.0
    for b in range(s.k):
        set_cell(s, b)
        for i in range(r):
            s.u[i] = s.cell_means[b * r + i] + s.origin[i]
        for i in range(r):
            total = s.cell_weights[b] * s.u[i]
            for j in range(i + 1):
                s.information[i * r + j] += total * s.u[j]
    for i in range(r):
        for j in range(i):
            s.information[j * r + i] = s.information[i * r + j]
    return follow_information(s)


cdef void fill_block(State* s, Py_ssize_t t) noexcept nogil:
    """Set s.block to the information in the span of a term's basis, (m, m)."""
    cdef Py_ssize_t r = s.r, m = s.ranks[t], i, j, q
    cdef const double* basis = s.bases + t * r * r
    cdef const double* added = s.bases_added + t * r * r
    cdef double total
    if m == r:
        for i in range(r * r):
            s.block[i] = s.information[i] + added[i]
        return
    # half = I Q, block = Q' I Q
    for i in range(r):
        for j in range(m):
            total = 0.0
            for q in range(r):
                total += s.information[i * r + q] * basis[q * r + j]
            s.half[i * r + j] = total
    for i in range(m):
        for j in range(m):
            total = 0.0
            for q in range(r):
                total += basis[q * r + i] * s.half[q * r + j]
            s.block[i * m + j] = total + added[i * r + j]


cdef double value_of(State* s) noexcept nogil:
    """The criterion's value; the information is not singular."""
    cdef Py_ssize_t i, t, m
    cdef double total = 0.0
    if s.form == LINEAR:
        for i in range(s.r * s.r):
            total += s.information[i] * s.bases[i]
        return total
    if s.form == INVERSE_TRACE:
        for i in range(s.r):
            total -= s.inverses[i * s.r + i]
        return total
    for t in range(s.n_terms):
        m = s.ranks[t]
        fill_block(s, t)
        factorize(s.block, m)
        for i in range(m):
            total += 2.0 * s.coefficients[t] * log(s.block[i * m + i])
    return total


cdef int follow_information(State* s) noexcept nogil:
    """Recompute inverses, metric and products; 1 if the information is singular."""
    cdef Py_ssize_t r = s.r, i, j, t, m, q
    cdef double total
    cdef const double* basis
    cdef double* inverse
    if s.form == LINEAR:
        for i in range(r * r):
            s.metric[i] = s.bases[i]
    elif s.form == INVERSE_TRACE:
        for i in range(r * r):
            s.block[i] = s.information[i] + s.bases_added[i]
        if invert(s.block, s.inverses, r, r):
            return 1
        for i in range(r):
            for j in range(r):
                total = 0.0
                for q in range(r):
                    total += s.inverses[i * r + q] * s.inverses[q * r + j]
                s.metric[i * r + j] = total
    else:
        for i in range(r * r):
            s.metric[i] = 0.0
        for t in range(s.n_terms):
            m = s.ranks[t]
            basis = s.bases + t * r * r      # (r, r), its first m columns count
            inverse = s.inverses + t * r * r
            fill_block(s, t)
            if invert(s.block, inverse, m, r):
                return 1
            if m < r:
                # half = Q block^-1, inverse = half Q'
                for i in range(r):
                    for j in range(m):
                        total = 0.0
                        for q in range(m):
                            total += basis[i * r + q] * inverse[q * r + j]
                        s.half[i * r + j] = total
                for i in range(r):
                    for j in range(r):
                        total = 0.0
                        for q in range(m):
                            total += s.half[i * r + q] * basis[j * r + q]
                        inverse[i * r + j] = total
            for i in range(r * r):
                s.metric[i] += s.coefficients[t] * inverse[i]

    project_cells(s.metric, s.means, r, s.k, s.products, s.squares)
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


cdef double dot(const double* x, const double* y, Py_ssize_t r) noexcept nogil:
    cdef Py_ssize_t i
    cdef double total = 0.0
    for i in range(r):
        total += x[i] * y[i]
    return total


cdef void leave(State* s) noexcept nogil:
    """Set what the gains of all moves of a row share, from s.v."""
    cdef Py_ssize_t r = s.r, t
    if s.form != LOG_DET:
        s.leaving_square[s.n_terms] = multiply(
            s.metric, s.v, r, s.leaving + s.n_terms * r
        )
    if s.form != LINEAR:
        for t in range(s.n_terms):
            s.leaving_square[t] = multiply(
                s.inverses + t * r * r, s.v, r, s.leaving + t * r
            )


cdef double exact_gain(State* s, double alpha, double beta) noexcept nogil:
    """Gain of the move with vectors s.v (leaving) and s.u (arriving), after leave."""
    cdef Py_ssize_t r = s.r, t
    cdef double q_vv, q_uu, q_uv, p_vv, p_uu, p_uv, small, total = 0.0, a, b, det
    if s.form == LINEAR:
        q_uu = multiply(s.metric, s.u, r, s.arriving)
        return alpha * s.leaving_square[s.n_terms] - beta * q_uu
    if s.form == LOG_DET:
        for t in range(s.n_terms):
            q_vv = s.leaving_square[t]
            q_uu = multiply(s.inverses + t * r * r, s.u, r, s.arriving)
            q_uv = dot(s.leaving + t * r, s.u, r)
            small = alpha * q_vv - beta * q_uu
            small -= alpha * beta * (q_vv * q_uu - q_uv * q_uv)
            if small <= -1.0:
                return -INFINITY
            total += s.coefficients[t] * log1p(small)
        return total
    # minus the change of tr(I^-1): Woodbury with C = D^-1 + U' A U, D = (alpha, -beta)
    q_vv, p_vv = s.leaving_square[0], s.leaving_square[1]
    q_uu = multiply(s.inverses, s.u, r, s.arriving)
    p_uu = multiply(s.metric, s.u, r, s.arriving)
    q_uv, p_uv = dot(s.leaving, s.u, r), dot(s.leaving + r, s.u, r)
    # multiplied through by D, so that a vanishing weight divides nothing
    a = 1.0 + alpha * q_vv
    b = 1.0 - beta * q_uu
    det = a * b + alpha * beta * q_uv * q_uv
    if det <= 0.0:
        return -INFINITY
    return (
        alpha * b * p_vv - beta * a * p_uu + 2.0 * alpha * beta * q_uv * p_uv
    ) / det


cdef double own_level(
    State* s, Py_ssize_t row, double rest, double own
) noexcept nogil:
    """First-order gain of leaving, per unit of the row's weight; own is x'Gx, and
    s.v belongs to a dominant row."""
    cdef Py_ssize_t r = s.r, j
    cdef int a = s.labels[row]
    cdef const double* x = s.points + row * r
    cdef double distance
    if rest < DOMINANT * s.cell_weights[a]:
        return multiply(s.metric, s.v, r, s.arriving) * (rest / s.cell_weights[a])
    distance = own + s.squares[a]
    for j in range(r):
        distance -= x[j] * s.products[j * s.k + a]
    return distance * (s.cell_weights[a] / rest)


cdef double screen(State* s, Py_ssize_t row, double rest) noexcept nogil:
    """Fill s.distances with q_b - level (1 + w / W_b), negative where the first-order
    gain is positive; return what rounding may hide of it."""
    cdef Py_ssize_t r = s.r
    cdef const double* x = s.points + row * r
    cdef double own = multiply(s.metric, x, r, s.arriving)
    cdef double level = own_level(s, row, rest, own)
    distances(
        x, level - own, level * s.weights[row], s.squares, s.products,
        s.inverse_weights, r, s.k, s.distances,
    )
    s.distances[s.labels[row]] = INFINITY
    return ROUNDING * (fabs(own) + fabs(level))


cdef double screen_alone(State* s, Py_ssize_t row) noexcept nogil:
    """Smallest distance, less the guard, of a row that is nearly all of its cell."""
    cdef int a = s.labels[row]
    cdef double nearest = INFINITY, guard, rest = s.cell_weights[a] - s.weights[row]
    cdef Py_ssize_t b
    if rest < s.least[a]:
        return INFINITY
    guard = screen(s, row, remainder_of(s, row, s.v))
    for b in range(s.k):
        nearest = s.distances[b] if s.distances[b] < nearest else nearest
    return nearest - guard


cdef bint screen_rows(
    State* s,
    const Py_ssize_t* rows,
    Py_ssize_t n_rows,            # IN at most LANES
    bint whole,                   # IN whether the table has all rows of the cells
    double* nearest,              # OUT (LANES,)
) noexcept nogil:
    """Screen a few rows at once; return whether any may gain."""
    cdef Py_ssize_t lane, row
    cdef double weights[LANES]
    cdef int labels[LANES]
    for lane in range(LANES):
        row = rows[lane if lane < n_rows else n_rows - 1]
        weights[lane] = s.weights[row]
        labels[lane] = s.labels[row]
    if not screen_lanes(
        points_of(s, rows, n_rows), weights, labels, s.metric, s.squares, s.products,
        s.cell_weights, s.inverse_weights, s.least, s.r, s.k, s.lanes, nearest,
    ):
        return False
    for lane in range(n_rows):
        if isnan(nearest[lane]):
            nearest[lane] = screen_alone(s, rows[lane]) if whole else INFINITY
    return True


cdef Py_ssize_t scratch_size(State* s):
    """Number of doubles that a state needs as scratch."""
    cdef Py_ssize_t r = s.r, k = s.k, t = s.n_terms
    return (
        (8 + t) * r * r + (8 * r + 7) * k + (t + 6) * (r + 1) + (2 * r + 2) * LANES
    )


cdef void use_scratch(State* s, double* free):
    """Point the state at parts of its scratch."""
    cdef Py_ssize_t r = s.r, k = s.k, n_terms = s.n_terms
    s.information = free
    free += r * r
    s.inverses = free
    free += n_terms * r * r
    s.metric = free
    free += r * r
    s.means = free
    free += r * k
    s.products = free
    free += r * k
    s.squares = free
    free += k
    s.inverse_weights = free
    free += k
    s.least = free
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
    free += (2 + r) * r
    s.sums = free
    free += (r + 1) * k
    s.lanes = free
    free += (2 * r + 2) * LANES
    s.slopes = free
    free += (r + 1) * k
    s.steps = free
    free += 3 * r * (k + r)
    s.kept_sums = free
    free += k * (r + 1)
    s.leaving = free
    free += (n_terms + 1) * r
    s.leaving_square = free
    free += n_terms + 1
    s.arriving = free


cdef double bound(double weight, double lightest, double nearest) noexcept nogil:
    """Largest first-order gain of a row whose smallest distance is given."""
    if nearest < 0.0:
        return -weight * nearest
    return -weight * (lightest / (lightest + weight)) * nearest


cdef double gain_of_row(
    State* s,
    Py_ssize_t row,
    double least,
    Py_ssize_t* best,               # OUT its cell, if the gain is above least
    double* rest,                   # OUT weight that stays; s.v belongs to it
) noexcept nogil:
    """Return the largest gain of moving a row, or least."""
    cdef Py_ssize_t r = s.r, b, i
    cdef const double* x = s.points + row * r
    cdef double weight = s.weights[row], gain, beta
    cdef double alpha, guard
    rest[0] = remainder_of(s, row, s.v)
    alpha = weight * (rest[0] / s.cell_weights[s.labels[row]])
    guard = screen(s, row, rest[0])
    leave(s)
    for b in range(s.k):
        beta = weight * (s.cell_weights[b] / (s.cell_weights[b] + weight))
        # the first-order gain, and what rounding may hide
        if beta * (guard - s.distances[b]) <= least:
            continue
        for i in range(r):
            s.u[i] = x[i] - s.cell_means[b * r + i]
        gain = exact_gain(s, alpha, beta)
        if gain > least:
            least, best[0] = gain, b
    return least


cdef double relocate(State* s, Py_ssize_t row, double gain_tol) noexcept nogil:
    """Move a row to its best cell if that gains more than gain_tol by its weight.

    Returns the gain, 0 if the row stays.
    """
    cdef Py_ssize_t r = s.r, best = -1, i, j
    cdef int a = s.labels[row]
    cdef const double* x = s.points + row * r
    cdef double weight = s.weights[row]
    cdef double old_a = s.cell_weights[a], old_b, rest, alpha, beta
    cdef double best_gain = gain_of_row(s, row, gain_tol * weight, &best, &rest)
    if best < 0:
        return 0.0
    old_b = s.cell_weights[best]
    alpha = weight * (rest / old_a)
    beta = weight * (old_b / (old_b + weight))
    for i in range(r):
        s.kept[i] = s.cell_means[a * r + i]
        s.kept[r + i] = s.cell_means[best * r + i]
        s.u[i] = x[i] - s.cell_means[best * r + i]
        s.cell_means[a * r + i] = x[i] - s.v[i]
        s.cell_means[best * r + i] += (weight / (old_b + weight)) * s.u[i]
    for i in range(r):
        for j in range(r):
            s.kept[(2 + i) * r + j] = s.information[i * r + j]
            s.information[i * r + j] += (
                alpha * s.v[i] * s.v[j] - beta * s.u[i] * s.u[j]
            )
    s.cell_weights[a] = rest
    s.cell_weights[best] = old_b + weight
    s.cell_counts[a] -= 1
    s.cell_counts[best] += 1
    s.labels[row] = <int> best
    set_cell(s, a)
    set_cell(s, best)
    if not follow_information(s):
        return best_gain
    # singular to working precision: take the move back
    s.cell_weights[a], s.cell_weights[best] = old_a, old_b
    s.cell_counts[a] += 1
    s.cell_counts[best] -= 1
    s.labels[row] = a
    for i in range(r):
        s.cell_means[a * r + i] = s.kept[i]
        s.cell_means[best * r + i] = s.kept[r + i]
        for j in range(r):
            s.information[i * r + j] = s.kept[(2 + i) * r + j]
    set_cell(s, a)
    set_cell(s, best)
    follow_information(s)
    return 0.0


cdef Py_ssize_t relocate_block(
    State* s,
    Py_ssize_t start,
    double gain_tol,
    bint whole,
    double* total,                # INOUT gains
    Py_ssize_t* visits,           # INOUT rows looked at
) noexcept nogil:
    """Move the rows of a block that gain; return their number."""
    cdef Py_ssize_t block = start / VISIT, position = start, row, lane, n_rows
    cdef Py_ssize_t moves = 0
    cdef Py_ssize_t stop = start + VISIT if start + VISIT < s.n else s.n
    cdef Py_ssize_t rows[2 * LANES]
    cdef double* visited = s.visited + block * state_size(s)
    cdef double nearest[LANES]
    cdef double gain
    # since the block's last visit; then since slack holds of rows that were far away
    # from a boundary, and since this visit began, less that
    cdef Drift drift = Drift(0.0, 0.0, 0.0), left, since, now
    cdef bint bounded = True, every, gains
    every = not s.known[block] or not drift_since(
        s, visited, s.heaviest[block], &drift
    )
    if every:
        drift = Drift(0.0, 0.0, 0.0)
    left = drift
    since = Drift(-drift.constant, -drift.linear, -drift.square)
    keep_state(s, visited)
    while position < stop:
        n_rows = next_rows(s, &position, stop, every, left, rows)
        if n_rows == 0:
            break
        gains = screen_rows(s, rows, n_rows, whole, nearest)
        keep_slack(nearest, s.sizes, since, rows, n_rows, s.slack)
        visits[0] += n_rows
        if not gains:
            continue
        for lane in range(n_rows):
            if nearest[lane] >= 0.0:
                continue
            row = rows[lane]
            gain = relocate(s, row, gain_tol)
            if gain > 0.0:
                moves += 1
                total[0] += gain
                s.slack[row] = -INFINITY
                # the rest of the lanes saw another state
                visits[0] -= n_rows - lane - 1
                position = row + 1
                bounded = bounded and moves < UNSETTLED and drift_since(
                    s, visited, s.heaviest[block], &now
                )
                every |= not bounded
                if bounded:
                    left = Drift(
                        drift.constant + now.constant, drift.linear + now.linear,
                        drift.square + now.square,
                    )
                    since = Drift(
                        now.constant - drift.constant, now.linear - drift.linear,
                        now.square - drift.square,
                    )
                break
    s.known[block] = bounded
    take_off(s.slack + start, s.sizes + start, drift, stop - start)
    return moves


cdef Py_ssize_t follow_rule(State* s, bint* dominated) noexcept nogil:
    """Label the rows by the rule of s.slopes; the sums of the cells follow.

    Rows too far from a boundary for what has changed since their last visit are left
    out. Returns the number of the others, and whether a row that was nearly all of
    its cell left it: its sums then have no digits left.
    """
    cdef Py_ssize_t r = s.r, i, j, n_rows, found, a, b, row, block = 0, visits = 0
    cdef Py_ssize_t position = 0, stop, n_moved
    cdef Py_ssize_t rows[VISIT + 2 * LANES]
    cdef Py_ssize_t moved[VISIT]
    cdef double where[VISIT + LANES]
    cdef double* moments = s.sums + s.k
    cdef const double* x
    cdef double weight, total
    cdef Drift drift
    cdef bint every
    dominated[0] = False
    while position < s.n:
        stop = position + VISIT if position + VISIT < s.n else s.n
        every = not s.known[block] or not drift_since(
            s, s.visited + block * state_size(s), s.heaviest[block], &drift
        )
        block += 1
        # the labels of the whole block first: a branch between them, guessed wrong,
        # would wait for the logits of eight rows
        n_rows = 0
        while position < stop:
            found = next_rows(s, &position, stop, every, drift, rows + n_rows)
            if found == 0:
                break
            argmax_lanes(
                points_of(s, rows + n_rows, found), s.slopes, s.slopes + s.k * r, r,
                s.k, s.lanes, s.lanes + 2 * r * LANES, where + n_rows,
            )
            n_rows += found
        visits += n_rows
        n_moved = 0
        for i in range(n_rows):
            moved[n_moved] = i
            n_moved += s.labels[rows[i]] != <int> where[i]
        for i in range(n_moved):
            row = rows[moved[i]]
            a, b = s.labels[row], <Py_ssize_t> where[moved[i]]
            weight = s.weights[row]
            x = s.points + row * r
            s.labels[row] = <int> b
            s.slack[row] = -INFINITY
            s.cell_counts[a] -= 1
            s.cell_counts[b] += 1
            total = s.sums[a]
            s.sums[a] -= weight
            s.sums[b] += weight
            dominated[0] |= s.sums[a] < DOMINANT * total
            for j in range(r):
                moments[a * r + j] -= weight * x[j]
                moments[b * r + j] += weight * x[j]
    return visits


cdef double take_nearest(State* s, Py_ssize_t* visits) noexcept nogil:
    """Put every row into the cell of the nearest mean; return the value of the cells.

    NaN if the information becomes singular or a cell too light. INOUT visits, rows
    looked at.
    """
    cdef Py_ssize_t r = s.r, b, j
    cdef bint dominated
    for b in range(s.k):
        for j in range(r):
            s.slopes[b * r + j] = s.products[j * s.k + b]
        s.slopes[s.k * r + b] = -s.squares[b]
    visits[0] += follow_rule(s, &dominated)
    if dominated:
        sum_rows(
            s.points, s.weights, s.labels, s.n, r, s.k, s.cell_weights, s.cell_means,
            s.cell_counts, s.sums,
        )
        keep_sums(s)
    for b in range(s.k):
        if s.cell_counts[b] == 0 or not s.sums[b] > s.min_weight:
            return NAN
    take_sums(s)
    return NAN if refresh(s) else value_of(s)


cdef void keep_sums(State* s) noexcept nogil:
    """Set the sums of the cells from their weights and means."""
    cdef Py_ssize_t b, i
    for b in range(s.k):
        s.sums[b] = s.cell_weights[b]
        for i in range(s.r):
            s.sums[s.k + b * s.r + i] = s.cell_weights[b] * s.cell_means[b * s.r + i]


cdef void take_sums(State* s) noexcept nogil:
    """Take over weights and means of the cells from their sums."""
    cdef Py_ssize_t b, i
    for b in range(s.k):
        s.cell_weights[b] = s.sums[b]
        for i in range(s.r):
            s.cell_means[b * s.r + i] = s.sums[s.k + b * s.r + i] / s.sums[b]


cdef void keep_labels(State* s, int* kept) noexcept nogil:
    """Copy labels, counts and sums, for take_back."""
    memcpy(kept, s.labels, s.n * sizeof(int))
    memcpy(kept + s.n, s.cell_counts, s.k * sizeof(int))
    memcpy(s.kept_sums, s.sums, s.k * (s.r + 1) * sizeof(double))


cdef void take_back(State* s, const int* kept) noexcept nogil:
    """Return to the kept labels."""
    memcpy(s.labels, kept, s.n * sizeof(int))
    memcpy(s.cell_counts, kept + s.n, s.k * sizeof(int))
    memcpy(s.sums, s.kept_sums, s.k * (s.r + 1) * sizeof(double))
    take_sums(s)
    refresh(s)


cdef void keep_point(State* s, double* point) noexcept nogil:
    """Copy the means by coordinate, and the information."""
    memcpy(point, s.means, s.r * s.k * sizeof(double))
    memcpy(point + s.r * s.k, s.information, s.r * s.r * sizeof(double))


cdef int extrapolate(State* s) noexcept nogil:
    """Set metric and products from a squared step through the three points in s.steps.

    Returns 1 if that is no metric, or no farther.
    """
    cdef Py_ssize_t size = s.r * (s.k + s.r), i
    cdef double* first = s.steps
    cdef double* second = first + size
    cdef double* third = second + size
    cdef double step = 0.0, bend = 0.0, change, reach
    for i in range(s.r * s.k):
        change = second[i] - first[i]
        step += change * change
        change = third[i] - second[i] - change
        bend += change * change
    if not bend > 0.0 or not step > bend:
        return 1
    reach = sqrt(step / bend)
    for i in range(size):
        change = second[i] - first[i]
        first[i] += reach * (
            2.0 * change + reach * (third[i] - second[i] - change)
        )
    memcpy(s.means, first, s.r * s.k * sizeof(double))
    memcpy(s.information, first + s.r * s.k, s.r * s.r * sizeof(double))
    return follow_information(s)


cdef void sum_rows(
    const double* points,       # IN (n, r)
    const double* weights,      # IN (n,)
    const int* labels,          # IN (n,)
    Py_ssize_t n,
    Py_ssize_t r,
    Py_ssize_t k,
    double* cell_weights,       # OUT (k,)
    double* cell_means,         # OUT (k, r)
    int* cell_counts,           # OUT (k,)
    double* sums,               # scratch (k (r + 1),)
) noexcept nogil:
    """Compute weights, means and counts of the cells, block by block: long sums lose
    digits."""
    cdef Py_ssize_t b, i, row, start, size
    for b in range(k):
        cell_weights[b] = 0.0
        cell_counts[b] = 0
    for i in range(k * r):
        cell_means[i] = 0.0
    start = 0
    while start < n:
        size = BLOCK if n - start > BLOCK else n - start
        for i in range(k * (r + 1)):
            sums[i] = 0.0
        add_moments(
            points + start * r, weights + start, labels + start, size, r, sums, sums + k
        )
        for row in range(start, start + size):
            cell_counts[labels[row]] += 1
        for b in range(k):
            cell_weights[b] += sums[b]
        for i in range(k * r):
            cell_means[i] += sums[k + i]
        start += size
    for b in range(k):
        if cell_counts[b] > 0:
            for i in range(r):
                cell_means[b * r + i] /= cell_weights[b]


cdef void forget_visits(State* s) noexcept nogil:
    """Begin with no visits."""
    cdef Py_ssize_t row, block
    for block in range((s.n + VISIT - 1) / VISIT):
        s.known[block] = False
        s.heaviest[block] = 0.0
    for row in range(s.n):
        s.slack[row] = -INFINITY
        block = row / VISIT
        s.heaviest[block] = fmax(s.heaviest[block], s.weights[row])


cdef class CellExchange:
    """The rows of a table and their cells, whose arrays are kept up to date."""

    cdef State s
    # what the state points at
    cdef const double[:, ::1] points
    cdef const double[::1] weights
    cdef const double[::1] origin
    cdef int[::1] labels
    cdef double[::1] cell_weights
    cdef double[:, ::1] cell_means
    cdef int[::1] cell_counts
    cdef const double[::1] coefficients
    cdef const double[:, :, ::1] bases
    cdef const int[::1] ranks
    cdef const double[:, :, ::1] added
    cdef double[::1] scratch
    cdef char[::1] known
    cdef const float[::1] sizes
    cdef readonly float[::1] slack
    cdef object kept

    def __init__(
        self,
        const double[:, ::1] points,    # IN (n, r), relative to origin
        const double[::1] weights,      # IN (n,)
        const float[::1] sizes,         # IN (n,), no less than their norms
        const double[::1] origin,       # IN (r,)
        int[::1] labels,                # INOUT (n,)
        double[::1] cell_weights,       # INOUT (k,)
        double[:, ::1] cell_means,      # INOUT (k, r), relative to origin
        int[::1] cell_counts,           # INOUT (k,)
        int form,                       # IN
        const double[::1] coefficients,  # IN (t,)
        const double[:, :, ::1] bases,  # IN (t, r, r)
        const int[::1] ranks,           # IN (t,)
        const double[:, :, ::1] added,  # IN (t, r, r), of a term, in its basis
        double min_weight,              # IN weight that a cell must keep
    ):
        cdef State* s = &self.s
        self.points, self.weights, self.origin = points, weights, origin
        self.sizes = sizes
        self.labels, self.cell_weights = labels, cell_weights
        self.cell_means, self.cell_counts = cell_means, cell_counts
        self.coefficients, self.bases, self.ranks = coefficients, bases, ranks
        s.n, s.r, s.k = points.shape[0], points.shape[1], cell_weights.shape[0]
        s.points, s.weights, s.origin = &points[0, 0], &weights[0], &origin[0]
        s.labels, s.cell_weights = &labels[0], &cell_weights[0]
        s.cell_means, s.cell_counts = &cell_means[0, 0], &cell_counts[0]
        s.form, s.n_terms, s.ranks = form, coefficients.shape[0], &ranks[0]
        s.coefficients, s.bases = &coefficients[0], &bases[0, 0, 0]
        self.added, s.bases_added = added, &added[0, 0, 0]
        s.min_weight = min_weight
        cdef Py_ssize_t n_blocks = (s.n + VISIT - 1) // VISIT
        self.slack = np.empty(s.n, dtype=np.float32)
        self.known = np.empty(n_blocks, dtype=np.int8)
        s.slack, s.sizes, s.known = &self.slack[0], &self.sizes[0], &self.known[0]
        self.scratch = np.empty(scratch_size(s) + n_blocks * (1 + state_size(s)))
        s.heaviest = &self.scratch[0]
        s.visited = s.heaviest + n_blocks
        use_scratch(s, s.visited + n_blocks * state_size(s))
        forget_visits(s)

    cdef room_for_labels(self):
        # fresh pages cost more than what is written on them
        if self.kept is None:
            self.kept = np.empty(self.s.n + self.s.k, dtype=np.int32)
        return self.kept

    def relocate(
        self,
        double gain_tol,                # IN gain per unit of the row's weight
        int most_passes,                # IN passes over the rows, fewer once none moves
        bint whole,                     # IN whether the cells have no other rows
        bint from_labels,               # IN whether to recompute the cells first
    ):
        """Move every row to its best cell, at once, if that gains; repeat.

        Returns the number of moves, or -1 if the information is singular, the sum of
        their gains, the number of passes and that of rows looked at.
        """
        cdef State* s = &self.s
        cdef Py_ssize_t start, visits = 0, moves = 0, before
        cdef double total = 0.0
        cdef int n_passes = 0
        with nogil:
            if from_labels:
                sum_rows(
                    s.points, s.weights, s.labels, s.n, s.r, s.k, s.cell_weights,
                    s.cell_means, s.cell_counts, s.sums,
                )
            if refresh(s):
                moves, most_passes = -1, 0
            while n_passes < most_passes:
                n_passes += 1
                before = moves
                start = 0
                while start < s.n:
                    moves += relocate_block(s, start, gain_tol, whole, &total, &visits)
                    start += VISIT
                if moves == before:
                    break
        return moves, total, n_passes, visits

    def settle(
        self,
        double least_gain,              # IN of a round, by the value or over 1
        double target,                  # IN value below which it may be given up
        int most_passes,                # IN
    ):
        """Put all rows into the cell of the nearest mean, again and again, if that
        gains; return the number of rows looked at.

        After two passes the means are extrapolated through them; what does not gain
        is taken back, and ends it, and so does a target that twice the gain of three
        passes does not reach.
        """
        cdef State* s = &self.s
        cdef int[::1] kept = self.room_for_labels()
        cdef int n_passes = 0, stage, accepted
        cdef Py_ssize_t visits = 0
        cdef Py_ssize_t size = s.r * (s.k + s.r)
        cdef double value = 0.0, before, gained
        with nogil:
            keep_sums(s)
            if refresh(s):
                most_passes = 0
            else:
                value = value_of(s)
            while n_passes < most_passes:
                before = value
                accepted = 0
                for stage in range(3):
                    # two plain passes and one from the extrapolated means
                    keep_point(s, s.steps + stage * size)
                    keep_labels(s, &kept[0])
                    if stage == 2 and extrapolate(s):
                        refresh(s)
                        break
                    gained = take_nearest(s, &visits)
                    n_passes += 1
                    if not gained > value:
                        take_back(s, &kept[0])
                        break
                    value = gained
                    accepted += 1
                gained = value - before
                if accepted < 2 or not gained > least_gain * fmax(1.0, fabs(value)):
                    break
                if value + 2.0 * gained < target:
                    break
        return visits

    def follow(self, const double[:, ::1] step):     # IN (k, r)
        """Take the cells of means moved by a step, if that raises the value.

        Returns the rise, 0 if the cells stay, and the number of rows looked at.
        """
        cdef State* s = &self.s
        cdef int[::1] kept = self.room_for_labels()
        cdef Py_ssize_t visits = 0, b, j
        cdef double before, rise = 0.0
        with nogil:
            if not refresh(s):
                before = value_of(s)
                keep_sums(s)
                keep_labels(s, &kept[0])
                for b in range(s.k):
                    for j in range(s.r):
                        s.means[j * s.k + b] += step[b, j]
                project_cells(s.metric, s.means, s.r, s.k, s.products, s.squares)
                rise = take_nearest(s, &visits) - before
                if not rise > 0.0:
                    take_back(s, &kept[0])
                    rise = 0.0
        return rise, visits

    def evaluate(self, double[:, ::1] metric):
        """Return the criterion's value and the largest trace of an inverse.

        The trace bounds the smallest eigenvalue from below; it is infinite if the
        information is singular. OUT metric (r, r), the gradient, if it is not.
        """
        cdef State* s = &self.s
        cdef Py_ssize_t t, i
        cdef double value = -INFINITY, largest = INFINITY, trace
        with nogil:
            if not refresh(s):
                value, largest = value_of(s), 0.0
                memcpy(&metric[0, 0], s.metric, s.r * s.r * sizeof(double))
                if s.form != LINEAR:
                    for t in range(s.n_terms):
                        trace = 0.0
                        for i in range(s.r):
                            trace += s.inverses[(t * s.r + i) * s.r + i]
                        largest = fmax(largest, trace)
        return value, largest

    def best_move(self):
        """Return the largest gain of any allowed move, its row and its cell.

        Nothing is moved. A move whose first-order gain is no larger than the best
        exact gain so far is not evaluated. The gain is -inf (row -1) without an
        allowed move, and +inf if the information is singular.
        """
        cdef State* s = &self.s
        cdef Py_ssize_t start = 0, stop, row, b, best_row = -1, best_cell = -1
        cdef double best_gain = -INFINITY, lightest = INFINITY, gain, most, rest
        cdef double nearest[LANES]
        cdef Py_ssize_t rows[LANES]
        with nogil:
            if refresh(s):
                best_gain, start = INFINITY, s.n
            for b in range(s.k):
                lightest = fmin(lightest, s.cell_weights[b])
            while start < s.n:
                stop = start + LANES if start + LANES < s.n else s.n
                for row in range(start, stop):
                    rows[row - start] = row
                screen_rows(s, rows, stop - start, True, nearest)
                for row in range(start, stop):
                    most = bound(s.weights[row], lightest, nearest[row - start])
                    if most <= best_gain:
                        continue
                    gain = gain_of_row(s, row, best_gain, &b, &rest)
                    if gain > best_gain:
                        best_gain, best_row, best_cell = gain, row, b
                start = stop
        return best_gain, best_row, best_cell


def sum_cells(
    const double[:, ::1] points,    # IN (n, r)
    const double[::1] weights,      # IN (n,)
    const int[::1] labels,          # IN (n,)
    double[::1] cell_weights,       # OUT (k,)
    double[:, ::1] cell_means,      # OUT (k, r), 0 of an empty cell
    int[::1] cell_counts,           # OUT (k,)
    double[::1] scratch,            # scratch (k (r + 1),)
):
    """Compute weights, means and counts of the cells of a labeling."""
    with nogil:
        sum_rows(
            &points[0, 0], &weights[0], &labels[0], points.shape[0], points.shape[1],
            cell_weights.shape[0], &cell_weights[0], &cell_means[0, 0],
            &cell_counts[0], &scratch[0],
        )
