// Attention of prompts' tokens over the cache (ops/decode/prompt.cc has the definition), in three kernels:
//
//   prepare   norm and rotation; q goes to a buffer, k and v to the cache. A token sees earlier tokens of the same pass, so all keys
//             must be written before the next kernel.
//   attend    one block per group of neighbouring rows, kv head and part of the keys. The inner loop is that of a decoding step
//             (tile.cuh), where the eight columns of a product are query heads of one row; here they are the heads of
//             several rows, so that a key is read once for all of them.
//   combine   combines the parts of the keys.
#include <algorithm>

#include "cuda/attention/eight_bit_tile.cuh"

namespace attune {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kColumns = 8, kFewWarps = 4;

template <typename Cache>
__global__ void __launch_bounds__(32 * kFewWarps) prepareKernel(PromptAttentionArgs p) {
  using T = typename Cache::Model;
  constexpr int D = Cache::kSize;
  static_assert(Cache::kBytesOfNewest <= D * sizeof(float));
  __shared__ __align__(16) float scratch[kFewWarps][D];
  const AttentionArgs& a = p.rows;
  const int warp = threadIdx.x / 32, which = static_cast<int>(blockIdx.y) * kFewWarps + warp;
  const int heads = static_cast<int>(a.heads), groups = static_cast<int>(a.groups);
  const int64_t row = blockIdx.x;
  waitForPrevious();
  letNextBegin();
  if (which >= heads + 2 * groups) return;
  const bool isQ = which < heads, isK = !isQ && which < heads + groups;
  const int head = isQ ? which : isK ? which - heads : which - heads - groups;
  Head<T, D> one(a, row, isQ ? a.qWeight : isK ? a.kWeight : nullptr, isQ || isK);
  const T* from = isQ ? static_cast<const T*>(a.q) + row * a.qStride : static_cast<const T*>(isK ? a.k : a.v) + row * a.kvStride;
  one.prepare(from + head * D, scratch[warp]);
  if (isQ) {
    T* const to = static_cast<T*>(p.queries) + (row * heads + head) * D;
    one.store([&](int d, float x) { to[d] = narrow<T>(x); });
    return;
  }
  __syncwarp();  // all lanes have read what `prepare` left
  Cache::write(a, place(a, row, static_cast<int>(a.positions[row])), head, isK ? 0 : 1, one, reinterpret_cast<char*>(scratch[warp]), true);
}

/** 2^(x − peak), 0 where nothing was seen yet. */
__device__ inline float faded(float x, float peak) { return powerOf2(x - (peak == -INFINITY ? 0.0f : peak)); }

/** A block's dynamic shared memory: a tile of keys and values per warp, and in the end the warps' results in the same place. */
template <typename Cache>
struct AttendShared {
  static constexpr int kSum = Cache::kSize + 4;
  static constexpr size_t kBytes = std::max(size_t{kWarps * Cache::kBytesOfTile}, sizeof(float) * kWarps * kColumns * kSum);
};

/** A block takes `H` query heads of 8 / H rows. */
template <typename Cache, int H>
__global__ void __launch_bounds__(kThreads, 3) attendKernel(PromptAttentionArgs p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  using T = typename Cache::Model;
  constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kRows = kColumns / H, kSum = AttendShared<Cache>::kSum;
  extern __shared__ __align__(128) char dynamicShared[];
  __shared__ __align__(16) typename Cache::Query queries[kColumns][Cache::Queries::kNumbers];
  __shared__ float peaks[kWarps][kColumns], totals[kWarps][kColumns];
  const AttentionArgs& a = p.rows;
  const int64_t firstRow = static_cast<int64_t>(blockIdx.x) * kRows;
  const int rows = a.rows - firstRow < kRows ? static_cast<int>(a.rows - firstRow) : kRows;
  const int share = static_cast<int>(a.heads / a.groups), parts = (share + H - 1) / H;
  const int group = static_cast<int>(blockIdx.y) / parts, part = static_cast<int>(blockIdx.y) % parts;
  const int firstHead = group * share + part * H, heads = min(H, share - part * H);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  waitForPrevious();
  letNextBegin();
  static_assert(kWarps == kColumns);
  {
    const int row = warp / H, head = warp % H;  // of the column that this warp puts into shared memory
    const T* from = static_cast<const T*>(p.queries) + ((firstRow + row) * a.heads + firstHead + head) * D + lane;
    float values[D / 32];
#pragma unroll
    for (int i = 0; i < D / 32; i++) values[i] = row < rows && head < heads ? wide(from[32 * i]) : 0.0f;
    Cache::putQuery(values, queries[warp]);
  }
  __syncthreads();

  char* const own = dynamicShared + warp * Cache::kBytesOfTile;
  const auto scales = Cache::scoreScales(queries[0], kColumns, a.scale * 1.44269504f);  // to base 2
  typename Cache::Running running;

  // Rows of one slot together; a block that two prompts share goes through the keys of both.
  for (int from = 0, to = 0; from < rows; from = to) {
    const int64_t slot = a.slots[firstRow + from];
    int earliest = static_cast<int>(a.positions[firstRow + from]), latest = earliest;
    for (to = from + 1; to < rows && a.slots[firstRow + to] == slot; to++) {
      const int position = static_cast<int>(a.positions[firstRow + to]);
      earliest = min(earliest, position);
      latest = max(latest, position);
    }
    int last[2];  // the positions of this lane's columns; −1 where a column is not among these rows
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int row = (2 * t + j) / H;
      last[j] = row >= from && row < to && (2 * t + j) % H < heads ? static_cast<int>(a.positions[firstRow + row]) : -1;
    }
    const int window = static_cast<int>(a.window), firstKey = window > 0 ? max(0, earliest - window + 1) / kKeys * kKeys : 0;
    const int turns = kKeys * kWarps * static_cast<int>(p.splits);
    const int each = (latest + 1 - firstKey + turns - 1) / turns * kKeys * kWarps;
    const int begin = firstKey + static_cast<int>(blockIdx.z) * each, end = min(latest + 1, begin + each);
    const int32_t* table = tableOf(a, firstRow + from);
    const auto tileAt = [&](int start) { return start < end ? place(table, start) : 0; };  // a tile lies within a block of the cache
    int tile = tileAt(begin + warp * kKeys);  // where the next tile lies: known before its keys are asked for
    const auto ask = [&](int start) {
      Cache::copy(own, a, tile, group, end - start);
      commitCopies();
      tile = tileAt(start + kKeys * kWarps);
    };
    if (begin + warp * kKeys < end) ask(begin + warp * kKeys);
    for (int start = begin + warp * kKeys; start < end; start += kKeys * kWarps) {
      waitForCopies<0>();
      __syncwarp();
      running.add(own, &queries[g][t * Cache::Queries::kQuarter], scales, [&](float(&score)[4], int part) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int key = start + part + g + j / 2 * 8, position = last[j % 2];
          const bool seen = key < end && key <= position && (window == 0 || key > position - window);
          if (!seen) score[j] = -INFINITY;
        }
      });
      __syncwarp();  // all lanes have read the tile
      if (start + kKeys * kWarps < end) ask(start + kKeys * kWarps);
    }
  }

  running.finish();
  __syncthreads();  // all warps have read their tiles
  float* const sums = reinterpret_cast<float*>(dynamicShared);
