// Copies of an f32 matrix in fewer bits, with nothing lost, for products of few rows: those take as long as their weights take to be read. A weight
// takes 12 bits where all numbers are bf16 ones, and 28 otherwise: the exponents of neighbouring weights are mostly among sixteen in a row, so that
// four bits say which one (chunk.h). The copy is in the order in which a product reads it, and a product of more rows gains by that.
#pragma once
#include <cstdint>
#include <functional>

#include "cpu/skinny/product.h"

// ARM has other ways to read f32 (skinny/inputs.cc): there unpacking takes about as long as memory does.
#if defined(__AVX2__)
#define ATTUNE_SHORT_WEIGHTS 1
#endif

namespace attune {

/** A word of a copy. */
struct ShortWord {
  uint32_t bits;
};

/** Rows for which a product takes no longer by such copies than by the matrix itself (benchmarks/notes/quantised.md). */
#if defined(__AVX512F__)
constexpr int64_t kShortRows = 24;
#else
constexpr int64_t kShortRows = 4;
#endif

inline bool gainsByShort([[maybe_unused]] int64_t m, [[maybe_unused]] int64_t k) {
#ifdef ATTUNE_SHORT_WEIGHTS
  return m <= kShortRows && k % 8 == 0;
#else
  return false;
#endif
}

/** Writes w[n, k] to the words that `memory` gives, and returns how many there are; 0 where too many exponents are far from the others. */
int64_t shorten(const float* w, int64_t n, int64_t k, const std::function<uint32_t*(int64_t words)>& memory);

/** Whether so many words can be those of such a matrix. */
bool shortFits(const uint32_t* words, int64_t count, int64_t n, int64_t k);

/** The bits that the same weights in f32 give, for any number of rows. */
void skinnyProduct(const SkinnyProduct<float, ShortWord>& product);

}  // namespace attune
