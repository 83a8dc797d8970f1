// AdamW over many tensors in one launch, and the sum of their gradients' squares. The launch's arguments list the tensors; a block finds
// its own from the number of each tensor's first block. An element's result depends only on its own values.
#include "cuda/numbers.cuh"
#include "cuda/training/kernels.h"

namespace attune {
namespace {

constexpr int kThreads = 256, kRun = 4, kTurns = 4;
constexpr int64_t kPerBlock = kThreads * kRun * kTurns, kSummedPerBlock = 4 * kPerBlock;
constexpr int kJoining = 1024;  // threads that add up the blocks' sums
// A launch's arguments have 4 KiB in all.
constexpr int kMostUpdated = 72, kMostSummed = 160;

int64_t blocksOf(int64_t size) { return (size + kPerBlock - 1) / kPerBlock; }
int64_t summingBlocksOf(int64_t size) { return (size + kSummedPerBlock - 1) / kSummedPerBlock; }
bool isAligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

struct Updated {
  UpdatedTensor tensors[kMostUpdated];
  unsigned firstBlock[kMostUpdated + 1];
  unsigned char aligned[kMostUpdated];
  int count;
  UpdateRule rule;
};
static_assert(sizeof(Updated) <= 4096, "more than a launch's arguments hold");

struct Summed {
  SummedTensor tensors[kMostSummed];
  unsigned firstBlock[kMostSummed + 1];
  int count;
};
static_assert(sizeof(Summed) <= 4000, "more than a launch's arguments hold");

/** The tensor whose blocks this one is among. */
template <typename List>
__device__ int tensorOf(const List& list, unsigned block) {
  int low = 0, high = list.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (list.firstBlock[middle] <= block)
      low = middle;
    else
      high = middle;
  }
  return low;
}

struct Element {
  float master, average, square;
};

/** As updateBlock in ops/training/adamw.cc. Every rounding is written out: the compiler may not fuse them in one place and not in another. */
__device__ inline Element updated(const Element& old, float given, float scale, const UpdateRule& u) {
  const float gradient = __fmul_rn(given, scale);
  const float average = __fmaf_rn(gradient, u.fresh1, __fmul_rn(old.average, u.beta1));
  const float square = __fmaf_rn(__fmul_rn(gradient, gradient), u.fresh2, __fmul_rn(old.square, u.beta2));
  const float length = __fmaf_rn(__fsqrt_rn(square), u.correction2, u.eps);
  return {__fmaf_rn(old.master, u.shrink, -__fdiv_rn(__fmul_rn(u.rate, average), length)), average, square};
}

template <typename G, typename P, int V>
__device__ void updateRuns(const UpdatedTensor& t, int64_t begin, float scale, const UpdateRule& rule) {
  constexpr int kSteps = static_cast<int>(kPerBlock / (kThreads * V)), kAtOnce = V == 1 ? 1 : 2;
  const int64_t end = begin + kPerBlock < t.size ? begin + kPerBlock : t.size;
#pragma unroll 1
  for (int step = 0; step < kSteps; step += kAtOnce) {
    Run<float, V> master[kAtOnce], average[kAtOnce], square[kAtOnce];
    Run<G, V> gradient[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int64_t at = begin + (static_cast<int64_t>(step + i) * kThreads + threadIdx.x) * V;
      if (at + V > end) continue;
      master[i].load(t.master + at);
      average[i].load(t.average + at);
      square[i].load(t.square + at);
      gradient[i].load(static_cast<const G*>(t.gradient) + at);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; i++) {
      const int64_t at = begin + (static_cast<int64_t>(step + i) * kThreads + threadIdx.x) * V;
      if (at + V > end) continue;
      Run<P, V> parameter;
#pragma unroll
      for (int j = 0; j < V; j++) {
        const Element now = updated({master[i][j], average[i][j], square[i][j]}, gradient[i][j], scale, rule);
        master[i].set(j, now.master);
        average[i].set(j, now.average);
        square[i].set(j, now.square);
        parameter.set(j, now.master);
      }
      master[i].store(t.master + at);
      average[i].store(t.average + at);
      square[i].store(t.square + at);
      if (t.parameter != nullptr) parameter.store(static_cast<P*>(t.parameter) + at);
    }
  }
}

template <typename G, typename P>
__global__ void __launch_bounds__(kThreads) updateKernel(const __grid_constant__ Updated all) {
  const float scale = all.rule.factor == nullptr ? 1.0f : *all.rule.factor;
  if (isnan(scale)) return;
  const int which = tensorOf(all, blockIdx.x);
  const UpdatedTensor& t = all.tensors[which];
  const int64_t begin = static_cast<int64_t>(blockIdx.x - all.firstBlock[which]) * kPerBlock;
  // the last block of a tensor may end within a run
  if (all.aligned[which] && (begin + kPerBlock <= t.size || t.size % kRun == 0))
    updateRuns<G, P, kRun>(t, begin, scale, all.rule);
  else
    updateRuns<G, P, 1>(t, begin, scale, all.rule);
}

/** The sum over the block, in thread 0. */
template <int THREADS, typename N>
__device__ N sumOverBlock(N own) {
  __shared__ N shared[THREADS / 32];
  for (int offset = 16; offset > 0; offset /= 2) own += __shfl_xor_sync(0xFFFFFFFF, own, offset);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = own;
  __syncthreads();
  N sum = 0;
  if (threadIdx.x == 0)
    for (int i = 0; i < THREADS / 32; i++) sum += shared[i];
  return sum;
}

template <typename T, int V>
__device__ float squaresOfBlock(const T* values, int64_t begin, int64_t end) {
  float sum = 0;
#pragma unroll 4
  for (int64_t at = begin + threadIdx.x * V; at + V <= end; at += kThreads * V) {
    Run<T, V> run;
    run.load(values + at);
#pragma unroll
    for (int j = 0; j < V; j++) sum += run[j] * run[j];
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) squaresKernel(const __grid_constant__ Summed all, float* partial) {
  const int which = tensorOf(all, blockIdx.x);
  const SummedTensor& t = all.tensors[which];
  const int64_t begin = static_cast<int64_t>(blockIdx.x - all.firstBlock[which]) * kSummedPerBlock;
  const int64_t end = begin + kSummedPerBlock < t.size ? begin + kSummedPerBlock : t.size;
  const T* values = static_cast<const T*>(t.values);
  constexpr int kWide = 16 / sizeof(T);
  const bool isWide = (end - begin) % kWide == 0 && reinterpret_cast<uintptr_t>(values) % 16 == 0;
  const float sum = sumOverBlock<kThreads>(isWide ? squaresOfBlock<T, kWide>(values, begin, end) : squaresOfBlock<T, 1>(values, begin, end));
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kJoining) addPartialsKernel(const float* partial, int64_t count, double* sum) {
  double own = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < count; i += kJoining) own += partial[i];
  own = sumOverBlock<kJoining>(own);
  if (threadIdx.x == 0) *sum = own;
}

template <typename G>
void launchUpdateOf(Kind parameter, const Updated& all, unsigned grid, cudaStream_t stream) {
  ATTUNE_BY_KIND(parameter, (updateKernel<G, T><<<grid, kThreads, 0, stream>>>(all)))
}

}  // namespace

