// A chunk is eight inputs of a strip of columns, which are the lanes of its vectors of 32-bit words. A weight has its sign, four bits that say by how much
// its exponent is above the strip's base, and its mantissa. These lie in a word where an f32 has them, so that a weight is a word without the bits
// that are not its own, plus the base. An f32 has four bits to spare there, those between sign and code:
//   Short28  seven words with a weight each, whose spare bits hold the eighth
//   Short12  three words with two weights each, one in either half, whose spare bits hold the last two
#pragma once
#include "cpu/intrinsics.h"
#include "cpu/short/short.h"
#include "cpu/skinny/lanes.h"

#ifdef ATTUNE_SHORT_WEIGHTS
namespace attune {

constexpr int64_t kChunk = 8;  // inputs
constexpr int kCodes = 16;  // exponents from the base on

#if defined(__AVX512F__)
constexpr int64_t kStrip = 16;  // columns
using Words = __m512i;
using Weights = __m512;
inline Words everywhere(uint32_t bits) { return _mm512_set1_epi32(static_cast<int>(bits)); }
inline Words loadWords(const uint32_t* from) { return _mm512_loadu_si512(from); }
inline void storeWords(uint32_t* to, const Words& words) { _mm512_storeu_si512(to, words); }
inline Words plus(const Words& a, const Words& b) { return _mm512_add_epi32(a, b); }
inline Words minus(const Words& a, const Words& b) { return _mm512_sub_epi32(a, b); }
inline Words both(const Words& a, const Words& b) { return _mm512_and_si512(a, b); }
template <int BY>
Words right(const Words& words) {
  return _mm512_srli_epi32(words, BY);
}
template <int BY>
Words left(const Words& words) {
  return _mm512_slli_epi32(words, BY);
}
/** The bits of a where the mask has them, of b elsewhere. */
inline Words chosen(uint32_t mask, const Words& a, const Words& b) { return _mm512_ternarylogic_epi32(everywhere(mask), a, b, 0xCA); }
inline Weights asWeights(const Words& words) { return _mm512_castsi512_ps(words); }
inline Weights noWeights() { return _mm512_setzero_ps(); }
inline Weights loadWeights(const float* from) { return _mm512_loadu_ps(from); }
inline void storeWeights(float* to, const Weights& values) { _mm512_storeu_ps(to, values); }
inline Weights added(const Weights& a, const Weights& b) { return _mm512_add_ps(a, b); }
inline Weights addedProduct(const Weights& w, float x, const Weights& sum) { return _mm512_fmadd_ps(w, _mm512_set1_ps(x), sum); }
/** Eight inputs of a strip of columns that are `k` apart: a vector of all columns for each input. */
inline void turnedChunk(const float* w, int64_t k, Words (&at)[kChunk]) {
  Words items[kLineItems];
  turnedLines(w, k, kChunk, items);
  for (int64_t j = 0; j < kChunk; j++) at[j] = items[j];
}
#else
constexpr int64_t kStrip = 8;
using Words = __m256i;
using Weights = __m256;
inline Words everywhere(uint32_t bits) { return _mm256_set1_epi32(static_cast<int>(bits)); }
inline Words loadWords(const uint32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline void storeWords(uint32_t* to, const Words& words) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words); }
inline Words plus(const Words& a, const Words& b) { return _mm256_add_epi32(a, b); }
inline Words minus(const Words& a, const Words& b) { return _mm256_sub_epi32(a, b); }
inline Words both(const Words& a, const Words& b) { return _mm256_and_si256(a, b); }
template <int BY>
Words right(const Words& words) {
  return _mm256_srli_epi32(words, BY);
}
template <int BY>
Words left(const Words& words) {
  return _mm256_slli_epi32(words, BY);
}
inline Words chosen(uint32_t mask, const Words& a, const Words& b) {
  return _mm256_or_si256(_mm256_and_si256(a, everywhere(mask)), _mm256_and_si256(b, everywhere(~mask)));
}
inline Weights asWeights(const Words& words) { return _mm256_castsi256_ps(words); }
inline Weights noWeights() { return _mm256_setzero_ps(); }
inline Weights loadWeights(const float* from) { return _mm256_loadu_ps(from); }
inline void storeWeights(float* to, const Weights& values) { _mm256_storeu_ps(to, values); }
inline Weights added(const Weights& a, const Weights& b) { return _mm256_add_ps(a, b); }
inline Weights addedProduct(const Weights& w, float x, const Weights& sum) { return fewFused(w, x, sum); }
inline void turnedChunk(const float* w, int64_t k, Words (&at)[kChunk]) {
  for (int64_t i = 0; i < kChunk; i += 4) {
    Few four[4];
    fourInputs(w + i, k, four);
    for (int64_t j = 0; j < 4; j++) at[i + j] = _mm256_castps_si256(four[j]);
  }
}
#endif

