// CUDA twins of the CPU operators: rope, swiglu, decode attention, rows of logits; sampling is in cuda_sample.cu. Each says its algorithm; the formulas are in
// the .cc of the same name.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda_raw.h"

namespace attune {
namespace {

template <typename T>
__device__ inline float wide(T x) { return static_cast<float>(x); }
template <>
__device__ inline float wide(__half x) { return __half2float(x); }
template <>
__device__ inline float wide(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow(float x) { return x; }
template <>
__device__ inline __half narrow(float x) { return __float2half(x); }
template <>
__device__ inline __nv_bfloat16 narrow(float x) { return __float2bfloat16(x); }

// —— rope: one thread per pair (and per dimension that passes through) ————————————————————————————————————————
template <typename T>
__global__ void ropeKernel(RopeArgs a) {
  const int64_t perHead = a.size - a.half;  // half pairs, then the rest
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= a.rows * a.heads * perHead) return;
  const int64_t slot = i % perHead, head = i / perHead % a.heads, row = i / perHead / a.heads;
  const T* x = static_cast<const T*>(a.x) + row * a.rowStride + head * a.headStride;
  T* y = static_cast<T*>(a.y) + (row * a.heads + head) * a.size;
  if (slot >= a.half) {
    y[slot + a.half] = x[slot + a.half];
    return;
  }
  const int64_t first = a.interleaved ? 2 * slot : slot, second = a.interleaved ? 2 * slot + 1 : slot + a.half;
  const float c = a.cosines[row * a.half + slot], s = a.direction * a.sines[row * a.half + slot];
  const float u = wide(x[first]), w = wide(x[second]);
  y[first] = narrow<T>(u * c - w * s);
  y[second] = narrow<T>(w * c + u * s);
}

// —— swiglu ——————————————————————————————————————————————————————————————————————————————————————————————
template <typename T>
__global__ void swigluKernel(const T* x, T* y, int64_t rows, int64_t size) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * size) return;
  const T* row = x + i / size * 2 * size + i % size;
  const float g = wide(row[0]);
  y[i] = narrow<T>(g / (1.0f + __expf(-g)) * wide(row[size]));
}

template <typename T>
__global__ void swigluBackwardKernel(const T* x, const T* gradient, T* dx, int64_t rows, int64_t size) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= rows * size) return;
  const int64_t at = i / size * 2 * size + i % size;
  const float g = wide(x[at]), d = wide(gradient[i]);
  const float sigmoid = 1.0f / (1.0f + __expf(-g));
  dx[at + size] = narrow<T>(d * g * sigmoid);
  dx[at] = narrow<T>(d * wide(x[at + size]) * sigmoid * (1.0f + g * (1.0f - sigmoid)));
}

// —— decode attention —————————————————————————————————————————————————————————————————————————————————————
// One block per (row, query head). Eight lanes share a key: each holds E = size/8 of its dimensions. 32 such teams walk the
// keys side by side with a running maximum and sum (online softmax), and are joined through shared memory at the end.
constexpr int kTeam = 8, kTeams = 32, kDecodeThreads = kTeam * kTeams;

