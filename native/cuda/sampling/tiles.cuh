// A row shared by the blocks of a cluster, in tiles of 1,280 words, one per warp. Sums over a tile are in a fixed order.
#pragma once
#include "cuda/sampling/bins.cuh"
#include "cuda/sampling/lanes.cuh"
#include "cuda/sampling/rows.cuh"

namespace attune {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kTile = 1280, kOfLane = kTile / 32, kMostTiles = 256, kMostBlocks = 8;
constexpr int kLowOfHole = 24;  // bits of a mass: the low ones of all warps and the high ones of all words add up to less than 2³²

// Where the search for a cut stands: the orders to count, or what was found.
struct Finding {
  Range range;
  bool isFilled, done, byMass, mayHaveHole;
  float least, cut;  // weights below `least` do not count
};

struct Shared {
  float2 tiles[kMostTiles];  // of the whole row: the largest logit z, and Σ e^((z − largest)/T), negative where one is NaN
  float holes[kMostTiles];  // of words that were counted in the hole of their range (bins.cuh), relative to that largest logit
  float kept[kMostTiles];  // the mass that the cuts leave
  uint64_t arrived[kMostTiles];  // barriers of the block's tiles
  float peak, total, hole;
  // of the search
  Finding finding;
  alignas(8) unsigned ofHole[2];  // the mass of the block's words in the hole's bin, low bits and the rest
  unsigned long long target, sums[kWarps], before;
  int bin;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/** All threads of the cluster wait for each other. */
__device__ inline void meet() {
  __syncwarp();
  clusterArrive();
  clusterWait();
}

template <typename T>
struct Tiles {
  static constexpr int kPiece = 16 / sizeof(T), kPieces = kOfLane / kPiece;
  using Piece = Run<T, kPiece>;

  Shared& shared;
  T* words;  // the block's tiles
  const SampleArgs& args;
  int64_t row;
  int rank, blocks;  // of the cluster
  int perBlock, tiles, own;  // tiles of a block, of the row, of this block
  int lane, warp;
  float inverse = 1, peak = 0, total = 0;  // 1/T, the row's largest logit, Σ e^((z − peak)/T)
  float scale = 1;  // log2(e)/T
  bool hasNaN = false;  // known to the warps that draw

  __device__ T* tile(int i) const { return words + i * kTile; }
  __device__ float weight(float z) const { return powerOf2((z - peak) * scale); }

  // A logit that is smaller than those of all words with this weight or more.
  __device__ float logitBelow(float w) const {
    const float down = __fdividef(__log2f(w), scale);
    return fmaxf(peak + down - 1e-4f * (1.0f + fabsf(peak) - down), -3e38f);
  }

  // Before the row is there: barriers that tell a warp when its tiles have arrived.
  __device__ void prepare() {
    if (lane == 0) {
#pragma unroll 1
      for (int i = warp; i < own; i += kWarps) initBarrier(&shared.arrived[i]);
      publishBarriers();
    }
    __syncwarp();
  }

  // Starts to copy the block's tiles into shared memory; beyond the row's end they are −∞.
  __device__ void load() {
    const int64_t first = static_cast<int64_t>(rank) * perBlock * kTile, count = args.size - first;
    const T* from = static_cast<const T*>(args.logits) + row * args.size + first;
    const bool isAligned = args.size % kPiece == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
#pragma unroll 1
    for (int i = warp; i < own; i += kWarps) {
      const T* source = from + i * kTile;
      const int words = static_cast<int>(min(static_cast<int64_t>(kTile), count - i * kTile));
      const unsigned bytes = isAligned ? words * sizeof(T) : 0;
      if (lane == 0) {
        expectBytes(&shared.arrived[i], bytes);
        if (bytes > 0) copyBulk(tile(i), source, bytes, &shared.arrived[i]);
      }
      if (isAligned && words == kTile) continue;
#pragma unroll 8
      for (int j = lane; j < kTile; j += 32)
        if (j >= words || !isAligned) tile(i)[j] = j < words ? source[j] : narrow<T>(-INFINITY);
    }
    __syncwarp();
  }

