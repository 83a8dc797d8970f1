// Attention of a decoding step whose work is not divided into items (items.cuh): a cluster of blocks for each row and pair. The results are
// those of rows.cuh bit for bit: its warps are spread over several blocks here, so that keys are read by several multiprocessors at once. A
// block takes little shared memory, so it can begin while earlier kernels still run. A single block (CLUSTER 1) forms no cluster, and
// combines its warps in its own shared memory. It may handle EACH kv heads of a row, one after the other: the next one's keys are requested
// before the present one's warps are combined.
#pragma once
#include "cuda/attention/rows.cuh"

namespace attune {
namespace {

constexpr int kBlocksOfFew = 32;  // of a row's table, at most: a lane holds each
constexpr int kReserved = 1024;  // bytes of a multiprocessor's shared memory that each block takes beside its own

/** The tiles of a row that is never cut; Span (items.cuh) has those of one that is. */
template <int KEYS>
struct WholeSpan {
  int first, last;
  __device__ WholeSpan(int position, int window)
      : first(window > 0 && position - window + 1 > 0 ? (position - window + 1) / KEYS : 0), last(position / KEYS) {}
};

/** What a block of a cluster holds, for `heads` of a pair at most. WARPS of the whole cluster go through tiles. */
template <typename Cache, int WARPS, int CLUSTER, int STAGES, int EACH>
struct FewShared {
  using Query = typename Cache::Query;
  static constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kOwn = WARPS / CLUSTER,
                       kWarps = kOwn < 4 ? 4 : kOwn;  // warps that go through tiles, and all
  static constexpr int kQuery = Cache::Queries::kNumbers, kPart = D / CLUSTER, kSum = kPart + 4;  // kPart: dimensions that a block joins
  static_assert(kPart % 8 == 0);
  static constexpr int kBlocks = CLUSTER > 1 ? 4 : kOwn * STAGES * Cache::kBytesOfTile > 100 << 10 ? 1 : 2;  // of a multiprocessor
  static constexpr int kTurns = EACH > 1 ? 2 : 1;  // one kv head's results are joined while the next one's are stored
  static_assert(EACH == 1 || CLUSTER == 1);
  char* ring;  // [kOwn, STAGES]: tiles
  Query* queries;  // [EACH, heads, kQuery]
  char* newest;  // [EACH]: k and v of the new token
  float *sums, *scratch;  // [kTurns, WARPS, heads, kSum], [kWarps, D]
  float2* marks;  // [kTurns, WARPS, heads]: peak and total
  uint64_t* arrived;  // counts the bytes of `sums` and `marks` that the cluster's warps have stored

  /** What `arrived` counts. */
  static __device__ int bytesOfSums(int heads) { return WARPS * heads * static_cast<int>(kPart * sizeof(float) + sizeof(float2)); }
  static int bytes(int heads) {
    return kOwn * STAGES * Cache::kBytesOfTile + EACH * (static_cast<int>(sizeof(Query)) * heads * kQuery + Cache::kBytesOfNewest) +
           static_cast<int>(sizeof(float)) * (kTurns * WARPS * heads * (kSum + 2) + kWarps * D) + static_cast<int>(sizeof(uint64_t));
  }
  __device__ FewShared(char* base, int heads) {
    ring = base;
    queries = reinterpret_cast<Query*>(ring + kOwn * STAGES * Cache::kBytesOfTile);
    newest = reinterpret_cast<char*>(queries + EACH * heads * kQuery);
    sums = reinterpret_cast<float*>(newest + EACH * Cache::kBytesOfNewest);
    scratch = sums + kTurns * WARPS * heads * kSum;
    marks = reinterpret_cast<float2*>(scratch + kWarps * D);
    arrived = reinterpret_cast<uint64_t*>(marks + kTurns * WARPS * heads);
  }
};

/**
 * When a warp asks for the first tiles of its ring: all at once; each when the one before is there, because otherwise the keys of all rows
 * would be under way when the product before this kernel asks for its x, which would come after them; or all but the first one when the
 * queries are prepared, which they are sooner with less under way.
 */
enum class Asking { AtOnce, Gently, AfterQueries };

template <typename Cache, int WARPS, int CLUSTER, int STAGES, Asking ASKING, int EACH>
__global__ void __launch_bounds__(32 * FewShared<Cache, WARPS, CLUSTER, STAGES, EACH>::kWarps,
                                  FewShared<Cache, WARPS, CLUSTER, STAGES, EACH>::kBlocks)
    attentionFewKernel(AttentionArgs a, int most, int parts) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using T = typename Cache::Model;
  using Shared = FewShared<Cache, WARPS, CLUSTER, STAGES, EACH>;
  constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kOwn = Shared::kOwn, kPart = Shared::kPart, kThreads = 32 * Shared::kWarps;
  // With one tile a warp, the next keys are asked for while the present values are worked on.
  constexpr bool kParts = CLUSTER == 1 && STAGES == 1;
  constexpr float kLog2 = 1.44269504f;
  extern __shared__ __align__(128) char dynamicShared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int groups = static_cast<int>(a.groups), window = static_cast<int>(a.window), share = static_cast<int>(a.heads) / groups;
  const int rank = static_cast<int>(blockIdx.x) % CLUSTER, item = static_cast<int>(blockIdx.x) / CLUSTER;
  const int pairs = groups * parts / EACH;  // with several kv heads a block, parts is 1
  const int row = item / pairs, firstGroup = item % pairs * EACH / parts, part = item % parts;
  const int heads = min(most, share - part * most), firstHead = firstGroup * share + part * most;
  const int position = static_cast<int>(a.positions[row]);
  if (position == 0 && a.slots[row] == a.spareSlot) {  // an idle row
    if (blockIdx.x == 0) waitForPrevious();  // that this kernel has ended says that the one before has
    return;
  }
  const Shared shared(dynamicShared, most);
  if (CLUSTER > 1 && threadIdx.x == 0) {
    initBarrier(shared.arrived);
    publishBarriers();
    expectBytes(shared.arrived, Shared::bytesOfSums(heads));
  }
  if constexpr (CLUSTER > 1) clusterArrive();

