// attune::causal_attention(q[N, H, D], k[N, G, D], v[N, G, D], sequences[S, 2], scale) -> out[N, H, D]
//
// Causal attention inside each of several sequences laid end to end, with grouped heads. `sequences` has the first token and the length of
// each, longest first, on the device of the rest: nothing waits for the device. Half precision on CUDA has kernels
// (cuda/training/attention) that take no atomic sums, so that gradients are the same every time; attune::causal_attention_fits says where.
// Elsewhere it is attune::packed_attention.
//
//   P = softmax(scale·Q·Kᵀ),  dV = Pᵀ·dO,  dS = P∘(dO·Vᵀ − rowsum(dO∘O)),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "cuda/kernels.h"
#include "ops/functions.h"
#include "ops/training/causal_attention.h"

namespace attune {
namespace {

using at::Tensor;

#ifdef ATTUNE_KERNELS
class CausalAttentionCuda : public torch::autograd::Function<CausalAttentionCuda> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& sequences, double scale) {
    const auto [out, lse] = cudaCausalAttention({q, k, v, sequences, scale});
    context->save_for_backward({q, k, v, sequences, out, lse});
    context->saved_data["scale"] = scale;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attune::causal_attention cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const CausalAttention given{saved[0], saved[1], saved[2], saved[3], context->saved_data["scale"].toDouble()};
    const AttentionGradients found = cudaCausalAttentionBackward(given, saved[4], saved[5], incoming[0]);
    return {found.q, found.k, found.v, Tensor(), Tensor()};
  }
};
#endif

/** [0, n₁, n₁ + n₂, …] of sequences in any order. */
std::vector<int64_t> startsOf(const Tensor& sequences, int64_t tokens) {
  const Tensor here = sequences.cpu().contiguous();
  const int32_t* numbers = here.data_ptr<int32_t>();
  std::vector<std::pair<int64_t, int64_t>> sorted;
  for (int64_t s = 0; s < here.size(0); s++) sorted.emplace_back(numbers[2 * s], numbers[2 * s + 1]);
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> starts{0};
  for (const auto& [start, length] : sorted) {
    TORCH_CHECK(start == starts.back() && length >= 0, "sequences lie end to end");
    starts.push_back(start + length);
  }
  TORCH_CHECK(starts.back() == tokens, "sequences have all tokens");
  return starts;
}

bool causalAttentionFits(const Tensor& q, const Tensor& k) {
#ifdef ATTUNE_KERNELS
  return q.dim() == 3 && k.dim() == 3 && cudaCausalAttentionFits(q, k);
#else
  (void)q, (void)k;
  return false;
#endif
}

Tensor causalAttention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sequences, double scale) {
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && v.sizes() == k.sizes(), "expected q [N, H, D], k and v [N, G, D]");
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(2) == k.size(2), "q and k differ in tokens or head size");
  TORCH_CHECK(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0, "query heads are a multiple of kv heads");
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(), "q, k and v differ in dtype");
  TORCH_CHECK(sequences.dim() == 2 && sequences.size(1) == 2 && sequences.scalar_type() == at::kInt, "expected sequences int32 [S, 2]");
  TORCH_CHECK(k.device() == q.device() && v.device() == q.device() && sequences.device() == q.device(), "all tensors are on one device");
#ifdef ATTUNE_KERNELS
  if (causalAttentionFits(q, k)) return CausalAttentionCuda::apply(q, k, v, sequences, scale);
#endif
  return packedCausalAttention(q, k, v, startsOf(sequences, q.size(0)), scale);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("causal_attention(Tensor q, Tensor k, Tensor v, Tensor sequences, float scale) -> Tensor");
  library.impl("causal_attention", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::causalAttention));
  library.def("causal_attention_fits(Tensor q, Tensor k) -> bool");
  library.impl("causal_attention_fits", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::causalAttentionFits));
}
