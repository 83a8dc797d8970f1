// What the files that launch kernels on tensors share.
#pragma once
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/raw.h"

namespace attune {

inline Kind kindOf(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return Kind::Float32;
    case at::kHalf: return Kind::Float16;
    case at::kBFloat16: return Kind::BFloat16;
    default: TORCH_CHECK(false, "this kernel takes float32, float16 or bfloat16");
  }
}

/** The tensor's device and its current stream, while it lives. */
struct Launch {
  c10::cuda::CUDAGuard guard;
  cudaStream_t stream;
  explicit Launch(const at::Tensor& on) : guard(on.device()), stream(c10::cuda::getCurrentCUDAStream().stream()) {}
};

inline void* pointer(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }
inline float* floats(const at::Tensor& tensor) { return static_cast<float*>(pointer(tensor)); }

inline bool isAligned(const at::Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 == 0; }

/** Contiguous and at a multiple of 16 bytes, as loads of 16 bytes need it: the tensor itself, or a copy. */
inline at::Tensor aligned(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor dense = tensor.contiguous();
  return isAligned(dense) ? dense : dense.clone();
}

}  // namespace attune
