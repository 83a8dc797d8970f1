// Attention of a packed training batch, for the operator in causal_attention.cc and its kernels.
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

struct CausalAttention {
  at::Tensor q, k, v;  // [N, H, D] and [N, G, D]
  at::Tensor sequences;  // [S, 2]: first token and length, longest first; int32
  double scale;
};

}  // namespace attune
