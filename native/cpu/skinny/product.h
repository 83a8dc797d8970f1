// y[M, N] = x[M, K]·w[N, K]ᵀ + bias for few rows of f32 or bf16, all contiguous.
#pragma once
#include <c10/util/BFloat16.h>

#include <cstdint>

namespace attune {

/** Whether this product is no slower than BLAS, which packs its operands first. For larger x it is: x leaves the near caches. */
inline bool isSkinny(int64_t m, int64_t k) { return m <= 48 || (m <= 128 && k <= 1024); }

/**
 * Whether this product of f32 takes any number of rows. On ARM it is about as fast as BLAS up to 1,024 inputs; the bits of a row then never depend on
 * how many there are, as those of a prompt that is read alone or with others.
 */
inline bool takesAllRows([[maybe_unused]] int64_t k) {
#if defined(__aarch64__)
  return k <= 1024;
#else
  return false;
#endif
}

template <typename T>
struct SkinnyProduct {
  const T *x, *w, *bias;  // bias may be null
  T* y;
  int64_t m, k, n;
  bool add = false;  // add to what y holds
};

/** A row's sums are added in an order that does not depend on the other rows or the threads. */
void skinnyProduct(const SkinnyProduct<float>& product);

/** Sums in f32. They are rounded once the bias is added and, where y is added to, once more, as a product and a sum by themselves would be. */
void skinnyProduct(const SkinnyProduct<c10::BFloat16>& product);

}  // namespace attune
