// Attention of a packed training batch, for the operator in causal_attention.cc and its kernels.
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

struct CausalAttention {
  at::Tensor q, k, v;  // [N, H, D] and [N, G, D]
  at::Tensor sequences;  // [S, 4], int32, those with the most keys first (causal_attention.cc)
  at::Tensor families;  // [F, 3], int32: the sequences that others continue; undefined if there are none
  int64_t prefixTokens;  // tokens that others continue
  double scale;
};

}  // namespace attune
