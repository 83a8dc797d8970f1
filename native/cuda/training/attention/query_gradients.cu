// Gradients of queries: a block has the rows of a forward block and goes through the same keys.
//   P = 2^(S − lse),  dS = P∘(dO·Vᵀ − rowsum(dO∘O)),  dQ = scale·dS·K
#include "cuda/training/attention/groups.h"
#include "cuda/training/attention/tiles.cuh"

namespace attune {
namespace {

constexpr int kKeys = 32, kTiles = kKeys / kTile;  // keys of a stage

template <typename T, int D, Tiles TILES>
__global__ void __launch_bounds__(kBlockThreads, D == 64 ? 3 : 2) queryGradientsKernel(CausalAttentionBackwardArgs b) {
  using Stages = KeyStages<T, D, kKeys, TILES>;
  static_assert(Stages::kNumbers >= kBlockRows * D);
  extern __shared__ __align__(128) char dynamicShared[];
  T* const shared = reinterpret_cast<T*>(dynamicShared);
  const CausalAttentionArgs& a = b.forward;
  waitForPrevious();
  letNextBegin();
  const Part<TILES> part(a, blockIdx.x);
  if (part.place.length == 0) return;
  const RowBlock block(part);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, rows = part.rows - block.first;
  const RowsOf<const T, D> q(static_cast<const T*>(a.q), a.qStride, part), given(static_cast<const T*>(b.gradient), a.heads * D, part);
  const RowsOf<const T, D> result(static_cast<const T*>(a.out), a.heads * D, part);
  const RowsOf<T, D> to(static_cast<T*>(b.dq), a.heads * D, part);
  Stages stages(a, part, shared, block.lastQuery + 1);

  // the forward's results pass through the second stage
  T *const ownQueries = shared + 2 * Stages::kNumbers, *const ownGradient = ownQueries + kBlockRows * D;
  T* const ownResult = shared + Stages::kNumbers;
  copyRows<T, D, kBlockRows>(ownGradient, rows, block.first, given);
  copyRows<T, D, kBlockRows>(ownResult, rows, block.first, result);
  commitCopies();
  copyRows<T, D, kBlockRows>(ownQueries, rows, block.first, q);
  stages.ask(0);
  float* const dots = b.dots + part.statistics(a) + block.warpRow;
  const float* const lses = a.lse + part.statistics(a) + block.warpRow;
  const int warpRows = part.rows - block.warpRow;
  float lse[2], dot[2] = {};
#pragma unroll
  for (int j = 0; j < 2; j++) lse[j] = g + 8 * j < warpRows ? lses[g + 8 * j] : INFINITY;
  waitForCopies<1>();
  __syncthreads();
  LeftRows<T, D> gradient, queries;
  gradient.load(ownGradient + warp * Tile<D>::kNumbers);
  const Fragments<D> results(ownResult + warp * Tile<D>::kNumbers);
#pragma unroll
  for (int step = 0; step < D / 16; step++) {
    unsigned o[4];
    loadMatrices(o, results.at(step));
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float2 x = unpack<T>(o[j]), y = unpack<T>(gradient.at[step][j]);
      dot[j % 2] += x.x * y.x + x.y * y.y;
    }
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    dot[j] += __shfl_xor_sync(0xFFFFFFFF, dot[j], 1);
    dot[j] += __shfl_xor_sync(0xFFFFFFFF, dot[j], 2);
    if (t == 0 && g + 8 * j < warpRows) dots[g + 8 * j] = dot[j];
  }
  waitForCopies<0>();
  __syncthreads();
  queries.load(ownQueries + warp * Tile<D>::kNumbers);

  const float scale = a.scale * 1.44269504f;
  float sums[D / 8][4];
  clear<D>(sums);
  const int count = block.lastQuery / kKeys + 1;
  for (int stage = 0; stage < count; stage++) {
    if (stage > 0) {
      waitForCopies<0>();
      __syncthreads();  // this stage has arrived, and all warps have read the other
    }
    if (stage + 1 < count) stages.ask(stage + 1);
    const int from = stage * kKeys, seen = block.lastSeen - from;
    const T *keys = stages.keys(stage), *values = stages.values(stage);
    const auto add = [&](auto tiles, int n) {
      constexpr int N = decltype(tiles)::value;
      float p[2 * N][4], ds[2 * N][4];
      multiplyRows<T, D, N>(p, queries, keys + n * Tile<D>::kNumbers);
      multiplyRows<T, D, N>(ds, gradient, values + n * Tile<D>::kNumbers);
#pragma unroll
      for (int i = 0; i < 2 * N; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) ds[i][j] = powerOf2(p[i][j] * scale - lse[j / 2]) * (ds[i][j] - dot[j / 2]);
      if (from + (n + N) * kTile - 1 > block.firstQuery) {
#pragma unroll
        for (int i = 0; i < 2 * N; i++)
#pragma unroll
          for (int j = 0; j < 4; j++)
            if (from + n * kTile + 8 * i + 2 * t + j % 2 > block.mine[j / 2]) ds[i][j] = 0;
      }
#pragma unroll
      for (int i = 0; i < N; i++) addProduct<T, D>(sums, ds + 2 * i, keys + (n + i) * Tile<D>::kNumbers);
    };
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      if (seen >= (n + 1) * kTile)
        add(std::integral_constant<int, 2>(), n);
      else if (seen >= n * kTile)
        add(std::integral_constant<int, 1>(), n);
    }
  }

  putRows<T, D>(ownQueries + warp * Tile<D>::kNumbers, sums, a.scale, a.scale);
  __syncthreads();
  storeRows<T, D>(ownQueries, rows, block.first, to);
}

template <typename T, int D>
void gradients(const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  const size_t memory = sizeof(T) * (4 * kKeys + 2 * kBlockRows) * D;
  const CausalAttentionArgs& a = args.forward;
  const auto kernel = a.familyCount > 0 ? queryGradientsKernel<T, D, Tiles::PrefixedRows> : queryGradientsKernel<T, D, Tiles::Rows>;
  launchWithMemory(kernel, blocksOf(a, a.tokens * a.share, a.count), kBlockThreads, 1, memory, stream, args);
}

}  // namespace

void launchQueryGradients(Kind kind, const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  if (groupsFit(kind, args.forward.size, args.forward.share)) return launchGroupQueryGradients(args, stream);
  ATTUNE_BY_HALF_AND_SIZE(kind, args.forward.size, (gradients<T, kSize>(args, stream)))
}

}  // namespace attune
