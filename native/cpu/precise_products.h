// Products with f32 results for every input dtype (f64 for f64). On CUDA, half-precision products write f32 directly if libtorch supports
// it (2.8 and later).
#pragma once
#include <ATen/ATen.h>
#include <torch/version.h>

namespace attune {

inline bool isHalf(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf; }

// On the CPU libtorch 1.13 sums bf16 products in bf16 for many shapes (a sum of ones stops at 256) and has no f16 products, so the inputs
// are converted to f32. libtorch 2.x sums in f32.
inline bool needsWidening(const at::Tensor& tensor) { return TORCH_VERSION_MAJOR < 2 && isHalf(tensor) && tensor.is_cpu(); }

// The tensor in a dtype that gives an exact product.
inline at::Tensor widened(const at::Tensor& tensor) { return needsWidening(tensor) ? tensor.to(at::kFloat) : tensor; }

// a[n, k]·b[k, m]
inline at::Tensor preciseProduct(const at::Tensor& a, const at::Tensor& b) {
  if (!isHalf(a)) return at::mm(a, b);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (a.is_cuda()) return at::mm(a, b, at::kFloat);
#endif
  return at::mm(a, b).to(at::kFloat);
}

// into = a[n, k]·b[k, m]
inline void preciseProductInto(at::Tensor& into, const at::Tensor& a, const at::Tensor& b) {
  if (!isHalf(a)) {
    at::mm_out(into, a, b);
    return;
  }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (a.is_cuda()) {
    at::mm_out(into, a, b, at::kFloat);
    return;
  }
#endif
  into.copy_(at::mm(a, b));
}

// into += a[n, k]·b[k, m]
inline void addPreciseProduct(at::Tensor& into, const at::Tensor& a, const at::Tensor& b) {
  if (!isHalf(a)) into.addmm_(a, b);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  else if (a.is_cuda())
    at::addmm_out(into, into, a, b, at::kFloat);  // adds up in f32, in place
#endif
  else
    into.add_(at::mm(a, b));
}

}  // namespace attune
