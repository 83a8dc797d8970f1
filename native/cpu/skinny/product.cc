// f32 elsewhere than on ARM (inputs.cc). Rows of x are the lanes of the vectors: a weight is read once, in place, and multiplies all rows. The
// sums of a group of rows and a few columns stay in registers and need no reduction across lanes; the weights of the next tile are prefetched
// meanwhile.
#if !defined(__aarch64__)
#include "cpu/skinny/product.h"

#include <algorithm>
#include <memory>

#include "cpu/deal.h"
#include "cpu/skinny/lanes.h"

namespace attune {

void skinnyProduct(const SkinnyProduct<float>& p) {
  const int64_t groups = (p.m + kGroup - 1) / kGroup, blocks = (p.n + kBlock - 1) / kBlock;
  const std::unique_ptr<float[]> packed(new float[groups * kGroup * p.k]);
  const auto rowsOf = [&](int64_t group) { return std::min(kGroup, p.m - group * kGroup); };
  const auto isFew = [&](int64_t group, int64_t block) { return rowsOf(group) <= Floats::kRows && (block + 1) * kBlock <= p.n; };
  for (int64_t g = 0; g < groups; g++)
    if (!isFew(g, blocks - 1)) pack(p.x + g * kGroup * p.k, rowsOf(g), p.k, packed.get() + g * kGroup * p.k);
  deal(blocks, leastTasks(p.m * p.k * kBlock), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++)
      for (int64_t g = 0; g < groups; g++) {
        const int64_t row = g * kGroup, rows = rowsOf(g), vectors = vectorsOf(rows), column = b * kBlock;
        if (isFew(g, b)) {
          for (int64_t at = column; at < column + kBlock; at += Floats::kColumns) few<Floats>(rows, p, row, at);
          continue;
        }
        const int64_t ahead = groups > 1 ? kBlock : columnsFor(static_cast<int>(vectors));
        columns<Floats>(vectors, p, {packed.get() + row * p.k, row, rows}, column, std::min(p.n, column + kBlock), ahead);
      }
  });
}

}  // namespace attune
#endif
