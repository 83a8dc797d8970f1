// Attention of prompts' tokens over the cache (ops/decode/prompt.cc says what it computes), in three kernels:
//
//   prepare   norm and rotation; q goes to a buffer, k and v to the cache. A token sees the tokens before it that are read with it,
//             so all keys have to be there before the next kernel.
//   attend    one block per few neighbouring rows, kv head and part of the keys. attention_mma.cu has the same inner loop, where the
//             eight columns of a product are query heads of one row; here they are the heads of several rows, so that a key is read
//             once for all of them.
//   combine   puts the parts of the keys together.
#include "cuda/head.cuh"
#include "cuda/mma.cuh"

namespace attune {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kTile = 16, kColumns = 8, kFewWarps = 4;

template <typename T, int D>
__global__ void __launch_bounds__(32 * kFewWarps) prepareKernel(PromptAttentionArgs p) {
  __shared__ float scratch[kFewWarps][D];
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
  T* to = isQ ? static_cast<T*>(p.queries) + (row * heads + head) * D
              : static_cast<T*>(isK ? a.keys : a.values) + (place(a, row, static_cast<int>(a.positions[row])) * groups + head) * D;
  one.store([&](int d, float x) { to[d] = narrow<T>(x); });
}

/** exp(x − peak), 0 where nothing was seen yet. */
__device__ inline float faded(float x, float peak) { return __expf(x - (peak == -INFINITY ? 0.0f : peak)); }

/** A block takes `H` query heads of 8 / H rows. */
template <typename T, int D, int H>
__global__ void __launch_bounds__(kThreads, 2) attendKernel(PromptAttentionArgs p) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  constexpr int kSteps = D / 32, kOwn = D / 8, kPad = 32, kRows = kColumns / H;
  __shared__ __align__(16) T queries[kColumns][D + kPad];
  __shared__ float peaks[kWarps][kColumns], totals[kWarps][kColumns], sums[kWarps][kColumns][D];
  const AttentionArgs& a = p.rows;
  const int64_t stride = a.groups * D, firstRow = static_cast<int64_t>(blockIdx.x) * kRows;
  const int rows = a.rows - firstRow < kRows ? static_cast<int>(a.rows - firstRow) : kRows;
  const int share = static_cast<int>(a.heads / a.groups), parts = (share + H - 1) / H;
  const int group = static_cast<int>(blockIdx.y) / parts, part = static_cast<int>(blockIdx.y) % parts;
  const int firstHead = group * share + part * H, heads = min(H, share - part * H);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  waitForPrevious();
  letNextBegin();
  for (int i = threadIdx.x; i < kColumns * D; i += kThreads) {
    const int column = i / D, row = column / H, head = column % H;
    const int64_t place = ((firstRow + row) * a.heads + firstHead + head) * D + i % D;
    queries[column][i % D] = row < rows && head < heads ? static_cast<const T*>(p.queries)[place] : narrow<T>(0.0f);
  }
  __syncthreads();

  float peak[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};  // of columns 2t and 2t + 1; the totals of this lane's keys
  float out[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) out[i][j] = 0;

