// Drawing tokens on CUDA: by a cluster of blocks per row if there are clusters.
#include "cuda/sampling/kernels.h"

namespace attune {

void launchSample(Kind kind, const SampleArgs& args, cudaStream_t stream) {
  if (args.rows > 0 && !launchCluster(kind, args, stream)) launchOneBlock(kind, args, stream);
}

}  // namespace attune
