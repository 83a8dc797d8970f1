// The kernels that draw tokens (native/ops/decode/sample.cc says what is drawn).
#pragma once
#include "cuda/raw.h"

namespace attune {

/** Returns false, and does nothing, where the device has no clusters or a row does not fit into one. */
bool launchCluster(Kind kind, const SampleArgs& args, cudaStream_t stream);
void launchOneBlock(Kind kind, const SampleArgs& args, cudaStream_t stream);

}  // namespace attune
