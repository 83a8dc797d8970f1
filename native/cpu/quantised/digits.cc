// The product on ARM CPUs with SDOT, which multiplies sixteen pairs of 8-bit integers and adds them in one instruction.
//
// A block of x is held in fixed point of 24 bits, in units of its largest number, as three signed digits of 8 bits. The codes of
// INT8 are such digits themselves. Each of the 16 levels of NF4 becomes three digits, which TBL looks up. With
// x = x₀ + x₁/256 + x₂/256² and w written the same way,
//   x·w = x₀w₀ + (x₀w₁ + x₁w₀)/256 + (x₀w₂ + x₁w₁ + x₂w₀)/256² + …
// where the omitted terms are below 2⁻²³ of the largest product, which is the precision of f32. The sums of digits are exact integers, so their
// order does not matter; blocks are then added in f32, in order. On a Neoverse-N1 this is twice as fast as multiplying in f32, because
// turning codes into f32 takes longer than the product.
#include "cpu/quantised/product.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include <ATen/Parallel.h>
#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

namespace attune {
namespace {

constexpr int64_t kGroup = 16, kDigits = 3;  // inputs of one SDOT; digits of one number
constexpr int64_t kBlock8 = 256, kBlock4 = 64;  // inputs that share a unit; a lane's sums must stay below 2²²
constexpr float kMost = 8355584.0f;  // largest fixed-point number, a little less than 127·(256² + 256 + 1)
constexpr int64_t kColumns = 16;  // outputs of one parallel task

// Writes `number` as n₀·256² + n₁·256 + n₂, with `apart` bytes from one digit to the next.
inline void writeDigits(int32_t number, int8_t* to, int64_t apart) {
  const int32_t low = static_cast<int8_t>(number), rest = (number - low) >> 8, middle = static_cast<int8_t>(rest);
  to[2 * apart] = static_cast<int8_t>(low);
  to[apart] = static_cast<int8_t>(middle);
  to[0] = static_cast<int8_t>((rest - middle) >> 8);
}

// The digits of `count` numbers; `placeOf` says where a number's first digit goes. Returns the unit of the first digit.
template <typename PlaceOf>
float toDigits(const float* numbers, int64_t count, int8_t* to, int64_t apart, const PlaceOf& placeOf) {
  float peak = 0, check = 0;
  for (int64_t i = 0; i < count; i++) {
    peak = std::max(peak, std::fabs(numbers[i]));
    check += numbers[i] * 0.0f;  // becomes NaN if any number is not finite
  }
  if (check != 0.0f || !std::isfinite(peak)) return std::numeric_limits<float>::quiet_NaN();
  const float inverse = kMost / peak, factor = std::isfinite(inverse) ? inverse : 0.0f;
  for (int64_t i = 0; i < count; i++) writeDigits(static_cast<int32_t>(std::lrint(numbers[i] * factor)), to + placeOf(i), apart);
  return peak * (65536.0f / kMost);
}

// Rows of x in digits. Each group of 16 inputs stores its 16 first digits, then the second and the third ones. For 4-bit codes, 32
// inputs make two groups, the even inputs and the odd ones, because a byte holds an even and an odd code.
struct Digits {
  int64_t blocks, stride;  // stride: bytes of a row
  std::unique_ptr<int8_t[]> digits;
  std::unique_ptr<float[]> units;  // [m, blocks]

  Digits(const float* x, int64_t m, int64_t k, bool four) {
    const int64_t size = four ? kBlock4 : kBlock8;
    blocks = piecesOf(k, size);
    stride = piecesOf(k, kGroup) * kGroup * kDigits;
    digits.reset(new int8_t[m * stride]());
    units.reset(new float[m * blocks]);
    const auto inOrder = [](int64_t i) { return i / kGroup * kGroup * kDigits + i % kGroup; };
    const auto inPairs = [](int64_t i) { return (i / 32 * 2 + i % 2) * kGroup * kDigits + i % 32 / 2; };
    at::parallel_for(0, m * blocks, std::max<int64_t>(1, 8192 / size), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        const int64_t row = i / blocks, first = i % blocks * size, count = std::min(size, k - first);
        int8_t* to = digits.get() + row * stride + first * kDigits;
        units[i] =
            four ? toDigits(x + row * k + first, count, to, kGroup, inPairs) : toDigits(x + row * k + first, count, to, kGroup, inOrder);
      }
    });
  }
};

// The sums of one output and one row in a block. They become f32 without a conversion instruction: adding an integer to the bits
// of the float 1.5·2²³ gives the float 1.5·2²³ plus that integer.
struct Sums {
  int32x4_t first = vdupq_n_s32(0x4B400000), second = vdupq_n_s32(0x4B400000), third = vdupq_n_s32(0);