template <typename T, int E>
__device__ inline void loadSlice(const T* from, float* to) {
  if constexpr (E * sizeof(T) % 16 == 0) {
    constexpr int per = 16 / sizeof(T);
#pragma unroll
    for (int i = 0; i < E; i += per) {
      const uint4 packed = *reinterpret_cast<const uint4*>(from + i);
      const T* values = reinterpret_cast<const T*>(&packed);
#pragma unroll
      for (int j = 0; j < per; j++) to[i + j] = wide(values[j]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < E; i++) to[i] = wide(from[i]);
  }
}

template <typename T>
__global__ void cacheKernel(DecodeArgs a) {
  const int64_t row = blockIdx.x, stride = a.groups * a.size;
  const int64_t target = (a.slots[row] * a.length + a.positions[row]) * stride;
  for (int64_t i = threadIdx.x; i < stride; i += blockDim.x) {
    static_cast<T*>(a.keys)[target + i] = static_cast<const T*>(a.k)[row * stride + i];
    static_cast<T*>(a.values)[target + i] = static_cast<const T*>(a.v)[row * stride + i];
  }
}

// What stands between the fused projection and attention, in one kernel: the norm of q and k, their turn, and k and v into the
// cache. One block per head of a row, one thread per dimension.
template <typename T>
__global__ void qkvKernel(QkvArgs a) {
  extern __shared__ float turned[];  // [size], then one sum per warp
  const int64_t row = blockIdx.x, head = blockIdx.y, d = threadIdx.x;
  const bool isQ = head < a.heads, isK = !isQ && head < a.heads + a.groups, inside = d < a.size;
  const T* x = static_cast<const T*>(a.fused) + (row * (a.heads + 2 * a.groups) + head) * a.size;
  const T* weight = static_cast<const T*>(isQ ? a.qWeight : isK ? a.kWeight : nullptr);
  float value = inside ? wide(x[d]) : 0.0f;
  if (weight != nullptr) {
    float squares = value * value;
    for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xFFFFFFFF, squares, offset);
    float* sums = turned + a.size;
    if (d % 32 == 0) sums[d / 32] = squares;
    __syncthreads();
    squares = 0;
    for (int i = 0; i < blockDim.x / 32; i++) squares += sums[i];
    if (inside) value = wide(narrow<T>(wide(narrow<T>(value * rsqrtf(squares / a.size + a.eps))) * wide(weight[d])));
  }
  if (a.cosines != nullptr && (isQ || isK)) {
    if (inside) turned[d] = value;
    __syncthreads();
    if (d < 2 * a.half) {
      const int64_t pair = a.interleaved ? d / 2 : d % a.half;
      const bool first = a.interleaved ? d % 2 == 0 : d < a.half;
      const float other = turned[a.interleaved ? (d ^ 1) : (first ? d + a.half : d - a.half)];
      const float c = a.cosines[row * a.half + pair], s = a.sines[row * a.half + pair];
      value = first ? value * c - other * s : value * c + other * s;
    }
  }
  if (!inside) return;
  if (isQ) {
    static_cast<T*>(a.q)[(row * a.heads + head) * a.size + d] = narrow<T>(value);
    return;
  }
  const int64_t group = isK ? head - a.heads : head - a.heads - a.groups;
  const int64_t at = ((a.slots[row] * a.length + a.positions[row]) * a.groups + group) * a.size + d;
  static_cast<T*>(isK ? a.keys : a.values)[at] = narrow<T>(value);
}

template <typename T, int E>
__global__ void __launch_bounds__(kDecodeThreads) decodeKernel(DecodeArgs a) {
  constexpr int D = E * kTeam;
  const int64_t row = blockIdx.x, head = blockIdx.y, group = head / (a.heads / a.groups);
  const int team = threadIdx.x / kTeam, lane = threadIdx.x % kTeam;
  const int64_t stride = a.groups * D, position = a.positions[row];
  const int64_t base = a.slots[row] * a.length * stride + group * D + lane * E;
  const T *keys = static_cast<const T*>(a.keys) + base, *values = static_cast<const T*>(a.values) + base;
  const float* bias = a.bias == nullptr ? nullptr : a.bias + head * a.biasLength;
  float q[E], sum[E], slice[E];
  loadSlice<T, E>(static_cast<const T*>(a.q) + (row * a.heads + head) * D + lane * E, q);
#pragma unroll
  for (int i = 0; i < E; i++) sum[i] = 0;
  float peak = -INFINITY, total = 0;
  const int64_t first = a.window > 0 && position - a.window + 1 > 0 ? position - a.window + 1 : 0;
  for (int64_t t = first + team; t <= position; t += kTeams) {
    loadSlice<T, E>(keys + t * stride, slice);
    float dot = 0;
#pragma unroll
    for (int i = 0; i < E; i++) dot += q[i] * slice[i];
#pragma unroll
    for (int offset = kTeam / 2; offset > 0; offset /= 2) dot += __shfl_xor_sync(__activemask(), dot, offset, kTeam);
    const float score = dot * a.scale + (bias == nullptr ? 0.0f : bias[t]);
    const float higher = fmaxf(peak, score), fade = __expf(peak - higher), weight = __expf(score - higher);
    loadSlice<T, E>(values + t * stride, slice);
    total = total * fade + weight;
#pragma unroll
    for (int i = 0; i < E; i++) sum[i] = sum[i] * fade + weight * slice[i];
    peak = higher;
  }
  __shared__ float peaks[kTeams], totals[kTeams], sums[kTeams][D];
  if (lane == 0) {
    peaks[team] = peak;
    totals[team] = total;
  }
#pragma unroll
  for (int i = 0; i < E; i++) sums[team][lane * E + i] = sum[i];
  __syncthreads();
  float top = -INFINITY;
  for (int i = 0; i < kTeams; i++) top = fmaxf(top, peaks[i]);
  float whole = 0;
  for (int i = 0; i < kTeams; i++) whole += totals[i] * __expf(peaks[i] - top);
  for (int d = threadIdx.x; d < D; d += kDecodeThreads) {
    float value = 0;
    for (int i = 0; i < kTeams; i++) value += sums[i][d] * __expf(peaks[i] - top);
    static_cast<T*>(a.out)[(row * a.heads + head) * D + d] = narrow<T>(value / whole);
  }
}

