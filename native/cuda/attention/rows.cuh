// Attention of a decoding step on tensor cores (attention.cu has the definition), for bf16 and f16 and head sizes 32 to 256.
//
// The cost is reading keys and values once, so the copies never stop: one block on each multiprocessor goes through items (items.cuh).
// WARPS of its warps only process tiles: each has a ring of them in shared memory, which it fills ahead, across items. The first copies
// start before the previous kernel has ended. Two groups of HELPERS further warps do the work between items, alternating: they prepare an
// item's q, k and v while the tiles of earlier ones are read, and then combine and write the warps' results. While keys arrive at full
// rate, any other number from memory takes microseconds, so no tile may depend on such a read.
//
// The warps of a block divide the tiles of an item among them, for up to eight query heads at once, so that a key is read once for all of
// them: scores[keys, heads] = K·Qᵀ, then out[dimensions, heads] += Vᵀ·weights. A warp keeps a running maximum and sum (online softmax); the
// warps' results are combined in shared memory. If a row has several chunks, the last helper to write its share of a chunk's result
// combines the chunks, always in the same order.
#pragma once
#include <algorithm>

#include "cuda/attention/items.cuh"
#include "cuda/head.cuh"

namespace attune {
namespace {

constexpr int kMostHeads = 8;  // of an item: the columns of a product
constexpr int kStatic = 512;  // bytes of shared memory beside the dynamic, at most
constexpr int kCounters = 1 << 18;
// 0 between launches; one stream at a time.
__device__ unsigned arrived[kCounters];  // of a row, pair and helper: chunks that are written

/** What a block holds; `heads` of a pair at most. What belongs to an item is there twice: items take turns. */
template <typename Cache, int WARPS, int HELPERS, int STAGES>
struct RowsShared {
  using Query = typename Cache::Query;
  static constexpr int D = Cache::kSize, kQuery = Cache::Queries::kNumbers, kSum = D + 4;
  char* ring;  // [WARPS, STAGES]: tiles
  Query* queries;  // [2, heads, kQuery]
  char* newest;  // [2]: k and v of the new token
  float *sums, *scratch;  // [2, WARPS, heads, kSum], [2, HELPERS, D]
  float2* marks;  // [2, WARPS, heads]: peak and total
  int* rows;  // what the dealing holds
  int heads;

  static int bytes(int heads, int rows, int bytesOfRow) {
    return WARPS * STAGES * Cache::kBytesOfTile + static_cast<int>(sizeof(Query)) * 2 * heads * kQuery + 2 * Cache::kBytesOfNewest +
           static_cast<int>(sizeof(float)) * (2 * WARPS * heads * (kSum + 2) + 2 * HELPERS * D) + rows * bytesOfRow;
  }
  __device__ RowsShared(char* base, int heads) : heads(heads) {
    ring = base;
    queries = reinterpret_cast<Query*>(ring + WARPS * STAGES * Cache::kBytesOfTile);
    newest = reinterpret_cast<char*>(queries + 2 * heads * kQuery);
    sums = reinterpret_cast<float*>(newest + 2 * Cache::kBytesOfNewest);
    scratch = sums + 2 * WARPS * heads * kSum;
    marks = reinterpret_cast<float2*>(scratch + 2 * HELPERS * D);
    rows = reinterpret_cast<int*>(marks + 2 * WARPS * heads);
  }
  __device__ Query* queriesOf(int turn) const { return queries + turn * heads * kQuery; }
  __device__ char* newestOf(int turn) const { return newest + turn * Cache::kBytesOfNewest; }
  __device__ float* sumsOf(int turn) const { return sums + turn * WARPS * heads * kSum; }
  __device__ float2* marksOf(int turn) const { return marks + turn * WARPS * heads; }
};

/** Of the rows at position 0, a helper at a time: k and v go to the cache, and v is the result. */
template <typename Cache, int HELPERS>
__device__ void attendAlone(const AttentionArgs& a, const int* positions, const int* tables, int helper, float* scratch) {
  using T = typename Cache::Model;
  constexpr int D = Cache::kSize;
  static_assert(Cache::kBytesOfNewest <= D * sizeof(float));
  char* const newest = reinterpret_cast<char*>(scratch);
  const int rows = static_cast<int>(a.rows), groups = static_cast<int>(a.groups), share = static_cast<int>(a.heads) / groups;
  for (int i = blockIdx.x * HELPERS + helper; i < rows * groups; i += gridDim.x * HELPERS) {
    const int row = i / groups, group = i % groups;
    if (positions[row] != 0) continue;
    const int64_t place = static_cast<int64_t>(a.tables[tables[row]]) * kCacheBlock;
    Head<T, D> k(a, a.ofStep ? 0 : row, a.kWeight, true), v(a, 0, nullptr, false);
    k.prepare(static_cast<const T*>(a.k) + row * a.kvStride + group * D, scratch);
    v.load(static_cast<const T*>(a.v) + row * a.kvStride + group * D);
    __syncwarp();  // all lanes have read what `prepare` and the row before left
    Cache::write(a, place, group, 0, k, newest, true);
    Cache::write(a, place, group, 1, v, newest, true);
    __syncwarp();
    for (int head = group * share; head < (group + 1) * share; head++)
      v.store([&](int d, float) { static_cast<T*>(a.out)[(row * a.heads + head) * D + d] = narrow<T>(Cache::valueAlone(newest, d)); });
  }
}

/** What the warps that take tiles and the helpers both know of the items, and the barriers at which they meet. */
template <typename Items, int THREADS>
struct RowsTurns {
  const Items& items;
  int most, share;

