// Our CUDA kernels behind ATen tensors (native/cuda_kernels.cu, compiled where nvcc is found).
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

#ifdef ATTUNE_KERNELS
at::Tensor cudaRope(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, bool interleaved, float direction);
at::Tensor cudaSwiglu(const at::Tensor& x);
at::Tensor cudaSwigluBackward(const at::Tensor& x, const at::Tensor& gradient);
#endif

}  // namespace attune
