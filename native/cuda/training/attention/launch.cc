// Launches the kernels of training's attention on tensors.
#ifdef ATTUNE_KERNELS
#include "cuda/kernels.h"
#include "cuda/launching.h"
#include "cuda/training/attention/kernels.h"

namespace attune {
namespace {

using at::Tensor;

/** The tensor itself where rows of a token's heads are dense and can be loaded by 16 bytes, else a copy. */
Tensor denseHeads(const Tensor& x) {
  const bool dense = x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2)) && x.stride(0) % 8 == 0;
  return dense && isAligned(x) ? x : aligned(x);
}

/** The tensors that the arguments point to. */
struct Given {
  Tensor q, k, v, sequences, families;
  CausalAttentionArgs args{};

  Given(const CausalAttention& given, const Tensor& out, const Tensor& lse)
      : q(denseHeads(given.q)),
        k(denseHeads(given.k)),
        v(denseHeads(given.v)),
        sequences(aligned(given.sequences)),
        families(aligned(given.families)) {
    args.q = q.data_ptr();
    args.k = k.data_ptr();
    args.v = v.data_ptr();
    args.qStride = q.stride(0);
    args.kStride = k.stride(0);
    args.vStride = v.stride(0);
    args.out = out.data_ptr();
    args.lse = floats(lse);
    args.sequences = sequences.data_ptr<int32_t>();
    args.count = sequences.size(0);
    if (families.defined()) {
      args.families = families.data_ptr<int32_t>();
      args.familyCount = families.size(0);
      args.prefixTokens = given.prefixTokens;
    }
    args.tokens = q.size(0);
    args.heads = q.size(1);
    args.groups = k.size(1);
    args.size = q.size(2);
    args.share = static_cast<int>(args.heads / args.groups);
    args.scale = static_cast<float>(given.scale);
  }
};

}  // namespace

int64_t cudaCausalAttentionLongest(const Tensor& q, const Tensor& k) {
  if (!q.is_cuda() || (q.scalar_type() != at::kHalf && q.scalar_type() != at::kBFloat16)) return 0;
  const Launch launch(q);
  if (q.numel() == 0 || k.size(1) == 0) return 0;
  const int64_t tokens = q.size(0), share = q.size(1) / k.size(1);
  // rows, which are a token's query heads of one kv head, are divided exactly up to 2³² / share (places.cuh)
  const bool isCounted = tokens * q.size(1) < (int64_t{1} << 31) && tokens * share * share < (int64_t{1} << 32);
  return isCounted ? causalAttentionLongest(kindOf(q), q.size(2), static_cast<int>(share)) : 0;
}

std::pair<Tensor, Tensor> cudaCausalAttention(const CausalAttention& attention) {
  const Launch launch(attention.q);
  const Tensor out = at::empty(attention.q.sizes(), attention.q.options());
  const Tensor lse = at::empty({attention.k.size(1), attention.q.size(0), attention.q.size(1) / attention.k.size(1)},
                               attention.q.options().dtype(at::kFloat));
  const Given given(attention, out, lse);
  launchCausalAttention(kindOf(out), given.args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {out, lse};
}

AttentionGradients cudaCausalAttentionBackward(const CausalAttention& attention, const Tensor& out, const Tensor& lse,
                                               const Tensor& incoming) {
  const Launch launch(attention.q);
  const Given given(attention, out, lse);
  const Tensor gradient = aligned(incoming), dots = at::empty(lse.sizes(), lse.options());
  const auto like = [](const Tensor& x) { return at::empty(x.sizes(), x.options()); };
  AttentionGradients found{like(attention.q), like(attention.k), like(attention.v)};
  CausalAttentionBackwardArgs args{};
  args.forward = given.args;
  args.gradient = gradient.data_ptr();
  args.dots = floats(dots);
  args.dq = found.q.data_ptr();
  args.dk = found.k.data_ptr();
  args.dv = found.v.data_ptr();
  launchQueryGradients(kindOf(out), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  launchKeyGradients(kindOf(out), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return found;
}

}  // namespace attune
#endif
