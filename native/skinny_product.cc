// The weight is read once, in order, and asked for ahead of its use; a tile of 4 columns' products stays in registers. On a
// Neoverse-N1 that is 36 of the 40 GFLOP/s a core has, from 16 rows on.
#include "skinny_product.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "vectors.h"

namespace attune {
namespace {

#if defined(__AVX2__) && !defined(__AVX512F__)
constexpr int kRows = 2;  // 16 registers only
#else
constexpr int kRows = 4;
#endif
constexpr int kColumns = 4;
constexpr int64_t kBlock = 16;  // columns that stay in the first cache while all rows pass

// The sums of a's and of b's neighbours: twice over, the totals of four.
inline Quad pairs(const Quad& a, const Quad& b) {
  return __builtin_shuffle(a, b, Lanes{0, 2, 4, 6}) + __builtin_shuffle(a, b, Lanes{1, 3, 5, 7});
}

// ROWS × 4 products from (row, column) on. AHEAD columns of what comes next, from `next` on, are brought meanwhile.
template <int ROWS, int AHEAD>
void tile(const SkinnyProduct& p, int64_t row, int64_t column, const float* next) {
  const int64_t k = p.k, whole = k / kWidth * kWidth;
  const float *x = p.x + row * k, *w = p.w + column * k;
  Vector sums[ROWS][kColumns] = {};
  for (int64_t i = 0; i < whole; i += kWidth) {
    Vector columns[kColumns];
    for (int c = 0; c < kColumns; c++) columns[c] = load(w + c * k + i);
    for (int c = 0; c < AHEAD; c++) __builtin_prefetch(next + c * k + i);
    for (int r = 0; r < ROWS; r++) {
      const Vector inputs = load(x + r * k + i);
      for (int c = 0; c < kColumns; c++) sums[r][c] += inputs * columns[c];
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
    Quad out = pairs(pairs(fold(sums[r][0]), fold(sums[r][1])), pairs(fold(sums[r][2]), fold(sums[r][3])));
    for (int64_t i = whole; i < k; i++) out += x[r * k + i] * Quad{w[i], w[k + i], w[2 * k + i], w[3 * k + i]};
    if (p.bias != nullptr) out += *reinterpret_cast<const Quad*>(p.bias + column);
    Quad* y = reinterpret_cast<Quad*>(p.y + (row + r) * p.n + column);
    *y = p.add ? *y + out : out;
  }
}

// The rows that no group of kRows holds, one by one.
void lastRows(const SkinnyProduct& p, int64_t first, int64_t column) {
  for (int64_t row = first; row < p.m; row++) {
    if (row == 0)
      tile<1, kColumns>(p, row, column, p.w + (column + kBlock) * p.k);
    else
      tile<1, 0>(p, row, column, nullptr);
  }
}

// The last columns, fewer than a tile has.
void lastColumns(const SkinnyProduct& p, int64_t first) {
  for (int64_t column = first; column < p.n; column++)
    for (int64_t row = 0; row < p.m; row++) {
      float sum = 0;
      const float *x = p.x + row * p.k, *w = p.w + column * p.k;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < p.k; i++) sum += x[i] * w[i];
      float& y = p.y[row * p.n + column];
      y = sum + (p.bias == nullptr ? 0.0f : p.bias[column]) + (p.add ? y : 0.0f);
    }
}

// With many rows each of the first groups brings one column of the next block's tile; with few the first brings all four.
void block(const SkinnyProduct& p, int64_t begin, int64_t end) {
  const int64_t groups = p.m / kRows, k = p.k;
  const bool spread = groups >= kColumns;
  for (int64_t group = 0; group < groups; group++)
    for (int64_t column = begin; column < end; column += kColumns) {
      const float* next = p.w + (column + kBlock) * k;
      if (spread && group < kColumns)
        tile<kRows, 1>(p, group * kRows, column, next + group * k);
      else if (!spread && group == 0)
        tile<kRows, kColumns>(p, 0, column, next);
      else
        tile<kRows, 0>(p, group * kRows, column, nullptr);
    }
  for (int64_t column = begin; column < end; column += kColumns) lastRows(p, groups * kRows, column);
}

}  // namespace

void skinnyProduct(const SkinnyProduct& p) {
  const int64_t whole = p.n / kColumns * kColumns, blocks = (whole + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, p.m * p.k * kBlock)), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) block(p, b * kBlock, std::min(whole, (b + 1) * kBlock));
  });
  lastColumns(p, whole);
}

}  // namespace attune
