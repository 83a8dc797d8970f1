// Products of bf16 with f32 sums. Weights are read in place in blocks of 16 columns. The block at the edge is copied with zeros around it;
// so are all blocks if a column is not a whole number of steps. Depending on the CPU, the kernel uses AMX tiles (amx.h), dot products of
// pairs, or a shift to f32 and f32 products (lanes.h). Each adds in one order for all numbers of rows.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cpu/deal.h"
#include "cpu/skinny/amx.h"
#include "cpu/skinny/lanes.h"
#include "cpu/skinny/product.h"

namespace attune {
namespace {

using c10::BFloat16;
using Product = SkinnyProduct<BFloat16>;

inline int64_t wholeSteps(int64_t k, int64_t step) { return (k + step - 1) / step * step; }

// Copies rows of `k` numbers, zero-padded to `padded` numbers and `count` rows.
void copyPadded(const BFloat16* from, int64_t rows, int64_t k, BFloat16* to, int64_t count, int64_t padded) {
  std::memset(static_cast<void*>(to), 0, count * padded * sizeof(BFloat16));
  for (int64_t r = 0; r < rows; r++) std::memcpy(static_cast<void*>(to + r * padded), from + r * k, k * sizeof(BFloat16));
}

// Writes the sums of 16 columns. The sums of neighbouring rows are `rowStride` apart, those of neighbouring columns `columnStride`.
void finish(const Product& p, const float* sums, int64_t rowStride, int64_t columnStride, int64_t row, int64_t rows, int64_t column) {
  const int64_t columns = std::min(kBlock, p.n - column);
  for (int64_t r = 0; r < rows; r++) {
    BFloat16 *y = p.y + (row + r) * p.n + column, out[kBlock];
    float values[kBlock];
    for (int64_t c = 0; c < kBlock; c++) values[c] = sums[r * rowStride + c * columnStride];
    if (p.bias != nullptr)
      for (int64_t c = 0; c < columns; c++) values[c] += static_cast<float>(p.bias[column + c]);
    for (int64_t c = 0; c < kBlock; c++) out[c] = BFloat16(values[c]);
    if (p.add)
      for (int64_t c = 0; c < columns; c++) out[c] = BFloat16(static_cast<float>(y[c]) + static_cast<float>(out[c]));
    std::copy_n(out, columns, y);
  }
}

// Calls body(weights of 16 columns, first column, state) for all blocks, on all threads; columns are `padded` inputs long. begin() makes a
// thread's state for some blocks.
template <typename Begin, typename Body>
void eachBlock(const Product& p, int64_t padded, const Begin& begin, const Body& body) {
  const int64_t blocks = (p.n + kBlock - 1) / kBlock;
  deal(blocks, leastTasks(p.m * p.k * kBlock), [&](int64_t first, int64_t last) {
    [[maybe_unused]] auto&& state = begin();
    std::vector<BFloat16> copied;
    for (int64_t b = first; b < last; b++) {
      const BFloat16* w = p.w + b * kBlock * p.k;
      const int64_t columns = std::min(kBlock, p.n - b * kBlock);
      if (columns < kBlock || padded != p.k) {
        copied.resize(kBlock * padded);
        copyPadded(w, columns, p.k, copied.data(), kBlock, padded);
        w = copied.data();
      }
      body(w, b * kBlock, state);
    }
  });
}

#ifdef ATTUNE_AMX
// Rows of x from `row` on as [pairs][lanes][2].
void packPairs(const Product& p, int64_t row, int64_t lanes, BFloat16* to) {
  const BFloat16* x = p.x + row * p.k;
  const int64_t rows = std::min(lanes, p.m - row), pairs = p.k / 2;
  for (int64_t i = 0; i < pairs; i++)
    for (int64_t r = 0; r < rows; r++) std::memcpy(static_cast<void*>(to + (i * lanes + r) * 2), x + r * p.k + i * 2, 2 * sizeof(BFloat16));
  if (p.k % 2 != 0)
    for (int64_t r = 0; r < rows; r++) to[(pairs * lanes + r) * 2] = x[r * p.k + p.k - 1];
}

void tileProduct(const Product& p) {
  const int64_t padded = wholeSteps(p.k, kTileInputs), steps = padded / kTileInputs;
  const int64_t lanes = std::min(p.m, kTileRows), groups = (p.m + kTileRows - 1) / kTileRows, size = padded * lanes;
  const auto packed = std::make_unique<BFloat16[]>(groups * size);  // [groups][pairs][lanes][2], zeros beyond the rows and inputs
  for (int64_t g = 0; g < groups; g++) packPairs(p, g * kTileRows, lanes, packed.get() + g * size);
  const auto bits = [](const BFloat16* from) { return reinterpret_cast<const uint16_t*>(from); };
  const auto begin = [&] { return Tiles(lanes); };
  eachBlock(p, padded, begin, [&](const BFloat16* w, int64_t column, Tiles&) {
    float sums[kTileGroups * kTileColumns * kTileRows];
    for (int64_t g = 0; g < groups; g += kTileGroups) {
      const uint16_t* x = bits(packed.get() + g * size);
      switch (std::min<int64_t>(kTileGroups, groups - g)) {
        case 1: tileSums<1>(bits(w), padded, x, steps, lanes, sums); break;
        case 2: tileSums<2>(bits(w), padded, x, steps, lanes, sums); break;
        case 3: tileSums<3>(bits(w), padded, x, steps, lanes, sums); break;
        default: tileSums<4>(bits(w), padded, x, steps, lanes, sums);
      }
      for (int64_t one = g; one < std::min(groups, g + kTileGroups); one++) {
        const int64_t row = one * kTileRows;
        finish(p, sums + (one - g) * kTileColumns * lanes, 1, lanes, row, std::min(kTileRows, p.m - row), column);
      }
    }
  });
}
#endif

#ifdef ATTUNE_BF16_PAIRS
using Kind = Pairs;
#else
using Kind = Wide;
#endif

// x in the layout of the kind: pairs unchanged, or f32.
std::vector<float> inputs(const Product& p, int64_t padded) {
  const int64_t items = padded / 2 * Kind::kInputs;
  std::vector<float> rows(p.m * items);
  if constexpr (Kind::kInputs == 1) {
    copyPadded(p.x, p.m, p.k, reinterpret_cast<BFloat16*>(rows.data()), p.m, padded);
  } else {
    for (int64_t r = 0; r < p.m; r++)
      for (int64_t i = 0; i < p.k; i++) rows[r * items + i] = static_cast<float>(p.x[r * p.k + i]);
  }
  return rows;
}

// 16 columns as f32.
const float* widened(const BFloat16* w, int64_t count) {
  static thread_local std::vector<float> room;
  if (static_cast<int64_t>(room.size()) < count) room.resize(count);
  for (int64_t i = 0; i < count; i++) room[i] = static_cast<float>(w[i]);
  return room.data();
}

void lanesProduct(const Product& p) {
  const int64_t padded = wholeSteps(p.k, 8), items = padded / 2, words = items * Kind::kInputs;
  const int64_t groups = (p.m + kGroup - 1) / kGroup;
  const auto rowsOf = [&](int64_t group) { return std::min(kGroup, p.m - group * kGroup); };
  const std::vector<float> x = inputs(p, padded);
  std::vector<float> packed(groups * kGroup * words);
  for (int64_t g = 0; g < groups; g++)
    if (rowsOf(g) > Kind::kRows) pack(x.data() + g * kGroup * words, rowsOf(g), words, packed.data() + g * kGroup * words);
  const bool many = std::min(p.m, kGroup) > Kind::kRows;
  eachBlock(p, padded, [] { return 0; }, [&](const BFloat16* w, int64_t column, int) {
    [[maybe_unused]] const float* wide = Kind::kInputs == 2 && many ? widened(w, kBlock * padded) : nullptr;
    for (int64_t g = 0; g < groups; g++) {
      const int64_t row = g * kGroup, rows = rowsOf(g);
      float sums[kGroup * kBlock];
      SkinnyProduct<float> part{x.data() + row * words, reinterpret_cast<const float*>(w), nullptr, sums, rows, items, kBlock};
      if (rows <= Kind::kRows) {
        fewOfBlock<Kind>(rows, part, 0, 0);
      } else {
        const Group group{packed.data() + row * words, 0, rows};
        const int64_t vectors = vectorsOf(rows);
#ifdef ATTUNE_BF16_PAIRS
        columns<Kind>(vectors, part, group, 0, kBlock, groups > 1 ? kBlock : columnsFor(static_cast<int>(vectors)));
#else
        part.w = wide, part.k = padded;
        columns<Floats>(vectors, part, group, 0, kBlock, 0);
#endif
      }
      finish(p, sums, kBlock, 1, row, rows, column);
    }
  });
}

}  // namespace

void skinnyProduct(const SkinnyProduct<BFloat16>& p) {
  if (p.m == 0) return;
#ifdef ATTUNE_AMX
  if (tilesAllowed()) return tileProduct(p);
#endif
  lanesProduct(p);
}

}  // namespace attune
