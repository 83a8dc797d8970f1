// The product on x86 CPUs with AVX2 and FMA, or with AVX-512. Codes become f32 in registers and are used for a few rows of x. A vector's
// lanes are neighbouring inputs. Each output has one vector of sums in every tile shape, so the shape does not change the result.
#include "cpu/quantised/product.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "cpu/deal.h"
#include "cpu/intrinsics.h"
#include "cpu/vectors.h"

namespace attune {
namespace {

typedef int32_t Whole __attribute__((vector_size(kWidth * sizeof(int32_t)), aligned(4), may_alias));

// Intrinsics instead of GCC's vector extensions: with those GCC converts bytes one by one.
#if defined(__AVX512F__)
inline __m128i sixteen(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline Whole signedBytes(const void* from) { return (Whole)_mm512_cvtepi8_epi32(sixteen(from)); }
inline Vector floats(const Whole& whole) { return (Vector)_mm512_cvtepi32_ps((__m512i)whole); }
#else
inline __m128i eight(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
inline Whole signedBytes(const void* from) { return (Whole)_mm256_cvtepi8_epi32(eight(from)); }
inline Vector floats(const Whole& whole) { return (Vector)_mm256_cvtepi32_ps((__m256i)whole); }
#endif

constexpr int64_t kColumns = 16;  // outputs per parallel task
constexpr int kRows = kWidth == 16 ? 8 : 4;  // the most rows of x that leave registers for two columns

#if defined(__AVX512F__)
using Levels = Vector;
inline Levels levelsOf(const float* from) { return load(from); }

// The 16 levels times a block's maximum, in a register: the weights that its codes stand for.
struct LevelTable {
  Vector weights;
  LevelTable(const Levels& levels, float peak) : weights(levels * peak) {}
  Vector operator[](const Whole& code) const { return __builtin_shuffle(weights, code); }
};

// The codes of a step, and the order of its inputs in the decoded vectors.
// 64 codes are eight numbers of 32 bits, held in both halves of a register. A shift brings the code of an odd input to the end of a number
// in the lower half, and that of an even input in the upper half. The lookup reads only the last four bits, so the others need not be
// cleared.
struct FourBitStep {
  static constexpr int kVectors = 4;
  Whole codes;
  explicit FourBitStep(const uint8_t* from)
      : codes((Whole)_mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))) {}
  Vector weights(int v, const LevelTable& table) const {
    const __m512i shifts = _mm512_mask_set1_epi32(_mm512_set1_epi32(8 * v), 0xFF00, 8 * v + 4);
    return table[(Whole)_mm512_srlv_epi32((__m512i)codes, shifts)];
  }
  void weights(const LevelTable& table, Vector (&w)[kVectors]) const {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; v++) w[v] = weights(v, table);
  }
  static int64_t inputAt(int64_t v, int64_t lane) { return lane < 8 ? 8 * lane + 2 * v + 1 : 8 * (lane - 8) + 2 * v; }
};
#else
// The first bytes of the 16 levels, then the second bytes, and so on, in both halves of a register.
struct Levels {
  __m256i bytes[4];
};
inline Levels levelsOf(const float* from) {
  Levels levels;
  for (int byte = 0; byte < 4; byte++) {
    alignas(16) char those[16];
    for (int i = 0; i < 16; i++) those[i] = reinterpret_cast<const char*>(from + i)[byte];
    levels.bytes[byte] = _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(those)));
  }
  return levels;
}

struct LevelTable {
  const Levels& levels;
  __m256 peak;
  LevelTable(const Levels& levels, float peak) : levels(levels), peak(_mm256_set1_ps(peak)) {}
};

