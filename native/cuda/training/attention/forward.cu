// Forward: a block has 64 rows (queries of all heads of a kv head) of one sequence and goes through the keys that they see, with a running
// maximum and sum. Keys and values have two stages: one is copied while the other is used.
#include "cuda/training/attention/groups.h"
#include "cuda/training/attention/peaks.cuh"
#include "cuda/training/attention/tiles.cuh"

namespace attune {
namespace {

constexpr int kKeys = 32, kTiles = kKeys / kTile;  // keys of a stage

template <typename T, int D, Tiles TILES>
__global__ void __launch_bounds__(kBlockThreads, D == 64 ? 4 : 3) forwardKernel(CausalAttentionArgs a) {
  using Stages = KeyStages<T, D, kKeys, TILES>;
  static_assert(Stages::kNumbers >= kBlockRows * D);
  extern __shared__ __align__(128) char dynamicShared[];
  T* const shared = reinterpret_cast<T*>(dynamicShared);
  waitForPrevious();
  letNextBegin();
  const Part<TILES> part(a, blockIdx.x);
  if (part.place.length == 0) return;
  const RowBlock block(part);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const RowsOf<const T, D> q(static_cast<const T*>(a.q), a.qStride, part);
  const RowsOf<T, D> to(static_cast<T*>(a.out), a.heads * D, part);
  Stages stages(a, part, shared, block.lastQuery + 1);

  // queries pass through the second stage into registers
  copyRows<T, D, kBlockRows>(shared + Stages::kNumbers, part.rows - block.first, block.first, q);
  stages.ask(0);
  waitForCopies<0>();
  __syncthreads();
  LeftRows<T, D> queries;
  queries.load(shared + Stages::kNumbers + warp * Tile<D>::kNumbers);

  const float scale = a.scale * 1.44269504f;  // to base 2
  float peak[2] = {-INFINITY, -INFINITY}, total[2] = {}, out[D / 8][4];
  clear<D>(out);
  const int count = block.lastQuery / kKeys + 1;
  for (int stage = 0; stage < count; stage++) {
    waitForCopies<0>();
    __syncthreads();  // this stage has arrived, and all warps have read the other
    if (stage + 1 < count) stages.ask(stage + 1);
    const int from = stage * kKeys, seen = block.lastSeen - from;
    if (seen < 0) continue;
    const T *keys = stages.keys(stage), *values = stages.values(stage);
    float scores[2 * kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      if (seen >= (n + 1) * kTile)
        multiplyRows<T, D, 2>(scores + 2 * n, queries, keys + n * Tile<D>::kNumbers);
      else if (seen >= n * kTile)
        multiplyRows<T, D, 1>(scores + 2 * n, queries, keys + n * Tile<D>::kNumbers);
    }
    if (from + kKeys - 1 > block.firstQuery) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (from + 8 * i + 2 * t + j % 2 > block.mine[j / 2]) scores[i][j] = -INFINITY;
    }
    float fade[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float top = peak[j];
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++) top = fmaxf(top, fmaxf(scores[i][2 * j], scores[i][2 * j + 1]));
      const float base = raisePeak(peak[j], fade[j], top, scale);
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 2 * kTiles; i++)
#pragma unroll
        for (int e = 2 * j; e < 2 * j + 2; e++) {
          scores[i][e] = powerOf2(scores[i][e] * scale - base);
          sum += scores[i][e];
        }
      total[j] = total[j] * fade[j] + sum;
    }
    if (__any_sync(0xFFFFFFFF, fade[0] < 1 || fade[1] < 1)) {
#pragma unroll
      for (int i = 0; i < D / 8; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[i][j] *= fade[j / 2];
    }
#pragma unroll
    for (int n = 0; n < kTiles; n++)
      if (seen >= n * kTile) addProduct<T, D>(out, scores + 2 * n, values + n * Tile<D>::kNumbers);
  }

  float factors[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], 1);
    total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], 2);
    factors[j] = __fdividef(1.0f, total[j]);
    const int row = block.warpRow + g + 8 * j;
    if (t == 0 && row < part.rows) a.lse[part.statistics(a) + row] = peak[j] * scale + __log2f(total[j]);
  }
  __syncthreads();  // all warps have read the stages
  putRows<T, D>(shared + warp * Tile<D>::kNumbers, out, factors[0], factors[1]);
  __syncthreads();
  storeRows<T, D>(shared, part.rows - block.first, block.first, to);
}

template <typename T, int D>
void forward(const CausalAttentionArgs& args, cudaStream_t stream) {
  const auto kernel = args.familyCount > 0 ? forwardKernel<T, D, Tiles::PrefixedRows> : forwardKernel<T, D, Tiles::Rows>;
  const unsigned blocks = blocksOf(args, args.tokens * args.share, args.count);
  launchWithMemory(kernel, blocks, kBlockThreads, 1, sizeof(T) * 4 * kKeys * D, stream, args);
}

}  // namespace

int64_t causalAttentionLongest(Kind kind, int64_t size, int share) {
  if ((size != 64 && size != 128) || majorOfDevice() != 9) return 0;
  return groupsFit(kind, size, share) ? INT32_MAX : 2048;
}

void launchCausalAttention(Kind kind, const CausalAttentionArgs& args, cudaStream_t stream) {
  if (groupsFit(kind, args.size, args.share)) return launchGroupForward(args, stream);
  ATTUNE_BY_HALF_AND_SIZE(kind, args.size, (forward<T, kSize>(args, stream)))
}

}  // namespace attune
