// Weights in 8 and in 4 bits on the CPU, in bitsandbytes' own layout, so that files of that format are read and written as
// they are. A matrix holds one or several of a checkpoint's (q, k and v) below one another: these are its parts, and each is
// quantised for itself, as it lies in a file.
//
// INT8 (Dettmers et al. 2022, LLM.int8): code = round(127·w / scale) with scale = max|w| of the row.
// 4 bits (Dettmers et al. 2023, QLoRA): blocks of 64 (or another even number) run through the flattened part, whatever its
// row length; each is divided by its max|w| and rounded to the nearest of 16 levels: the quantiles of a normal distribution
// (NF4), or a float of 4 bits (FP4). Two codes share a byte, the earlier one in the upper half. The blocks' maxima are f32, or
// are held in 8 bits themselves (double quantisation): less their mean, in runs of 256, each run divided by its largest and
// rounded to the nearest of the 256 numbers of Dettmers' dynamic map, which has more of them where numbers are small.
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
  const void* scales;  // float [outputs] of 8 bits; of 4 bits one for each block, uint8 where nested, float where not
  const float* nested;  // the largest of each run, or null
  float offset;  // and the mean of the blocks' maxima
};

struct QuantisedRows {
  bool four;
  int64_t outputs, inputs, block;
  const float* levels;  // 16, of 4 bits
  std::vector<QuantisedPart> parts;
};

/** Rows [first, first + count) as f32. */
void dequantiseRows(const QuantisedRows& from, int64_t first, int64_t count, float* out);

/** Some rows, wherever in the matrix; false where a number is not finite. */
bool quantiseInt8(const float* weight, int64_t outputs, int64_t inputs, int8_t* codes, float* scales);
/** `count` weights that begin with a block; `peaks` are the blocks' maxima. False where a number is not finite. */
bool quantiseNf4(const float* weight, int64_t count, uint8_t* codes, float* peaks);
/** The maxima of a part's blocks into their 8 bits; `peaks` are changed. Returns the offset. */
float quantisePeaks(float* peaks, int64_t count, uint8_t* scales, float* nested);

}  // namespace attune
