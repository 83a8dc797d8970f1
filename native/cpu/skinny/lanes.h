// Products of x[rows, k]·w[columns, k]ᵀ in registers, shared by f32 (product.cc; ARM has inputs.cc) and bf16 (bf16.cc). Weights and inputs
// are 32-bit items, one f32 or two bf16, and `Kind` says how they are multiplied:
//   Floats   an item of w is an f32, and so is an item of x
//   Wide     an item of w is two bf16, which become f32 by a shift; x is two f32
//   Pairs    an item is two bf16 in both, for CPUs with an instruction for their dot product
// Sums are added in the order of the items, whatever the number of rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cpu/intrinsics.h"
#include "cpu/skinny/lines.h"
#include "cpu/skinny/product.h"
#include "cpu/skinny/tile.h"
#include "cpu/vectors.h"

#if defined(__AVX512BF16__) && defined(__AVX512VL__)
#define ATTUNE_BF16_PAIRS 1
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define ATTUNE_BF16_PAIRS 1
#endif

namespace attune {

constexpr int64_t kGroup = kWidth == 16 ? 32 : kWidth == 8 ? 24 : 16;  // rows processed together
constexpr int64_t kBlock = 16;  // columns whose weights stay in the L1 cache while all groups of rows use them
constexpr int kMost = kGroup / kWidth;

// Enough independent sums to hide the latency of a multiply-add, and as many as the registers hold.
constexpr int columnsFor(int vectors) { return vectors == 1 || kWidth == 16 ? 8 : 4; }

// Transposes a 4×4 matrix.
inline void transpose(Quad (&q)[4]) {
  const Quad a = __builtin_shuffle(q[0], q[1], Lanes{0, 4, 2, 6}), b = __builtin_shuffle(q[0], q[1], Lanes{1, 5, 3, 7});
  const Quad c = __builtin_shuffle(q[2], q[3], Lanes{0, 4, 2, 6}), d = __builtin_shuffle(q[2], q[3], Lanes{1, 5, 3, 7});
  q[0] = __builtin_shuffle(a, c, Lanes{0, 1, 4, 5});
  q[1] = __builtin_shuffle(b, d, Lanes{0, 1, 4, 5});
  q[2] = __builtin_shuffle(a, c, Lanes{2, 3, 6, 7});
  q[3] = __builtin_shuffle(b, d, Lanes{2, 3, 6, 7});
}

// Four items of a column: ARM multiplies by one lane of a register, x86 by a number in memory.
#if defined(__aarch64__)
constexpr int kTileCache = 3;  // the cache into which the next tile's weights are prefetched: L1
using Four = Quad;
inline Four four(const float* from) { return *reinterpret_cast<const Quad*>(from); }
#else
constexpr int kTileCache = 2;  // L2: eight columns would push x out of the L1 cache
using Four = const float*;
inline Four four(const float* from) { return from; }
#endif

inline Quad quad(const float* from) { return *reinterpret_cast<const Quad*>(from); }
inline void put(float* to, const Quad& q) { *reinterpret_cast<Quad*>(to) = q; }

#if defined(__AVX2__)
using Few = __m256;  // eight columns, one item each
inline Few fewFused(Few a, float b, Few sum) {
#if defined(ATTUNE_FUSES)
  return _mm256_fmadd_ps(a, _mm256_set1_ps(b), sum);
#else
  return _mm256_add_ps(_mm256_mul_ps(a, _mm256_set1_ps(b)), sum);
#endif
}
// The first and the second of two bf16, as f32.
inline Few first(Few items) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(items), 16)); }
inline Few second(Few items) { return _mm256_and_ps(items, _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(0xFFFF0000)))); }
#else
using Few = Quad;  // four columns, one item each
inline Few fewFused(const Few& a, float b, const Few& sum) { return fused(a, b, sum); }
#if defined(__aarch64__)
// Not by a shift, since a Neoverse-N1 does only one per cycle: interleaves zero halves with the items.
inline Few first(const Few& items) { return (Few)vtrn1q_u16(vdupq_n_u16(0), (uint16x8_t)items); }
inline Few second(const Few& items) { return (Few)vtrn2q_u16(vdupq_n_u16(0), (uint16x8_t)items); }
#else
typedef uint32_t FewBits __attribute__((vector_size(4 * sizeof(uint32_t))));
inline Few first(const Few& items) { return (Few)((FewBits)items << 16); }
inline Few second(const Few& items) { return (Few)((FewBits)items & 0xFFFF0000u); }
#endif
#endif

