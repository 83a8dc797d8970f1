// Rows of x in fixed point: a block's numbers in units of its largest one, as signed digits of 8 bits.
#pragma once
#include "cpu/quantised/digit_vectors.h"

#if defined(ATTUNE_DIGITS)
#include <cstdint>
#include <memory>

namespace attune {

constexpr int kExact = 3, kRounded = 1;  // digits per number: 24 bits or 8
constexpr int64_t kBlock4 = 64;  // inputs that share a unit, for codes of 4 bits

/**
 * The same for codes of 8 bits. If x is rounded, smaller blocks are more accurate; otherwise the limit is that a lane's sums must not
 * overflow.
 */
constexpr int64_t block8(int digits) { return digits == kRounded ? 64 : 256; }

/** Each group of inputs stores its first digits, then its second ones, then its third ones. */
struct Digits {
  int64_t blocks, stride;  // stride: bytes of a row
  std::unique_ptr<int8_t[]> digits;
  std::unique_ptr<float[]> units;  // [m, blocks]: the value of 1 in a block's sums

  Digits(const float* x, int64_t m, int64_t k, bool four, int perNumber);
};

/** The digits of each of 16 levels. */
struct Levels {
  int8_t digits[kExact][16];
  float unit;

  Levels(const float* levels, int perNumber);
};

}  // namespace attune
#endif
