// One head of a key or value in 8 bits (ops/decode/cache/write.cc has the rule).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace attune {

/** Writes the codes of a head and returns its scale. */
template <typename T>
float writeHead(const T* x, int64_t size, int8_t* codes) {
  float most = 0;
  bool isFinite = true;
  for (int64_t i = 0; i < size; i++) {
    const float value = std::fabs(static_cast<float>(x[i]));
    isFinite &= std::isfinite(value);
    most = std::max(most, value);
  }
  const float scale = isFinite ? most / 127.0f : std::numeric_limits<float>::quiet_NaN();
  if (!(scale > 0)) {
    std::fill_n(codes, size, int8_t{0});
    return scale;
  }
  // the scale of subnormal numbers is coarse, so that a code may lie beyond
  for (int64_t i = 0; i < size; i++)
    codes[i] = static_cast<int8_t>(std::clamp(std::nearbyint(static_cast<float>(x[i]) / scale), -127.0f, 127.0f));
  return scale;
}

}  // namespace attune