// 64 codes, two per byte. A level's four bytes are looked up one after the other, for 32 codes at once, and are combined by unpacking.
// Unpacking works within each half of a register, so a half holds the codes of every other four bytes.
struct FourBitStep {
  static constexpr int kVectors = 8;
  __m256i codes;
  explicit FourBitStep(const uint8_t* from)
      : codes(_mm256_permutevar8x32_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)), _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7))) {}
  void weights(const LevelTable& table, Vector (&w)[kVectors]) const {
    const __m256i last = _mm256_set1_epi8(15);
    half(_mm256_and_si256(_mm256_srli_epi16(codes, 4), last), table, w, 0);
    half(_mm256_and_si256(codes, last), table, w, 1);
  }
  static int64_t inputAt(int64_t v, int64_t lane) { return v / 2 * 16 + 2 * lane + v % 2; }

 private:
  static inline __attribute__((always_inline)) void half(const __m256i& codes, const LevelTable& table, Vector (&w)[kVectors], int at) {
    __m256i found[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) found[i] = _mm256_shuffle_epi8(table.levels.bytes[i], codes);
    const __m256i a = _mm256_unpacklo_epi8(found[0], found[1]), b = _mm256_unpackhi_epi8(found[0], found[1]);
    const __m256i c = _mm256_unpacklo_epi8(found[2], found[3]), d = _mm256_unpackhi_epi8(found[2], found[3]);
    const auto times = [&](const __m256i& levels) { return (Vector)_mm256_mul_ps(_mm256_castsi256_ps(levels), table.peak); };
    w[at] = times(_mm256_unpacklo_epi16(a, c));
    w[at + 2] = times(_mm256_unpackhi_epi16(a, c));
    w[at + 4] = times(_mm256_unpacklo_epi16(b, d));
    w[at + 6] = times(_mm256_unpackhi_epi16(b, d));
  }
};
#endif

// The block maxima of a task's columns; empty for 8 bits.
struct Peaks {
  int64_t blocks;  // of a column
  std::vector<float> values;
  Levels levels;  // multiplied by the block maxima

  explicit Peaks(const QuantisedProduct& p) : blocks(p.w.four ? p.w.inputs / p.w.block : 0), values(kColumns * blocks) {
    if (p.w.four) levels = levelsOf(p.w.levels);
  }
  const float* of(int64_t column) const { return values.data() + column % kColumns * blocks; }
  void read(const QuantisedProduct& p, int64_t begin, int64_t end) {
    while (begin < end) {  // neighbouring columns of a part together
      const QuantisedColumn own = columnOf(p.w, begin);
      const int64_t last = std::min(end, begin + own.part->outputs - own.row), count = (last - begin) * blocks;
      blockScales(*own.part, own.row * blocks, count, values.data() + begin % kColumns * blocks);
      // the next task's, whose first read would otherwise stall
      const int64_t bytes = own.part->nested == nullptr ? sizeof(float) : 1;
      const char* next = static_cast<const char*>(own.part->scales) + (own.row * blocks + count) * bytes;
      for (int64_t line = 0; line < count * bytes; line += 64) __builtin_prefetch(next + line, 0, 2);
      begin = last;
    }
  }
};

// A column's weights come in chunks that share what is needed to decode them: the whole column for 8 bits, a block for 4 bits.
struct Int8Column {
  struct Chunk {
    const int8_t* codes;
    /** The weights from input i on; those from `count` on are 0. */
    void load(int64_t i, Vector (&w)[1], int64_t count) const {
      if (count == kWidth) {
        w[0] = floats(signedBytes(codes + i));
        return;
      }
      int8_t bytes[kWidth] = {};
      std::memcpy(bytes, codes + i, count);
      w[0] = floats(signedBytes(bytes));
    }
  };
  static constexpr int64_t kStep = kWidth, kStepBytes = kWidth;
  static constexpr bool kWholeSteps = false;
  static constexpr int kAlone = 8;  // columns computed together for a single row
  static int64_t chunkSize(const QuantisedProduct& p) { return p.w.inputs; }

  const int8_t* codes;
  float scale;

  Int8Column(const QuantisedProduct& p, int64_t column, const Peaks&) {
    const QuantisedColumn own = columnOf(p.w, column);
    codes = own.codes8(p.w.inputs);
    scale = own.scale8();
  }
  Chunk chunk(int64_t) const { return {codes}; }
};

struct FourBitColumn {
  static constexpr int64_t kStep = FourBitStep::kVectors * kWidth, kStepBytes = kStep / 2;
  static constexpr bool kWholeSteps = true;
  static constexpr int kAlone = 4;
  struct Chunk {
    const uint8_t* codes;
    LevelTable table;
    /** Blocks are a whole number of steps. */
    void load(int64_t i, Vector (&w)[FourBitStep::kVectors], int64_t) const {
      FourBitStep(codes + i / 2).weights(table, w);
    }
  };
  static int64_t chunkSize(const QuantisedProduct& p) { return p.w.block; }

  const uint8_t* codes;
  const float* peaks;  // max|w| of each block
  const Levels& levels;
  int64_t blockBytes;
  float scale = 1;

  FourBitColumn(const QuantisedProduct& p, int64_t column, const Peaks& all)
      : codes(columnOf(p.w, column).codes4(p.w.inputs)),
        peaks(all.of(column)),
        levels(all.levels),
        blockBytes(p.w.block / 2) {}
  Chunk chunk(int64_t index) const { return {codes + index * blockBytes, LevelTable(levels, peaks[index])}; }
};

