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

/** What the tiles of a kernel's blocks are of. */
enum class Tiles {
  Rows,  // of all sequences, none of which has a prefix
  PrefixedRows,  // of all sequences
  Keys,  // of the sequences that no other continues
  FamilyKeys,  // of the others; a cluster of blocks has one tile
};

struct Sequence {
  int start = 0, length = 0;
  int prefixStart = 0, prefixLength = 0;  // its prefix; where it has none, its own start and 0; −1: others continue it
  int seen = 0;  // of FamilyKeys: so many tokens from `start` on have queries that see its keys

  /** Never outside of the tensors, whatever was given. */
  template <Tiles TILES>
  static __device__ Sequence of(const CausalAttentionArgs& a, int index) {
    const auto between = [](int x, int least, int most) { return min(max(x, least), most); };
    const int tokens = static_cast<int>(a.tokens);
    Sequence found;
    if (TILES == Tiles::FamilyKeys) {
      const int32_t* const row = a.families + 3 * index;
      found.start = between(row[0], 0, tokens), found.length = between(row[1], 0, tokens - found.start);
      found.seen = between(row[2], found.length, tokens - found.start);
    } else {
      const int4 row = reinterpret_cast<const int4*>(a.sequences)[index];
      found.start = between(row.x, 0, tokens), found.length = between(row.y, 0, tokens - found.start);
      found.prefixStart = between(row.z, 0, tokens), found.prefixLength = between(row.w, -1, tokens - found.prefixStart);
    }
    return found;
  }
};

/** Tile `tile` of `tiles` of a sequence. */
struct Place : Sequence {  // length 0: this block has nothing to do
  int tile = 0, tiles = 0;
};

/** The place of tile number `index`: sequences in order, each with one tile per ROWS of length · rowsPerToken. */
template <Tiles TILES, int ROWS = kBlockRows>
__device__ inline Place placeOf(const CausalAttentionArgs& a, int index, int rowsPerToken) {
  constexpr bool kFamilies = TILES == Tiles::FamilyKeys;
  const int lane = threadIdx.x % 32, count = static_cast<int>(kFamilies ? a.familyCount : a.count);
  for (int base = 0, before = 0; base < count; base += 32) {
    Sequence sequence;
    if (base + lane < count) sequence = Sequence::of<TILES>(a, base + lane);
    int tiles = (sequence.length * rowsPerToken + ROWS - 1) / ROWS;
    if (TILES == Tiles::Keys && sequence.prefixLength < 0) tiles = 0;
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
      place.start = __shfl_sync(0xFFFFFFFF, sequence.start, from);
      place.length = __shfl_sync(0xFFFFFFFF, sequence.length, from);
      place.prefixStart = place.start;
      if (TILES == Tiles::PrefixedRows) {
        const int prefixStart = __shfl_sync(0xFFFFFFFF, sequence.prefixStart, from);
        place.prefixLength = max(__shfl_sync(0xFFFFFFFF, sequence.prefixLength, from), 0);
        if (place.prefixLength > 0) place.prefixStart = prefixStart;
      }
      place.seen = kFamilies ? __shfl_sync(0xFFFFFFFF, sequence.seen, from) : place.length;
      place.tiles = __shfl_sync(0xFFFFFFFF, tiles, from);
      place.tile = index - __shfl_sync(0xFFFFFFFF, through - tiles, from);
      return place;
    }
    before = __shfl_sync(0xFFFFFFFF, through, 31);
  }
  return {};
}

/** At least as many blocks as there are tiles of all kv heads, without knowing the lengths; `rows` are rows or keys of `count` sequences. */
template <int ROWS = kBlockRows>
inline unsigned blocksOf(const CausalAttentionArgs& a, int64_t rows, int64_t count) {
  return static_cast<unsigned>((rows / ROWS + count) * a.groups);
}

/** The sequence and kv head of a block, or of block `number` where blocks are counted otherwise. */
template <Tiles TILES>
struct Part {
  static constexpr bool kOfRows = TILES == Tiles::Rows || TILES == Tiles::PrefixedRows;
  int share, group;
  Place place;
  Divisor query;  // of a row
  int rows;  // of the sequence, or those that see its keys

  __device__ Part(const CausalAttentionArgs& a, unsigned number)
      : share(a.share),
        group(static_cast<int>(number % static_cast<unsigned>(a.groups))),
        place(placeOf<TILES>(a, static_cast<int>(number / static_cast<unsigned>(a.groups)), kOfRows ? share : 1)),
        query(share),
        rows(place.seen * share) {}

  /** Where the rows' numbers begin in lse and dots. */
  __device__ int64_t statistics(const CausalAttentionArgs& a) const { return (group * a.tokens + place.start) * share; }
};

/** A block of rows and the keys that they see. Keys are counted from the prefix's first: a query sees keys up to its own number. */
struct RowBlock {
  int first, lastQuery;  // the block's first row, the last query of its rows
  int warpRow;  // the first of this warp's rows
  int firstQuery, lastSeen;  // of the warp: its first query, and the last key that it sees; −1 where it has no row
  int mine[2];  // the queries of this lane's rows, warpRow + g and + 8

  template <Tiles TILES>
  explicit __device__ RowBlock(const Part<TILES>& part) {
    const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, before = part.place.prefixLength;
    first = (part.place.tiles - 1 - part.place.tile) * kBlockRows;  // the last rows see the most keys: they begin first
    lastQuery = before + min(part.query(first + kBlockRows - 1), part.place.length - 1);
    warpRow = first + warp * kTile;
    firstQuery = before + part.query(warpRow);
    lastSeen = warpRow < part.rows ? min(before + part.query(warpRow + kTile - 1), lastQuery) : -1;
    mine[0] = before + part.query(warpRow + g), mine[1] = before + part.query(warpRow + g + 8);
  }
};

}  // namespace attune
