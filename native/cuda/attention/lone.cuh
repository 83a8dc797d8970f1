// Attention of a decoding step over an 8-bit cache, if each row and kv head has a multiprocessor of its own: one block. The results are
// those of rows.cuh bit for bit. Its warps do not wait for each other until they are combined: each prepares the query heads itself, and a
// further warp prepares the new token's k and v, which only the last tile needs. A warp's ring holds half tiles, of keys or of values, so
// that the block fits beside the product before it and begins before that one ends.
#pragma once
#include "cuda/attention/few.cuh"

namespace attune {
namespace {

/** What a block holds, for `heads` query heads at most. */
template <typename Cache, int WARPS, int HALVES>
struct LoneShared {
  using Query = typename Cache::Query;
  static constexpr int D = Cache::kSize, kQuery = Cache::Queries::kNumbers, kSum = D + 4, kHalf = Cache::kBytes,
                       kScales = Cache::kBytesOfTile - Cache::kBytesOfNumbers, kRing = HALVES * (kHalf + kScales);
  char *ring, *newest;  // [WARPS, kRing]: half tiles, and a tile's scales for each; k and v of the new token
  Query* queries;  // [WARPS, heads, kQuery]
  float *sums, *scratch;  // [WARPS, heads, kSum], [WARPS + 1, D]
  float2* marks;  // [WARPS, heads]: peak and total

  static int bytes(int heads) {
    return WARPS * kRing + Cache::kBytesOfNewest + static_cast<int>(sizeof(Query)) * WARPS * heads * kQuery +
           static_cast<int>(sizeof(float)) * (WARPS * heads * (kSum + 2) + (WARPS + 1) * D);
  }
  __device__ LoneShared(char* base, int heads) {
    ring = base;
    newest = ring + WARPS * kRing;
    queries = reinterpret_cast<Query*>(newest + Cache::kBytesOfNewest);
    sums = reinterpret_cast<float*>(queries + WARPS * heads * kQuery);
    scratch = sums + WARPS * heads * kSum;
    marks = reinterpret_cast<float2*>(scratch + (WARPS + 1) * D);
  }
};

template <typename Cache, int WARPS, int HALVES>
__global__ void __launch_bounds__(32 * (WARPS + 1), 2) attentionLoneKernel(AttentionArgs a, int most, int parts) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using T = typename Cache::Model;
  using Shared = LoneShared<Cache, WARPS, HALVES>;
  constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kThreads = 32 * (WARPS + 1);
  constexpr float kLog2 = 1.44269504f;
  extern __shared__ __align__(128) char dynamicShared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, item = static_cast<int>(blockIdx.x);
  const int groups = static_cast<int>(a.groups), window = static_cast<int>(a.window), share = static_cast<int>(a.heads) / groups;
  const int row = item / (groups * parts), group = item % (groups * parts) / parts, part = item % parts;
  const int heads = min(most, share - part * most), firstHead = group * share + part * most;
  const Shared shared(dynamicShared, most);
  const int position = static_cast<int>(a.positions[row]);
  const int block = lane < a.tableWidth ? tableOf(a, row)[lane] : 0;
  const auto placeOf = [&](int at) {
    return static_cast<int64_t>(__shfl_sync(0xFFFFFFFF, block, at / kCacheBlock)) * kCacheBlock + at % kCacheBlock;
  };
  const WholeSpan<kKeys> span(position, window);
  const int first = span.first, last = span.last, firstKey = window > 0 ? max(0, position - window + 1) : 0;
  float* const scratch = shared.scratch + warp * D;

