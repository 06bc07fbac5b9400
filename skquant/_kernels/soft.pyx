# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Passes over the points of a softmax rule that form no (n, K) array.

Eight points go side by side, one a lane: the loops over lanes are what compilers
vectorize, and sums are kept by lane to the end.
"""

cdef extern from "lanes.h":
    pass

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* Shares below exp(-100) are lost beside those of the same point anyway. */
    #define SKQUANT_NEGLIGIBLE -100.0

    /* exp of n numbers that are not positive, in place, 0 where negligible; within
       two units in the last place. 2^m exp(t), m an integer, |t| <= log(2) / 2. */
    SKQUANT_CLONES
    static void skquant_exp(double* SKQUANT_RESTRICT v, Py_ssize_t n)
    {
        for (Py_ssize_t i = 0; i < n; i++) {
            /* the low bits of the sum with it are m */
            const double magic = 6755399441055744.0;
            const double x = v[i] > SKQUANT_NEGLIGIBLE ? v[i] : SKQUANT_NEGLIGIBLE;
            const double shifted = x * 1.4426950408889634 + magic;
            const double m = shifted - magic;
            const double t = (x - m * 0.693147180369123816490)
                - m * 1.90821492927058770002e-10;
            uint64_t bits;
            double power, p = 1.0 / 479001600.0;
            p = p * t + 1.0 / 39916800.0;
            p = p * t + 1.0 / 3628800.0;
            p = p * t + 1.0 / 362880.0;
            p = p * t + 1.0 / 40320.0;
            p = p * t + 1.0 / 5040.0;
            p = p * t + 1.0 / 720.0;
            p = p * t + 1.0 / 120.0;
            p = p * t + 1.0 / 24.0;
            p = p * t + 1.0 / 6.0;
            p = p * t + 0.5;
            p = p * t + 1.0;
            p = p * t + 1.0;
            memcpy(&bits, &shifted, sizeof(bits));
            bits = (bits + 1023u) << 52;
            memcpy(&power, &bits, sizeof(bits));
            p = p * power;
            v[i] = v[i] > SKQUANT_NEGLIGIBLE ? p : 0.0;
        }
    }

    /* out (k, lanes) = offsets (k,) + slopes (k, r) x (r, lanes), of listed cells */
    SKQUANT_CLONES
    static void skquant_affine_lanes(
        const double* SKQUANT_RESTRICT x, const double* SKQUANT_RESTRICT slopes,
        const double* SKQUANT_RESTRICT offsets, const int* SKQUANT_RESTRICT cells,
        Py_ssize_t r, Py_ssize_t k, double* SKQUANT_RESTRICT out)
    {
        for (Py_ssize_t i = 0; i < k; i++) {
            const Py_ssize_t b = cells[i];
            double sum[SKQUANT_LANES];
            SKQUANT_EACH_LANE sum[l] = offsets[b];
            for (Py_ssize_t j = 0; j < r; j++) {
                const double slope = slopes[b * r + j];
                SKQUANT_EACH_LANE
                    sum[l] += slope * x[j * SKQUANT_LANES + l];
            }
            SKQUANT_EACH_LANE out[i * SKQUANT_LANES + l] = sum[l];
        }
    }

    /* Softmax over k of logits (k, lanes), in place; logits over the temperature
       twice: its square may underflow. Cells that are negligible for all lanes are
       left out: cells (k,) lists those that stay, and their number is returned. */
    SKQUANT_CLONES
    static Py_ssize_t skquant_softmax_lanes(
        double* SKQUANT_RESTRICT logits, double temperature, Py_ssize_t k,
        int* SKQUANT_RESTRICT cells)
    {
        const double inverse = temperature > 1e-300 ? 1.0 / temperature : 1e300;
        double top[SKQUANT_LANES], total[SKQUANT_LANES];
        Py_ssize_t n_cells = 0;
        SKQUANT_EACH_LANE { top[l] = logits[l]; total[l] = 0.0; }
        for (Py_ssize_t b = 1; b < k; b++)
            SKQUANT_EACH_LANE {
                const double other = logits[b * SKQUANT_LANES + l];
                top[l] = other > top[l] ? other : top[l];
            }
        for (Py_ssize_t b = 0; b < k; b++) {
            double* kept = logits + n_cells * SKQUANT_LANES;
            double largest = SKQUANT_NEGLIGIBLE;
            for (int l = 0; l < SKQUANT_LANES; l++) {
                const double logit =
                    (logits[b * SKQUANT_LANES + l] - top[l]) * inverse * inverse;
                kept[l] = logit;
                largest = logit > largest ? logit : largest;
            }
            cells[n_cells] = (int) b;
            n_cells += largest > SKQUANT_NEGLIGIBLE;
        }
        skquant_exp(logits, n_cells * SKQUANT_LANES);
        for (Py_ssize_t i = 0; i < n_cells * SKQUANT_LANES; i += SKQUANT_LANES)
            SKQUANT_EACH_LANE total[l] += logits[i + l];
        SKQUANT_EACH_LANE total[l] = 1.0 / total[l];
        for (Py_ssize_t i = 0; i < n_cells * SKQUANT_LANES; i += SKQUANT_LANES)
            SKQUANT_EACH_LANE logits[i + l] *= total[l];
        return n_cells;
    }

    /* sums (.., 1 + r, lanes) of listed cells += shares (k, lanes) times weight
       (lanes,), and that times x */
    SKQUANT_CLONES
    static void skquant_add_lanes(
        const double* SKQUANT_RESTRICT shares, const double* SKQUANT_RESTRICT weight,
        const double* SKQUANT_RESTRICT x, const int* SKQUANT_RESTRICT cells,
        Py_ssize_t r, Py_ssize_t k, double* SKQUANT_RESTRICT sums)
    {
        for (Py_ssize_t i = 0; i < k; i++) {
            double* SKQUANT_RESTRICT sum = sums + cells[i] * (r + 1) * SKQUANT_LANES;
            double share[SKQUANT_LANES];
            SKQUANT_EACH_LANE {
                share[l] = shares[i * SKQUANT_LANES + l] * weight[l];
                sum[l] += share[l];
            }
            for (Py_ssize_t j = 0; j < r; j++)
                SKQUANT_EACH_LANE
                    sum[(j + 1) * SKQUANT_LANES + l] +=
                        share[l] * x[j * SKQUANT_LANES + l];
        }
    }

    /* push (k, lanes) = shares times (push less its mean under the shares) */
    SKQUANT_CLONES
    static void skquant_pull_back_lanes(
        const double* SKQUANT_RESTRICT shares, Py_ssize_t k,
        double* SKQUANT_RESTRICT push)
    {
        double mean[SKQUANT_LANES];
        SKQUANT_EACH_LANE mean[l] = 0.0;
        for (Py_ssize_t i = 0; i < k * SKQUANT_LANES; i += SKQUANT_LANES)
            SKQUANT_EACH_LANE
                mean[l] += shares[i + l] * push[i + l];
        for (Py_ssize_t i = 0; i < k * SKQUANT_LANES; i += SKQUANT_LANES)
            SKQUANT_EACH_LANE
                push[i + l] = shares[i + l] * (push[i + l] - mean[l]);
    }
    """
    void affine_lanes "skquant_affine_lanes"(
        const double* x, const double* slopes, const double* offsets, const int* cells,
        Py_ssize_t r, Py_ssize_t k, double* out
    ) noexcept nogil
    Py_ssize_t softmax_lanes "skquant_softmax_lanes"(
        double* logits, double temperature, Py_ssize_t k, int* cells
    ) noexcept nogil
    void add_lanes "skquant_add_lanes"(
        const double* shares, const double* weight, const double* x, const int* cells,
        Py_ssize_t r, Py_ssize_t k, double* sums
    ) noexcept nogil
    void pull_back_lanes "skquant_pull_back_lanes"(
        const double* shares, Py_ssize_t k, double* push
    ) noexcept nogil

