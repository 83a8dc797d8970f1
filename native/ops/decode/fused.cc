// attune::decode_fused(qkv[B, (H + 2G)·D], q_weight?, k_weight?, eps, cos?, sin?, interleaved, keys, values, tables, slots, positions,
//                      heads, scale, window, key_scales?, value_scales?) -> [B, H, D]
//
// Attention of a decoding step, starting from the fused projection: norm and rotation of q and k, writing k and v to the cache, attention.
// It is one kernel on CUDA and one pass over the rows on the CPU, instead of nine operators. The plan's step (step.cc) uses it for every
// layer, and so does the general path (src/models/generate/decoding.ts) if `decode_fused_fits`.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "cpu/decode_rows.h"
#include "cuda/kernels.h"
#include "ops/decode/fused.h"
#include "ops/optional.h"

namespace attune {

using at::Tensor;

Tensor decodeFusedCpu(const FusedAttention& given, const CacheLayer& cache) {
  const int64_t rows = given.qkv.size(0), groups = cache.groups(), size = cache.size(),
                half = given.cosines.defined() ? given.cosines.size(1) : 0;
  Tensor out = at::empty({rows, given.heads, size}, given.qkv.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, given.qkv.scalar_type(), "decode_fused", [&] {
    const auto attend = [&](auto in) {
      in.rows = rows, in.heads = given.heads;
      in.q = given.qkv.data_ptr<scalar_t>(), in.k = in.q + in.heads * size, in.v = in.k + groups * size;
      in.qStride = in.kvStride = given.qkv.size(1);
      in.tables = given.tables.data_ptr<int32_t>(), in.tableWidth = given.tables.size(1);
      in.slots = given.slots.data_ptr<int64_t>(), in.positions = given.positions.data_ptr<int64_t>();
      in.scale = static_cast<float>(given.scale), in.window = given.window;
      if (given.qWeight.defined()) in.qWeight = given.qWeight.data_ptr<scalar_t>();
      if (given.kWeight.defined()) in.kWeight = given.kWeight.data_ptr<scalar_t>();
      in.eps = static_cast<float>(given.eps);
      if (half > 0) in.cosines = given.cosines.data_ptr<float>(), in.sines = given.sines.data_ptr<float>(), in.half = half;
      in.interleaved = given.interleaved;
      in.out = out.data_ptr<scalar_t>();
      decodeRows(in, cache);
    };
    cache.isEightBits() ? attend(DecodeRows<scalar_t, int8_t>()) : attend(DecodeRows<scalar_t>());
  });
  return out;
}

void checkTables(const Tensor& tables) {
  TORCH_CHECK(tables.dim() == 2 && tables.scalar_type() == at::kInt && tables.is_contiguous(), "expected tables [S, W], int32");
}

namespace {

void checkFused(const FusedAttention& given, const CacheLayer& cache) {
  const Tensor& x = given.qkv;
  const int64_t groups = cache.groups(), size = cache.size(), half = given.cosines.defined() ? given.cosines.size(1) : 0;
  TORCH_CHECK(groups > 0 && given.heads > 0 && given.heads % groups == 0, "query heads are a multiple of kv heads");
  for (const Tensor* weight : {&given.qWeight, &given.kWeight})
    TORCH_CHECK(
        !weight->defined() || (weight->numel() == size && weight->scalar_type() == x.scalar_type() && weight->device() == x.device()),
        "a norm's weight does not fit a head");
  for (const Tensor* angles : {&given.cosines, &given.sines})
    TORCH_CHECK(half == 0 || (angles->defined() && angles->scalar_type() == at::kFloat && angles->size(1) == half && 2 * half <= size &&
                              angles->device() == x.device()),
                "cos and sin are float32 and at most half a head wide");
  if (x.device().is_cpu()) checkPlaces(cache.keys, given.tables, given.slots, given.positions);
}

bool decodeFusedFits(const Tensor& qkv, [[maybe_unused]] int64_t headSize) {
  if (qkv.device().is_cpu()) return true;
#ifdef ATTUNE_KERNELS
  return qkv.is_cuda() && cudaAttentionFits(headSize, qkv.scalar_type());
#else
  return false;
#endif
}

Tensor decodeFused(const Tensor& qkv, const Optional<Tensor>& qWeight, const Optional<Tensor>& kWeight, double eps,
                   const Optional<Tensor>& cosines, const Optional<Tensor>& sines, bool interleaved, Tensor keys, Tensor values,
                   const Tensor& tables, const Tensor& slots, const Tensor& positions, int64_t heads, double scale, int64_t window,
                   const Optional<Tensor>& keyScales, const Optional<Tensor>& valueScales) {
  checkTables(tables);
  TORCH_CHECK(qkv.dim() == 2, "expected qkv [B, (H + 2G)·D]");
  const CacheLayer cache = cacheLayer(keys, values, keyScales, valueScales);
  checkCacheLayer(cache, qkv);
  TORCH_CHECK(qkv.size(1) == (heads + 2 * cache.groups()) * cache.size(), "the projection does not fit the heads and the cache");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong && slots.size(0) == qkv.size(0) &&
                  positions.size(0) == qkv.size(0),
              "one int64 slot and position per row");
  for (const Tensor* tensor : {&tables, &slots, &positions}) TORCH_CHECK(tensor->device() == qkv.device(), "all inputs are on one device");
  TORCH_CHECK(decodeFusedFits(qkv, cache.size()), "there is no such kernel for this device, dtype or head size");
  FusedAttention given;
  given.qkv = qkv.contiguous();
  given.qWeight = contiguousOrUndefined(qWeight);
  given.kWeight = contiguousOrUndefined(kWeight);
  given.cosines = contiguousOrUndefined(cosines);
  given.sines = contiguousOrUndefined(sines);
  given.tables = tables;
  given.slots = slots.contiguous();
  given.positions = positions.contiguous();
  given.eps = eps;
  given.interleaved = interleaved;
  given.heads = heads;
  given.scale = scale;
  given.window = window;
  checkFused(given, cache);
  TORCH_CHECK(!given.cosines.defined() || (given.cosines.size(0) == qkv.size(0) && given.sines.size(0) == qkv.size(0)),
              "one row of cos and sin per token");
  if (qkv.device().is_cpu()) return decodeFusedCpu(given, cache);
#ifdef ATTUNE_KERNELS
  return cudaDecodeFused(given, cache, AttentionOf::Projection);
#else
  return qkv;
#endif
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_fused_fits(Tensor qkv, int head_size) -> bool");
  library.impl("decode_fused_fits", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeFusedFits));
  library.def(
      "decode_fused(Tensor qkv, Tensor? q_weight, Tensor? k_weight, float eps, Tensor? cos, Tensor? sin, bool interleaved, Tensor(a!) "
      "keys, "
      "Tensor(b!) values, Tensor tables, Tensor slots, Tensor positions, int heads, float scale, int window=0, Tensor(c!)? "
      "key_scales=None, "
      "Tensor(d!)? value_scales=None) -> Tensor");
  library.impl("decode_fused", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeFused));
}
