// Attention of a decoding step on tensor cores (attention.cu says what it computes), for bf16 and f16 and head sizes 32 to 256.
//
// The cost is reading keys and values once, so the copies never stop: as many blocks as the multiprocessors hold go through items
// (items.cuh), and each warp has a ring of tiles in shared memory which it fills ahead, from one item into the next. The first copies
// start before the previous kernel has ended.
//
// The warps of a block deal the tiles of an item among them, for up to eight query heads at once, so that a key is read once for all
// of them: scores[keys, heads] = K·Qᵀ, then out[dimensions, heads] += Vᵀ·weights. A warp keeps a running maximum and sum (online
// softmax); the warps' results are combined in shared memory. Where a row has several chunks, the last warp to write its share of a
// chunk's result combines the chunks, always in the same order.
#pragma once
#include <algorithm>

#include "cuda/attention/items.cuh"
#include "cuda/head.cuh"

namespace attune {
namespace {

constexpr int kMostHeads = 8;  // of an item: the columns of a product
constexpr int kStatic = 512;  // bytes of shared memory beside the dynamic, at most
constexpr int kCounters = 1 << 18;
// Both are 0 between launches; one stream at a time.
__device__ unsigned arrived[kCounters];  // of a row, pair and warp: chunks that are written
__device__ unsigned dealt;  // items that were taken beside the first two of each block

/** What a block holds beside its ring; `heads` of a pair at most. */
template <typename T, int D, int WARPS, int STAGES>
struct RowsShared {
  static constexpr int kQuery = QueryRow<D>::kNumbers, kSum = D + 4;
  T* ring;  // [WARPS, STAGES, keys and values, kTile, D]
  T* queries;  // [2, heads, kQuery]: of this item and the next
  T* newest;  // [2, k and v, D]: of the new token
  float *sums, *scratch;  // [WARPS, heads, kSum], [WARPS, D]
  float2* marks;  // [WARPS, heads]: peak and total
  int* rows;  // what the dealing holds
  int heads;

  static int bytes(int heads, int rows, int bytesOfRow) {
    return static_cast<int>(sizeof(T)) * (WARPS * STAGES * 2 * kTile * D + 2 * heads * kQuery + 4 * D) +
           static_cast<int>(sizeof(float)) * (WARPS * heads * (kSum + 2) + WARPS * D) + rows * bytesOfRow;
  }
  __device__ RowsShared(char* base, int heads) : heads(heads) {
    ring = reinterpret_cast<T*>(base);
    queries = ring + WARPS * STAGES * 2 * kTile * D;
    newest = queries + 2 * heads * kQuery;
    sums = reinterpret_cast<float*>(newest + 4 * D);
    scratch = sums + WARPS * heads * kSum;
    marks = reinterpret_cast<float2*>(scratch + WARPS * D);
    rows = reinterpret_cast<int*>(marks + WARPS * heads);
  }
};

/** Of the rows at position 0, a warp at a time: k and v go to the cache, and v is the result. */
template <typename T, int D, int WARPS>
__device__ void attendAlone(const AttentionArgs& a, const int* positions, const int* tables, float* scratch) {
  const int rows = static_cast<int>(a.rows), groups = static_cast<int>(a.groups), share = static_cast<int>(a.heads) / groups;
  for (int i = blockIdx.x * WARPS + threadIdx.x / 32; i < rows * groups; i += gridDim.x * WARPS) {
    const int row = i / groups, group = i % groups;
    if (positions[row] != 0) continue;
    const int64_t to = (static_cast<int64_t>(a.tables[tables[row]]) * kCacheBlock * groups + group) * D;
    Head<T, D> k(a, a.ofStep ? 0 : row, a.kWeight, true), v(a, 0, nullptr, false);
    k.prepare(static_cast<const T*>(a.k) + row * a.kvStride + group * D, scratch);
    v.load(static_cast<const T*>(a.v) + row * a.kvStride + group * D);
    k.store([&](int d, float x) { static_cast<T*>(a.keys)[to + d] = narrow<T>(x); });
    v.store([&](int d, float x) { static_cast<T*>(a.values)[to + d] = narrow<T>(x); });
    for (int head = group * share; head < (group + 1) * share; head++)
      v.store([&](int d, float x) { static_cast<T*>(a.out)[(row * a.heads + head) * D + d] = narrow<T>(x); });
  }
}

template <typename T, int D, int WARPS, int STAGES, int BLOCKS, int CHUNK, int LONE>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS) attentionRowsKernel(AttentionArgs a, int most, int parts) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  constexpr int kTilesOfBlock = kCacheBlock / kTile, kThreads = 32 * WARPS, kNumbers = Tile<D>::kNumbers;
  constexpr float kLog2 = 1.44269504f;
  using Shared = RowsShared<T, D, WARPS, STAGES>;
  extern __shared__ __align__(128) char dynamicShared[];
  __shared__ unsigned counts[WARPS][3];
  __shared__ Item queue[2];  // the item after the next, in turns
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int rows = static_cast<int>(a.rows), groups = static_cast<int>(a.groups), window = static_cast<int>(a.window);
  const int share = static_cast<int>(a.heads) / groups;
  const Shared shared(dynamicShared, most);
  if (!a.ofStep) waitForPrevious();
  letNextBegin();

