// The product on CPUs that multiply and add digits of 8 bits (digit_vectors.h). A block of x is held in fixed point of 24 bits, in units of
// its largest number, as three signed digits. The codes of INT8 are such digits themselves. Each of the 16 levels of 4 bits becomes three
// digits. With x = x₀ + x₁/256 + x₂/256² and w written the same way,
//   x·w = x₀w₀ + (x₀w₁ + x₁w₀)/256 + (x₀w₂ + x₁w₁ + x₂w₀)/256² + …
// where the omitted terms are below 2⁻²³ of the largest product, which is the precision of f32. The sums of digits are exact integers, so their
// order does not matter; blocks are then added in f32, in order. With two digits in 4 bits a weight would take six instructions instead of ten,
// but the sampler's log-probs would differ from the trainer's by up to 2e-3 (stories260K), more than src/trainers/policy/sampler-gap.ts allows.
//
// A single row is multiplied with levels that are decoded in registers. For more rows they are decoded once, into a buffer in the L1 cache.
#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/quantised/digits.h"
#include "cpu/quantised/product.h"

#if defined(ATTUNE_DIGITS)
#include <ATen/Parallel.h>

namespace attune {
namespace {

constexpr int64_t kColumns = 16;  // outputs of one parallel task
constexpr int kGroups4 = static_cast<int>(kBlock4 / kGroup);
constexpr int64_t kOnce = 4;  // columns that are decoded into the buffer together

// Asks for what is 64·index bytes behind `from`. Into the L2 cache: from there the L1 cache is filled in time, and it holds the columns in use.
inline void prefetch(const void* from, int64_t index) { __builtin_prefetch(static_cast<const char*>(from) + index * 64, 0, 2); }

/** What a tile of ROWS × COLUMNS outputs reads. `scales` are the factors of each block's sums. */
template <int ROWS, int COLUMNS>
struct Tile {
  int64_t k, blocks;
  const int8_t* x[ROWS];
  const void* codes[COLUMNS];
  const float* scales[ROWS][COLUMNS];
  const void* next;  // codes to prefetch
};

template <int ROWS, int COLUMNS>
using Totals = Floats[ROWS][COLUMNS];

template <int ROWS, int COLUMNS>
inline void begin(ThreeSums (&sums)[ROWS][COLUMNS]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) sums[r][c].begin();
}

template <int ROWS, int COLUMNS>
inline void end(const Tile<ROWS, COLUMNS>& tile, int64_t b, const ThreeSums (&sums)[ROWS][COLUMNS], Totals<ROWS, COLUMNS>& totals) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) totals[r][c] = timesPlus(sums[r][c].value(), tile.scales[r][c][b], totals[r][c]);
}

template <int ROWS, int COLUMNS>
inline void addGroup8(const int8_t* const (&x)[ROWS], int64_t i, const Bytes (&w)[COLUMNS], ThreeSums (&sums)[ROWS][COLUMNS]) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    const int8_t* own = x[r] + i * kDigits;
    const Bytes x0 = loadBytes(own), x1 = loadBytes(own + kGroup), x2 = loadBytes(own + 2 * kGroup);
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) {
      sums[r][c].first = dot(sums[r][c].first, w[c], x0);
      sums[r][c].second = dot(sums[r][c].second, w[c], x1);
      sums[r][c].third = dot(sums[r][c].third, w[c], x2);
    }
  }
}

template <int ROWS, int COLUMNS>
__attribute__((noinline)) void tile8(const Tile<ROWS, COLUMNS>& given, Totals<ROWS, COLUMNS>& totals) {
  const Tile<ROWS, COLUMNS> tile = given;
  const auto codesAt = [&](int c, int64_t i) { return static_cast<const int8_t*>(tile.codes[c]) + i; };
  for (int64_t b = 0; b < tile.blocks; b++) {
    ThreeSums sums[ROWS][COLUMNS];
    begin(sums);
    const int64_t last = std::min(tile.k, (b + 1) * kBlock8);
    int64_t i = b * kBlock8;
    for (; i + kGroup <= last; i += kGroup) {
      Bytes w[COLUMNS];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) w[c] = loadBytes(codesAt(c, i));
      if (COLUMNS == 4 || (COLUMNS == 2 && i / kGroup % 2 == 0)) prefetch(tile.next, i / kGroup * COLUMNS / 4);
      addGroup8(tile.x, i, w, sums);
    }
    if (i < last) {  // x is padded with zeros; the codes are not padded, so the last ones are copied
      Bytes w[COLUMNS];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) {
        int8_t rest[kGroup] = {};
        std::copy_n(codesAt(c, i), last - i, rest);
        w[c] = loadBytes(rest);
      }
      addGroup8(tile.x, i, w, sums);
    }
    end(tile, b, sums, totals);
  }
}

