// The operands of a decoding step's products in f16 and bf16 that follow a norm.
#pragma once
#include "cuda/product_sums.cuh"

namespace attune {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/**
 * x times the norm's weights, before 1/√(mean x² + ε) is known, for HALVES times 8 rows. bf16 has room for the products. f16 has not, so
 * there a row's x is multiplied by a power of two first, such that no product is above 2^15. Where a larger x comes, the power becomes
 * smaller, and what was added up follows.
 */
template <typename Number, int HALVES>
struct NormProducts {
  /** Makes room for numbers that are multiplied later, if others are multiplied before their products are added up. */
  template <int TILES>
  __device__ void fit(const uint4&, const uint4&, float (&)[TILES][4]) {}
  /** A lane's eight numbers of its row of each half become products; its sums of a half's row are 2·half and the next. */
  template <int TILES>
  __device__ void multiply(uint4& one, uint4& two, const uint4& weights, float (&)[TILES][4]) {
    one = timesEach(one, weights);
    if constexpr (HALVES > 1) two = timesEach(two, weights);
  }
  /** After the last product: takes the powers out of the sums. */
  template <int TILES>
  __device__ void finish(float (&)[TILES][4]) {}
};

template <int HALVES>
struct NormProducts<__half, HALVES> {
  // Powers of two are held as the bits of floats, so that sums and differences are products and quotients of them.
  static constexpr unsigned kTwice = 1u << 23, kOne = 127 * kTwice, kExponent = 255 * kTwice;
  float largestWeight = 1;
  unsigned room;  // 2^15 over the largest weight: what a row's power times its largest x may be
  unsigned power[HALVES];

  /** Before all products: each of the weights, then `begin`. */
  __device__ void see(const uint4& weights) { largestWeight = fmaxf(largestWeight, largest(weights)); }
  __device__ void begin() {
    room = kOne + 14 * kTwice + kOne - (__float_as_uint(ofRow(largestWeight)) & kExponent);
#pragma unroll
    for (int half = 0; half < HALVES; half++) power[half] = kOne + 15 * kTwice;  // the largest that f16 has
  }
  template <int TILES>
  __device__ void fit(const uint4& one, const uint4& two, float (&sums)[TILES][4]) {
    const float low = largest(one), high = HALVES > 1 ? largest(two) : 0.0f;
    if (__any_sync(0xFFFFFFFF, low > limit(0) || (HALVES > 1 && high > limit(HALVES - 1)))) {
      makeRoom<0>(low, sums);
      if constexpr (HALVES > 1) makeRoom<1>(high, sums);
    }
  }
  template <int TILES>
  __device__ void multiply(uint4& one, uint4& two, const uint4& weights, float (&sums)[TILES][4]) {
    fit(one, two, sums);
    one = scaled(one, weights, power[0]);
    if constexpr (HALVES > 1) two = scaled(two, weights, power[1]);
  }
  template <int TILES>
  __device__ void finish(float (&sums)[TILES][4]) {
    change<0>(sums, kOne);
    if constexpr (HALVES > 1) change<1>(sums, kOne);
  }

 private:
  static __device__ float largest(const uint4& eight) {
    const auto* two = reinterpret_cast<const __half2*>(&eight);
    const __half2 most = __hmax2(__hmax2(__habs2(two[0]), __habs2(two[1])), __hmax2(__habs2(two[2]), __habs2(two[3])));
    return fmaxf(__low2float(most), __high2float(most));
  }
  static __device__ float ofRow(float most) {  // four lanes share a row
    most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 1));
    return fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, 2));
  }
  /** The largest x for which there is room. */
  __device__ float limit(int half) const { return __uint_as_float(room - power[half] + kOne); }
  /** Where a row needs it: room for 16 times as much, so that it is seldom needed again. */
  template <int HALF, int TILES>
  __device__ void makeRoom(float most, float (&sums)[TILES][4]) {
    most = ofRow(most);
    if (most > limit(HALF)) change<HALF>(sums, room + kOne - (__float_as_uint(most) & kExponent) - 4 * kTwice);
  }
  template <int HALF, int TILES>
  __device__ void change(float (&sums)[TILES][4], unsigned to) {
    const float by = __uint_as_float(to - power[HALF] + kOne);
#pragma unroll
    for (int j = 0; j < TILES; j++) sums[j][2 * HALF] *= by, sums[j][2 * HALF + 1] *= by;
    power[HALF] = to;
  }
  static __device__ uint4 scaled(uint4 x, const uint4& weights, unsigned power) {
    const __half2 factor = __float2half2_rn(__uint_as_float(power));
    auto* two = reinterpret_cast<__half2*>(&x);
    const auto* by = reinterpret_cast<const __half2*>(&weights);
#pragma unroll
    for (int i = 0; i < 4; i++) two[i] = __hmul2(__hmul2(two[i], factor), by[i]);
    return x;
  }
};

#endif
}  // namespace attune
