// Vectors of digits of 8 bits, for CPUs with an instruction that multiplies four neighbouring pairs of them and adds the products to
// a lane of 32 bits: SDOT of ARM and VPDPBUSD of AVX-512 VNNI.
#pragma once
#if defined(__ARM_FEATURE_DOTPROD) || (defined(__AVX512VNNI__) && defined(__AVX512BW__))
#define ATTUNE_DIGITS 1
#include <cstdint>

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

namespace attune {

#if defined(__ARM_FEATURE_DOTPROD)

constexpr int64_t kGroup = 16;  // digits of one vector
constexpr int32_t kWeightBias = 0;
using Bytes = int8x16_t;
using Sums = int32x4_t;
using Floats = float32x4_t;

inline Bytes loadDigits(const int8_t* from) { return vld1q_s8(from); }
inline Bytes loadWeights(const int8_t* from) { return vld1q_s8(from); }
inline void storeBytes(int8_t* to, Bytes bytes) { vst1q_s8(to, bytes); }
inline Sums dot(Sums sums, Bytes weights, Bytes digits) { return vdotq_s32(sums, weights, digits); }
inline Floats timesPlus(Floats a, float b, Floats c) { return vfmaq_n_f32(c, a, b); }
inline float total(Floats v) { return vaddvq_f32(v); }

// The sums of one output and one row in a block of x. Adding an integer to the bits of the float 1.5·2²³ gives the float 1.5·2²³ plus that integer:
// this takes less time than a conversion.
struct ThreeSums {
  Sums first, second, third;

  void begin(const int32_t*) {
    first = second = vdupq_n_s32(0x4B400000);
    third = vdupq_n_s32(0);
  }
  Floats value() const {
    const Floats base = vdupq_n_f32(12582912.0f);
    const Floats high = vsubq_f32(vreinterpretq_f32_s32(first), base);
    const Floats low = vsubq_f32(vreinterpretq_f32_s32(vrsraq_n_s32(second, third, 8)), base);
    return timesPlus(low, 1.0f / 256.0f, high);
  }
};

/** A digit of 16 levels, looked up by codes of 4 bits. */
struct LevelDigits {
  Bytes digits;
  explicit LevelDigits(const int8_t* from) : digits(vld1q_s8(from)) {}
  Bytes operator[](Bytes codes) const { return vqtbl1q_s8(digits, vreinterpretq_u8_s8(codes)); }
};

/** 32 bytes of two codes each: in every 16 bytes, the upper halves (even inputs), then the lower ones (odd inputs). */
inline void splitCodes(const uint8_t* codes, Bytes (&groups)[64 / kGroup]) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; half++) {
    const uint8x16_t both = vld1q_u8(codes + half * 16);
    groups[2 * half] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
    groups[2 * half + 1] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
  }
}

#else

// VPDPBUSD takes one operand without sign: 128 is added to the weights, and 128·Σx is taken off the sums before they begin.
constexpr int64_t kGroup = 64;
constexpr int32_t kWeightBias = 128;
using Bytes = __m512i;
using Sums = __m512i;
using Floats = __m512;

inline Bytes loadDigits(const int8_t* from) { return _mm512_loadu_si512(from); }
inline Bytes loadWeights(const int8_t* from) { return _mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(-128)); }
inline void storeBytes(int8_t* to, Bytes bytes) { _mm512_storeu_si512(to, bytes); }
inline Sums dot(Sums sums, Bytes weights, Bytes digits) { return _mm512_dpbusd_epi32(sums, weights, digits); }
inline Floats timesPlus(Floats a, float b, Floats c) { return _mm512_fmadd_ps(a, _mm512_set1_ps(b), c); }
inline float total(Floats v) { return _mm512_reduce_add_ps(v); }

struct ThreeSums {
  Sums first, second, third;

  void begin(const int32_t* starts) {
    first = _mm512_loadu_si512(starts);
    second = _mm512_loadu_si512(starts + 16);
    third = _mm512_loadu_si512(starts + 32);
  }
  Floats value() const {
    const Floats low = timesPlus(_mm512_cvtepi32_ps(third), 1.0f / 256.0f, _mm512_cvtepi32_ps(second));
    return timesPlus(low, 1.0f / 256.0f, _mm512_cvtepi32_ps(first));
  }
};

struct LevelDigits {
  Bytes digits;
  explicit LevelDigits(const int8_t* from)
      : digits(_mm512_xor_si512(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))), _mm512_set1_epi8(-128))) {}
  Bytes operator[](Bytes codes) const { return _mm512_shuffle_epi8(digits, codes); }
};

/** 32 bytes of two codes each: all upper halves (even inputs), then all lower ones (odd inputs). */
inline void splitCodes(const uint8_t* codes, Bytes (&groups)[64 / kGroup]) {
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), low = _mm256_set1_epi8(15);
  const __m256i even = _mm256_and_si256(_mm256_srli_epi16(both, 4), low), odd = _mm256_and_si256(both, low);
  groups[0] = _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1);
}

#endif

}  // namespace attune
#endif
