// f32 on CPUs other than ARM (inputs.cc). Rows of x are the lanes of the vectors: a weight is read once, in place, and multiplies all rows.
// The sums of a group of rows and a few columns stay in registers and need no reduction across lanes; the next tile's weights are
// prefetched meanwhile. bf16 weights are widened: during the product if there are few rows (columns as lanes), else before it.
#if !defined(__aarch64__)
#include "cpu/skinny/product.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "cpu/deal.h"
#include "cpu/skinny/lanes.h"
#include "cpu/skinny/many.h"

namespace attune {
namespace {

using c10::BFloat16;

constexpr int64_t kMostInPlace = 48;  // up to this many rows, reading the weights is the limit; they are then read once, in place

// The argument of `few`: items of 32 bits.
const SkinnyProduct<float>& asItems(const SkinnyProduct<float>& p) { return p; }
SkinnyProduct<float> asItems(const SkinnyProduct<float, BFloat16>& p) {
  return {p.x, reinterpret_cast<const float*>(p.w), p.bias, p.y, p.m, p.k / 2, p.n, p.add};
}

// Columns [begin, end) of one block, for a group of rows.
void blockOf(const SkinnyProduct<float>& p, const Group& group, int64_t begin, int64_t end, int64_t ahead) {
  columns<Floats>(vectorsOf(group.rows), p, group, begin, end, ahead);
}
void blockOf(const SkinnyProduct<float, BFloat16>& p, const Group& group, int64_t begin, int64_t end, int64_t) {
  static thread_local std::vector<float> room;
  const int64_t count = (end - begin) * p.k;
  if (static_cast<int64_t>(room.size()) < count) room.resize(count);
  for (int64_t i = 0; i < count; i++) room[i] = static_cast<float>(p.w[begin * p.k + i]);
  const SkinnyProduct<float> part{p.x, room.data(), p.bias == nullptr ? nullptr : p.bias + begin, p.y + begin, p.m, p.k, p.n, p.add};
  columns<Floats>(vectorsOf(group.rows), part, group, 0, end - begin, 0);
}

template <typename Kind, typename W>
void product(const SkinnyProduct<float, W>& p) {
  const int64_t groups = (p.m + kGroup - 1) / kGroup, blocks = (p.n + kBlock - 1) / kBlock;
  const std::unique_ptr<float[]> packed(new float[groups * kGroup * p.k]);
  const auto items = asItems(p);
  const bool areWhole = std::is_same_v<W, float> || p.k % 8 == 0;  // whether k is a whole number of steps of `few`
  const auto rowsOf = [&](int64_t group) { return std::min(kGroup, p.m - group * kGroup); };
  const auto isFew = [&](int64_t group, int64_t block) { return areWhole && rowsOf(group) <= Kind::kRows && (block + 1) * kBlock <= p.n; };
  for (int64_t g = 0; g < groups; g++)
    if (!isFew(g, blocks - 1)) pack(p.x + g * kGroup * p.k, rowsOf(g), p.k, packed.get() + g * kGroup * p.k);
  deal(blocks, leastTasks(p.m * p.k * kBlock), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++)
      for (int64_t g = 0; g < groups; g++) {
        const int64_t row = g * kGroup, rows = rowsOf(g), column = b * kBlock;
        if (isFew(g, b)) {
          fewOfBlock<Kind>(rows, items, row, column);
          continue;
        }
        const int64_t ahead = groups > 1 ? kBlock : columnsFor(static_cast<int>(vectorsOf(rows)));
        blockOf(p, {packed.get() + row * p.k, row, rows}, column, std::min(p.n, column + kBlock), ahead);
      }
  });
}

}  // namespace

void skinnyProduct(const SkinnyProduct<float>& p) { p.m > kMostInPlace && takesAllRows(p.k) ? manyRows(p) : product<Floats>(p); }
void skinnyProduct(const SkinnyProduct<float, BFloat16>& p) { product<Wide>(p); }

}  // namespace attune
#endif
