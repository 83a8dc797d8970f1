// The product on CPUs that multiply and add 8-bit digits (digit_vectors.h). A block of x is held in fixed point of 24 bits, in units of its
// largest number, as three signed digits. The codes of INT8 are such digits themselves. Each of the 16 levels of 4 bits becomes three
// digits. With x = x₀ + x₁/256 + x₂/256² and w written the same way,
//   x·w = x₀w₀ + (x₀w₁ + x₁w₀)/256 + (x₀w₂ + x₁w₁ + x₂w₀)/256² + …
// where the omitted terms are below 2⁻²³ of the largest product, which is the precision of f32. The sums of digits are exact integers, so
// their order does not matter; blocks are then added in f32, in order. With two digits, a 4-bit weight would take six instructions instead
// of ten, but the sampler's log-probs would differ from the trainer's by up to 2e-3 (stories260K), more than
// src/trainers/policy/sampler-gap.ts allows.
//
// A rounded product (QuantisedProduct::rounded) uses only the first digit of each: x in 8 bits, as in llama.cpp, and levels to 0.4 % of the
// largest one. The 4-bit rounding itself is off by up to 15 % of the largest one, and by some 7 % of a weight on average.
//
// For a single row the levels are decoded in registers. For more rows they are decoded once, into a buffer in the L1 cache.
#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/quantised/digits.h"
#include "cpu/quantised/product.h"

#if defined(ATTUNE_DIGITS)
#include "cpu/deal.h"

namespace attune {
namespace {

constexpr int64_t kColumns = 16;  // outputs per parallel task
constexpr int kGroups4 = static_cast<int>(kBlock4 / kGroup);
constexpr int64_t kOnce = 4;  // columns decoded into the buffer together

/** Columns of a tile of 4 bits: as many as fit into the registers. */
template <int DIGITS>
constexpr int kWide4 = DIGITS == kRounded ? 4 : 2;

constexpr int64_t kAhead = 12288;  // prefetch distance in bytes of codes; with a shorter one int8 of 1,024 inputs takes a sixth longer

// Prefetches the line 64·index bytes after `from` into the L2 cache. From there the L1 cache, which holds the columns in use, is filled in
// time.
inline void prefetch(const void* from, int64_t index) { __builtin_prefetch(static_cast<const char*>(from) + index * 64, 0, 2); }

/**
 * What a tile of ROWS × COLUMNS outputs reads. `scales` are the factors of each block's sums; for a single row of 4 bits they are its
 * blocks' maxima.
 */
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

template <int DIGITS, int ROWS, int COLUMNS>
using TileSums = BlockSums<DIGITS>[ROWS][COLUMNS];

template <int DIGITS, int ROWS, int COLUMNS>
inline void begin(TileSums<DIGITS, ROWS, COLUMNS>& sums) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) sums[r][c].begin();
}

// Adds a block's sums to the totals; `scale(row, column)` is their factor.
template <int DIGITS, int ROWS, int COLUMNS, typename Scale>
inline void end(const TileSums<DIGITS, ROWS, COLUMNS>& sums, const Scale& scale, Totals<ROWS, COLUMNS>& totals) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) totals[r][c] = timesPlus(sums[r][c].value(), scale(r, c), totals[r][c]);
}

// Tiles accumulate in local variables, which stay in registers; the caller's totals could be aliased by a pointer.
template <int ROWS, int COLUMNS>
inline void put(const Totals<ROWS, COLUMNS>& totals, Totals<ROWS, COLUMNS>& out) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) out[r][c] = totals[r][c];
}

// The digits of the group of inputs that starts at `input`.
template <int DIGITS>
inline void loadDigits(const int8_t* x, int64_t input, DigitsOf<DIGITS>& digits) {
#pragma GCC unroll 3
  for (int d = 0; d < DIGITS; d++) digits[d] = loadBytes(x + input * DIGITS + d * kGroup);
}

template <int DIGITS, int ROWS, int COLUMNS>
inline void addGroup8(const int8_t* const (&x)[ROWS], int64_t i, const Bytes (&w)[COLUMNS], TileSums<DIGITS, ROWS, COLUMNS>& sums) {
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    DigitsOf<DIGITS> own;
    loadDigits<DIGITS>(x[r], i, own);
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) sums[r][c].add(w[c], own);
  }
}

