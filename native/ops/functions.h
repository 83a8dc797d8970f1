// Operators that others are composed of, with autograd.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

namespace attune {

at::Tensor rmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor rope(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, bool interleaved);
at::Tensor swiglu(const at::Tensor& x);
/** attune::packed_attention without a window, a bias, dropout or prefixes. */
at::Tensor packedCausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef starts,
                                 at::IntArrayRef prefixes, double scale);

}  // namespace attune
