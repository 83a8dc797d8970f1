// y[M, N] = x[M, K]·Ŵᵀ + bias for a few rows of f32 and a quantised matrix, all contiguous. This is the product of a decoding step: it
// reads the codes once and never makes the plain matrix.
#pragma once
#include "cpu/fused.h"  // for -ffp-contract=off: no product before `put` is fused with its sums
#include "cpu/quantised/rows.h"

namespace attune {

struct QuantisedProduct {
  const float* x;
  const QuantisedRows& w;
  const float* bias;  // may be null
  float* y;
  int64_t m;
  bool add = false;  // add to what y holds
  bool rounded = false;  // x in 8 bits per block if that is faster (canRound); for generated text only, never for log-probs to train on

  void put(int64_t row, int64_t column, float value) const {
    float& to = y[row * w.outputs + column];
    if (bias != nullptr) value += bias[column];
    to = add ? to + value : value;
  }
};

/** A row's result does not depend on the other rows or the threads, to the bit. */
void quantisedProduct(const QuantisedProduct& product);

/** Whether this CPU has a faster product for rounded x. If not, `rounded` has no effect. */
bool canRound();

/** One output's codes and, for 4 bits, its place in the flattened part. */
struct QuantisedColumn {
  const QuantisedPart* part;
  int64_t row;  // of the part

  float scale8() const { return static_cast<const float*>(part->scales)[row] * (1.0f / 127.0f); }
  const int8_t* codes8(int64_t inputs) const { return static_cast<const int8_t*>(part->codes) + row * inputs; }
  /** Only for rows that are whole blocks. */
  const uint8_t* codes4(int64_t inputs) const { return static_cast<const uint8_t*>(part->codes) + row * inputs / 2; }
};
QuantisedColumn columnOf(const QuantisedRows& rows, int64_t column);

/** The maxima of `count` blocks of a part, starting at block `first`. */
void blockScales(const QuantisedPart& part, int64_t first, int64_t count, float* out);

/** Whether each row of a 4-bit matrix starts a block, and its blocks are whole groups of 64. */
inline bool isAligned(const QuantisedRows& w) { return w.block % 64 == 0 && w.inputs % w.block == 0; }

// Each is compiled for the CPUs that have its instructions, and says which matrices it supports.
bool digitsFit(const QuantisedRows& w);
void digitsProduct(const QuantisedProduct& product);
bool lanesFit(const QuantisedRows& w);
void lanesProduct(const QuantisedProduct& product);

}  // namespace attune