cdef enum:
    LANES = 8


def scratch_size(Py_ssize_t r, Py_ssize_t k):
    """Number of doubles that the passes need as scratch."""
    return (1 + r + 2 * k + k * (r + 1)) * LANES


def softmax_pass(
    const double[:, ::1] points,      # IN (n, r)
    const double[::1] weights,        # IN (n,)
    const double[:, ::1] slopes,      # IN (k, r)
    const double[::1] offsets,        # IN (k,)
    double temperature,               # IN tau; logits are divided by it twice
    const double[:, ::1] ascent,      # IN (k, r), slopes of dF/dr over the weight,
                                      # or None
    const double[::1] level,          # IN (k,), offsets of dF/dr, or None
    double[:, ::1] sums,              # OUT (k, 1 + r)
    double[::1] scratch,              # scratch
    int[::1] cells,                   # scratch (2 k,)
):
    """Sum shares of weight and moments over the points, or gradients if asked.

    Without ``ascent`` the sums are ``w r_b`` and ``w r_b z``; with it they are
    ``w p_b`` and ``w p_b z``, with p the product of the ascent in the responsibilities
    and the Jacobian of softmax, but for a factor of tau^2.
    """
    cdef Py_ssize_t n = points.shape[0], r = points.shape[1], k = offsets.shape[0]
    cdef Py_ssize_t start, row, lane, j, b, n_rows
    cdef bint gradient = ascent is not None
    cdef double* weight = &scratch[0]
    cdef double* x = weight + LANES
    cdef double* shares = x + r * LANES
    cdef double* push = shares + k * LANES
    cdef double* lane_sums = push + k * LANES
    cdef int* everything = &cells[0]
    cdef int* kept = everything + k
    cdef Py_ssize_t n_kept
    cdef double total
    with nogil:
        for b in range(k):
            everything[b] = <int> b
        for j in range(k * (r + 1) * LANES):
            lane_sums[j] = 0.0
        start = 0
        while start < n:
            n_rows = n - start if n - start < LANES else LANES
            for lane in range(LANES):
                row = start + lane if lane < n_rows else start
                weight[lane] = weights[row] if lane < n_rows else 0.0
                for j in range(r):
                    x[j * LANES + lane] = points[row, j]
            affine_lanes(x, &slopes[0, 0], &offsets[0], everything, r, k, shares)
            n_kept = softmax_lanes(shares, temperature, k, kept)
            if gradient:
                affine_lanes(x, &ascent[0, 0], &level[0], kept, r, n_kept, push)
                pull_back_lanes(shares, n_kept, push)
                add_lanes(push, weight, x, kept, r, n_kept, lane_sums)
            else:
                add_lanes(shares, weight, x, kept, r, n_kept, lane_sums)
            start += LANES
        for b in range(k):
            for j in range(r + 1):
                total = 0.0
                for lane in range(LANES):
                    total += lane_sums[(b * (r + 1) + j) * LANES + lane]
                sums[b, j] = total
