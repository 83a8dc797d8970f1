// attune::cache_write_(keys[N, L, G, D], values, key_scales[N, G, L]?, value_scales?, targets[T], k[T, G, D], v[T, G, D])
//
// Writes keys and values of T tokens to a cache. `targets` are positions in the whole cache: block · L + position within it. A cache with
// scales is in 8 bits. For a token's head, scale = max|x| / 127, rounded up to bf16, and code = rint(x / scale). All-zero heads have scale
// 0; heads with a non-finite number have scale NaN.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include "cpu/cache_codes.h"
#include "cuda/kernels.h"
#include "ops/decode/cache/layer.h"

namespace attune {
namespace {

using at::Tensor;

void writeOnCpu(const Tensor& codes, const Tensor& scales, const Tensor& targets, const Tensor& rows) {
  const int64_t block = codes.size(1), groups = codes.size(2), size = codes.size(3);
  const int64_t* places = targets.data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, rows.scalar_type(), "cache_write_", [&] {
    const scalar_t* from = rows.data_ptr<scalar_t>();
    int8_t* to = codes.data_ptr<int8_t>();
    at::BFloat16* scale = scales.data_ptr<at::BFloat16>();
    at::parallel_for(0, targets.size(0), 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++)
        for (int64_t group = 0, place = places[i]; group < groups; group++)
          scale[(place / block * groups + group) * block + place % block] =
              writeHead(from + (i * groups + group) * size, size, to + (place * groups + group) * size);
    });
  });
}

void checkTargets(const Tensor& targets, int64_t positions) {
  const int64_t* places = targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.size(0); i++) TORCH_CHECK(places[i] >= 0 && places[i] < positions, "a target lies outside the cache");
}

}  // namespace

void cacheWrite(const CacheLayer& cache, const Tensor& targets, const Tensor& k, const Tensor& v) {
  const Tensor &keys = cache.keys, &values = cache.values;
  checkCacheLayer(cache, k);
  TORCH_CHECK(k.dim() == 3 && k.sizes() == v.sizes() && k.size(1) == cache.groups() && k.size(2) == cache.size(),
              "expected k and v [T, G, D] that fit the cache");
  TORCH_CHECK(targets.dim() == 1 && targets.size(0) == k.size(0) && targets.scalar_type() == at::kLong, "one int64 target per token");
  TORCH_CHECK(k.is_floating_point() && k.scalar_type() == v.scalar_type(), "k and v are of one floating dtype");
  for (const Tensor* tensor : {&targets, &v}) TORCH_CHECK(tensor->device() == k.device(), "all inputs are on one device");
  if (!cache.isEightBits()) {
#ifdef ATTUNE_KERNELS
    if (k.is_cuda() && cudaCacheCopy(cache, targets, k, v)) return;
#endif
    keys.flatten(0, 1).index_copy_(0, targets, k);
    values.flatten(0, 1).index_copy_(0, targets, v);
    return;
  }
  if (k.device().is_cpu()) {
    const Tensor places = targets.contiguous();
    checkTargets(places, keys.size(0) * cache.block());
    writeOnCpu(keys, cache.keyScales, places, k.contiguous());
    writeOnCpu(values, cache.valueScales, places, v.contiguous());
    return;
  }
#ifdef ATTUNE_KERNELS
  if (cudaCacheWriteFits(k)) return cudaCacheWrite(cache, targets, k, v);
#endif
  const Tensor blocks = targets.floor_divide(cache.block()), within = targets.remainder(cache.block());
  writeCodes(keys, cache.keyScales, blocks, within, k);
  writeCodes(values, cache.valueScales, blocks, within, v);
}

namespace {

void cacheWriteOperator(Tensor keys, Tensor values, const Optional<Tensor>& keyScales, const Optional<Tensor>& valueScales,
                        const Tensor& targets, const Tensor& k, const Tensor& v) {
  cacheWrite(cacheLayer(keys, values, keyScales, valueScales), targets, k, v);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "cache_write_(Tensor(a!) keys, Tensor(b!) values, Tensor(c!)? key_scales, Tensor(d!)? value_scales, Tensor targets, Tensor k, "
      "Tensor v) -> ()");
  library.impl("cache_write_", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::cacheWriteOperator));
}
