// attune::decode_fused(qkv[B, (H + 2G)·D], q_weight?, k_weight?, eps, cos?, sin?, interleaved, keys, values, slots, positions, heads,
//                      scale, window) -> [B, H, D]
//
// A decoding step's attention from the fused projection on: norm and turn of q and k, k and v into the cache, attention. Two
// kernels of ours on CUDA instead of nine operators; src/models/decoding.ts takes this way only where `decode_fused_fits`.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "cuda_kernels.h"
#include "optional.h"

namespace attune {
namespace {

using at::Tensor;

bool decodeFusedFits(const Tensor& qkv, int64_t headSize) {
#ifdef ATTUNE_KERNELS
  return qkv.is_cuda() && cudaDecodeFits(headSize, qkv.scalar_type());
#else
  return false && qkv.is_cuda() && headSize > 0;
#endif
}

Tensor decodeFused(const Tensor& qkv, const Optional<Tensor>& qWeight, const Optional<Tensor>& kWeight, double eps, const Optional<Tensor>& cosines,
                   const Optional<Tensor>& sines, bool interleaved, Tensor keys, Tensor values, const Tensor& slots, const Tensor& positions,
                   int64_t heads, double scale, int64_t window) {
  TORCH_CHECK(qkv.dim() == 2 && keys.dim() == 4 && keys.sizes() == values.sizes(), "expected qkv [B, (H + 2G)·D], caches [S, L, G, D]");
  TORCH_CHECK(qkv.size(1) == (heads + 2 * keys.size(2)) * keys.size(3), "the projection does not fit the heads and the cache");
  TORCH_CHECK(keys.is_contiguous() && values.is_contiguous() && keys.scalar_type() == qkv.scalar_type(), "contiguous caches of qkv's dtype");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong && slots.size(0) == qkv.size(0) &&
                  positions.size(0) == qkv.size(0), "one int64 slot and position per row");
  TORCH_CHECK(decodeFusedFits(qkv, keys.size(3)), "there is no such kernel for this device, dtype or head size");
#ifdef ATTUNE_KERNELS
  const auto given = [](const Optional<Tensor>& tensor) { return tensor.has_value() && tensor->defined() ? tensor->contiguous() : Tensor(); };
  const Tensor fused = qkv.contiguous(), qw = given(qWeight), kw = given(kWeight), c = given(cosines), s = given(sines);
  const Tensor rowSlots = slots.contiguous(), rowPositions = positions.contiguous();
  const Tensor q = cudaDecodeQkv({fused, qw, kw, c, s, rowSlots, rowPositions, eps, interleaved, heads}, keys, values);
  return cudaDecodeAttention(q, Tensor(), Tensor(), keys, values, rowSlots, rowPositions, scale, window, Tensor());
#else
  return qkv;
#endif
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_fused_fits(Tensor qkv, int head_size) -> bool");
  library.impl("decode_fused_fits", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeFusedFits));
  library.def(
      "decode_fused(Tensor qkv, Tensor? q_weight, Tensor? k_weight, float eps, Tensor? cos, Tensor? sin, bool interleaved, Tensor(a!) keys, "
      "Tensor(b!) values, Tensor slots, Tensor positions, int heads, float scale, int window=0) -> Tensor");
  library.impl("decode_fused", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeFused));
}
