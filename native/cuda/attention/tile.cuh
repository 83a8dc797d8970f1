// Shared by the attention kernels on tensor cores: tiles of sixteen keys and values in shared memory, and a warp's attention over them.
// PlainCache describes a cache in the model's dtype to a kernel; eight_bit_tile.cuh has the counterpart for 8 bits.
#pragma once
#include "cuda/head.cuh"
#include "cuda/mma.cuh"

namespace attune {

constexpr int kTile = 16;  // keys: a tile lies within a block of the cache

/** The largest power of two that is not larger. */
constexpr int powerBelow(int x) { return x < 2 ? 1 : 2 * powerBelow(x / 2); }

/**
 * Where the numbers of a tile lie, of D numbers of 16 bits a row. A tile is as in the cache, but 16-byte pieces of a row change places,
 * so that the same piece of eight rows lies in all banks.
 */
template <int D>
struct Tile {
  static constexpr int kPieces = D / 8, kNumbers = kTile * D;
  static constexpr int kLines = powerBelow(32 / kPieces);  // rows that a warp copies at a time
  static constexpr int kSwaps = kPieces % 8 == 0 ? 8 : kPieces % 4 == 0 ? 4 : 2;  // pieces that change places with each other
  /** What a piece's place differs by in a row; swap(i + j) is swap(i) ^ swap(j) where kLines divides i and j is less. */
  static __device__ int swap(int row) { return row / (8 / kSwaps) % kSwaps; }
  static __device__ int at(int row, int piece) { return row * D + (piece ^ swap(row)) * 8; }
  /** The place an even number of pieces after that of a row's first or second. */
  static __device__ int after(int place, int pieces) {
    constexpr int kChange = kSwaps - 1;
    return (place ^ (pieces & kChange) * 8) + (pieces & ~kChange) * 8;
  }
};

/** Queries in shared memory: lane (g, t) of a product takes numbers 2t, 2t + 1 of every eight of row g, so these lie together. */
template <int D>
struct QueryRow {
  static constexpr int kQuarter = D / 4 + 8, kNumbers = 4 * kQuarter;  // so that lanes read different banks
  static __device__ int at(int d) { return d / 2 % 4 * kQuarter + d / 8 * 2 + d % 2; }
};

/** A warp copies the first `count` rows of a tile of keys and of values, `stride` numbers from row to row; zeros for the rest. */
template <typename T, int D, bool KEYS, bool VALUES>
__device__ inline void copyTile(T* to, const T* keys, const T* values, int64_t stride, int count) {
  constexpr int kPieces = Tile<D>::kPieces, kLines = Tile<D>::kLines, kNumbers = Tile<D>::kNumbers;
  const int lane = threadIdx.x % 32, line = lane / kPieces, piece = lane % kPieces ^ Tile<D>::swap(line);
  if (line >= kLines) return;
  keys += line * stride + lane % kPieces * 8, values += line * stride + lane % kPieces * 8, to += line * D;
#pragma unroll
  for (int i = 0; i < kTile; i += kLines) {
    T* place = to + i * D + (piece ^ Tile<D>::swap(i)) * 8;
    if (KEYS) copyAsync<16>(place, keys, i + line < count);
    if (VALUES) copyAsync<16>(place + kNumbers, values, i + line < count);
    keys += kLines * stride, values += kLines * stride;
  }
}

/** A warp puts the new token's k and v, `newest` [2, D], into a row of a tile. */
template <typename T, int D>
__device__ inline void putIntoTile(T* tile, int row, const T* newest) {
  constexpr int kPieces = Tile<D>::kPieces;
  for (int i = threadIdx.x % 32; i < 2 * kPieces; i += 32) {
    const int piece = i % kPieces, ofValues = i / kPieces;
    *reinterpret_cast<uint4*>(tile + ofValues * Tile<D>::kNumbers + Tile<D>::at(row, piece)) =
        *reinterpret_cast<const uint4*>(newest + ofValues * D + piece * 8);
  }
}

/** Of a row's first and last tile: hides the scores (RunningAttention) of keys that are not among those from `first` to `last`. */
__device__ inline void hideKeys(float (&score)[4], int key, int first, int last) {
#pragma unroll
  for (int j = 0; j < 4; j++)
    if (key + j / 2 * 8 > last || key + j / 2 * 8 < first) score[j] = -INFINITY;
}

/** For what a caller has nothing to do. */
struct Nothing {
  __device__ void operator()() const {}
};

/**
 * A warp's attention over tiles, for eight columns: query heads of one row or of several. It keeps a running maximum and sum (online
 * softmax); exponents are to base 2.
 */
template <typename T, int D>
struct RunningAttention {
  static constexpr int kSteps = D / 16;
  float peak[2], total[2];  // of columns 2t and 2t + 1; the totals of this lane's keys
  float out[kSteps][4];  // dimensions 16·i + g and + 8, of columns 2t and 2t + 1

