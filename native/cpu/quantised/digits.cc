#include "cpu/quantised/digits.h"

#if defined(ATTUNE_DIGITS)
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/quantised/rows.h"

namespace attune {
namespace {

// Codes of 4 bits are unpacked in runs of so many bytes: the even inputs of a run come before its odd ones.
constexpr int64_t kRunBytes = 16;

// The largest fixed-point number: of three digits a little less than 127·(256² + 256 + 1).
constexpr float most(int digits) { return digits == kRounded ? 127.0f : 8355584.0f; }

// The numbers in fixed point. Returns what 1 of the first digit stands for; NaN where a number is not finite.
float toFixedPoint(const float* numbers, int64_t count, int digits, int32_t* to) {
  float peak = 0, check = 0;
#pragma omp simd reduction(max : peak) reduction(+ : check)
  for (int64_t i = 0; i < count; i++) {
    peak = std::max(peak, std::fabs(numbers[i]));
    check += numbers[i] * 0.0f;  // becomes NaN if any number is not finite
  }
  const bool finite = check == 0.0f && std::isfinite(peak);
  const float inverse = most(digits) / peak, factor = finite && std::isfinite(inverse) ? inverse : 0.0f;
  if (factor == 0.0f)
    std::fill_n(to, count, 0);
  else
    for (int64_t i = 0; i < count; i++) to[i] = static_cast<int32_t>(std::nearbyint(numbers[i] * factor));
  return finite ? peak * ((digits == kRounded ? 1.0f : 65536.0f) / most(digits)) : std::numeric_limits<float>::quiet_NaN();
}

// Numbers as d₀·256² + d₁·256 + d₂: all d₀, then all d₁, then all d₂. Or as a single digit.
void writeDigits(const int32_t* numbers, int64_t count, int digits, int8_t* to) {
  if (digits == kRounded) {
    for (int64_t i = 0; i < count; i++) to[i] = static_cast<int8_t>(numbers[i]);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const int32_t low = static_cast<int8_t>(numbers[i]), rest = (numbers[i] - low) >> 8, middle = static_cast<int8_t>(rest);
    to[2 * count + i] = static_cast<int8_t>(low);
    to[count + i] = static_cast<int8_t>(middle);
    to[i] = static_cast<int8_t>((rest - middle) >> 8);
  }
}

void pairInputs(const int32_t* from, int32_t* to) {
  for (int64_t run = 0; run < kBlock4; run += 2 * kRunBytes)
    for (int64_t i = 0; i < kRunBytes; i++) {
      to[run + i] = from[run + 2 * i];
      to[run + kRunBytes + i] = from[run + 2 * i + 1];
    }
}

float writeBlock(const float* x, int64_t count, bool four, int digits, int8_t* to) {
  int32_t numbers[block8(kExact)] = {}, paired[kBlock4];
  const float unit = toFixedPoint(x, count, digits, numbers);
  if (four) pairInputs(numbers, paired);
  const int64_t groups = piecesOf(count, kGroup);
  for (int64_t g = 0; g < groups; g++) writeDigits((four ? paired : numbers) + g * kGroup, kGroup, digits, to + g * kGroup * digits);
  return unit;
}

}  // namespace

Digits::Digits(const float* x, int64_t m, int64_t k, bool four, int perNumber) {
  const int64_t size = four ? kBlock4 : block8(perNumber);
  blocks = piecesOf(k, size);
  stride = piecesOf(k, kGroup) * kGroup * perNumber;
  digits.reset(new int8_t[m * stride]);
  units.reset(new float[m * blocks]);
  at::parallel_for(0, m * blocks, std::max<int64_t>(1, 16384 / size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = i / blocks, first = i % blocks * size, count = std::min(size, k - first);
      units[i] = writeBlock(x + row * k + first, count, four, perNumber, digits.get() + row * stride + first * perNumber);
    }
  });
}

Levels::Levels(const float* levels, int perNumber) {
  int32_t numbers[16];
  unit = toFixedPoint(levels, 16, perNumber, numbers);
  writeDigits(numbers, 16, perNumber, digits[0]);
}

}  // namespace attune
#endif
