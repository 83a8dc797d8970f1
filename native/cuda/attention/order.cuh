// Which rows and kv heads the blocks of many.cuh take. A block's first one follows from its number, so that its keys are requested at once.
// The shorter the first one, the longer the second: the blocks' first rows, short ones first, are paired with the other rows, long ones
// first. All further ones are drawn in that order. The last ones are short, so that blocks end together.
#pragma once
#include "cuda/attention/few.cuh"

namespace attune {
namespace {

__device__ unsigned drawnItems;  // 0 between launches; one stream at a time

/** Puts rows in the order of their classes, and within a class as they are. In shared memory. */
struct RowClasses {
  static constexpr int kCount = 16, kMostRows = 512, kSets = kMostRows / 32, kEach = kCount * kSets / 32;  // sets of 32 rows
  __align__(16) unsigned short counts[kCount][kSets];

  /** By all threads of a block, WARPS of 32: put(row, place) for every row. */
  template <int WARPS, typename ClassOf, typename Put>
  __device__ void order(int rows, ClassOf classOf, Put put) {
    static_assert(kEach == 8);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned same = 0;  // lanes with a row of this one's class
    const auto look = [&](int set) {
      const int row = set * 32 + lane, own = row < rows ? classOf(row) : kCount;
      same = __match_any_sync(0xFFFFFFFF, own);
      return own;
    };
    for (int at = threadIdx.x; at < kCount * kSets; at += 32 * WARPS) (&counts[0][0])[at] = 0;
    __syncthreads();
    for (int set = warp; set * 32 < rows; set += WARPS) {
      const int own = look(set);
      if (own < kCount) counts[own][set] = static_cast<unsigned short>(__popc(same));
    }
    __syncthreads();
    // a lane adds up eight neighbours
    const uint4 eight = reinterpret_cast<const uint4*>(counts)[lane];
    const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
    int all = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) all += (words[i] & 0xFFFF) + (words[i] >> 16);
    int before = all;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFF, before, offset);
      if (lane >= offset) before += other;
    }
    before -= all;
    for (int set = warp; set * 32 < rows; set += WARPS) {
      const int own = look(set), row = set * 32 + lane, which = own % kCount;
      int place = __shfl_sync(0xFFFFFFFF, before, which * (kSets / kEach) + set / kEach) + __popc(same & ((1u << lane) - 1));
      for (int i = set / kEach * kEach; i < set; i++) place += counts[which][i];
      if (row < rows) put(row, place);
    }
  }
};

/** A row and kv head. */
struct __align__(16) Unit {
  int place, row, position, begin;  // place: the row's in the order; row: −1 where there is no unit; begin and end: tiles
  int end, turn;  // turn: the warp that has the first tile
  short group, ordinal;  // ordinal: 0 for the block's first unit
};

/** A block's units, one after the other. */
template <int KEYS, int WARPS>
struct BlockUnits {
  const unsigned short *rowAt, *positionAt;  // by place, in shared memory
  int groups, items, window;
  int second;  // the block's second item

  __device__ int fixed() const { return 2 * static_cast<int>(gridDim.x); }  // items that are not drawn
  __device__ Unit of(int item, int turn, int ordinal) const {
    Unit unit{0, -1, 0, 0, -1, turn, 0, static_cast<short>(ordinal)};
    if (item >= items) return unit;
    unit.place = item / groups, unit.group = static_cast<short>(item % groups);
    unit.row = rowAt[unit.place], unit.position = positionAt[unit.place];
    const WholeSpan<KEYS> span(unit.position, window);
    unit.begin = span.first, unit.end = span.last;
    return unit;
  }
  /** Whether the unit after this one is drawn. Every block draws until it has drawn one that is not there. */
  __device__ bool isDrawn(const Unit& last) const { return last.row >= 0 && (last.ordinal > 0 || second >= items); }
  static __device__ int draw() { return static_cast<int>(atomicAdd(&drawnItems, 1u)); }
  /** `drawn`: where the unit is. By one thread of the block, which it may be once alone for a draw. */
  __device__ Unit after(const Unit& last, int drawn) const {
    const int turn = (last.turn + last.end - last.begin + 1) & (WARPS - 1);
    if (last.row < 0) return last;
    if (!isDrawn(last)) return of(second, turn, 1);
    // the last draw of all: each block has drawn once in vain
    if (drawn == max(0, items - fixed()) + static_cast<int>(gridDim.x) - 1) drawnItems = 0;
    return of(fixed() + drawn, turn, 1);
  }
};

}  // namespace
}  // namespace attune
