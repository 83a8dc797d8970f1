// Weights in 8 and 4 bits on the CPU, in bitsandbytes' own layout, so that files in that format are read and written as they are. A matrix
// holds one or several matrices of a checkpoint (q, k and v) below one another. These are its parts; each is quantised by itself, as it is
// in a file.
//
// INT8 (Dettmers et al. 2022, LLM.int8): code = round(127·w / scale) with scale = max|w| of the row.
// 4 bits (Dettmers et al. 2023, QLoRA): blocks of 64 weights (or another even number) run through the flattened part, across rows. Each is
// divided by its max|w| and rounded to the nearest of 16 levels: the quantiles of a normal distribution (NF4), or 4-bit floats (FP4). Two
// codes share a byte, the earlier one in the upper half. The blocks' maxima are f32, or are held in 8 bits themselves (double
// quantisation): their mean is subtracted, each run of 256 is divided by its largest, and the result is rounded to the nearest of the 256
// numbers of Dettmers' dynamic map, which is denser near 0.
#pragma once
#include <cstdint>
#include <vector>

namespace attune {

constexpr int64_t kNf4Block = 64, kNestedRun = 256;

inline constexpr int64_t piecesOf(int64_t count, int64_t size) { return (count + size - 1) / size; }

/** The 16 levels of NF4, ascending. */
const float* nf4Levels();
/** The 256 numbers of the dynamic map, ascending. */
const float* dynamicMap();

struct QuantisedPart {
  int64_t outputs;
  const void* codes;  // int8 [outputs, inputs], or uint8 [⌈outputs·inputs / 2⌉]
  const void* scales;  // 8 bits: float [outputs]; 4 bits: one per block, uint8 if nested, else float
  const float* nested;  // the largest of each run of 256 maxima, or null
  float offset;  // the mean of the blocks' maxima
};

struct QuantisedRows {
  bool four;
  int64_t outputs, inputs, block;
  const float* levels;  // 16 levels, for 4 bits
  std::vector<QuantisedPart> parts;
};

/** Rows [first, first + count) as f32. */
void dequantiseRows(const QuantisedRows& from, int64_t first, int64_t count, float* out);

/** Takes any of the matrix's rows. Returns false if a number is not finite. */
bool quantiseInt8(const float* weight, int64_t outputs, int64_t inputs, int8_t* codes, float* scales);
/** Takes `count` weights that start a block; `peaks` receives the blocks' maxima. Returns false if a number is not finite. */
bool quantiseNf4(const float* weight, int64_t count, uint8_t* codes, float* peaks);
/** Quantises the maxima of a part's blocks to 8 bits; `peaks` is overwritten. Returns the offset. */
float quantisePeaks(float* peaks, int64_t count, uint8_t* scales, float* nested);

}  // namespace attune
