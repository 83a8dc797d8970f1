// The parts of a fused projection's LoRA as two matrices in the model's dtype, in one launch: the A stacked [R, K], and the B, times their
// scales, as blocks of a matrix [M, R] that is zero elsewhere.
#include "cuda/numbers.cuh"
#include "cuda/training/kernels.h"

namespace attune {
namespace {

constexpr int kThreads = 256, kPerThread = 4;

template <typename T, typename P>
__global__ void __launch_bounds__(kThreads) joinKernel(const __grid_constant__ JoinArgs a) {
  const int64_t downs = a.ranks * a.inputs, all = downs + a.outputs * a.ranks;
#pragma unroll
  for (int turn = 0; turn < kPerThread; turn++) {
    const int64_t i = (static_cast<int64_t>(blockIdx.x) * kPerThread + turn) * kThreads + threadIdx.x;
    if (i >= all) return;
    const bool isDown = i < downs;
    const int64_t rank = isDown ? i / a.inputs : (i - downs) % a.ranks;
    int which = 0;
    while (which + 1 < a.count && rank >= a.parts[which + 1].firstRank) which++;
    const JoinPart& part = a.parts[which];
    const int64_t own = rank - part.firstRank;
    if (isDown) {
      static_cast<T*>(a.down)[i] = narrow<T>(wide(static_cast<const P*>(part.down)[own * a.inputs + i % a.inputs]));
      continue;
    }
    const int64_t row = (i - downs) / a.ranks - part.start;
    // the product is rounded to the parts' numbers before it becomes the model's, as an operator of its own would
    static_cast<T*>(a.up)[i - downs] =
        row < 0 || row >= part.rows ? narrow<T>(0.0f)
                                    : narrow<T>(wide(narrow<P>(wide(static_cast<const P*>(part.up)[row * part.ranks + own]) * part.scale)));
  }
}

template <typename T>
void launchOf(Kind parts, const JoinArgs& args, cudaStream_t stream) {
  const int64_t all = args.ranks * (args.inputs + args.outputs);
  if (all == 0) return;
  const unsigned grid = static_cast<unsigned>((all + kThreads * kPerThread - 1) / (kThreads * kPerThread));
  const auto launch = [&](auto kernel) { kernel<<<grid, kThreads, 0, stream>>>(args); };
  switch (parts) {
    case Kind::Float32: return launch(joinKernel<T, float>);
    case Kind::Float16: return launch(joinKernel<T, __half>);
    case Kind::BFloat16: return launch(joinKernel<T, __nv_bfloat16>);
  }
}

}  // namespace

void launchJoin(Kind model, Kind parts, const JoinArgs& args, cudaStream_t stream) { ATTUNE_BY_KIND(model, (launchOf<T>(parts, args, stream))) }

}  // namespace attune
