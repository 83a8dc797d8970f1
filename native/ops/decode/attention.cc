// attune::decode_attention(q[B, H, D], k[B, G, D], v[B, G, D], keys[N, L, G, D], values[N, L, G, D], tables[S, W], slots[B],
//                          positions[B], …)
//
// With scales [N, G, L] of keys and of values, the cache is in 8 bits (cache/layer.h).
// The cache lies in N blocks of L positions: position p of a slot is p % L of the block tables[slot, p / L].
// Each row has one new token: its k and v are written to its slot of the cache at its position, and its query attends to the slot up to
// that position. Rows are independent, so a row's result does not depend on the others in the batch.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "cpu/decode_rows.h"
#include "cuda/kernels.h"
#include "ops/decode/cache/layer.h"
#include "ops/decode/fused.h"
#include "ops/optional.h"

namespace attune {
namespace {

using at::Tensor;

struct Sizes {
  int64_t rows, heads, groups, size, length;
};

// With ATen operators, for devices without our kernel: each slot's whole cache, with unseen positions masked out.
Tensor decodeComposed(const Tensor& q, const Tensor& k, const Tensor& v, CacheLayer& cache, const Tensor& tables, const Tensor& slots,
                      const Tensor& positions, const Tensor& bias, const Sizes& n, double scale, int64_t window) {
  const Tensor blocks = tables.index_select(0, slots).to(at::kLong);  // [B, W]
  const Tensor own = blocks.gather(1, positions.floor_divide(cache.block()).unsqueeze(1)).squeeze(1);
  const Tensor within = positions.remainder(cache.block());
  const auto write = [&](Tensor& to, const Tensor& scales, const Tensor& rows) {
    if (cache.isEightBits())
      writeCodes(to, scales, own, within, rows);
    else
      to.index_put_({own, within}, rows);
  };
  write(cache.keys, cache.keyScales, k);
  write(cache.values, cache.valueScales, v);
  const auto seen = [&](const Tensor& all, const Tensor& scales) {  // [B, W·L, G, D]
    const Tensor chosen =
        cache.isEightBits() ? blocksOf(all, scales, blocks.flatten(), q.scalar_type()) : all.index_select(0, blocks.flatten());
    return chosen.view({n.rows, n.length, n.groups, n.size});
  };
  const Tensor cachedKeys = seen(cache.keys, cache.keyScales);
  const Tensor grouped = q.view({n.rows, n.groups, n.heads / n.groups, n.size});
  Tensor scores = at::matmul(grouped, cachedKeys.permute({0, 2, 3, 1})).to(at::kFloat) * scale;  // [B, G, share, L]
  if (bias.defined()) scores = scores + bias.narrow(1, 0, n.length).view({1, n.groups, n.heads / n.groups, n.length});
  const Tensor place = at::arange(n.length, positions.options());
  const Tensor position = positions.view({-1, 1});
  Tensor hidden = place.unsqueeze(0).gt(position);
  if (window > 0) hidden = hidden.logical_or(place.unsqueeze(0).le(position - window));
  scores = scores.masked_fill(hidden.view({n.rows, 1, 1, n.length}), -INFINITY);
  const Tensor weights = at::softmax(scores, -1).to(q.scalar_type());
  // hidden values may be another row's, and infinite: 0 · ∞ is not 0
  const Tensor cachedValues = seen(cache.values, cache.valueScales).masked_fill(hidden.view({n.rows, n.length, 1, 1}), 0);
  return at::matmul(weights, cachedValues.permute({0, 2, 1, 3})).reshape({n.rows, n.heads, n.size});
}

Tensor decodeAttention(const Tensor& q, const Tensor& k, const Tensor& v, Tensor keys, Tensor values, const Tensor& tables,
                       const Tensor& slots, const Tensor& positions, double scale, int64_t window, const Optional<Tensor>& given,
                       const Optional<Tensor>& keyScales, const Optional<Tensor>& valueScales) {
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && keys.dim() == 4, "expected q [B, H, D], k and v [B, G, D], caches [N, L, G, D]");
  checkTables(tables);
  CacheLayer cache = cacheLayer(keys, values, keyScales, valueScales);
  checkCacheLayer(cache, q);
  const Sizes n{q.size(0), q.size(1), k.size(1), q.size(2), tables.size(1) * cache.block()};
  TORCH_CHECK(k.sizes() == v.sizes() && k.size(0) == n.rows && k.size(2) == n.size, "q, k and v do not fit together");
  TORCH_CHECK(cache.groups() == n.groups && cache.size() == n.size, "the caches do not fit k and v");
  for (const Tensor* tensor : {&k, &v, &tables, &slots, &positions})
    TORCH_CHECK(tensor->device() == q.device(), "all inputs are on one device");
  TORCH_CHECK(n.groups > 0 && n.heads > 0 && n.heads % n.groups == 0, "query heads are a multiple of kv heads");
  TORCH_CHECK(slots.dim() == 1 && slots.sizes() == positions.sizes() && slots.size(0) == n.rows, "one slot and position per row");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong, "slots and positions are int64");
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && k.scalar_type() == v.scalar_type(), "q, k and v differ in dtype");
  Tensor bias;
  if (given.has_value() && given->defined()) {
    TORCH_CHECK(given->dim() == 2 && given->size(0) == n.heads && given->size(1) >= n.length && given->device() == q.device(),
                "expected a bias [H, L]");
    bias = given->to(at::kFloat).contiguous();
  }
  if (!q.device().is_cpu()) {
#ifdef ATTUNE_KERNELS
    if (q.is_cuda() && cudaAttentionFits(n.size, q.scalar_type()))
      return cudaDecodeAttention(q.contiguous(), k.contiguous(), v.contiguous(), cache, tables, slots.contiguous(), positions.contiguous(),
                                 scale, window, bias);
#endif
    return decodeComposed(q.contiguous(), k, v, cache, tables, slots, positions, bias, n, scale, window);
  }
  const Tensor rowSlots = slots.contiguous(), rowPositions = positions.contiguous();
  checkPlaces(cache.keys, tables, rowSlots, rowPositions);
  Tensor out = at::empty({n.rows, n.heads, n.size}, q.options());
  const Tensor queries = q.contiguous(), newKeys = k.contiguous(), newValues = v.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, q.scalar_type(), "decode_attention", [&] {
    const auto attend = [&](auto in) {
      in.rows = n.rows, in.heads = n.heads;
      in.q = queries.data_ptr<scalar_t>(), in.k = newKeys.data_ptr<scalar_t>(), in.v = newValues.data_ptr<scalar_t>();
      in.qStride = n.heads * n.size, in.kvStride = n.groups * n.size;
      in.tables = tables.data_ptr<int32_t>(), in.tableWidth = tables.size(1);
      in.slots = rowSlots.data_ptr<int64_t>(), in.positions = rowPositions.data_ptr<int64_t>();
      in.scale = static_cast<float>(scale), in.window = window;
      if (bias.defined()) in.bias = bias.data_ptr<float>(), in.biasLength = bias.size(1);
      in.out = out.data_ptr<scalar_t>();
      decodeRows(in, cache);
    };
    cache.isEightBits() ? attend(DecodeRows<scalar_t, int8_t>()) : attend(DecodeRows<scalar_t>());
  });
  return out;
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "decode_attention(Tensor q, Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor tables, Tensor slots, Tensor positions, "
      "float scale, int window=0, Tensor? bias=None, Tensor(c!)? key_scales=None, Tensor(d!)? value_scales=None) -> Tensor");
  library.impl("decode_attention", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeAttention));
}