  __device__ static float largestOf(const Piece* held, int pieces) {
    if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      __nv_bfloat162 top = reinterpret_cast<const __nv_bfloat162*>(held)[0];
#pragma unroll
      for (int i = 1; i < pieces * kPiece / 2; i++) top = __hmax2(top, reinterpret_cast<const __nv_bfloat162*>(held)[i]);
      return fmaxf(wide(__low2bfloat16(top)), wide(__high2bfloat16(top)));
    } else {
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < pieces; j++)
#pragma unroll
        for (int k = 0; k < kPiece; k++) top = fmaxf(top, held[j][k]);
      return top;
    }
  }

  // The sum of a tile that has words without a weight, which are NaN or +∞: that of the others, as a negative number.
  __device__ float sumWithoutNaN(int i, float base) const {
    float sum = 0;
#pragma unroll 1
    for (int j = lane; j < kTile; j += 32) {
      const float w = powerOf2(fmaf(wide(tile(i)[j]), scale, base));
      sum += isnan(w) ? 0.0f : w;
    }
    return -sumOfLanes(sum);
  }

  // A tile's sum is relative to 2^scaled(its largest logit), as that is rounded.
  __device__ float scaled(float largest) const { return largest == -INFINITY ? 0.0f : __fmul_rn(largest, scale); }

  // Tells all blocks the largest logit and the sum of each of the block's tiles, as they arrive, and what count(tile, −scaled(that logit))
  // returns.
  template <typename Count>
  __device__ void measureTiles(const Count& count) {
#pragma unroll 1
    for (int i = warp; i < own; i += kWarps) {
      waitForBytes(&shared.arrived[i]);
      Piece held[kPieces];
#pragma unroll
      for (int j = 0; j < kPieces; j++) held[j].load(tile(i) + (j * 32 + lane) * kPiece);
      const float top = largestOfLanes(fmaxf(largestOf(held, kPieces), -INFINITY)), base = -scaled(top);  // −∞ where all are NaN
      float sums[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < kPieces; j++)
#pragma unroll
        for (int k = 0; k < kPiece; k++) sums[k % 2] += powerOf2(fmaf(held[j][k], scale, base));
      float sum = sumOfLanes(sums[0] + sums[1]);
      if (isnan(sum)) sum = sumWithoutNaN(i, base);
      const float counted = count(i, base);
      __syncwarp();
      if (i == warp) clusterWait();  // all blocks have begun: their shared memory may be written
      if (lane < blocks) {
        const int at = rank * perBlock + i;
        *ofBlock(&shared.tiles[at], lane) = make_float2(top, sum);
        *ofBlock(&shared.holes[at], lane) = counted;
      }
    }
    if (own <= warp) clusterWait();
  }

  // The weight of a tile's largest logit: what its sums are relative to.
  __device__ float unitOf(float largest) const { return powerOf2(fmaf(-peak, scale, scaled(largest))); }

