// attune::split_heads(qkv[N, (H + 2G)·D], H, G, q_weight[D]?, k_weight[D]?, eps, cos?, sin?, interleaved) -> q[N, H, D], k[N, G, D], v[N,
// G, D]
//
// The heads of a fused projection: q and k get their RMS norm and rotary positions, v is a view. On CUDA it is one kernel forward and one
// backward, which writes the projection's whole gradient at once; elsewhere it is composed of other operators.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "cuda/kernels.h"
#include "ops/functions.h"
#include "ops/training/heads.h"
#include "ops/optional.h"

namespace attune {
namespace {

using at::Tensor;
using Heads = std::tuple<Tensor, Tensor, Tensor>;

/** A view of `count` heads of the projection, starting at head `first`. */
Tensor headsFrom(const SplitHeads& given, int64_t first, int64_t count) {
  const int64_t size = given.size();
  return given.qkv.narrow(1, first * size, count * size).view({given.qkv.size(0), count, size});
}
Tensor valuesOf(const SplitHeads& given) { return headsFrom(given, given.heads + given.groups, given.groups); }

Heads composed(const SplitHeads& given) {
  Tensor q = headsFrom(given, 0, given.heads), k = headsFrom(given, given.heads, given.groups);
  if (given.qWeight.defined()) {
    q = rmsNorm(q, given.qWeight, given.eps);
    k = rmsNorm(k, given.kWeight, given.eps);
  }
  if (given.cosines.defined()) {
    q = rope(q, given.cosines, given.sines, given.interleaved);
    k = rope(k, given.cosines, given.sines, given.interleaved);
  }
  return {q, k, valuesOf(given)};
}

#ifdef ATTUNE_KERNELS
Heads direct(const SplitHeads& given) {
  const auto [q, k] = cudaHeads(given);
  return {q, k, valuesOf(given)};
}

class SplitHeadsCuda : public torch::autograd::Function<SplitHeadsCuda> {
 public:
  // Autograd finds its inputs among the arguments, so the tensors of `given` are passed again.
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& qkv, const Optional<Tensor>&,
                                                const Optional<Tensor>&, const SplitHeads& given) {
    const auto [q, k, v] = direct(given);
    context->save_for_backward({qkv, given.qWeight, given.kWeight, given.cosines, given.sines});
    context->set_materialize_grads(false);
    context->saved_data["heads"] = given.heads;
    context->saved_data["groups"] = given.groups;
    context->saved_data["eps"] = given.eps;
    return {q, k, v};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attune::split_heads cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const SplitHeads given{saved[0],
                           context->saved_data["heads"].toInt(),
                           context->saved_data["groups"].toInt(),
                           saved[1],
                           saved[2],
                           context->saved_data["eps"].toDouble(),
                           saved[3],
                           saved[4],
                           false};
    // omitted tensors have no place among the inputs
    const bool wantWeights = saved[1].defined() && (context->needs_input_grad(1) || context->needs_input_grad(2));
    const HeadGradients found = cudaHeadsBackward(given, incoming[0], incoming[1], incoming[2], wantWeights);
    return {found.qkv, found.qWeight, found.kWeight, Tensor()};
  }
};
#endif

}  // namespace

Heads splitHeads(const Tensor& qkv, int64_t heads, int64_t groups, const Optional<Tensor>& qWeight, const Optional<Tensor>& kWeight,
                 double eps, const Optional<Tensor>& cosines, const Optional<Tensor>& sines, bool interleaved) {
  TORCH_CHECK(qkv.dim() == 2 && heads > 0 && groups > 0 && qkv.size(1) > 0 && qkv.size(1) % (heads + 2 * groups) == 0,
              "expected qkv [N, (H + 2G)·D]");
  const Tensor q = contiguousOrUndefined(qWeight), k = contiguousOrUndefined(kWeight);
  SplitHeads given{qkv, heads, groups, q, k, eps, contiguousOrUndefined(cosines), contiguousOrUndefined(sines), interleaved};
  const int64_t size = given.size();
  TORCH_CHECK(given.qWeight.defined() == given.kWeight.defined(), "q and k both have a norm, or neither");
  for (const Tensor* weight : {&given.qWeight, &given.kWeight})
    TORCH_CHECK(!weight->defined() || (weight->dim() == 1 && weight->size(0) == size && weight->scalar_type() == qkv.scalar_type() &&
                                       weight->device() == qkv.device()),
                "a norm's weight does not fit a head");
  TORCH_CHECK(given.cosines.defined() == given.sines.defined(), "cos and sin come together");
  for (const Tensor* angles : {&given.cosines, &given.sines})
    TORCH_CHECK(!angles->defined() || (angles->dim() == 2 && angles->size(0) == qkv.size(0) && angles->sizes() == given.cosines.sizes() &&
                                       2 * angles->size(1) <= size && angles->scalar_type() == at::kFloat && angles->device() == qkv.device()),
                "cos and sin are float32 [N, R/2], at most half a head wide");
#ifdef ATTUNE_KERNELS
  if (cudaHeadsFit(given)) {
    given.qkv = qkv.contiguous();
    const auto trained = [](const Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); };
    if (!at::GradMode::is_enabled() || !(trained(qkv) || trained(given.qWeight) || trained(given.kWeight))) return direct(given);
    const auto optional = [](const Tensor& tensor) { return tensor.defined() ? Optional<Tensor>(tensor) : Optional<Tensor>(); };
    const auto out = SplitHeadsCuda::apply(given.qkv, optional(given.qWeight), optional(given.kWeight), given);
    return {out[0], out[1], out[2]};
  }
#endif
  return composed(given);
}

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "split_heads(Tensor qkv, int heads, int groups, Tensor? q_weight, Tensor? k_weight, float eps, Tensor? cos, Tensor? sin, "
      "bool interleaved=False) -> (Tensor, Tensor, Tensor)");
  library.impl("split_heads", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::splitHeads));
}
