// f32 on ARM, with inputs as the lanes of the vectors. An output has four sums, by inputs modulo 4, which are added at the end; this holds
// for every number of rows. Weights are read in place, and a single row reads one column after the other. Two Neoverse-N1 cores read memory
// fastest that way: 36 to 38 GB/s, against 30 when reading four columns at once, which a single sum per output would need. Weights may be
// bf16, which are widened. Two columns of those are read at once, so that the multiply-adds of a sum need not wait for one another.
#if defined(__aarch64__)
#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "cpu/deal.h"
#include "cpu/skinny/input_tile.h"
#include "cpu/skinny/product.h"
#include "cpu/vectors.h"

namespace attune {
namespace {

using Half = c10::BFloat16;
template <typename W>
using Product = SkinnyProduct<float, W>;

constexpr int kRows = 4;  // rows of a group
template <typename W>
constexpr int kColumns = std::is_same_v<W, float> ? 6 : 2;  // columns at once, except for a single row of f32
constexpr int kMostColumns = kColumns<float>;
constexpr int64_t kTask = 2 * kMostColumns;  // columns per task
constexpr int64_t kChunk = 1024;  // inputs whose weights stay in the L1 cache while all groups of rows use them
constexpr int64_t kPassInputs = 64 << 10;  // inputs of x in a pass over the weights: a quarter of the L2 cache
constexpr int64_t kLine = 64;
template <typename W>
constexpr int64_t kAhead = std::is_same_v<W, float> ? 1 : 12 << 10;  // least distance of the prefetch of weights, in bytes
constexpr float kNothing[kMostColumns * kRows * 4] = {};  // initial sums

// What is prefetched during a tile: `step` bytes for every line of a column.
struct Ahead {
  const char* next;
  int64_t step;
};

inline Quad quad(const float* from) { return *reinterpret_cast<const Quad*>(from); }
inline Quad quad(const Half* from) { return (Quad)vshll_n_u16(vld1_u16(reinterpret_cast<const uint16_t*>(from)), 16); }

// Loads fewer than four numbers, and zeros for the rest.
template <typename W>
inline Quad some(const W* from, int64_t count) {
  Quad out = {};
  for (int64_t i = 0; i < count; i++) out[i] = static_cast<float>(from[i]);
  return out;
}

// The numbers of one load.
template <typename W>
constexpr int kQuads = 4 / sizeof(W);
inline void loadQuads(const float* from, Quad (&to)[1]) { to[0] = quad(from); }
inline void loadQuads(const Half* from, Quad (&to)[2]) {
  const uint16x8_t all = vld1q_u16(reinterpret_cast<const uint16_t*>(from)), none = vdupq_n_u16(0);
  to[0] = (Quad)vzip1q_u16(none, all), to[1] = (Quad)vzip2q_u16(none, all);  // not by shifts: a Neoverse-N1 does only one per cycle
}

// One output of a single row. Lines are prefetched 16 ahead: the processor's own prefetching stops at each page boundary.
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

// room[COLUMNS][ROWS][4] = from + the products of `count` inputs. x is [inputs / 4][ROWS][4]; the columns of w are k apart.
template <int ROWS, int COLUMNS, typename W>
void addInputs(const float* x, const W* w, int64_t k, int64_t count, Ahead ahead, const float* from, float* room) {
  int64_t i = 0;
  if constexpr (ROWS == 4 && COLUMNS == 6 && std::is_same_v<W, float>) {
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
  const auto add = [&](int64_t at, int c, const Quad& four) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) sums[c][r] = fused(quad(x + at * ROWS + r * 4), four, sums[c][r]);
  };
  constexpr int step = 4 * kQuads<W>;
  constexpr int64_t line = kLine / sizeof(W);
  for (; i + line <= count; i += line, ahead.next += ahead.step) {
#pragma GCC unroll 8
    for (int c = 0; c < COLUMNS; c++) __builtin_prefetch(ahead.next + c * kLine, 0, 2);
#pragma GCC unroll 4
    for (int64_t j = i; j < i + line; j += step)
#pragma GCC unroll 8
      for (int c = 0; c < COLUMNS; c++) {
        Quad quads[kQuads<W>];
        loadQuads(w + c * k + j, quads);
#pragma GCC unroll 2
        for (int q = 0; q < kQuads<W>; q++) add(j + 4 * q, c, quads[q]);
      }
  }
  for (; i + 4 <= count; i += 4)
    for (int c = 0; c < COLUMNS; c++) add(i, c, quad(w + c * k + i));
  if (i < count)
    for (int c = 0; c < COLUMNS; c++) add(i, c, some(w + c * k + i, count - i));
#pragma GCC unroll 8
  for (int c = 0; c < COLUMNS; c++)
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) *reinterpret_cast<Quad*>(room + (c * ROWS + r) * 4) = sums[c][r];
}

