// linear_logprob's work per row of logits: one or two passes over each row, instead of one per formula.
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

struct RowGradient {
  const at::Tensor &targets, &lse, &entropy;
  /** ∂L/∂logp and ∂L/∂entropy, f32 [n]; undefined if there is none. */
  const at::Tensor &forLogp, &forEntropy;
  double inverse;  // 1 / temperature
  int64_t first;  // the token id of the first column
};

/** Whether a device has these kernels for f32 logits. */
bool hasRowKernels(const at::Tensor& logits);
/** logp, entropy and logsumexp [n] of z = logits[n, V] / temperature. */
void rowStatistics(const at::Tensor& logits, const at::Tensor& targets, float inverse, at::Tensor logp, at::Tensor entropy, at::Tensor lse);
/** ∂L/∂logits in `dtype` for some columns of the logits, which are overwritten. */
at::Tensor rowGradient(at::Tensor logits, const RowGradient& incoming, c10::ScalarType dtype);

}  // namespace attune
