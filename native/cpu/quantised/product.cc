#include "cpu/quantised/product.h"

#include <algorithm>
#include <vector>

#include "cpu/deal.h"
#include "cpu/intrinsics.h"
#include "cpu/skinny/product.h"

namespace attune {
namespace {

constexpr int64_t kPanel = 16;  // columns that fit into the L1 cache in skinnyProduct

// The fallback for matrices and CPUs without a kernel: every thread dequantises the rows it needs.
void panelsProduct(const QuantisedProduct& p) {
  const int64_t k = p.w.inputs, n = p.w.outputs, panels = piecesOf(n, kPanel);
  deal(panels, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> panel(kPanel * k), out(p.m * kPanel);
    for (int64_t i = begin; i < end; i++) {
      const int64_t first = i * kPanel, count = std::min(kPanel, n - first);
      dequantiseRows(p.w, first, count, panel.data());
      skinnyProduct({p.x, panel.data(), nullptr, out.data(), p.m, k, count});
      for (int64_t row = 0; row < p.m; row++)
        for (int64_t column = 0; column < count; column++) p.put(row, first + column, out[row * count + column]);
    }
  });
}

}  // namespace

QuantisedColumn columnOf(const QuantisedRows& rows, int64_t column) {
  for (const QuantisedPart& part : rows.parts) {
    if (column < part.outputs) return {&part, column};
    column -= part.outputs;
  }
  return {nullptr, 0};
}

void blockScales(const QuantisedPart& part, int64_t first, int64_t count, float* out) {
  if (part.nested == nullptr) {
    std::copy_n(static_cast<const float*>(part.scales) + first, count, out);
    return;
  }
  const uint8_t* codes = static_cast<const uint8_t*>(part.scales) + first;
  const float* map = dynamicMap();
  for (int64_t i = 0; i < count;) {
    const int64_t run = (first + i) / kNestedRun, end = std::min(count, (run + 1) * kNestedRun - first);
    const float largest = part.nested[run], offset = part.offset;
#if defined(__AVX512F__)
    for (; i + 16 <= end; i += 16) {
      const __m512i places = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i)));
      const __m512 levels = _mm512_i32gather_ps(places, map, sizeof(float));
      _mm512_storeu_ps(out + i, _mm512_fmadd_ps(levels, _mm512_set1_ps(largest), _mm512_set1_ps(offset)));
    }
#endif
    for (; i < end; i++) out[i] = fused(map[codes[i]], largest, offset);
  }
}

void quantisedProduct(const QuantisedProduct& p) {
  if (p.m == 0 || p.w.outputs == 0) return;
  if (digitsFit(p.w)) return digitsProduct(p);
  if (lanesFit(p.w)) return lanesProduct(p);
  panelsProduct(p);
}

}  // namespace attune
