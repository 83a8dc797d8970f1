// The kernels of the .cu files take raw pointers, so that nvcc compiles no libtorch header. launch.cc calls them with tensors.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

struct __nv_bfloat16;

namespace attune {

/** Positions of a block of the cache. */
constexpr int kCacheBlock = 64;

enum class Kind : int { Float32, Float16, BFloat16 };

struct RopeArgs {
  const void* x;
  const float *cosines, *sines;
  void* y;
  int64_t rows, heads, size, half, rowStride, headStride;
  bool interleaved;
  float direction;
};

struct AttentionArgs {
  const void *q, *k, *v;  // rows of heads·size and of groups·size
  int64_t qStride, kvStride;  // from row to row
  const void *qWeight, *kWeight;  // [size] or null: no norm
  const float *cosines, *sines;  // [rows, half], or of a step one row per position; or null: no turn
  void *keys, *values, *out;  // keys and values: [blocks, kCacheBlock, groups, size]
  const int32_t* tables;  // [slots, tableWidth]: the blocks of each slot (head.cuh)
  const int64_t *slots, *positions;
  const float* bias;  // [heads, biasLength] or null
  int64_t biasLength, rows, heads, groups, size, half, tableWidth, window;
  int64_t spareSlot = -1;  // rows in it at position 0 are idle, of whose results nothing is asked; −1: none
  float scale, eps;
  bool interleaved;
  bool ofStep;  // everything but q, k and v was written before the first kernel of the step began
  bool isNarrow;  // of a model whose products leave room for its blocks beside theirs (staged_product.cu)
  bool isAlone;  // of a step whose products leave no room beside theirs (narrow_product.cu)
  int64_t mostChunks;  // attentionChunks
  float* partial;  // room for attentionPartials numbers
  // Of a cache in 8 bits, else null: [blocks, groups, kCacheBlock]. Keys and values are int8 then, and a number is its code times the
  // scale of its token and kv head (attention/eight_bit_head.cuh).
  __nv_bfloat16 *keyScales, *valueScales;
};

/** New tokens' keys and values, which go to a cache. */
struct CacheWriteArgs {
  struct Part {
    const void* rows;  // [count, groups·size]
    int64_t rowStride;  // from row to row
    void* cache;
    __nv_bfloat16* scales;  // null unless the cache is in 8 bits
  } parts[2];  // keys and values
  const int64_t* places;  // [count]: a block's number · kCacheBlock + the position within it
  int64_t count, groups, size;
  int64_t positions;  // of the cache: places lie below
};

/** Tokens of prompts, each a row; those of one prompt are neighbours. */
struct PromptAttentionArgs {
  AttentionArgs rows;  // of a projection: one row of cos and sin per row, no bias
  void* queries;  // [rows, heads, size]
  float *sums, *peaks, *totals;  // [splits, rows, heads, size] and [splits, rows, heads]
  int64_t splits;  // the keys are dealt to so many blocks
};

/** All tensors are of one dtype, f16 or bf16; bf16 for quantised matrices. */
struct ProductArgs {
  const void *x, *weight;  // [rows, inputs] and [outputs, inputs], or [2·outputs, inputs] where gated: gates first
  const void *bias, *norm;  // one per row of the weight, one per input; or null
  void* y;  // [rows, outputs]
  int64_t rows, inputs, outputs;
  float eps;
  bool gated, add;
};

struct SampleArgs {
  const void* logits;
  const float *temperature, *topP, *minP;
  const int64_t *topK, *seeds, *counters;
  int64_t* ids;
  float *logp, *kept;  // kept: the share of the mass that the cuts left
  int64_t rows, size;
  // Rows that go on by themselves (ops/decode/advance.cc), else null. They have no counters, and ids, logp and kept are [most, stride].
  int64_t *last, *positions, *limits, *slots, *turns;
  int64_t idleSlot, most, stride;
};

struct GatherArgs {
  const void* table;
  const int64_t* ids;
  void* out;
  int64_t rows, bytes;  // bytes of a row: a multiple of 16, as are the addresses
};

struct RowsArgs {
  float* logits;
  const int64_t* targets;
  float *logp, *entropy, *lse;
  const float *forLogp, *forEntropy;  // null where there is no gradient
  void* gradient;
  int64_t rows, size;
  float inverse;
  int64_t first;  // the token id of the first column
};

void launchRowStatistics(const RowsArgs& args, cudaStream_t stream);
void launchRowGradient(Kind kind, const RowsArgs& args, cudaStream_t stream);
void launchRope(Kind kind, const RopeArgs& args, cudaStream_t stream);
void launchSwiglu(Kind kind, const void* x, void* y, int64_t rows, int64_t size, cudaStream_t stream);
void launchSwigluBackward(Kind kind, const void* x, const void* gradient, void* dx, int64_t rows, int64_t size, cudaStream_t stream);
bool attentionFits(int64_t size);
/** Into how many chunks a row's keys are cut at most, and how many numbers the results of all chunks are: 0 where it is one chunk. */
int64_t attentionChunks(const AttentionArgs& args);
int64_t attentionPartials(const AttentionArgs& args);
void launchAttention(Kind kind, const AttentionArgs& args, cudaStream_t stream);
/** Returns false, and does nothing, for a device, dtype or head size that it does not support. */
bool launchAttentionMma(Kind kind, const AttentionArgs& args, cudaStream_t stream);
void launchCacheWrite(Kind kind, const CacheWriteArgs& args, cudaStream_t stream);
/** The same into a cache of the rows' dtype, numbers of so many bytes. False, and nothing done, where rows cannot be loaded by 16 bytes. */
bool launchCacheCopy(const CacheWriteArgs& args, int64_t bytes, cudaStream_t stream);
bool promptAttentionFits(Kind kind, int64_t size);
void launchPromptAttention(Kind kind, const PromptAttentionArgs& args, cudaStream_t stream);
/** `outputs`: as in ProductArgs. */
bool productFits(int64_t rows, int64_t inputs, int64_t outputs, bool norm, bool gated);
void launchProduct(Kind kind, const ProductArgs& args, cudaStream_t stream);
/** The same for shapes of which a block's weights fit beside the next kernels'; false, and nothing done, for others. */
bool launchStagedProduct(Kind kind, const ProductArgs& args, cudaStream_t stream);
void launchSample(Kind kind, const SampleArgs& args, cudaStream_t stream);
void launchGather(const GatherArgs& args, cudaStream_t stream);

}  // namespace attune