  float32x4_t value() const {
    const float32x4_t base = vdupq_n_f32(12582912.0f);
    const float32x4_t high = vsubq_f32(vreinterpretq_f32_s32(first), base);
    const float32x4_t low = vsubq_f32(vreinterpretq_f32_s32(vrsraq_n_s32(second, third, 8)), base);
    return vfmaq_n_f32(high, low, 1.0f / 256.0f);
  }
};

struct Levels {
  int8x16_t digits[kDigits];
  float unit;

  explicit Levels(const float* levels) {
    int8_t rows[kDigits][16];
    unit = toDigits(levels, 16, rows[0], 16, [](int64_t i) { return i; });
    for (int d = 0; d < kDigits; d++) digits[d] = vld1q_s8(rows[d]);
  }
};

/** The outputs and rows of a tile. `scales` are the factors of each block's sums, [row][column][block]. */
struct Tile {
  const void* codes[4];
  const int8_t* x;
  const float* scales;
};

template <int ROWS, int COLUMNS>
inline void addBlock(const Sums (&sums)[ROWS][COLUMNS], const float* scales, int64_t blocks, float32x4_t (&totals)[ROWS][COLUMNS]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) totals[r][c] = vfmaq_n_f32(totals[r][c], sums[r][c].value(), scales[(r * COLUMNS + c) * blocks]);
}

template <int ROWS, int COLUMNS>
__attribute__((noinline)) void tile8(const Tile& tile, const Digits& x, int64_t k, float32x4_t (&totals)[ROWS][COLUMNS]) {
  const auto codesAt = [&](int c, int64_t i) { return static_cast<const int8_t*>(tile.codes[c]) + i; };
  for (int64_t b = 0; b < x.blocks; b++) {
    Sums sums[ROWS][COLUMNS];
    const auto group = [&](int64_t i, const int8x16_t(&w)[COLUMNS]) {
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        const int8_t* own = tile.x + r * x.stride + i * kDigits;
        const int8x16_t x0 = vld1q_s8(own), x1 = vld1q_s8(own + kGroup), x2 = vld1q_s8(own + 2 * kGroup);
#pragma GCC unroll 8
        for (int c = 0; c < COLUMNS; c++) {
          sums[r][c].first = vdotq_s32(sums[r][c].first, w[c], x0);
          sums[r][c].second = vdotq_s32(sums[r][c].second, w[c], x1);
          sums[r][c].third = vdotq_s32(sums[r][c].third, w[c], x2);
        }
      }
    };
    const int64_t end = std::min(k, (b + 1) * kBlock8);
    int64_t i = b * kBlock8;
    for (; i + kGroup <= end; i += kGroup) {
      int8x16_t w[COLUMNS];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) {
        w[c] = vld1q_s8(codesAt(c, i));
        __builtin_prefetch(codesAt(c, i + 256));
      }
      group(i, w);
    }
    if (i < end) {  // x is padded with zeros; the codes are not padded, so the last ones are copied
      int8x16_t w[COLUMNS];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) {
        int8_t rest[kGroup] = {};
        std::copy_n(codesAt(c, i), end - i, rest);
        w[c] = vld1q_s8(rest);
      }
      group(i, w);
    }
    addBlock(sums, tile.scales + b, x.blocks, totals);
  }
}

template <int ROWS, int COLUMNS>
__attribute__((noinline)) void tile4(const Tile& tile, const Digits& x, const Levels& levels, float32x4_t (&totals)[ROWS][COLUMNS]) {
  const int8x16_t level0 = levels.digits[0], level1 = levels.digits[1], level2 = levels.digits[2];
  for (int64_t b = 0; b < x.blocks; b++) {
    Sums sums[ROWS][COLUMNS];
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {  // 32 inputs, 16 bytes
      uint8x16_t both[COLUMNS];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) {
        const uint8_t* codes = static_cast<const uint8_t*>(tile.codes[c]) + (2 * b + half) * kGroup;
        if (half == 0) __builtin_prefetch(codes + 256);
        both[c] = vld1q_u8(codes);
      }
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; odd++) {
        int8x16_t inputs[ROWS][kDigits];
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 3
          for (int d = 0; d < kDigits; d++)
            inputs[r][d] = vld1q_s8(tile.x + r * x.stride + (((2 * b + half) * 2 + odd) * kDigits + d) * kGroup);
#pragma GCC unroll 8
        for (int c = 0; c < COLUMNS; c++) {
          const uint8x16_t code = odd == 0 ? vshrq_n_u8(both[c], 4) : vandq_u8(both[c], vdupq_n_u8(15));
          const int8x16_t w0 = vqtbl1q_s8(level0, code), w1 = vqtbl1q_s8(level1, code), w2 = vqtbl1q_s8(level2, code);
#pragma GCC unroll 8
          for (int r = 0; r < ROWS; r++) {
            Sums& to = sums[r][c];
            to.first = vdotq_s32(to.first, w0, inputs[r][0]);
            to.second = vdotq_s32(to.second, w0, inputs[r][1]);
            to.third = vdotq_s32(to.third, w0, inputs[r][2]);
            to.second = vdotq_s32(to.second, w1, inputs[r][0]);
            to.third = vdotq_s32(to.third, w1, inputs[r][1]);
            to.third = vdotq_s32(to.third, w2, inputs[r][0]);
          }
        }
      }
    }
    addBlock(sums, tile.scales + b, x.blocks, totals);
  }
}