  // —— which items there are ——
  Dealing<WARPS, CHUNK, LONE> dealing;
  dealing.positions = shared.rows, dealing.tables = shared.rows + rows;
  dealing.starts = reinterpret_cast<unsigned short*>(shared.rows + 2 * rows), dealing.order = dealing.starts + rows;
  dealing.rows = rows, dealing.groups = groups, dealing.parts = parts, dealing.window = window;
  dealing.prepare(a, counts);
  const int *positions = dealing.positions, *tables = dealing.tables;
  const auto alone = [&] {
    if (dealing.lasts < static_cast<unsigned>(rows)) attendAlone<T, D, WARPS>(a, positions, tables, shared.scratch + warp * D);
  };
  if (blockIdx.x >= dealing.items) {
    if (a.ofStep) waitForPrevious();
    alone();
    return;
  }

  // —— the ring ——
  T* const ring = shared.ring + warp * STAGES * 2 * kNumbers;
  Item item = dealing.first(), next = dealing.second();
  struct {
    int row, group, tile, last, block;
    bool isNext;  // of the next item, no longer of this one
  } ahead{};  // what is asked for next, where tile <= last; its block of the cache is looked up one tile earlier
  int pending = 0, asked = 0;  // tiles under way, and the stage of the next one
  const auto lookUp = [&] {
    if (ahead.tile <= ahead.last) ahead.block = a.tables[tables[ahead.row] + static_cast<unsigned>(ahead.tile) / kTilesOfBlock];
  };
  const auto turnTo = [&](const Item& of) {
    const auto span = dealing.span(of.row);
    ahead.row = of.row, ahead.group = of.group, ahead.tile = span.begin(of.chunk) + warp, ahead.last = span.end(of.chunk);
  };
  const auto seek = [&] {
    if (ahead.tile > ahead.last && !ahead.isNext && next.row >= 0) turnTo(next), ahead.isNext = true;
    lookUp();
  };
  const auto fill = [&] {
    while (pending < STAGES && ahead.tile <= ahead.last) {
      // keys of earlier tokens; the new token's is not there yet, and what lies after it is zero
      const int offset = static_cast<unsigned>(ahead.tile) % kTilesOfBlock * kTile;
      const int64_t from = ((static_cast<int64_t>(ahead.block) * kCacheBlock + offset) * groups + ahead.group) * D;
      const T *keys = static_cast<const T*>(a.keys) + from, *values = static_cast<const T*>(a.values) + from;
      const int count = positions[ahead.row] - ahead.tile * kTile;
      copyTile<T, D>(ring + asked * 2 * kNumbers, keys, values, groups * D, count);
      commitCopies();
      pending++;
      asked = asked + 1 == STAGES ? 0 : asked + 1;
      ahead.tile += WARPS;
      seek();
    }
  };
  turnTo(item), ahead.isNext = false;
  seek();
  fill();