template <typename T>
void decodeOf(const DecodeArgs& a, cudaStream_t stream) {
  if (a.k != nullptr) cacheKernel<T><<<static_cast<unsigned>(a.rows), 256, 0, stream>>>(a);
  const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.heads));
  switch (a.size) {
    case 32: decodeKernel<T, 4><<<grid, kDecodeThreads, 0, stream>>>(a); break;
    case 48: decodeKernel<T, 6><<<grid, kDecodeThreads, 0, stream>>>(a); break;
    case 64: decodeKernel<T, 8><<<grid, kDecodeThreads, 0, stream>>>(a); break;
    case 80: decodeKernel<T, 10><<<grid, kDecodeThreads, 0, stream>>>(a); break;
    case 96: decodeKernel<T, 12><<<grid, kDecodeThreads, 0, stream>>>(a); break;
    case 128: decodeKernel<T, 16><<<grid, kDecodeThreads, 0, stream>>>(a); break;
    case 256: decodeKernel<T, 32><<<grid, kDecodeThreads, 0, stream>>>(a); break;
    default: break;
  }
}

// —— linear_logprob's rows: one block each; maximum and sums in one pass (online softmax), the gradient in another ————————
constexpr int kRowThreads = 1024;

struct Running {
  float peak, sum, weighted;  // Σ e^(z − peak) and Σ e^(z − peak)·(z − peak)
};

__device__ Running join(const Running& a, const Running& b) {
  const float peak = fmaxf(a.peak, b.peak);
  if (peak == -INFINITY) return a;
  const float fadeA = __expf(a.peak - peak), fadeB = __expf(b.peak - peak);
  const float shiftA = a.sum > 0 ? a.peak - peak : 0, shiftB = b.sum > 0 ? b.peak - peak : 0;
  return {peak, a.sum * fadeA + b.sum * fadeB, fadeA * (a.weighted + a.sum * shiftA) + fadeB * (b.weighted + b.sum * shiftB)};
}

