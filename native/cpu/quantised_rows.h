// Weights in 8 and in 4 bits, row by row on the CPU. The format:
//
// INT8: code = round(w / scale) with scale = max|w| of the row / 127.
// NF4 (Dettmers et al. 2023, QLoRA): blocks of 64 along a row, each divided by its max|w| and rounded to the nearest of 16
// levels; two codes a byte, the earlier one in the upper half. The blocks' maxima themselves are held in 8 bits (double
// quantisation): less their mean, in runs of 256, each run divided by its largest and rounded to the nearest of the 256
// numbers of Dettmers' dynamic map, which has more of them where numbers are small.
#pragma once
#include <cstdint>

namespace attune {

constexpr int64_t kNf4Block = 64, kNf4Run = 256;

inline constexpr int64_t blocksOf(int64_t inputs) { return (inputs + kNf4Block - 1) / kNf4Block; }

struct Nf4Tables {
  float levels[16];
  float scales[256];    // the dynamic map, ascending
  float pairs[256][2];  // what a byte of codes stands for
};
const Nf4Tables& nf4Tables();

struct QuantisedRows {
  bool four;
  int64_t outputs, inputs;
  const void* codes;    // int8 [outputs, inputs], or uint8 [outputs, ⌈inputs / 2⌉]
  const void* scales;   // float [outputs], or uint8 [outputs, blocks]
  const float* nested;  // of 4 bits: the largest of each run
  float offset;         // and the mean of the blocks' maxima
};

/** Rows [first, first + count) as f32. */
void dequantiseRows(const QuantisedRows& from, int64_t first, int64_t count, float* out);

/** Some rows, wherever in the matrix; false where a number is not finite. */
bool quantiseInt8(const float* weight, int64_t outputs, int64_t inputs, int8_t* codes, float* scales);
/** The same in 4 bits: `peaks` are the blocks' maxima. */
bool quantiseNf4(const float* weight, int64_t outputs, int64_t inputs, uint8_t* codes, float* peaks);
/** The maxima of all blocks into their 8 bits; `peaks` are changed. Returns the offset. */
float quantisePeaks(float* peaks, int64_t count, uint8_t* scales, float* nested);

}  // namespace attune