  // —— q, k and v of an item, one head per warp: k and v where the chunk holds the new token ——
  const auto headsOf = [&](const Item& of) { return min(most, share - of.part * most); };
  const auto firstHead = [&](const Item& of) { return of.group * share + of.part * most; };
  const auto countOf = [&](const Item& of) { return headsOf(of) + (of.chunk == dealing.span(of.row).chunks() - 1 ? 2 : 0); };
  // which of them: the first are q's, `heads` is k, and heads + 1 is v
  const auto weightOf = [&](const Item& of, int which) {
    const int heads = headsOf(of);
    return which < heads ? a.qWeight : which == heads ? a.kWeight : nullptr;
  };
  const auto angleOf = [&](const Item& of) { return a.ofStep ? positions[of.row] : of.row; };
  const auto headAt = [&](const Item& of, int which) { return Head<T, D>(a, angleOf(of), weightOf(of, which), which <= headsOf(of)); };
  const auto sourceOf = [&](const Item& of, int which) {
    const int heads = headsOf(of);
    return which < heads ? static_cast<const T*>(a.q) + of.row * a.qStride + (firstHead(of) + which) * D
                         : static_cast<const T*>(which == heads ? a.k : a.v) + of.row * a.kvStride + of.group * D;
  };
  const auto blockOfNewest = [&](const Item& of) { return a.tables[tables[of.row] + positions[of.row] / kCacheBlock]; };
  const auto put = [&](const Item& of, int which, int where, const Head<T, D>& head, T* queries, T* newest) {
    const int heads = headsOf(of);
    if (which < heads) {
      head.store([&](int d, float x) { queries[which * Shared::kQuery + QueryRow<D>::at(d)] = narrow<T>(x); });
      return;
    }
    const int position = positions[of.row];
    T* cache = static_cast<T*>(which == heads ? a.keys : a.values) +
               ((static_cast<int64_t>(where) * kCacheBlock + position % kCacheBlock) * groups + of.group) * D;
    head.store([&](int d, float x) { newest[(which - heads) * D + d] = cache[d] = narrow<T>(x); });
  };
  const auto restOf = [&](const Item& of, T* queries, T* newest) {
    for (int i = warp + WARPS; i < countOf(of); i += WARPS) {
      Head<T, D> head = headAt(of, i);
      head.prepare(sourceOf(of, i), shared.scratch + warp * D);
      put(of, i, blockOfNewest(of), head, queries, newest);
    }
  };
  {
    Head<T, D> head = headAt(item, warp);
    const int where = blockOfNewest(item);
    if (a.ofStep) waitForPrevious();
    if (warp < countOf(item)) {
      head.prepare(sourceOf(item, warp), shared.scratch + warp * D);
      put(item, warp, where, head, shared.queries, shared.newest);
    }
    restOf(item, shared.queries, shared.newest);
  }
  __syncthreads();