  __device__ int headsOf(const Item& of) const { return min(most, share - of.part * most); }
  __device__ int firstHead(const Item& of) const { return of.group * share + of.part * most; }

  // An item is prepared, then its tiles are done, then it is written; after that the one after the next is prepared.
  __device__ void syncPrepared(int turn) const { turn == 0 ? syncThreads<1, THREADS>() : syncThreads<2, THREADS>(); }
  __device__ void tellPrepared(int turn) const { turn == 0 ? arriveThreads<1, THREADS>() : arriveThreads<2, THREADS>(); }
  __device__ void syncDone(int turn) const { turn == 0 ? syncThreads<3, THREADS>() : syncThreads<4, THREADS>(); }
  __device__ void tellDone(int turn) const { turn == 0 ? arriveThreads<3, THREADS>() : arriveThreads<4, THREADS>(); }
};

/** The tiles of all items of a block, by each of its first WARPS warps. */
template <typename Cache, int WARPS, int STAGES, typename Shared, typename Turns>
__device__ void takeTiles(const AttentionArgs& a, const Shared& shared, const Turns& turns) {
  constexpr int kKeys = Cache::kKeys, kTilesOfBlock = kCacheBlock / kKeys;
  constexpr float kLog2 = 1.44269504f;
  const auto& items = turns.items;
  const int *positions = items.positions, *tables = items.tables;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int window = static_cast<int>(a.window);

  // —— the ring ——
  char* const ring = shared.ring + warp * STAGES * Cache::kBytesOfTile;
  Item item = items.ofBlock(0), next = items.ofBlock(1);
  struct {
    int row, group, tile, last, block;
    bool isNext;  // of the next item, no longer of this one
  } ahead{};  // what is asked for next, where tile <= last; its block of the cache is looked up one tile earlier
  int pending = 0, asked = 0;  // tiles under way, and the stage of the next one
  const auto lookUp = [&] {
    if (ahead.tile <= ahead.last) ahead.block = a.tables[tables[ahead.row] + static_cast<unsigned>(ahead.tile) / kTilesOfBlock];
  };
  // Where tiles are large, an item has only a few for each warp: the warps that have one more take turns.
  const auto ownOf = [&](int i) { return kKeys == kTile ? warp : (warp + i * (WARPS / 2)) % WARPS; };
  const auto turnTo = [&](const Item& of, int i) {
    const auto span = items.span(of.row);
    ahead.row = of.row, ahead.group = of.group, ahead.tile = span.begin(of.chunk) + ownOf(i), ahead.last = span.end(of.chunk);
  };
  int i = 0;  // the item's number in this block
  const auto seek = [&] {
    if (ahead.tile > ahead.last && !ahead.isNext && next.row >= 0) turnTo(next, i + 1), ahead.isNext = true;
    lookUp();
  };
  const auto fill = [&] {
    while (pending < STAGES && ahead.tile <= ahead.last) {
      // keys of earlier tokens; the new token's is not there yet, and what lies after it is zero
      const int offset = static_cast<unsigned>(ahead.tile) % kTilesOfBlock * kKeys;
      Cache::copy(ring + asked * Cache::kBytesOfTile, a, static_cast<int64_t>(ahead.block) * kCacheBlock + offset, ahead.group,
                  positions[ahead.row] - ahead.tile * kKeys);
      commitCopies();
      pending++;
      asked = asked + 1 == STAGES ? 0 : asked + 1;
      ahead.tile += WARPS;
      seek();
    }
  };
  turnTo(item, 0), ahead.isNext = false;
  seek();
  fill();

  int stage = 0;
  while (true) {
    const int turn = i % 2, own = ownOf(i);
    turns.syncPrepared(turn);
    const int heads = turns.headsOf(item), head = turns.firstHead(item), position = positions[item.row];
    const int firstKey = window > 0 ? max(0, position - window + 1) : 0;
    // columns of heads that are not there are computed from the last head's numbers and not used
    const auto* queries = shared.queriesOf(turn) + min(g, heads - 1) * Shared::kQuery + t * Cache::Queries::kQuarter;
    const auto scales = Cache::scoreScales(shared.queriesOf(turn), heads, a.scale * kLog2);
    typename Cache::Running running;
    const auto span = items.span(item.row);
    const int last = span.end(item.chunk);
    for (int now = span.begin(item.chunk) + own; now <= last; now += WARPS) {
      char* const tile = ring + stage * Cache::kBytesOfTile;
      if (pending == STAGES)
        waitForCopies<STAGES - 1>();
      else
        waitForCopies<0>();
      __syncwarp();
      if (now == span.last) {
        Cache::put(tile, position % kKeys, shared.newestOf(turn));
        __syncwarp();
      }
      running.add(tile, queries, scales, [&](float(&score)[4], int part) {
        const int key = now * kKeys + part + g;  // and key + 8
        if (a.bias != nullptr)
          for (int j = 0; j < 4; j++)
            if (2 * t + j % 2 < heads && key + j / 2 * 8 <= position)
              score[j] += a.bias[(head + 2 * t + j % 2) * a.biasLength + key + j / 2 * 8] * kLog2;
        if (now == span.last || now == span.first) hideKeys(score, key, firstKey, position);
      });
      __syncwarp();  // all lanes have read the tile
      pending--;
      stage = stage + 1 == STAGES ? 0 : stage + 1;
      fill();
    }

    running.finish();
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int which = 2 * t + j;
      if (which >= heads) continue;
      if (g == 0) shared.marksOf(turn)[own * shared.heads + which] = {running.peak[j], running.total[j]};
      running.store(j, shared.sumsOf(turn) + (own * shared.heads + which) * Shared::kSum);
    }
    turns.tellDone(turn);
    if (next.row < 0) break;
    i++;
    item = next, next = items.ofBlock(i + 1);
    ahead.isNext = false;
    if (ahead.tile > ahead.last) seek();
    fill();
  }
}

/** What comes before and after the tiles of every other item of a block, by a group of HELPERS warps. */
template <typename Cache, int WARPS, int HELPERS, typename Shared, typename Turns>
__device__ void helpWithItems(const AttentionArgs& a, const Shared& shared, const Turns& turns, int turn, int helper, int parts) {
  using T = typename Cache::Model;
  constexpr int D = Cache::kSize;
  const auto& items = turns.items;
  const int* positions = items.positions;
  const int lane = threadIdx.x % 32, rows = static_cast<int>(a.rows), groups = static_cast<int>(a.groups), most = shared.heads;
  float* const scratch = shared.scratch + (turn * HELPERS + helper) * D;

  // —— q, k and v of an item, one head per helper: the first are q's, `heads` is k and heads + 1 is v, where the chunk holds the new token
  const auto countOf = [&](const Item& of) { return turns.headsOf(of) + (of.chunk == items.span(of.row).chunks() - 1 ? 2 : 0); };
  const auto begin = [&](Head<T, D>& head, const Item& of, int which) {  // with what does not depend on the projection
    const int heads = turns.headsOf(of);
    const void* weight = which < heads ? a.qWeight : which == heads ? a.kWeight : nullptr;
    head.isNormed = weight != nullptr, head.isTurned = which <= heads && a.cosines != nullptr;
    head.loadAngles(a.ofStep ? positions[of.row] : of.row);
    head.loadWeight(weight);
  };
  const auto sourceOf = [&](const Item& of, int which) {
    const int heads = turns.headsOf(of);
    return which < heads ? static_cast<const T*>(a.q) + of.row * a.qStride + (turns.firstHead(of) + which) * D
                         : static_cast<const T*>(which == heads ? a.k : a.v) + of.row * a.kvStride + of.group * D;
  };
  const auto blockOfNewest = [&](const Item& of) { return a.tables[items.tables[of.row] + positions[of.row] / kCacheBlock]; };
  const auto put = [&](const Item& of, int which, int block, const Head<T, D>& head) {
    const int heads = turns.headsOf(of);
    if (which < heads) {
      Cache::putQuery(head.values, shared.queriesOf(turn) + which * Shared::kQuery);
      return;
    }
    const int64_t place = static_cast<int64_t>(block) * kCacheBlock + positions[of.row] % kCacheBlock;
    Cache::write(a, place, of.group, which - heads, head, shared.newestOf(turn), true);
  };

  // —— what the warps have found: a helper's share is 32 neighbouring dimensions of a head, and 32 further ones ——
  float2* const marks = reinterpret_cast<float2*>(a.partial + rows * a.heads * D * a.mostChunks);
  const auto ofShare = [&](const Item& of, auto what) {
    for (int at = helper * 32; at < turns.headsOf(of) * D; at += 32 * HELPERS) {
      const int64_t line = of.row * a.heads + turns.firstHead(of) + at / D;
      what(at / D, at % D + lane, line * D + at % D + lane, (line * (D / 32) + at % D / 32) * a.mostChunks);
    }
  };
  const auto write = [&](const Item& of) {
    const int chunks = items.span(of.row).chunks();
    ofShare(of, [&](int which, int d, int64_t to, int64_t part) {
      JoinedWarps joined;
      joined.join<WARPS>(shared.marksOf(turn) + which, most, shared.sumsOf(turn) + which * Shared::kSum + d, most * Shared::kSum);
      if (chunks == 1) {
        static_cast<T*>(a.out)[to] = narrow<T>(joined.result / joined.all);
      } else {
        a.partial[(part + of.chunk) * 32 + lane] = joined.result;
        if (lane == 0) marks[part + of.chunk] = {joined.top, joined.all};
      }
    });
  };
  const auto joinChunks = [&](const Item& of) {
    const int chunks = items.span(of.row).chunks();
    if (chunks == 1 || helper * 32 >= turns.headsOf(of) * D) return;
    __syncwarp();
    unsigned count = 0;
    if (lane == 0) {
      __threadfence();
      count = atomicInc(&arrived[((of.row * groups + of.group) * parts + of.part) * HELPERS + helper], chunks - 1);
      if (count == chunks - 1) __threadfence();
    }
    __syncwarp();  // what lane 0 has seen of other blocks, all lanes see
    if (__shfl_sync(0xFFFFFFFF, count, 0) != chunks - 1) return;
    ofShare(of, [&](int, int, int64_t to, int64_t part) {
      const float2 mark = lane < chunks ? __ldcg(marks + part + lane) : float2{-INFINITY, 0};
      float each[kMostChunks];  // all are asked for at once
#pragma unroll
      for (int i = 0; i < kMostChunks; i++) each[i] = i < chunks ? __ldcg(a.partial + (part + i) * 32 + lane) : 0;
      float top = mark.x;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, offset));
      const float fade = powerOf2(mark.x - top);
      float all = mark.y * fade, result = 0;
#pragma unroll
      for (int offset = 16; offset > 0; offset /= 2) all += __shfl_xor_sync(0xFFFFFFFF, all, offset);
#pragma unroll
      for (int i = 0; i < kMostChunks; i++) result += __shfl_sync(0xFFFFFFFF, fade, i) * each[i];
      static_cast<T*>(a.out)[to] = narrow<T>(result / all);
    });
  };

  Item before{-1, 0, 0, 0};  // the group's previous item
  for (int i = turn; true; i += 2) {
    const Item item = items.ofBlock(i);
    const bool isThere = item.row >= 0;
    const int wanted = isThere ? countOf(item) : 0;
    // everything that does not depend on the tiles is asked for first
    Head<T, D> own(a, false, false);
    int block = 0;
    if (helper < wanted) {
      begin(own, item, helper);
      block = blockOfNewest(item);
    }
    if (i == turn && a.ofStep) waitForPrevious();
    if (helper < wanted) own.load(sourceOf(item, helper));
    if (before.row >= 0) {
      turns.syncDone(turn);
      write(before);
    }
    if (isThere) {
      if (helper < wanted) {
        own.finish(scratch);
        put(item, helper, block, own);
      }
      for (int which = helper + HELPERS; which < wanted; which += HELPERS) {
        Head<T, D> another(a, false, false);
        begin(another, item, which);
        another.prepare(sourceOf(item, which), scratch);
        put(item, which, blockOfNewest(item), another);
      }
      turns.tellPrepared(turn);
    }
    if (before.row >= 0) joinChunks(before);
    if (!isThere) break;
    before = item;
  }
}

