// attune::rms_norm(x[…, D], weight[D], eps): y = x/√(mean x² + ε)·weight, the mean in f32 (Zhang & Sennrich 2019).
// attune::add_rms_norm(x, added?, weight, eps) -> (x + added, its norm): a block adds to its residual and continues with its norm. Without
// `added` the sum is x: on CUDA, backward then adds the gradient that bypasses the norm in the same pass.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "cpu/kernels.h"
#include "cpu/precise_products.h"
#include "cpu/rows.h"
#include "cuda/kernels.h"
#include "ops/functions.h"
#include "ops/optional.h"

namespace attune {
namespace {

using at::Tensor;

template <typename T>
void forwardRows(const T* x, const T* weight, T* y, float* scale, int64_t rows, int64_t size, float eps) {
  at::parallel_for(0, rows, grain(size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const T* in = x + row * size;
      T* out = y + row * size;
      const float squares = dotProduct(in, in, size);
      const float factor = 1.0f / std::sqrt(squares / static_cast<float>(size) + eps);
      if (scale != nullptr) scale[row] = factor;
      // rounded to the model's dtype before the weight, as Llama does
      for (int64_t i = 0; i < size; i++) out[i] = static_cast<T>(static_cast<float>(in[i]) * factor) * weight[i];
    }
  });
}

// With n = x·s: dx = s·(g·w − n·mean(g·w·n)), dw = Σ g·n
template <typename T>
void backwardRows(const T* x, const T* weight, const float* scale, const T* gradient, T* dx, float* dw, int64_t rows, int64_t size) {
  const int tasks = at::get_num_threads();
  std::vector<float> partial(static_cast<size_t>(tasks) * size, 0.0f);
  const int64_t share = (rows + tasks - 1) / tasks;
  at::parallel_for(0, tasks, 1, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; task++) {
      float* sums = partial.data() + task * size;
      for (int64_t row = task * share; row < std::min(rows, (task + 1) * share); row++) {
        const T *in = x + row * size, *g = gradient + row * size;
        const float s = scale[row];
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t i = 0; i < size; i++) dot += static_cast<float>(g[i]) * static_cast<float>(weight[i]) * static_cast<float>(in[i]);
        const float mean = dot * s * s / static_cast<float>(size);
        T* out = dx + row * size;
        for (int64_t i = 0; i < size; i++) {
          const float gi = static_cast<float>(g[i]), xi = static_cast<float>(in[i]);
          out[i] = static_cast<T>(s * (gi * static_cast<float>(weight[i]) - xi * mean));
          sums[i] += gi * xi * s;
        }
      }
    }
  });
  for (int64_t i = 0; i < size; i++) {
    float total = 0;
    for (int task = 0; task < tasks; task++) total += partial[static_cast<size_t>(task) * size + i];
    dw[i] = total;
  }
}

// `scale` is undefined if there will be no backward.
Tensor normed(const Tensor& x, const Tensor& weight, double eps, const Tensor& scale) {
  const int64_t size = x.size(-1), rows = size == 0 ? 0 : x.numel() / size;
  Tensor y = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm", [&] {
    forwardRows<scalar_t>(x.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(),
                          scale.defined() ? scale.data_ptr<float>() : nullptr, rows, size, static_cast<float>(eps));
  });
  return y;
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input, const Tensor& weight, double eps) {
    const Tensor x = input.contiguous();
    const int64_t size = x.size(-1), rows = size == 0 ? 0 : x.numel() / size;
    const Tensor scale = at::empty({rows}, x.options().dtype(at::kFloat)), y = normed(x, weight, eps, scale);
    context->save_for_backward({x, weight, scale});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &scale = saved[2];
    const Tensor gradient = incoming[0].contiguous();
    const int64_t size = x.size(-1), rows = size == 0 ? 0 : x.numel() / size;
    Tensor dx = at::empty_like(x), dw = at::empty({size}, scale.options());
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rms_norm_backward", [&] {
      backwardRows<scalar_t>(x.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(), scale.data_ptr<float>(), gradient.data_ptr<scalar_t>(),
                             dx.data_ptr<scalar_t>(), dw.data_ptr<float>(), rows, size);
    });
    return {dx, dw.to(weight.scalar_type()), Tensor()};
  }
};

