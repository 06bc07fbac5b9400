# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False
"""Pricing: the center that gains most, by branch and bound over boxes, resumable.

Minimized is ``sum_i w_i min(0, |x_i - c|^2 - pi_i)`` over all c. A row whose farthest
distance to a box is below ``pi`` is certain: such rows are sums, their total a
quadratic in c, and they stay so in every part of the box. Other rows count with their
smallest distance. All state is in the caller's arrays.
"""

from libc.math cimport fmax, fmin


def price(
    const double[:, ::1] points,   # IN (n, m)
    const double[::1] weights,     # IN (n,)
    const double[::1] duals,       # IN (n,)
    double tolerance,              # IN a box is closed within this of the best value
    long long max_boxes,           # IN boxes to bound in this call
    double[:, ::1] low,            # INOUT (depths, m)
    double[:, ::1] high,           # INOUT (depths, m)
    double[:, ::1] sums,           # INOUT (depths, m + 2): w, w (x^2 - pi), w x
    double[::1] bounds,            # INOUT (depths,)
    int[::1] child,                # INOUT (depths,): parts that were looked at
    Py_ssize_t[::1] start,         # INOUT (depths + 1,): first row of a box's list
    int[::1] rows,                 # INOUT (capacity,): lists of uncertain rows
    double[::1] center,            # INOUT (m,): of the best value
    double[::1] state,             # INOUT (2,): best value, smallest closed bound
    Py_ssize_t[::1] depth,         # INOUT (1,): -1 when all is closed
):
    """Search on; return the number of boxes bounded."""
    cdef Py_ssize_t m = points.shape[1], t = depth[0], i, j, k, longest, end
    cdef Py_ssize_t last = bounds.shape[0] - 1, capacity = rows.shape[0]
    cdef long long boxes = 0
    cdef double side, middle, nearest, farthest, at_middle, a, b, c, w, norm
    cdef double bound, value, quadratic, at_center
    with nogil:
        while t >= 0 and boxes < max_boxes:
            if child[t] == 2 or bounds[t] >= state[0] - tolerance:
                # parts that were not looked at are bounded by the whole
                if child[t] < 2:
                    state[1] = fmin(state[1], bounds[t])
                t -= 1
                continue
            if t == last or start[t + 1] + start[t + 1] - start[t] > capacity:
                state[1] = fmin(state[1], bounds[t])
                t -= 1
                continue
            longest = 0
            side = -1.0
            for j in range(m):
                low[t + 1, j] = low[t, j]
                high[t + 1, j] = high[t, j]
                if high[t, j] - low[t, j] > side:
                    side = high[t, j] - low[t, j]
                    longest = j
            middle = 0.5 * (low[t, longest] + high[t, longest])
            if child[t] == 0:
                high[t + 1, longest] = middle
            else:
                low[t + 1, longest] = middle
            child[t] += 1
            boxes += 1
            for j in range(m + 2):
                sums[t + 1, j] = sums[t, j]
            bound = 0.0
            value = 0.0
            end = start[t + 1]
            for k in range(start[t], start[t + 1]):
                i = rows[k]
                nearest = 0.0
                farthest = 0.0
                at_middle = 0.0
                for j in range(m):
                    a = low[t + 1, j] - points[i, j]
                    b = points[i, j] - high[t + 1, j]
                    c = fmax(fmax(a, b), 0.0)
                    nearest += c * c
                    c = fmin(a, b)
                    farthest += c * c
                    c = 0.5 * (a - b)
                    at_middle += c * c
                if nearest >= duals[i]:
                    continue
                w = weights[i]
                if farthest <= duals[i]:
                    norm = 0.0
                    for j in range(m):
                        norm += points[i, j] * points[i, j]
                        sums[t + 1, 2 + j] += w * points[i, j]
                    sums[t + 1, 0] += w
                    sums[t + 1, 1] += w * (norm - duals[i])
                    continue
                bound += w * (nearest - duals[i])
                value += w * fmin(0.0, at_middle - duals[i])
                rows[end] = <int> i
                end += 1
            start[t + 2] = end
            quadratic = sums[t + 1, 1]
            at_center = sums[t + 1, 1]
            w = sums[t + 1, 0]
            for j in range(m):
                c = 0.5 * (low[t + 1, j] + high[t + 1, j])
                at_center += c * (w * c - 2.0 * sums[t + 1, 2 + j])
                if w > 0.0:
                    c = sums[t + 1, 2 + j] / w
                    c = fmin(fmax(c, low[t + 1, j]), high[t + 1, j])
                quadratic += c * (w * c - 2.0 * sums[t + 1, 2 + j])
            bounds[t + 1] = fmax(bounds[t], bound + quadratic)
            if value + at_center < state[0]:
                state[0] = value + at_center
                for j in range(m):
                    center[j] = 0.5 * (low[t + 1, j] + high[t + 1, j])
            child[t + 1] = 0
            t += 1
    depth[0] = t
    return boxes
