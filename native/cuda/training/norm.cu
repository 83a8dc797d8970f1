// RMS norm of rows, forward and backward, each in one pass over the memory. A row is held in the registers of `blockDim.x` threads, in four
// pieces of 16 bytes each; a block handles `blockDim.y` rows at a time.
#include "cuda/training/columns.cuh"
#include "cuda/training/kernels.h"

namespace attune {
namespace {

constexpr int kHeld = 4;  // pieces per thread
constexpr int kRowThreads = 256;  // threads of a block, unless a single row needs more

/** Both sums over the threads of a row; every thread of the block takes part. */
__device__ float2 sumOverRow(float2 own, float2 (*shared)[32]) {
  for (int offset = 16; offset > 0; offset /= 2) {
    own.x += __shfl_xor_sync(0xFFFFFFFF, own.x, offset);
    own.y += __shfl_xor_sync(0xFFFFFFFF, own.y, offset);
  }
  if (blockDim.x == 32) return own;
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.y][threadIdx.x / 32] = own;
  __syncthreads();
  float2 sum{0, 0};
  for (int i = 0; i < static_cast<int>(blockDim.x) / 32; i++) {
    sum.x += shared[threadIdx.y][i].x;
    sum.y += shared[threadIdx.y][i].y;
  }
  return sum;
}

template <typename T, int V>
__global__ void normKernel(NormArgs a) {
  __shared__ float2 shared[8][32];
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const int pieces = row < a.rows ? static_cast<int>(a.size / V) : 0;
  const T *x = static_cast<const T*>(a.x) + row * a.size, *added = static_cast<const T*>(a.added) + row * a.size;
  Run<T, V> held[kHeld], other[kHeld], weight[kHeld];
  waitForPrevious();
  letNextBegin();
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = threadIdx.x + i * blockDim.x;
    held[i].clear();
    other[i].clear();
    if (piece >= pieces) continue;
    held[i].load(x + piece * V);
    weight[i].load(static_cast<const T*>(a.weight) + piece * V);
    if (a.added != nullptr) other[i].load(added + piece * V);
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
#pragma unroll
    for (int j = 0; j < V; j++) {
      if (a.added != nullptr) held[i].set(j, held[i][j] + other[i][j]);
      squares += held[i][j] * held[i][j];
    }
    const int piece = threadIdx.x + i * blockDim.x;
    if (a.added != nullptr && piece < pieces) held[i].store(static_cast<T*>(a.sum) + row * a.size + piece * V);
  }
  const float scale = rsqrtf(sumOverRow({squares, 0}, shared).x / static_cast<float>(a.size) + a.eps);
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int piece = threadIdx.x + i * blockDim.x;
    if (piece >= pieces) continue;
    Run<T, V> y;
#pragma unroll
    for (int j = 0; j < V; j++) y.set(j, wide(narrow<T>(held[i][j] * scale)) * weight[i][j]);
    y.store(static_cast<T*>(a.y) + row * a.size + piece * V);
  }
}

