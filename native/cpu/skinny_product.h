// y[M, N] = x[M, K]·w[N, K]ᵀ + bias for few rows of f32, all contiguous.
#pragma once
#include <cstdint>

namespace attune {

/** Whether this product is no slower than BLAS, which packs its operands first. For larger x it is: x leaves the near caches. */
inline bool isSkinny(int64_t m, int64_t k) { return m <= 48 || (m <= 128 && k <= 1024); }

struct SkinnyProduct {
  const float *x, *w, *bias;  // bias may be null
  float* y;
  int64_t m, k, n;
  bool add = false;  // add to what y holds
};

/** A row's sums are added in an order that does not depend on the other rows or the threads. */
void skinnyProduct(const SkinnyProduct& product);

}  // namespace attune
