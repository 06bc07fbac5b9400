/* What the compiled kernels share: eight points side by side, one a lane.

   Loops over lanes are vectorized, where compilers read OpenMP's pragma; GCC and the
   linker choose among copies of a function for wider registers when the library is
   loaded. Sums are never contracted, so that all copies give the same bits. */

#ifndef SKQUANT_LANES_H
#define SKQUANT_LANES_H

#define SKQUANT_LANES 8

#if defined(_MSC_VER)
#define SKQUANT_EACH_LANE for (int l = 0; l < SKQUANT_LANES; l++)
#else
#define SKQUANT_EACH_LANE _Pragma("omp simd") for (int l = 0; l < SKQUANT_LANES; l++)
#endif

#if defined(_MSC_VER)
#define SKQUANT_RESTRICT __restrict
#define SKQUANT_INLINE static __forceinline
#else
#define SKQUANT_RESTRICT __restrict__
#define SKQUANT_INLINE static inline __attribute__((always_inline))
#endif

/* Points of eight lanes; where there are fewer, the last one fills the lanes that are
   left. IN points (n, d); OUT filled (lanes, d) if n is below eight. */
SKQUANT_INLINE const double* skquant_fill_lanes(
    const double* points, Py_ssize_t n, Py_ssize_t d, double* filled)
{
    if (n >= SKQUANT_LANES) return points;
    for (Py_ssize_t l = 0; l < SKQUANT_LANES; l++)
        for (Py_ssize_t j = 0; j < d; j++)
            filled[l * d + j] = points[(l < n ? l : n - 1) * d + j];
    return filled;
}

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) \
    && defined(__linux__) && defined(__GLIBC__)
#define SKQUANT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SKQUANT_CLONES
#endif

#endif