  const float scale = a.scale * kLog2;
  int stage = 0, turn = 0;
  while (true) {
    const int heads = headsOf(item), head = firstHead(item), position = positions[item.row];
    const int firstKey = window > 0 ? max(0, position - window + 1) : 0;
    T *nextQueries = shared.queries + (turn ^ 1) * most * Shared::kQuery, *nextNewest = shared.newest + (turn ^ 1) * 2 * D;
    // columns of heads that are not there are computed from the last head's numbers and not used
    const T* queries = shared.queries + (turn * most + min(g, heads - 1)) * Shared::kQuery + t * QueryRow<D>::kQuarter;

    const bool isMore = next.row >= 0, takes = isMore && threadIdx.x == kThreads - 32;
    unsigned number = 0;  // of the item after the next
    if (takes) number = 2 * gridDim.x + atomicInc(&dealt, dealing.taken() - 1);
    const int wanted = isMore ? countOf(next) : 0;
    // what the next item's head is made of is loaded now and used after this item's tiles
    Head<T, D> ofNext(a, weightOf(next, warp) != nullptr, warp <= headsOf(next));
    T early[Head<T, D>::kEach];
    int where = 0;
    if (warp < wanted) {
      const T* from = sourceOf(next, warp);
#pragma unroll
      for (int i = 0; i < Head<T, D>::kEach; i++) early[i] = from[lane + 32 * i];
      ofNext.loadAngles(angleOf(next));
      where = blockOfNewest(next);
    }

    // —— this warp's tiles ——
    RunningAttention<T, D> running;
    const auto span = dealing.span(item.row);
    const int last = span.end(item.chunk);
    for (int now = span.begin(item.chunk) + warp; now <= last; now += WARPS) {
      T* const own = ring + stage * 2 * kNumbers;
      if (pending == STAGES)
        waitForCopies<STAGES - 1>();
      else
        waitForCopies<0>();
      __syncwarp();
      if (now == span.last) {
        putIntoTile<T, D>(own, position % kTile, shared.newest + turn * 2 * D);
        __syncwarp();
      }
      running.add(own, queries, scale, [&](float(&score)[4]) {
        const int key = now * kTile + g;  // and key + 8
        if (a.bias != nullptr)
          for (int j = 0; j < 4; j++)
            if (2 * t + j % 2 < heads && key + j / 2 * 8 <= position)
              score[j] += a.bias[(head + 2 * t + j % 2) * a.biasLength + key + j / 2 * 8] * kLog2;
        if (now == span.last || now == span.first)
#pragma unroll
          for (int j = 0; j < 4; j++)
            if (key + j / 2 * 8 > position || key + j / 2 * 8 < firstKey) score[j] = -INFINITY;
      });
      __syncwarp();  // all lanes have read the tile
      pending--;
      stage = stage + 1 == STAGES ? 0 : stage + 1;
      fill();
    }

    if (warp < wanted) {
#pragma unroll
      for (int i = 0; i < Head<T, D>::kEach; i++) ofNext.values[i] = wide(early[i]);
      ofNext.loadWeight(weightOf(next, warp));
      ofNext.finish(shared.scratch + warp * D);
      put(next, warp, where, ofNext, nextQueries, nextNewest);
    }
    if (isMore) restOf(next, nextQueries, nextNewest);
    if (takes) queue[turn] = dealing.item(number);

    // —— the warps together ——
    running.finish();
    __syncthreads();  // the sums of the previous item are read
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int which = 2 * t + j;
      if (which >= heads) continue;
      if (g == 0) shared.marks[warp * most + which] = {running.peak[j], running.total[j]};
      running.store(j, shared.sums + (warp * most + which) * Shared::kSum);
    }
    __syncthreads();
    // a warp's share of a pair's results: 32 neighbouring dimensions of a head, and 32 further ones
    const auto ofShare = [&](auto what) {
      for (int at = warp * 32; at < heads * D; at += kThreads) {
        const int64_t line = item.row * a.heads + head + at / D;
        what(at / D, at % D + lane, line * D + at % D + lane, (line * (D / 32) + at % D / 32) * a.mostChunks);
      }
    };
    const int chunks = span.chunks();
    float2* const marks = reinterpret_cast<float2*>(a.partial + rows * a.heads * D * a.mostChunks);
    ofShare([&](int which, int d, int64_t to, int64_t part) {
      JoinedWarps joined;
      joined.join<WARPS>(shared.marks + which, most, shared.sums + which * Shared::kSum + d, most * Shared::kSum);
      if (chunks == 1) {
        static_cast<T*>(a.out)[to] = narrow<T>(joined.result / joined.all);
      } else {
        a.partial[(part + item.chunk) * 32 + lane] = joined.result;
        if (lane == 0) marks[part + item.chunk] = {joined.top, joined.all};
      }
    });
    if (chunks > 1 && warp * 32 < heads * D) {
      __syncwarp();
      unsigned count = 0;
      if (lane == 0) {
        __threadfence();
        count = atomicInc(&arrived[((item.row * groups + item.group) * parts + item.part) * WARPS + warp], chunks - 1);
        if (count == chunks - 1) __threadfence();
      }
      __syncwarp();  // what lane 0 has seen of other blocks, all lanes see
      if (__shfl_sync(0xFFFFFFFF, count, 0) == chunks - 1)
        ofShare([&](int, int, int64_t to, int64_t part) {
          const float2 mark = lane < chunks ? __ldcg(marks + part + lane) : float2{-INFINITY, 0};
          float top = mark.x;
#pragma unroll
          for (int offset = 16; offset > 0; offset /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, offset));
          const float fade = powerOf2(mark.x - top);
          float all = mark.y * fade, result = 0;
#pragma unroll
          for (int offset = 16; offset > 0; offset /= 2) all += __shfl_xor_sync(0xFFFFFFFF, all, offset);
#pragma unroll 8
          for (int i = 0; i < chunks; i++) result += __shfl_sync(0xFFFFFFFF, fade, i) * __ldcg(a.partial + (part + i) * 32 + lane);
          static_cast<T*>(a.out)[to] = narrow<T>(result / all);
        });
    }
    if (!isMore) break;
    item = next, next = queue[turn];
    turn ^= 1;
    ahead.isNext = false;
    if (ahead.tile > ahead.last) seek();
    fill();
  }
  alone();