// Scratch memory, one per thread.
struct Scratch {
  std::vector<float> scales, peaks;
};

template <int ROWS, int COLUMNS>
void tile(const QuantisedProduct& p, const Digits& x, const Levels* levels, int64_t row, int64_t column, Scratch& scratch) {
  const int64_t k = p.w.inputs, blocks = x.blocks;
  float32x4_t totals[ROWS][COLUMNS] = {};
  float last[COLUMNS];
  Tile tile{{}, x.digits.get() + row * x.stride, scratch.scales.data()};
#pragma GCC unroll 8
  for (int c = 0; c < COLUMNS; c++) {
    const QuantisedColumn own = columnOf(p.w, column + c);
    tile.codes[c] = levels == nullptr ? static_cast<const void*>(own.codes8(k)) : own.codes4(k);
    last[c] = levels == nullptr ? own.scale8() : levels->unit;
    if (levels != nullptr && row == 0) {
      float* peaks = scratch.peaks.data() + (column + c) % kColumns * blocks;
      const int64_t share = p.w.block / kBlock4;
      blockScales(*own.part, own.row * k / p.w.block, blocks / share, peaks);
      if (share > 1)
        for (int64_t b = blocks - 1; b >= 0; b--) peaks[b] = peaks[b / share];
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      const float* units = x.units.get() + (row + r) * blocks;
      float* to = scratch.scales.data() + (r * COLUMNS + c) * blocks;
      if (levels == nullptr) {
        std::copy_n(units, blocks, to);
      } else {
        const float* peaks = scratch.peaks.data() + (column + c) % kColumns * blocks;
        for (int64_t b = 0; b < blocks; b++) to[b] = units[b] * peaks[b];
      }
    }
  }
  if (levels == nullptr)
    tile8(tile, x, k, totals);
  else
    tile4(tile, x, *levels, totals);
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) p.put(row + r, column + c, vaddvq_f32(totals[r][c]) * last[c]);
}

// The codes of a task's columns are decoded once for each group of rows.
template <int ROWS, int COLUMNS>
void columns(const QuantisedProduct& p, const Digits& x, const Levels* levels, int64_t row, int64_t begin, int64_t end, Scratch& scratch) {
  int64_t column = begin;
  for (; column + COLUMNS <= end; column += COLUMNS) tile<ROWS, COLUMNS>(p, x, levels, row, column, scratch);
  for (; column < end; column++) tile<ROWS, 1>(p, x, levels, row, column, scratch);
}

}  // namespace

bool digitsFit(const QuantisedRows& w) { return !w.four || isAligned(w); }

void digitsProduct(const QuantisedProduct& p) {
  const Digits x(p.x, p.m, p.w.inputs, p.w.four);
  const std::unique_ptr<const Levels> levels(p.w.four ? new Levels(p.w.levels) : nullptr);
  const int64_t tasks = piecesOf(p.w.outputs, kColumns), work = p.m * p.w.inputs * kColumns;
  at::parallel_for(0, tasks, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, work)), [&](int64_t first, int64_t last) {
    Scratch scratch{std::vector<float>(8 * x.blocks), std::vector<float>(p.w.four ? kColumns * x.blocks : 0)};
    for (int64_t task = first; task < last; task++) {
      const int64_t begin = task * kColumns, end = std::min(p.w.outputs, begin + kColumns);
      int64_t row = 0;
      if (levels != nullptr) {
        for (; row + 4 <= p.m; row += 4) columns<4, 1>(p, x, levels.get(), row, begin, end, scratch);
        for (; row + 2 <= p.m; row += 2) columns<2, 2>(p, x, levels.get(), row, begin, end, scratch);
      }
      for (; row + 2 <= p.m; row += 2) columns<2, 4>(p, x, nullptr, row, begin, end, scratch);
      for (; row < p.m; row++) columns<1, 4>(p, x, levels.get(), row, begin, end, scratch);
    }
  });
}

}  // namespace attune

#else

namespace attune {
bool digitsFit(const QuantisedRows&) { return false; }
void digitsProduct(const QuantisedProduct&) {}
}  // namespace attune

#endif