// How many rows the kernels with columns as lanes take, and how many columns they read at once; for f32 and for bf16. AVX-512 also has
// lines.h, for the same number of rows and more.
#if defined(__AVX512F__)
constexpr int kFloatRows = kLineRows, kHalfRows = 2 * kLineRows, kFloatLines = 5, kHalfLines = 1;
constexpr int64_t kFloatColumns = 8, kHalfColumns = kLineColumns;
#elif defined(__AVX2__)
constexpr int kFloatRows = 4, kHalfRows = 4;
constexpr int64_t kFloatColumns = 8, kHalfColumns = 8;
#elif defined(__aarch64__)
constexpr int kFloatRows = 2, kHalfRows = 4;
constexpr int64_t kFloatColumns = kBlock, kHalfColumns = 8;
#else
constexpr int kFloatRows = 2, kHalfRows = 2;
constexpr int64_t kFloatColumns = kBlock, kHalfColumns = kBlock;
#endif

/** y += x·w of f32. */
struct Floats {
  static constexpr int kRows = kFloatRows;
#if defined(__AVX512F__)
  static constexpr int kLines = kFloatLines;
  static __m512 sixteen(const __m512i& w, const float* x, const __m512& sum) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_set1_ps(*x), sum);
  }
#endif
  static constexpr int64_t kColumns = kFloatColumns;
  static constexpr int64_t kInputs = 1;  // 32-bit words of x per item of w
  /** Rows as lanes: `x` of all rows times item j of a column's four. */
  static Vector rows(const Vector& x, const Four& w, int j, const Vector& sum) { return fused(x, w[j], sum); }
  /** Columns as lanes: four items of all columns times those of one row. */
  static Few columns(const Few (&w)[4], const float* x, Few sum) {
    const Four inputs = four(x);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum = fewFused(w[j], inputs[j], sum);
    return sum;
  }
};

/** bf16 weights, multiplied by f32 instructions. With rows as lanes they are first written out as f32, and are then Floats. */
struct Wide {
  static constexpr int kRows = kHalfRows;
  static constexpr int64_t kColumns = kHalfColumns, kInputs = 2;
#if defined(__AVX512F__)
  static constexpr int kLines = kHalfLines;
  static __m512 sixteen(const __m512i& w, const float* x, const __m512& sum) {
    const __m512i second = _mm512_and_si512(w, _mm512_set1_epi32(static_cast<int>(0xFFFF0000)));
    const __m512 one = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), _mm512_set1_ps(x[0]), sum);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(second), _mm512_set1_ps(x[1]), one);
  }
#endif
  static Few columns(const Few (&w)[4], const float* x, Few sum) {
    const Four inputs[2] = {four(x), four(x + 4)};
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
      sum = fewFused(first(w[j]), inputs[j / 2][j % 2 * 2], sum);
      sum = fewFused(second(w[j]), inputs[j / 2][j % 2 * 2 + 1], sum);
    }
    return sum;
  }
};

#ifdef ATTUNE_BF16_PAIRS
/** One instruction adds both products of two bf16 to an f32. It treats subnormal numbers as zero. */
struct Pairs {
  static constexpr int kRows = 4;
  static constexpr int64_t kColumns = 8, kInputs = 1;
#if defined(__AVX512F__)
  static constexpr int kLines = kRows + 1;  // no lines
#endif
#if defined(__aarch64__)
  static Quad rows(const Quad& x, const Quad& w, int j, const Quad& sum) {
    return (Quad)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)x, (bfloat16x8_t)vdupq_n_u32(((uint32x4_t)w)[j]));
  }
  static Quad columns(const Quad (&w)[4], const float* x, Quad sum) {
    const Quad inputs = four(x);
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum = rows(w[j], inputs, j, sum);
    return sum;
  }
