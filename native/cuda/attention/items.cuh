// How the attention of a decoding step is divided among blocks (rows.cuh).
//
// A row's keys are grouped in tiles and cut into chunks of tiles. An item is one chunk of one row for one pair: a kv head, and up to eight
// of its query heads. Items are numbered with the long ones first: every chunk but the last of each row, then the last ones by length.
// Blocks take them in turns, so that all end at about the same time, however uneven the rows are. Only the positions on the device
// determine the items: a captured graph stays valid while rows grow.
//
// A row at position 0 sees only its own key, so its result is its value, and it has no items. The idle rows of a graph are such rows.
#pragma once
#include "cuda/attention/tile.cuh"

namespace attune {

constexpr int kMostChunks = 16;  // of a row
constexpr int kMostRows = 1024;  // of a launch
constexpr int kClasses = 4;  // of the last chunks, by their length

/** log2 of the tiles of a chunk, and of the longest rows that are not cut, by the size of a head: tiles of kTile keys. */
constexpr int chunkOf(int size) { return size > 128 ? 4 : size > 64 ? 5 : 6; }
constexpr int loneOf(int size) { return size > 128 ? 5 : 6; }

/** A row's tiles and chunks. Its own position alone says where they are cut, so that its result does not depend on other rows. */
template <int KEYS, int CHUNK>  // keys of a tile; log2 of a chunk's tiles, more where it had too many
struct Span {
  int first, last;  // tiles
  int shift;

  /** lone: log2 of the tiles of the longest rows that are not cut. */
  __host__ __device__ Span(int position, int window, int lone) {
    first = window > 0 && position - window + 1 > 0 ? (position - window + 1) / KEYS : 0;
    last = position / KEYS;
    shift = last - first < 1 << lone ? lone : CHUNK;
    for (int more = (last - first) / (kMostChunks << CHUNK); more > 0; more /= 2) shift++;
  }
  __host__ __device__ int chunks() const { return ((last - first) >> shift) + 1; }
  __host__ __device__ int begin(int chunk) const { return first + (chunk << shift); }
  __host__ __device__ int end(int chunk) const {  // the last tile of a chunk
    const int full = begin(chunk) + (1 << shift) - 1;
    return full < last ? full : last;
  }
  /** Of the last chunk: 0 for the longest. */
  __host__ __device__ int classOfLast() const { return kClasses - 1 - ((last - begin(chunks() - 1)) * kClasses >> shift); }
};

struct Item {
  int row, chunk, group, part;  // row: −1 where there is none
};

/** The numbers of all items of a launch; every block works them out by itself, from the positions. The arrays are in shared memory. */
template <int WARPS, int KEYS, int CHUNK, int LONE>
struct Dealing {
  using Of = Span<KEYS, CHUNK>;
  int *positions, *tables;  // [rows]
  unsigned short *starts, *order;  // [rows]: how many chunks but the last ones the rows before have; the rows by their last chunks
  int rows, groups, parts, window;
  int lone;
  unsigned whole, lasts, items;  // chunks but the last ones, and last ones, of a pair; items of all pairs

  static constexpr int kBytesOfRow = 2 * sizeof(int) + 2 * sizeof(unsigned short);

  __device__ Of span(int row) const { return Of(positions[row], window, lone); }

  /** By all threads of a block. `sums` is in shared memory. */
  __device__ void prepare(const AttentionArgs& a, unsigned (*sums)[3]) {
    const int threads = 32 * WARPS, each = (rows + threads - 1) / threads, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int from = threadIdx.x * each, to = min(rows, from + each);
    // the counts of a thread's rows: whole chunks, and last ones of each class, 16 bits each
    unsigned own[3] = {}, before[3], all[3] = {};
    for (int row = from; row < to; row++) {
      const int position = static_cast<int>(a.positions[row]);
      positions[row] = position;
      tables[row] = static_cast<int>(a.slots[row] * a.tableWidth);
      if (position == 0) continue;
      const Of span(position, window, lone);
      const int kind = span.classOfLast();
      own[0] += span.chunks() - 1;
      if (kind < 2)
        own[1] += 1u << 16 * kind;
      else
        own[2] += 1u << 16 * (kind - 2);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) {
      unsigned sum = own[i];
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const unsigned other = __shfl_up_sync(0xFFFFFFFF, sum, offset);
        if (lane >= offset) sum += other;
      }
      if (lane == 31) sums[warp][i] = sum;
      before[i] = sum - own[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; i++)
#pragma unroll
      for (int j = 0; j < 3; j++) {
        if (i < warp) before[j] += sums[i][j];
        all[j] += sums[i][j];
      }
    const unsigned second = all[1] & 0xFFFF, third = second + (all[1] >> 16), fourth = third + (all[2] & 0xFFFF);
    whole = all[0];
    lasts = fourth + (all[2] >> 16);
    items = (whole + lasts) * groups * parts;
    before[1] += second << 16;
    before[2] += third + (fourth << 16);
    for (int row = from; row < to; row++) {
      starts[row] = static_cast<unsigned short>(before[0]);
      if (positions[row] == 0) continue;
      const Of of = span(row);
      const int kind = of.classOfLast();
      before[0] += of.chunks() - 1;
      const unsigned places = kind < 2 ? before[1] : before[2], one = 1u << 16 * (kind % 2);
      order[places >> 16 * (kind % 2) & 0xFFFF] = static_cast<unsigned short>(row);
      if (kind < 2)
        before[1] += one;
      else
        before[2] += one;
    }
    __syncthreads();
  }

  __device__ Item item(unsigned number) const {
    if (number >= items) return {-1, 0, 0, 0};
    const unsigned pairs = groups * parts, which = number / pairs, pair = number % pairs;
    const int group = static_cast<int>(pair) / parts, part = static_cast<int>(pair) % parts;
    if (which >= whole) {
      const int row = order[which - whole];
      return {row, span(row).chunks() - 1, group, part};
    }
    int low = 0, high = rows;  // the last row that starts at `which` or before
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (starts[middle] <= which)
        low = middle;
      else
        high = middle;
    }
    return {low, static_cast<int>(which) - starts[low], group, part};
  }

  /** A block's items, one after the other: the blocks take the numbers in order, then in reverse order, and so on. */
  __device__ Item ofBlock(unsigned which) const {
    return item(which * gridDim.x + (which % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x));
  }
};

}  // namespace attune