#endif
}

/**
 * At most BLOCKS blocks on a multiprocessor. Where a block is too large for the device, it takes fewer query heads at a time; false,
 * and nothing done, where it is too large even for one.
 */
template <typename T, int D, int WARPS, int STAGES, int BLOCKS, int CHUNK, int LONE>
bool launchAttentionRows(AttentionArgs a, cudaStream_t stream) {
  using Shared = RowsShared<T, D, WARPS, STAGES>;
  constexpr int kShared = BLOCKS == 1 ? kSharedOfStep : kAnyShared;  // one block: beside the products of few rows
  const int share = static_cast<int>(a.heads / a.groups), room = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const int64_t all = a.rows;
  const int rows = static_cast<int>(std::min<int64_t>(all, kMostRows));
  int heads = std::min(share, kMostHeads);
  while (heads > 1 && Shared::bytes(heads, rows, Dealing<WARPS, CHUNK, LONE>::kBytesOfRow) + kStatic > room) heads = (heads + 1) / 2;
  const int bytes = Shared::bytes(heads, rows, Dealing<WARPS, CHUNK, LONE>::kBytesOfRow), parts = (share + heads - 1) / heads;
  if (bytes + kStatic > room) return false;
  const int fit = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (bytes + kStatic + 1024);
  const int64_t pairs = a.groups * parts, each = std::min<int64_t>(rows, kCounters / (pairs * WARPS));
  const int64_t blocks = std::clamp(fit, 1, BLOCKS) * multiprocessorsOfDevice();
  for (int64_t done = 0; done < all; done += each) {
    a.rows = std::min(each, all - done);
    const dim3 grid(static_cast<unsigned>(std::min(blocks, a.rows * pairs * a.mostChunks)));
    launchWithMemory<kShared>(attentionRowsKernel<T, D, WARPS, STAGES, BLOCKS, CHUNK, LONE>, grid, 32 * WARPS, 1, bytes, stream, a, heads,
                              parts);
    a.q = static_cast<const T*>(a.q) + each * a.qStride;
    a.k = static_cast<const T*>(a.k) + each * a.kvStride;
    a.v = static_cast<const T*>(a.v) + each * a.kvStride;
    a.out = static_cast<T*>(a.out) + each * a.heads * D;
    a.slots += each, a.positions += each;
    if (!a.ofStep) a.cosines += each * a.half, a.sines += each * a.half;  // 0 where there are none
  }
  return true;
}

}  // namespace
}  // namespace attune
