// One row of x, one column of w after the other: two Neoverse-N1 cores read 37.8 GB/s so, and 29.6 from four columns at once, which one chain of
// sums for each output needs. Here an output has 32 sums, by inputs modulo 32.
#include "cpu/deal.h"
#include "cpu/skinny/product.h"
#include "cpu/vectors.h"

namespace attune {

#if defined(__aarch64__)
namespace {

float dot(const float* x, const float* w, int64_t k) {
  constexpr int kSums = 8, kStep = kSums * kWidth;
  Vector sums[kSums] = {};
  int64_t i = 0;
  for (; i + kStep <= k; i += kStep)
#pragma GCC unroll 8
    for (int j = 0; j < kSums; j++) sums[j] = fused(load(x + i + j * kWidth), load(w + i + j * kWidth), sums[j]);
#pragma GCC unroll 4
  for (int half = kSums / 2; half > 0; half /= 2)
#pragma GCC unroll 4
    for (int j = 0; j < half; j++) sums[j] += sums[j + half];
  float sum = (sums[0][0] + sums[0][1]) + (sums[0][2] + sums[0][3]);
  for (; i < k; i++) sum += x[i] * w[i];
  return sum;
}

}  // namespace

void oneRowProduct(const SkinnyProduct<float>& p) {
  constexpr int64_t kColumns = 16;  // of a task
  deal((p.n + kColumns - 1) / kColumns, leastTasks(p.k * kColumns), [&](int64_t begin, int64_t end) {
    for (int64_t column = begin * kColumns; column < std::min(p.n, end * kColumns); column++) {
      const float sum = dot(p.x, p.w + column * p.k, p.k) + (p.bias == nullptr ? 0.0f : p.bias[column]);
      p.y[column] = p.add ? p.y[column] + sum : sum;
    }
  });
}
#else
void oneRowProduct(const SkinnyProduct<float>& p) { skinnyProduct(p); }
#endif

}  // namespace attune
