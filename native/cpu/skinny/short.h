// Weights of f32 in 28 bits each, with nothing lost, for products of few rows, which take as long as their weights take to be read. The weights of
// eight columns have mostly exponents out of sixteen in a row, so that four bits say which one.
//
// In 32-bit words (short.cc): how many places there are; of each octet of columns the exponent of its code 0; of each the first of its places, and
// where those of the last end; the places, of each octet those of its chunks that lie whole in f32 and the number of chunks; then, from whole lines on, the chunks;
// the chunks that lie whole; and the columns after the last 16, as they were. A chunk is eight inputs of eight columns.
#pragma once
#include <cstdint>
#include <functional>

#include "cpu/skinny/product.h"

// Where it was measured. AVX-512 and ARM have other ways to read f32 (lines.h, inputs.cc).
#if defined(__AVX2__) && !defined(__AVX512F__)
#define ATTUNE_SHORT_WEIGHTS 1
#endif

namespace attune {

struct ShortWord {
  uint32_t bits;
};

/** Whether a product of so many rows and inputs reads fewer bytes, and takes no longer, by weights in 28 bits. */
inline bool gainsByShort([[maybe_unused]] int64_t m, [[maybe_unused]] int64_t k) {
#ifdef ATTUNE_SHORT_WEIGHTS
  return m <= 4 && k % 8 == 0;
#else
  return false;
#endif
}

/** Writes w[n, k] to the words that `memory` gives, and returns how many there are; 0 where it would not gain: too many exponents that are far from the others. */
int64_t shorten(const float* w, int64_t n, int64_t k, const std::function<uint32_t*(int64_t words)>& memory);

/** Whether so many words can be those of such a matrix. */
bool shortFits(const uint32_t* words, int64_t count, int64_t n, int64_t k);

/** Of at most four rows: the bits that the same weights in f32 give. */
void skinnyProduct(const SkinnyProduct<float, ShortWord>& product);

}  // namespace attune
