// y[M, N] = x[M, K]·w[N, K]ᵀ + bias for few rows of f32, all contiguous.
#pragma once
#include <cstdint>

namespace attune {

/** Up to here it is no slower than a BLAS, which packs its operands first; beyond, x no longer stays in the near caches. */
inline bool isSkinny(int64_t m, int64_t k) { return m <= 48 || (m <= 128 && k <= 1024); }

struct SkinnyProduct {
  const float *x, *w, *bias;  // bias may be null
  float* y;
  int64_t m, k, n;
  bool add = false;  // to what is in y
};

/** A row's sums are added in an order that does not depend on the other rows or on the threads. */
void skinnyProduct(const SkinnyProduct& product);

}  // namespace attune