// Rows of x in the order in which tiles read them. Rows that share a tile alternate, one vector of each, and are padded with zeros: rows
// that lie k apart would map to the same lines of the L1 cache. For codes of 4 bits the inputs of a step are in the order in which the
// codes are unpacked.
class PackedRows {
 public:
  PackedRows(const QuantisedProduct& p, int64_t step) : length(piecesOf(p.w.inputs, step) * step), room(p.m * length + kLine) {
    const int64_t past = reinterpret_cast<uintptr_t>(room.data()) / sizeof(float) % kLine;
    start = room.data() + (kLine - past) % kLine;
    int64_t row = 0;
    for (; row + kRows <= p.m; row += kRows) pack(p, row, kRows);
    for (; row + 2 <= p.m; row += 2) pack(p, row, 2);
    if (row < p.m) pack(p, row, 1);
  }
  const float* from(int64_t row) const { return start + row * length; }

 private:
  static constexpr int64_t kLine = 64 / sizeof(float);  // of the cache
  int64_t length;  // of a row
  std::vector<float> room;
  float* start;  // aligned to a cache line

  void pack(const QuantisedProduct& p, int64_t first, int64_t rows) {
    const int64_t k = p.w.inputs, next = rows * kWidth;
    for (int64_t r = 0; r < rows; r++) {
      const float* x = p.x + (first + r) * k;
      float* to = start + first * length + r * kWidth;
      int64_t i = 0;
      if (p.w.four)
        for (; i < k; i += FourBitColumn::kStep)
          for (int64_t v = 0; v < FourBitStep::kVectors; v++, to += next)
            for (int64_t lane = 0; lane < kWidth; lane++) to[lane] = x[i + FourBitStep::inputAt(v, lane)];
      for (; i + kWidth <= k; i += kWidth, to += next) store(to, load(x + i));
      if (i < k) std::copy_n(x + i, k - i, to);
    }
  }
};

template <typename Column, int ROWS, int COLUMNS, size_t... INDEX>
void tile(const QuantisedProduct& p, const float* x, int64_t row, int64_t column, const Peaks& peaks, std::index_sequence<INDEX...>) {
  constexpr int64_t kStep = Column::kStep, kBytes = COLUMNS * Column::kStepBytes;
  const int64_t k = p.w.inputs, size = Column::chunkSize(p);
  const Column own[COLUMNS] = {Column(p, column + static_cast<int64_t>(INDEX), peaks)...};
  // The codes after these columns', which follow them in memory except at the end of a part. With several rows, multiplying is the limit,
  // not reading.
  const char* next = reinterpret_cast<const char*>(own[COLUMNS - 1].codes) + k * Column::kStepBytes / kStep;
  Vector sums[ROWS][COLUMNS] = {};
  constexpr int64_t kVectors = kStep / kWidth;
  const auto add = [&](const typename Column::Chunk(&parts)[COLUMNS], int64_t i, int64_t count) __attribute__((always_inline)) {
    const auto multiply = [&](int c, int64_t v, const Vector& w) __attribute__((always_inline)) {
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) sums[r][c] = fused(load(x + (v * ROWS + r) * kWidth), w, sums[r][c]);
    };
    if constexpr (kVectors > 4) {  // alternates columns, because the multiply-adds of one sum depend on one another
      Vector w[COLUMNS][kVectors];
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) parts[c].load(i, w[c], count);
#pragma GCC unroll 8
      for (int64_t v = 0; v < kVectors; v++)
#pragma GCC unroll 8
        for (int c = 0; c < COLUMNS; c++) multiply(c, v, w[c][v]);
    } else {
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) {
        Vector w[kVectors];
        parts[c].load(i, w, count);
#pragma GCC unroll 4
        for (int64_t v = 0; v < kVectors; v++) multiply(c, v, w[v]);
      }
    }
    x += ROWS * kStep;
  };
  for (int64_t start = 0, chunk = 0; start < k; start += size, chunk++) {
    const typename Column::Chunk parts[COLUMNS] = {own[INDEX].chunk(chunk)...};
    int64_t i = 0;
    for (; i + kStep <= size; i += kStep) {
      if (ROWS == 1 && COLUMNS == Column::kAlone)
#pragma GCC unroll 2
        for (int64_t line = 0; line < kBytes / 64; line++, next += 64) __builtin_prefetch(next, 0, 2);
      add(parts, i, kStep);
    }
    if (!Column::kWholeSteps && i < size) add(parts, i, size - i);
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    float all[COLUMNS];
    int c = 0;
#pragma GCC unroll 2
    for (; c + 4 <= COLUMNS; c += 4) {
      const Quad four = totals(sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]);
      std::memcpy(all + c, &four, sizeof(four));
    }
