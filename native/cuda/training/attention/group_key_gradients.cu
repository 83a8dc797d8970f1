// Gradients of keys and values as in key_gradients.cu, by warpgroup products (compute capability 9.0, bf16, heads of 128 numbers). A block
// is one warpgroup with 64 keys and goes through the rows that see them, 64 per stage. Two blocks share a multiprocessor: while one
// computes exponentials, the other multiplies. The next stage's scores are started before this stage's sums are complete.
#include "cuda/training/attention/groups.h"

#if CUDART_VERSION >= 12050
#include "cuda/training/attention/cluster_sums.cuh"
#include "cuda/training/attention/group.cuh"

namespace attune {
namespace {

constexpr int kRows = kGroupRows, kStages = 2;
constexpr int kTileBytes = kPanels * kRows * kLine;

struct Shared {
  alignas(1024) char keys[kTileBytes], values[kTileBytes], queries[kStages][kTileBytes], gradients[kStages][kTileBytes];
  float lses[kStages][kRows], dots[kStages][kRows];
  uint64_t ownThere, there[kStages];
};

template <Tiles TILES>
__global__ void __launch_bounds__(kGroupThreads, kKeyBlocksAtOnce)
    groupKeyGradientsKernel(const __grid_constant__ CUtensorMap keyMap, const __grid_constant__ CUtensorMap valueMap,
                            const __grid_constant__ CUtensorMap queryMap, const __grid_constant__ CUtensorMap gradientMap,
                            const CausalAttentionBackwardArgs b) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kFamilies = TILES == Tiles::FamilyKeys;
  extern __shared__ __align__(1024) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const CausalAttentionArgs& a = b.forward;
  if (threadIdx.x == 0) {
    fetchMap(&keyMap), fetchMap(&valueMap), fetchMap(&queryMap), fetchMap(&gradientMap);
    initBarrier(&shared.ownThere, 1);
    for (int i = 0; i < kStages; i++) initBarrier(&shared.there[i], 1);
    publishBarriers();
  }
  const int splits = kFamilies ? static_cast<int>(clusterSize()) : 1, split = kFamilies ? static_cast<int>(clusterRank()) : 0;
  const Part<TILES> part(a, blockIdx.x / splits);
  if (part.place.length == 0) return;  // without a wait: some block of every launch has keys (causal_attention.cc), and waits for all
  const int firstKey = part.place.tile * kBlockRows, keyCount = part.place.length - firstKey, firstRow = firstKey * part.share;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, shift = __ffs(part.share) - 1;
  const int rows = part.rows, start = part.place.start;
  const int count = ((rows - firstRow + kRows - 1) / kRows - split + splits - 1) / splits;
  const auto rowOf = [&](int stage) { return firstRow + (stage * splits + split) * kRows; };
  const auto ask = [&](int stage) {
    const int slot = stage % kStages, token = start + (rowOf(stage) >> shift);
    expectBytes(&shared.there[slot], 2 * kTileBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; panel++) {
      const int at = panel * kRows * kLine, column = panel * kPanelColumns;
      copyBox(shared.queries[slot] + at, &queryMap, column, part.group * part.share, token, &shared.there[slot]);
      copyBox(shared.gradients[slot] + at, &gradientMap, column, part.group * part.share, token, &shared.there[slot]);
    }
  };
  if (threadIdx.x == 0) {
    expectBytes(&shared.ownThere, 2 * kTileBytes);
    for (int panel = 0; panel < kPanels; panel++) {
      const int at = panel * kRows * kLine, column = part.group * kGroupSize + panel * kPanelColumns;
      copyTile(shared.keys + at, &keyMap, column, start + firstKey, &shared.ownThere);
      copyTile(shared.values + at, &valueMap, column, start + firstKey, &shared.ownThere);
    }
    for (int stage = 0; stage < min(count, kStages); stage++) ask(stage);
  }
  // Keys of families come first and have waited for the gradients of queries when this kernel begins: it runs beside them.
  if (kFamilies || a.familyCount == 0) waitForPrevious();
  if (kFamilies) letNextBegin();

  // A thread brings one row's lse or dot of a stage, a stage ahead.
  const bool bringsDots = threadIdx.x >= kRows;
  const int broughtRow = static_cast<int>(threadIdx.x) % kRows;
  const float* const statistics = (bringsDots ? b.dots : a.lse) + part.statistics(a) + broughtRow;
  const auto bring = [&](int stage) {
    const int row = rowOf(stage);
    if (row + broughtRow < rows) return __ldcg(statistics + row);
    return bringsDots ? 0.0f : INFINITY;  // rows after the last weigh nothing
  };
  float* const brought = (bringsDots ? shared.dots[0] : shared.lses[0]) + broughtRow;
  float next = 0;
  if (count > 0) brought[0] = bring(0);
  if (count > 1) next = bring(1);
  __syncthreads();
  waitForPhase(&shared.ownThere, 0);

