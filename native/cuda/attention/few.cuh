// Attention of a decoding step that is not dealt: a cluster of blocks for each row and pair (items.cuh). The results are those of rows.cuh
// bit for bit: its warps are here warps of several blocks, so that keys come through several multiprocessors at once. A block takes little
// shared memory, so that it begins while the kernels before still run. A block by itself (CLUSTER 1) is no cluster, and joins its warps in
// its own shared memory; it may have rows in several chunks, which it takes one after the other (CUT).
#pragma once
#include "cuda/attention/rows.cuh"

namespace attune {
namespace {

constexpr int kBlocksOfFew = 32;  // of a row's table, at most: a lane holds each
constexpr int kReserved = 1024;  // bytes of a multiprocessor's shared memory that each block takes beside its own

/** The tiles of a row that is never cut; Span (items.cuh) has those of one that is. */
template <int KEYS>
struct WholeSpan {
  static constexpr int kMostChunks = 1;
  int first, last;
  __device__ WholeSpan(int position, int window)
      : first(window > 0 && position - window + 1 > 0 ? (position - window + 1) / KEYS : 0), last(position / KEYS) {}
  static constexpr __device__ int chunks() { return 1; }
  __device__ int end(int) const { return last; }
};
template <int KEYS, int CHUNK, int LONE>
struct CutSpan : Span<KEYS, CHUNK, LONE> {
  static constexpr int kMostChunks = kBlocksOfFew * kCacheBlock / KEYS >> CHUNK;
  using Span<KEYS, CHUNK, LONE>::Span;
};

/** What a block of a cluster holds, for `heads` of a pair at most. WARPS of the whole cluster go through tiles. */
template <typename Cache, typename RowSpan, int WARPS, int CLUSTER, int STAGES>
struct FewShared {
  using Query = typename Cache::Query;
  static constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kOwn = WARPS / CLUSTER,
                       kWarps = kOwn < 4 ? 4 : kOwn;  // warps that go through tiles, and all
  static constexpr int kQuery = Cache::Queries::kNumbers, kPart = D / CLUSTER, kSum = kPart + 4;  // kPart: dimensions that a block joins
  static_assert(kPart % 8 == 0);
  // one chunk's results are joined while the next one's are stored
  static constexpr int kChunks = RowSpan::kMostChunks, kTurns = kChunks > 1 ? 2 : 1, kKept = kChunks > 1 ? kChunks : 0;
  static_assert(kChunks == 1 || CLUSTER == 1);
  char* ring;  // [kOwn, STAGES]: tiles
  Query* queries;  // [heads, kQuery]
  char* newest;  // k and v of the new token
  float *sums, *scratch, *chunkSums;  // [kTurns, WARPS, heads, kSum], [kWarps, D], [kKept, heads, D]
  float2 *marks, *chunkMarks;  // [kTurns, WARPS, heads], [kKept, heads]: peak and total
  uint64_t* arrived;  // counts the bytes of `sums` and `marks` that the cluster's warps have stored

  /** What `arrived` counts. */
  static __device__ int bytesOfSums(int heads) { return WARPS * heads * static_cast<int>(kPart * sizeof(float) + sizeof(float2)); }
  static int bytes(int heads) {
    return kOwn * STAGES * Cache::kBytesOfTile + static_cast<int>(sizeof(Query)) * heads * kQuery + Cache::kBytesOfNewest +
           static_cast<int>(sizeof(float)) * (kTurns * WARPS * heads * (kSum + 2) + kWarps * D + kKept * heads * (D + 2)) +
           static_cast<int>(sizeof(uint64_t));
  }
  __device__ FewShared(char* base, int heads) {
    ring = base;
    queries = reinterpret_cast<Query*>(ring + kOwn * STAGES * Cache::kBytesOfTile);
    newest = reinterpret_cast<char*>(queries + heads * kQuery);
    sums = reinterpret_cast<float*>(newest + Cache::kBytesOfNewest);
    scratch = sums + kTurns * WARPS * heads * kSum;
    chunkSums = scratch + kWarps * D;
    marks = reinterpret_cast<float2*>(chunkSums + kKept * heads * D);
    chunkMarks = marks + kTurns * WARPS * heads;
    arrived = reinterpret_cast<uint64_t*>(chunkMarks + kKept * heads);
  }
};

/** The result of a row's chunks at one dimension, in the order in which rows.cuh adds them up. Chunk i's are `apart` times i further. */
template <int MOST>
__device__ float joinedChunks(int chunks, const float2* marks, int marksApart, const float* sums, int sumsApart) {
  float top = -INFINITY, result = 0, totals[MOST];
  for (int i = 0; i < chunks; i++) top = fmaxf(top, marks[i * marksApart].x);
#pragma unroll
  for (int i = 0; i < MOST; i++) {
    const float2 mark = i < chunks ? marks[i * marksApart] : float2{-INFINITY, 0};
    const float fade = powerOf2(mark.x - top);
    totals[i] = __fmul_rn(mark.y, fade);
    result += fade * (i < chunks ? sums[i * sumsApart] : 0.0f);
  }
#pragma unroll
  for (int half = MOST / 2; half > 0; half /= 2)
#pragma unroll
    for (int i = 0; i < half; i++) totals[i] += totals[i + half];
  return result / totals[0];
}

// With GENTLE a warp asks for a tile when the one before is there. Otherwise the keys of all rows would be under way when the product
// before this kernel asks for its x, which would come after them.
template <typename Cache, typename RowSpan, int WARPS, int CLUSTER, int STAGES, bool GENTLE>
__global__ void __launch_bounds__(32 * FewShared<Cache, RowSpan, WARPS, CLUSTER, STAGES>::kWarps, CLUSTER == 1 ? 2 : 4)
    attentionFewKernel(AttentionArgs a, int most, int parts) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using T = typename Cache::Model;
  using Shared = FewShared<Cache, RowSpan, WARPS, CLUSTER, STAGES>;
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
  const int block = lane < a.tableWidth ? tableOf(a, row)[lane] : 0;
  const auto blockOf = [&](int at) { return static_cast<int64_t>(__shfl_sync(0xFFFFFFFF, block, at / kCacheBlock)); };
  const int firstKey = window > 0 ? max(0, position - window + 1) : 0;
  const RowSpan span(position, window);
  const int first = span.first, last = span.last, chunks = span.chunks();
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

