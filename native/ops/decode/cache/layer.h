// One layer's cache: keys and values of all slots, in the model's dtype or in 8 bits.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/optional.h"

namespace attune {

/**
 * keys, values: [blocks, positions of a block, kv heads, head size]. In 8 bits they are int8 codes, and a value is its code times the scale
 * of its token's head: keyScales, valueScales [blocks, kv heads, positions of a block], bf16. Undefined scales: the model's dtype.
 */
struct CacheLayer {
  at::Tensor keys, values, keyScales, valueScales;

  bool isEightBits() const { return keyScales.defined(); }
  int64_t block() const { return keys.size(1); }
  int64_t groups() const { return keys.size(2); }
  int64_t size() const { return keys.size(3); }
};

/** A layer from an operator's arguments. */
CacheLayer cacheLayer(const at::Tensor& keys, const at::Tensor& values, const Optional<at::Tensor>& keyScales,
                      const Optional<at::Tensor>& valueScales);

/** Checks that the shapes of its tensors match. */
void checkCacheSizes(const CacheLayer& cache);

/** Also checks that they are contiguous, on `like`'s device, and of its dtype or in 8 bits. */
void checkCacheLayer(const CacheLayer& cache, const at::Tensor& like);

/** Whether its tensors are contiguous, on `like`'s device, and of its dtype or in 8 bits. */
bool cacheLayerFits(const CacheLayer& cache, const at::Tensor& like);

/** Writes k and v [T, G, D] to the targets [T], int64 (write.cc). */
void cacheWrite(const CacheLayer& cache, const at::Tensor& targets, const at::Tensor& k, const at::Tensor& v);

/** Writes rows [N, G, D] as codes and scales to the blocks `blocks[N]` at their places `within[N]`, by ATen operators. */
void writeCodes(at::Tensor codes, at::Tensor scales, const at::Tensor& blocks, const at::Tensor& within, const at::Tensor& rows);

/** The numbers of these blocks, [N, positions of a block, G, D], in `dtype`. */
at::Tensor blocksOf(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& blocks, at::ScalarType dtype);

}  // namespace attune