  __device__ RunningAttention() {
#pragma unroll
    for (int j = 0; j < 2; j++) peak[j] = -INFINITY, total[j] = 0;
#pragma unroll
    for (int i = 0; i < kSteps; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) out[i][j] = 0;
  }

  /**
   * scores[keys, columns] = K·Qᵀ, then out[dimensions, columns] += Vᵀ·weights. `queries` is this lane's quarter of its row.
   * `change` may add to the scores or hide them: 0 and 1 are of key g and columns 2t and 2t + 1, 2 and 3 of key g + 8, after the keys
   * that its second argument says. `keysAreRead` is called when the tile's keys are no longer needed, `awaitValues` before its values are.
   */
  template <typename Change, typename KeysAreRead = Nothing, typename AwaitValues = Nothing>
  __device__ void add(const char* own, const T* queries, float scale, Change change, KeysAreRead keysAreRead = {},
                      AwaitValues awaitValues = {}) {
    const T* const tile = reinterpret_cast<const T*>(own);
    const int lane = threadIdx.x % 32;
    // the rows of the first matrices that this lane reads for the warp
    const int keyPlace = Tile<D>::at(lane % 16, lane / 16);
    const int valuePlace = Tile<D>::kNumbers + Tile<D>::at(lane % 8 + lane / 16 * 8, lane / 8 % 2);
    float score[4] = {}, more[4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      const uint4 q = *reinterpret_cast<const uint4*>(queries + step * 4);
      unsigned k[4];
      loadMatrices(k, tile + Tile<D>::after(keyPlace, 2 * step));
      multiply<T>(score, k[0], k[1], k[2], k[3], q.x, q.y);
      loadMatrices(k, tile + Tile<D>::after(keyPlace, 2 * step + 2));
      multiply<T>(more, k[0], k[1], k[2], k[3], q.z, q.w);
    }
    keysAreRead();
#pragma unroll
    for (int j = 0; j < 4; j++) score[j] = (score[j] + more[j]) * scale;
    change(score, 0);
    float fade[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float top = fmaxf(score[j], score[j + 2]);
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, offset));
      top = fmaxf(top, peak[j]);
      const float base = top == -INFINITY ? 0.0f : top;  // where nothing was seen yet, all weights are 0
      fade[j] = powerOf2(peak[j] - base);
      peak[j] = top;
      score[j] = powerOf2(score[j] - base);
      score[j + 2] = powerOf2(score[j + 2] - base);
      total[j] = total[j] * fade[j] + score[j] + score[j + 2];
    }
    if (__any_sync(0xFFFFFFFF, fade[0] < 1 || fade[1] < 1)) {
#pragma unroll
      for (int i = 0; i < kSteps; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[i][j] *= fade[j % 2];
    }
    const unsigned first = transposed(pack<T>(score[0], score[1])), second = transposed(pack<T>(score[2], score[3]));
    awaitValues();
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      unsigned v[4];
      loadTransposed(v, tile + Tile<D>::after(valuePlace, 2 * i));
      multiply<T>(out[i], v[0], v[1], v[2], v[3], first, second);
    }
  }

  /** Adds up the totals of all lanes. */
  __device__ void finish() {
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], offset);
  }

  /** Writes column 2t + j, D numbers: with columns 4 more than a multiple of 32 apart, lanes write different banks. */
  __device__ void store(int j, float* column) const {
    column += threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kSteps; i++) column[16 * i] = out[i][j], column[16 * i + 8] = out[i][j + 2];
  }

  /** The same to the blocks of a cluster, each of which has PART dimensions of the column; barriers there count the bytes. */
  template <int PART>
  __device__ void send(int j, const float* column, const uint64_t* barrier) const {
    column += threadIdx.x % 32 / 4;
#pragma unroll
    for (int to = 0; to < D / PART; to++) {
      const unsigned arrived = addressOf(barrier, to), sums = addressOf(column, to);
#pragma unroll
      for (int d = 0; d < PART; d += 8) {
        const int dimensions = (to * PART + d) / 8;  // 8 of them, one for each g
        storeAsync(sums + d * static_cast<int>(sizeof(float)), out[dimensions / 2][j + dimensions % 2 * 2], arrived);
      }
    }
  }
};

