// Our CUDA kernels (native/cuda/*.cu, compiled if nvcc is found) as functions of ATen tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/decode/fused.h"
#include "ops/decode/sample_rows.h"
#include "ops/logprob_rows.h"
#include "ops/training/adamw.h"
#include "ops/training/causal_attention.h"
#include "ops/training/heads.h"

namespace attune {

#ifdef ATTUNE_KERNELS
at::Tensor cudaRope(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, bool interleaved, float direction);
at::Tensor cudaSwiglu(const at::Tensor& x);
void cudaSwigluInto(const at::Tensor& x, at::Tensor& y);
at::Tensor cudaSwigluBackward(const at::Tensor& x, const at::Tensor& gradient);

/** Whether the norm kernels take rows of this tensor's last size. */
bool cudaNormFits(const at::Tensor& x);
struct Normed {
  at::Tensor sum, y;
};
/** The norm of x + added, and that sum; of x where `added` is undefined, and then `sum` is x. */
Normed cudaNorm(const at::Tensor& x, const at::Tensor& added, const at::Tensor& weight, double eps);
struct NormGradients {
  at::Tensor x, weight;  // the weight's is undefined where it is not wanted
};
/** `past`: ∂L/∂x by the way past the norm, or undefined. */
NormGradients cudaNormBackward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gradient, const at::Tensor& past,
                               double eps, bool wantWeight);

/** Whether the kernels of heads take these. */
bool cudaHeadsFit(const SplitHeads& given);
/** q and k. */
std::pair<at::Tensor, at::Tensor> cudaHeads(const SplitHeads& given);
struct HeadGradients {
  at::Tensor qkv, qWeight, kWeight;
};
/** Gradients of q, k and v may be undefined; those of the weights are where they are not wanted. */
HeadGradients cudaHeadsBackward(const SplitHeads& given, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv,
                                bool wantWeights);

/** Up to which length of the average token's sequence training's attention has kernels for these q and k that are the ones to take. */
int64_t cudaCausalAttentionLongest(const at::Tensor& q, const at::Tensor& k);
/** The result, and what backward needs of the rows' scores (cuda/training/attention/kernels.h: lse). */
std::pair<at::Tensor, at::Tensor> cudaCausalAttention(const CausalAttention& attention);
struct AttentionGradients {
  at::Tensor q, k, v;
};
AttentionGradients cudaCausalAttentionBackward(const CausalAttention& attention, const at::Tensor& out, const at::Tensor& lse,
                                               const at::Tensor& gradient);

/** Whether the parts of a projection's LoRA can be joined in one launch: they are few, and of one dtype on one device. */
bool cudaJoinFits(const at::Tensor& x, at::TensorList parts);
/** All parts' A below one another [R, K] and their B as blocks of a matrix [M, R], times their scales, in x's dtype (lora_linear.cc). */
std::pair<at::Tensor, at::Tensor> cudaJoin(const at::Tensor& x, int64_t outputs, at::TensorList parts, at::ArrayRef<double> scales,
                                           at::IntArrayRef starts);

/**
 * One AdamW update of f32 masters, and of their half-precision copies where `parameters` is not empty; all on one device. Gradients
 * are multiplied with `factor` where it is defined; NaN leaves everything as it is.
 */
void cudaUpdate(at::TensorList masters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
                at::TensorList parameters, const AdamWRule& rule, const at::Tensor& factor);
/** The sum of squares of all tensors, f64; they are of one dtype and on one device. */
at::Tensor cudaSquares(at::TensorList tensors);

bool cudaAttentionFits(int64_t headSize, c10::ScalarType dtype);
/**
 * Step: of what is given here, the step's kernels so far have written qkv alone, and cos and sin are the whole tables.
 * Projection: no such assumption, and one row of cos and sin per row.
 */
enum class AttentionOf { Projection, Step };
at::Tensor cudaDecodeFused(const FusedAttention& given, const CacheLayer& cache, AttentionOf what);
at::Tensor cudaDecodeAttention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const CacheLayer& cache,
                               const at::Tensor& tables, const at::Tensor& slots, const at::Tensor& positions, double scale, int64_t window,
                               const at::Tensor& bias);
/** Whether the kernel that writes to a cache in 8 bits takes these rows. */
bool cudaCacheWriteFits(const at::Tensor& rows);
/** Writes k and v [T, G, D] in 8 bits to the targets [T] (ops/decode/cache/write.cc). */
void cudaCacheWrite(const CacheLayer& cache, const at::Tensor& targets, const at::Tensor& k, const at::Tensor& v);
/** The same into a cache of the model's dtype. False, and nothing done, where rows cannot be loaded by 16 bytes. */
bool cudaCacheCopy(const CacheLayer& cache, const at::Tensor& targets, const at::Tensor& k, const at::Tensor& v);
struct FewRowsProduct {
  const at::Tensor &x, &weight, &bias, &norm;  // bias and norm may be undefined
  double eps;
  bool gated, add;
};
/** Whether cudaProduct multiplies these, and no slower than libtorch. */
bool cudaProductFits(const FewRowsProduct& given);
void cudaProduct(const FewRowsProduct& given, at::Tensor& y);
void cudaSample(const at::Tensor& logits, const SamplingRule& rule, const at::Tensor& counters, Drawn& out);
void cudaSampleAdvance(const at::Tensor& logits, const SamplingRule& rule, const GoingRows& rows, Drawn& out);

/**
 * The beginning of a step: the rows of a table [N, width] at the ids. `cleared`, where it is defined, becomes zero. The matrices of `ahead` come into
 * the L2 cache, as far as half of it has room: in a graph of several steps the kernel begins while the tokens of the last step are drawn.
 */
at::Tensor cudaBeginStep(const at::Tensor& table, const at::Tensor& ids, const at::Tensor& cleared, const std::vector<at::Tensor>& ahead);
/** norm(x)·weightᵀ, the end of a step; undefined, and nothing done, for what has no kernel. `packed`: the weight by cudaPack, or undefined. */
at::Tensor cudaVocabulary(const at::Tensor& x, const at::Tensor& norm, double eps, const at::Tensor& weight, const at::Tensor& packed = {});
/** What the matrix takes in 12 bits a weight (packed/cells.cuh); 0 where steps of so many rows would not read it. gates: of an MLP, else the vocabulary's. */
int64_t cudaPackedBytes(const at::Tensor& weight, bool gates, int64_t rows);
/** False where too many weights are far from the others of their row. It waits for the device. */
bool cudaPack(const at::Tensor& weight, bool gates, at::Tensor& packed);
void cudaRowStatistics(const at::Tensor& logits, const at::Tensor& targets, float inverse, at::Tensor& logp, at::Tensor& entropy,
                       at::Tensor& lse);
at::Tensor cudaRowGradient(at::Tensor& logits, const RowGradient& incoming, c10::ScalarType dtype);
#endif

}  // namespace attune
