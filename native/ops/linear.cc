// attune::linear(x[…, K], weight[N, K], bias[N]?) = x·weightᵀ + bias. A few rows of f32 on the CPU without gradients (a decoding step)
// use our own product (skinny_product.h); everything else is ATen's linear.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include "cpu/skinny_product.h"
#include "ops/optional.h"

namespace attune {
namespace {

using at::Tensor;

bool fits(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.dim() != 2 || weight.dim() != 2 || x.size(1) != weight.size(1) || x.numel() == 0 || !isSkinny(x.size(0), x.size(1))) return false;
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad()))) return false;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0) || bias.scalar_type() != at::kFloat || !bias.device().is_cpu() ||
                         !bias.is_contiguous()))
    return false;
  return x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.device().is_cpu() && weight.device().is_cpu() &&
         weight.is_contiguous();
}

Tensor linear(const Tensor& input, const Tensor& weight, const Optional<Tensor>& given) {
  const Tensor bias = given.has_value() ? *given : Tensor();
  if (!fits(input, weight, bias)) return at::linear(input, weight, given);
  const Tensor x = input.contiguous();
  Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  skinnyProduct({x.data_ptr<float>(), weight.data_ptr<float>(), bias.defined() ? bias.data_ptr<float>() : nullptr, y.data_ptr<float>(),
                 x.size(0), x.size(1), weight.size(0)});
  return y;
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor");
  library.impl("linear", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::linear));
}