template <typename Cache, int WARPS, int HELPERS, int STAGES, int CHUNK, int LONE>
__global__ void __launch_bounds__(32 * (WARPS + 2 * HELPERS), 1) attentionRowsKernel(AttentionArgs a, int most, int parts) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using Shared = RowsShared<Cache, WARPS, HELPERS, STAGES>;
  using Items = Dealing<WARPS + 2 * HELPERS, Cache::kKeys, CHUNK, LONE>;
  extern __shared__ __align__(128) char dynamicShared[];
  __shared__ unsigned counts[WARPS + 2 * HELPERS][3];
  const int warp = threadIdx.x / 32, rows = static_cast<int>(a.rows), groups = static_cast<int>(a.groups);
  const Shared shared(dynamicShared, most);
  if (!a.ofStep) waitForPrevious();
  letNextBegin();
  Items items;
  items.positions = shared.rows, items.tables = shared.rows + rows;
  items.starts = reinterpret_cast<unsigned short*>(shared.rows + 2 * rows), items.order = items.starts + rows;
  items.rows = rows, items.groups = groups, items.parts = parts, items.window = static_cast<int>(a.window);
  items.lone = a.mostChunks == 1 && a.tableWidth * kCacheBlock > Cache::kKeys << LONE ? LONE + 1 : LONE;
  items.prepare(a, counts);
  // a turn's barriers are those of the warps that take tiles and of one group of helpers
  const RowsTurns<Items, 32 * (WARPS + HELPERS)> turns{items, most, static_cast<int>(a.heads) / groups};
  const bool isIdle = blockIdx.x >= items.items;
  // of the registers of 512 threads, warps that take tiles need more than helpers
  constexpr bool kShifts = WARPS == 8 && HELPERS == 4;
  if (warp < WARPS) {
    if constexpr (kShifts) raiseRegisters<152>();
    if (!isIdle) takeTiles<Cache, WARPS, STAGES>(a, shared, turns);
    return;
  }
  if constexpr (kShifts) lowerRegisters<104>();
  const int turn = (warp - WARPS) / HELPERS, helper = (warp - WARPS) % HELPERS;
  if (!isIdle)
    helpWithItems<Cache, WARPS, HELPERS>(a, shared, turns, turn, helper, parts);
  else if (a.ofStep)
    waitForPrevious();
  if (items.lasts < static_cast<unsigned>(rows))
    attendAlone<Cache, 2 * HELPERS>(a, items.positions, items.tables, warp - WARPS, shared.scratch + (warp - WARPS) * Cache::kSize);
