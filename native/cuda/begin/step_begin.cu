// The beginning of a decoding step: gathers the embedding's rows for the last tokens. If steps follow one another in a graph, this kernel
// begins while the last step's tokens are still being drawn. Memory is idle then, so it prefetches the first products' weights into the L2
// cache.
#include "cuda/numbers.cuh"
#include "cuda/begin/step_begin.h"

namespace attune {
namespace {

constexpr int kThreads = 128, kPiece = 2048;

/** Brings memory into the L2 cache; nothing on chips before Hopper. */
__device__ void fetch([[maybe_unused]] const char* from, [[maybe_unused]] unsigned bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

/** A block's share of what comes ahead, until the kernel before is done: then the products ask for it themselves. */
__device__ void fetchAhead(const StepBegin& a, int64_t block, int64_t blocks) {
  __shared__ volatile bool isDone;
  letNextBegin();
  if (threadIdx.x == 0) isDone = false;
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp == 0) {
    waitForPrevious();
    if (lane == 0) isDone = true;
  }
  if (warp != 1) return;
#pragma unroll
  for (int i = 0; i < StepBegin::kMost; i++)
    for (int64_t at = (block * 32 + lane) * kPiece; at < a.aheadBytes[i] && !isDone; at += blocks * 32 * kPiece)
      fetch(static_cast<const char*>(a.ahead[i]) + at, static_cast<unsigned>(min(a.aheadBytes[i] - at, static_cast<int64_t>(kPiece))));
}

__global__ void __launch_bounds__(kThreads) beginKernel(StepBegin a) {
  const int64_t block = blockIdx.x, rows = a.rows.rows;
  if (block >= rows) {
    fetchAhead(a, block - rows, gridDim.x - rows);
    return;
  }
  waitForPrevious();
  letNextBegin();
  const int64_t pieces = a.rows.bytes / 16;
  const uint4* const from = static_cast<const uint4*>(a.rows.table) + a.rows.ids[block] * pieces;
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) static_cast<uint4*>(a.rows.out)[block * pieces + i] = from[i];
  if (block == 0)
    for (int64_t i = threadIdx.x; i < a.clearedBytes / 16; i += kThreads) static_cast<uint4*>(a.cleared)[i] = uint4{};
}

}  // namespace

void launchGather(const GatherArgs& rows, cudaStream_t stream) {
  StepBegin args{};
  args.rows = rows;
  launchStepBegin(args, stream);
}

void launchStepBegin(const StepBegin& given, cudaStream_t stream) {
  if (given.rows.rows == 0) return;
  StepBegin args = given;
  // One row of 0.6B, 512 tokens: 223 to 224 ms without, 220 to 221 with 25 or 31 MB.
  int64_t room = attributeOfDevice(cudaDevAttrL2CacheSize) / 2;
  for (int64_t& bytes : args.aheadBytes) {
    bytes = bytes < room ? bytes : room / 16 * 16;
    room -= bytes;
  }
  const int64_t fetching = args.aheadBytes[0] > 0 ? multiprocessorsOfDevice() : 0;
  launchInRow(beginKernel, dim3(static_cast<unsigned>(args.rows.rows + fetching)), kThreads, 1, stream, args);
}

}  // namespace attune
