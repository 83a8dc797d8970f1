// Products of f32 with many rows, for x86 with AVX2 and no AVX-512: BLAS there adds a row's products in an order that depends on the number
// of rows. As for few rows, rows are the lanes of the vectors and sums are added in the same order. Here inputs come in chunks, so that a
// group's x stays in the L1 cache while it is multiplied with some columns; the sums are in memory between two chunks.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

#include "cpu/deal.h"
#include "cpu/skinny/lanes.h"
#include "cpu/skinny/many_tile.h"

namespace attune {

constexpr int64_t kManyColumns = 32;  // columns whose weights stay in the L2 cache while a pass's groups use them
constexpr int64_t kManyChunk = 256;  // inputs: 24 KB of a group's x
constexpr int64_t kManyGroups = 10;  // groups of a pass, whose x stays in the L2 or L3 cache

// Adds the products of `count` inputs to sums[COLUMNS][lanes]. x is [count][lanes], the columns of w are k apart.
template <int COLUMNS, int VECTORS>
void addChunk(const float* x, const float* w, int64_t k, int64_t count, float* sums) {
  constexpr int64_t lanes = VECTORS * kWidth;
  int64_t i = 0;
#ifdef ATTUNE_MANY_TILE
  if constexpr (COLUMNS == 4 && lanes == 24) {
    i = count / 4 * 4;
    if (i > 0) manyTile(x, w, k, i, sums);
    if (i == count) return;
  }
#endif
  Vector held[COLUMNS][VECTORS];
  for (int c = 0; c < COLUMNS; c++)
    for (int v = 0; v < VECTORS; v++) held[c][v] = load(sums + c * lanes + v * kWidth);
  for (; i < count; i++) {
    Vector rows[VECTORS];
    for (int v = 0; v < VECTORS; v++) rows[v] = load(x + i * lanes + v * kWidth);
    for (int c = 0; c < COLUMNS; c++) {
      const Vector weight = all(w[c * k + i]);
      for (int v = 0; v < VECTORS; v++) held[c][v] = fused(rows[v], weight, held[c][v]);
    }
  }
  for (int c = 0; c < COLUMNS; c++)
    for (int v = 0; v < VECTORS; v++) store(sums + c * lanes + v * kWidth, held[c][v]);
}

// Columns [begin, end), at most kManyColumns, for one group of rows.
template <int VECTORS>
void manyColumns(const SkinnyProduct<float>& p, const Group& group, int64_t begin, int64_t end) {
  constexpr int64_t lanes = VECTORS * kWidth;
  float sums[kManyColumns * lanes];
  std::fill_n(sums, (end - begin) * lanes, 0.0f);
  const int64_t whole = begin + (end - begin) / 4 * 4;
  for (int64_t i = 0; i < p.k; i += kManyChunk) {
    const int64_t count = std::min(kManyChunk, p.k - i);
    const float *x = group.x + i * lanes, *w = p.w + i;
    for (int64_t c = begin; c < whole; c += 4) addChunk<4, VECTORS>(x, w + c * p.k, p.k, count, sums + (c - begin) * lanes);
    for (int64_t c = whole; c < end; c++) addChunk<1, VECTORS>(x, w + c * p.k, p.k, count, sums + (c - begin) * lanes);
  }
  for (int64_t c = begin; c < whole; c += 4) finish<4, VECTORS>(p, group, c, sums + (c - begin) * lanes);
  for (int64_t c = whole; c < end; c++) finish<1, VECTORS>(p, group, c, sums + (c - begin) * lanes);
}

template <int VECTORS = kMost>
void manyColumns(int64_t vectors, const SkinnyProduct<float>& p, const Group& group, int64_t begin, int64_t end) {
  if (vectors == VECTORS) return manyColumns<VECTORS>(p, group, begin, end);
  if constexpr (VECTORS > 1) manyColumns<VECTORS - 1>(vectors, p, group, begin, end);
}

inline void manyRows(const SkinnyProduct<float>& p) {
  constexpr int64_t pass = kManyGroups * kGroup;
  const std::unique_ptr<float[]> packed(new float[std::min(pass, (p.m + kGroup - 1) / kGroup * kGroup) * p.k]);
  const int64_t blocks = (p.n + kManyColumns - 1) / kManyColumns;
  for (int64_t first = 0; first < p.m; first += pass) {
    const int64_t groups = (std::min(pass, p.m - first) + kGroup - 1) / kGroup;
    const auto groupOf = [&](int64_t g) {
      const int64_t row = first + g * kGroup;
      return Group{packed.get() + g * kGroup * p.k, row, std::min(kGroup, p.m - row)};
    };
    deal(groups, leastTasks(kGroup * p.k), [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; g++) pack(p.x + (first + g * kGroup) * p.k, groupOf(g).rows, p.k, packed.get() + g * kGroup * p.k);
    });
    deal(blocks * groups, leastTasks(kGroup * p.k * kManyColumns), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; task++) {
        const Group group = groupOf(task % groups);
        const int64_t column = task / groups * kManyColumns;
        manyColumns(vectorsOf(group.rows), p, group, column, std::min(p.n, column + kManyColumns));
      }
    });
  }
}

}  // namespace attune
