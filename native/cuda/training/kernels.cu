// CUDA versions of rope, swiglu and linear_logprob's rows; the formulas are in native/ops. Decoding has its own files: attention/,
// product.cu and sampling/.
#include "cuda/numbers.cuh"

namespace attune {
namespace {

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

// —— swiglu: a block has a row or, where rows are few, a part of one; V numbers at a time ——————————————————————————————
constexpr int kSwigluThreads = 128, kBlocksOfProcessor = 16;

template <typename T, int V>
__global__ void __launch_bounds__(kSwigluThreads) swigluKernel(const T* x, T* y, int64_t size) {
  const T* gates = x + blockIdx.x * 2 * size;
  T* out = y + blockIdx.x * size;
  waitForPrevious();
  letNextBegin();
  const int64_t step = static_cast<int64_t>(gridDim.y) * kSwigluThreads * V;
  for (int64_t i = (static_cast<int64_t>(blockIdx.y) * kSwigluThreads + threadIdx.x) * V; i < size; i += step) {
    Run<T, V> gate, up, product;
    gate.load(gates + i);
    up.load(gates + size + i);
#pragma unroll
    for (int j = 0; j < V; j++) product.set(j, gate[j] / (1.0f + __expf(-gate[j])) * up[j]);
    product.store(out + i);
  }
}

template <typename T, int V>
__global__ void __launch_bounds__(kSwigluThreads) swigluBackwardKernel(const T* x, const T* gradient, T* dx, int64_t size) {
  const T *gates = x + blockIdx.x * 2 * size, *incoming = gradient + blockIdx.x * size;
  T* out = dx + blockIdx.x * 2 * size;
  for (int64_t i = threadIdx.x * V; i < size; i += kSwigluThreads * V) {
    Run<T, V> gate, up, d, dGate, dUp;
    gate.load(gates + i);
    up.load(gates + size + i);
    d.load(incoming + i);
#pragma unroll
    for (int j = 0; j < V; j++) {
      const float g = gate[j], sigmoid = 1.0f / (1.0f + __expf(-g));
      dUp.set(j, d[j] * g * sigmoid);
      dGate.set(j, d[j] * up[j] * sigmoid * (1.0f + g * (1.0f - sigmoid)));
    }
    dGate.store(out + i);
    dUp.store(out + size + i);
  }
}

// —— linear_logprob's rows: one block each; maximum and sums in one pass (online softmax), the gradient in another ————————
constexpr int kRowThreads = 512;

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

/** V logits of a row at a time, and four such loads at once. */
template <int V>
__global__ void __launch_bounds__(kRowThreads) rowStatisticsKernel(RowsArgs a) {
  constexpr int kAtOnce = 4;
  __shared__ Running shared[kRowThreads / 32];
  const float* z = a.logits + static_cast<int64_t>(blockIdx.x) * a.size;
  Running own{-INFINITY, 0, 0};
  for (int64_t start = threadIdx.x * V; start < a.size; start += kAtOnce * kRowThreads * V) {
    Run<float, V> runs[kAtOnce];
    float values[kAtOnce][V], peak = -INFINITY;
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
      if (start + i * kRowThreads * V < a.size) runs[i].load(z + start + i * kRowThreads * V);
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
#pragma unroll
      for (int j = 0; j < V; j++) {
        values[i][j] = start + i * kRowThreads * V < a.size ? runs[i][j] * a.inverse : -INFINITY;
        peak = fmaxf(peak, values[i][j]);
      }
    if (peak > own.peak) {
      const float distance = own.sum > 0 ? own.peak - peak : 0, fade = __expf(distance);
      own = {peak, own.sum * fade, fade * (own.weighted + own.sum * distance)};
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; i++)
#pragma unroll
      for (int j = 0; j < V; j++) {
        const float distance = values[i][j] - own.peak, w = __expf(distance);
        own.sum += w;
        own.weighted += w == 0 ? 0.0f : w * distance;  // 0·∞ is no number
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
  // a kernel cannot throw: a target beyond the vocabulary gives NaN
  a.logp[row] = target < 0 ? 0.0f : target >= a.size ? NAN : z[target] * a.inverse - all.peak - logSum;
}

template <typename T, int V>
__global__ void rowGradientKernel(RowsArgs a) {
  const int64_t row = blockIdx.x, target = a.targets[row];
  const float* z = a.logits + row * a.size;
  T* out = static_cast<T*>(a.gradient) + row * a.size;
  const float g = target >= 0 && a.forLogp != nullptr ? a.forLogp[row] : 0.0f, h = a.forEntropy == nullptr ? 0.0f : a.forEntropy[row];
  const float lse = a.lse[row], rest = a.entropy[row];
  for (int64_t i = threadIdx.x * V; i < a.size; i += blockDim.x * V) {
    Run<float, V> logits;
    Run<T, V> gradient;
    logits.load(z + i);
#pragma unroll
    for (int j = 0; j < V; j++) {
      const float logProbability = logits[j] * a.inverse - lse;
      const float value = -__expf(logProbability) * (g + h * (logProbability + rest)) + (i + j + a.first == target ? g : 0.0f);
      gradient.set(j, value * a.inverse);
    }
    gradient.store(out + i);
  }
}

bool isAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }
unsigned blocksFor(int64_t count) { return static_cast<unsigned>((count + 255) / 256); }

}  // namespace

void launchRope(Kind kind, const RopeArgs& args, cudaStream_t stream) {
  const int64_t count = args.rows * args.heads * (args.size - args.half);
  if (count > 0) ATTUNE_BY_KIND(kind, (ropeKernel<T><<<blocksFor(count), 256, 0, stream>>>(args)))
}

/** Calls with V numbers at a time where rows of `size` and all pointers allow loads of 16 bytes, else with one. */
#define ATTUNE_BY_RUN(kind, size, isAligned, ...)             \
  if ((isAligned) && (size) % 8 == 0) {                       \
    ATTUNE_BY_KIND(kind, constexpr int V = 16 / sizeof(T); __VA_ARGS__) \
  } else {                                                    \
    ATTUNE_BY_KIND(kind, constexpr int V = 1; __VA_ARGS__)    \
  }

void launchSwiglu(Kind kind, const void* x, void* y, int64_t rows, int64_t size, cudaStream_t stream) {
  if (rows * size == 0) return;
  // Parts of rows in a decoding step: one after another, their loads would take longer than all of it.
  const int64_t wanted = kBlocksOfProcessor * multiprocessorsOfDevice() / rows, passes = (size + 8 * kSwigluThreads - 1) / (8 * kSwigluThreads);
  const int64_t parts = wanted < 1 ? 1 : wanted < passes ? wanted : passes;
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(parts));
  ATTUNE_BY_RUN(kind, size, isAligned(x) && isAligned(y),
                (launchInRow(swigluKernel<T, V>, grid, kSwigluThreads, 1, stream, static_cast<const T*>(x), static_cast<T*>(y), size)))
}

void launchSwigluBackward(Kind kind, const void* x, const void* gradient, void* dx, int64_t rows, int64_t size, cudaStream_t stream) {
  if (rows * size == 0) return;
  const unsigned grid = static_cast<unsigned>(rows);
  ATTUNE_BY_RUN(kind, size, isAligned(x) && isAligned(gradient) && isAligned(dx),
                (swigluBackwardKernel<T, V><<<grid, kSwigluThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(gradient),
                                                                                 static_cast<T*>(dx), size)))
}

void launchRowStatistics(const RowsArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  const unsigned grid = static_cast<unsigned>(args.rows);
  if (args.size % 4 == 0 && isAligned(args.logits))
    rowStatisticsKernel<4><<<grid, kRowThreads, 0, stream>>>(args);
  else
    rowStatisticsKernel<1><<<grid, kRowThreads, 0, stream>>>(args);
}

void launchRowGradient(Kind kind, const RowsArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  const unsigned grid = static_cast<unsigned>(args.rows);
  if (args.size % 4 == 0 && isAligned(args.logits) && isAligned(args.gradient)) {
    ATTUNE_BY_KIND(kind, (rowGradientKernel<T, 4><<<grid, 512, 0, stream>>>(args)))
  } else {
    ATTUNE_BY_KIND(kind, (rowGradientKernel<T, 1><<<grid, 512, 0, stream>>>(args)))
  }
}

}  // namespace attune
