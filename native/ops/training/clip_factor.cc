// attune::clip_factor(squares, loss, max_norm): the factor by which the gradients are multiplied so that their norm √squares is at most
// max_norm (0: factor 1). NaN if norm or loss is not finite: the update is then skipped (adamw.cc). f32, on the device, so nothing waits
// for it.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <limits>

namespace attune {
namespace {

using at::Tensor;

Tensor clipFactor(const Tensor& squares, const Tensor& loss, double maxNorm) {
  TORCH_CHECK(squares.numel() == 1 && loss.numel() == 1 && squares.scalar_type() == at::kDouble && squares.device() == loss.device(),
              "attune::clip_factor: squares is one f64 number, and the loss one number on the same device");
  const at::NoGradGuard guard;
  const Tensor norm = squares.sqrt().reshape({});
  // as clipFactor in src/nn/clipping.ts
  const Tensor one = at::ones_like(norm);
  const Tensor factor = maxNorm > 0 ? at::where(norm.gt(maxNorm), at::full_like(norm, maxNorm).div(norm.add(1e-6)), one) : one;
  const Tensor finite = norm.isfinite().logical_and(loss.detach().reshape({}).isfinite());
  return at::where(finite, factor, at::full_like(norm, std::numeric_limits<double>::quiet_NaN())).to(at::kFloat);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("clip_factor(Tensor squares, Tensor loss, float max_norm) -> Tensor");
  library.impl("clip_factor", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::clipFactor));
}
