// Vectors of 8-bit digits, for ARM's instruction that multiplies four neighbouring pairs and adds the products to a 32-bit lane (SDOT). x86
// has one too (VPDPBUSD), but lanes.cc takes fewer instructions there: one instruction looks up 16 levels of f32.
#pragma once
#if defined(__ARM_FEATURE_DOTPROD)
#define ATTUNE_DIGITS 1
#include <cstdint>

#include "cpu/intrinsics.h"

namespace attune {

constexpr int64_t kGroup = 16;  // digits of one vector
using Bytes = int8x16_t;
using Sums = int32x4_t;
using Floats = float32x4_t;

inline Bytes loadBytes(const int8_t* from) { return vld1q_s8(from); }
inline Floats loadFloats(const float* from) { return vld1q_f32(from); }
inline void storeBytes(int8_t* to, Bytes bytes) { vst1q_s8(to, bytes); }
inline Sums dot(Sums sums, Bytes weights, Bytes digits) { return vdotq_s32(sums, weights, digits); }
inline Floats timesPlus(Floats a, float b, Floats c) { return vfmaq_n_f32(c, a, b); }
inline float total(Floats v) { return vaddvq_f32(v); }

/** The largest |v|; NaN if any is NaN. */
inline float largest(const Floats (&v)[4]) {
  const Floats low = vmaxq_f32(vabsq_f32(v[0]), vabsq_f32(v[1])), high = vmaxq_f32(vabsq_f32(v[2]), vabsq_f32(v[3]));
  return vmaxvq_f32(vmaxq_f32(low, high));
}

/** v·factor, rounded to the nearest integer, ties to even. */
inline void toWhole(const Floats (&v)[4], float factor, Sums (&whole)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) whole[i] = vcvtnq_s32_f32(vmulq_n_f32(v[i], factor));
}

/** The lowest 8 bits of each number. */
inline Bytes lowBytes(const Sums (&v)[4]) {
  const int16x8_t low = vuzp1q_s16(vreinterpretq_s16_s32(v[0]), vreinterpretq_s16_s32(v[1]));
  const int16x8_t high = vuzp1q_s16(vreinterpretq_s16_s32(v[2]), vreinterpretq_s16_s32(v[3]));
  return vuzp1q_s8(vreinterpretq_s8_s16(low), vreinterpretq_s8_s16(high));
}

/** (v + 128) >> 8: the numbers without their lowest signed digit. */
inline void withoutLowest(const Sums (&v)[4], Sums (&rest)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) rest[i] = vrshrq_n_s32(v[i], 8);
}

inline void loadGroup(const float* from, Floats (&v)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) v[i] = loadFloats(from + 4 * i);
}

/** 32 numbers: the even ones, then the odd ones. */
inline void loadPairs(const float* from, Floats (&even)[4], Floats (&odd)[4]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; i++) {
    const float32x4x2_t both = vld2q_f32(from + 8 * i);
    even[i] = both.val[0];
    odd[i] = both.val[1];
  }
}

/** The digits of a number, or of a vector of them, the most significant first. For x, and for levels of 4 bits. */
template <int DIGITS>
using DigitsOf = Bytes[DIGITS];

/** The sums of one output and one row in a block of x. Sum d holds the products of digit i of x and digit j of w with i + j = d. */
template <int DIGITS>
struct BlockSums {
  static_assert(DIGITS == 1 || DIGITS == 3);
  Sums sums[DIGITS];

  // Adding an integer to the bits of the float 1.5·2²³ gives the float 1.5·2²³ plus that integer. It is faster than a conversion.
  void begin() {
#pragma GCC unroll 3
    for (int d = 0; d < DIGITS; d++) sums[d] = vdupq_n_s32(d < 2 ? 0x4B400000 : 0);
  }
  void add(Bytes w, const DigitsOf<DIGITS>& x) {
#pragma GCC unroll 3
    for (int d = 0; d < DIGITS; d++) sums[d] = dot(sums[d], w, x[d]);
  }
  void add(const DigitsOf<DIGITS>& w, const DigitsOf<DIGITS>& x) {
#pragma GCC unroll 3
    for (int d = 0; d < DIGITS; d++)
#pragma GCC unroll 3
      for (int i = 0; i <= d; i++) sums[d] = dot(sums[d], w[i], x[d - i]);
  }
  Floats value() const {
    const Floats base = vdupq_n_f32(12582912.0f);
    const Floats high = vsubq_f32(vreinterpretq_f32_s32(sums[0]), base);
    if constexpr (DIGITS == 1) return high;
    if constexpr (DIGITS == 3) {
      const Floats low = vsubq_f32(vreinterpretq_f32_s32(vrsraq_n_s32(sums[1], sums[2], 8)), base);
      return timesPlus(low, 1.0f / 256.0f, high);
    }
  }
};

/** A digit of 16 levels, looked up by codes of 4 bits. */
struct LevelDigits {
  Bytes digits;
  explicit LevelDigits(const int8_t* from) : digits(vld1q_s8(from)) {}
  Bytes operator[](Bytes codes) const { return vqtbl1q_s8(digits, vreinterpretq_u8_s8(codes)); }
};

/** 32 bytes of two codes each: in every 16 bytes, the upper halves (even inputs), then the lower halves (odd inputs). */
inline void splitCodes(const uint8_t* codes, Bytes (&groups)[64 / kGroup]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; half++) {
    const uint8x16_t both = vld1q_u8(codes + half * 16);
    groups[2 * half] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
    groups[2 * half + 1] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
  }
}

}  // namespace attune
#endif
