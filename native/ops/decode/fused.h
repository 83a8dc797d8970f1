// Attention of a decoding step, starting from the fused projection (fused.cc).
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/decode/cache/layer.h"

namespace attune {

/** Contiguous tensors; the norms' weights, cos and sin may be undefined. */
struct FusedAttention {
  at::Tensor qkv, qWeight, kWeight, cosines, sines, tables, slots, positions;
  double eps = 0;
  bool interleaved = false;
  int64_t heads = 0;
  double scale = 1;
  int64_t window = 0;
  int64_t spareSlot = -1;  // rows at position 0 of this slot are idle: their results may be anything
  bool isNarrow = false;  // for models whose products take little shared memory (cuda/staged_product.cu)
  bool isAlone = false;  // between products that take all of a multiprocessor's shared memory (cuda/narrow/narrow_product.cu)
};

/** Checks the table of the cache's blocks: [slots, most blocks of a slot]. */
void checkTables(const at::Tensor& tables);

/** [B, H, D]; the cache is written to. */
at::Tensor decodeFusedCpu(const FusedAttention& given, const CacheLayer& cache);

}  // namespace attune
