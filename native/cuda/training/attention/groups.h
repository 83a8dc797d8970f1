// Packed attention by warpgroup products (compute capability 9.0, bf16, heads of 128 numbers), forward and backward.
#pragma once
#include "cuda/training/attention/kernels.h"

namespace attune {

/** Whether these kernels take such inputs on the current device; `share` is the query heads of a kv head. */
bool groupsFit(Kind kind, int64_t size, int share);
void launchGroupForward(const CausalAttentionArgs& args, cudaStream_t stream);
void launchGroupQueryGradients(const CausalAttentionBackwardArgs& args, cudaStream_t stream);
/** After launchGroupQueryGradients, which writes `dots`. */
void launchGroupKeyGradients(const CausalAttentionBackwardArgs& args, cudaStream_t stream);

}  // namespace attune
