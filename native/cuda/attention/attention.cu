// Attention of a decoding step in one kernel: norm and rotation of q and k, writing k and v to the cache, attention over the cache.
// The formulas are in ops/decode/fused.cc and ops/decode/attention.cc. This kernel takes every dtype and head size; bf16 and f16
// heads of the usual sizes have a faster one (tensor_cores.cu).
//
// One block per row and query head. Eight lanes share a key: each holds E = size/8 of its dimensions. 32 such teams go through the
// keys in parallel, each with a running maximum and sum (online softmax); their results are combined at the end.
#include "cuda/head.cuh"

namespace attune {
namespace {

constexpr int kTeam = 8, kTeams = 32, kThreads = kTeam * kTeams;

template <typename T, int E>
__global__ void __launch_bounds__(kThreads) attentionKernel(AttentionArgs a) {
  constexpr int D = E * kTeam;
  __shared__ float scratch[3][D], query[D], peaks[kTeams], totals[kTeams], sums[kTeams][D];
  const int64_t row = blockIdx.x, head = blockIdx.y, group = head / (a.heads / a.groups), stride = a.groups * D;
  const int team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam, warp = threadIdx.x / 32;
  waitForPrevious();
  letNextBegin();

  const int position = static_cast<int>(a.positions[row]);
  const int64_t angles = a.ofStep ? position : row;
  const int32_t* table = tableOf(a, row);
  const int64_t newest = place(table, position) * stride;
  T *keys = static_cast<T*>(a.keys) + group * D, *values = static_cast<T*>(a.values) + group * D;
  if (warp == 0) {
    Head<T, D> q(a, angles, a.qWeight, true);
    q.prepare(static_cast<const T*>(a.q) + row * a.qStride + head * D, scratch[0]);
    q.store([&](int d, float x) { query[d] = x * a.scale; });
  } else if (warp == 1) {
    Head<T, D> k(a, angles, a.kWeight, true);
    k.prepare(static_cast<const T*>(a.k) + row * a.kvStride + group * D, scratch[1]);
    k.store([&](int d, float x) { keys[newest + d] = narrow<T>(x); });  // the heads of a group all write the same values
  } else if (warp == 2) {
    Head<T, D> v(a, angles, nullptr, false);
    v.prepare(static_cast<const T*>(a.v) + row * a.kvStride + group * D, scratch[2]);
    v.store([&](int d, float x) { values[newest + d] = narrow<T>(x); });
  }
  __syncthreads();

  const float* bias = a.bias == nullptr ? nullptr : a.bias + head * a.biasLength;
  float q[E], sum[E], peak = -INFINITY, total = 0;
#pragma unroll
  for (int i = 0; i < E; i++) q[i] = query[lane * E + i], sum[i] = 0;
  const int first = a.window > 0 && position - a.window + 1 > 0 ? static_cast<int>(position - a.window + 1) : 0;
  for (int start = first; start <= position; start += kTeams) {
    const int t = start + team;
    const bool inside = t <= position;
    Run<T, E> key, value;
    const int64_t at = place(table, inside ? t : position) * stride + lane * E;
    key.load(keys + at);
    value.load(values + at);
    float dot = 0;
#pragma unroll
    for (int i = 0; i < E; i++) dot += q[i] * key[i];
#pragma unroll
    for (int offset = kTeam / 2; offset > 0; offset /= 2) dot += __shfl_xor_sync(0xFFFFFFFF, dot, offset, kTeam);
    const float score = inside ? dot + (bias == nullptr ? 0.0f : bias[t]) : peak;
    const float higher = fmaxf(peak, score), fade = inside ? __expf(peak - higher) : 1.0f, weight = inside ? __expf(score - higher) : 0.0f;
    peak = higher;
    total = total * fade + weight;
#pragma unroll
    for (int i = 0; i < E; i++) sum[i] = sum[i] * fade + weight * value[i];
  }

  if (lane == 0) peaks[team] = peak, totals[team] = total;
#pragma unroll
  for (int i = 0; i < E; i++) sums[team][lane * E + i] = sum[i];
  __syncthreads();
  float top = -INFINITY;
  for (int i = 0; i < kTeams; i++) top = fmaxf(top, peaks[i]);
  for (int d = threadIdx.x; d < D; d += kThreads) {
    float whole = 0, result = 0;
    for (int i = 0; i < kTeams; i++) {
      const float fade = __expf(peaks[i] - top);
      whole += totals[i] * fade;
      result += sums[i][d] * fade;
    }
    static_cast<T*>(a.out)[(row * a.heads + head) * D + d] = narrow<T>(result / whole);
  }
}

template <typename T>
void attend(const AttentionArgs& a, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.heads));
  const auto launch = [&](auto kernel) { launchInRow(kernel, grid, kThreads, 1, stream, a); };
  switch (a.size) {
    case 32: return launch(attentionKernel<T, 4>);
    case 48: return launch(attentionKernel<T, 6>);
    case 64: return launch(attentionKernel<T, 8>);
    case 80: return launch(attentionKernel<T, 10>);
    case 96: return launch(attentionKernel<T, 12>);
    case 128: return launch(attentionKernel<T, 16>);
    case 256: return launch(attentionKernel<T, 32>);
    default: return;
  }
}

}  // namespace

bool attentionFits(int64_t size) {
  for (int64_t known : {32, 48, 64, 80, 96, 128, 256})
    if (size == known) return true;
  return false;
}

void launchAttention(Kind kind, const AttentionArgs& args, cudaStream_t stream) {
  if (args.rows == 0 || launchAttentionMma(kind, args, stream)) return;
  ATTUNE_BY_KIND(kind, (attend<T>(args, stream)))
}

}  // namespace attune
