// Operators with autograd that other operators are composed of.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <tuple>

#include "ops/optional.h"

namespace attune {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const Optional<at::Tensor>& bias);
at::Tensor rmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
std::tuple<at::Tensor, at::Tensor> addRmsNorm(const at::Tensor& x, const Optional<at::Tensor>& added, const at::Tensor& weight, double eps);
std::tuple<at::Tensor, at::Tensor, at::Tensor> splitHeads(const at::Tensor& qkv, int64_t heads, int64_t groups,
                                                          const Optional<at::Tensor>& qWeight, const Optional<at::Tensor>& kWeight, double eps,
                                                          const Optional<at::Tensor>& cosines, const Optional<at::Tensor>& sines,
                                                          bool interleaved);
at::Tensor rope(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, bool interleaved);
at::Tensor swiglu(const at::Tensor& x);
at::Tensor packedAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef starts, double scale,
                           int64_t window, const Optional<at::Tensor>& bias, double dropout, at::IntArrayRef prefixes);
/** attune::packed_attention without a window, a bias or dropout. */
at::Tensor packedCausalAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::IntArrayRef starts,
                                 at::IntArrayRef prefixes, double scale);

}  // namespace attune
