// Products whose results are f32 whatever the inputs are (f64 for f64). Half-precision CUDA products write f32 themselves where
// libtorch can do that (2.8 and later).
#pragma once
#include <ATen/ATen.h>
#include <torch/version.h>

namespace attune {

inline bool isHalf(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf; }

// libtorch 1.13's CPU products of bf16 add up in bf16 itself for many shapes (a sum of ones stops at 256), and it has none
// of f16 at all: there the products are made in f32. 2.x adds up in f32.
inline bool needsWidening(const at::Tensor& tensor) { return TORCH_VERSION_MAJOR < 2 && isHalf(tensor) && tensor.is_cpu(); }

// What a product can take without losing anything on the way.
inline at::Tensor widened(const at::Tensor& tensor) { return needsWidening(tensor) ? tensor.to(at::kFloat) : tensor; }

// a[n, k]·b[k, m]
inline at::Tensor preciseProduct(const at::Tensor& a, const at::Tensor& b) {
  if (!isHalf(a)) return at::mm(a, b);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (a.is_cuda()) return at::mm(a, b, at::kFloat);
#endif
  return at::mm(a, b).to(at::kFloat);
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
