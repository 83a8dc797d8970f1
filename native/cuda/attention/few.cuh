// Attention of a decoding step for few rows, none of them in several chunks: a cluster of blocks for each row and pair (items.cuh). The
// results are those of rows.cuh bit for bit: its warps are here warps of several blocks, so that keys come through several
// multiprocessors at once. A block takes little shared memory, so that it begins while the kernels before still run. A block by itself
// (CLUSTER 1) is no cluster, and joins its warps in its own shared memory.
#pragma once
#include "cuda/attention/rows.cuh"

namespace attune {
namespace {

/** What a block of a cluster holds, for `heads` of a pair at most. WARPS of the whole cluster go through tiles. */
template <typename Cache, int WARPS, int CLUSTER, int STAGES>
struct FewShared {
  using Query = typename Cache::Query;
  static constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kOwn = WARPS / CLUSTER,
                       kWarps = kOwn < 4 ? 4 : kOwn;  // warps that go through tiles, and all
  static constexpr int kQuery = Cache::Queries::kNumbers, kPart = D / CLUSTER, kSum = kPart + 4;  // kPart: dimensions that a block joins
  static_assert(kPart % 8 == 0);
  char* ring;  // [kOwn, STAGES]: tiles
  Query* queries;  // [heads, kQuery]
  char* newest;  // k and v of the new token
  float *sums, *scratch;  // [WARPS, heads, kSum], [kWarps, D]
  float2* marks;  // [WARPS, heads]: peak and total
  uint64_t* arrived;  // counts the bytes of `sums` and `marks` that the cluster's warps have stored

  /** What `arrived` counts. */
  static __device__ int bytesOfSums(int heads) { return WARPS * heads * static_cast<int>(kPart * sizeof(float) + sizeof(float2)); }
  static int bytes(int heads) {
    return kOwn * STAGES * Cache::kBytesOfTile + static_cast<int>(sizeof(Query)) * heads * kQuery + Cache::kBytesOfNewest +
           static_cast<int>(sizeof(float)) * (WARPS * heads * (kSum + 2) + kWarps * D) + static_cast<int>(sizeof(uint64_t));
  }
  __device__ FewShared(char* base, int heads) {
    ring = base;
    queries = reinterpret_cast<Query*>(ring + kOwn * STAGES * Cache::kBytesOfTile);
    newest = reinterpret_cast<char*>(queries + heads * kQuery);
    sums = reinterpret_cast<float*>(newest + Cache::kBytesOfNewest);
    scratch = sums + WARPS * heads * kSum;
    marks = reinterpret_cast<float2*>(scratch + kWarps * D);
    arrived = reinterpret_cast<uint64_t*>(marks + WARPS * heads);
  }
};

// With GENTLE a warp asks for a tile when the one before is there. Otherwise the keys of all rows would be under way when the product
// before this kernel asks for its x, which would come after them.
template <typename Cache, int WARPS, int CLUSTER, int STAGES, bool GENTLE>
__global__ void __launch_bounds__(32 * FewShared<Cache, WARPS, CLUSTER, STAGES>::kWarps, CLUSTER == 1 ? 2 : 4)
    attentionFewKernel(AttentionArgs a, int most, int parts) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using T = typename Cache::Model;
  using Shared = FewShared<Cache, WARPS, CLUSTER, STAGES>;
  constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kOwn = Shared::kOwn, kPart = Shared::kPart, kThreads = 32 * Shared::kWarps;
  constexpr float kLog2 = 1.44269504f;
  extern __shared__ __align__(128) char dynamicShared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int groups = static_cast<int>(a.groups), window = static_cast<int>(a.window), share = static_cast<int>(a.heads) / groups;
  const int rank = static_cast<int>(blockIdx.x) % CLUSTER, item = static_cast<int>(blockIdx.x) / CLUSTER;
  const int row = item / (groups * parts), group = item % (groups * parts) / parts, part = item % parts;
  const int heads = min(most, share - part * most), head = group * share + part * most;
  const Shared shared(dynamicShared, most);
  if (CLUSTER > 1 && threadIdx.x == 0) {
    initBarrier(shared.arrived);
    publishBarriers();
    expectBytes(shared.arrived, Shared::bytesOfSums(heads));
  }
  if constexpr (CLUSTER > 1) clusterArrive();

  // —— keys and values of earlier tokens ——
  const int position = static_cast<int>(a.positions[row]);
  const int block = lane < a.tableWidth ? tableOf(a, row)[lane] : 0;  // each lane holds one: a table of one chunk has no more
  const auto blockOf = [&](int at) { return static_cast<int64_t>(__shfl_sync(0xFFFFFFFF, block, at / kCacheBlock)); };
  const int firstKey = window > 0 ? max(0, position - window + 1) : 0, first = firstKey / kKeys, last = position / kKeys;
  char* const ring = shared.ring + warp * STAGES * Cache::kBytesOfTile;
  const auto placeOf = [&](int at) { return blockOf(at) * kCacheBlock + at % kCacheBlock; };
  const auto ask = [&](int tile, int stage) {
    if (tile <= last) Cache::copy(ring + stage * Cache::kBytesOfTile, a, placeOf(tile * kKeys), group, position - tile * kKeys);
    commitCopies();
  };
  const int ofCluster = rank * kOwn + warp;  // the warp that this one is in rows.cuh: tiles begin, begin + WARPS …
  const int begin = warp < kOwn ? first + ofCluster : last + 1;
#pragma unroll
  for (int i = 0; i < STAGES; i++) {
    if (GENTLE && i > 0) waitForCopies<0>();
    ask(begin + i * WARPS, i);
  }
  letNextBegin();

