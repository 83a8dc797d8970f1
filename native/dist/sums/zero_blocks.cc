#include "dist/sums/zero_blocks.h"

#include <algorithm>
#include <cstring>

namespace attune {
namespace {

/** By their bits: −0 is not zero, since −0 + 0 is another number. */
bool isZero(const float* values, int64_t count) {
  constexpr int64_t kStep = 16;
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    uint32_t bits[kStep], any = 0;
    std::memcpy(bits, values + i, sizeof bits);
    for (const uint32_t each : bits) any |= each;
    if (any != 0) return false;
  }
  for (; i < count; i++) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof bits);
    if (bits != 0) return false;
  }
  return true;
}

}  // namespace

NonZeroBlocks::NonZeroBlocks(float* values, int64_t count)
    : values_(values), count_(count), mask_(static_cast<size_t>((count + kBlock - 1) / kBlock)) {
  for (size_t block = 0; block < mask_.size(); block++) {
    const int64_t begin = static_cast<int64_t>(block) * kBlock;
    mask_[block] = isZero(values + begin, std::min(kBlock, count - begin)) ? 0 : 1;
  }
}

/** Calls `move(place in the values, place in the packed row, size)` for each block. */
template <typename Move>
void NonZeroBlocks::each(Move move) const {
  int64_t at = 0;
  for (size_t block = 0; block < mask_.size(); block++) {
    if (mask_[block] == 0) continue;
    const int64_t begin = static_cast<int64_t>(block) * kBlock, size = std::min(kBlock, count_ - begin);
    move(begin, at, size);
    at += size;
  }
}

int64_t NonZeroBlocks::packedCount() const {
  int64_t count = 0;
  each([&](int64_t, int64_t, int64_t size) { count += size; });
  return count;
}

void NonZeroBlocks::pack(float* packed) const {
  each([&](int64_t from, int64_t to, int64_t size) { std::memcpy(packed + to, values_ + from, static_cast<size_t>(size) * sizeof(float)); });
}

void NonZeroBlocks::unpack(const float* packed) const {
  each([&](int64_t to, int64_t from, int64_t size) { std::memcpy(values_ + to, packed + from, static_cast<size_t>(size) * sizeof(float)); });
}

}  // namespace attune
