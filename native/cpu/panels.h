// Products of small matrices in registers, for attention over short sequences. A BLAS call per block would cost more than the
// product itself.
#pragma once
#include <cstdint>

#include "cpu/vectors.h"

namespace attune {

// The tile of a result (rows × vectors) that fits into the registers together with its operands.
#if defined(__AVX512F__)
constexpr int kPanelRows = 8, kPanelVectors = 2;
#elif defined(__AVX2__)
constexpr int kPanelRows = 6, kPanelVectors = 2;
#else
constexpr int kPanelRows = 4, kPanelVectors = 4;
#endif
constexpr int64_t kPanelWidth = kWidth * kPanelVectors;

inline constexpr int64_t roundUp(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// c[Rows × Vectors·width] = (add ? c : 0) + a·b. Row r of a (column r where Transposed) begins at a + r·aStride.
template <bool Transposed, int Rows, int Vectors>
inline void registerTile(const float* a, int64_t aStride, const float* b, int64_t bStride, float* c, int64_t cStride, int64_t depth,
                         bool add) {
  Vector sum[Rows][Vectors] = {};
  for (int64_t k = 0; k < depth; k++) {
    Vector right[Vectors];
    for (int v = 0; v < Vectors; v++) right[v] = load(b + k * bStride + v * kWidth);
    for (int r = 0; r < Rows; r++) {
      const float left = Transposed ? a[k * aStride + r] : a[r * aStride + k];
      for (int v = 0; v < Vectors; v++) sum[r][v] = fused(right[v], left, sum[r][v]);
    }
  }
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < Vectors; v++) {
      float* at = c + r * cStride + v * kWidth;
      store(at, add ? load(at) + sum[r][v] : sum[r][v]);
    }
  }
}

template <bool Transposed, int Rows, int Vectors>
inline void panelColumns(const float* a, int64_t aStride, const float* b, int64_t bStride, float* c, int64_t cStride, int64_t width,
                         int64_t depth, bool add) {
  int64_t at = 0;
  for (; at + Vectors * kWidth <= width; at += Vectors * kWidth)
    registerTile<Transposed, Rows, Vectors>(a, aStride, b + at, bStride, c + at, cStride, depth, add);
  if constexpr (Vectors > 1) {
    if (at < width) panelColumns<Transposed, Rows, Vectors - 1>(a, aStride, b + at, bStride, c + at, cStride, width - at, depth, add);
  }
}

// c[rows × width] = (add ? c : 0) + a[rows × depth]·b[depth × width], for at most kPanelRows rows and whole vectors of columns.
template <bool Transposed, int Rows = kPanelRows>
inline void panelProduct(int64_t rows, const float* a, int64_t aStride, const float* b, int64_t bStride, float* c, int64_t cStride,
                         int64_t width, int64_t depth, bool add) {
  if (rows == Rows) return panelColumns<Transposed, Rows, kPanelVectors>(a, aStride, b, bStride, c, cStride, width, depth, add);
  if constexpr (Rows > 1) panelProduct<Transposed, Rows - 1>(rows, a, aStride, b, bStride, c, cStride, width, depth, add);
}

}  // namespace attune
