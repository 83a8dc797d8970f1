// Forward by warpgroup products (compute capability 9.0, bf16, heads of 128 numbers). A block has 128 rows of one sequence and kv head, 64
// for each of two warpgroups, and goes through the keys that they see like forward.cu; keys of a prefix and of the sequence itself are
// never in one stage. Queries, keys and values are loaded by tensor maps. Keys and values have two stages each: the last of the eight warps
// to use a stage requests the next but one, so no warp waits for another. Two blocks share a multiprocessor: while one warpgroup computes
// exponentials, the others multiply. With stages of 128 keys and one block, also with the next scores multiplied during exponentials, a
// pass over prompts of 100 to 1,024 tokens took 159 and 154 µs; this one took 134 before it supported prefixes and 138 since (forward.cu
// 191).
#include "cuda/training/attention/groups.h"

#if CUDART_VERSION >= 12050
#include "cuda/training/attention/group.cuh"
#include "cuda/training/attention/peaks.cuh"

namespace attune {
namespace {

using Number = GroupNumber;

constexpr int kSize = kGroupSize, kRows = 128, kKeys = 64, kStages = 2, kWarps = 8, kThreads = 32 * kWarps;
constexpr int kRowsPanel = kRows * kLine, kKeysPanel = kKeys * kLine, kStageBytes = kPanels * kKeysPanel;

/** Of a block's rows: in shared memory, as there are no registers left for what is seldom used. */
struct Work {
  int start, prefixStart;  // the first token of the sequence, and of its prefix
  int before, prefixLength;  // stages and keys of the prefix
  int kvHead, first, rows;  // first: the block's first row; rows: of the sequence
};

struct Shared {
  alignas(1024) char queries[kPanels * kRowsPanel], keys[kStages][kStageBytes], values[kStages][kStageBytes];
  uint64_t queriesThere, keysThere[kStages], valuesThere[kStages];
  unsigned keysUsed[kStages], valuesUsed[kStages];  // by how many warps, since the beginning
  Work work;
};

template <bool PREFIXES>
__global__ void __launch_bounds__(kThreads, 2)
    groupForwardKernel(const __grid_constant__ CUtensorMap queryMap, const __grid_constant__ CUtensorMap keyMap,
                       const __grid_constant__ CUtensorMap valueMap, const CausalAttentionArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const Work& work = shared.work;
  if (threadIdx.x == 0) {
    fetchMap(&queryMap), fetchMap(&keyMap), fetchMap(&valueMap);
    initBarrier(&shared.queriesThere, 1);
    for (int i = 0; i < kStages; i++) {
      initBarrier(&shared.keysThere[i], 1), initBarrier(&shared.valuesThere[i], 1);
      shared.keysUsed[i] = shared.valuesUsed[i] = 0;
    }
    publishBarriers();
  }
  waitForPrevious();
  letNextBegin();
  const Divisor query(a.share);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = warp / 4, g = lane / 4, t = lane % 4;
  int column, firstKey;  // of the keys: the kv head's first column, and the row of the first stage's first if all were the sequence's own
  int firstQuery, seen;  // of the warpgroup: its first query, and how many stages it sees: at most the block's last one is not among them
  int count;  // stages that the block's rows see
  unsigned lastReader;  // warps that read a stage, less one: 7, or 3 where the second warpgroup has no rows
  {
    const int number = static_cast<int>(blockIdx.x), groups = static_cast<int>(a.groups);
    const Place place = placeOf < PREFIXES ? Tiles::PrefixedRows : Tiles::Rows, kRows > (a, number / groups, a.share);
    if (place.length == 0) return;
    const int first = (place.tiles - 1 - place.tile) * kRows,
              rows = place.length * a.share;  // the last rows see the most keys: they begin first
    const int groupRow = first + group * kGroupRows, before = PREFIXES ? (place.prefixLength + kKeys - 1) / kKeys : 0;
    const auto stagesUpTo = [&](int row) { return before + min(query(row), place.length - 1) / kKeys + 1; };
    firstQuery = query(groupRow);
    seen = groupRow < rows ? stagesUpTo(groupRow + kGroupRows - 1) : 0;
    count = stagesUpTo(first + kRows - 1);
    lastReader = (first + kGroupRows < rows ? kWarps : kWarps / 2) - 1;
    const int kvHead = number % groups;
    column = kvHead * kSize;
    firstKey = place.start - before * kKeys;
    if (threadIdx.x == 0) {
      shared.work = {place.start, place.prefixStart, before, place.prefixLength, kvHead, first, rows};
      expectBytes(&shared.queriesThere, kPanels * kRowsPanel);
      for (int panel = 0; panel < kPanels; panel++)
        copyBox(shared.queries + panel * kRowsPanel, &queryMap, panel * kPanelColumns, kvHead * a.share, place.start + query(first),
                &shared.queriesThere);
    }
  }
  const auto ask = [&](const CUtensorMap* map, char(*stages)[kStageBytes], uint64_t* there, int stage) {
    const int slot = stage % kStages, first = PREFIXES && stage < work.before ? work.prefixStart : firstKey;
    expectBytes(&there[slot], kStageBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; panel++)
      copyTile(stages[slot] + panel * kKeysPanel, map, column + panel * kPanelColumns, first + stage * kKeys, &there[slot]);
  };
  if (threadIdx.x == 0)
    for (int stage = 0; stage < min(count, kStages); stage++) {
      ask(&keyMap, shared.keys, shared.keysThere, stage);
      ask(&valueMap, shared.values, shared.valuesThere, stage);
    }
  __syncthreads();
  if (seen == 0) return;

  const float scale = a.scale * 1.44269504f;  // to base 2
  float peak[2] = {-INFINITY, -INFINITY}, total[2] = {}, out[kSize / 2];
#pragma unroll
  for (int i = 0; i < kSize / 2; i++) out[i] = 0;
  // By a warp that has read a stage. The last of them asks for the one that takes its place.
  const auto finishStage = [&](unsigned* used, const CUtensorMap* map, char(*stages)[kStageBytes], uint64_t* there, int stage) {
    if (lane == 0 && (countOne(&used[stage % kStages]) & lastReader) == lastReader && stage + kStages < count)
      ask(map, stages, there, stage + kStages);
  };
  const uint64_t left = describeRows(shared.queries + group * kGroupRows * kLine);
  waitForPhase(&shared.queriesThere, 0);
  for (int stage = 0; stage < seen; stage++) {
    const int slot = stage % kStages;
    const unsigned phase = stage / kStages & 1;
    float scores[kKeys / 2];
    waitForPhase(&shared.keysThere[slot], phase);
    const uint64_t keys = describeRows(shared.keys[slot]);
    holdSums(scores);
    beginMultiplying();
#pragma unroll
    for (int step = 0; step < kSize / 16; step++) {
      const int panel = step / 4, inside = step % 4 * 32 >> 4;
      multiplyGroup(scores, left + (panel * kRowsPanel >> 4) + inside, keys + (panel * kKeysPanel >> 4) + inside, step > 0);
    }
    commitMultiplying();
    waitForMultiplying<0>();
    holdSums(scores);
    finishStage(shared.keysUsed, &keyMap, shared.keys, shared.keysThere, stage);

    const int from = (PREFIXES ? stage - work.before : stage) * kKeys;  // below 0 in the prefix
    if (from + kKeys - 1 > firstQuery) {
      const int row = work.first + warp * kTile + g, mine[2] = {query(row), query(row + 8)};
#pragma unroll
      for (int i = 0; i < kKeys / 2; i++)
        if (from + i / 4 * 8 + 2 * t + i % 2 > mine[i / 2 % 2]) scores[i] = -INFINITY;
    } else if (PREFIXES && from == -kKeys) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; i++)
        if (stage * kKeys + i / 4 * 8 + 2 * t + i % 2 >= work.prefixLength) scores[i] = -INFINITY;
    }
    float fade[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float top = peak[j];
#pragma unroll
      for (int i = 2 * j; i < kKeys / 2; i += 4) top = fmaxf(top, fmaxf(scores[i], scores[i + 1]));
      const float base = raisePeak(peak[j], fade[j], top, scale);
      float sum = 0;
#pragma unroll
      for (int i = 2 * j; i < kKeys / 2; i += 4)
#pragma unroll
        for (int e = i; e < i + 2; e++) {
          scores[e] = powerOf2(scores[e] * scale - base);
          sum += scores[e];
        }
      total[j] = total[j] * fade[j] + sum;
    }
    if (__any_sync(0xFFFFFFFF, fade[0] < 1 || fade[1] < 1)) {
#pragma unroll
      for (int i = 0; i < kSize / 2; i++) out[i] *= fade[i / 2 % 2];
    }
    unsigned shares[kKeys / 16][4];
#pragma unroll
    for (int step = 0; step < kKeys / 16; step++)
#pragma unroll
      for (int i = 0; i < 4; i++) shares[step][i] = pack<Number>(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]);
    waitForPhase(&shared.valuesThere[slot], phase);
    if (stage + 1 == count || (PREFIXES && from == -kKeys)) {
      const int real = PREFIXES && from < 0 ? work.prefixLength - stage * kKeys : query(work.rows) - from;
      if (real < kKeys) {
        clearRowsFrom<kKeys>(shared.values[slot], real);
        syncGroup(group);
      }
    }
    const uint64_t values = describeColumns(shared.values[slot], kKeysPanel);
    holdSums(out);
    beginMultiplying();
#pragma unroll
    for (int step = 0; step < kKeys / 16; step++) multiplyGroup(out, shares[step], values + (step * 16 * kLine >> 4));
    commitMultiplying();
    waitForMultiplying<0>();
    holdSums(out);
    finishStage(shared.valuesUsed, &valueMap, shared.values, shared.valuesThere, stage);
  }

  const int warpRow = work.first + warp * kTile, rows = work.rows;
  const int64_t firstRow = static_cast<int64_t>(work.start) * a.share;
  float factors[2];
