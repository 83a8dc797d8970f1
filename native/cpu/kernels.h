// Loops that the compiler can turn into vector instructions, shared by the CPU operators.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/fused.h"

namespace attune {

// e^x to f32 rounding, by range reduction and a polynomial (Cephes' coefficients). It has no branches, so the compiler vectorises a loop
// over it; it does not vectorise std::exp.
inline float vexp(float x) {
  const float limited = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  // adding 1.5·2²³ rounds to an integer and leaves that in the low bits
  const float shifted = fused(limited, 1.44269504088896341f, 12582912.0f);
  int32_t whole;
  std::memcpy(&whole, &shifted, sizeof whole);
  const float k = shifted - 12582912.0f;
  const float r = fused(k, 2.12194440e-4f, fused(k, -0.693359375f, limited));
  float p = 1.9875691500e-4f;
  p = fused(p, r, 1.3981999507e-3f);
  p = fused(p, r, 8.3334519073e-3f);
  p = fused(p, r, 4.1665795894e-2f);
  p = fused(p, r, 1.6666665459e-1f);
  p = fused(p, r, 5.0000001201e-1f);
  p = fused(p * r, r, r) + 1.0f;
  const int32_t bits = (whole - 0x4B400000 + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof power);
  return x < -87.0f ? 0.0f : p * power;
}

/** Σ a·b. omp simd lets the compiler reorder the sum, and so vectorise it. */
template <typename A, typename B>
inline float dotProduct(const A* a, const B* b, int64_t size) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < size; i++) sum = fused(static_cast<float>(a[i]), static_cast<float>(b[i]), sum);
  return sum;
}

/** Rows per parallel task, so that a task is large enough to justify a thread. */
inline int64_t grain(int64_t workPerRow) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, workPerRow)); }

}  // namespace attune
