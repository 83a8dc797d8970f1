// Attention of a decoding step on tensor cores (attention.cu says what it computes), for bf16 and f16 and head sizes 32 to 256.
//
// One block per row and kv head, for up to eight query heads at once, so that a key is read once for all of them. Each warp takes
// sixteen keys at a time: scores[keys, heads] = K·Qᵀ, then out[dimensions, heads] += Vᵀ·weights, where Vᵀ is made by pairing two
// keys' registers. Warps keep a running maximum and sum (online softmax), which are combined at the end. Loads that do not depend on
// the previous kernel, above all those of the first keys, start before waiting for it.
#include <type_traits>

#include "cuda/head.cuh"
#include "cuda/mma.cuh"

namespace attune {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kTile = 16, kMostHeads = 8;

template <typename T, int D, int H>
__global__ void __launch_bounds__(kThreads, D > 128 ? 1 : 2) attentionMmaKernel(AttentionArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  constexpr int kSteps = D / 32, kOwn = D / 8, kPad = 32;
  __shared__ __align__(16) T queries[kMostHeads][D + kPad];
  __shared__ float scratch[kWarps][D];
  __shared__ float peaks[kWarps][kMostHeads], totals[kWarps][kMostHeads], sums[kWarps][H][D];
  const int64_t row = blockIdx.x, stride = a.groups * D;
  const int share = static_cast<int>(a.heads / a.groups), parts = (share + H - 1) / H;
  const int group = static_cast<int>(blockIdx.y) / parts, part = static_cast<int>(blockIdx.y) % parts;
  const int head = group * share + part * H, heads = min(H, share - part * H);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  if (!a.ofStep) waitForPrevious();

  const int position = static_cast<int>(a.positions[row]);
  const int64_t angles = a.ofStep ? position : row;
  const int first = a.window > 0 && position - a.window + 1 > 0 ? static_cast<int>(position - a.window + 1) : 0;
  const int begin = first / kTile * kTile + warp * kTile;  // a tile lies within a block of the cache
  const int32_t* table = tableOf(a, row);
  T *keys = static_cast<T*>(a.keys) + group * D, *values = static_cast<T*>(a.values) + group * D;
  const auto tileAt = [&](int start) { return start <= position ? place(table, start) : 0; };
  int tile = tileAt(begin);  // where the next tile lies: known before its keys are asked for
  uint4 low[kSteps], high[kSteps];  // of keys g and g + 8 of a tile: eight dimensions of each 32
  Run<T, kOwn> value[4];  // of keys 2t, 2t + 1, 2t + 8, 2t + 9: an eighth of the dimensions
  const auto ask = [&](int start) {
    const T *key = keys + (tile + g) * stride + t * 8, *from = values + (tile + 2 * t) * stride + g * kOwn;
    const auto slice = [&](int more, int step) {
      return start + g + more <= position ? *reinterpret_cast<const uint4*>(key + more * stride + step * 32) : uint4{};
    };
#pragma unroll
    for (int step = 0; step < kSteps; step++) low[step] = slice(0, step), high[step] = slice(8, step);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int more = i % 2 + i / 2 * 8;
      if (start + 2 * t + more <= position)
        value[i].load(from + more * stride);
      else
        value[i].clear();
    }
    tile = tileAt(start + kTile * kWarps);
  };
  const bool ahead = begin + kTile <= position;  // the whole first tile was in the cache before this step
  if (ahead) ask(begin);

  // q, k and v: one head per warp
  const auto weightOf = [&](int which) { return which < heads ? a.qWeight : which == heads ? a.kWeight : nullptr; };
  const auto finish = [&](Head<T, D>& one, int which) {
    if (which < heads) {
      one.prepare(static_cast<const T*>(a.q) + row * a.qStride + (head + which) * D, scratch[warp]);
      one.store([&](int d, float x) { queries[which][d] = narrow<T>(x); });
    } else {
      const bool isK = which == heads;
      T* to = (isK ? keys : values) + place(table, position) * stride;  // the blocks of a group all write the same values
      one.prepare(static_cast<const T*>(isK ? a.k : a.v) + row * a.kvStride + group * D, scratch[warp]);
      one.store([&](int d, float x) { to[d] = narrow<T>(x); });
    }
  };
  Head<T, D> own(a, angles, weightOf(warp), warp <= heads);
  for (int i = threadIdx.x + heads * (D + kPad); i < kMostHeads * (D + kPad); i += kThreads) queries[0][i] = narrow<T>(0.0f);
  if (a.ofStep) waitForPrevious();
  letNextBegin();
  if (warp < heads + 2) finish(own, warp);
  for (int which = warp + kWarps; which < heads + 2; which += kWarps) {
    Head<T, D> more(a, angles, weightOf(which), which <= heads);
    finish(more, which);
  }
  __syncthreads();
  if (!ahead && begin <= position) ask(begin);