  // The row's largest logit and sum, by one warp. Without cuts all of a tile's mass is kept.
  __device__ void sumTiles(bool hasCut) {
    constexpr int kEach = kMostTiles / 32;
    float2 held[kEach];
    float top = -INFINITY, sum = 0, hole = 0;
    bool isNegative = false;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      held[i] = i * 32 + lane < tiles ? shared.tiles[i * 32 + lane] : make_float2(-INFINITY, 0.0f);
      top = fmaxf(top, held[i].x);
      isNegative |= signbit(held[i].y);
      held[i].y = fabsf(held[i].y);
    }
    hasNaN = __any_sync(0xFFFFFFFF, isNegative);
    peak = largestOfLanes(top);
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const float unit = held[i].y > 0 ? unitOf(held[i].x) : 0.0f;
      sum += held[i].y * unit;
      if (hasCut)
        hole += i * 32 + lane < tiles ? shared.holes[i * 32 + lane] * unit : 0.0f;
      else
        shared.kept[i * 32 + lane] = held[i].y * unit;
    }
    __syncwarp();
    total = sumOfLanes(sum);
    hole = sumOfLanes(hole);
    if (lane == 0) shared.peak = peak, shared.total = total, shared.hole = hole;
  }

  /** Whether a lane has a word from `least` on. */
  __device__ static bool anyFrom(float least, const Piece& piece) { return __any_sync(0xFFFFFFFF, largestOf(&piece, 1) >= least); }

  // Tells all blocks the mass of the words from the cut on in each of the block's tiles.
  __device__ void measureKept(float cut) {
    const float least = cut > 0 ? logitBelow(cut) : -INFINITY;
    for (int i = warp; i < own; i += kWarps) {
      const int at = rank * perBlock + i;
      float sum = 0, sums[2] = {0, 0};
      if (shared.tiles[at].x >= least) {
#pragma unroll 1
        for (int j = 0; j < kPieces; j++) {
          Piece piece;
          piece.load(tile(i) + (j * 32 + lane) * kPiece);
          if (!anyFrom(least, piece)) continue;
#pragma unroll
          for (int k = 0; k < kPiece; k++) sums[k % 2] += keptOf(piece[k], cut);
        }
        sum = sumOfLanes(sums[0] + sums[1]);
      }
      if (lane < blocks) *ofBlock(&shared.kept[at], lane) = sum;
    }
  }

  // Draws from the tiles by the masses that are kept of them: among the lanes' runs of neighbouring tiles, then those of the run. By one
  // warp of each block.
  __device__ void draw(double uniform, float cut) {
    constexpr int kEach = kMostTiles / 32;
    const auto keptOfTile = [&](int i) { return i < tiles ? shared.kept[i] : 0.0f; };
    double ofLane = 0;
#pragma unroll
    for (int k = 0; k < kEach; k++) ofLane += keptOfTile(lane * kEach + k);
    double whole = ofLane;
    for (int offset = 16; offset > 0; offset /= 2) whole += __shfl_xor_sync(0xFFFFFFFF, whole, offset);
    double left = uniform * whole;
    const int run = takeLane(ofLane, left) * kEach;
    float target = static_cast<float>(left);
    const int mine = run + takeLane(lane < kEach ? keptOfTile(run + lane) : 0.0f, target) - rank * perBlock;
    if (mine < 0 || mine >= own) return;
    const int pick = drawFrom(tile(mine), target, cut);
    if (lane == 0) finish(mine, pick, cut > 0 ? fminf(1.0f, static_cast<float>(whole) / total) : 1.0f);
  }

  // The weight of a word, or 0 below the cut.
  __device__ float keptOf(float z, float cut) const {
    const float w = weight(z);
    return w >= cut ? w : 0.0f;
  }
  __device__ float keptOfPiece(const T* from, float cut) const {
    Piece piece;
    piece.load(from);
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kPiece; k++) sum += keptOf(piece[k], cut);
    return sum;
  }
  // Where in a tile the running sum of the weights from the cut on exceeds the target: among the lanes' runs of neighbouring words, then
  // the pieces of the run, then the words of the piece.
  __device__ int drawFrom(const T* from, float target, float cut) const {
    float sum = 0;
#pragma unroll 1
    for (int j = 0; j < kPieces; j++) sum += keptOfPiece(from + lane * kOfLane + j * kPiece, cut);
    int first = takeLane(sum, target) * kOfLane;
    const float ofPiece = keptOfPiece(from + first + min(lane, kPieces - 1) * kPiece, cut);
    first += takeLane(lane < kPieces ? ofPiece : 0.0f, target) * kPiece;
    return first + takeLane(lane < kPiece ? keptOf(wide(from[first + lane]), cut) : 0.0f, target);
  }

  // The first of the likeliest words, or word 0 where none is possible, by one warp of each block.
  __device__ void takeLikeliest() {
    int from = tiles;
#pragma unroll 1
    for (int i = lane; i < tiles; i += 32)
      if (shared.tiles[i].x >= peak) from = min(from, i);
    const int mine = __reduce_min_sync(0xFFFFFFFF, from) - rank * perBlock;
    if (mine < 0 || mine >= own) return;
    int pick = kTile;
#pragma unroll 1
    for (int j = 0; j < kPieces; j++) {
      Piece piece;
      piece.load(tile(mine) + (j * 32 + lane) * kPiece);
      for (int k = 0; k < kPiece; k++)
        if (piece[k] >= peak) pick = min(pick, (j * 32 + lane) * kPiece + k);
    }
    pick = __reduce_min_sync(0xFFFFFFFF, pick);
    if (lane == 0) finish(mine, peak > -INFINITY ? pick : 0, 1.0f);
  }

  __device__ void finish(int mine, int pick, float kept) const {
    const int64_t id = (static_cast<int64_t>(rank) * perBlock + mine) * kTile + pick;
    const float logp = (wide(tile(mine)[pick]) - peak) * inverse - logf(total);
    finishRow(args, row, min(id, args.size - 1), hasNaN ? NAN : logp, kept);
  }
};
#endif

}  // namespace attune
