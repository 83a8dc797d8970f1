// Which rows or keys of which sequence a block of the training attention handles.
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

/** A sequence and its tiles: one per ROWS of length · rowsPerToken. */
template <Tiles TILES, int ROWS>
struct TiledSequence : Sequence {
  int tiles = 0;
  int least = 0;  // how many tiles of work its shortest tile has less one: rows that see a prefix have that before them

  /** Of a sequence that there is not, none. */
  static __device__ TiledSequence of(const CausalAttentionArgs& a, int index, bool isThere, int rowsPerToken) {
    TiledSequence found;
    if (!isThere) return found;
    static_cast<Sequence&>(found) = Sequence::of<TILES>(a, index);
    if (TILES != Tiles::Keys || found.prefixLength >= 0) found.tiles = (found.length * rowsPerToken + ROWS - 1) / ROWS;
    if (TILES == Tiles::PrefixedRows) found.least = max(found.prefixLength, 0) * rowsPerToken / ROWS;
    return found;
  }

  /** The place of tile `tile` of the sequence that lane `from` holds. */
  __device__ Place placeFrom(int from, int tile) const {
    constexpr unsigned kAll = 0xFFFFFFFF;
    Place place;
    place.start = __shfl_sync(kAll, start, from);
    place.length = __shfl_sync(kAll, length, from);
    place.prefixStart = place.start;
    if (TILES == Tiles::PrefixedRows) {
      const int given = __shfl_sync(kAll, prefixStart, from);
      place.prefixLength = max(__shfl_sync(kAll, prefixLength, from), 0);
      if (place.prefixLength > 0) place.prefixStart = given;
    }
    place.seen = TILES == Tiles::FamilyKeys ? __shfl_sync(kAll, seen, from) : place.length;
    place.tiles = __shfl_sync(kAll, tiles, from);
    place.tile = tile;
    return place;
  }
};

constexpr int kLastSequences = 8;

/**
 * The place of tile number `index`: sequences in order, so that the blocks of a sequence read the same keys at the same time, and their tiles
 * by work, the longest first. Of the last sequences all tiles are in one order, so that the last blocks to begin are short ones.
 */
template <Tiles TILES, int ROWS = kBlockRows>
__device__ inline Place placeOf(const CausalAttentionArgs& a, int index, int rowsPerToken) {
  using Tiled = TiledSequence<TILES, ROWS>;
  constexpr unsigned kAll = 0xFFFFFFFF;
  const int lane = threadIdx.x % 32, count = static_cast<int>(TILES == Tiles::FamilyKeys ? a.familyCount : a.count);
  const int inOrder = max(count - kLastSequences, 0);
  int before = 0;
  for (int base = 0; base < inOrder; base += 32) {
    const Tiled sequence = Tiled::of(a, base + lane, base + lane < inOrder, rowsPerToken);
    int through = sequence.tiles;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(kAll, through, offset);
      if (lane >= offset) through += other;
    }
    through += before;
    if (const unsigned past = __ballot_sync(kAll, through > index); past != 0) {
      const int from = __ffs(static_cast<int>(past)) - 1;
      return sequence.placeFrom(from, index - __shfl_sync(kAll, through - sequence.tiles, from));
    }
    before = __shfl_sync(kAll, through, 31);
  }

  index -= before;
  const Tiled last = Tiled::of(a, inOrder + lane, inOrder + lane < count, rowsPerToken);
  const auto tilesFrom = [&](int rank) { return __reduce_add_sync(kAll, min(max(last.least + last.tiles - rank, 0), last.tiles)); };
  if (tilesFrom(0) <= index) return {};
  int rank = 0, above = __reduce_max_sync(kAll, last.least + last.tiles), longer = 0;  // so many tiles have the rank `above` or more
  while (above - rank > 1) {
    const int middle = (rank + above) / 2, tiles = tilesFrom(middle);
    if (tiles > index)
      rank = middle;
    else
      above = middle, longer = tiles;
  }
  const bool has = last.least <= rank && rank < last.least + last.tiles;
  const unsigned lanesBefore = __ballot_sync(kAll, has) & ((1u << lane) - 1);
  const int from = __ffs(static_cast<int>(__ballot_sync(kAll, has && __popc(lanesBefore) == index - longer))) - 1;
  return last.placeFrom(from, __shfl_sync(kAll, last.tiles - 1 - (rank - last.least), from));
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
