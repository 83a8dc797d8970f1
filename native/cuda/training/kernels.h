// The kernels of a training step: norms, heads, SwiGLU, the optimiser. Like raw.h, without libtorch.
#pragma once
#include "cuda/raw.h"

namespace attune {

/** y = x/√(mean x² + ε)·weight of rows, rounded before the weight as Llama does. */
struct NormArgs {
  const void *x, *added;  // [rows, size]; the norm is of x + added, which goes to `sum`, or of x where `added` is null
  const void* weight;
  void *sum, *y;
  int64_t rows, size;
  float eps;
};

struct NormBackwardArgs {
  const void *x, *weight;  // what the norm was of
  const void *gradient, *past;  // ∂L/∂y, and ∂L/∂x by the way past the norm or null
  void* dx;
  float* partial;  // [normBackwardBlocks, size]
  void* dWeight;
  int64_t rows, size;
  float eps;
};

/** The fused projection's rows [rows, (heads + 2·groups)·size]: norm and rotation of q and k. Pairs are (i, i + size/2). */
struct HeadsArgs {
  const void* qkv;
  const void *qWeight, *kWeight;  // [size], or null: no norm
  const float *cosines, *sines;  // [rows, size/2], or null: no rotation
  void *q, *k;  // [rows, heads, size] and [rows, groups, size]
  int64_t rows, heads, groups, size;
  float eps;
};

struct HeadsBackwardArgs {
  HeadsArgs forward;  // q and k are not used
  const void *dq, *dk, *dv;
  void* dqkv;
  float* partial;  // [headsBackwardBlocks, 2·size], with norms
  void *dqWeight, *dkWeight;
};

/** Whether the norm kernels take rows of this size. */
bool normFits(Kind kind, int64_t size);
void launchNorm(Kind kind, const NormArgs& args, cudaStream_t stream);
int64_t normBackwardBlocks(Kind kind, int64_t rows, int64_t size);
void launchNormBackward(Kind kind, const NormBackwardArgs& args, cudaStream_t stream);

/** Whether the kernels of heads take heads of this size. */
bool headsFit(int64_t size);
void launchHeads(Kind kind, const HeadsArgs& args, cudaStream_t stream);
int64_t headsBackwardBlocks(int64_t rows);
void launchHeadsBackward(Kind kind, const HeadsBackwardArgs& args, cudaStream_t stream);

constexpr int kMostJoined = 8;

/** A part of a projection's LoRA: A `down` [ranks, inputs] and B `up` [rows, ranks], which changes the outputs from `start` on. */
struct JoinPart {
  const void *down, *up;
  int64_t firstRank, ranks, start, rows;
  float scale;
};

struct JoinArgs {
  JoinPart parts[kMostJoined];  // in the order of their ranks
  int count;
  void *down, *up;  // [ranks, inputs] and [outputs, ranks]
  int64_t ranks, inputs, outputs;
};

void launchJoin(Kind model, Kind parts, const JoinArgs& args, cudaStream_t stream);

/** One tensor of an update; `parameter` is the half-precision copy of the master, or null. */
struct UpdatedTensor {
  float *master, *average, *square;
  const void* gradient;
  void* parameter;
  int64_t size;
};

/** The constants of an AdamW update (ops/training/adamw.cc). */
struct UpdateRule {
  float shrink, beta1, fresh1, beta2, fresh2, correction2, eps, rate;
  const float* factor;  // of the gradient, on the device; null: 1. NaN: nothing is updated
};

/** Updates all tensors; `gradient` and `parameter` say in which numbers those are held. */
void launchUpdate(Kind gradient, Kind parameter, const UpdatedTensor* tensors, int64_t count, const UpdateRule& rule, cudaStream_t stream);

struct SummedTensor {
  const void* values;
  int64_t size;
};

/** How many partial sums `launchSquares` writes. */
int64_t squaresBlocks(const SummedTensor* tensors, int64_t count);
/** The sum of squares of all tensors, added in an order that depends on their sizes alone. */
void launchSquares(Kind kind, const SummedTensor* tensors, int64_t count, float* partial, double* sum, cudaStream_t stream);

}  // namespace attune
