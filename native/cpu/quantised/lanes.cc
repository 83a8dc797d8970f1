// The product on x86 CPUs with AVX2 and FMA, or with AVX-512. Codes become f32 in registers and are used for a few rows of x. The lanes of
// a vector are neighbouring inputs. Each output has one vector of sums in every tile shape, so the shape does not change the result.
#include "cpu/quantised/product.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cpu/intrinsics.h"
#include "cpu/vectors.h"

namespace attune {
namespace {

typedef int32_t Whole __attribute__((vector_size(kWidth * sizeof(int32_t)), aligned(4), may_alias));

// Intrinsics replace GCC's vector extensions in two places. GCC converts bytes one by one, and for some CPUs it does not always fuse a
// multiplication with the addition after it, so that the same sum would differ between tile shapes.
#if defined(__AVX512F__)
inline Vector fused(const Vector& a, const Vector& b, const Vector& sum) {
  return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
}
inline __m128i sixteen(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline Whole signedBytes(const void* from) { return (Whole)_mm512_cvtepi8_epi32(sixteen(from)); }
inline Whole unsignedBytes(const void* from) { return (Whole)_mm512_cvtepu8_epi32(sixteen(from)); }
inline Vector floats(const Whole& whole) { return (Vector)_mm512_cvtepi32_ps((__m512i)whole); }
#else
inline Vector fused(const Vector& a, const Vector& b, const Vector& sum) {
  return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
}
inline __m128i eight(const void* from) { return _mm_loadl_epi64(static_cast<const __m128i*>(from)); }
inline Whole signedBytes(const void* from) { return (Whole)_mm256_cvtepi8_epi32(eight(from)); }
inline Whole unsignedBytes(const void* from) { return (Whole)_mm256_cvtepu8_epi32(eight(from)); }
inline Vector floats(const Whole& whole) { return (Vector)_mm256_cvtepi32_ps((__m256i)whole); }
#endif

constexpr int64_t kColumns = 16;  // outputs of one parallel task
constexpr int kRows = kWidth == 16 ? 8 : 4;  // as many rows of x as leave registers for two columns
constexpr int kAlone = 8;  // columns that a single row is multiplied with together

// The weights of a column come in chunks that share what is needed to decode them: the whole column of 8 bits, a block of 4 bits.
struct Int8Column {
  struct Chunk {
    const int8_t* codes;
    /** The weights from input i on; those beyond `count` are 0. */
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
  static int64_t chunkSize(const QuantisedProduct& p) { return p.w.inputs; }

  const int8_t* codes;
  float scale;

  Int8Column(const QuantisedProduct& p, int64_t column, const float*) {
    const QuantisedColumn own = columnOf(p.w, column);
    codes = own.codes8(p.w.inputs);
    scale = own.scale8();
  }
  Chunk chunk(int64_t) const { return {codes}; }
};

// The 16 levels times a block's maximum: the weights that its codes stand for, in registers.
struct LevelTable {
#if defined(__AVX512F__)
  Vector levels;
  LevelTable(const float* from, float peak) : levels(load(from) * peak) {}
  Vector operator[](const Whole& code) const { return __builtin_shuffle(levels, code); }
#else
  Vector low, high;
  LevelTable(const float* from, float peak) : low(load(from) * peak), high(load(from + kWidth) * peak) {}
  Vector operator[](const Whole& code) const { return __builtin_shuffle(low, high, code); }
#endif
};

struct FourBitColumn {
  struct Chunk {
    const uint8_t* codes;
    LevelTable table;
    /** Those of even inputs, then those of odd ones; blocks are whole steps. */
    void load(int64_t i, Vector (&w)[2], int64_t) const {
      const Whole both = unsignedBytes(codes + i / 2);
      w[0] = table[both >> 4];
      w[1] = table[both & 15];
    }
  };
  static constexpr int64_t kStep = 2 * kWidth, kStepBytes = kWidth;
  static constexpr bool kWholeSteps = true;
  static int64_t chunkSize(const QuantisedProduct& p) { return p.w.block; }

  const uint8_t* codes;
  const float *peaks, *levels;  // max|w| of each block
  int64_t blockBytes;
  float scale = 1;

  FourBitColumn(const QuantisedProduct& p, int64_t column, const float* peaks)
      : codes(columnOf(p.w, column).codes4(p.w.inputs)),
        peaks(peaks + column % kColumns * (p.w.inputs / p.w.block)),
        levels(p.w.levels),
        blockBytes(p.w.block / 2) {}
  Chunk chunk(int64_t index) const { return {codes + index * blockBytes, LevelTable(levels, peaks[index])}; }
};

// Rows of x as the tiles read them: those that share a tile side by side, a vector of each, and padded with zeros. Rows that lie k apart would
// fall onto the same lines of the L1 cache. In codes of 4 bits the even inputs of a step come before the odd ones, as the codes are unpacked.
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
  float* start;  // on a line

  void pack(const QuantisedProduct& p, int64_t first, int64_t rows) {
    const int64_t k = p.w.inputs, next = rows * kWidth;
    for (int64_t r = 0; r < rows; r++) {
      const float* x = p.x + (first + r) * k;
      float* to = start + first * length + r * kWidth;
      int64_t i = 0;
      if (p.w.four)
        for (; i < k; i += 2 * kWidth, to += 2 * next)
          for (int64_t lane = 0; lane < kWidth; lane++) {
            to[lane] = x[i + 2 * lane];
            to[next + lane] = x[i + 2 * lane + 1];
          }
      for (; i + kWidth <= k; i += kWidth, to += next) store(to, load(x + i));
      if (i < k) std::copy_n(x + i, k - i, to);
    }
  }
};

template <typename Column, int ROWS, int COLUMNS, size_t... INDEX>
void tile(const QuantisedProduct& p, const float* x, int64_t row, int64_t column, const float* peaks, std::index_sequence<INDEX...>) {
  constexpr int64_t kStep = Column::kStep, kBytes = COLUMNS * Column::kStepBytes;
  const int64_t k = p.w.inputs, size = Column::chunkSize(p);
  const Column own[COLUMNS] = {Column(p, column + static_cast<int64_t>(INDEX), peaks)...};
  // The codes after these columns', which follow them in memory but for the end of a part. Several rows are limited by multiplying, not reading.
  const char* next = reinterpret_cast<const char*>(own[COLUMNS - 1].codes) + k * Column::kStepBytes / kStep;
  Vector sums[ROWS][COLUMNS] = {};
  const auto add = [&](const typename Column::Chunk(&parts)[COLUMNS], int64_t i, int64_t count) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) {
      Vector w[kStep / kWidth];
      parts[c].load(i, w, count);
#pragma GCC unroll 2
      for (int v = 0; v < kStep / kWidth; v++)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) sums[r][c] = fused(load(x + (v * ROWS + r) * kWidth), w[v], sums[r][c]);
    }
    x += ROWS * kStep;
  };
  for (int64_t start = 0, chunk = 0; start < k; start += size, chunk++) {
    const typename Column::Chunk parts[COLUMNS] = {own[INDEX].chunk(chunk)...};
    int64_t i = 0;
    for (; i + kStep <= size; i += kStep) {
      if (COLUMNS == kAlone)
#pragma GCC unroll 2
        for (int64_t line = 0; line < kBytes / 64; line++, next += 64) __builtin_prefetch(next, 0, 2);
      add(parts, i, kStep);
    }
    if (!Column::kWholeSteps && i < size) add(parts, i, size - i);
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) p.put(row + r, column + c, total(sums[r][c]) * own[c].scale);
}

