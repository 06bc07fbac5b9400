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

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) \
    && defined(__linux__) && defined(__GLIBC__)
#define SKQUANT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define SKQUANT_CLONES
#endif

#endif
