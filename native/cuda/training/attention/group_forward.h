// Forward of packed attention on compute capability 9.0 (group_forward.cu).
#pragma once
#include "cuda/training/attention/kernels.h"

namespace attune {

bool groupForwardFits(Kind kind, const CausalAttentionArgs& args);
void launchGroupForward(const CausalAttentionArgs& args, cudaStream_t stream);

}  // namespace attune