template <typename Column, int ROWS, int COLUMNS>
void columns(const QuantisedProduct& p, const float* x, int64_t row, int64_t begin, int64_t end, const float* peaks) {
  int64_t column = begin;
  for (; column + COLUMNS <= end; column += COLUMNS)
    tile<Column, ROWS, COLUMNS>(p, x, row, column, peaks, std::make_index_sequence<COLUMNS>());
  for (; column < end; column++) tile<Column, ROWS, 1>(p, x, row, column, peaks, std::make_index_sequence<1>());
}

template <typename Column>
void product(const QuantisedProduct& p) {
  const int64_t k = p.w.inputs, blocks = p.w.four ? k / p.w.block : 0;
  const int64_t tasks = piecesOf(p.w.outputs, kColumns), work = p.m * k * kColumns;
  const PackedRows x(p, Column::kStep);
  at::parallel_for(0, tasks, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, work)), [&](int64_t first, int64_t last) {
    std::vector<float> peaks(kColumns * blocks);
    for (int64_t task = first; task < last; task++) {
      const int64_t begin = task * kColumns, end = std::min(p.w.outputs, begin + kColumns);
      if (p.w.four)
        for (int64_t column = begin; column < end; column++) {
          const QuantisedColumn own = columnOf(p.w, column);
          blockScales(*own.part, own.row * blocks, blocks, peaks.data() + column % kColumns * blocks);
        }
      int64_t row = 0;
      for (; row + kRows <= p.m; row += kRows) columns<Column, kRows, 2>(p, x.from(row), row, begin, end, peaks.data());
      for (; row + 2 <= p.m; row += 2) columns<Column, 2, 4>(p, x.from(row), row, begin, end, peaks.data());
      if (row < p.m) columns<Column, 1, kAlone>(p, x.from(row), row, begin, end, peaks.data());
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
