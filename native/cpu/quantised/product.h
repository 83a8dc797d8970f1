// y[M, N] = x[M, K]·Ŵᵀ + bias for few rows of f32 and a quantised matrix, all contiguous: the product of a decoding step, which
// reads the codes once and never makes the plain matrix.
#pragma once
#include "cpu/fused.h"  // so that no product before `put` is fused with its sums
#include "cpu/quantised/rows.h"

namespace attune {

struct QuantisedProduct {
  const float* x;
  const QuantisedRows& w;
  const float* bias;  // may be null
  float* y;
  int64_t m;
  bool add = false;  // add to what y holds
  bool rounded = false;  // x in 8 bits a block where that is faster (canRound): for text alone, never for log-probs to train on

  void put(int64_t row, int64_t column, float value) const {
    float& to = y[row * w.outputs + column];
    if (bias != nullptr) value += bias[column];
    to = add ? to + value : value;
  }
};

/** A row's result does not depend on the other rows or the threads, to the bit. */
void quantisedProduct(const QuantisedProduct& product);

/** Whether this CPU has a faster product for rounded x; elsewhere `rounded` changes nothing. */
bool canRound();

/** One output's codes and, of 4 bits, its place in the flattened part. */
struct QuantisedColumn {
  const QuantisedPart* part;
  int64_t row;  // of the part

  float scale8() const { return static_cast<const float*>(part->scales)[row] * (1.0f / 127.0f); }
  const int8_t* codes8(int64_t inputs) const { return static_cast<const int8_t*>(part->codes) + row * inputs; }
  /** Where rows are whole blocks. */
  const uint8_t* codes4(int64_t inputs) const { return static_cast<const uint8_t*>(part->codes) + row * inputs / 2; }
};
QuantisedColumn columnOf(const QuantisedRows& rows, int64_t column);

/** The maxima of `count` blocks of a part, from the `first` on. */
void blockScales(const QuantisedPart& part, int64_t first, int64_t count, float* out);

/** Whether the rows of a matrix in 4 bits begin with a block, and its blocks are whole groups of 64. */
inline bool isAligned(const QuantisedRows& w) { return w.block % 64 == 0 && w.inputs % w.block == 0; }

// Each is compiled for the CPUs that have its instructions, and says for which matrices it is.
bool digitsFit(const QuantisedRows& w);
void digitsProduct(const QuantisedProduct& product);
bool lanesFit(const QuantisedRows& w);
void lanesProduct(const QuantisedProduct& product);

}  // namespace attune
