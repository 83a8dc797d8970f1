// One head of a key or value in 8 bits (ops/decode/cache/write.cc has the rule).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace attune {

/** Rounds a non-negative number up to bf16, so that no value exceeds the largest code. */
inline float roundedUp(float scale) {
  uint32_t bits;
  std::memcpy(&bits, &scale, sizeof bits);
  bits = (bits + 0xFFFFu) & 0xFFFF0000u;
  std::memcpy(&scale, &bits, sizeof bits);
  return scale;
}

/** Writes the codes of a head and returns its scale, a bf16 number. */
template <typename T>
float writeHead(const T* x, int64_t size, int8_t* codes) {
  float most = 0;
  bool isFinite = true;
  for (int64_t i = 0; i < size; i++) {
    const float value = std::fabs(static_cast<float>(x[i]));
    isFinite &= std::isfinite(value);
    most = std::max(most, value);
  }
  const float scale = isFinite ? roundedUp(most / 127.0f) : std::numeric_limits<float>::quiet_NaN();
  if (!(scale > 0)) {
    std::fill_n(codes, size, int8_t{0});
    return scale;
  }
  for (int64_t i = 0; i < size; i++)
    codes[i] = static_cast<int8_t>(std::clamp(std::nearbyint(static_cast<float>(x[i]) / scale), -127.0f, 127.0f));
  return scale;
}

}  // namespace attune
