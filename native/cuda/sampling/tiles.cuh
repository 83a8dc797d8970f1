// A row shared by the blocks of a cluster, in tiles of 1,280 words. Each tile is a warp's; sums over it are in a fixed order.
#pragma once
#include "cuda/sampling/bins.cuh"
#include "cuda/sampling/lanes.cuh"
#include "cuda/sampling/rows.cuh"

namespace attune {

constexpr int kTile = 1280, kOfLane = kTile / 32, kMostTiles = 256, kMostBlocks = 8, kMostWarps = 16;

// Where the search for a cut stands: the orders to count, or what was found.
struct Finding {
  Range range;
  bool done, byMass, mayHaveHole;
  float least, cut;  // weights below `least` do not count
};

struct Shared {
  float2 tiles[kMostTiles];  // of the whole row: the largest logit z, and Σ e^((z − largest)/T)
  float kept[kMostTiles];  // the mass that the cuts leave
  float peak, total;
  // of the search
  Finding finding;
  unsigned ofHole[2];  // the mass of the block's words in the hole's bin, low 16 bits and the rest
  unsigned long long target, sums[kMostWarps], ofBlocks[kMostBlocks], before;
  int bin;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/** All threads of the cluster wait for each other. */
__device__ inline void meet() {
  __syncwarp();
  clusterArrive();
  clusterWait();
}

/** Waits until at most `left` groups of copies are under way. */
__device__ inline void waitForAllBut(int left) {
  switch (left) {
    case 0: waitForCopies<0>(); break;
    case 1: waitForCopies<1>(); break;
    case 2: waitForCopies<2>(); break;
    default: waitForCopies<3>();
  }
}

template <typename T, int THREADS>
struct Tiles {
  static constexpr int kThreads = THREADS, kWarps = THREADS / 32;
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

  __device__ T* tile(int i) const { return words + i * kTile; }
  __device__ float weight(float z) const { return expf((z - peak) * inverse); }

  // Starts to copy the block's tiles into shared memory; beyond the row's end they are −∞.
  __device__ void load() {
    const int64_t first = static_cast<int64_t>(rank) * perBlock * kTile, count = args.size - first;
    const T* from = static_cast<const T*>(args.logits) + row * args.size + first;
    const bool isAligned = args.size % kPiece == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
    for (int i = warp; i < own; i += kWarps) {
      const T* of = from + i * kTile + lane * kPiece;
      T* to = tile(i) + lane * kPiece;
      if (isAligned && (i + 1) * kTile <= count) {
#pragma unroll
        for (int j = 0; j < kPieces; j++) copyAsync<16>(to + j * 32 * kPiece, of + j * 32 * kPiece);
      } else {
        const int64_t left = count - i * kTile - lane * kPiece;
        for (int j = 0; j < kTile; j += 32 * kPiece)
          for (int k = 0; k < kPiece; k++) to[j + k] = j + k < left ? of[j + k] : narrow<T>(-INFINITY);
      }
      commitCopies();
    }
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

  // A tile's sum is relative to 2^scaled(its largest logit), as that is rounded.
  __device__ float scaled(float largest) const { return largest == -INFINITY ? 0.0f : __fmul_rn(largest, scale); }

  // Tells all blocks the largest logit and the sum of each of the block's tiles, as they arrive.
  __device__ void measureTiles() {
    int left = own > warp ? (own - warp - 1) / kWarps : 0;
    for (int i = warp; i < own; i += kWarps, left--) {
      waitForAllBut(left);
      Piece held[kPieces];
#pragma unroll
      for (int j = 0; j < kPieces; j++) held[j].load(tile(i) + (j * 32 + lane) * kPiece);  // each lane reads what it copied
      const float top = largestOfLanes(largestOf(held, kPieces)), base = -scaled(top);
      float sums[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < kPieces; j++)
#pragma unroll
        for (int k = 0; k < kPiece; k++) sums[k % 2] += powerOf2(fmaf(held[j][k], scale, base));
      const float sum = sumOfLanes(sums[0] + sums[1]);
      if (i == warp) clusterWait();  // all blocks have begun: their shared memory may be written
      if (lane < blocks) *ofBlock(&shared.tiles[rank * perBlock + i], lane) = make_float2(top, sum);
    }
    if (own <= warp) clusterWait();
  }

  // The mass of a tile without cuts.
  __device__ float massOf(const float2& of) const { return of.y > 0 ? of.y * powerOf2(fmaf(-peak, scale, scaled(of.x))) : 0.0f; }
  // The row's largest logit and sum, by one warp.
  __device__ void sumTiles() {
    constexpr int kEach = kMostTiles / 32;
    float2 held[kEach];
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      held[i] = i * 32 + lane < tiles ? shared.tiles[i * 32 + lane] : make_float2(-INFINITY, 0.0f);
      top = fmaxf(top, held[i].x);
    }
    peak = largestOfLanes(top);
#pragma unroll
    for (int i = 0; i < kEach; i++) sum += massOf(held[i]);
    total = sumOfLanes(sum);
    if (lane == 0) shared.peak = peak, shared.total = total;
  }