#else
  static Vector rows(const Vector& x, const Four& w, int j, const Vector& sum) {
    return (Vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)_mm512_set1_epi32(item(w + j)));
  }
  static Few columns(const Few (&w)[4], const float* x, Few sum) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) sum = _mm256_dpbf16_ps(sum, (__m256bh)w[j], (__m256bh)_mm256_set1_epi32(item(x + j)));
    return sum;
  }

 private:
  static int item(const float* from) {
    int bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    return bits;
  }
#endif
};
#endif

// A group of rows as [k][lanes]; lanes is a whole number of vectors, and lanes beyond the rows are zero.
struct Group {
  const float* x;
  int64_t row, rows;
};

// Writes a group's outputs for some columns, whose sums are [COLUMNS][lanes].
template <int COLUMNS, int VECTORS>
void finish(const SkinnyProduct<float>& p, const Group& group, int64_t column, const float* values) {
  constexpr int64_t lanes = VECTORS * kWidth;
  float* y = p.y + group.row * p.n + column;
  if constexpr (COLUMNS >= 4) {
#pragma GCC unroll 4
    for (int at = 0; at < lanes; at += 4)
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; c += 4) {
        Quad part[4];
        for (int j = 0; j < 4; j++) part[j] = quad(values + (c + j) * lanes + at);
        transpose(part);
        if (p.bias != nullptr)
          for (int r = 0; r < 4; r++) part[r] += quad(p.bias + column + c);
        float* to = y + at * p.n + c;
        const int64_t rows = group.rows - at;
        if (p.add)
          for (int r = 0; r < 4 && r < rows; r++) part[r] += quad(to + r * p.n);
        if (rows >= 4)
          for (int r = 0; r < 4; r++) put(to + r * p.n, part[r]);
        else
          for (int r = 0; r < rows; r++) put(to + r * p.n, part[r]);
      }
  } else {
    for (int64_t r = 0; r < group.rows; r++) {
      const float value = p.bias == nullptr ? values[r] : values[r] + p.bias[column];
      y[r * p.n] = p.add ? y[r * p.n] + value : value;
    }
  }
}

template <typename Kind, int COLUMNS, int VECTORS>
void tile(const SkinnyProduct<float>& p, const Group& group, int64_t column, const float* next) {
  constexpr int64_t lanes = VECTORS * kWidth;
  const int64_t k = p.k;
  const float *x = group.x, *w = p.w + column * k;
  float values[COLUMNS][lanes];
  int64_t i = 0;
#ifdef ATTUNE_SKINNY_TILE
  if constexpr (std::is_same_v<Kind, Floats> && COLUMNS == 4 && lanes == 16) {
    i = k / 8 * 8;
    if (i > 0) skinnyTile(x, w, k, i, next, values[0]);
  }
#endif
  if (i == 0 || i < k) {
    Vector sums[COLUMNS][VECTORS] = {};
    if (i > 0)
      for (int c = 0; c < COLUMNS; c++)
        for (int v = 0; v < VECTORS; v++) sums[c][v] = load(values[c] + v * kWidth);
    for (; i + 4 <= k; i += 4) {
      Four weights[COLUMNS];
      for (int c = 0; c < COLUMNS; c++) weights[c] = four(w + c * k + i);
      if constexpr (COLUMNS >= 4)
        for (int line = 0; line < COLUMNS / 4; line++) __builtin_prefetch(next + i * COLUMNS + line * 16, 0, kTileCache);
#pragma GCC unroll 4
      for (int j = 0; j < 4; j++)
        for (int c = 0; c < COLUMNS; c++)
          for (int v = 0; v < VECTORS; v++) sums[c][v] = Kind::rows(load(x + (i + j) * lanes + v * kWidth), weights[c], j, sums[c][v]);
    }
    for (; i < k; i++)
      for (int c = 0; c < COLUMNS; c++)
        for (int v = 0; v < VECTORS; v++) sums[c][v] = fused(load(x + i * lanes + v * kWidth), w[c * k + i], sums[c][v]);
    for (int c = 0; c < COLUMNS; c++)
      for (int v = 0; v < VECTORS; v++) store(values[c] + v * kWidth, sums[c][v]);
  }
  finish<COLUMNS, VECTORS>(p, group, column, values[0]);
}