void launchUpdate(Kind gradient, Kind parameter, const UpdatedTensor* tensors, int64_t count, const UpdateRule& rule, cudaStream_t stream) {
  Updated all;
  all.rule = rule;
  all.count = 0;
  unsigned blocks = 0;
  const auto send = [&] {
    all.firstBlock[all.count] = blocks;
    if (blocks > 0) ATTUNE_BY_KIND(gradient, (launchUpdateOf<T>(parameter, all, blocks, stream)))
    all.count = 0;
    blocks = 0;
  };
  for (int64_t i = 0; i < count; i++) {
    const UpdatedTensor& t = tensors[i];
    if (t.size == 0) continue;
    // a launch has fewer than 2³¹ blocks
    if (all.count == kMostUpdated || blocks + blocksOf(t.size) > 0x7FFFFFFF) send();
    all.tensors[all.count] = t;
    all.firstBlock[all.count] = blocks;
    all.aligned[all.count] = isAligned(t.master) && isAligned(t.average) && isAligned(t.square) && isAligned(t.gradient) &&
                             (t.parameter == nullptr || isAligned(t.parameter));
    all.count++;
    blocks += static_cast<unsigned>(blocksOf(t.size));
  }
  send();
}

int64_t squaresBlocks(const SummedTensor* tensors, int64_t count) {
  int64_t blocks = 0;
  for (int64_t i = 0; i < count; i++) blocks += summingBlocksOf(tensors[i].size);
  return blocks;
}

void launchSquares(Kind kind, const SummedTensor* tensors, int64_t count, float* partial, double* sum, cudaStream_t stream) {
  Summed all;
  all.count = 0;
  unsigned blocks = 0;
  int64_t written = 0;
  const auto send = [&] {
    all.firstBlock[all.count] = blocks;
    if (blocks > 0) ATTUNE_BY_KIND(kind, (squaresKernel<T><<<blocks, kThreads, 0, stream>>>(all, partial + written)))
    written += blocks;
    all.count = 0;
    blocks = 0;
  };
  for (int64_t i = 0; i < count; i++) {
    if (tensors[i].size == 0) continue;
    if (all.count == kMostSummed || blocks + summingBlocksOf(tensors[i].size) > 0x7FFFFFFF) send();
    all.tensors[all.count] = tensors[i];
    all.firstBlock[all.count] = blocks;
    all.count++;
    blocks += static_cast<unsigned>(summingBlocksOf(tensors[i].size));
  }
  send();
  addPartialsKernel<<<1, kJoining, 0, stream>>>(partial, written, sum);
}

}  // namespace attune
