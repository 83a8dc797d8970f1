// Explicit f32 vectors, for loops that the compiler does not vectorise well by itself: maxima, exponentials, products in registers.
// They use GCC's vector extensions, so that one source serves ARM and x86.
#pragma once
#include <cstdint>

#include "cpu/fused.h"
#include "cpu/intrinsics.h"

namespace attune {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif

typedef float Vector __attribute__((vector_size(kWidth * sizeof(float)), aligned(4), may_alias));
typedef uint32_t Bits __attribute__((vector_size(kWidth * sizeof(uint32_t)), aligned(4), may_alias));
typedef float Quad __attribute__((vector_size(4 * sizeof(float)), aligned(4), may_alias));
typedef int32_t Lanes __attribute__((vector_size(4 * sizeof(int32_t))));

inline Vector all(float value) { return value - Vector{}; }  // not a sum: −0 + 0 is 0
inline Vector load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void store(float* to, const Vector& v) { *reinterpret_cast<Vector*>(to) = v; }

// a·b + sum, lane by lane (fused.h).
inline Vector fused(const Vector& a, const Vector& b, const Vector& sum) {
#if !defined(ATTUNE_FUSES)
  return a * b + sum;
#elif defined(__AVX512F__)
  return (Vector)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__AVX2__)
  return (Vector)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#elif defined(__x86_64__)
  return (Vector)_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)sum);
#else
  return (Vector)vfmaq_f32((float32x4_t)sum, (float32x4_t)a, (float32x4_t)b);
#endif
}
inline Vector fused(const Vector& a, float b, const Vector& sum) { return fused(a, all(b), sum); }

#if defined(__AVX2__)  // if a Quad is not a Vector
inline Quad fused(const Quad& a, float b, const Quad& sum) {
#if defined(ATTUNE_FUSES)
  return (Quad)_mm_fmadd_ps((__m128)a, _mm_set1_ps(b), (__m128)sum);
#else
  return a * b + sum;
#endif
}
#endif

inline Quad fold(const Vector& v) {
  Quad sum = {v[0], v[1], v[2], v[3]};
  for (int i = 4; i < kWidth; i += 4) sum += Quad{v[i], v[i + 1], v[i + 2], v[i + 3]};
  return sum;
}

// The sums of neighbouring lanes of a, then of b.
inline Quad pairs(const Quad& a, const Quad& b) {
#if defined(__aarch64__)
  return (Quad)vpaddq_f32((float32x4_t)a, (float32x4_t)b);
#else
  return __builtin_shuffle(a, b, Lanes{0, 2, 4, 6}) + __builtin_shuffle(a, b, Lanes{1, 3, 5, 7});
#endif
}

/** The `total` of each of the four vectors. */
inline Quad totals(const Vector& a, const Vector& b, const Vector& c, const Vector& d) {
  return pairs(pairs(fold(a), fold(b)), pairs(fold(c), fold(d)));
}

inline float total(const Vector& v) {
  const Quad sum = fold(v);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/** max(a, b), lane by lane; b where a is NaN. */
inline Vector larger(const Vector& a, const Vector& b) { return a > b ? a : b; }

/** The largest of `size` numbers, ignoring NaN; −∞ if there is none. */
inline float largest(const float* values, int64_t size) {
  float peak = -__builtin_inff();
  int64_t i = 0;
  if (size >= 4 * kWidth) {
    Vector peaks[4] = {all(peak), all(peak), all(peak), all(peak)};
    for (; i + 4 * kWidth <= size; i += 4 * kWidth)
      for (int j = 0; j < 4; j++) peaks[j] = larger(load(values + i + j * kWidth), peaks[j]);
    const Vector most = larger(larger(peaks[0], peaks[1]), larger(peaks[2], peaks[3]));
    for (int j = 0; j < kWidth; j++) peak = most[j] > peak ? most[j] : peak;
  }
  for (; i < size; i++) peak = values[i] > peak ? values[i] : peak;
  return peak;
}

/**
 * e^x to f32 rounding for x ≤ 0 (or slightly above, by rounding); 0 below −87, NaN for NaN. It is 2^k·e^r with an integer k and |r| ≤ ½·ln
 * 2. The polynomial 1 + r + r²·(…) is off by at most 3e-9, and its two halves are independent of each other.
 */
inline Vector exponential(const Vector& x) {
  // adding 1.5·2²³ rounds to an integer and leaves that in the low bits
  const Vector shifted = fused(x, 1.44269504088896341f, all(12582912.0f));
  const Vector k = shifted - 12582912.0f;
  const Vector r = fused(k, 2.12194440e-4f, fused(k, -0.693359375f, x)), square = r * r;
  const Vector low = fused(r, 1.6666519642e-1f, all(4.9999994040e-1f));
  const Vector high = fused(square, 1.3814446284e-3f, fused(r, 8.3687910810e-3f, all(4.1668396443e-2f)));
  const Vector p = fused(fused(high, square, low), square, r + 1.0f);
  // Those bits are added to the exponent of p, which is between √½ and √2. The sum wraps around for negative k, so it is unsigned, where
  // wrapping is defined.
  return (Vector)(((Bits)p + ((Bits)shifted << 23)) & ~(Bits)(x < -87.0f));
}

/**
 * `exponentials`, COUNT vectors at a time. All are loaded before any is stored, so that none waits for the one before. Returns the index at
 * which it stopped.
 */
template <int COUNT>
inline int64_t exponentialsFrom(int64_t i, const float* values, int64_t size, float peak, float factor, float* out, Vector (&sums)[2]) {
  for (; i + COUNT * kWidth <= size; i += COUNT * kWidth) {
    Vector w[COUNT];
    for (int j = 0; j < COUNT; j++) w[j] = exponential((load(values + i + j * kWidth) - peak) * factor);
    for (int j = 0; j < COUNT; j++) {
      store(out + i + j * kWidth, w[j]);
      sums[j % 2] += w[j];
    }
  }
  return i;
}

/** out[i] = e^((values[i] − peak)·factor); returns their sum. `peak` is at least as large as every value. */
inline float exponentials(const float* values, int64_t size, float peak, float factor, float* out) {
  Vector sums[2] = {};
  int64_t i = exponentialsFrom<4>(0, values, size, peak, factor, out, sums);
  i = exponentialsFrom<2>(i, values, size, peak, factor, out, sums);
  float sum = total(sums[0] + sums[1]);
  for (; i < size; i++) {
    const Vector one = exponential(all((values[i] - peak) * factor));
    out[i] = one[0];
    sum += one[0];
  }
  return sum;
}

}  // namespace attune