// With n = x·s: dx = s·(g·w − n·mean(g·w·n)), dw = Σ g·n
template <typename T, int V>
__global__ void __launch_bounds__(1024 / kHeld) normBackwardKernel(NormBackwardArgs a) {
  extern __shared__ float columns[];
  __shared__ float2 shared[8][32];
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.y;
  const float inverse = 1.0f / static_cast<float>(a.size);
  float sums[kHeld][V] = {};
  // As many turns for every thread of the block: they meet in sumOverRow.
  for (int64_t base = static_cast<int64_t>(blockIdx.x) * blockDim.y; base < a.rows; base += step) {
    const int64_t row = base + threadIdx.y;
    const int pieces = row < a.rows ? static_cast<int>(a.size / V) : 0;
    Run<T, V> x[kHeld], gradient[kHeld], past[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int piece = threadIdx.x + i * blockDim.x;
      x[i].clear();
      gradient[i].clear();
      past[i].clear();
      if (piece >= pieces) continue;
      const int64_t at = row * a.size + piece * V;
      x[i].load(static_cast<const T*>(a.x) + at);
      gradient[i].load(static_cast<const T*>(a.gradient) + at);
      if (a.past != nullptr) past[i].load(static_cast<const T*>(a.past) + at);
    }
    float2 own{0, 0};  // Σ x² and Σ g·w·x
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int piece = threadIdx.x + i * blockDim.x;
      if (piece >= pieces) continue;
      Run<T, V> weight;
      weight.load(static_cast<const T*>(a.weight) + piece * V);
#pragma unroll
      for (int j = 0; j < V; j++) {
        own.x += x[i][j] * x[i][j];
        own.y += gradient[i][j] * weight[j] * x[i][j];
      }
    }
    const float2 sum = sumOverRow(own, shared);
    const float scale = rsqrtf(sum.x * inverse + a.eps), mean = sum.y * scale * scale * inverse;
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int piece = threadIdx.x + i * blockDim.x;
      if (piece >= pieces) continue;
      Run<T, V> weight, dx;
      weight.load(static_cast<const T*>(a.weight) + piece * V);
#pragma unroll
      for (int j = 0; j < V; j++) {
        dx.set(j, scale * (gradient[i][j] * weight[j] - x[i][j] * mean) + past[i][j]);
        sums[i][j] += gradient[i][j] * x[i][j] * scale;
      }
      dx.store(static_cast<T*>(a.dx) + row * a.size + piece * V);
    }
  }
  if (a.partial == nullptr) return;
  float* out = a.partial + blockIdx.x * a.size;
  float* into = blockDim.y == 1 ? out : columns;
  for (int turn = 0; turn < static_cast<int>(blockDim.y); turn++) {
    if (static_cast<int>(threadIdx.y) == turn) {
#pragma unroll
      for (int i = 0; i < kHeld; i++) {
        const int piece = threadIdx.x + i * blockDim.x;
        if (piece >= static_cast<int>(a.size / V)) continue;
#pragma unroll
        for (int j = 0; j < V; j++) into[piece * V + j] = turn == 0 ? sums[i][j] : into[piece * V + j] + sums[i][j];
      }
    }
    __syncthreads();
  }
  if (blockDim.y == 1) return;
  for (int64_t i = threadIdx.y * blockDim.x + threadIdx.x; i < a.size; i += blockDim.x * blockDim.y) out[i] = columns[i];
}

int64_t bytesOf(Kind kind) { return kind == Kind::Float32 ? 4 : 2; }
/** Numbers per piece: 16 bytes of them, or one where rows do not begin at multiples of 16 bytes. */
int64_t pieceOf(Kind kind, int64_t size) { return size % (16 / bytesOf(kind)) == 0 ? 16 / bytesOf(kind) : 1; }
/** Threads of one row. */
int64_t threadsOf(Kind kind, int64_t size) { return (size / pieceOf(kind, size) + 32 * kHeld - 1) / (32 * kHeld) * 32; }
dim3 blockOf(Kind kind, int64_t size) {
  const unsigned threads = static_cast<unsigned>(threadsOf(kind, size));
  return dim3(threads, threads < kRowThreads ? kRowThreads / threads : 1);
}

}  // namespace

bool normFits(Kind kind, int64_t size) { return size > 0 && threadsOf(kind, size) <= 1024 / kHeld; }

void launchNorm(Kind kind, const NormArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  const dim3 block = blockOf(kind, args.size);
  const auto grid = static_cast<unsigned>((args.rows + block.y - 1) / block.y);
  if (pieceOf(kind, args.size) == 1) {
    ATTUNE_BY_KIND(kind, (launchInRow(normKernel<T, 1>, grid, block, 1, stream, args)))
  } else {
    ATTUNE_BY_KIND(kind, (launchInRow(normKernel<T, 16 / sizeof(T)>, grid, block, 1, stream, args)))
  }
}

int64_t normBackwardBlocks(Kind kind, int64_t rows, int64_t size) {
  const int64_t turns = (rows + blockOf(kind, size).y - 1) / blockOf(kind, size).y, most = 2 * multiprocessorsOfDevice();
  return turns < most ? turns : most;
}

void launchNormBackward(Kind kind, const NormBackwardArgs& args, cudaStream_t stream) {
  const dim3 block = blockOf(kind, args.size);
  const int64_t blocks = normBackwardBlocks(kind, args.rows, args.size);
  const unsigned grid = static_cast<unsigned>(blocks), shared = block.y == 1 ? 0 : static_cast<unsigned>(args.size * sizeof(float));
  if (blocks > 0) {
    if (pieceOf(kind, args.size) == 1) {
      ATTUNE_BY_KIND(kind, (normBackwardKernel<T, 1><<<grid, block, shared, stream>>>(args)))
    } else {
      ATTUNE_BY_KIND(kind, (normBackwardKernel<T, 16 / sizeof(T)><<<grid, block, shared, stream>>>(args)))
    }
  }
  if (args.dWeight != nullptr)
    ATTUNE_BY_KIND(kind, (addColumns<T>(args.partial, blocks, args.size, static_cast<T*>(args.dWeight), nullptr, stream)))
}

}  // namespace attune
