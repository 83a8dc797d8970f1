// Shared by the files that launch kernels on tensors.
#pragma once
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <vector>

#include "cuda/kernels.h"
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

/** The arguments of the kernels that cudaDecodeFused launches, without a place for the result. */
AttentionArgs argumentsOf(const FusedAttention& in, const CacheLayer& cache, AttentionOf what);

inline void* pointer(const at::Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }
inline __nv_bfloat16* scalesIn(const at::Tensor& tensor) { return static_cast<__nv_bfloat16*>(pointer(tensor)); }
inline float* floats(const at::Tensor& tensor) { return static_cast<float*>(pointer(tensor)); }

inline bool isAligned(const at::Tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 == 0; }

/** Contiguous and at a multiple of 16 bytes, as loads of 16 bytes need it: the tensor itself, or a copy. */
inline at::Tensor aligned(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  const at::Tensor dense = tensor.contiguous();
  return isAligned(dense) ? dense : dense.clone();
}

/**
 * [rows, …] without values, in memory for a multiple of 128 rows (up to 64 rows, of 32): a product's copies of tiles are slower where rows lie
 * outside of the matrix. A layer of 160 and 192 rows of 0.6B takes 111.1 and 117.2 µs in place of 118.4 and 121.6.
 */
inline at::Tensor emptyRows(int64_t rows, at::IntArrayRef rest, const at::TensorOptions& options) {
  const int64_t tile = rows > 64 ? 128 : 32;
  std::vector<int64_t> sizes{rows > 16 ? (rows + tile - 1) / tile * tile : rows};
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return at::empty(sizes, options).narrow(0, 0, rows);
}

/** The rows of a matrix and those behind them that its memory has, too. */
inline int64_t readableRows(const at::Tensor& x) {
  const int64_t bytes = static_cast<int64_t>(x.storage().nbytes()) - x.storage_offset() * static_cast<int64_t>(x.element_size());
  return bytes / (x.stride(0) * static_cast<int64_t>(x.element_size()));
}

}  // namespace attune
