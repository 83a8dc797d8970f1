// A one-row step with fewer kernels per layer: attention and the product after it are one (attention.cu), and the next product adds their
// sums to x (gates.cu).
#pragma once
#include "cuda/raw.h"

namespace attune {

/** The product after attention, in bf16. Its results are added to sums in units of 2^-32 (fixed_sums.cuh). */
struct SoloProduct {
  const void* weight;  // [width, heads·size]
  long long *added, *cleared;  // [width]: what is added to, and what becomes zero
};

/** active = SwiGLU(norm(x + added)·weightᵀ + bias), of one row in bf16. */
struct SoloGates {
  const void* x;  // [width]
  const long long* added;  // [width]
  void* sum;  // [width]: x + added
  const void *weight, *bias, *norm;  // [2·outputs, width], gates first; bias or null
  void* active;  // [outputs]
  int64_t outputs;
  float eps;
};

bool soloGatesFit(int64_t width, int64_t outputs);
void launchSoloGates(const SoloGates& args, cudaStream_t stream);
/** Whether launchSoloAttention takes these; `ofStep` is assumed. */
bool soloAttentionFits(const AttentionArgs& args, int64_t width);
void launchSoloAttention(const AttentionArgs& args, const SoloProduct& product, cudaStream_t stream);

}  // namespace attune
