// attune::lora_linear(x[N, K], weight[M, K], bias[M]?, parts, scales, starts) = x·Wᵀ + bias + s·(x·Aᵀ)·Bᵀ (Hu et al. 2021), where a part
// (A[r, K], B[m, r]) changes the outputs from its start on. `parts` is A, B of each, one after the other.
//
// As one operator it needs no copy of the result, no addition of the two gradients of x, and a tenth of the calls. The parts may have
// another dtype than x; the products are in x's.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <vector>

#include "cpu/precise_products.h"
#include "cuda/kernels.h"
#include "ops/optional.h"

namespace attune {
namespace {

using at::Tensor;

/** The parts' A stacked [R, K], and their B times their scales as blocks of one matrix [M, R]. */
struct Joined {
  Tensor down, up;
};

Joined join(const Tensor& x, int64_t outputs, at::TensorList parts, at::ArrayRef<double> scales, at::IntArrayRef starts) {
#ifdef ATTUNE_KERNELS
  if (cudaJoinFits(x, parts)) {
    const auto [down, up] = cudaJoin(x, outputs, parts, scales, starts);
    return {down, up};
  }
#endif
  int64_t ranks = 0;
  for (size_t i = 0; i < scales.size(); i++) ranks += parts[2 * i].size(0);
  Joined out{at::empty({ranks, x.size(1)}, x.options()), at::zeros({outputs, ranks}, x.options())};
  for (size_t i = 0, rank = 0; i < scales.size(); i++) {
    const Tensor &a = parts[2 * i], &b = parts[2 * i + 1];
    out.down.narrow(0, static_cast<int64_t>(rank), a.size(0)).copy_(a);
    Tensor block = out.up.narrow(0, starts[i], b.size(0)).narrow(1, static_cast<int64_t>(rank), a.size(0));
    block.copy_(b.mul(scales[i]));
    rank += static_cast<size_t>(a.size(0));
  }
  return out;
}

class LoraLinear : public torch::autograd::Function<LoraLinear> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight, const Optional<Tensor>& bias,
                        at::TensorList parts, const std::vector<double>& scales, const std::vector<int64_t>& starts) {
    const Joined joined = join(x, weight.size(0), parts, scales, starts);
    Tensor y = at::linear(x, weight, bias);
    const Tensor low = x.mm(joined.down.t());
    y.addmm_(low, joined.up.t());
    torch::autograd::variable_list saved{x, weight, low, joined.down, joined.up};
    saved.insert(saved.end(), parts.begin(), parts.end());
    context->save_for_backward(std::move(saved));
    context->saved_data["bias"] = bias.has_value();
    context->saved_data["scales"] = scales;
    context->saved_data["starts"] = starts;
    return y;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attune::lora_linear cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &low = saved[2], &down = saved[3], &up = saved[4];
    const auto scales = context->saved_data["scales"].toDoubleVector();
    const auto starts = context->saved_data["starts"].toIntVector();
    const bool hasBias = context->saved_data["bias"].toBool();
    const Tensor gradient = incoming[0].contiguous(), forLow = gradient.mm(up);
    torch::autograd::variable_list out(3 + 2 * scales.size() + 2);
    if (context->needs_input_grad(0)) {
      out[0] = gradient.mm(weight);
      out[0].addmm_(forLow, down);
    }
    if (context->needs_input_grad(1)) out[1] = gradient.t().mm(x);
    if (hasBias && context->needs_input_grad(2)) out[2] = gradient.sum(0);
    const Tensor forDown = preciseProduct(forLow.t(), x), forUp = preciseProduct(gradient.t(), low);
    const size_t first = hasBias ? 3 : 2;  // of the parts among the inputs
    for (size_t i = 0, rank = 0; i < scales.size(); i++) {
      const Tensor &a = saved[5 + 2 * i], &b = saved[6 + 2 * i];
      const auto at = static_cast<int64_t>(rank);
      if (context->needs_input_grad(first + 2 * i)) out[3 + 2 * i] = forDown.narrow(0, at, a.size(0)).to(a.scalar_type());
      if (context->needs_input_grad(first + 2 * i + 1))
        out[4 + 2 * i] = forUp.narrow(0, starts[i], b.size(0)).narrow(1, at, a.size(0)).mul(scales[i]).to(b.scalar_type());
      rank += static_cast<size_t>(a.size(0));
    }
    return out;
  }
};

Tensor loraLinear(const Tensor& input, const Tensor& weight, const Optional<Tensor>& bias, at::TensorList parts, at::ArrayRef<double> scales,
                  at::IntArrayRef starts) {
  TORCH_CHECK(input.dim() == 2 && weight.dim() == 2 && input.size(1) == weight.size(1), "expected x [N, K] and weight [M, K]");
  TORCH_CHECK(input.scalar_type() == weight.scalar_type() && at::isFloatingType(input.scalar_type()), "x and weight differ in dtype");
  TORCH_CHECK(input.device() == weight.device(), "all tensors are on one device");
  TORCH_CHECK(parts.size() == 2 * scales.size() && scales.size() == starts.size() && !scales.empty(), "A, B, scale and start of each part");
  for (size_t i = 0; i < scales.size(); i++) {
    const Tensor &a = parts[2 * i], &b = parts[2 * i + 1];
    TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == weight.size(1) && b.size(1) == a.size(0), "a part is A [r, K] and B [m, r]");
    TORCH_CHECK(starts[i] >= 0 && starts[i] + b.size(0) <= weight.size(0), "a part changes outputs that are not there");
    TORCH_CHECK(a.device() == input.device() && b.device() == input.device(), "all tensors are on one device");
    TORCH_CHECK(at::isFloatingType(a.scalar_type()) && at::isFloatingType(b.scalar_type()), "a part is of floating-point numbers");
  }
  return LoraLinear::apply(input.contiguous(), weight, bias, parts, scales.vec(), starts.vec());
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("lora_linear(Tensor x, Tensor weight, Tensor? bias, Tensor[] parts, float[] scales, int[] starts) -> Tensor");
  library.impl("lora_linear", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::loraLinear));
}