  // —— keys and values of earlier tokens ——
  const int block = lane < a.tableWidth ? tableOf(a, row)[lane] : 0;
  const auto blockOf = [&](int at) { return static_cast<int64_t>(__shfl_sync(0xFFFFFFFF, block, at / kCacheBlock)); };
  const int firstKey = window > 0 ? max(0, position - window + 1) : 0;
  const WholeSpan<kKeys> span(position, window);
  const int first = span.first, last = span.last;
  char* const ring = shared.ring + warp * STAGES * Cache::kBytesOfTile;
  const auto placeOf = [&](int at) { return blockOf(at) * kCacheBlock + at % kCacheBlock; };
  const int ofCluster = rank * kOwn + warp;  // the warp that this one is in rows.cuh: tiles begin, begin + WARPS …
  const int begin = warp < kOwn ? first + ofCluster : last + 1;
  int asked = begin, askedEach = 0;  // the tile that is asked for next, and of which kv head
  int64_t askedPlace = 0;
  const auto askKeys = [&](int stage) {
    if (asked <= last) {
      askedPlace = placeOf(asked * kKeys);
      Cache::template copy<true, !kParts>(ring + stage * Cache::kBytesOfTile, a, askedPlace, firstGroup + askedEach,
                                          position - asked * kKeys);
    }
    commitCopies();
  };
  const auto askValues = [&](int stage) {
    if (asked <= last) {
      if (kParts)
        Cache::template copy<false, true>(ring + stage * Cache::kBytesOfTile, a, askedPlace, firstGroup + askedEach,
                                          position - asked * kKeys);
      asked += WARPS;
      if (EACH > 1 && asked > last && ++askedEach < EACH) asked = begin;
    }
    if (kParts) commitCopies();
  };
#pragma unroll
  for (int i = 0; i < (ASKING == Asking::AfterQueries ? 1 : STAGES); i++) {
    if (ASKING == Asking::Gently && i > 0) waitForCopies<0>();
    askKeys(i);
    askValues(i);
  }
  letNextBegin();

  // —— one head of q, k or v per warp: k and v where the block has the new token's tile ——
  const int wantedOfEach = heads + ((last - first) % WARPS / kOwn == rank ? 2 : 0), wanted = EACH * wantedOfEach;
  const auto headAt = [&](int at) {
    const int which = EACH == 1 ? at : at % wantedOfEach;
    return Head<T, D>(a, position, which < heads ? a.qWeight : which == heads ? a.kWeight : nullptr, which <= heads);
  };
  const int64_t newest = placeOf(position);
  const auto prepare = [&](Head<T, D>& of, int at) {
    const int each = EACH == 1 ? 0 : at / wantedOfEach, which = at - each * wantedOfEach, group = firstGroup + each;
    if (which < heads) {
      of.prepare(static_cast<const T*>(a.q) + row * a.qStride + (firstHead + each * share + which) * D, shared.scratch + warp * D);
      Cache::putQuery(of.values, shared.queries + (each * most + which) * Shared::kQuery);
    } else {
      of.prepare(static_cast<const T*>(which == heads ? a.k : a.v) + row * a.kvStride + group * D, shared.scratch + warp * D);
      Cache::write(a, newest, group, which - heads, of, shared.newest + each * Cache::kBytesOfNewest, part == 0);
    }
  };
  Head<T, D> ownHead = headAt(warp);
  if constexpr (CLUSTER > 1) clusterWait();  // all blocks of the cluster have begun, and their barriers are there
  waitForPrevious();
  if (warp < wanted) prepare(ownHead, warp);
  for (int at = warp + Shared::kWarps; at < wanted; at += Shared::kWarps) {
    Head<T, D> another = headAt(at);
    prepare(another, at);
  }
  if constexpr (ASKING == Asking::AfterQueries)
#pragma unroll
    for (int i = 1; i < STAGES; i++) {
      askKeys(i);
      askValues(i);
    }
  __syncthreads();

