// Attention of a decoding step for few rows, none of them in several chunks: a block for each row and pair (items.cuh). The results are
// those of rows.cuh bit for bit. Here latency counts: there is nothing to deal, and each warp's first tiles are under way before q, k
// and v are known.
#pragma once
#include "cuda/attention/rows.cuh"

namespace attune {
namespace {

template <typename T, int D, int WARPS, int STAGES>
__global__ void __launch_bounds__(32 * WARPS, 2) attentionFewKernel(AttentionArgs a, int most, int parts) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kThreads = 32 * WARPS, kNumbers = Tile<D>::kNumbers;
  constexpr float kLog2 = 1.44269504f;
  using Shared = RowsShared<T, D, WARPS, STAGES>;
  extern __shared__ __align__(128) char dynamicShared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int groups = static_cast<int>(a.groups), window = static_cast<int>(a.window), share = static_cast<int>(a.heads) / groups;
  const int row = static_cast<int>(blockIdx.x) / (groups * parts), pair = static_cast<int>(blockIdx.x) % (groups * parts);
  const int group = pair / parts, part = pair % parts;
  const int heads = min(most, share - part * most), head = group * share + part * most;
  const Shared shared(dynamicShared, most);

  // —— keys and values of earlier tokens ——
  const int position = static_cast<int>(a.positions[row]);
  const int block = lane < a.tableWidth ? tableOf(a, row)[lane] : 0;  // each lane holds one: a table of one chunk has no more
  const auto blockOf = [&](int at) { return static_cast<int64_t>(__shfl_sync(0xFFFFFFFF, block, at / kCacheBlock)); };
  const int firstKey = window > 0 ? max(0, position - window + 1) : 0, first = firstKey / kTile, last = position / kTile;
  T* const ring = shared.ring + warp * STAGES * 2 * kNumbers;
  const auto placeOf = [&](int at) { return ((blockOf(at) * kCacheBlock + at % kCacheBlock) * groups + group) * D; };
  const auto ask = [&](int tile, int stage) {
    if (tile <= last) {
      const int64_t from = placeOf(tile * kTile);
      copyTile<T, D>(ring + stage * 2 * kNumbers, static_cast<const T*>(a.keys) + from, static_cast<const T*>(a.values) + from, groups * D,
                     position - tile * kTile);
    }
    commitCopies();
  };
  const int begin = first + warp;
#pragma unroll
  for (int i = 0; i < STAGES; i++) ask(begin + i * WARPS, i);
  letNextBegin();

  // —— one head of q, k or v per warp ——
  const auto headAt = [&](int which) {
    return Head<T, D>(a, position, which < heads ? a.qWeight : which == heads ? a.kWeight : nullptr, which <= heads);
  };
  const int64_t newest = placeOf(position);
  const auto prepare = [&](Head<T, D>& of, int which) {
    if (which < heads) {
      of.prepare(static_cast<const T*>(a.q) + row * a.qStride + (head + which) * D, shared.scratch + warp * D);
      of.store([&](int d, float x) { shared.queries[which * Shared::kQuery + QueryRow<D>::at(d)] = narrow<T>(x); });
    } else {
      of.prepare(static_cast<const T*>(which == heads ? a.k : a.v) + row * a.kvStride + group * D, shared.scratch + warp * D);
      T* cache = static_cast<T*>(which == heads ? a.keys : a.values) + newest;
      of.store([&](int d, float x) {
        shared.newest[(which - heads) * D + d] = narrow<T>(x);
        if (part == 0) cache[d] = narrow<T>(x);
      });
    }
  };
  Head<T, D> ownHead = headAt(warp);
  waitForPrevious();
  if (warp < heads + 2) prepare(ownHead, warp);
  for (int which = warp + WARPS; which < heads + 2; which += WARPS) {
    Head<T, D> another = headAt(which);
    prepare(another, which);
  }
  __syncthreads();

  // —— this warp's tiles ——
  const T* const queries = shared.queries + min(g, heads - 1) * Shared::kQuery + t * QueryRow<D>::kQuarter;
  const float scale = a.scale * kLog2;
  RunningAttention<T, D> running;
  int stage = 0;
#pragma unroll 1
  for (int now = begin; now <= last; now += WARPS) {
    T* const own = ring + stage * 2 * kNumbers;
    waitForCopies<STAGES - 1>();
    __syncwarp();
    if (now == last) {  // the new token's k and v
      constexpr int kPieces = Tile<D>::kPieces;
      for (int i = lane; i < 2 * kPieces; i += 32) {
        const int piece = i % kPieces, ofValues = i / kPieces;
        *reinterpret_cast<uint4*>(own + ofValues * kNumbers + Tile<D>::at(position % kTile, piece)) =
            *reinterpret_cast<const uint4*>(shared.newest + ofValues * D + piece * 8);
      }
      __syncwarp();
    }
    running.add(own, queries, scale, [&](float(&score)[4]) {
      const int key = now * kTile + g;  // and key + 8
      if (now == last || now == first)
#pragma unroll
        for (int j = 0; j < 4; j++)
          if (key + j / 2 * 8 > position || key + j / 2 * 8 < firstKey) score[j] = -INFINITY;
    });
    __syncwarp();  // all lanes have read the tile
    ask(now + STAGES * WARPS, stage);
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  }

  // —— the warps together ——
  running.finish();
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int which = 2 * t + j;
    if (which >= heads) continue;
    if (g == 0) shared.marks[warp * most + which] = {running.peak[j], running.total[j]};
    running.store(j, shared.sums + (warp * most + which) * Shared::kSum);
  }
  __syncthreads();
  for (int at = threadIdx.x; at < heads * D; at += kThreads) {
    const int which = at / D, d = at % D;
    float top = -INFINITY, all = 0, result = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) top = fmaxf(top, shared.marks[i * most + which].x);
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
      const float2 mark = shared.marks[i * most + which];
      const float fade = powerOf2(mark.x - top);
      all += mark.y * fade;
      result += shared.sums[(i * most + which) * Shared::kSum + d] * fade;
    }
    static_cast<T*>(a.out)[(row * a.heads + head + which) * D + d] = narrow<T>(result / all);
  }
#endif
}

/** False, and nothing done, where a block is too large for the device. */
template <typename T, int D, int WARPS, int STAGES>
bool launchAttentionFew(const AttentionArgs& a, cudaStream_t stream) {
  using Shared = RowsShared<T, D, WARPS, STAGES>;
  const int share = static_cast<int>(a.heads / a.groups), heads = std::min(share, kMostHeads), parts = (share + heads - 1) / heads;
  const int bytes = Shared::bytes(heads, 0, 0);
  if (bytes > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return false;
  const dim3 grid(static_cast<unsigned>(a.rows * a.groups * parts));
  launchWithMemory<kAnyShared>(attentionFewKernel<T, D, WARPS, STAGES>, grid, 32 * WARPS, 1, bytes, stream, a, heads, parts);
  return true;
}

}  // namespace
}  // namespace attune