template <int DIGITS, int ROWS, int COLUMNS>
__attribute__((noinline)) void tile8(const Tile<ROWS, COLUMNS>& given, Totals<ROWS, COLUMNS>& out) {
  const Tile<ROWS, COLUMNS> tile = given;
  Totals<ROWS, COLUMNS> totals = {};
  const auto codesAt = [&](int c, int64_t i) { return static_cast<const int8_t*>(tile.codes[c]) + i; };
  for (int64_t b = 0; b < tile.blocks; b++) {
    TileSums<DIGITS, ROWS, COLUMNS> sums;
    begin<DIGITS, ROWS, COLUMNS>(sums);
    const int64_t last = std::min(tile.k, (b + 1) * block8(DIGITS));
    int64_t i = b * block8(DIGITS);
    for (; i + kGroup <= last; i += kGroup) {
      Bytes w[COLUMNS];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) w[c] = loadBytes(codesAt(c, i));
      if (COLUMNS == 4 || (COLUMNS == 2 && i / kGroup % 2 == 0)) prefetch(tile.next, i / kGroup * COLUMNS / 4);
      addGroup8<DIGITS, ROWS, COLUMNS>(tile.x, i, w, sums);
    }
    if (i < last) {  // x is padded with zeros; the codes are not, so the last ones are copied
      Bytes w[COLUMNS];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) {
        int8_t rest[kGroup] = {};
        std::copy_n(codesAt(c, i), last - i, rest);
        w[c] = loadBytes(rest);
      }
      addGroup8<DIGITS, ROWS, COLUMNS>(tile.x, i, w, sums);
    }
    end<DIGITS, ROWS, COLUMNS>(
        sums, [&](int r, int c) { return tile.scales[r][c][b]; }, totals);
  }
  put(totals, out);
}

// One block of 4 bits. `weight(column, digit, group)` is a vector of one digit of the levels.
template <int DIGITS, int ROWS, int COLUMNS, typename Weight, typename Scale>
inline void addBlock4(const Tile<ROWS, COLUMNS>& tile, int64_t b, const Weight& weight, const Scale& scale, Totals<ROWS, COLUMNS>& totals) {
  TileSums<DIGITS, ROWS, COLUMNS> sums;
  begin<DIGITS, ROWS, COLUMNS>(sums);
#pragma GCC unroll 4
  for (int g = 0; g < kGroups4; g++) {
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) {
      DigitsOf<DIGITS> w;
#pragma GCC unroll 3
      for (int d = 0; d < DIGITS; d++) w[d] = weight(c, d, g);
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        DigitsOf<DIGITS> own;
        loadDigits<DIGITS>(tile.x[r], (b * kGroups4 + g) * kGroup, own);
        sums[r][c].add(w, own);
      }
    }
  }
  end<DIGITS, ROWS, COLUMNS>(sums, scale, totals);
}

inline void splitBlock(const void* codes, int64_t b, Bytes (&split)[kGroups4]) {
  splitCodes(static_cast<const uint8_t*>(codes) + b * (kBlock4 / 2), split);
}

/** The levels' digits in registers. */
struct LevelTables {
  LevelDigits digits[kExact];
  explicit LevelTables(const Levels& levels)
      : digits{LevelDigits(levels.digits[0]), LevelDigits(levels.digits[1]), LevelDigits(levels.digits[2])} {}
};

/** Neighbouring columns of one part. */
struct Run4 {
  int64_t blocks;
  const uint8_t* codes;
  const float* peaks;  // [column][block]
};

// A single row: the codes are decoded in registers. Computes a run's columns, COLUMNS at a time; tiles that follow one another without a
// call take 6 % less time (1,024 inputs, rounded). Returns the first remaining column.
template <int DIGITS, int COLUMNS>
__attribute__((noinline)) int64_t oneRow4(const Run4& given, const Digits& digits, const Levels& levels, int64_t column, int64_t count,
                                          float* sums) {
  const Run4 run = given;
  const LevelTables tables(levels);
  const int64_t bytes = run.blocks * kBlock4 / 2;  // of a column
  const float* units = digits.units.get();
  for (; column + COLUMNS <= count; column += COLUMNS) {
    Tile<1, COLUMNS> tile;
    tile.blocks = run.blocks;
    tile.x[0] = digits.digits.get();
    for (int c = 0; c < COLUMNS; c++) {
      tile.codes[c] = run.codes + (column + c) * bytes;
      tile.scales[0][c] = run.peaks + (column + c) * run.blocks;
    }
    tile.next = run.codes + column * bytes + std::max(kAhead, COLUMNS * bytes);
    Totals<1, COLUMNS> totals = {};
    for (int64_t b = 0; b < run.blocks; b++) {
      Bytes split[COLUMNS][kGroups4];
#pragma GCC unroll 4
      for (int c = 0; c < COLUMNS; c++) splitBlock(tile.codes[c], b, split[c]);
#pragma GCC unroll 2
      for (int line = 0; line < COLUMNS / 2; line++) prefetch(tile.next, b * COLUMNS / 2 + line);
      addBlock4<DIGITS, 1, COLUMNS>(
          tile, b, [&](int c, int digit, int g) { return tables.digits[digit][split[c][g]]; },
          [&](int, int c) { return tile.scales[0][c][b] * units[b]; }, totals);
    }
    for (int c = 0; c < COLUMNS; c++) sums[column + c] = total(totals[0][c]);
  }
  return column;
}

