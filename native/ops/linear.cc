// attune::linear(x[…, K], weight[N, K], bias[N]?) = x·weightᵀ + bias. A few rows of f32 or bf16 on the CPU use our own product
// (cpu/skinny), on some CPUs any number of rows of f32 (takesAllRows). If libtorch's half precision must not be used on the CPU
// (precise_products.h), more rows are widened to f32. Everything else is ATen's linear. The choice of product does not depend on whether a
// gradient is wanted. BLAS adds in another order, and a block that is recomputed for its gradient, or a reference beside its policy, must
// give the same bits.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "cpu/precise_products.h"
#include "cpu/skinny/product.h"
#include "ops/functions.h"
#include "ops/optional.h"

namespace attune {
namespace {

using at::Tensor;

// Whether x and weight are matrices of matching shapes and dtypes on the CPU.
bool areMatrices(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.dim() != 2 || weight.dim() != 2 || x.size(1) != weight.size(1) || x.numel() == 0) return false;
  const auto belongs = [&](const Tensor& tensor) { return tensor.scalar_type() == x.scalar_type() && tensor.device().is_cpu(); };
  return x.device().is_cpu() && belongs(weight) && (!bias.defined() || (bias.dim() == 1 && bias.size(0) == weight.size(0) && belongs(bias)));
}

bool isOurs(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const bool isFloat = x.scalar_type() == at::kFloat;
  return (isFloat || x.scalar_type() == at::kBFloat16) && (isSkinny(x.size(0), x.size(1)) || (isFloat && takesAllRows(x.size(1)))) &&
         weight.is_contiguous() && (!bias.defined() || bias.is_contiguous());
}

template <typename T>
void multiply(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& y) {
  skinnyProduct(SkinnyProduct<T>{x.data_ptr<T>(), weight.data_ptr<T>(), bias.defined() ? bias.data_ptr<T>() : nullptr, y.data_ptr<T>(),
                                 x.size(0), x.size(1), weight.size(0)});
}

// `bias` may be undefined.
Tensor product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!isOurs(x, weight, bias)) {
    const Tensor y = at::mm(widened(x), widened(weight).t());
    return (bias.defined() ? y.add_(bias) : y).to(x.scalar_type());
  }
  Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  x.scalar_type() == at::kFloat ? multiply<float>(x, weight, bias, y) : multiply<at::BFloat16>(x, weight, bias, y);
  return y;
}

class Product : public torch::autograd::Function<Product> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight, const Optional<Tensor>& bias) {
    context->save_for_backward({x, weight});
    context->saved_data["adds"] = bias.has_value() && bias->requires_grad();
    return product(x, weight, orUndefined(bias));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attune::linear cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], g = widened(incoming[0]);
    const auto dtype = x.scalar_type();
    return {context->needs_input_grad(0) ? g.mm(widened(weight)).to(dtype) : Tensor(),
            context->needs_input_grad(1) ? g.t().mm(widened(x)).to(dtype) : Tensor(),
            context->saved_data["adds"].toBool() ? g.sum(0).to(dtype) : Tensor()};
  }
};

}  // namespace

Tensor linear(const Tensor& input, const Tensor& weight, const Optional<Tensor>& given) {
  const Tensor bias = orUndefined(given);
  if (!areMatrices(input, weight, bias) || !(isOurs(input, weight, bias) || needsWidening(input))) return at::linear(input, weight, given);
  const Tensor x = input.contiguous();
  const bool differentiated =
      at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad()));
  return differentiated ? Product::apply(x, weight, given) : product(x, weight, bias);
}

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor");
  library.impl("linear", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::linear));
}