  float peak[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};  // of heads 2t and 2t + 1; the totals of this lane's keys
  float out[D / 16][4];
#pragma unroll
  for (int i = 0; i < D / 16; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) out[i][j] = 0;
  for (int start = begin; start <= position; start += kTile * kWarps) {
    float score[4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
      const uint4 q = *reinterpret_cast<const uint4*>(&queries[g][step * 32 + t * 8]);
      multiply<T>(score, low[step].x, high[step].x, low[step].y, high[step].y, q.x, q.y);
      multiply<T>(score, low[step].z, high[step].z, low[step].w, high[step].w, q.z, q.w);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int key = start + g + j / 2 * 8, which = 2 * t + j % 2;
      score[j] =
          score[j] * a.scale + (a.bias == nullptr || which >= heads || key > position ? 0.0f : a.bias[(head + which) * a.biasLength + key]);
      if (key > position || key < first) score[j] = -INFINITY;
    }
    float fade[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float top = fmaxf(score[j], score[j + 2]);
      for (int offset = 4; offset < 32; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, offset));
      top = fmaxf(top, peak[j]);
      fade[j] = __expf(peak[j] - top);
      peak[j] = top;
      score[j] = __expf(score[j] - top);
      score[j + 2] = __expf(score[j + 2] - top);
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
    if (start + kTile * kWarps <= position) ask(start + kTile * kWarps);
  }

#pragma unroll
  for (int j = 0; j < 2; j++) {
    for (int offset = 4; offset < 32; offset *= 2) total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], offset);
    const int which = 2 * t + j;
    if (g == 0) peaks[warp][which] = peak[j], totals[warp][which] = total[j];
    if (which < H)
#pragma unroll
      for (int i = 0; i < D / 16; i++)
        sums[warp][which][g * kOwn + 2 * i] = out[i][j], sums[warp][which][g * kOwn + 2 * i + 1] = out[i][j + 2];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < heads * D; at += kThreads) {
    const int which = at / D, d = at % D;
    float top = -INFINITY, whole = 0, result = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) top = fmaxf(top, peaks[i][which]);
#pragma unroll
    for (int i = 0; i < kWarps; i++) {
      const float fade = __expf(peaks[i][which] - top);
      whole += totals[i][which] * fade;
      result += sums[i][which][d] * fade;
    }
    static_cast<T*>(a.out)[(row * a.heads + head + which) * D + d] = narrow<T>(result / whole);
  }
#endif
}

template <typename T, int D>
void attend(const AttentionArgs& a, cudaStream_t stream) {
  const int64_t share = a.heads / a.groups;
  const auto launch = [&](auto kernel, int64_t most) {
    const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.groups * ((share + most - 1) / most)));
    launchInRow(kernel, grid, kThreads, 1, stream, a);
  };
  if (share <= 2) return launch(attentionMmaKernel<T, D, 2>, 2);
  if (share <= 4 || D > 96) return launch(attentionMmaKernel<T, D, 4>, 4);
  if constexpr (D <= 96) return launch(attentionMmaKernel<T, D, 8>, 8);
}

template <typename T>
bool attendBySize(const AttentionArgs& a, cudaStream_t stream) {
  switch (a.size) {
    case 32: attend<T, 32>(a, stream); return true;
    case 64: attend<T, 64>(a, stream); return true;
    case 96: attend<T, 96>(a, stream); return true;
    case 128: attend<T, 128>(a, stream); return true;
    case 256: attend<T, 256>(a, stream); return true;
    default: return false;
  }
}

}  // namespace

bool launchAttentionMma(Kind kind, const AttentionArgs& args, cudaStream_t stream) {
  if (majorOfDevice() < 8) return false;
  if (kind == Kind::BFloat16) return attendBySize<__nv_bfloat16>(args, stream);
  if (kind == Kind::Float16) return attendBySize<__half>(args, stream);
  return false;
}

}  // namespace attune
