// Gradients of queries as in query_gradients.cu, by warpgroup products (compute capability 9.0, bf16, heads of 128 numbers). A block is one
// warpgroup with 64 rows of a sequence and kv head, and goes through the keys that they see, 64 per stage; keys of a prefix and of the
// sequence itself are never in one stage. Two blocks share a multiprocessor: while one computes exponentials, the other multiplies. The
// next stage's scores are started before this stage's sums are complete. Slower or no faster: two warpgroups that share keys, in one block
// of 64 keys per stage or two of 32; three blocks with one stage each, or of 32 keys.
#include "cuda/training/attention/groups.h"

#if CUDART_VERSION >= 12050
#include "cuda/training/attention/group.cuh"

namespace attune {
namespace {

constexpr int kRows = kGroupRows, kKeys = kGroupRows, kStages = 2, kLastWarp = 3;
constexpr int kRowsBytes = kPanels * kRows * kLine, kStageBytes = kPanels * kKeys * kLine;

struct Shared {
  alignas(1024) char queries[kRowsBytes], gradients[kRowsBytes], results[kRowsBytes], keys[kStages][kStageBytes],
      values[kStages][kStageBytes];
  uint64_t rowsThere, resultsThere, there[kStages];
  unsigned used[kStages];  // by how many warps, since the beginning
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
/** The sums of x ∘ y of rows g and g + 8 of the warp. */
__device__ void dotsOf(float (&dots)[2], const WarpRows<kRows>& x, const WarpRows<kRows>& y) {
  const int row = threadIdx.x % 16, odd = threadIdx.x % 32 / 16;
  dots[0] = dots[1] = 0;
#pragma unroll
  for (int step = 0; step < kGroupSize / 16; step++) {
    unsigned ofX[4], ofY[4];
    loadMatrices(ofX, x.at(row, 2 * step + odd));
    loadMatrices(ofY, y.at(row, 2 * step + odd));
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const float2 m = unpack<GroupNumber>(ofX[j]), n = unpack<GroupNumber>(ofY[j]);
      dots[j % 2] += m.x * n.x + m.y * n.y;
    }
  }
#pragma unroll
  for (int j = 0; j < 2; j++) {
    dots[j] += __shfl_xor_sync(0xFFFFFFFF, dots[j], 1);
    dots[j] += __shfl_xor_sync(0xFFFFFFFF, dots[j], 2);
  }
}
#endif

template <bool PREFIXES>
__global__ void __launch_bounds__(kGroupThreads, 2)
    groupQueryGradientsKernel(const __grid_constant__ CUtensorMap queryMap, const __grid_constant__ CUtensorMap gradientMap,
                              const __grid_constant__ CUtensorMap resultMap, const __grid_constant__ CUtensorMap keyMap,
                              const __grid_constant__ CUtensorMap valueMap, const CausalAttentionBackwardArgs b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const CausalAttentionArgs& a = b.forward;
  if (threadIdx.x == 0) {
    fetchMap(&queryMap), fetchMap(&gradientMap), fetchMap(&resultMap), fetchMap(&keyMap), fetchMap(&valueMap);
    initBarrier(&shared.rowsThere, 2), initBarrier(&shared.resultsThere, 1);
    for (int i = 0; i < kStages; i++) initBarrier(&shared.there[i], 1), shared.used[i] = 0;
    publishBarriers();
  }
  waitForPrevious();
  letNextBegin();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, shift = __ffs(a.share) - 1;
  const int number = static_cast<int>(blockIdx.x), groups = static_cast<int>(a.groups), kvHead = number % groups;
  const Place place = placeOf < PREFIXES ? Tiles::PrefixedRows : Tiles::Rows, kRows > (a, number / groups, a.share);
  if (place.length == 0) return;
  const int first = (place.tiles - 1 - place.tile) * kRows,
            rows = place.length << shift;  // the last rows see the most keys: they begin first
  const int firstQuery = first >> shift, lastQuery = min((first + kRows - 1) >> shift, place.length - 1), warpRow = first + warp * kTile;
  const int before = PREFIXES ? (place.prefixLength + kKeys - 1) / kKeys : 0, count = before + lastQuery / kKeys + 1;  // stages
  const auto ask = [&](int stage) {
    const int slot = stage % kStages, column = kvHead * kGroupSize;
    const int key = PREFIXES && stage < before ? place.prefixStart + stage * kKeys : place.start + (stage - before) * kKeys;
    expectBytes(&shared.there[slot], 2 * kStageBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; panel++) {
      const int at = panel * kKeys * kLine, from = column + panel * kPanelColumns;
      copyTile(shared.keys[slot] + at, &keyMap, from, key, &shared.there[slot]);
      copyTile(shared.values[slot] + at, &valueMap, from, key, &shared.there[slot]);
    }
  };
  const auto askRows = [&](char* to, const CUtensorMap* map, uint64_t* there) {
    expectBytes(there, kRowsBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; panel++)
      copyBox(to + panel * kRows * kLine, map, panel * kPanelColumns, kvHead << shift, place.start + firstQuery, there);
  };
  if (threadIdx.x == 0) {
    askRows(shared.queries, &queryMap, &shared.rowsThere);
    askRows(shared.gradients, &gradientMap, &shared.rowsThere);
    ask(0);
    askRows(shared.results, &resultMap, &shared.resultsThere);
    if (count > 1) ask(1);
  }
  __syncthreads();

  const int64_t statistics = (kvHead * a.tokens + place.start) << shift;
  float lse[2], dot[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int row = warpRow + g + 8 * j;
    lse[j] = row < rows ? a.lse[statistics + row] : INFINITY;
  }

  const float scale = a.scale * kLog2OfE;
  float sums[kGroupSize / 2];
#pragma unroll
  for (int i = 0; i < kGroupSize / 2; i++) sums[i] = 0;
  const uint64_t queries = describeRows(shared.queries);
  const uint64_t gradients = describeRows(shared.gradients);
  waitForPhase(&shared.rowsThere, 0);
  holdSums(sums);
#pragma unroll 1
  for (int stage = 0; stage < count; stage++) {
    const int slot = stage % kStages, from = (stage - before) * kKeys;  // below 0 in the prefix
    float p[kKeys / 2], ds[kKeys / 2];
    unsigned left[kKeys / 16][4];
    waitForPhase(&shared.there[slot], stage / kStages & 1);
    if (stage + 1 == count || (PREFIXES && from == -kKeys)) {
      const int real = PREFIXES && from < 0 ? place.prefixLength - stage * kKeys : place.length - from;
      if (real < kKeys) {
        clearRowsFrom<kKeys>(shared.keys[slot], real);
        clearRowsFrom<kKeys>(shared.values[slot], real);
        __syncthreads();
      }
    }
    beginMultiplying();
    multiplyTiles(p, queries, describeRows(shared.keys[slot]));
    commitMultiplying();
    multiplyTiles(ds, gradients, describeRows(shared.values[slot]));
    commitMultiplying();
    if (stage == 0) {  // beside the first products
      waitForPhase(&shared.resultsThere, 0);
      dotsOf(dot, {shared.gradients + warp * kTile * kLine}, {shared.results + warp * kTile * kLine});
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int row = warpRow + g + 8 * j;
        if (t == 0 && row < rows) b.dots[statistics + row] = dot[j];
      }
    }
    waitForMultiplying<1>();  // all but this stage's dO·Vᵀ
    holdSums(p);
    // The last warp that has done the stage before asks for the one that takes its place.
    if (stage > 0 && stage - 1 + kStages < count && lane == 0 && (countOne(&shared.used[(stage - 1) % kStages]) & kLastWarp) == kLastWarp)
      ask(stage - 1 + kStages);
#pragma unroll
    for (int i = 0; i < kKeys / 2; i++) p[i] = powerOf2(p[i] * scale - lse[i / 2 % 2]);
    if (from + kKeys - 1 > firstQuery) {
      const int row = warpRow + g, mine[2] = {row >> shift, (row + 8) >> shift};
#pragma unroll
      for (int i = 0; i < kKeys / 2; i++)
        if (from + i / 4 * 8 + 2 * t + i % 2 > mine[i / 2 % 2]) p[i] = 0;
    } else if (PREFIXES && from == -kKeys) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; i++)
        if (stage * kKeys + i / 4 * 8 + 2 * t + i % 2 >= place.prefixLength) p[i] = 0;
    }
    waitForMultiplying<0>();
    holdSums(ds);
#pragma unroll
    for (int i = 0; i < kKeys / 2; i++) ds[i] = p[i] * (ds[i] - dot[i / 2 % 2]);
    packLeft(left, ds);
    holdSums(sums);
    beginMultiplying();
    addTileProduct(sums, left, shared.keys[slot]);
    commitMultiplying();
  }
  waitForMultiplying<0>();
  holdSums(sums);

  __syncthreads();  // all warps have read the queries, whose room the results take
  const WarpRows<kRows> own{shared.queries + warp * kTile * kLine};
  own.put(sums, a.scale, a.scale);
  GroupNumber* const to = static_cast<GroupNumber*>(b.dq) + lane % 16 * 8;
