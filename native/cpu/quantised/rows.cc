#include "cpu/quantised/rows.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "cpu/kernels.h"

namespace attune {
namespace {

typedef float Pair __attribute__((vector_size(2 * sizeof(float)), aligned(4), may_alias));

constexpr uint8_t kZero = 7;  // the code of 0

// NF4 (Dettmers et al. 2023): level i is a quantile of the normal distribution, divided by the largest. Eight levels are positive, seven
// are negative, and one is 0.
constexpr float kLevels[16] = {-1.0f,
                               -0.6961928009986877f,
                               -0.5250730514526367f,
                               -0.39491748809814453f,
                               -0.28444138169288635f,
                               -0.18477343022823334f,
                               -0.09105003625154495f,
                               0.0f,
                               0.07958029955625534f,
                               0.16093020141124725f,
                               0.24611230194568634f,
                               0.33791524171829224f,
                               0.44070982933044434f,
                               0.5626170039176941f,
                               0.7229568362236023f,
                               1.0f};

// The dynamic 8-bit map: seven decades. Decade e has 2^e values on either side of 0, the midpoints of equal parts of [0.1, 1]. Together
// with 0 and 1 these are 256 values.
std::vector<float> makeDynamicMap() {
  std::vector<double> values = {0.0, 1.0};
  for (int e = 0; e < 7; e++) {
    const int parts = 1 << e;
    for (int i = 0; i < parts; i++) {
      const double middle = std::pow(10.0, e - 6) * (0.1 + 0.9 * (i + 0.5) / parts);
      values.push_back(middle);
      values.push_back(-middle);
    }
  }
  std::sort(values.begin(), values.end());
  return {values.begin(), values.end()};
}

// The two levels that a byte of codes stands for.
struct PairTable {
  float pairs[256][2];
  explicit PairTable(const float* levels) {
    for (int byte = 0; byte < 256; byte++) {
      pairs[byte][0] = levels[byte >> 4];
      pairs[byte][1] = levels[byte & 15];
    }
  }
};

inline float largestOf(const float* values, int64_t count) {
  float peak = 0;
#pragma omp simd reduction(max : peak)
  for (int64_t i = 0; i < count; i++) peak = std::max(peak, std::fabs(values[i]));
  return peak;
}

// 0·x is 0 unless x is infinite or NaN.
inline bool isFinite(const float* values, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += values[i] * 0.0f;
  return sum == 0;
}

// A weight's code is the number of midpoints between neighbouring levels that lie below it. Counting has no branches, so it vectorises.
inline void nearestLevels(const float* values, int64_t count, float inverse, uint8_t* codes) {
  int32_t found[kNf4Block];
  for (int64_t i = 0; i < count; i++) {
    const float x = values[i] * inverse;
    int32_t code = 0;
    for (int level = 0; level < 15; level++) code += x > 0.5f * (kLevels[level] + kLevels[level + 1]);
    found[i] = code;
  }
  for (int64_t i = 0; i < count; i++) codes[i] = static_cast<uint8_t>(found[i]);
}

inline uint8_t nearestScale(const float* map, float value) {
  const float* above = std::lower_bound(map, map + 256, value);
  if (above == map) return 0;
  if (above == map + 256) return 255;
  const bool lower = value - above[-1] <= above[0] - value;
  return static_cast<uint8_t>(above - map - (lower ? 1 : 0));
}

inline float blockScale(const QuantisedPart& part, int64_t block) {
  if (part.nested == nullptr) return static_cast<const float*>(part.scales)[block];
  return fused(dynamicMap()[static_cast<const uint8_t*>(part.scales)[block]], part.nested[block / kNestedRun], part.offset);
}

// Dequantises `count` weights of the flattened part, starting at `first`. Either end may lie inside a byte or a block.
void dequantise4(const QuantisedPart& part, int64_t size, const PairTable& table, int64_t first, int64_t count, float* out) {
  const uint8_t* codes = static_cast<const uint8_t*>(part.codes);
  const int64_t last = first + count;
  out -= first;
  for (int64_t i = first; i < last;) {
    const int64_t block = i / size, end = std::min(last, (block + 1) * size);
    const float scale = blockScale(part, block);
    if (i % 2 == 1) {
      out[i] = table.pairs[codes[i / 2]][1] * scale;
      i++;
    }
    for (; i + 2 <= end; i += 2) *reinterpret_cast<Pair*>(out + i) = *reinterpret_cast<const Pair*>(table.pairs[codes[i / 2]]) * scale;
    if (i < end) {
      out[i] = table.pairs[codes[i / 2]][0] * scale;
      i++;
    }
  }
}

void dequantise8(const QuantisedPart& part, int64_t inputs, int64_t row, float* out) {
  const int8_t* codes = static_cast<const int8_t*>(part.codes) + row * inputs;
  const float scale = static_cast<const float*>(part.scales)[row] * (1.0f / 127.0f);
  for (int64_t i = 0; i < inputs; i++) out[i] = static_cast<float>(codes[i]) * scale;
}

}  // namespace

const float* nf4Levels() { return kLevels; }

const float* dynamicMap() {
  static const std::vector<float> map = makeDynamicMap();
  return map.data();
}

void dequantiseRows(const QuantisedRows& from, int64_t first, int64_t count, float* out) {
  const PairTable table(from.four ? from.levels : kLevels);
  int64_t start = 0;
  for (const QuantisedPart& part : from.parts) {
    const int64_t begin = std::max(first, start), end = std::min(first + count, start + part.outputs);
    at::parallel_for(begin, std::max(begin, end), grain(from.inputs), [&](int64_t low, int64_t high) {
      for (int64_t row = low; row < high; row++) {
        float* to = out + (row - first) * from.inputs;
        if (from.four)
          dequantise4(part, from.block, table, (row - start) * from.inputs, from.inputs, to);
        else
          dequantise8(part, from.inputs, row - start, to);
      }
    });
    start += part.outputs;
  }
}

bool quantiseInt8(const float* weight, int64_t outputs, int64_t inputs, int8_t* codes, float* scales) {
  std::atomic<bool> finite{true};
  at::parallel_for(0, outputs, grain(inputs), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const float* from = weight + row * inputs;
      int8_t* to = codes + row * inputs;
      if (!isFinite(from, inputs)) finite = false;
      const float peak = largestOf(from, inputs);
      scales[row] = peak;
      // 127/max|w| would overflow: the row is stored as zeros
      const float inverse = 127.0f / peak, factor = std::isfinite(inverse) ? inverse : 0.0f;
      for (int64_t i = 0; i < inputs; i++)
        to[i] = static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, std::nearbyint(from[i] * factor))));
    }
  });
  return finite;
}

