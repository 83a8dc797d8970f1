// Logits as integers in the same order, and how a range of them is divided into bins.
#pragma once
#include "cuda/numbers.cuh"

namespace attune {

constexpr int kBinBits = 12, kBins = 1 << kBinBits;

/** Bits of a float32 that are 0 in every number of the type. */
template <typename T>
constexpr int kUnusedBits = std::is_same_v<T, __nv_bfloat16> ? 16
                            : std::is_same_v<T, __half>      ? 13
                                                             : 0;

/** The bits without the sign, negative for negative numbers: neighbouring numbers of the type have neighbouring orders. */
template <typename T>
__device__ inline int orderOf(float z) {
  const int bits = __float_as_int(z), magnitude = (bits & INT32_MAX) >> kUnusedBits<T>;
  return bits < 0 ? -magnitude : magnitude;
}
/** Of number `at` of a run. */
template <typename T, int N>
__device__ inline int orderOf(const Run<T, N>& run, int at) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {  // whose orders are its bits: fewer instructions
    const unsigned two = run.words()[at / 2], bits = at % 2 == 0 ? two & 0xFFFF : two >> 16;
    const int magnitude = static_cast<int>(bits & 0x7FFF);
    return bits > 0x7FFF ? -magnitude : magnitude;
  } else {
    return orderOf<T>(run[at]);
  }
}
template <typename T>
__device__ inline float valueOf(int order) {
  const float magnitude = __int_as_float(abs(order) << kUnusedBits<T>);
  return order < 0 ? -magnitude : magnitude;
}

/**
 * Orders from `low` to `high` in at most kBins bins of 2^shift orders. Half of all numbers are close to 0, where few logits are: up to
 * ±hole they share a bin.
 */
struct Range {
  int low, high, hole, shift;

  /** `bitsOfOctave`: log2 of how many numbers there are from 1 to 2. An octave gets at least 128 bins, where a hole may be. */
  __device__ static Range over(int low, int high, int bitsOfOctave, bool mayHaveHole) {
    const int64_t width = static_cast<int64_t>(high) - low;
    if (width < kBins) return {low, high, 0, 0};
    const int needed = 64 - __clzll(width) - kBinBits, shift = mayHaveHole ? min(max(bitsOfOctave - 7, 0), needed) : needed;
    const int64_t span = static_cast<int64_t>(kBins) << shift;
    if (width < span) return {low, high, 0, shift};
    int64_t hole = (width - span + 2) / 2;
    if (hole > high)
      hole = -static_cast<int64_t>(low) - span + 1;
    else if (hole > -static_cast<int64_t>(low))
      hole = high - span + 1;
    return {low, high, static_cast<int>(hole), shift};
  }
  __device__ int without(int order) const { return order - min(max(order, -hole), hole); }
  __device__ int bin(int order) const {
    return static_cast<int>((static_cast<unsigned>(without(order)) - static_cast<unsigned>(without(low))) >> shift);
  }
  /** Whether the bin holds a single order, which is then `first`. */
  __device__ bool isSingle(int bin) const { return shift == 0 && (hole == 0 || without(low) + bin != 0); }
  __device__ int first(int bin) const {
    const int at = without(low) + static_cast<int>(static_cast<unsigned>(bin) << shift);
    return max(low, at > 0 ? at + hole : at - hole);
  }
  __device__ int last(int bin) const {
    const int64_t at = without(low) + (static_cast<int64_t>(bin + 1) << shift) - 1;
    return static_cast<int>(min(static_cast<int64_t>(high), at < 0 ? at - hole : at + hole));
  }
};

/** A weight in units of 2⁻³², as low and high 16 bits: sums of whole numbers do not depend on their order. */
struct Mass {
  unsigned low, high;
  __device__ explicit Mass(float weight) {
    const float scaled = weight * 65536.0f, whole = floorf(scaled);
    low = __float2uint_rn((scaled - whole) * 65536.0f);
    high = __float2uint_rn(whole);
  }
  __device__ unsigned long long whole() const { return low + (static_cast<unsigned long long>(high) << 16); }
};

}  // namespace attune
