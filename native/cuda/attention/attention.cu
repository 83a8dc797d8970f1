// Attention of a decoding step in one kernel: norm and rotation of q and k, writing k and v to the cache, attention over the cache. The
// formulas are in ops/decode/fused.cc and ops/decode/attention.cc. This kernel supports every dtype and head size, and caches in 8 bits
// (eight_bit_head.cuh); bf16 and f16 heads of the usual sizes have a faster one (tensor_cores.cu).
//
// One block per row and query head. Eight lanes share a key: each holds E = size/8 of its dimensions. 32 such teams go through the keys in
// parallel, each with a running maximum and sum (online softmax); their results are combined at the end.
#include "cuda/attention/eight_bit_head.cuh"
#include "cuda/head.cuh"

namespace attune {
namespace {

constexpr int kTeam = 8, kTeams = 32, kThreads = kTeam * kTeams;

/** C: of which type the cache's numbers are, T or int8_t. */
template <typename T, typename C, int E>
__global__ void __launch_bounds__(kThreads) attentionKernel(AttentionArgs a) {
  constexpr int D = E * kTeam;
  constexpr bool kHasScales = std::is_same_v<C, int8_t>;
  __shared__ float scratch[3][D], query[D], peaks[kTeams], totals[kTeams], sums[kTeams][D];
  const int64_t row = blockIdx.x, head = blockIdx.y, group = head / (a.heads / a.groups), stride = a.groups * D;
  const int team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam, warp = threadIdx.x / 32;
  waitForPrevious();
  letNextBegin();

  const int position = static_cast<int>(a.positions[row]);
  const int64_t angles = a.ofStep ? position : row;
  const int32_t* table = tableOf(a, row);
  C *keys = static_cast<C*>(a.keys) + group * D, *values = static_cast<C*>(a.values) + group * D;
  const auto scaleAt = [&](int64_t at) { return scalePlace(at, static_cast<unsigned>(a.groups), static_cast<unsigned>(group)); };
  const auto write = [&](const Head<T, D>& head, C* cache, __nv_bfloat16* scales) {  // the heads of a group all write the same values
    const int64_t newest = place(table, position);
    if constexpr (kHasScales) {
      const float scale = cacheScaleOf(head.values);
      head.store([&](int d, float x) { cache[newest * stride + d] = codeOf(x, scale); });
      if (threadIdx.x % 32 == 0) scales[scaleAt(newest)] = narrow<__nv_bfloat16>(scale);
    } else {
      head.store([&](int d, float x) { cache[newest * stride + d] = narrow<T>(x); });
    }
  };
  if (warp == 0) {
    Head<T, D> q(a, angles, a.qWeight, true);
    q.prepare(static_cast<const T*>(a.q) + row * a.qStride + head * D, scratch[0]);
    q.store([&](int d, float x) { query[d] = x * a.scale; });
  } else if (warp == 1) {
    Head<T, D> k(a, angles, a.kWeight, true);
    k.prepare(static_cast<const T*>(a.k) + row * a.kvStride + group * D, scratch[1]);
    write(k, keys, a.keyScales);
  } else if (warp == 2) {
    Head<T, D> v(a, angles, nullptr, false);
    v.prepare(static_cast<const T*>(a.v) + row * a.kvStride + group * D, scratch[2]);
    write(v, values, a.valueScales);
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
    Run<C, E> key, value;
    const int64_t where = place(table, inside ? t : position), at = where * stride + lane * E;
    key.load(keys + at);
    value.load(values + at);
    const float ofKey = kHasScales ? wide(a.keyScales[scaleAt(where)]) : 1.0f, ofValue = kHasScales ? wide(a.valueScales[scaleAt(where)]) : 1.0f;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < E; i++) dot += q[i] * key[i];
#pragma unroll
    for (int offset = kTeam / 2; offset > 0; offset /= 2) dot += __shfl_xor_sync(0xFFFFFFFF, dot, offset, kTeam);
    if (kHasScales) dot *= ofKey;
    const float score = inside ? dot + (bias == nullptr ? 0.0f : bias[t]) : peak;
    const float higher = fmaxf(peak, score), fade = inside ? __expf(peak - higher) : 1.0f, weight = inside ? __expf(score - higher) : 0.0f;
    peak = higher;
    total = total * fade + weight;
#pragma unroll
    for (int i = 0; i < E; i++) sum[i] = sum[i] * fade + (kHasScales ? weight * ofValue : weight) * value[i];
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

template <typename T, typename C>
void attend(const AttentionArgs& a, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.heads));
  const auto launch = [&](auto kernel) { launchInRow(kernel, grid, kThreads, 1, stream, a); };
  switch (a.size) {
    case 32: return launch(attentionKernel<T, C, 4>);
    case 48: return launch(attentionKernel<T, C, 6>);
    case 64: return launch(attentionKernel<T, C, 8>);
    case 80: return launch(attentionKernel<T, C, 10>);
    case 96: return launch(attentionKernel<T, C, 12>);
    case 128: return launch(attentionKernel<T, C, 16>);
    case 256: return launch(attentionKernel<T, C, 32>);
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
  ATTUNE_BY_KIND(kind, (args.keyScales != nullptr ? attend<T, int8_t>(args, stream) : attend<T, T>(args, stream)))
}

}  // namespace attune
