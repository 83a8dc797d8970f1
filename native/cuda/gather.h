// The beginning of a decoding step on CUDA.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace attune {

#ifdef ATTUNE_KERNELS
/**
 * The rows of a table [N, width] at the ids. `cleared`, where it is defined, becomes zero. The matrices of `ahead` come into the L2 cache, as far
 * as half of it has room: in a graph of several steps the kernel begins while the tokens of the last step are drawn.
 */
at::Tensor cudaBeginStep(const at::Tensor& table, const at::Tensor& ids, const at::Tensor& cleared, const std::vector<at::Tensor>& ahead);
#endif

}  // namespace attune