__global__ void __launch_bounds__(kRowThreads) rowStatisticsKernel(RowsArgs a) {
  __shared__ Running shared[kRowThreads / 32];
  const float* z = a.logits + static_cast<int64_t>(blockIdx.x) * a.size;
  Running own{-INFINITY, 0, 0};
  for (int64_t i = threadIdx.x; i < a.size; i += kRowThreads) {
    const float x = z[i] * a.inverse;
    if (x > own.peak) {
      const float distance = own.sum > 0 ? own.peak - x : 0, fade = __expf(distance);
      own = {x, own.sum * fade + 1.0f, fade * (own.weighted + own.sum * distance)};
    } else {
      const float distance = x - own.peak, w = __expf(distance);
      own.sum += w;
      own.weighted += w * distance;
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const Running other{__shfl_xor_sync(0xFFFFFFFF, own.peak, offset), __shfl_xor_sync(0xFFFFFFFF, own.sum, offset),
                        __shfl_xor_sync(0xFFFFFFFF, own.weighted, offset)};
    own = join(own, other);
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  if (threadIdx.x > 0) return;
  Running all = shared[0];
  for (int i = 1; i < kRowThreads / 32; i++) all = join(all, shared[i]);
  const int64_t row = blockIdx.x, target = a.targets[row];
  const float logSum = logf(all.sum);
  a.lse[row] = all.peak + logSum;
  a.entropy[row] = logSum - all.weighted / all.sum;
  // a target beyond the vocabulary cannot stop a kernel: it is not read, and shows as NaN
  a.logp[row] = target < 0 ? 0.0f : target >= a.size ? NAN : z[target] * a.inverse - all.peak - logSum;
}

template <typename T>
__global__ void rowGradientKernel(RowsArgs a) {
  const int64_t row = blockIdx.x, target = a.targets[row];
  const float* z = a.logits + row * a.size;
  T* out = static_cast<T*>(a.gradient) + row * a.size;
  const float g = target >= 0 && a.forLogp != nullptr ? a.forLogp[row] : 0.0f, h = a.forEntropy == nullptr ? 0.0f : a.forEntropy[row];
  const float lse = a.lse[row], rest = a.entropy[row];
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    const float logProbability = z[i] * a.inverse - lse;
    const float value = -__expf(logProbability) * (g + h * (logProbability + rest)) + (i + a.first == target ? g : 0.0f);
    out[i] = narrow<T>(value * a.inverse);
  }
}

unsigned blocksFor(int64_t count) { return static_cast<unsigned>((count + 255) / 256); }

}  // namespace

#define ATTUNE_BY_KIND(kind, CALL)                     \
  switch (kind) {                                      \
    case Kind::Float32: { using T = float; CALL; } break;        \
    case Kind::Float16: { using T = __half; CALL; } break;       \
    case Kind::BFloat16: { using T = __nv_bfloat16; CALL; } break; \
  }

void launchRope(Kind kind, const RopeArgs& args, cudaStream_t stream) {
  const int64_t count = args.rows * args.heads * (args.size - args.half);
  if (count > 0) ATTUNE_BY_KIND(kind, (ropeKernel<T><<<blocksFor(count), 256, 0, stream>>>(args)))
}

void launchSwiglu(Kind kind, const void* x, void* y, int64_t rows, int64_t size, cudaStream_t stream) {
  if (rows * size > 0)
    ATTUNE_BY_KIND(kind, (swigluKernel<T><<<blocksFor(rows * size), 256, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), rows, size)))
}

void launchSwigluBackward(Kind kind, const void* x, const void* gradient, void* dx, int64_t rows, int64_t size, cudaStream_t stream) {
  if (rows * size > 0)
    ATTUNE_BY_KIND(kind, (swigluBackwardKernel<T><<<blocksFor(rows * size), 256, 0, stream>>>(
                             static_cast<const T*>(x), static_cast<const T*>(gradient), static_cast<T*>(dx), rows, size)))
}

void launchRowStatistics(const RowsArgs& args, cudaStream_t stream) {
  if (args.rows > 0) rowStatisticsKernel<<<static_cast<unsigned>(args.rows), kRowThreads, 0, stream>>>(args);
}

void launchRowGradient(Kind kind, const RowsArgs& args, cudaStream_t stream) {
  if (args.rows > 0) ATTUNE_BY_KIND(kind, (rowGradientKernel<T><<<static_cast<unsigned>(args.rows), 512, 0, stream>>>(args)))
}

void launchQkv(Kind kind, const QkvArgs& args, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(args.rows), static_cast<unsigned>(args.heads + 2 * args.groups));
  const unsigned threads = static_cast<unsigned>((args.size + 31) / 32 * 32);
  const size_t shared = (args.size + threads / 32) * sizeof(float);
  if (args.rows > 0) ATTUNE_BY_KIND(kind, (qkvKernel<T><<<grid, threads, shared, stream>>>(args)))
}

bool decodeFits(int64_t size) {
  for (int64_t known : {32, 48, 64, 80, 96, 128, 256})
    if (size == known) return true;
  return false;
}

void launchDecode(Kind kind, const DecodeArgs& args, cudaStream_t stream) {
  if (args.rows > 0) ATTUNE_BY_KIND(kind, (decodeOf<T>(args, stream)))
}

}  // namespace attune
