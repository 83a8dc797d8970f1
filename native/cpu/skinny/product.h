// y[M, N] = x[M, K]·w[N, K]ᵀ + bias for few rows of f32 or bf16, all contiguous.
#pragma once
#include <c10/util/BFloat16.h>

#include <cstdint>

namespace attune {

/**
 * Whether this product is no slower than BLAS, which packs its operands first. With a larger x it is slower: x no longer fits into the near
 * caches.
 */
inline bool isSkinny(int64_t m, int64_t k) { return m <= 48 || (m <= 128 && k <= 1024); }

/**
 * Whether this product of f32 takes any number of rows, at about the speed of BLAS: on ARM up to 1,024 inputs, on x86 with AVX2 and no
 * AVX-512 always (many.h). A row's bits then never depend on the number of rows, so a prompt gives the same bits alone and in a batch.
 * Debian's OpenBLAS with AVX-512 also keeps them, as far as the decoding tests can tell.
 */
inline bool takesAllRows([[maybe_unused]] int64_t k) {
#if defined(__aarch64__)
  return k <= 1024;
#elif defined(__AVX2__) && !defined(__AVX512F__)
  return true;
#else
  return false;
#endif
}

/** W: the dtype of the weights. */
template <typename T, typename W = T>
struct SkinnyProduct {
  const T* x;
  const W* w;
  const T* bias;  // may be null
  T* y;
  int64_t m, k, n;
  bool add = false;  // add to what y holds
};

/** A row's sums are added in an order that does not depend on the other rows or the threads. */
void skinnyProduct(const SkinnyProduct<float>& product);

/** x of f32 by bf16 weights, which are widened: the same bits as with the same weights in f32. */
void skinnyProduct(const SkinnyProduct<float, c10::BFloat16>& product);

/**
 * Whether this many rows take no longer with bf16 weights than with the same weights in f32. They are half the bytes, but widening them
 * takes instructions, which weigh more when more rows share a weight (benchmarks/notes/quantised.md).
 */
inline bool gainsByHalves(int64_t m, [[maybe_unused]] int64_t k) {
#if defined(__aarch64__)
  return m <= 3;
#elif defined(__AVX512F__)
  return m <= 16 && k % 8 == 0;
#else
  return m <= 4 && k % 8 == 0;  // a whole number of steps for columns that are read in pairs
#endif
}

/** Sums in f32. They are rounded once the bias is added and, if y is added to, once more, as a separate product and sum would be. */
void skinnyProduct(const SkinnyProduct<c10::BFloat16>& product);

}  // namespace attune
