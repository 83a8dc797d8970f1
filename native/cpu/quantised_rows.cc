#include "cpu/quantised_rows.h"

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

// Level i is a quantile of the normal distribution, each side with as many as its share of the codes, over the largest.
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

// Seven decades, the e-th with 2^e numbers on either side of 0: the middles of equal parts of [0.1, 1]. With 0 and 1: 256.
void fillDynamicMap(float* map) {
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
  std::copy(values.begin(), values.end(), map);
}

Nf4Tables makeTables() {
  Nf4Tables tables;
  std::copy_n(kLevels, 16, tables.levels);
  fillDynamicMap(tables.scales);
  for (int byte = 0; byte < 256; byte++) {
    tables.pairs[byte][0] = kLevels[byte >> 4];
    tables.pairs[byte][1] = kLevels[byte & 15];
  }
  return tables;
}

inline float largestOf(const float* values, int64_t count) {
  float peak = 0;
#pragma omp simd reduction(max : peak)
  for (int64_t i = 0; i < count; i++) peak = std::max(peak, std::fabs(values[i]));
  return peak;
}

// 0·x is 0, but of infinity and of what is no number.
inline bool isFinite(const float* values, int64_t count) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; i++) sum += values[i] * 0.0f;
  return sum == 0;
}

// How many middles between neighbouring levels lie below: branchless, so that a block of them is vectorised.
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

void dequantiseNf4Row(const QuantisedRows& from, int64_t row, float* out) {
  const Nf4Tables& tables = nf4Tables();
  const int64_t inputs = from.inputs, blocks = blocksOf(inputs), bytes = (inputs + 1) / 2;
  const uint8_t* codes = static_cast<const uint8_t*>(from.codes) + row * bytes;
  const uint8_t* scales = static_cast<const uint8_t*>(from.scales);
  for (int64_t block = 0; block < blocks; block++) {
    const int64_t at = row * blocks + block, start = block * kNf4Block, end = std::min(inputs, start + kNf4Block);
    const float scale = tables.scales[scales[at]] * from.nested[at / kNf4Run] + from.offset;
    int64_t i = start;
    for (; i + 2 <= end; i += 2) *reinterpret_cast<Pair*>(out + i) = *reinterpret_cast<const Pair*>(tables.pairs[codes[i / 2]]) * scale;
    if (i < end) out[i] = tables.pairs[codes[i / 2]][0] * scale;
  }
}

void dequantiseInt8Row(const QuantisedRows& from, int64_t row, float* out) {
  const int8_t* codes = static_cast<const int8_t*>(from.codes) + row * from.inputs;
  const float scale = static_cast<const float*>(from.scales)[row];
  for (int64_t i = 0; i < from.inputs; i++) out[i] = static_cast<float>(codes[i]) * scale;
}

}  // namespace

const Nf4Tables& nf4Tables() {
  static const Nf4Tables tables = makeTables();
  return tables;
}

void dequantiseRows(const QuantisedRows& from, int64_t first, int64_t count, float* out) {
  at::parallel_for(0, count, grain(from.inputs), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      float* to = out + row * from.inputs;
      if (from.four)
        dequantiseNf4Row(from, first + row, to);
      else
        dequantiseInt8Row(from, first + row, to);
    }
  });
}

bool quantiseInt8(const float* weight, int64_t outputs, int64_t inputs, int8_t* codes, float* scales) {
  std::atomic<bool> finite{true};
  at::parallel_for(0, outputs, grain(inputs), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const float* from = weight + row * inputs;
      int8_t* to = codes + row * inputs;
      if (!isFinite(from, inputs)) finite = false;
      const float scale = largestOf(from, inputs) / 127.0f;
      scales[row] = scale;
      const float divisor = scale > 0 ? scale : 1.0f;
      for (int64_t i = 0; i < inputs; i++)
        to[i] = static_cast<int8_t>(std::min(127.0f, std::max(-127.0f, std::nearbyint(from[i] / divisor))));
    }
  });
  return finite;
}

bool quantiseNf4(const float* weight, int64_t outputs, int64_t inputs, uint8_t* codes, float* peaks) {
  const int64_t blocks = blocksOf(inputs), bytes = (inputs + 1) / 2;
  std::atomic<bool> finite{true};
  at::parallel_for(0, outputs, grain(inputs), [&](int64_t begin, int64_t end) {
    uint8_t own[kNf4Block];
    for (int64_t row = begin; row < end; row++) {
      if (!isFinite(weight + row * inputs, inputs)) finite = false;
      for (int64_t block = 0; block < blocks; block++) {
        const int64_t start = block * kNf4Block, size = std::min(kNf4Block, inputs - start);
        const float* from = weight + row * inputs + start;
        const float peak = largestOf(from, size);
        peaks[row * blocks + block] = peak;
        // a block too small to divide by is one of zeros
        const float inverse = 1.0f / peak;
        std::fill_n(own, kNf4Block, kZero);
        if (std::isfinite(inverse)) nearestLevels(from, size, inverse, own);
        uint8_t* to = codes + row * bytes + start / 2;
        for (int64_t i = 0; i < (size + 1) / 2; i++) to[i] = static_cast<uint8_t>(own[2 * i] << 4 | own[2 * i + 1]);
      }
    }
  });
  return finite;
}

float quantisePeaks(float* peaks, int64_t count, uint8_t* scales, float* nested) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++) sum += peaks[i];
  const float offset = count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
  const float* map = nf4Tables().scales;
  for (int64_t start = 0; start < count; start += kNf4Run) {
    const int64_t size = std::min(kNf4Run, count - start);
    float* run = peaks + start;
    for (int64_t i = 0; i < size; i++) run[i] -= offset;
    const float peak = largestOf(run, size);
    nested[start / kNf4Run] = peak;
    for (int64_t i = 0; i < size; i++) scales[start + i] = nearestScale(map, peak > 0 ? run[i] / peak : 0.0f);
  }
  return offset;
}

}  // namespace attune