  /** Whether a lane has a word from `least` on. */
  __device__ static bool anyFrom(float least, const Piece& piece) { return __any_sync(0xFFFFFFFF, largestOf(&piece, 1) >= least); }

  // Tells all blocks the mass of the words from the cut on in each of the block's tiles.
  __device__ void measureKept(float cut) {
    const float least = cut > 0 ? peak + logf(cut) / inverse - 1e-4f * (1.0f + fabsf(peak) - logf(cut) / inverse) : -INFINITY;
    for (int i = warp; i < own; i += kWarps) {
      const int at = rank * perBlock + i;
      float sum = 0;
      if (shared.tiles[at].x >= least) {
#pragma unroll 1
        for (int j = 0; j < kPieces; j++) {
          Piece piece;
          piece.load(tile(i) + (j * 32 + lane) * kPiece);
          if (!anyFrom(least, piece)) continue;
#pragma unroll
          for (int k = 0; k < kPiece; k++) {
            const float w = weight(piece[k]);
            sum += w >= cut ? w : 0.0f;
          }
        }
        sum = sumOfLanes(sum);
      }
      if (lane < blocks) *ofBlock(&shared.kept[at], lane) = sum;
    }
  }

  // Draws from the tiles, whose masses are given; by one warp of each block.
  template <typename MassOf>
  __device__ void draw(double uniform, float cut, bool hasCut, MassOf mass) {
    const int each = (tiles + 31) / 32;
    double ofLane = 0;
    for (int i = lane * each; i < min(tiles, (lane + 1) * each); i++) ofLane += mass(i);
    const double upTo = sumOfLanesUpTo(ofLane), whole = __shfl_sync(0xFFFFFFFF, upTo, 31), target = uniform * whole;
    const int group = laneAt(ofLane, upTo, target);
    Walk<double> walk(target - __shfl_sync(0xFFFFFFFF, upTo - ofLane, group));
    for (int i = group * each; i < min(tiles, (group + 1) * each); i++) walk.pass(i, mass(i));
    const int mine = walk.at - rank * perBlock;
    if (mine < 0 || mine >= own) return;
    const int pick = drawFrom(tile(mine), static_cast<float>(walk.target - walk.before), cut);
    if (lane == 0) finish(mine, pick, hasCut ? static_cast<float>(fmin(1.0, whole / total)) : 1.0f);
  }

  // Where in a tile the running sum of the weights from the cut on exceeds the target: among the lanes' runs of neighbouring words, then
  // the pieces of the run, then the words of the piece.
  __device__ int drawFrom(const T* from, float target, float cut) const {
    const auto kept = [&](float z) {
      const float w = weight(z);
      return w >= cut ? w : 0.0f;
    };
    float sums[kPieces], sum = 0;
#pragma unroll
    for (int j = 0; j < kPieces; j++) {
      Piece piece;
      piece.load(from + lane * kOfLane + j * kPiece);
      sums[j] = 0;
#pragma unroll
      for (int k = 0; k < kPiece; k++) sums[j] += kept(piece[k]);
      sum += sums[j];
    }
    const float upTo = sumOfLanesUpTo(sum);
    const int run = laneAt(sum, upTo, target);
    Walk<float> walk(target - __shfl_sync(0xFFFFFFFF, upTo - sum, run));
#pragma unroll
    for (int j = 0; j < kPieces; j++) walk.pass(j, __shfl_sync(0xFFFFFFFF, sums[j], run));
    const int first = run * kOfLane + walk.at * kPiece;
    const float w = lane < kPiece ? kept(wide(from[first + lane])) : 0.0f;
    return first + laneAt(w, sumOfLanesUpTo(w), walk.target - walk.before);
  }

  // The first of the likeliest words, by one warp of each block.
  __device__ void takeLikeliest() {
    int from = tiles;
    for (int i = lane; i < tiles; i += 32)
      if (shared.tiles[i].x >= peak) from = min(from, i);
    const int mine = __reduce_min_sync(0xFFFFFFFF, from) - rank * perBlock;
    if (mine < 0 || mine >= own) return;
    int pick = kTile;
    for (int j = 0; j < kPieces; j++) {
      Piece piece;
      piece.load(tile(mine) + (j * 32 + lane) * kPiece);
      for (int k = 0; k < kPiece; k++)
        if (piece[k] >= peak) pick = min(pick, (j * 32 + lane) * kPiece + k);
    }
    pick = __reduce_min_sync(0xFFFFFFFF, pick);
    if (lane == 0) finish(mine, pick, 1.0f);
  }

  __device__ void finish(int mine, int pick, float kept) const {
    const int64_t id = (static_cast<int64_t>(rank) * perBlock + mine) * kTile + pick;
    finishRow(args, row, min(id, args.size - 1), (wide(tile(mine)[pick]) - peak) * inverse - logf(total), kept);
  }
};
#endif

}  // namespace attune