// Several rows: `codes` are the decoded digits, [block][digit][64].
template <int DIGITS, int ROWS, int COLUMNS>
__attribute__((noinline)) void rows4(const Tile<ROWS, COLUMNS>& given, Totals<ROWS, COLUMNS>& out) {
  const Tile<ROWS, COLUMNS> tile = given;
  Totals<ROWS, COLUMNS> totals = {};
  const auto weightIn = [&](int64_t b) {
    return [=](int c, int digit, int g) {
      return loadBytes(static_cast<const int8_t*>(tile.codes[c]) + (b * DIGITS + digit) * kBlock4 + g * kGroup);
    };
  };
  for (int64_t b = 0; b < tile.blocks; b++)
    addBlock4<DIGITS, ROWS, COLUMNS>(
        tile, b, weightIn(b), [&](int r, int c) { return tile.scales[r][c][b]; }, totals);
  put(totals, out);
}

// The work of one thread: tasks of kColumns outputs, for all rows of x.
template <int DIGITS>
class Columns {
 public:
  Columns(const QuantisedProduct& p, const Digits& x, const Levels* levels) : p(p), x(x), levels(levels) {
    if (levels == nullptr || p.m == 1) return;
    decoded.resize(kOnce * decodedSize());
    scales.resize(2 * kWide4<DIGITS> * x.blocks);
  }

  void multiply(int64_t begin, int64_t end) {
    first = begin;
    own[0] = columnOf(p.w, begin);
    for (int64_t c = 1; c < end - begin; c++) {
      const QuantisedColumn& before = own[c - 1];
      own[c] = before.row + 1 < before.part->outputs ? QuantisedColumn{before.part, before.row + 1} : columnOf(p.w, begin + c);
    }
    if (levels == nullptr) {
      prefetch(static_cast<const float*>(own[0].part->scales) + own[0].row, 1);  // the next task's
      int64_t row = 0;
      for (; row + 2 <= p.m; row += 2) sweep<2, 4>(row, begin, end);
      if (row < p.m) sweep<1, 4>(row, begin, end);
      return;
    }
    findPeaks(begin, end);
    if (p.m == 1) return multiplyRow4(begin, end);
    for (int64_t column = begin; column < end; column += kOnce) {
      const int64_t last = std::min(end, column + kOnce);
      for (int64_t c = column; c < last; c++) decode(c);
      int64_t row = 0;
      for (; row + 2 <= p.m; row += 2) sweep<2, kWide4<DIGITS>>(row, column, last);
      if (row < p.m) sweep<1, kWide4<DIGITS>>(row, column, last);
    }
  }

 private:
  const QuantisedProduct& p;
  const Digits& x;
  const Levels* levels;
  std::vector<float> scales, peaks;
  std::vector<int8_t> decoded;
  QuantisedColumn own[kColumns];
  const float* peaksOf[kColumns];
  int64_t first = 0;  // of the task's columns

  int64_t decodedSize() const { return x.blocks * kBlock4 * DIGITS; }
  int8_t* decodedOf(int64_t column) { return decoded.data() + column % kOnce * decodedSize(); }

  // Computes the maxima of the columns' blocks if they are not stored as such: they are in 8 bits, or belong to blocks of more than 64
  // weights and are repeated.
  void findPeaks(int64_t begin, int64_t end) {
    const int64_t share = p.w.block / kBlock4, blocks = x.blocks / share;
    for (int64_t column = begin; column < end;) {  // the columns of one part are contiguous
      const QuantisedColumn& of = own[column - begin];
      const int64_t count = std::min(end - column, of.part->outputs - of.row);
      const float* found;
      if (share == 1 && of.part->nested == nullptr) {
        found = static_cast<const float*>(of.part->scales) + of.row * blocks;
        for (int64_t i = 0; i < count * blocks / 16; i++) prefetch(found + count * blocks, i);  // the next task's
      } else {
        peaks.resize(kColumns * x.blocks);
        float* to = peaks.data() + (column - begin) * x.blocks;
        blockScales(*of.part, of.row * blocks, count * blocks, to);
        if (share > 1)
          for (int64_t i = count * x.blocks - 1; i >= 0; i--) to[i] = to[i / share];
        found = to;
      }
      for (int64_t c = 0; c < count; c++) peaksOf[column - begin + c] = found + c * x.blocks;
      column += count;
    }
  }

