// Copies of a matrix of f32 or bf16 in fewer bits, with nothing lost, for products of few rows: those take as long as their weights take to be read. A
// weight takes 12 bits where all numbers are bf16 ones, and 28 otherwise: the exponents of neighbouring weights are mostly among sixteen in a row, so
// that four bits say which one (chunk.h). The copy is in the order in which a product reads it, and a product of more rows gains by that.
#pragma once
#include <c10/core/ScalarType.h>

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

/** Whether a product reads the copy of a matrix of this dtype, which is x's too. */
inline bool gainsByShort([[maybe_unused]] c10::ScalarType dtype, [[maybe_unused]] int64_t m, [[maybe_unused]] int64_t k) {
#if !defined(ATTUNE_SHORT_WEIGHTS)
  return false;
#elif defined(__AVX512BF16__) && defined(__AVX512VL__)
  return dtype == c10::kFloat && m <= kShortRows && k % 8 == 0;  // its instructions for bf16 add in pairs (skinny/bf16.cc)
#else
  return (dtype == c10::kFloat || dtype == c10::kBFloat16) && m <= kShortRows && k % 8 == 0;
#endif
}

/**
 * Writes w[n, k] to the words that `memory` gives, and returns how many there are; 0 where too many exponents are far from the others, or where
 * `mostBits` is 12 and a number is none of bf16, which is soon seen.
 */
template <typename T>
int64_t shorten(const T* w, int64_t n, int64_t k, int64_t mostBits, const std::function<uint32_t*(int64_t words)>& memory);

/** Whether so many words can be those of such a matrix, in `mostBits` bits or less. */
bool shortFits(const uint32_t* words, int64_t count, int64_t n, int64_t k, int64_t mostBits);

/** The bits that the same weights give in the dtype of x, for any number of rows; in bf16 as products without its instructions (gainsByShort). */
void skinnyProduct(const SkinnyProduct<float, ShortWord>& product);
void skinnyProduct(const SkinnyProduct<c10::BFloat16, ShortWord>& product);  // of a copy in 12 bits

}  // namespace attune