  const float scale = a.scale * kLog2OfE;
  const uint64_t keys = describeRows(shared.keys), values = describeRows(shared.values);
  float dk[kGroupSize / 2], dv[kGroupSize / 2];
#pragma unroll
  for (int i = 0; i < kGroupSize / 2; i++) dk[i] = dv[i] = 0;
  holdSums(dk);
  holdSums(dv);
#pragma unroll 1
  for (int stage = 0; stage < count; stage++) {
    const int slot = stage % kStages;
    float p[kRows / 2], ds[kRows / 2];
    unsigned left[kRows / 16][4], leftOfKeys[kRows / 16][4];
    waitForPhase(&shared.there[slot], stage / kStages & 1);
    if (const int real = rows - rowOf(stage); real < kRows) {
      clearRowsFrom<kRows>(shared.queries[slot], real);
      clearRowsFrom<kRows>(shared.gradients[slot], real);
      __syncthreads();
    }
    beginMultiplying();
    multiplyTiles(p, keys, describeRows(shared.queries[slot]));
    commitMultiplying();
    multiplyTiles(ds, values, describeRows(shared.gradients[slot]));
    commitMultiplying();
    waitForMultiplying<1>();  // all but this stage's dO·Vᵀ
    holdSums(p);
    __syncthreads();  // all warps have done the stage before, and this stage's statistics are there
    if (stage > 0 && stage + 1 < count && threadIdx.x == 0) ask(stage + 1);
    if (stage + 1 < count) brought[(stage + 1) % kStages * kRows] = next;
    if (stage + 2 < count) next = bring(stage + 2);
    const int warpKey = firstKey + warp * kTile, row = rowOf(stage);
    const float *const lses = shared.lses[slot] + 2 * t, *const dots = shared.dots[slot] + 2 * t;
#pragma unroll
    for (int i = 0; i < kRows / 8; i++) {
      const float2 lse = *reinterpret_cast<const float2*>(lses + 8 * i);
#pragma unroll
      for (int j = 0; j < 4; j++) p[4 * i + j] = powerOf2(p[4 * i + j] * scale - (j % 2 == 0 ? lse.x : lse.y));
    }
    if (row >> shift < warpKey + kTile - 1) {
#pragma unroll
      for (int i = 0; i < kRows / 2; i++)
        if (warpKey + g + i / 2 % 2 * 8 > (row + i / 4 * 8 + 2 * t + i % 2) >> shift) p[i] = 0;
    }
    packLeft(left, p);
    holdSums(dv);
    beginMultiplying();
    addTileProduct(dv, left, shared.gradients[slot]);
    commitMultiplying();
    waitForMultiplying<1>();  // dO·Vᵀ
    holdSums(ds);
#pragma unroll
    for (int i = 0; i < kRows / 8; i++) {
      const float2 dot = *reinterpret_cast<const float2*>(dots + 8 * i);
#pragma unroll
      for (int j = 0; j < 4; j++) ds[4 * i + j] = p[4 * i + j] * (ds[4 * i + j] - (j % 2 == 0 ? dot.x : dot.y));
    }
    packLeft(leftOfKeys, ds);
    holdSums(dk);
    beginMultiplying();
    addTileProduct(dk, leftOfKeys, shared.queries[slot]);
    commitMultiplying();
  }
  waitForMultiplying<0>();
  holdSums(dk);
  holdSums(dv);

  const int64_t stride = a.groups * kGroupSize, first = (start + firstKey) * stride + part.group * kGroupSize;
  GroupNumber *const toValues = static_cast<GroupNumber*>(b.dv) + first, *const toKeys = static_cast<GroupNumber*>(b.dk) + first;
  __syncthreads();  // all warps have read what the sums take the room of
  if (kFamilies && splits > 1) {
    const ClusterSums<GroupNumber, kGroupSize> sums{reinterpret_cast<float*>(memory)};
    sums.put(0, dv);
    sums.put(1, dk);
    clusterArrive();
    clusterWait();
    sums.store(0, toValues, stride, keyCount, 1);
    sums.store(1, toKeys, stride, keyCount, a.scale);
    clusterArrive();
    clusterWait();  // the others have read this block's
    return;
  }
  const WarpRows<kRows> ofValues{shared.values + warp * kTile * kLine}, ofKeys{shared.keys + warp * kTile * kLine};
  ofValues.put(dv, 1, 1);
  ofKeys.put(dk, a.scale, a.scale);
#pragma unroll
  for (int i = lane / 16; i < kTile; i += 2) {
    const int key = warp * kTile + i, piece = lane % 16;
    if (key >= keyCount) break;
    *reinterpret_cast<uint4*>(toValues + key * stride + piece * 8) = *reinterpret_cast<const uint4*>(ofValues.at(i, piece));
    *reinterpret_cast<uint4*>(toKeys + key * stride + piece * 8) = *reinterpret_cast<const uint4*>(ofKeys.at(i, piece));
  }
  if (!kFamilies && a.familyCount > 0) waitForPrevious();  // so that this kernel ends after the families'
#endif
}

}  // namespace

void launchGroupKeyGradients(const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  static_assert(kRows == kBlockRows && kGroupThreads == kBlockThreads);
  static_assert(sizeof(float) * 2 * ClusterSums<GroupNumber, kGroupSize>::kNumbers <= sizeof(Shared));
  const CausalAttentionArgs& a = args.forward;
  const CUtensorMap keys = mapOfKeys(a, a.k, a.kStride, kRows), values = mapOfKeys(a, a.v, a.vStride, kRows);
  const CUtensorMap queries = mapOfRows(a, a.q, a.qStride, kRows), gradients = mapOfRows(a, args.gradient, a.heads * kGroupSize, kRows);
  const auto launch = [&](auto kernel, unsigned blocks, unsigned splits) {
    launchWithMemory(kernel, blocks, kGroupThreads, splits, sizeof(Shared), stream, keys, values, queries, gradients, args);
  };
  if (a.familyCount > 0) {
    const unsigned splits = splitsOf(a);
    launch(groupKeyGradientsKernel<Tiles::FamilyKeys>, splits * blocksOf(a, a.prefixTokens, a.familyCount), splits);
  }
  launch(groupKeyGradientsKernel<Tiles::Keys>, blocksOf(a, a.tokens, a.count), 1);
}

}  // namespace attune
#else  // a CUDA without tensor maps
namespace attune {
void launchGroupKeyGradients(const CausalAttentionBackwardArgs&, cudaStream_t) {}
}  // namespace attune
#endif
