// attune::swiglu(x[N, 2M]): silu(first half)·second half (Shazeer 2020), keeping only its input for backward.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "cpu/kernels.h"
#include "cpu/rows.h"
#include "cuda/kernels.h"

namespace attune {
namespace {

using at::Tensor;

template <typename T>
void forwardRows(const T* x, T* y, int64_t rows, int64_t size) {
  at::parallel_for(0, rows, grain(size * 4), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const T *gate = x + row * 2 * size, *up = gate + size;
      T* out = y + row * size;
      for (int64_t i = 0; i < size; i++) {
        const float g = static_cast<float>(gate[i]);
        out[i] = static_cast<T>(g / (1.0f + vexp(-g)) * static_cast<float>(up[i]));
      }
    }
  });
}

template <typename T>
void backwardRows(const T* x, const T* gradient, T* dx, int64_t rows, int64_t size) {
  at::parallel_for(0, rows, grain(size * 6), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const T *gate = x + row * 2 * size, *up = gate + size, *d = gradient + row * size;
      T *dGate = dx + row * 2 * size, *dUp = dGate + size;
      for (int64_t i = 0; i < size; i++) {
        const float g = static_cast<float>(gate[i]), di = static_cast<float>(d[i]);
        const float sigmoid = 1.0f / (1.0f + vexp(-g));
        dUp[i] = static_cast<T>(di * g * sigmoid);
        dGate[i] = static_cast<T>(di * static_cast<float>(up[i]) * sigmoid * (1.0f + g * (1.0f - sigmoid)));
      }
    }
  });
}

Tensor forwardAny(const Tensor& x) {
  const int64_t size = x.size(-1) / 2;
  if (!x.device().is_cpu()) {
#ifdef ATTUNE_KERNELS
    if (x.is_cuda()) return cudaSwiglu(x);
#endif
    return at::silu(x.narrow(-1, 0, size)) * x.narrow(-1, size, size);
  }
  Tensor y = at::empty({x.size(0), size}, x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "swiglu",
                                  [&] { forwardRows<scalar_t>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.size(0), size); });
  return y;
}

Tensor backwardAny(const Tensor& x, const Tensor& gradient) {
  const int64_t size = x.size(-1) / 2;
  if (!x.device().is_cpu()) {
#ifdef ATTUNE_KERNELS
    if (x.is_cuda()) return cudaSwigluBackward(x, gradient);
#endif
    const Tensor gate = x.narrow(-1, 0, size);
    return at::cat({at::silu_backward(gradient * x.narrow(-1, size, size), gate), gradient * at::silu(gate)}, -1);
  }
  Tensor dx = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "swiglu_backward", [&] {
    backwardRows<scalar_t>(x.data_ptr<scalar_t>(), gradient.data_ptr<scalar_t>(), dx.data_ptr<scalar_t>(), x.size(0), size);
  });
  return dx;
}

class Swiglu : public torch::autograd::Function<Swiglu> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input) {
    const Tensor x = input.contiguous();
    context->save_for_backward({x});
    return forwardAny(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    return {backwardAny(context->get_saved_variables()[0], incoming[0].contiguous())};
  }
};

}  // namespace

Tensor swiglu(const Tensor& x) {
  TORCH_CHECK(x.dim() == 2 && x.size(1) % 2 == 0, "expected [N, 2M]");
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return forwardAny(x.contiguous());
  return Swiglu::apply(x);
}

template <typename T>
void swigluRows(const T* x, T* y, int64_t rows, int64_t size) {
  forwardRows<T>(x, y, rows, size);
}
template void swigluRows(const float*, float*, int64_t, int64_t);
template void swigluRows(const at::BFloat16*, at::BFloat16*, int64_t, int64_t);

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("swiglu(Tensor x) -> Tensor");
  library.impl("swiglu", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::swiglu));
}