#pragma unroll
  for (int j = 0; j < 2; j++) {
    const int column = 2 * t + j;
    if (g == 0) peaks[warp][column] = running.peak[j], totals[warp][column] = running.total[j];
    running.store(j, sums + (warp * kColumns + column) * kSum);
  }
  __syncthreads();
  for (int at = threadIdx.x; at < kColumns * D; at += kThreads) {
    const int column = at / D, d = at % D, row = column / H, head = column % H;
    if (row >= rows || head >= heads) continue;
    float top = -INFINITY, whole = 0, result = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) top = fmaxf(top, peaks[i][column]);
#pragma unroll
    for (int i = 0; i < kWarps; i++) {
      const float fade = faded(peaks[i][column], top);
      whole += totals[i][column] * fade;
      result += sums[(i * kColumns + column) * kSum + d] * fade;
    }
    const int64_t place = (static_cast<int64_t>(blockIdx.z) * a.rows + firstRow + row) * a.heads + firstHead + head;
    p.sums[place * D + d] = result;
    if (d == 0) p.peaks[place] = top, p.totals[place] = whole;
  }
#endif
}

template <typename T, int D>
__global__ void __launch_bounds__(32 * kFewWarps) combineKernel(PromptAttentionArgs p) {
  const int64_t all = p.rows.rows * p.rows.heads, at = static_cast<int64_t>(blockIdx.x) * kFewWarps + threadIdx.x / 32;
  waitForPrevious();
  letNextBegin();
  if (at >= all) return;
  float top = -INFINITY, whole = 0;
  for (int64_t part = 0; part < p.splits; part++) top = fmaxf(top, p.peaks[part * all + at]);
  for (int64_t part = 0; part < p.splits; part++) whole += p.totals[part * all + at] * faded(p.peaks[part * all + at], top);
  for (int d = threadIdx.x % 32; d < D; d += 32) {
    float result = 0;
    for (int64_t part = 0; part < p.splits; part++) result += p.sums[(part * all + at) * D + d] * faded(p.peaks[part * all + at], top);
    static_cast<T*>(p.rows.out)[at * D + d] = narrow<T>(result / whole);
  }
}

