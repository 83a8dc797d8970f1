// Attention of packed training batches, forward and backward (ops/training/causal_attention.cc has the definition). Like raw.h, without
// libtorch.
#pragma once
#include "cuda/raw.h"

namespace attune {

/** Row r of a sequence and kv head is query r / share of head r % share, so that all heads of a kv head are rows of the same products. */
struct CausalAttentionArgs {
  const void *q, *k, *v;  // [tokens, heads, size] and [tokens, groups, size]; heads are neighbours
  int64_t qStride, kStride, vStride;  // from token to token
  void* out;  // [tokens, heads, size]
  float* lse;  // [groups, tokens · share]: log2 of the sum of the exponentials of a row's scores
  const int32_t *sequences, *families;  // [count, 4] and [familyCount, 3] (ops/training/causal_attention.cc)
  int64_t familyCount, prefixTokens;  // prefixTokens: the lengths of `families` added up
  int64_t count, tokens, heads, groups, size;
  int share;  // heads of a kv head
  float scale;
};

struct CausalAttentionBackwardArgs {
  CausalAttentionArgs forward;
  const void* gradient;  // ∂L/∂out
  float* dots;  // like lse: the sum of gradient ∘ out of a row
  void *dq, *dk, *dv;  // as dense as `out`
};

/**
 * Up to which length of the average token's sequence the kernels are as fast as libtorch's flash kernels or faster, forward and backward;
 * 0 where the current device has none for such heads.
 */
int64_t causalAttentionLongest(Kind kind, int64_t size, int share);
void launchCausalAttention(Kind kind, const CausalAttentionArgs& args, cudaStream_t stream);
void launchQueryGradients(Kind kind, const CausalAttentionBackwardArgs& args, cudaStream_t stream);
/** After launchQueryGradients, which writes `dots`. */
void launchKeyGradients(Kind kind, const CausalAttentionBackwardArgs& args, cudaStream_t stream);

}  // namespace attune
