// The rows of a table at some ids: the embedding at the beginning of a decoding step.
#include "cuda/numbers.cuh"
#include "cuda/solo/kernels.h"

namespace attune {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    gatherKernel(const uint4* table, const int64_t* ids, uint4* out, int64_t pieces, uint4* cleared, int64_t clearedPieces) {
  waitForPrevious();
  letNextBegin();
  const uint4* from = table + ids[blockIdx.x] * pieces;
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) out[blockIdx.x * pieces + i] = from[i];
  if (blockIdx.x == 0)
    for (int64_t i = threadIdx.x; i < clearedPieces; i += kThreads) cleared[i] = uint4{};
}

}  // namespace

void launchGather(const GatherArgs& args, cudaStream_t stream) { launchGatherAndClear(args, nullptr, 0, stream); }

void launchGatherAndClear(const GatherArgs& args, void* cleared, int64_t bytes, cudaStream_t stream) {
  if (args.rows == 0) return;
  launchInRow(gatherKernel, dim3(static_cast<unsigned>(args.rows)), kThreads, 1, stream, static_cast<const uint4*>(args.table), args.ids,
              static_cast<uint4*>(args.out), args.bytes / 16, static_cast<uint4*>(cleared), bytes / 16);
}

}  // namespace attune
