#include "ops/decode/cache/layer.h"

#include <ATen/ATen.h>

#include <limits>

namespace attune {

using at::Tensor;

CacheLayer cacheLayer(const Tensor& keys, const Tensor& values, const Optional<Tensor>& keyScales, const Optional<Tensor>& valueScales) {
  return {keys, values, orUndefined(keyScales), orUndefined(valueScales)};
}

bool cacheLayerFits(const CacheLayer& cache, const Tensor& like) {
  const auto fits = [&](const Tensor& tensor, at::ScalarType dtype) {
    return tensor.is_contiguous() && tensor.device() == like.device() && tensor.scalar_type() == dtype;
  };
  const at::ScalarType dtype = cache.isEightBits() ? at::kChar : like.scalar_type();
  if (!fits(cache.keys, dtype) || !fits(cache.values, dtype)) return false;
  return !cache.isEightBits() || (fits(cache.keyScales, at::kBFloat16) && fits(cache.valueScales, at::kBFloat16));
}

void checkCacheSizes(const CacheLayer& cache) {
  TORCH_CHECK(cache.keys.dim() == 4 && cache.keys.sizes() == cache.values.sizes(), "expected caches [N, L, G, D] of one size");
  TORCH_CHECK(cache.keyScales.defined() == cache.valueScales.defined(), "a cache in 8 bits has scales of keys and of values");
  for (const Tensor* scales : {&cache.keyScales, &cache.valueScales})
    TORCH_CHECK(!scales->defined() || (scales->dim() == 3 && scales->size(0) == cache.keys.size(0) && scales->size(1) == cache.groups() &&
                                       scales->size(2) == cache.block()),
                "expected scales [N, G, L]");
}

void checkCacheLayer(const CacheLayer& cache, const Tensor& like) {
  checkCacheSizes(cache);
  TORCH_CHECK(cacheLayerFits(cache, like),
              "caches are contiguous, on the inputs' device and of their dtype, or int8 codes with bfloat16 scales");
}

void writeCodes(Tensor codes, Tensor scales, const Tensor& blocks, const Tensor& within, const Tensor& rows) {
  const Tensor x = rows.to(at::kFloat);
  const Tensor most = x.abs().amax(-1, /*keepdim=*/true);  // [N, G, 1]
  const Tensor largest = at::full({1}, 127.0, x.options());  // a tensor: CUDA would multiply by a number's inverse and round otherwise
  const Tensor bits = (most / largest).view(at::kInt);
  const Tensor scale = bits.add(0xFFFF).bitwise_and(~int64_t{0xFFFF}).view(at::kFloat).masked_fill(at::isfinite(most).logical_not(), std::numeric_limits<float>::quiet_NaN());
  const Tensor numbers = (x / scale).round().clamp(-127, 127).masked_fill(scale.gt(0).logical_not(), 0);
  codes.index_put_({blocks, within}, numbers.to(at::kChar));
  scales.permute({0, 2, 1}).index_put_({blocks, within}, scale.squeeze(-1).to(at::kBFloat16));
}

Tensor blocksOf(const Tensor& codes, const Tensor& scales, const Tensor& blocks, at::ScalarType dtype) {
  const Tensor chosen = scales.index_select(0, blocks).permute({0, 2, 1}).unsqueeze(-1);  // [N, L, G, 1]
  return (codes.index_select(0, blocks).to(at::kFloat) * chosen).to(dtype);
}

}  // namespace attune
