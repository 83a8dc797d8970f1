// f32 on ARM, with inputs as the lanes of the vectors: an output has four sums, by inputs modulo 4, which are added at the end; so it is for every
// number of rows. Weights are read in place, and a single row reads one column after the other. Two Neoverse-N1 cores read memory fastest
// that way: 36 to 38 GB/s, and 30 from four columns at once, which a single sum for each output would need.
#if defined(__aarch64__)
#include <algorithm>
#include <memory>
#include <vector>

#include "cpu/deal.h"
#include "cpu/skinny/input_tile.h"
#include "cpu/skinny/product.h"
#include "cpu/vectors.h"

namespace attune {
namespace {

using Product = SkinnyProduct<float>;

constexpr int kRows = 4;  // of a group
constexpr int kColumns = 6;  // at once, for more rows than one
constexpr int64_t kTask = 2 * kColumns;  // columns of a task
constexpr int64_t kChunk = 1024;  // inputs whose weights stay in the L1 cache while all groups of rows use them
constexpr int64_t kPassInputs = 64 << 10;  // of x in a pass over the weights: a quarter of the L2 cache
constexpr int64_t kLine = 64;
constexpr float kNothing[kColumns * kRows * 4] = {};  // sums to begin with

// What is asked for during a tile: `step` bytes for every 16 inputs.
struct Ahead {
  const char* next;
  int64_t step;
};

inline Quad quad(const float* from) { return *reinterpret_cast<const Quad*>(from); }

// Fewer than four numbers, and zeros.
inline Quad some(const float* from, int64_t count) {
  Quad out = {};
  for (int64_t i = 0; i < count; i++) out[i] = from[i];
  return out;
}

// One output of a single row. Lines are asked for 16 ahead: the processor's own reading ahead ends with each page of memory.
inline float dot(const float* x, const float* w, int64_t k) {
  constexpr int64_t kAhead = 16 * 16;
  Quad sums = {};
  int64_t i = 0;
  for (; i + 32 <= k; i += 32) {
    __builtin_prefetch(w + i + kAhead);
    __builtin_prefetch(w + i + kAhead + 16);
#pragma GCC unroll 8
    for (int j = 0; j < 32; j += 4) sums = fused(quad(x + i + j), quad(w + i + j), sums);
  }
  for (; i + 4 <= k; i += 4) sums = fused(quad(x + i), quad(w + i), sums);
  if (i < k) sums = fused(some(x + i, k - i), some(w + i, k - i), sums);
  return total(sums);
}

// room[COLUMNS][ROWS][4] = from + `count` inputs. x is [inputs / 4][ROWS][4], the columns of w are k apart.
template <int ROWS, int COLUMNS>
void addInputs(const float* x, const float* w, int64_t k, int64_t count, Ahead ahead, const float* from, float* room) {
  int64_t i = 0;
  if constexpr (ROWS == 4 && COLUMNS == 6) {
    i = count / 8 * 8;
    if (i > 0) inputTile(x, w, k, i, ahead.next, ahead.step / 2, from, room);
    if (i == count) return;
    if (i > 0) from = room;
  }
  Quad sums[COLUMNS][ROWS];
#pragma GCC unroll 8
  for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) sums[c][r] = quad(from + (c * ROWS + r) * 4);
  const auto add = [&](int64_t at, const auto& weights) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) {
      const Quad four = weights(w + c * k + at);
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; r++) sums[c][r] = fused(quad(x + at * ROWS + r * 4), four, sums[c][r]);
    }
  };
  for (; i + 16 <= count; i += 16, ahead.next += ahead.step) {
#pragma GCC unroll 8
    for (int line = 0; line < COLUMNS; line++) __builtin_prefetch(ahead.next + line * kLine, 0, 2);
#pragma GCC unroll 4
    for (int j = 0; j < 16; j += 4) add(i + j, quad);
  }
  for (; i + 4 <= count; i += 4) add(i, quad);
  if (i < count) add(i, [&](const float* from) { return some(from, count - i); });
#pragma GCC unroll 8
  for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) *reinterpret_cast<Quad*>(room + (c * ROWS + r) * 4) = sums[c][r];
}

inline void write(const Product& p, float* y, float sum, int64_t column) {
  const float value = p.bias == nullptr ? sum : sum + p.bias[column];
  *y = p.add ? *y + value : value;
}

// Writes the outputs of a group.
template <int ROWS, int COLUMNS>
void finish(const Product& p, int64_t row, int64_t column, const float* room) {
  const auto sums = [&](int c, int r) { return quad(room + (std::min(c, COLUMNS - 1) * ROWS + r) * 4); };
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
    float* y = p.y + (row + r) * p.n + column;
#pragma GCC unroll 2
    for (int from = 0; from < COLUMNS; from += 4) {
      const Quad out = totals(sums(from, r), sums(from + 1, r), sums(from + 2, r), sums(from + 3, r));
      if (from + 4 <= COLUMNS) {
        const Quad value = p.bias == nullptr ? out : out + quad(p.bias + column + from);
        *reinterpret_cast<Quad*>(y + from) = p.add ? quad(y + from) + value : value;
      } else {
        for (int c = from; c < COLUMNS; c++) write(p, y + c, out[c - from], column + c);
      }
    }
  }
}