  void decode(int64_t column) {
    const LevelTables tables(*levels);
    const uint8_t* codes = own[column - first].codes4(p.w.inputs);
    int8_t* to = decodedOf(column);
    for (int64_t b = 0; b < x.blocks; b++) {
      Bytes split[kGroups4];
      splitBlock(codes, b, split);
      for (int d = 0; d < DIGITS; d++)
        for (int g = 0; g < kGroups4; g++, to += kGroup) storeBytes(to, tables.digits[d][split[g]]);
    }
  }

  // A single row, part by part.
  void multiplyRow4(int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end;) {
      const QuantisedColumn& of = own[column - begin];
      const int64_t count = std::min(end - column, of.part->outputs - of.row);
      const Run4 run{x.blocks, of.codes4(p.w.inputs), peaksOf[column - begin]};
      float sums[kColumns];
      const int64_t left = oneRow4<DIGITS, kWide4<DIGITS>>(run, x, *levels, 0, count, sums);
      oneRow4<DIGITS, 1>(run, x, *levels, left, count, sums);
      for (int64_t c = 0; c < count; c++) p.put(0, column + c, sums[c] * levels->unit);
      column += count;
    }
  }

  template <int ROWS, int COLUMNS>
  void sweep(int64_t row, int64_t begin, int64_t end) {
    int64_t column = begin;
    for (; column + COLUMNS <= end; column += COLUMNS) tile<ROWS, COLUMNS>(row, column);
    for (; column < end; column++) tile<ROWS, 1>(row, column);
  }

  // The factors of each block's sums.
  const float* scalesOf(int64_t row, int64_t column, float* room) {
    const float* units = x.units.get() + row * x.blocks;
    if (levels == nullptr) return units;
    const float* peak = peaksOf[column - first];
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
      tile.codes[c] = levels == nullptr ? of.codes8(k) : decodedOf(column + c);
    }
    for (int r = 0; r < ROWS; r++) {
      tile.x[r] = x.digits.get() + (row + r) * x.stride;
      for (int c = 0; c < COLUMNS; c++) tile.scales[r][c] = scalesOf(row + r, column + c, scales.data() + (r * COLUMNS + c) * x.blocks);
    }
    // the columns after these follow them in memory, except at the end of a part
    tile.next = static_cast<const char*>(tile.codes[0]) + std::max(kAhead, COLUMNS * (levels == nullptr ? k : k / 2));
    Totals<ROWS, COLUMNS> totals;
    if (levels == nullptr)
      tile8<DIGITS>(tile, totals);
    else
      rows4<DIGITS>(tile, totals);
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < COLUMNS; c++) p.put(row + r, column + c, total(totals[r][c]) * last[c]);
  }
};

template <int DIGITS>
void multiply(const QuantisedProduct& p) {
  const Digits x(p.x, p.m, p.w.inputs, p.w.four, DIGITS);
  const std::unique_ptr<const Levels> levels(p.w.four ? new Levels(p.w.levels, DIGITS) : nullptr);
  const int64_t tasks = piecesOf(p.w.outputs, kColumns), work = p.m * p.w.inputs * kColumns;
  deal(tasks, leastTasks(work), [&](int64_t first, int64_t last) {
    Columns<DIGITS> columns(p, x, levels.get());
    for (int64_t task = first; task < last; task++) columns.multiply(task * kColumns, std::min(p.w.outputs, (task + 1) * kColumns));
  });
}

}  // namespace

bool digitsFit(const QuantisedRows& w) { return !w.four || isAligned(w); }

void digitsProduct(const QuantisedProduct& p) { p.rounded ? multiply<kRounded>(p) : multiply<kExact>(p); }

bool canRound() { return true; }

}  // namespace attune

#else

namespace attune {
bool digitsFit(const QuantisedRows&) { return false; }
void digitsProduct(const QuantisedProduct&) {}
bool canRound() { return false; }
}  // namespace attune

#endif
