// Operators that others are composed of, with autograd.
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

at::Tensor rmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps);
at::Tensor rope(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, bool interleaved);

}  // namespace attune
