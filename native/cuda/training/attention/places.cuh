// Which rows or keys of which sequence a block of training's attention has.
#pragma once
#include "cuda/attention/tile.cuh"
#include "cuda/training/attention/kernels.h"

namespace attune {

constexpr int kBlockRows = 64;  // rows or keys of a block
constexpr int kBlockWarps = kBlockRows / kTile, kBlockThreads = 32 * kBlockWarps;

/** Division by the heads of a kv head, for numbers below 2³² / divisor. */
class Divisor {
 public:
  explicit __device__ Divisor(int divisor) : inverse_(divisor == 1 ? 0 : 0xFFFFFFFFu / static_cast<unsigned>(divisor) + 1) {}
  __device__ int operator()(int x) const { return inverse_ == 0 ? x : static_cast<int>(__umulhi(static_cast<unsigned>(x), inverse_)); }

 private:
  unsigned inverse_;
};

/** Tile `tile` of `tiles` of a sequence. */
struct Place {
  int start, length;  // of the sequence; length 0: this block has nothing to do
  int tile, tiles;
};

/** The place of tile number `index`: sequences in order, each with one tile per kBlockRows of length · rowsPerToken. */
__device__ inline Place placeOf(const CausalAttentionArgs& a, int index, int rowsPerToken) {
  const int lane = threadIdx.x % 32, count = static_cast<int>(a.count), tokens = static_cast<int>(a.tokens);
  for (int base = 0, before = 0; base < count; base += 32) {
    int2 sequence{0, 0};
    if (base + lane < count) sequence = reinterpret_cast<const int2*>(a.sequences)[base + lane];
    sequence.x = min(max(sequence.x, 0), tokens);  // never outside of the tensors, whatever was given
    sequence.y = min(max(sequence.y, 0), tokens - sequence.x);
    const int tiles = (sequence.y * rowsPerToken + kBlockRows - 1) / kBlockRows;
    int through = tiles;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFF, through, offset);
      if (lane >= offset) through += other;
    }
    through += before;
    const unsigned past = __ballot_sync(0xFFFFFFFF, through > index);
    if (past != 0) {
      const int from = __ffs(static_cast<int>(past)) - 1;
      Place place;
      place.start = __shfl_sync(0xFFFFFFFF, sequence.x, from);
      place.length = __shfl_sync(0xFFFFFFFF, sequence.y, from);
      place.tiles = __shfl_sync(0xFFFFFFFF, tiles, from);
      place.tile = index - __shfl_sync(0xFFFFFFFF, through - tiles, from);
      return place;
    }
    before = __shfl_sync(0xFFFFFFFF, through, 31);
  }
  return {0, 0, 0, 0};
}

/** At least as many blocks as there are tiles of all kv heads, without knowing the lengths. */
inline unsigned blocksOf(const CausalAttentionArgs& a, int64_t rowsPerToken) {
  return static_cast<unsigned>((a.tokens * rowsPerToken / kBlockRows + a.count) * a.groups);
}

/** The sequence and kv head of a block, whose tiles are of rows or of keys. */
struct Part {
  int share, group;
  Place place;
  Divisor query;  // of a row
  int rows;

  __device__ Part(const CausalAttentionArgs& a, bool ofRows)
      : share(a.share),
        group(static_cast<int>(blockIdx.x % static_cast<unsigned>(a.groups))),
        place(placeOf(a, static_cast<int>(blockIdx.x / static_cast<unsigned>(a.groups)), ofRows ? share : 1)),
        query(share),
        rows(place.length * share) {}

  /** Where the rows' numbers begin in lse and dots. */
  __device__ int64_t statistics(const CausalAttentionArgs& a) const { return (group * a.tokens + place.start) * share; }
};

/** A block of rows and the keys that they see. */
struct RowBlock {
  int first, lastQuery;  // the block's first row, the last query of its rows
  int warpRow;  // the first of this warp's rows
  int firstQuery, lastSeen;  // of the warp: its first query, and the last key that it sees; −1 where it has no row
  int mine[2];  // the queries of this lane's rows, warpRow + g and + 8

  explicit __device__ RowBlock(const Part& part) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    first = (part.place.tiles - 1 - part.place.tile) * kBlockRows;  // the last rows see the most keys: they begin first
    lastQuery = min(part.query(first + kBlockRows - 1), part.place.length - 1);
    warpRow = first + warp * kTile;
    firstQuery = part.query(warpRow);
    lastSeen = warpRow < part.rows ? min(part.query(warpRow + kTile - 1), lastQuery) : -1;
    mine[0] = part.query(warpRow + g), mine[1] = part.query(warpRow + g + 8);
  }
};

}  // namespace attune