  int stage = 0;
#pragma unroll 1
  for (int each = 0; each < EACH; each++) {
    const auto* const ofHeads = shared.queries + each * most * Shared::kQuery;
    const auto* const queries = ofHeads + min(g, heads - 1) * Shared::kQuery + t * Cache::Queries::kQuarter;
    const char* const newToken = shared.newest + each * Cache::kBytesOfNewest;
    T* const out = static_cast<T*>(a.out) + (row * a.heads + firstHead + each * share) * D;
    const int turn = each % Shared::kTurns;
    int now = begin;
    float* const sums = shared.sums + turn * WARPS * most * Shared::kSum;
    float2* const marks = shared.marks + turn * WARPS * most;
    // —— this warp's tiles ——
    if (warp < kOwn) {
      const auto scales = Cache::scoreScales(ofHeads, heads, a.scale * kLog2);
      typename Cache::Running running;
#pragma unroll 1
      for (; now <= last; now += WARPS) {
        char* const own = ring + stage * Cache::kBytesOfTile;
        if (kParts && now == last)
          waitForCopies<0>();
        else
          waitForCopies<kParts ? 1 : STAGES - 1>();
        __syncwarp();
        if (now == last) {
          Cache::put(own, position % kKeys, newToken);
          __syncwarp();
        }
        const auto hide = [&](float(&score)[4], int part) {
          const int key = now * kKeys + part + g;  // and key + 8
          if (now == last || now == first) hideKeys(score, key, firstKey, position);
        };
        if constexpr (kParts) {
          const auto keysAreRead = [&] {
            __syncwarp();  // by all lanes
            askKeys(stage);
          };
          const auto awaitValues = [&] {
            waitForCopies<1>();
            __syncwarp();
          };
          running.add(own, queries, scales, hide, keysAreRead, awaitValues);
        } else {
          running.add(own, queries, scales, hide);
        }
        __syncwarp();  // all lanes have read the tile
        if (!kParts) askKeys(stage);
        askValues(stage);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
      }

      // —— to the blocks of the cluster: each joins some dimensions ——
      running.finish();
      if (position == 0 && begin == 0) Cache::finishAlone(running, newToken);
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int which = 2 * t + j, place = ofCluster * most + which;
        if (which >= heads) continue;
        const float2 mark{running.peak[j], running.total[j]};
        if constexpr (CLUSTER == 1) {
          if (g == 0) marks[place] = mark;
          running.store(j, sums + place * Shared::kSum);
        } else {
          if (g == 0)
#pragma unroll
            for (int to = 0; to < CLUSTER; to++) storeAsync(addressOf(marks + place, to), mark, addressOf(shared.arrived, to));
          running.template send<kPart>(j, sums + place * Shared::kSum, shared.arrived);
        }
      }
    }
    if constexpr (CLUSTER > 1)
      waitForStores(shared.arrived);
    else
      __syncthreads();
    for (int at = threadIdx.x; at < heads * kPart; at += kThreads) {
      const int which = at / kPart, d = at % kPart;
      JoinedWarps joined;
      joined.join<WARPS>(marks + which, most, sums + which * Shared::kSum + d, most * Shared::kSum);
      out[which * D + rank * kPart + d] = narrow<T>(joined.result / joined.all);
    }
  }
#endif
}

/**
 * RING: KB of keys and values that a block has room for, beside their scales. False, and nothing done, where it is too large for the device,
 * or with several kv heads a block for two on a multiprocessor.
 */
template <typename Cache, int WARPS, int CLUSTER, int RING, Asking ASKING, int EACH = 1>
bool launchAttentionFew(const AttentionArgs& a, cudaStream_t stream) {
  constexpr int kMostTiles = (kTile << loneOf(Cache::kSize)) / Cache::kKeys / WARPS,
                kFit = (RING << 10) / (WARPS / CLUSTER * Cache::kBytesOfNumbers);
  constexpr int kStages = kFit < kMostTiles ? kFit : kMostTiles;
  using Shared = FewShared<Cache, WARPS, CLUSTER, kStages, EACH>;
  const int share = static_cast<int>(a.heads / a.groups), heads = std::min(share, kMostHeads), parts = (share + heads - 1) / heads;
  const int bytes = Shared::bytes(heads);
  if (bytes > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return false;
  if (Shared::kTurns > 1 && 2 * (bytes + kReserved) > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerMultiprocessor)) return false;
  if (EACH > 1 && (parts > 1 || a.groups % EACH != 0)) return false;
  const dim3 grid(static_cast<unsigned>(a.rows * (a.groups / EACH) * parts * CLUSTER));
  launchWithMemory<kAnyShared>(attentionFewKernel<Cache, WARPS, CLUSTER, kStages, ASKING, EACH>, grid, 32 * Shared::kWarps, CLUSTER, bytes,
                               stream, a, heads, parts);
  return true;
}

}  // namespace
}  // namespace attune