// For a few rows, reading the weights is the limit and most lanes of rows would be empty, so columns are the lanes. Each sum is added in
// the same order as elsewhere, so the result is the same to the bit.
#if defined(__AVX2__)
// A core reads eight columns at once: on Cascade Lake this is a fifth faster than sixteen columns, and than prefetching whole columns.
// Lines are prefetched eight ahead. At the end the following columns' lines are prefetched, since the hardware prefetcher would only start
// again there.
constexpr int64_t kAhead = 8 * 16;

// The weights of eight columns at four inputs: a vector of all columns for each input.
inline void fourInputs(const float* w, int64_t k, Few (&at)[4]) {
  Few rows[4];  // columns g and g + 4
#pragma GCC unroll 4
  for (int g = 0; g < 4; g++)
    rows[g] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(w + g * k)), _mm_loadu_ps(w + (g + 4) * k), 1);
  const Few a = _mm256_unpacklo_ps(rows[0], rows[1]), b = _mm256_unpackhi_ps(rows[0], rows[1]);
  const Few c = _mm256_unpacklo_ps(rows[2], rows[3]), d = _mm256_unpackhi_ps(rows[2], rows[3]);
  at[0] = _mm256_shuffle_ps(a, c, 0x44);
  at[1] = _mm256_shuffle_ps(a, c, 0xEE);
  at[2] = _mm256_shuffle_ps(b, d, 0x44);
  at[3] = _mm256_shuffle_ps(b, d, 0xEE);
}

template <typename Kind, int ROWS>
void fewRows(const SkinnyProduct<float>& p, int64_t row, int64_t column) {
  constexpr int64_t line = 16;
  const int64_t k = p.k;
  const float *x = p.x + row * k * Kind::kInputs, *w = p.w + column * k;
  Few sums[ROWS];
  for (int r = 0; r < ROWS; r++) sums[r] = _mm256_setzero_ps();
  const auto add = [&](int64_t i) __attribute__((always_inline)) {
    Few at[4];
    fourInputs(w + i, k, at);
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) sums[r] = Kind::columns(at, x + (r * k + i) * Kind::kInputs, sums[r]);
  };
  int64_t i = 0;
  for (; i + line <= k; i += line) {
    const float* ahead = w + i + kAhead + (i + kAhead < k ? 0 : (Kind::kColumns - 1) * k);
#pragma GCC unroll 8
    for (int64_t c = 0; c < Kind::kColumns; c++) __builtin_prefetch(ahead + c * k, 0, 3);
#pragma GCC unroll 4
    for (int64_t j = 0; j < line; j += 4) add(i + j);
  }
  for (; i + 4 <= k; i += 4) add(i);
  for (int r = 0; r < ROWS; r++) {
    float out[Kind::kColumns];
    _mm256_storeu_ps(out, sums[r]);
    for (int64_t c = 0; c < Kind::kColumns; c++) {
      for (int64_t rest = i; rest < k; rest++) out[c] = fused(w[c * k + rest], x[r * k + rest], out[c]);
      const float value = p.bias == nullptr ? out[c] : out[c] + p.bias[column + c];
      float& to = p.y[(row + r) * p.n + column + c];
      to = p.add ? to + value : value;
    }
  }
}
#else
// The next columns' weights are prefetched into the L2 cache, which takes more outstanding requests than the L1 cache. Eight columns of
// bf16 hide the latency of a sum's multiply-adds.