  const auto* const queries = shared.queries + min(g, heads - 1) * Shared::kQuery + t * Cache::Queries::kQuarter;
  int now = begin, stage = 0;
  for (int chunk = 0; chunk < chunks; chunk++) {
    const int turn = chunk % Shared::kTurns;
    float* const sums = shared.sums + turn * WARPS * most * Shared::kSum;
    float2* const marks = shared.marks + turn * WARPS * most;
    // —— this warp's tiles ——
    if (warp < kOwn) {
      const auto scales = Cache::scoreScales(shared.queries, heads, a.scale * kLog2);
      typename Cache::Running running;
      const int end = span.end(chunk);
#pragma unroll 1
      for (; now <= end; now += WARPS) {
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
      if (chunks == 1) {
        static_cast<T*>(a.out)[(row * a.heads + head + which) * D + rank * kPart + d] = narrow<T>(joined.result / joined.all);
      } else {
        shared.chunkSums[chunk * most * D + at] = joined.result;
        if (d == 0) shared.chunkMarks[chunk * most + which] = {joined.top, joined.all};
      }
    }
  }
  if (chunks == 1) return;
  __syncthreads();
  for (int at = threadIdx.x; at < heads * D; at += kThreads) {
    const float result = joinedChunks<Shared::kChunks>(chunks, shared.chunkMarks + at / D, most, shared.chunkSums + at, most * D);
    static_cast<T*>(a.out)[(row * a.heads + head) * D + at] = narrow<T>(result);
  }
#endif
}

/**
 * RING: KB of keys and values that a block has room for, beside their scales. False, and nothing done, where it is too large for the device,
 * or with rows in several chunks for two on a multiprocessor.
 */
template <typename Cache, typename RowSpan, int WARPS, int CLUSTER, int RING, bool GENTLE>
bool launchAttentionFew(const AttentionArgs& a, cudaStream_t stream) {
  constexpr int kMostTiles = (kTile << loneOf(Cache::kSize)) / Cache::kKeys / WARPS,
                kFit = (RING << 10) / (WARPS / CLUSTER * Cache::kBytesOfNumbers);
  constexpr int kStages = kFit < kMostTiles ? kFit : kMostTiles;
  using Shared = FewShared<Cache, RowSpan, WARPS, CLUSTER, kStages>;
  const int share = static_cast<int>(a.heads / a.groups), heads = std::min(share, kMostHeads), parts = (share + heads - 1) / heads;
  const int bytes = Shared::bytes(heads);
  if (bytes > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return false;
  if (Shared::kChunks > 1 && 2 * (bytes + kReserved) > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerMultiprocessor)) return false;
  const dim3 grid(static_cast<unsigned>(a.rows * a.groups * parts * CLUSTER));
  launchWithMemory<kAnyShared>(attentionFewKernel<Cache, RowSpan, WARPS, CLUSTER, kStages, GENTLE>, grid, 32 * Shared::kWarps, CLUSTER,
                               bytes, stream, a, heads, parts);
  return true;
}

}  // namespace
}  // namespace attune
