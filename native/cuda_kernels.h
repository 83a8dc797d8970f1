// Our CUDA kernels behind ATen tensors (native/cuda_kernels.cu, compiled where nvcc is found).
#pragma once
#include <ATen/core/Tensor.h>

#include "logprob_rows.h"

namespace attune {

#ifdef ATTUNE_KERNELS
at::Tensor cudaRope(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, bool interleaved, float direction);
at::Tensor cudaSwiglu(const at::Tensor& x);
at::Tensor cudaSwigluBackward(const at::Tensor& x, const at::Tensor& gradient);
struct FusedQkv {
  const at::Tensor &fused, &qWeight, &kWeight, &cosines, &sines, &slots, &positions;
  double eps;
  bool interleaved;
  int64_t heads;
};
at::Tensor cudaDecodeQkv(const FusedQkv& inputs, at::Tensor& keys, at::Tensor& values);
bool cudaDecodeFits(int64_t headSize, c10::ScalarType dtype);
at::Tensor cudaDecodeAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor& keys, at::Tensor& values,
                               const at::Tensor& slots, const at::Tensor& positions, double scale, int64_t window, const at::Tensor& bias);
void cudaSample(const at::Tensor& logits, const at::Tensor& temperature, const at::Tensor& topK, const at::Tensor& topP, const at::Tensor& minP,
                const at::Tensor& seeds, const at::Tensor& counters, at::Tensor& ids, at::Tensor& logp);
void cudaRowStatistics(const at::Tensor& logits, const at::Tensor& targets, float inverse, at::Tensor& logp, at::Tensor& entropy, at::Tensor& lse);
at::Tensor cudaRowGradient(at::Tensor& logits, const RowGradient& incoming, c10::ScalarType dtype);
#endif

}  // namespace attune