  if (warp == WARPS) {
    // —— the new token ——
    letNextBegin();
    const int64_t newest = placeOf(position);
    Head<T, D> key(a, position, a.kWeight, true), value(a, false, false);
    waitForPrevious();
    key.load(static_cast<const T*>(a.k) + row * a.kvStride + group * D);
    value.load(static_cast<const T*>(a.v) + row * a.kvStride + group * D);
    key.finish(scratch);
    Cache::write(a, newest, group, 0, key, shared.newest, part == 0);
    Cache::write(a, newest, group, 1, value, shared.newest, part == 0);
    __syncwarp();
    arriveThreads<1, 64>();  // for the warp that has the last tile
  } else {
    // —— keys and values of earlier tokens: this warp's tiles are begin, begin + WARPS … ——
    const int begin = first + warp;
    char *const ring = shared.ring + warp * Shared::kRing, *const scalesOfRing = ring + HALVES * Shared::kHalf;
    int asked = begin, askedWhich = 0, askedSlot = 0;
    const auto ask = [&] {
      if (asked <= last) {
        const int64_t place = placeOf(asked * kKeys);
        const int count = position - asked * kKeys;
        if (askedWhich == 0) Cache::copyScales(scalesOfRing + askedSlot * Shared::kScales, a, place, group, count);
        Cache::copyHalf(ring + askedSlot * Shared::kHalf, a, place, group, count, askedWhich);
        asked += askedWhich * WARPS;
        askedWhich ^= 1;
      }
      commitCopies();
      askedSlot = askedSlot + 1 == HALVES ? 0 : askedSlot + 1;
    };
#pragma unroll 1
    for (int i = 0; i < HALVES; i++) {
      if (i > 0) waitForCopies<0>();  // with more under way, the product before would get its x later
      ask();
    }
    letNextBegin();

    // —— the query heads, two at a time ——
    auto* const rows = shared.queries + warp * most * Shared::kQuery;
    const T* const q = static_cast<const T*>(a.q) + row * a.qStride + firstHead * D;
    const Head<T, D> loaded(a, position, a.qWeight, true);
    waitForPrevious();
#pragma unroll 1
    for (int head = 0; head < heads; head += 2) {
      Head<T, D> one = loaded, two = loaded;
      const int second = min(head + 1, heads - 1);
      one.load(q + head * D);
      two.load(q + second * D);
      one.finish(scratch);
      two.finish(scratch);
      Cache::putQuery(one.values, rows + head * Shared::kQuery);
      Cache::putQuery(two.values, rows + second * Shared::kQuery);
    }
    __syncwarp();

    // —— this warp's tiles ——
    const auto* const queries = rows + min(g, heads - 1) * Shared::kQuery + t * Cache::Queries::kQuarter;
    const auto scales = Cache::scoreScales(rows, heads, a.scale * kLog2);
    typename Cache::Running running;
    int slot = 0;
#pragma unroll 1
    for (int now = begin; now <= last; now += WARPS) {
      const int valueSlot = slot + 1 == HALVES ? 0 : slot + 1;
      char *const keys = ring + slot * Shared::kHalf, *const values = ring + valueSlot * Shared::kHalf;
      char* const ofBoth = scalesOfRing + slot * Shared::kScales;
      slot = valueSlot + 1 == HALVES ? 0 : valueSlot + 1;
      waitForCopies<HALVES - 1>();
      __syncwarp();
      if (now == last) {
        syncThreads<1, 64>();
        Cache::putHalf(keys, position % kKeys, shared.newest, 0);
        Cache::putScales(ofBoth, position % kKeys, shared.newest);
        __syncwarp();
      }
      const auto hide = [&](float(&score)[4], int part) {
        const int key = now * kKeys + part + g;  // and key + 8
        if (now == last || now == first) hideKeys(score, key, firstKey, position);
      };
      const auto keysAreRead = [&] {
        __syncwarp();  // by all lanes
        ask();
      };
      const auto awaitValues = [&] {
        waitForCopies<HALVES - 1>();
        __syncwarp();
        if (now != last) return;
        Cache::putHalf(values, position % kKeys, shared.newest, 1);
        __syncwarp();
      };
      running.addHalves(keys, values, ofBoth, queries, scales, hide, keysAreRead, awaitValues);
      __syncwarp();  // all lanes have read the values
      ask();
    }
    running.finish();
    if (position == 0 && begin == 0) Cache::finishAlone(running, shared.newest);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int which = 2 * t + j, place = warp * most + which;
      if (which >= heads) continue;
      if (g == 0) shared.marks[place] = {running.peak[j], running.total[j]};
      running.store(j, shared.sums + place * Shared::kSum);
    }
  }
  __syncthreads();
  T* const out = static_cast<T*>(a.out) + (row * a.heads + firstHead) * D;
  for (int at = threadIdx.x; at < heads * D; at += kThreads) {
    JoinedWarps joined;
    joined.join<WARPS>(shared.marks + at / D, most, shared.sums + at / D * Shared::kSum + at % D, most * Shared::kSum);
    out[at] = narrow<T>(joined.result / joined.all);
  }
#endif
}

/** False, and nothing done, where a block is too large for the device. */
template <typename Cache, int WARPS, int HALVES>
bool launchAttentionLone(const AttentionArgs& a, cudaStream_t stream) {
  using Shared = LoneShared<Cache, WARPS, HALVES>;
  const int share = static_cast<int>(a.heads / a.groups), heads = std::min(share, kMostHeads), parts = (share + heads - 1) / heads;
  const int bytes = Shared::bytes(heads);
  if (bytes > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return false;
  launchWithMemory<kAnyShared>(attentionLoneKernel<Cache, WARPS, HALVES>, dim3(static_cast<unsigned>(a.rows * a.groups * parts)),
                               32 * (WARPS + 1), 1, bytes, stream, a, heads, parts);
  return true;
}

}  // namespace
}  // namespace attune