// One block of 4 bits. `weight(column, digit, group)` is a vector of one digit of the levels.
template <int ROWS, int COLUMNS, typename Weight>
inline void addBlock4(const Tile<ROWS, COLUMNS>& tile, int64_t b, const Weight& weight, Totals<ROWS, COLUMNS>& totals) {
  ThreeSums sums[ROWS][COLUMNS];
  begin(sums);
#pragma GCC unroll 4
  for (int g = 0; g < kGroups4; g++) {
    const int64_t at = (b * kGroups4 + g) * kDigits * kGroup;
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) {
      const Bytes w0 = weight(c, 0, g), w1 = weight(c, 1, g), w2 = weight(c, 2, g);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        const int8_t* own = tile.x[r] + at;
        const Bytes x0 = loadBytes(own), x1 = loadBytes(own + kGroup), x2 = loadBytes(own + 2 * kGroup);
        ThreeSums& to = sums[r][c];
        to.first = dot(to.first, w0, x0);
        to.second = dot(dot(to.second, w0, x1), w1, x0);
        to.third = dot(dot(dot(to.third, w0, x2), w1, x1), w2, x0);
      }
    }
  }
  end(tile, b, sums, totals);
}

inline void splitBlock(const void* codes, int64_t b, Bytes (&split)[kGroups4]) {
  splitCodes(static_cast<const uint8_t*>(codes) + b * (kBlock4 / 2), split);
}

/** The levels' digits in registers. */
struct LevelTables {
  LevelDigits digits[kDigits];
  explicit LevelTables(const Levels& levels)
      : digits{LevelDigits(levels.digits[0]), LevelDigits(levels.digits[1]), LevelDigits(levels.digits[2])} {}
};

// One row: the codes are decoded in registers.
template <int COLUMNS>
__attribute__((noinline)) void oneRow4(const Tile<1, COLUMNS>& given, const Levels& levels, Totals<1, COLUMNS>& totals) {
  const Tile<1, COLUMNS> tile = given;
  const LevelTables tables(levels);
  for (int64_t b = 0; b < tile.blocks; b++) {
    Bytes split[COLUMNS][kGroups4];
#pragma GCC unroll 4
    for (int c = 0; c < COLUMNS; c++) splitBlock(tile.codes[c], b, split[c]);
    if (COLUMNS == 2) prefetch(tile.next, b);
    addBlock4<1, COLUMNS>(
        tile, b, [&](int c, int digit, int g) { return tables.digits[digit][split[c][g]]; }, totals);
  }
}

// Several rows: `codes` are the decoded digits, [block][digit][64].
template <int ROWS, int COLUMNS>
__attribute__((noinline)) void rows4(const Tile<ROWS, COLUMNS>& given, Totals<ROWS, COLUMNS>& totals) {
  const Tile<ROWS, COLUMNS> tile = given;
  const auto weightIn = [&](int64_t b) {
    return [=](int c, int digit, int g) {
      return loadBytes(static_cast<const int8_t*>(tile.codes[c]) + (b * kDigits + digit) * kBlock4 + g * kGroup);
    };
  };
  for (int64_t b = 0; b < tile.blocks; b++) addBlock4<ROWS, COLUMNS>(tile, b, weightIn(b), totals);
}

// The work of one thread: tasks of kColumns outputs, for all rows of x.
class Columns {
 public:
  Columns(const QuantisedProduct& p, const Digits& x, const Levels* levels)
      : p(p), x(x), levels(levels), scales(8 * x.blocks), peaks(levels == nullptr ? 0 : kColumns * x.blocks) {
    if (levels != nullptr && p.m > 1) decoded.resize(kOnce * decodedSize());
  }

