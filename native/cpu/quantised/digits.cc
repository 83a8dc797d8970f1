#include "cpu/quantised/digits.h"

#if defined(ATTUNE_DIGITS)
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/deal.h"
#include "cpu/quantised/rows.h"

namespace attune {
namespace {

// The largest fixed-point number: with three digits, a little less than 127·(256² + 256 + 1).
constexpr float most(int digits) { return digits == kRounded ? 127.0f : 8355584.0f; }

constexpr int64_t kGroups = block8(kExact) / kGroup;  // largest number of groups in a block
using Group = Floats[4];

// Writes numbers as d₀·256² + d₁·256 + d₂: all d₀, then all d₁, then all d₂. Or as a single digit.
void writeDigits(const Sums (&numbers)[4], int digits, int8_t* to) {
  if (digits == kRounded) return storeBytes(to, lowBytes(numbers));
  Sums upper[4], first[4];
  withoutLowest(numbers, upper);
  withoutLowest(upper, first);
  storeBytes(to, lowBytes(first));
  storeBytes(to + kGroup, lowBytes(upper));
  storeBytes(to + 2 * kGroup, lowBytes(numbers));
}

// Writes groups in fixed point. Returns the value of 1 in the first digit; NaN if a number is not finite.
float writeGroups(const Group* groups, int64_t count, int digits, int8_t* to) {
  float peak = 0;
  for (int64_t g = 0; g < count; g++) {
    const float own = largest(groups[g]);
    peak = own > peak || own != own ? own : peak;
    if (peak != peak) break;
  }
  const bool finite = std::isfinite(peak);
  const float inverse = most(digits) / peak, factor = finite && std::isfinite(inverse) ? inverse : 0.0f;
  for (int64_t g = 0; g < count; g++) {
    Sums whole[4];
    toWhole(groups[g], factor, whole);
    writeDigits(whole, digits, to + g * kGroup * digits);
  }
  return finite ? peak * ((digits == kRounded ? 1.0f : 65536.0f) / most(digits)) : std::numeric_limits<float>::quiet_NaN();
}

float writeBlock(const float* x, int64_t count, bool four, int digits, int8_t* to) {
  Group groups[kGroups];
  int64_t g = 0;
  if (four) {  // codes are unpacked in runs of 16 bytes: a run's even inputs come before its odd ones
    for (; g < kBlock4 / kGroup; g += 2) loadPairs(x + g * kGroup, groups[g], groups[g + 1]);
  } else {
    for (; (g + 1) * kGroup <= count; g++) loadGroup(x + g * kGroup, groups[g]);
    if (g * kGroup < count) {
      float rest[kGroup] = {};
      std::copy_n(x + g * kGroup, count - g * kGroup, rest);
      loadGroup(rest, groups[g++]);
    }
  }
  return writeGroups(groups, g, digits, to);
}

}  // namespace

Digits::Digits(const float* x, int64_t m, int64_t k, bool four, int perNumber) {
  const int64_t size = four ? kBlock4 : block8(perNumber);
  blocks = piecesOf(k, size);
  stride = piecesOf(k, kGroup) * kGroup * perNumber;
  digits.reset(new int8_t[m * stride]);
  units.reset(new float[m * blocks]);
  deal(m * blocks, std::max<int64_t>(1, 16384 / size), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++) {
      const int64_t row = i / blocks, first = i % blocks * size, count = std::min(size, k - first);
      units[i] = writeBlock(x + row * k + first, count, four, perNumber, digits.get() + row * stride + first * perNumber);
    }
  });
}

Levels::Levels(const float* levels, int perNumber) {
  Group group;
  loadGroup(levels, group);
  unit = writeGroups(&group, 1, perNumber, digits[0]);
}

}  // namespace attune
#endif