// Inputs [i, i + count) of a group of `rows` rows, and its outputs after the last of them.
template <int COLUMNS, int ROWS = kRows>
void group(int64_t rows, const Product& p, const float* x, int64_t row, int64_t column, int64_t i, int64_t count, const Ahead& ahead,
           float* room) {
  if constexpr (ROWS > 1)
    if (rows < ROWS) return group<COLUMNS, ROWS - 1>(rows, p, x, row, column, i, count, ahead, room);
  addInputs<ROWS, COLUMNS>(x + i * ROWS, p.w + column * p.k + i, p.k, count, ahead, i == 0 ? kNothing : room, room);
  if (i + count == p.k) finish<ROWS, COLUMNS>(p, row, column, room);
}

// COLUMNS columns for all rows. The columns after these are asked for meanwhile, by each group its part.
template <int COLUMNS>
void columns(const Product& p, const float* x, int64_t column, float* room) {
  const int64_t k = p.k, padded = (k + 3) / 4 * 4, groups = (p.m + kRows - 1) / kRows, chunk = groups == 1 ? k : kChunk;
  const char* next = reinterpret_cast<const char*>(p.w + (column + COLUMNS) * k);
  for (int64_t i = 0; i < k; i += chunk) {
    const int64_t count = std::min(chunk, k - i), asked = count * COLUMNS * static_cast<int64_t>(sizeof(float)) / groups;
    for (int64_t g = 0; g < groups; g++, next += asked) {
      const int64_t row = g * kRows;
      group<COLUMNS>(std::min<int64_t>(kRows, p.m - row), p, x + row * padded, row, column, i, count, {next, COLUMNS * kLine / groups},
                     room + row * COLUMNS * 4);
    }
  }
}

// Groups [begin, end) of x as [groups][inputs / 4][rows of the group][4], with zeros after the last input.
void pack(const Product& p, int64_t begin, int64_t end, float* to) {
  for (int64_t row = begin * kRows; row < std::min(p.m, end * kRows); row += kRows)
    for (int64_t i = 0; i < p.k; i += 4)
      for (int64_t r = row; r < std::min(p.m, row + kRows); r++, to += 4) {
        const float* from = p.x + r * p.k + i;
        *reinterpret_cast<Quad*>(to) = i + 4 <= p.k ? quad(from) : some(from, p.k - i);
      }
}

// Columns [column, end) of a single row.
void oneRow(const Product& p, int64_t column, int64_t end) {
  for (; column < end; column++) write(p, p.y + column, dot(p.x, p.w + column * p.k, p.k), column);
}

// Columns [column, end) of more rows, whose x is packed.
void moreRows(const Product& p, const float* x, int64_t column, int64_t end) {
  std::vector<float> room((p.m + kRows - 1) * kColumns * 4);
  for (; column + kColumns <= end; column += kColumns) columns<kColumns>(p, x, column, room.data());
  for (; column + 2 <= end; column += 2) columns<2>(p, x, column, room.data());
  if (column < end) columns<1>(p, x, column, room.data());
}

// Some of the rows.
Product rowsOf(const Product& p, int64_t row, int64_t rows) {
  Product part = p;
  part.x += row * p.k, part.y += row * p.n, part.m = rows;
  return part;
}

}  // namespace

void skinnyProduct(const Product& p) {
  if (p.m == 0) return;
  const int64_t blocks = (p.n + kTask - 1) / kTask;
  if (p.m == 1)
    return deal(blocks, leastTasks(p.k * kTask),
                [&](int64_t begin, int64_t end) { oneRow(p, begin * kTask, std::min(p.n, end * kTask)); });
  const int64_t padded = (p.k + 3) / 4 * 4;
  const int64_t most = isSkinny(p.m, p.k) ? p.m : std::max<int64_t>(1, kPassInputs / padded / kRows) * kRows;  // rows of a pass
  const std::unique_ptr<float[]> x(new float[p.m * padded]);
  deal((p.m + kRows - 1) / kRows, leastTasks(kRows * p.k),
       [&](int64_t begin, int64_t end) { pack(p, begin, end, x.get() + begin * kRows * padded); });
  deal((p.m + most - 1) / most * blocks, leastTasks(std::min(p.m, most) * p.k * kTask), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t pass = at / blocks, row = pass * most, next = std::min(end, (pass + 1) * blocks);
      moreRows(rowsOf(p, row, std::min(most, p.m - row)), x.get() + row * padded, (at - pass * blocks) * kTask,
               std::min(p.n, (next - pass * blocks) * kTask));
      at = next;
    }
  });
}

}  // namespace attune
#endif