struct Short28 {
  static constexpr int64_t kBits = 28, kWords = 7 * kStrip, kAhead = 8 * kWords;  // asked for before they are used

  /** `weights`: with the base subtracted from their exponents. */
  static void pack(const Words (&weights)[kChunk], uint32_t* to) {
    Words last = plus(both(weights[7], everywhere(kMagnitude)), both(right<4>(weights[7]), everywhere(1u << 27)));
    for (int64_t j = 0; j < 7; j++) {
      storeWords(to + j * kStrip, plus(weights[j], both(left<27>(last), everywhere(kSpare))));
      last = right<4>(last);
    }
  }

  /** Calls add(weights, input) for each input, in their order. */
  template <typename Add>
  static inline __attribute__((always_inline)) void unpack(const uint32_t* from, const Words& base, const Add& add) {
    Words last = word<0>(from, base, add);
    last = chosen(15u << 4, word<1>(from, base, add), last);
    last = chosen(15u << 8, word<2>(from, base, add), last);
    last = chosen(15u << 12, word<3>(from, base, add), last);
    last = chosen(15u << 16, word<4>(from, base, add), last);
    last = chosen(15u << 20, word<5>(from, base, add), last);
    last = chosen(15u << 24, word<6>(from, base, add), last);
    const Words magnitude = plus(both(last, everywhere(kMagnitude)), base);
    add(asWeights(chosen(1u << 31, left<4>(last), magnitude)), 7);
  }

 private:
  static constexpr uint32_t kSpare = 15u << 27, kMagnitude = (1u << 27) - 1;

  // Adds the weight of a word, and gives back its spare bits where the eighth weight has them.
  template <int J, typename Add>
  static inline __attribute__((always_inline)) Words word(const uint32_t* from, const Words& base, const Add& add) {
    const Words words = loadWords(from + J * kStrip);
    add(asWeights(plus(both(words, everywhere(~kSpare)), base)), J);
    return right<27 - 4 * J>(words);
  }
};

struct Short12 {
  static constexpr int64_t kBits = 12, kWords = 3 * kStrip, kAhead = 16 * kWords;

  static void pack(const Words (&weights)[kChunk], uint32_t* to) {
    Words pairs[4];
    for (int64_t j = 0; j < 4; j++) pairs[j] = plus(weights[2 * j], right<16>(weights[2 * j + 1]));
    const Words spare = everywhere(kSpares);
    storeWords(to, plus(pairs[0], both(left<4>(pairs[3]), spare)));
    storeWords(to + kStrip, plus(pairs[1], both(left<8>(pairs[3]), spare)));
    const Words last = plus(both(left<11>(pairs[3]), everywhere(kSpares & ~kTopSpares)), both(right<1>(pairs[3]), everywhere(kTopSpares)));
    storeWords(to + 2 * kStrip, plus(pairs[2], last));
  }

  template <typename Add>
  static inline __attribute__((always_inline)) void unpack(const uint32_t* from, const Words& base, const Add& add) {
    const Words a = loadWords(from), b = loadWords(from + kStrip), c = loadWords(from + 2 * kStrip);
    pair<0>(a, base, add);
    pair<2>(b, base, add);
    pair<4>(c, base, add);
    // of both halves: code, four bits of the mantissa; sign, three bits of the mantissa
    const Words upper = chosen(0x07800780, right<4>(a), right<8>(b)), lower = chosen(0x80008000, left<1>(c), right<11>(c));
    pair<6>(chosen(0x07F807F8, upper, lower), base, add);
  }

 private:
  static constexpr uint32_t kSpares = 0x78007800, kTopSpares = 0x40004000, kFirst = 0x87FF0000;

  template <int J, typename Add>
  static inline __attribute__((always_inline)) void pair(const Words& words, const Words& base, const Add& add) {
    add(asWeights(plus(both(words, everywhere(kFirst)), base)), J);
    add(asWeights(plus(both(left<16>(words), everywhere(kFirst)), base)), J + 1);
  }
};

}  // namespace attune
#endif