/** A cache in the model's dtype, for kernels that are told by a template which cache they have. */
template <typename T, int D>
struct PlainCache {
  using Model = T;
  static constexpr int kSize = D;
  using Query = T;  // of which type queries are in shared memory
  using Queries = QueryRow<D>;
  using Running = RunningAttention<T, D>;
  static constexpr int kKeys = kTile, kBytesOfNumbers = 2 * Tile<D>::kNumbers * static_cast<int>(sizeof(T)), kBytesOfTile = kBytesOfNumbers;
  static constexpr int kBytesOfNewest = 2 * D * static_cast<int>(sizeof(T));
  static constexpr int kTurnsOfFew = D == 128 ? 8 : 2;  // for how many turns of blocks few.cuh is the faster one
  static constexpr int kEachOfFew = 1;  // kv heads that a block of it takes where there are enough
  static constexpr bool kIsLone = false;  // whether lone.cuh is for it

  /** A warp puts a query head into its row in shared memory; a lane holds numbers lane, lane + 32 … */
  static __device__ void putQuery(const float (&values)[Head<T, D>::kEach], T* row) {
#pragma unroll
    for (int i = 0; i < Head<T, D>::kEach; i++) row[Queries::at(threadIdx.x % 32 + 32 * i)] = narrow<T>(values[i]);
  }
  /** What a lane's scores are multiplied with; `queries` are the rows that putQuery has written. */
  static __device__ float scoreScales(const T*, int, float scale) { return scale; }

  /** A warp asks for the first `count` keys and values of the tile at `place` (head.cuh) of the cache, or for one of both. */
  template <bool KEYS = true, bool VALUES = true>
  static __device__ void copy(char* tile, const AttentionArgs& a, int64_t place, int group, int count) {
    const int groups = static_cast<int>(a.groups);
    const int64_t from = (place * groups + group) * D;
    copyTile<T, D, KEYS, VALUES>(reinterpret_cast<T*>(tile), static_cast<const T*>(a.keys) + from, static_cast<const T*>(a.values) + from,
                                 groups * D, count);
  }

  /** A warp writes the new token's k (which 0) or v (1) to shared memory, and to the cache where `toCache`. */
  static __device__ void write(const AttentionArgs& a, int64_t place, int group, int which, const Head<T, D>& head, char* newest,
                               bool toCache) {
    T *cache = static_cast<T*>(which == 0 ? a.keys : a.values) + (place * static_cast<int>(a.groups) + group) * D,
      *own = reinterpret_cast<T*>(newest) + which * D;
    head.store([&](int d, float x) {
      own[d] = narrow<T>(x);
      if (toCache) cache[d] = narrow<T>(x);
    });
  }

  /** A warp puts what `write` left into a row of a tile. */
  static __device__ void put(char* tile, int row, const char* newest) {
    putIntoTile<T, D>(reinterpret_cast<T*>(tile), row, reinterpret_cast<const T*>(newest));
  }

  // —— of a row at position 0: its result is its value ——
  static __device__ void finishAlone(Running&, const char*) {}
  /** Number d of the value that `write` left. */
  static __device__ float valueAlone(const char* newest, int d) { return wide(reinterpret_cast<const T*>(newest)[D + d]); }
};

/** What warps have found for one head: the largest score, and at one dimension the sums of weights and of weighted values. */
struct JoinedWarps {
  float top = -INFINITY, all = 0, result = 0;

  /** Always in the same order. Warp i's peak and total are marks[i * marksApart], its sum is sums[i * sumsApart]. */
  template <int WARPS>
  __device__ void join(const float2* marks, int marksApart, const float* sums, int sumsApart) {
#pragma unroll
    for (int i = 0; i < WARPS; i++) top = fmaxf(top, marks[i * marksApart].x);
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      const float2 mark = marks[i * marksApart];
      const float fade = powerOf2(mark.x - top);
      all += mark.y * fade;
      result += sums[i * sumsApart] * fade;
    }
  }
};

}  // namespace attune
