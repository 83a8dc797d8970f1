// A decoding step's attention from the fused projection on (native/ops/decode_fused.cc).
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

/** Contiguous tensors; the norms' weights, cos and sin may be undefined. */
struct FusedAttention {
  at::Tensor qkv, qWeight, kWeight, cosines, sines, slots, positions;
  double eps;
  bool interleaved;
  int64_t heads;
  double scale;
  int64_t window;
};

/** Whether the parts fit the rows `x`, a projection or what it is made from, and the cache. */
void checkFused(const FusedAttention& given, const at::Tensor& x, const at::Tensor& keys);

/** [B, H, D]. */
at::Tensor decodeFusedCpu(const FusedAttention& given, at::Tensor& keys, at::Tensor& values);

}  // namespace attune