  // Rows of one slot together; a block that two prompts share goes through the keys of both.
  for (int from = 0, to = 0; from < rows; from = to) {
    const int64_t slot = a.slots[firstRow + from];
    int earliest = static_cast<int>(a.positions[firstRow + from]), latest = earliest;
    for (to = from + 1; to < rows && a.slots[firstRow + to] == slot; to++) {
      const int position = static_cast<int>(a.positions[firstRow + to]);
      earliest = min(earliest, position);
      latest = max(latest, position);
    }
    int own[2];  // the positions of this lane's columns; −1 where a column is not among these rows
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int row = (2 * t + j) / H;
      own[j] = row >= from && row < to && (2 * t + j) % H < heads ? static_cast<int>(a.positions[firstRow + row]) : -1;
    }
    const int window = static_cast<int>(a.window), firstKey = window > 0 ? max(0, earliest - window + 1) / kTile * kTile : 0;
    const int turns = kTile * kWarps * static_cast<int>(p.splits);
    const int each = (latest + 1 - firstKey + turns - 1) / turns * kTile * kWarps;
    const int begin = firstKey + static_cast<int>(blockIdx.z) * each, end = min(latest + 1, begin + each);
    const int32_t* table = tableOf(a, firstRow + from);
    const T *keys = static_cast<const T*>(a.keys) + group * D, *values = static_cast<const T*>(a.values) + group * D;
    const auto tileAt = [&](int start) { return start < end ? place(table, start) : 0; };  // a tile lies within a block of the cache
    int tile = tileAt(begin + warp * kTile);  // where the next tile lies: known before its keys are asked for
    uint4 low[kSteps], high[kSteps];  // of keys g and g + 8 of a tile: eight dimensions of each 32
    Run<T, kOwn> value[4];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9: an eighth of the dimensions
    const auto ask = [&](int start) {
      const T *key = keys + (tile + g) * stride + t * 8, *from = values + (tile + 2 * t) * stride + g * kOwn;
      const auto slice = [&](int more, int step) {
        return start + g + more < end ? *reinterpret_cast<const uint4*>(key + more * stride + step * 32) : uint4{};
      };
#pragma unroll
      for (int step = 0; step < kSteps; step++) low[step] = slice(0, step), high[step] = slice(8, step);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int more = i % 2 + i / 2 * 8;
        if (start + 2 * t + more < end)
          value[i].load(from + more * stride);
        else
          value[i].clear();
      }
      tile = tileAt(start + kTile * kWarps);
    };
    if (begin + warp * kTile < end) ask(begin + warp * kTile);
    for (int start = begin + warp * kTile; start < end; start += kTile * kWarps) {
      float score[4] = {};
#pragma unroll
      for (int step = 0; step < kSteps; step++) {
        const uint4 q = *reinterpret_cast<const uint4*>(&queries[g][step * 32 + t * 8]);
        multiply<T>(score, low[step].x, high[step].x, low[step].y, high[step].y, q.x, q.y);
        multiply<T>(score, low[step].z, high[step].z, low[step].w, high[step].w, q.z, q.w);
      }
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const int key = start + g + j / 2 * 8, position = own[j % 2];
        const bool seen = key < end && key <= position && (window == 0 || key > position - window);
        score[j] = seen ? score[j] * a.scale : -INFINITY;
      }
      float fade[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        float top = fmaxf(score[j], score[j + 2]);
        for (int offset = 4; offset < 32; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, offset));
        top = fmaxf(top, peak[j]);
        fade[j] = faded(peak[j], top);
        peak[j] = top;
        score[j] = faded(score[j], top);
        score[j + 2] = faded(score[j + 2], top);
        total[j] = total[j] * fade[j] + score[j] + score[j + 2];
      }
      if (__any_sync(0xFFFFFFFF, fade[0] < 1 || fade[1] < 1)) {
#pragma unroll
        for (int i = 0; i < D / 16; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) out[i][j] *= fade[j % 2];
      }
      const unsigned first = transposed(pack<T>(score[0], score[1])), second = transposed(pack<T>(score[2], score[3]));
#pragma unroll
      for (int i = 0; i < D / 16; i++) {
        const auto pair = [&](int of) { return value[of].words()[i]; };
        multiply<T>(out[i], __byte_perm(pair(0), pair(1), 0x5410), __byte_perm(pair(0), pair(1), 0x7632),
                    __byte_perm(pair(2), pair(3), 0x5410), __byte_perm(pair(2), pair(3), 0x7632), first, second);
      }
      if (start + kTile * kWarps < end) ask(start + kTile * kWarps);
    }
  }

#pragma unroll
  for (int j = 0; j < 2; j++) {
    for (int offset = 4; offset < 32; offset *= 2) total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], offset);
    const int column = 2 * t + j;
    if (g == 0) peaks[warp][column] = peak[j], totals[warp][column] = total[j];
#pragma unroll
    for (int i = 0; i < D / 16; i++)
      sums[warp][column][g * kOwn + 2 * i] = out[i][j], sums[warp][column][g * kOwn + 2 * i + 1] = out[i][j + 2];
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
      result += sums[i][column][d] * fade;
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

template <typename T, int D>
void attend(const PromptAttentionArgs& p, cudaStream_t stream) {
  const AttentionArgs& a = p.rows;
  const auto blocks = [](int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); };
  const int64_t share = a.heads / a.groups;
  const auto launch = [&](auto kernel, int64_t most) {
    const dim3 grid(blocks(a.rows, kColumns / most), static_cast<unsigned>(a.groups) * blocks(share, most),
                    static_cast<unsigned>(p.splits));
    launchInRow(kernel, grid, kThreads, 1, stream, p);
  };
  const dim3 heads(static_cast<unsigned>(a.rows), blocks(a.heads + 2 * a.groups, kFewWarps));
  launchInRow(prepareKernel<T, D>, heads, 32 * kFewWarps, 1, stream, p);
  if (share == 1)
    launch(attendKernel<T, D, 1>, 1);
  else if (share == 2)
    launch(attendKernel<T, D, 2>, 2);
  else if (share <= 4)
    launch(attendKernel<T, D, 4>, 4);
  else
    launch(attendKernel<T, D, 8>, 8);
  launchInRow(combineKernel<T, D>, dim3(blocks(a.rows * a.heads, kFewWarps)), 32 * kFewWarps, 1, stream, p);
}

template <typename T>
void attendBySize(const PromptAttentionArgs& args, cudaStream_t stream) {
  if (args.rows.size == 64)
    attend<T, 64>(args, stream);
  else
    attend<T, 128>(args, stream);
}

}  // namespace

bool promptAttentionFits(Kind kind, int64_t size) { return kind != Kind::Float32 && (size == 64 || size == 128) && majorOfDevice() >= 8; }

void launchPromptAttention(Kind kind, const PromptAttentionArgs& args, cudaStream_t stream) {
  if (args.rows.rows == 0) return;
  if (kind == Kind::BFloat16)
    attendBySize<__nv_bfloat16>(args, stream);
  else
    attendBySize<__half>(args, stream);
}

}  // namespace attune
