// attune::causal_attention(q[N, H, D], k[N, G, D], v[N, G, D], sequences[S, 4], scale, families[F, 3]?, prefixTokens) -> out[N, H, D]
//
// Causal attention inside each of several sequences laid end to end, with grouped heads. A sequence may continue another one, its prefix,
// which it sees as its own beginning. The sequences that continue a prefix come after it; together they are a family. Both tables are on
// the same device as the rest, so nothing waits for the device, and prefixTokens is the sum of the prefixes' lengths:
//   sequences, those with the most keys first: first token, length, and the prefix's first token and length; without a prefix, the own
//     first token and 0, or −1 if others continue it
//   families: first token and length of the prefix, tokens of the family
// Half precision on CUDA has kernels (cuda/training/attention) without atomic sums, so gradients are the same every time;
// attune::causal_attention_longest says for which lengths. Everything else is attune::packed_attention.
//
//   P = softmax(scale·Q·Kᵀ),  dV = Pᵀ·dO,  dS = P∘(dO·Vᵀ − rowsum(dO∘O)),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/kernels.h"
#include "ops/functions.h"
#include "ops/optional.h"
#include "ops/training/causal_attention.h"

namespace attune {
namespace {

using at::Tensor;

#ifdef ATTUNE_KERNELS
class CausalAttentionCuda : public torch::autograd::Function<CausalAttentionCuda> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Tensor& sequences, const Optional<Tensor>& given, int64_t prefixTokens, double scale) {
    const Tensor families = orUndefined(given);
    const auto [out, lse] = cudaCausalAttention({q, k, v, sequences, families, prefixTokens, scale});
    context->save_for_backward({q, k, v, sequences, families, out, lse});
    context->saved_data["prefixTokens"] = prefixTokens;
    context->saved_data["scale"] = scale;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "attune::causal_attention cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const CausalAttention given{saved[0],
                                saved[1],
                                saved[2],
                                saved[3],
                                saved[4],
                                context->saved_data["prefixTokens"].toInt(),
                                context->saved_data["scale"].toDouble()};
    const AttentionGradients found = cudaCausalAttentionBackward(given, saved[5], saved[6], incoming[0]);
    return {found.q, found.k, found.v, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};
#endif

/** What attune::packed_attention takes. */
struct Packed {
  std::vector<int64_t> starts{0};  // [0, n₁, n₁ + n₂, …]
  std::vector<int64_t> prefixes;  // the sequence that each one continues, or −1; empty where none does
};

/** From sequences in any order. */
Packed packedOf(const Tensor& sequences, int64_t tokens) {
  const Tensor here = sequences.cpu().contiguous();
  std::vector<std::array<int32_t, 4>> sorted(here.size(0));
  if (!sorted.empty()) std::memcpy(sorted.data(), here.data_ptr<int32_t>(), here.nbytes());
  std::sort(sorted.begin(), sorted.end());
  Packed packed;
  for (const auto& sequence : sorted) {
    TORCH_CHECK(sequence[0] == packed.starts.back() && sequence[1] >= 0, "sequences lie end to end");
    packed.starts.push_back(packed.starts.back() + sequence[1]);
  }
  TORCH_CHECK(packed.starts.back() == tokens, "sequences have all tokens");
  for (size_t s = 0; s < sorted.size(); s++) {
    const int32_t prefixStart = sorted[s][2], prefixLength = sorted[s][3];
    if (prefixLength <= 0) continue;
    packed.prefixes.resize(sorted.size(), -1);
    const std::array<int32_t, 4> least{prefixStart, prefixLength, INT32_MIN, INT32_MIN};  // by length too: an empty one may begin here
    const auto prefix = std::lower_bound(sorted.begin(), sorted.end(), least);
    TORCH_CHECK(prefix != sorted.end() && (*prefix)[0] == prefixStart && (*prefix)[1] == prefixLength, "a prefix is a sequence");
    packed.prefixes[s] = prefix - sorted.begin();
  }
  return packed;
}

/** The length of the average token's sequence up to which these kernels are the better choice; 0 if there are none. */
int64_t causalAttentionLongest(const Tensor& q, const Tensor& k) {
#ifdef ATTUNE_KERNELS
  if (q.dim() == 3 && k.dim() == 3) return cudaCausalAttentionLongest(q, k);
#endif
  (void)q, (void)k;
  return 0;
}

Tensor causalAttention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& sequences, double scale,
                       const Optional<Tensor>& families, int64_t prefixTokens) {
  const auto isTable = [&](const Tensor& x, int64_t width) {
    return x.dim() == 2 && x.size(1) == width && x.scalar_type() == at::kInt && x.device() == q.device();
  };
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && v.sizes() == k.sizes(), "expected q [N, H, D], k and v [N, G, D]");
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(2) == k.size(2), "q and k differ in tokens or head size");
  TORCH_CHECK(k.size(1) > 0 && q.size(1) > 0 && q.size(1) % k.size(1) == 0, "query heads are a multiple of kv heads");
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(), "q, k and v differ in dtype");
  TORCH_CHECK(k.device() == q.device() && v.device() == q.device(), "all tensors are on one device");
  TORCH_CHECK(isTable(sequences, 4), "expected sequences int32 [S, 4] on the same device");
  TORCH_CHECK(!families.has_value() || (isTable(*families, 3) && families->size(0) > 0),
              "expected families int32 [F, 3] on the same device");
  // The kernels require that some keys belong to a family and some do not: the key gradients of each wait for the other's.
  TORCH_CHECK(families.has_value() ? prefixTokens > 0 && prefixTokens < q.size(0) : prefixTokens == 0,
              "prefixes have some of the tokens where there are families, else none");
#ifdef ATTUNE_KERNELS
  if (causalAttentionLongest(q, k) > 0) {
    if (!at::GradMode::is_enabled() || !(q.requires_grad() || k.requires_grad() || v.requires_grad()))
      return cudaCausalAttention({q, k, v, sequences, orUndefined(families), prefixTokens, scale}).first;
    return CausalAttentionCuda::apply(q, k, v, sequences, families, prefixTokens, scale);
  }
#endif
  const Packed packed = packedOf(sequences, q.size(0));
  return packedCausalAttention(q, k, v, packed.starts, packed.prefixes, scale);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "causal_attention(Tensor q, Tensor k, Tensor v, Tensor sequences, float scale, Tensor? families=None, int prefixTokens=0) -> Tensor");
  library.impl("causal_attention", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::causalAttention));
  library.def("causal_attention_longest(Tensor q, Tensor k) -> int");
  library.impl("causal_attention_longest", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::causalAttentionLongest));
}