#pragma unroll
  for (int j = 0; j < 2; j++) {
    total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], 1);
    total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], 2);
    factors[j] = __fdividef(1.0f, total[j]);
    const int row = warpRow + g + 8 * j;
    if (t == 0 && row < rows) a.lse[work.kvHead * a.tokens * a.share + firstRow + row] = peak[j] * scale + __log2f(total[j]);
  }
  // Results take the place of the warpgroup's queries.
  syncGroup(group);
  const WarpRows<kRows> own{shared.queries + warp * kTile * kLine};
  own.put(out, factors[0], factors[1]);
  Number* const to = static_cast<Number*>(a.out) + (work.start * a.heads + work.kvHead * a.share) * kSize + lane % 16 * 8;
#pragma unroll
  for (int i = lane / 16; i < kTile; i += 2) {
    const int row = warpRow + i, token = query(row);
    if (row < rows)
      *reinterpret_cast<uint4*>(to + (token * a.heads + row - token * a.share) * kSize) =
          *reinterpret_cast<const uint4*>(own.at(i, lane % 16));
  }
#endif
}

}  // namespace

bool groupsFit(Kind kind, int64_t size, int share) {
  const bool isHopper = majorOfDevice() == 9 && attributeOfDevice(cudaDevAttrComputeCapabilityMinor) == 0;
  return isHopper && encoder() != nullptr && kind == Kind::BFloat16 && size == kGroupSize && kGroupRows % share == 0;
}

void launchGroupForward(const CausalAttentionArgs& a, cudaStream_t stream) {
  const auto kernel = a.familyCount > 0 ? groupForwardKernel<true> : groupForwardKernel<false>;
  launchWithMemory(kernel, blocksOf<kRows>(a, a.tokens * a.share, a.count), kThreads, 1, sizeof(Shared), stream,
                   mapOfRows(a, a.q, a.qStride, kRows), mapOfKeys(a, a.k, a.kStride, kKeys), mapOfKeys(a, a.v, a.vStride, kKeys), a);
}

}  // namespace attune
#else  // a CUDA without tensor maps
namespace attune {
bool groupsFit(Kind, int64_t, int) { return false; }
void launchGroupForward(const CausalAttentionArgs&, cudaStream_t) {}
}  // namespace attune
#endif
