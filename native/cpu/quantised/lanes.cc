// The product on x86 CPUs with AVX2 and FMA, or with AVX-512. Codes become f32 in registers and are used for a few rows of x. The lanes of
// a vector are neighbouring inputs. Each output has one vector of sums in every tile shape, so the shape does not change the result.
#include "cpu/quantised/product.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <ATen/Parallel.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

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

struct Int8Column {
  const int8_t* codes;
  float scale;

  Int8Column(const QuantisedProduct& p, int64_t column, const float*) {
    const QuantisedColumn own = columnOf(p.w, column);
    codes = own.codes8(p.w.inputs);
    scale = own.scale8();
  }
  static constexpr int64_t kStep = kWidth;
  /** The weights from input i on; those beyond `count` are 0. */
  void load(int64_t i, Vector (&w)[1], int64_t count = kWidth) const {
    __builtin_prefetch(codes + i + 512);
    if (count == kWidth) {
      w[0] = floats(signedBytes(codes + i));
      return;
    }
    int8_t bytes[kWidth] = {};
    std::memcpy(bytes, codes + i, count);
    w[0] = floats(signedBytes(bytes));
  }
};

// The 16 levels, held in registers.
struct LevelTable {
#if defined(__AVX512F__)
  Vector levels;
  explicit LevelTable(const float* from) : levels(load(from)) {}
  Vector operator[](const Whole& code) const { return __builtin_shuffle(levels, code); }
#else
  Vector low, high;
  explicit LevelTable(const float* from) : low(load(from)), high(load(from + kWidth)) {}
  Vector operator[](const Whole& code) const { return __builtin_shuffle(low, high, code); }
#endif
};

struct FourBitColumn {
  const uint8_t* codes;
  const float* peaks;  // max|w| of each block
  int64_t block;
  LevelTable table;
  float scale = 1;

  FourBitColumn(const QuantisedProduct& p, int64_t column, const float* peaks)
      : codes(columnOf(p.w, column).codes4(p.w.inputs)),
        peaks(peaks + column % kColumns * (p.w.inputs / p.w.block)),
        block(p.w.block),
        table(p.w.levels) {}
  static constexpr int64_t kStep = 2 * kWidth;
  /** Those of even inputs, then those of odd ones; rows are whole blocks. */
  void load(int64_t i, Vector (&w)[2], int64_t = kStep) const {
    __builtin_prefetch(codes + i / 2 + 512);
    const Whole both = unsignedBytes(codes + i / 2);
    const Vector peak = all(peaks[i / block]);
    w[0] = table[both >> 4] * peak;
    w[1] = table[both & 15] * peak;
  }
};

// Reorders x: in each step the even inputs come before the odd ones, as the codes are unpacked.
std::vector<float> inPairs(const float* x, int64_t count) {
  std::vector<float> out(count);
  for (int64_t i = 0; i < count; i++) {
    const int64_t start = i / (2 * kWidth) * (2 * kWidth), at = i - start;
    out[start + at % 2 * kWidth + at / 2] = x[i];
  }
  return out;
}

template <typename Column, int ROWS, int COLUMNS, size_t... INDEX>
void tile(const QuantisedProduct& p, const float* x, int64_t row, int64_t column, const float* peaks, std::index_sequence<INDEX...>) {
  constexpr int kVectors = Column::kStep / kWidth;
  const int64_t k = p.w.inputs;
  const Column own[COLUMNS] = {Column(p, column + static_cast<int64_t>(INDEX), peaks)...};
  x += row * k;
  Vector sums[ROWS][COLUMNS] = {};
  int64_t i = 0;
  for (; i + Column::kStep <= k; i += Column::kStep)
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) {
      Vector w[kVectors];
      own[c].load(i, w);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; v++)
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) sums[r][c] = fused(load(x + r * k + i + v * kWidth), w[v], sums[r][c]);
    }
  if (i < k)
    for (int r = 0; r < ROWS; r++) {
      float rest[Column::kStep] = {};
      std::copy_n(x + r * k + i, k - i, rest);
      for (int c = 0; c < COLUMNS; c++) {
        Vector w[kVectors];
        own[c].load(i, w, k - i);
        sums[r][c] = fused(load(rest), w[0], sums[r][c]);
      }
    }
  for (int r = 0; r < ROWS; r++)
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
void product(const QuantisedProduct& p, const float* x) {
  const int64_t k = p.w.inputs, blocks = p.w.four ? k / p.w.block : 0;
  const int64_t tasks = piecesOf(p.w.outputs, kColumns), work = p.m * k * kColumns;
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
      for (; row + kRows <= p.m; row += kRows) columns<Column, kRows, 2>(p, x, row, begin, end, peaks.data());
      for (; row + 2 <= p.m; row += 2) columns<Column, 2, 4>(p, x, row, begin, end, peaks.data());
      for (; row < p.m; row++) columns<Column, 1, 8>(p, x, row, begin, end, peaks.data());
    }
  });
}

}  // namespace

bool lanesFit(const QuantisedRows& w) { return !w.four || isAligned(w); }

void lanesProduct(const QuantisedProduct& p) {
  if (!p.w.four) return product<Int8Column>(p, p.x);
  product<FourBitColumn>(p, inPairs(p.x, p.m * p.w.inputs).data());
}

}  // namespace attune

#else

namespace attune {
bool lanesFit(const QuantisedRows&) { return false; }
void lanesProduct(const QuantisedProduct&) {}
}  // namespace attune

#endif
