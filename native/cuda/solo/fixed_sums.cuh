// Sums that blocks add to in any order. They are integers, so the order does not change the result: a repeated step gives the same bits.
#pragma once
#include "cuda/raw.h"

namespace attune {

constexpr int kFixedParts = 8;  // of a sum, at most
constexpr float kFixedOne = 4294967296.0f;  // 2^32
// A part that is not finite or not below 2^23 counts as 2^60. Up to eight of them, and the others, add up to 2^59 or more, or to less than −2^59;
// without one the sum stays below 2^58.
constexpr float kFixedMost = 8388608.0f;
constexpr long long kFixedBroken = 1LL << 60, kFixedBound = 1LL << 59;

__device__ inline void addFixed(long long* sum, float part) {
  const long long number = fabsf(part) < kFixedMost ? __float2ll_rn(part * kFixedOne) : kFixedBroken;
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), static_cast<unsigned long long>(number));
}

/** The sum as a number; NaN where a part was none. */
__device__ inline float fixedValue(long long sum) {
  return sum < kFixedBound && sum >= -kFixedBound ? __ll2float_rn(sum) * (1.0f / kFixedOne) : __int_as_float(0x7FFFFFFF);
}

}  // namespace attune