#pragma unroll
  for (int i = lane / 16; i < kTile; i += 2) {
    const int row = warpRow + i, token = row >> shift;
    if (row < rows)
      *reinterpret_cast<uint4*>(to + ((place.start + token) * a.heads + (kvHead << shift) + row - (token << shift)) * kGroupSize) =
          *reinterpret_cast<const uint4*>(own.at(i, lane % 16));
  }
#endif
}

}  // namespace

void launchGroupQueryGradients(const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  const CausalAttentionArgs& a = args.forward;
  const auto kernel = a.familyCount > 0 ? groupQueryGradientsKernel<true> : groupQueryGradientsKernel<false>;
  const auto dense = [&](const void* first) { return mapOfRows(a, first, a.heads * kGroupSize, kRows); };
  launchWithMemory(kernel, blocksOf<kRows>(a, a.tokens * a.share, a.count), kGroupThreads, 1, sizeof(Shared), stream,
                   mapOfRows(a, a.q, a.qStride, kRows), dense(args.gradient), dense(a.out), mapOfKeys(a, a.k, a.kStride, kKeys),
                   mapOfKeys(a, a.v, a.vStride, kKeys), args);
}

}  // namespace attune
#else  // a CUDA without tensor maps
namespace attune {
void launchGroupQueryGradients(const CausalAttentionBackwardArgs&, cudaStream_t) {}
}  // namespace attune
#endif
