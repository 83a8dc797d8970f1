// Tensor cores: c[16, 8] += a[16, 16]·b[16, 8] by one warp. Lane (g, t) = (lane / 4, lane % 4) holds
//   a: rows g and g + 8 at columns 2t, 2t + 1 (a0, a1) and 2t + 8, 2t + 9 (a2, a3)
//   b: column g at rows 2t, 2t + 1 (b0) and 2t + 8, 2t + 9 (b1)
//   c: row g at columns 2t, 2t + 1 (c[0], c[1]) and row g + 8 (c[2], c[3])
// The order of the inner dimension does not matter as long as a and b use the same one, so a lane may hold neighbours of a row.
#pragma once
#include "cuda/numbers.cuh"

namespace attune {

template <typename T>
__device__ inline void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    multiplyBFloat16(c, a0, a1, a2, a3, b0, b1);
  else
    multiplyFloat16(c, a0, a1, a2, a3, b0, b1);
}

/** Two numbers in one register, the first in the low half; one instruction rounds both. */
template <typename T>
__device__ inline unsigned pack(float low, float high) {
  return std::is_same_v<T, __nv_bfloat16> ? packBFloat16(low, high) : packFloat16(low, high);
}

template <typename T>
__device__ inline float2 unpack(unsigned both) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(both << 16), __uint_as_float(both & 0xFFFF0000u)};
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
}

}  // namespace attune