template <typename W>
inline void write(const Product<W>& p, float* y, float sum, int64_t column) {
  const float value = p.bias == nullptr ? sum : sum + p.bias[column];
  *y = p.add ? *y + value : value;
}

// Writes the outputs of a group.
template <int ROWS, int COLUMNS, typename W>
void finish(const Product<W>& p, int64_t row, int64_t column, const float* room) {
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

// Inputs [i, i + count) of a group of `rows` rows. Writes the group's outputs after the last inputs.
template <int COLUMNS, int ROWS = kRows, typename W>
void group(int64_t rows, const Product<W>& p, const float* x, int64_t row, int64_t column, int64_t i, int64_t count, const Ahead& ahead,
           float* room) {
  if constexpr (ROWS > 1)
    if (rows < ROWS) return group<COLUMNS, ROWS - 1>(rows, p, x, row, column, i, count, ahead, room);
  addInputs<ROWS, COLUMNS>(x + i * ROWS, p.w + column * p.k + i, p.k, count, ahead, i == 0 ? kNothing : room, room);
  if (i + count == p.k) finish<ROWS, COLUMNS>(p, row, column, room);
}

// COLUMNS columns for all rows. Meanwhile each group prefetches its part of the columns after these.
template <int COLUMNS, typename W>
void columns(const Product<W>& p, const float* x, int64_t column, float* room) {
  const int64_t k = p.k, padded = (k + 3) / 4 * 4, groups = (p.m + kRows - 1) / kRows, chunk = groups == 1 ? k : kChunk;
  const int64_t bytes = COLUMNS * k * static_cast<int64_t>(sizeof(W)), tiles = (kAhead<W> + bytes - 1) / bytes;
  const char* next = reinterpret_cast<const char*>(p.w + (column + tiles * COLUMNS) * k);
  for (int64_t i = 0; i < k; i += chunk) {
    const int64_t count = std::min(chunk, k - i), asked = count * bytes / k / groups;
    for (int64_t g = 0; g < groups; g++, next += asked) {
      const int64_t row = g * kRows;
      group<COLUMNS>(std::min<int64_t>(kRows, p.m - row), p, x + row * padded, row, column, i, count, {next, COLUMNS * kLine / groups},
                     room + row * COLUMNS * 4);
    }
  }
}

// Packs groups [begin, end) of x as [groups][inputs / 4][rows of the group][4], with zeros after the last input.
template <typename W>
void pack(const Product<W>& p, int64_t begin, int64_t end, float* to) {
  for (int64_t row = begin * kRows; row < std::min(p.m, end * kRows); row += kRows)
    for (int64_t i = 0; i < p.k; i += 4)
      for (int64_t r = row; r < std::min(p.m, row + kRows); r++, to += 4) {
        const float* from = p.x + r * p.k + i;
        *reinterpret_cast<Quad*>(to) = i + 4 <= p.k ? quad(from) : some(from, p.k - i);
      }
}

// Columns [column, end) of a single row.
void oneRow(const Product<float>& p, int64_t column, int64_t end) {
  for (; column < end; column++) write(p, p.y + column, dot(p.x, p.w + column * p.k, p.k), column);
}

// Columns [column, end) of several rows, whose x is packed.
template <typename W>
void moreRows(const Product<W>& p, const float* x, int64_t column, int64_t end) {
  constexpr int most = kColumns<W>;
  std::vector<float> room((p.m + kRows - 1) * kMostColumns * 4);
  if (most < 4 && p.m == 2)  // two rows have few sums
    for (; column + 4 <= end; column += 4) columns<4>(p, x, column, room.data());
  for (; column + most <= end; column += most) columns<most>(p, x, column, room.data());
  for (; column + 2 <= end; column += 2) columns<2>(p, x, column, room.data());
  if (column < end) columns<1>(p, x, column, room.data());
}

// Some of the rows.
template <typename W>
Product<W> rowsOf(const Product<W>& p, int64_t row, int64_t rows) {
  Product<W> part = p;
  part.x += row * p.k, part.y += row * p.n, part.m = rows;
  return part;
}

template <typename W>
void product(const Product<W>& p) {
  if (p.m == 0) return;
  const int64_t blocks = (p.n + kTask - 1) / kTask;
  if constexpr (std::is_same_v<W, float>)
    if (p.m == 1)
      return deal(blocks, leastTasks(p.k * kTask),
                  [&](int64_t begin, int64_t end) { oneRow(p, begin * kTask, std::min(p.n, end * kTask)); });
  const int64_t padded = (p.k + 3) / 4 * 4;
  const int64_t most = isSkinny(p.m, p.k) ? p.m : std::max<int64_t>(1, kPassInputs / padded / kRows) * kRows;  // rows per pass
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

}  // namespace

void skinnyProduct(const Product<float>& p) { product(p); }
void skinnyProduct(const Product<Half>& p) { product(p); }

}  // namespace attune
#endif