template <typename Cache>
void attend(const PromptAttentionArgs& p, cudaStream_t stream) {
  const AttentionArgs& a = p.rows;
  const auto blocks = [](int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); };
  const int64_t share = a.heads / a.groups;
  const auto launch = [&](auto kernel, int64_t most) {
    const dim3 grid(blocks(a.rows, kColumns / most), static_cast<unsigned>(a.groups) * blocks(share, most),
                    static_cast<unsigned>(p.splits));
    launchWithMemory(kernel, grid, kThreads, 1, AttendShared<Cache>::kBytes, stream, p);
  };
  const dim3 heads(static_cast<unsigned>(a.rows), blocks(a.heads + 2 * a.groups, kFewWarps));
  launchInRow(prepareKernel<Cache>, heads, 32 * kFewWarps, 1, stream, p);
  if (share == 1)
    launch(attendKernel<Cache, 1>, 1);
  else if (share == 2)
    launch(attendKernel<Cache, 2>, 2);
  else if (share <= 4)
    launch(attendKernel<Cache, 4>, 4);
  else
    launch(attendKernel<Cache, 8>, 8);
  launchInRow(combineKernel<typename Cache::Model, Cache::kSize>, dim3(blocks(a.rows * a.heads, kFewWarps)), 32 * kFewWarps, 1, stream, p);
}

template <template <typename, int> class Cache, typename T>
void attendBySize(const PromptAttentionArgs& args, cudaStream_t stream) {
  if (args.rows.size == 64)
    attend<Cache<T, 64>>(args, stream);
  else
    attend<Cache<T, 128>>(args, stream);
}

template <typename T>
void attendByCache(const PromptAttentionArgs& args, cudaStream_t stream) {
  if (args.rows.keyScales != nullptr)
    attendBySize<EightBitCache, T>(args, stream);
  else
    attendBySize<PlainCache, T>(args, stream);
}

}  // namespace

bool promptAttentionFits(Kind kind, int64_t size) { return kind != Kind::Float32 && (size == 64 || size == 128) && majorOfDevice() >= 8; }

void launchPromptAttention(Kind kind, const PromptAttentionArgs& args, cudaStream_t stream) {
  if (args.rows.rows == 0) return;
  if (kind == Kind::BFloat16)
    attendByCache<__nv_bfloat16>(args, stream);
  else
    attendByCache<__half>(args, stream);
}

}  // namespace attune
