// attune::linear(x[…, K], weight[N, K], bias[N]?) = x·weightᵀ + bias. A few rows of f32 on the CPU use our own product (skinny_product.h);
// everything else is ATen's linear. The product does not depend on whether a gradient is wanted: BLAS adds in another order on x86, and a
// block that is computed again for its gradient, or a reference beside its policy, has to give the same bits.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "cpu/skinny_product.h"
#include "ops/optional.h"

namespace attune {
namespace {

using at::Tensor;

bool fits(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.dim() != 2 || weight.dim() != 2 || x.size(1) != weight.size(1) || x.numel() == 0 || !isSkinny(x.size(0), x.size(1))) return false;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0) || bias.scalar_type() != at::kFloat || !bias.device().is_cpu() ||
                         !bias.is_contiguous()))
    return false;
  return x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.device().is_cpu() && weight.device().is_cpu() &&
         weight.is_contiguous();
}

// `bias` may be undefined.
Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  skinnyProduct({x.data_ptr<float>(), weight.data_ptr<float>(), bias.defined() ? bias.data_ptr<float>() : nullptr, y.data_ptr<float>(),
                 x.size(0), x.size(1), weight.size(0)});
  return y;
}

class Product : public torch::autograd::Function<Product> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight) {
    context->save_for_backward({x, weight});
    return product(x, weight, Tensor());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attune::linear cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &g = incoming[0];
    return {context->needs_input_grad(0) ? g.mm(weight) : Tensor(), context->needs_input_grad(1) ? g.t().mm(x) : Tensor()};
  }
};

Tensor linear(const Tensor& input, const Tensor& weight, const Optional<Tensor>& given) {
  const Tensor bias = given.has_value() ? *given : Tensor();
  if (!fits(input, weight, bias)) return at::linear(input, weight, given);
  const Tensor x = input.contiguous();
  if (!at::GradMode::is_enabled()) return product(x, weight, bias);
  const Tensor y = x.requires_grad() || weight.requires_grad() ? Product::apply(x, weight) : product(x, weight, Tensor());
  return bias.defined() ? y.add(bias) : y;  // the same sum as the product's own
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor");
  library.impl("linear", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::linear));
}
