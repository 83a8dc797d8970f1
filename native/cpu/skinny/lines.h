// Sixteen columns at once by AVX-512, for few rows (lanes.h). Columns are the lanes, and a whole 64-byte line of each is read at a time.
// Lines of columns that are 4 KB apart share a set of the L1 cache, which holds eight of them, so a line is used up when it is first read.
// The multiply-adds of a sum depend on one another: with bf16 and eight columns, one row takes longer than memory needs for the weights;
// with sixteen it does not.
#pragma once
#include "cpu/intrinsics.h"
#include "cpu/skinny/product.h"

#if defined(__AVX512F__)
namespace attune {

constexpr int64_t kLineColumns = 16, kLineItems = 16;  // items are 32 bits
constexpr int64_t kLineRows = 8;  // more sums and sixteen lines do not fit in the registers

/**
 * w[16 columns][16 items], columns `k` items apart, transposed: a vector of all columns for each item. Items from `count` on are zero and
 * are not read.
 */
inline __attribute__((always_inline)) void turnedLines(const float* w, int64_t k, int64_t count, __m512i (&at)[kLineItems]) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int c = 0; c < 16; c++) b[c] = _mm512_maskz_loadu_epi32(mask, w + c * k);
#pragma GCC unroll 8
  for (int c = 0; c < 16; c += 2) {
    a[c] = _mm512_unpacklo_epi32(b[c], b[c + 1]);
    a[c + 1] = _mm512_unpackhi_epi32(b[c], b[c + 1]);
  }
  // b[4q + j]: items j, j + 4, j + 8 and j + 12 of the columns 4q to 4q + 3
#pragma GCC unroll 4
  for (int q = 0; q < 16; q += 4) {
    b[q] = _mm512_unpacklo_epi64(a[q], a[q + 2]);
    b[q + 1] = _mm512_unpackhi_epi64(a[q], a[q + 2]);
    b[q + 2] = _mm512_unpacklo_epi64(a[q + 1], a[q + 3]);
    b[q + 3] = _mm512_unpackhi_epi64(a[q + 1], a[q + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; j++) {
    const __m512i a0 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x44), a1 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x44);
    const __m512i b0 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xEE), b1 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xEE);
    at[j] = _mm512_shuffle_i32x4(a0, a1, 0x88);
    at[4 + j] = _mm512_shuffle_i32x4(a0, a1, 0xDD);
    at[8 + j] = _mm512_shuffle_i32x4(b0, b1, 0x88);
    at[12 + j] = _mm512_shuffle_i32x4(b0, b1, 0xDD);
  }
}

/** Sixteen columns for ROWS rows. `Kind` is one of those in lanes.h; sums are added in its order. */
template <typename Kind, int ROWS>
void rowsByLines(const SkinnyProduct<float>& p, int64_t row, int64_t column) {
  constexpr int64_t ahead = 4 * kLineItems;
  const int64_t k = p.k;
  const float *x = p.x + row * k * Kind::kInputs, *w = p.w + column * k;
  __m512 sums[ROWS];
  for (int r = 0; r < ROWS; r++) sums[r] = _mm512_setzero_ps();
  const auto add = [&](const __m512i& items, int64_t i) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) sums[r] = Kind::sixteen(items, x + (r * k + i) * Kind::kInputs, sums[r]);
  };
  int64_t i = 0;
  for (; i + kLineItems <= k; i += kLineItems) {
    // after the last line of these columns comes the first of the next sixteen
    const float* next = w + i + ahead + (i + ahead < k ? 0 : (kLineColumns - 1) * k);
#pragma GCC unroll 16
    for (int64_t c = 0; c < kLineColumns; c++) __builtin_prefetch(next + c * k, 0, 3);
    __m512i at[kLineItems];
    turnedLines(w + i, k, kLineItems, at);
#pragma GCC unroll 16
    for (int j = 0; j < kLineItems; j++) add(at[j], i + j);
  }
  if (i < k) {
    __m512i at[kLineItems];
    turnedLines(w + i, k, k - i, at);
    for (int64_t j = 0; i + j < k; j++) add(at[j], i + j);
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++) {
    const __m512 out = p.bias == nullptr ? sums[r] : _mm512_add_ps(sums[r], _mm512_loadu_ps(p.bias + column));
    float* to = p.y + (row + r) * p.n + column;
    _mm512_storeu_ps(to, p.add ? _mm512_add_ps(_mm512_loadu_ps(to), out) : out);
  }
}

template <typename Kind, int ROWS = kLineRows>
void byLines(int64_t rows, const SkinnyProduct<float>& p, int64_t row, int64_t column) {
  if (rows >= ROWS) {
    rowsByLines<Kind, ROWS>(p, row, column);
    rows -= ROWS, row += ROWS;
    if (rows > 0) byLines<Kind, ROWS>(rows, p, row, column);
    return;
  }
  if constexpr (ROWS > 1) byLines<Kind, ROWS - 1>(rows, p, row, column);
}

}  // namespace attune
#endif
