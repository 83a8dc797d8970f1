// Products of small matrices that stay in registers: what attention over short sequences is made of. A BLAS call per block
// would cost more than the block itself.
#pragma once
#include <cstdint>

namespace attune {

// One vector register, and how many rows × vectors of a result fit the registers beside what they are made from.
#if defined(__AVX512F__)
constexpr int kLanes = 16, kPanelRows = 8, kPanelVectors = 2;
#elif defined(__AVX__)
constexpr int kLanes = 8, kPanelRows = 6, kPanelVectors = 2;
#else
constexpr int kLanes = 4, kPanelRows = 4, kPanelVectors = 4;
#endif
constexpr int64_t kPanelWidth = kLanes * kPanelVectors;

using Vector = float __attribute__((vector_size(sizeof(float) * kLanes)));

// The same anywhere in memory. (A store by memcpy goes through the general registers: twice the time of a short product.)
using LooseVector = float __attribute__((vector_size(sizeof(float) * kLanes), aligned(sizeof(float)), may_alias));

inline Vector loadVector(const float* from) { return *reinterpret_cast<const LooseVector*>(from); }

inline void storeVector(float* to, Vector v) { *reinterpret_cast<LooseVector*>(to) = v; }

inline constexpr int64_t roundUp(int64_t count, int64_t to) { return (count + to - 1) / to * to; }

// c[Rows × Vectors·lanes] = (add ? c : 0) + a·b. Row r of a begins at a + r·aStride; where it is transposed, column r does.
template <bool Transposed, int Rows, int Vectors>
inline void registerTile(const float* a, int64_t aStride, const float* b, int64_t bStride, float* c, int64_t cStride, int64_t depth, bool add) {
  Vector sum[Rows][Vectors] = {};
  for (int64_t k = 0; k < depth; k++) {
    Vector right[Vectors];
    for (int v = 0; v < Vectors; v++) right[v] = loadVector(b + k * bStride + v * kLanes);
    for (int r = 0; r < Rows; r++) {
      const float left = Transposed ? a[k * aStride + r] : a[r * aStride + k];
      for (int v = 0; v < Vectors; v++) sum[r][v] += left * right[v];
    }
  }
  for (int r = 0; r < Rows; r++) {
    for (int v = 0; v < Vectors; v++) {
      float* at = c + r * cStride + v * kLanes;
      storeVector(at, add ? loadVector(at) + sum[r][v] : sum[r][v]);
    }
  }
}

template <bool Transposed, int Rows, int Vectors>
inline void panelColumns(const float* a, int64_t aStride, const float* b, int64_t bStride, float* c, int64_t cStride, int64_t width, int64_t depth,
                         bool add) {
  int64_t at = 0;
  for (; at + Vectors * kLanes <= width; at += Vectors * kLanes)
    registerTile<Transposed, Rows, Vectors>(a, aStride, b + at, bStride, c + at, cStride, depth, add);
  if constexpr (Vectors > 1) {
    if (at < width) panelColumns<Transposed, Rows, Vectors - 1>(a, aStride, b + at, bStride, c + at, cStride, width - at, depth, add);
  }
}

// c[rows × width] = (add ? c : 0) + a[rows × depth]·b[depth × width], for at most kPanelRows rows and whole vectors of columns.
template <bool Transposed, int Rows = kPanelRows>
inline void panelProduct(int64_t rows, const float* a, int64_t aStride, const float* b, int64_t bStride, float* c, int64_t cStride, int64_t width,
                         int64_t depth, bool add) {
  if (rows == Rows) return panelColumns<Transposed, Rows, kPanelVectors>(a, aStride, b, bStride, c, cStride, width, depth, add);
  if constexpr (Rows > 1) panelProduct<Transposed, Rows - 1>(rows, a, aStride, b, bStride, c, cStride, width, depth, add);
}

}  // namespace attune
