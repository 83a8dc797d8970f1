// CUDA versions of rope, swiglu and linear_logprob's rows; the formulas are in native/ops. Decoding has its own files: attention.cu,
// product.cu and sample.cu.
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
  // a kernel cannot throw: a target beyond the vocabulary gives NaN
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

void launchRope(Kind kind, const RopeArgs& args, cudaStream_t stream) {
  const int64_t count = args.rows * args.heads * (args.size - args.half);
  if (count > 0) ATTUNE_BY_KIND(kind, (ropeKernel<T><<<blocksFor(count), 256, 0, stream>>>(args)))
}

void launchSwiglu(Kind kind, const void* x, void* y, int64_t rows, int64_t size, cudaStream_t stream) {
  if (rows * size > 0)
    ATTUNE_BY_KIND(kind,
                   (swigluKernel<T><<<blocksFor(rows * size), 256, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), rows, size)))
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

}  // namespace attune
