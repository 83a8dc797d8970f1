// The kernels of cuda_kernels.cu by raw pointers, so that nvcc compiles no libtorch header. cuda_launch.cc puts tensors before them.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace attune {

enum class Kind : int { Float32, Float16, BFloat16 };

struct RopeArgs {
  const void* x;
  const float *cosines, *sines;
  void* y;
  int64_t rows, heads, size, half, rowStride, headStride;
  bool interleaved;
  float direction;
};

struct DecodeArgs {
  const void *q, *k, *v;
  void *keys, *values, *out;
  const int64_t *slots, *positions;
  const float* bias;  // [heads, biasLength] or null
  int64_t biasLength, rows, heads, groups, size, length, window;
  float scale;
};

struct QkvArgs {
  const void* fused;  // [rows, (heads + 2·groups)·size]
  const void *qWeight, *kWeight;  // [size] or null: no norm
  const float *cosines, *sines;   // [rows, half] or null: no turn
  void *q, *keys, *values;
  const int64_t *slots, *positions;
  int64_t rows, heads, groups, size, half, length;
  float eps;
  bool interleaved;
};

struct SampleArgs {
  const float* logits;
  const float *temperature, *topP, *minP;
  const int64_t *topK, *seeds, *counters;
  int64_t* ids;
  float* logp;
  int64_t rows, size;
};

struct RowsArgs {
  float* logits;
  const int64_t* targets;
  float *logp, *entropy, *lse;
  const float *forLogp, *forEntropy;  // null where there is no gradient
  void* gradient;
  int64_t rows, size;
  float inverse;
  int64_t first;  // the word that the first column stands for
};

void launchRowStatistics(const RowsArgs& args, cudaStream_t stream);
void launchRowGradient(Kind kind, const RowsArgs& args, cudaStream_t stream);
void launchRope(Kind kind, const RopeArgs& args, cudaStream_t stream);
void launchSwiglu(Kind kind, const void* x, void* y, int64_t rows, int64_t size, cudaStream_t stream);
void launchSwigluBackward(Kind kind, const void* x, const void* gradient, void* dx, int64_t rows, int64_t size, cudaStream_t stream);
void launchQkv(Kind kind, const QkvArgs& args, cudaStream_t stream);
bool decodeFits(int64_t size);
void launchDecode(Kind kind, const DecodeArgs& args, cudaStream_t stream);
void launchSample(const SampleArgs& args, cudaStream_t stream);

}  // namespace attune
