// attune::rope(x[N, H, D], cos[N, R/2], sin[N, R/2], interleaved): rotary positions (Su et al. 2021) on the first R of a
// head's D dimensions. Pairs are (i, i + R/2), or (2i, 2i + 1) where interleaved. Backward is the opposite rotation.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "cpu/kernels.h"
#include "cuda/kernels.h"
#include "ops/functions.h"

namespace attune {
namespace {

using at::Tensor;

template <typename T>
void rotateRows(const T* x, const float* cosines, const float* sines, T* y, int64_t rows, int64_t heads, int64_t size, int64_t half,
                int64_t rowStride, int64_t headStride, bool interleaved, float direction) {
  at::parallel_for(0, rows, grain(heads * size), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const float *c = cosines + row * half, *s = sines + row * half;
      for (int64_t head = 0; head < heads; head++) {
        const T* in = x + row * rowStride + head * headStride;
        T* out = y + (row * heads + head) * size;
        const int64_t step = interleaved ? 2 : 1, gap = interleaved ? 1 : half;
        for (int64_t i = 0; i < half; i++) {
          const float a = static_cast<float>(in[i * step]), b = static_cast<float>(in[i * step + gap]), si = direction * s[i];
          out[i * step] = static_cast<T>(a * c[i] - b * si);
          out[i * step + gap] = static_cast<T>(b * c[i] + a * si);
        }
        for (int64_t i = 2 * half; i < size; i++) out[i] = in[i];
      }
    }
  });
}

// The same with ATen operators, for devices without our kernel.
Tensor rotateComposed(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool interleaved, double direction) {
  const int64_t half = cosines.size(1);
  const Tensor turned = x.narrow(-1, 0, 2 * half);
  const Tensor a = interleaved ? turned.slice(-1, 0, 2 * half, 2) : turned.narrow(-1, 0, half);
  const Tensor b = interleaved ? turned.slice(-1, 1, 2 * half, 2) : turned.narrow(-1, half, half);
  const Tensor c = cosines.unsqueeze(1), s = sines.unsqueeze(1) * direction;
  const Tensor p = (a * c - b * s).to(x.scalar_type()), q = (b * c + a * s).to(x.scalar_type());
  const Tensor pair = interleaved ? at::stack({p, q}, -1).flatten(-2) : at::cat({p, q}, -1);
  return 2 * half == x.size(-1) ? pair : at::cat({pair, x.narrow(-1, 2 * half, x.size(-1) - 2 * half)}, -1);
}

Tensor rotate(const Tensor& input, const Tensor& cosines, const Tensor& sines, bool interleaved, double direction) {
  if (!input.device().is_cpu()) {
#ifdef ATTUNE_KERNELS
    if (input.is_cuda()) return cudaRope(input, cosines, sines, interleaved, static_cast<float>(direction));
#endif
    return rotateComposed(input, cosines, sines, interleaved, direction);
  }
  const Tensor x = input.stride(-1) == 1 ? input : input.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, x.scalar_type(), "rope", [&] {
    rotateRows<scalar_t>(x.data_ptr<scalar_t>(), cosines.data_ptr<float>(), sines.data_ptr<float>(), y.data_ptr<scalar_t>(), x.size(0),
                         x.size(1), x.size(2), cosines.size(1), x.stride(0), x.stride(1), interleaved, static_cast<float>(direction));
  });
  return y;
}

class Rope : public torch::autograd::Function<Rope> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& cosines, const Tensor& sines,
                        bool interleaved) {
    context->save_for_backward({cosines, sines});
    context->saved_data["interleaved"] = interleaved;
    return rotate(x, cosines, sines, interleaved, 1.0);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    const auto saved = context->get_saved_variables();
    return {rotate(incoming[0], saved[0], saved[1], context->saved_data["interleaved"].toBool(), -1.0), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor rope(const Tensor& x, const Tensor& cosines, const Tensor& sines, bool interleaved) {
  TORCH_CHECK(x.dim() == 3 && cosines.dim() == 2 && sines.sizes() == cosines.sizes(), "expected x [N, H, D], cos and sin [N, R/2]");
  TORCH_CHECK(cosines.size(0) == x.size(0), "one row of cos and sin per token");
  TORCH_CHECK(2 * cosines.size(1) <= x.size(2), "more dimensions turn than a head has");
  TORCH_CHECK(cosines.scalar_type() == at::kFloat && sines.scalar_type() == at::kFloat, "cos and sin are float32");
  TORCH_CHECK(cosines.device() == x.device() && sines.device() == x.device(), "all inputs are on one device");
  const Tensor c = cosines.contiguous(), s = sines.contiguous();
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return rotate(x, c, s, interleaved, 1.0);
  return Rope::apply(x, c, s, interleaved);
}

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("rope(Tensor x, Tensor cos, Tensor sin, bool interleaved=False) -> Tensor");
  library.impl("rope", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::rope));
}