  // —— one head of q, k or v per warp: k and v where the block has the new token's tile ——
  const int wanted = heads + ((last - first) % WARPS / kOwn == rank ? 2 : 0);
  const auto headAt = [&](int which) {
    return Head<T, D>(a, position, which < heads ? a.qWeight : which == heads ? a.kWeight : nullptr, which <= heads);
  };
  const int64_t newest = placeOf(position);
  const auto prepare = [&](Head<T, D>& of, int which) {
    if (which < heads) {
      of.prepare(static_cast<const T*>(a.q) + row * a.qStride + (head + which) * D, shared.scratch + warp * D);
      Cache::putQuery(of.values, shared.queries + which * Shared::kQuery);
    } else {
      of.prepare(static_cast<const T*>(which == heads ? a.k : a.v) + row * a.kvStride + group * D, shared.scratch + warp * D);
      Cache::write(a, newest, group, which - heads, of, shared.newest, part == 0);
    }
  };
  Head<T, D> ownHead = headAt(warp);
  if constexpr (CLUSTER > 1) clusterWait();  // all blocks of the cluster have begun, and their barriers are there
  waitForPrevious();
  if (warp < wanted) prepare(ownHead, warp);
  for (int which = warp + Shared::kWarps; which < wanted; which += Shared::kWarps) {
    Head<T, D> another = headAt(which);
    prepare(another, which);
  }
  __syncthreads();

  // —— this warp's tiles ——
  if (warp < kOwn) {
    const auto* const queries = shared.queries + min(g, heads - 1) * Shared::kQuery + t * Cache::Queries::kQuarter;
    const auto scales = Cache::scoreScales(shared.queries, heads, a.scale * kLog2);
    typename Cache::Running running;
    int stage = 0;
#pragma unroll 1
    for (int now = begin; now <= last; now += WARPS) {
      char* const own = ring + stage * Cache::kBytesOfTile;
      waitForCopies<STAGES - 1>();
      __syncwarp();
      if (now == last) {
        Cache::put(own, position % kKeys, shared.newest);
        __syncwarp();
      }
      running.add(own, queries, scales, [&](float(&score)[4], int part) {
        const int key = now * kKeys + part + g;  // and key + 8
        if (now == last || now == first)
#pragma unroll
          for (int j = 0; j < 4; j++)
            if (key + j / 2 * 8 > position || key + j / 2 * 8 < firstKey) score[j] = -INFINITY;
      });
      __syncwarp();  // all lanes have read the tile
      ask(now + STAGES * WARPS, stage);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
    }

    // —— to the blocks of the cluster: each joins some dimensions ——
    running.finish();
    if (position == 0 && begin == 0) Cache::finishAlone(running, shared.newest);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int which = 2 * t + j, place = ofCluster * most + which;
      if (which >= heads) continue;
      const float2 mark{running.peak[j], running.total[j]};
      if constexpr (CLUSTER == 1) {
        if (g == 0) shared.marks[place] = mark;
        running.store(j, shared.sums + place * Shared::kSum);
      } else {
        if (g == 0)
#pragma unroll
          for (int to = 0; to < CLUSTER; to++) storeAsync(addressOf(shared.marks + place, to), mark, addressOf(shared.arrived, to));
        running.template send<kPart>(j, shared.sums + place * Shared::kSum, shared.arrived);
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
    joined.join<WARPS>(shared.marks + which, most, shared.sums + which * Shared::kSum + d, most * Shared::kSum);
    static_cast<T*>(a.out)[(row * a.heads + head + which) * D + rank * kPart + d] = narrow<T>(joined.result / joined.all);
  }
#endif
}

/** RING: KB of keys and values that a block has room for, beside their scales. False, and nothing done, where it is too large for the device. */
template <typename Cache, int WARPS, int CLUSTER, int RING, bool GENTLE>
bool launchAttentionFew(const AttentionArgs& a, cudaStream_t stream) {
  constexpr int kMostTiles = (kTile << loneOf(Cache::kSize)) / Cache::kKeys / WARPS,
                kFit = (RING << 10) / (WARPS / CLUSTER * Cache::kBytesOfNumbers);
  constexpr int kStages = kFit < kMostTiles ? kFit : kMostTiles;
  using Shared = FewShared<Cache, WARPS, CLUSTER, kStages>;
  const int share = static_cast<int>(a.heads / a.groups), heads = std::min(share, kMostHeads), parts = (share + heads - 1) / heads;
  const int bytes = Shared::bytes(heads);
  if (bytes > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return false;
  const dim3 grid(static_cast<unsigned>(a.rows * a.groups * parts * CLUSTER));
  launchWithMemory<kAnyShared>(attentionFewKernel<Cache, WARPS, CLUSTER, kStages, GENTLE>, grid, 32 * Shared::kWarps, CLUSTER, bytes,
                               stream, a, heads, parts);
  return true;
}

}  // namespace
}  // namespace attune