#ifdef ATTUNE_KERNELS
class AddRmsNormCuda : public torch::autograd::Function<AddRmsNormCuda> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight,
                                                const Optional<Tensor>& added, double eps) {
    const auto [sum, y] = cudaNorm(x, orUndefined(added), weight, eps);
    context->save_for_backward({sum, weight});
    context->set_materialize_grads(false);
    context->saved_data["adds"] = added.has_value();
    context->saved_data["eps"] = eps;
    return {sum, y};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attune::add_rms_norm cannot be differentiated twice");
    const Tensor &past = incoming[0], &gradient = incoming[1];
    // autograd does not accept a gradient for an omitted input
    const auto forAdded = [&](const Tensor& dx) { return context->saved_data["adds"].toBool() ? dx : Tensor(); };
    if (!gradient.defined()) return {past, Tensor(), forAdded(past), Tensor()};
    const auto saved = context->get_saved_variables();
    const auto found =
        cudaNormBackward(saved[0], saved[1], gradient, past, context->saved_data["eps"].toDouble(), context->needs_input_grad(1));
    return {found.x, found.weight, forAdded(found.x), Tensor()};
  }
};
#endif

// The same with ATen operators, for devices and dtypes without our kernel.
Tensor composed(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor wide = isHalf(x) ? x.to(at::kFloat) : x;
  return wide.mul(wide.square().mean(-1, true).add(eps).rsqrt()).to(x.scalar_type()).mul(weight);
}

void check(const Tensor& x, const Tensor& weight) {
  TORCH_CHECK(x.dim() > 0 && weight.dim() == 1 && weight.size(0) == x.size(-1), "expected x [..., D] and weight [D]");
  TORCH_CHECK(x.scalar_type() == weight.scalar_type(), "x and weight differ in dtype");
  TORCH_CHECK(x.device() == weight.device(), "x and weight are on different devices");
  TORCH_CHECK(at::isFloatingType(x.scalar_type()), "rms_norm takes floating-point numbers");
}

}  // namespace

std::tuple<Tensor, Tensor> addRmsNorm(const Tensor& x, const Optional<Tensor>& given, const Tensor& weight, double eps) {
  const Tensor added = orUndefined(given);
  check(x, weight);
  TORCH_CHECK(!added.defined() || (added.sizes() == x.sizes() && added.scalar_type() == x.scalar_type() && added.device() == x.device()),
              "x and what is added to it differ in shape, dtype or device");
#ifdef ATTUNE_KERNELS
  if (cudaNormFits(x)) {
    const bool differentiated =
        at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || (added.defined() && added.requires_grad()));
    if (differentiated) {
      const auto out = AddRmsNormCuda::apply(x, weight, added.defined() ? Optional<Tensor>(added) : Optional<Tensor>(), eps);
      return {out[0], out[1]};
    }
    const auto [sum, y] = cudaNorm(x, added, weight, eps);
    return {sum, y};
  }
#endif
  const Tensor sum = added.defined() ? x.add(added) : x;
  return {sum, rmsNorm(sum, weight, eps)};
}

Tensor rmsNorm(const Tensor& x, const Tensor& weight, double eps) {
  check(x, weight);
#ifdef ATTUNE_KERNELS
  if (cudaNormFits(x)) return std::get<1>(addRmsNorm(x, Optional<Tensor>(), weight, eps));
#endif
  if (!x.device().is_cpu() || x.scalar_type() == at::kDouble) return composed(x, weight, eps);
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad())) return RmsNorm::apply(x, weight.contiguous(), eps);
  return normed(x.contiguous(), weight.contiguous(), eps, Tensor());
}

template <typename T>
void rmsNormRows(const T* x, const T* weight, T* y, int64_t rows, int64_t size, float eps) {
  forwardRows<T>(x, weight, y, nullptr, rows, size, eps);
}
template void rmsNormRows(const float*, const float*, float*, int64_t, int64_t, float);
template void rmsNormRows(const at::BFloat16*, const at::BFloat16*, at::BFloat16*, int64_t, int64_t, float);

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("rms_norm(Tensor x, Tensor weight, float eps) -> Tensor");
  library.impl("rms_norm", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::rmsNorm));
  library.def("add_rms_norm(Tensor x, Tensor? added, Tensor weight, float eps) -> (Tensor, Tensor)");
  library.impl("add_rms_norm", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::addRmsNorm));
}