template <typename Kind, int ROWS>
void fewRows(const SkinnyProduct<float>& p, int64_t row, int64_t column) {
  constexpr int quads = static_cast<int>(Kind::kColumns / 4);
  const float* next = p.w + (column + Kind::kColumns) * p.k;
  const int64_t k = p.k;
  const float *x = p.x + row * k * Kind::kInputs, *w = p.w + column * k;
  Quad sums[ROWS][quads] = {};
  int64_t i = 0;
  for (; i + 4 <= k; i += 4) {
    for (int line = 0; line < quads; line++) __builtin_prefetch(next + i * Kind::kColumns + line * 16, 0, 2);
    for (int q = 0; q < quads; q++) {
      Quad part[4];
      for (int j = 0; j < 4; j++) part[j] = quad(w + (q * 4 + j) * k + i);
      transpose(part);
      for (int r = 0; r < ROWS; r++) sums[r][q] = Kind::columns(part, x + (r * k + i) * Kind::kInputs, sums[r][q]);
    }
  }
  for (; i < k; i++)
    for (int q = 0; q < quads; q++) {
      const float* at = w + q * 4 * k + i;
      for (int r = 0; r < ROWS; r++) sums[r][q] = fused(Quad{at[0], at[k], at[2 * k], at[3 * k]}, x[r * k + i], sums[r][q]);
    }
  for (int r = 0; r < ROWS; r++)
    for (int q = 0; q < quads; q++) {
      float* to = p.y + (row + r) * p.n + column + q * 4;
      const Quad out = p.bias == nullptr ? sums[r][q] : sums[r][q] + quad(p.bias + column + q * 4);
      put(to, p.add ? quad(to) + out : out);
    }
}
#endif

// Kind::kColumns columns for at most four rows.
template <typename Kind, int ROWS = std::min(Kind::kRows, 4)>
void few(int64_t rows, const SkinnyProduct<float>& p, int64_t row, int64_t column) {
  for (; rows >= ROWS; rows -= ROWS, row += ROWS) fewRows<Kind, ROWS>(p, row, column);
  if constexpr (ROWS > 1) few<Kind, ROWS - 1>(rows, p, row, column);
}

// kBlock columns for at most Kind::kRows rows.
template <typename Kind>
void fewOfBlock(int64_t rows, const SkinnyProduct<float>& p, int64_t row, int64_t column) {
#if defined(__AVX512F__)
  static_assert(kLineColumns == kBlock);
  if constexpr (Kind::kLines <= Kind::kRows)
    if (rows >= Kind::kLines) return byLines<Kind>(rows, p, row, column);
  if constexpr (Kind::kLines > 1)
#endif
    for (int64_t at = column; at < column + kBlock; at += Kind::kColumns) few<Kind>(rows, p, row, at);
}

// Columns [begin, end) for one group of rows. Prefetches the weights `ahead` columns later.
template <typename Kind, int VECTORS>
void columns(const SkinnyProduct<float>& p, const Group& group, int64_t begin, int64_t end, int64_t ahead) {
  constexpr int64_t wide = columnsFor(VECTORS);
  int64_t column = begin;
  for (; column + wide <= end; column += wide) tile<Kind, wide, VECTORS>(p, group, column, p.w + (column + ahead) * p.k);
  for (; column < end; column++) tile<Kind, 1, VECTORS>(p, group, column, nullptr);
}

template <typename Kind, int VECTORS = kMost>
void columns(int64_t vectors, const SkinnyProduct<float>& p, const Group& group, int64_t begin, int64_t end, int64_t ahead) {
  if (vectors == VECTORS) return columns<Kind, VECTORS>(p, group, begin, end, ahead);
  if constexpr (VECTORS > 1) columns<Kind, VECTORS - 1>(vectors, p, group, begin, end, ahead);
}

inline int64_t vectorsOf(int64_t rows) { return (std::min(rows, kGroup) + kWidth - 1) / kWidth; }

// Copies rows of x into the lanes of a group.
inline void pack(const float* x, int64_t rows, int64_t k, float* to) {
  const int64_t lanes = vectorsOf(rows) * kWidth;
  for (int64_t lane = 0; lane < lanes; lane += 4) {
    int64_t i = 0;
    if (lane + 4 <= rows)
      for (; i + 4 <= k; i += 4) {
        Quad part[4] = {quad(x + lane * k + i), quad(x + (lane + 1) * k + i), quad(x + (lane + 2) * k + i), quad(x + (lane + 3) * k + i)};
        transpose(part);
        for (int j = 0; j < 4; j++) put(to + (i + j) * lanes + lane, part[j]);
      }
    for (; i < k; i++)
      for (int64_t r = lane; r < lane + 4; r++) to[i * lanes + r] = r < rows ? x[r * k + i] : 0.0f;
  }
}

}  // namespace attune