#endif
}

/**
 * Where a block is too large for the device, it takes fewer query heads at a time; false, and nothing done, where it is too large even
 * for one.
 */
template <typename Cache, int WARPS, int HELPERS, int STAGES, int CHUNK, int LONE>
bool launchAttentionRows(AttentionArgs a, cudaStream_t stream) {
  using T = typename Cache::Model;
  using Shared = RowsShared<Cache, WARPS, HELPERS, STAGES>;
  constexpr int kBytesOfRow = Dealing<WARPS + 2 * HELPERS, Cache::kKeys, CHUNK, LONE>::kBytesOfRow;
  const int share = static_cast<int>(a.heads / a.groups), room = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const int64_t all = a.rows;
  const int rows = static_cast<int>(std::min<int64_t>(all, kMostRows));
  int heads = std::min(share, kMostHeads);
  while (heads > 1 && Shared::bytes(heads, rows, kBytesOfRow) + kStatic > room) heads = (heads + 1) / 2;
  const int bytes = Shared::bytes(heads, rows, kBytesOfRow), parts = (share + heads - 1) / heads;
  if (bytes + kStatic > room) return false;
  const int64_t pairs = a.groups * parts, each = std::min<int64_t>(rows, kCounters / (pairs * HELPERS));
  const int64_t blocks = multiprocessorsOfDevice();
  for (int64_t done = 0; done < all; done += each) {
    a.rows = std::min(each, all - done);
    const dim3 grid(static_cast<unsigned>(std::min(blocks, a.rows * pairs * a.mostChunks)));
    launchWithMemory<kAnyShared>(attentionRowsKernel<Cache, WARPS, HELPERS, STAGES, CHUNK, LONE>, grid, 32 * (WARPS + 2 * HELPERS), 1,
                                 bytes, stream, a, heads, parts);
    a.q = static_cast<const T*>(a.q) + each * a.qStride;
    a.k = static_cast<const T*>(a.k) + each * a.kvStride;
    a.v = static_cast<const T*>(a.v) + each * a.kvStride;
    a.out = static_cast<T*>(a.out) + each * a.heads * Cache::kSize;
    a.slots += each, a.positions += each;
    if (!a.ofStep) a.cosines += each * a.half, a.sines += each * a.half;  // 0 where there are none
  }
  return true;
}

}  // namespace
}  // namespace attune