#pragma GCC unroll 2
    for (; c < COLUMNS; c++) all[c] = total(sums[r][c]);
#pragma GCC unroll 8
    for (c = 0; c < COLUMNS; c++) p.put(row + r, column + c, all[c] * own[c].scale);
  }
}

#if defined(__AVX512F__)
// Computes what tile<FourBitColumn, 1, 4> computes, to the bit, for blocks of one step. The loop holds nothing else, because it is limited
// by instructions.
void fourColumns(const QuantisedProduct& p, const float* x, int64_t row, int64_t column, const Peaks& peaks) {
  constexpr int kFour = FourBitColumn::kAlone, kBytes = FourBitColumn::kStepBytes;
  static_assert(kFour == 4 && kBytes == 32);
  const uint8_t* codes[kFour];
#pragma GCC unroll 4
  for (int c = 0; c < kFour; c++) codes[c] = columnOf(p.w, column + c).codes4(p.w.inputs);
  const char* next = reinterpret_cast<const char*>(codes[kFour - 1]) + p.w.inputs / 2;
  const float *peak = peaks.of(column), *end = peak + peaks.blocks;
  Vector sums[kFour] = {};
  for (int64_t at = 0; peak < end; peak++, at += kBytes, next += 2 * 64, x += FourBitColumn::kStep) {
    __builtin_prefetch(next, 0, 2);
    __builtin_prefetch(next + 64, 0, 2);
#pragma GCC unroll 4
    for (int c = 0; c < kFour; c++) {
      const FourBitStep step(codes[c] + at);
      const LevelTable table(peaks.levels, peak[c * peaks.blocks]);
#pragma GCC unroll 4
      for (int v = 0; v < FourBitStep::kVectors; v++) sums[c] = fused(load(x + v * kWidth), step.weights(v, table), sums[c]);
    }
  }
  const Quad all = totals(sums[0], sums[1], sums[2], sums[3]);
#pragma GCC unroll 4
  for (int c = 0; c < kFour; c++) p.put(row, column + c, all[c]);
}
#endif

template <typename Column, int ROWS, int COLUMNS>
void columns(const QuantisedProduct& p, const float* x, int64_t row, int64_t begin, int64_t end, const Peaks& peaks) {
  int64_t column = begin;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<Column, FourBitColumn> && ROWS == 1)
    if (p.w.block == Column::kStep)
      for (; column + COLUMNS <= end; column += COLUMNS) fourColumns(p, x, row, column, peaks);
#endif
  for (; column + COLUMNS <= end; column += COLUMNS)
    tile<Column, ROWS, COLUMNS>(p, x, row, column, peaks, std::make_index_sequence<COLUMNS>());
  for (; column < end; column++) tile<Column, ROWS, 1>(p, x, row, column, peaks, std::make_index_sequence<1>());
}

template <typename Column>
void product(const QuantisedProduct& p) {
  const int64_t tasks = piecesOf(p.w.outputs, kColumns), work = p.m * p.w.inputs * kColumns;
  const PackedRows x(p, Column::kStep);
  deal(tasks, leastTasks(work), [&](int64_t first, int64_t last) {
    Peaks peaks(p);
    for (int64_t task = first; task < last; task++) {
      const int64_t begin = task * kColumns, end = std::min(p.w.outputs, begin + kColumns);
      if (p.w.four) peaks.read(p, begin, end);
      int64_t row = 0;
      for (; row + kRows <= p.m; row += kRows) columns<Column, kRows, 2>(p, x.from(row), row, begin, end, peaks);
      for (; row + 2 <= p.m; row += 2) columns<Column, 2, 4>(p, x.from(row), row, begin, end, peaks);
      if (row < p.m) columns<Column, 1, Column::kAlone>(p, x.from(row), row, begin, end, peaks);
    }
  });
}

}  // namespace

bool lanesFit(const QuantisedRows& w) { return !w.four || isAligned(w); }

void lanesProduct(const QuantisedProduct& p) {
  if (!p.w.four) return product<Int8Column>(p);
  product<FourBitColumn>(p);
}

}  // namespace attune

#else

namespace attune {
bool lanesFit(const QuantisedRows&) { return false; }
void lanesProduct(const QuantisedProduct&) {}
}  // namespace attune

#endif
