/* What the compiled kernels share: eight points side by side, one a lane.

   Loops over lanes are what compilers vectorize. Where they can, GCC and the linker
   choose among copies of a function for wider registers when the library is loaded;
   sums are never contracted, so that all copies give the same bits. */

#ifndef SKQUANT_LANES_H
#define SKQUANT_LANES_H

#define SKQUANT_LANES 8

#if defined(_MSC_VER)
#define SKQUANT_RESTRICT __restrict
#else
#define SKQUANT_RESTRICT __restrict__
#endif

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) \
    && defined(__linux__) && defined(__GLIBC__)
#define SKQUANT_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define SKQUANT_CLONES
#endif

#endif