bool quantiseNf4(const float* weight, int64_t count, uint8_t* codes, float* peaks) {
  std::atomic<bool> finite{true};
  at::parallel_for(0, piecesOf(count, kNf4Block), grain(kNf4Block), [&](int64_t begin, int64_t end) {
    uint8_t own[kNf4Block];
    for (int64_t block = begin; block < end; block++) {
      const int64_t start = block * kNf4Block, size = std::min(kNf4Block, count - start);
      const float* from = weight + start;
      if (!isFinite(from, size)) finite = false;
      const float peak = largestOf(from, size);
      peaks[block] = peak;
      // 1/max|w| would overflow: the block is stored as zeros
      const float inverse = 1.0f / peak;
      std::fill_n(own, kNf4Block, kZero);
      if (std::isfinite(inverse)) nearestLevels(from, size, inverse, own);
      uint8_t* to = codes + start / 2;
      for (int64_t i = 0; i < (size + 1) / 2; i++) to[i] = static_cast<uint8_t>(own[2 * i] << 4 | own[2 * i + 1]);
    }
  });
  return finite;
}

float quantisePeaks(float* peaks, int64_t count, uint8_t* scales, float* nested) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += peaks[i];
  const float offset = count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
  const float* map = dynamicMap();
  for (int64_t start = 0; start < count; start += kNestedRun) {
    const int64_t size = std::min(kNestedRun, count - start);
    float* run = peaks + start;
    for (int64_t i = 0; i < size; i++) run[i] -= offset;
    const float peak = largestOf(run, size);
    nested[start / kNestedRun] = peak;
    for (int64_t i = 0; i < size; i++) scales[start + i] = nearestScale(map, peak > 0 ? run[i] / peak : 0.0f);
  }
  return offset;
}

}  // namespace attune