  void multiply(int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; column++) own[column - begin] = columnOf(p.w, column);
    first = begin;
    if (levels == nullptr) {
      int64_t row = 0;
      for (; row + 2 <= p.m; row += 2) sweep<2, 4>(row, begin, end);
      if (row < p.m) sweep<1, 4>(row, begin, end);
      return;
    }
    for (int64_t column = begin; column < end; column++) findPeaks(column);
    if (p.m == 1) return sweep<1, 2>(0, begin, end);
    for (int64_t column = begin; column < end; column += kOnce) {
      const int64_t last = std::min(end, column + kOnce);
      for (int64_t c = column; c < last; c++) decode(c);
      int64_t row = 0;
      for (; row + 2 <= p.m; row += 2) sweep<2, 2>(row, column, last);
      if (row < p.m) sweep<1, 2>(row, column, last);
    }
  }

 private:
  const QuantisedProduct& p;
  const Digits& x;
  const Levels* levels;
  std::vector<float> scales, peaks;
  std::vector<int8_t> decoded;
  QuantisedColumn own[kColumns];
  int64_t first = 0;  // of the task's columns

  int64_t decodedSize() const { return x.blocks * kBlock4 * kDigits; }
  float* peaksOf(int64_t column) { return peaks.data() + (column - first) * x.blocks; }
  int8_t* decodedOf(int64_t column) { return decoded.data() + column % kOnce * decodedSize(); }

  // The maxima of a column's blocks; those of more than 64 weights are repeated. For a single row they become the scales of the sums.
  void findPeaks(int64_t column) {
    const QuantisedColumn& of = own[column - first];
    const int64_t share = p.w.block / kBlock4;
    float* to = peaksOf(column);
    blockScales(*of.part, of.row * p.w.inputs / p.w.block, x.blocks / share, to);
    if (share > 1)
      for (int64_t b = x.blocks - 1; b >= 0; b--) to[b] = to[b / share];
    if (p.m == 1)
      for (int64_t b = 0; b < x.blocks; b++) to[b] *= x.units[b];
  }

  void decode(int64_t column) {
    const LevelTables tables(*levels);
    const uint8_t* codes = own[column - first].codes4(p.w.inputs);
    int8_t* to = decodedOf(column);
    for (int64_t b = 0; b < x.blocks; b++) {
      Bytes split[kGroups4];
      splitBlock(codes, b, split);
      for (int d = 0; d < kDigits; d++)
        for (int g = 0; g < kGroups4; g++, to += kGroup) storeBytes(to, tables.digits[d][split[g]]);
    }
  }

  template <int ROWS, int COLUMNS>
  void sweep(int64_t row, int64_t begin, int64_t end) {
    int64_t column = begin;
    for (; column + COLUMNS <= end; column += COLUMNS) tile<ROWS, COLUMNS>(row, column);
    for (; column < end; column++) tile<ROWS, 1>(row, column);
  }

  // The factors of each block's sums. A single row's are the peaks, which findPeaks has multiplied already.
  const float* scalesOf(int64_t row, int64_t column, float* room) {
    const float* units = x.units.get() + row * x.blocks;
    if (levels == nullptr) return units;
    const float* peak = peaksOf(column);
    if (p.m == 1) return peak;
    for (int64_t b = 0; b < x.blocks; b++) room[b] = units[b] * peak[b];
    return room;
  }

  template <int ROWS, int COLUMNS>
  void tile(int64_t row, int64_t column) {
    const int64_t k = p.w.inputs;
    Tile<ROWS, COLUMNS> tile;
    tile.k = k;
    tile.blocks = x.blocks;
    float last[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) {
      const QuantisedColumn& of = own[column + c - first];
      last[c] = levels == nullptr ? of.scale8() : levels->unit;
      if (levels == nullptr)
        tile.codes[c] = of.codes8(k);
      else if (p.m == 1)
        tile.codes[c] = of.codes4(k);
      else
        tile.codes[c] = decodedOf(column + c);
    }
    for (int r = 0; r < ROWS; r++) {
      tile.x[r] = x.digits.get() + (row + r) * x.stride;
      for (int c = 0; c < COLUMNS; c++) tile.scales[r][c] = scalesOf(row + r, column + c, scales.data() + (r * COLUMNS + c) * x.blocks);
    }
    // the columns after these follow them in memory, but for the end of a part
    tile.next = static_cast<const char*>(tile.codes[COLUMNS - 1]) + (levels == nullptr ? k : k / 2);
    Totals<ROWS, COLUMNS> totals = {};
    if (levels == nullptr)
      tile8(tile, totals);
    else if (p.m > 1)
      rows4(tile, totals);
    else if constexpr (ROWS == 1)
      oneRow4(tile, *levels, totals);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < COLUMNS; c++) p.put(row + r, column + c, total(totals[r][c]) * last[c]);
  }
};

}  // namespace

bool digitsFit(const QuantisedRows& w) { return !w.four || isAligned(w); }

void digitsProduct(const QuantisedProduct& p) {
  const Digits x(p.x, p.m, p.w.inputs, p.w.four);
  const std::unique_ptr<const Levels> levels(p.w.four ? new Levels(p.w.levels) : nullptr);
  const int64_t tasks = piecesOf(p.w.outputs, kColumns), work = p.m * p.w.inputs * kColumns;
  at::parallel_for(0, tasks, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, work)), [&](int64_t first, int64_t last) {
    Columns columns(p, x, levels.get());
    for (int64_t task = first; task < last; task++) columns.multiply(task * kColumns, std::min(p.w.outputs, (task + 1) * kColumns));
  });
}

}  // namespace attune

#else

namespace attune {
bool digitsFit(const QuantisedRows&) { return false; }
void digitsProduct(const QuantisedProduct&) {}
}  // namespace attune

#endif
