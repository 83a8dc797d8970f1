// One head of a new token in 8 bits: a number is code × scale, with scale = max|x| / 127 of the head, rounded up to bf16. If all are zero,
// scale and codes are 0. If a number is not finite, the scale is NaN, so that the fault stays visible. The CPU and the composed operators
// compute the same.
#pragma once
#include <cmath>

#include "cuda/numbers.cuh"

namespace attune {

constexpr float kMostCode = 127;

/** The scale of a head whose numbers LANES neighbouring lanes of a warp hold: the largest is `most` times the scale. By all lanes. */
template <int N, int LANES = 32>
__device__ inline float scaleOf(const float (&values)[N], float most) {
  float largest = 0;
  bool isFinite = true;
#pragma unroll
  for (int i = 0; i < N; i++) {
    largest = fmaxf(largest, fabsf(values[i]));
    isFinite = isFinite && fabsf(values[i]) < INFINITY;
  }
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, offset));
  const unsigned own = LANES == 32 ? 0xFFFFFFFF : ((1u << LANES % 32) - 1) << threadIdx.x % 32 / LANES * LANES;
  return (__ballot_sync(0xFFFFFFFF, isFinite) & own) == own ? __fdiv_rn(largest, most) : NAN;
}

/** Rounded up to what bf16 holds, so that no number is beyond the largest code. NaN stays NaN. */
__device__ inline float roundedUp(float scale) {
  return isnan(scale) ? scale : __uint_as_float((__float_as_uint(scale) + 0xFFFFu) & 0xFFFF0000u);
}

/** The scale of a head that goes to the cache. */
template <int N, int LANES = 32>
__device__ inline float cacheScaleOf(const float (&values)[N]) {
  return roundedUp(scaleOf<N, LANES>(values, kMostCode));
}

__device__ inline int8_t codeOf(float x, float scale) {
  return scale > 0 ? static_cast<int8_t>(rintf(fminf(fmaxf(__fdiv_rn(x, scale), -kMostCode), kMostCode))) : int8_t{0};
}

/** Where the scale of a token's kv head lies; `place` as in head.cuh. */
__device__ inline uint64_t scalePlace(uint64_t place, unsigned groups, unsigned group) {
  return (place / kCacheBlock * groups + group) * kCacheBlock + place % kCacheBlock;
}

}  // namespace attune
