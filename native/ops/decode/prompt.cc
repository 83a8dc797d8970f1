// attune::prompt_fused(qkv[N, (H + 2G)·D], q_weight?, k_weight?, eps, cos?, sin?, interleaved, keys, values, tables, slots, positions,
//                      heads, scale, window, key_scales?, value_scales?) -> [N, H, D]
//
// Attention of prompts' tokens, each a row with its slot and position: the results of decode_fused for them one after the other, in the
// order of their positions. A prompt's rows are neighbours, so a kernel reads a key once for several of them. Without such a kernel, and on
// the CPU, it is decode_fused row by row.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "ops/decode/fused.h"
#include "ops/optional.h"
#ifdef ATTUNE_KERNELS
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/raw.h"
#endif

namespace attune {
namespace {

using at::Tensor;

#ifdef ATTUNE_KERNELS
bool kernelFits(const Tensor& x, int64_t headSize) {
  if (!x.is_cuda() || (x.scalar_type() != at::kBFloat16 && x.scalar_type() != at::kHalf)) return false;
  const c10::cuda::CUDAGuard guard(x.device());
  return promptAttentionFits(x.scalar_type() == at::kHalf ? Kind::Float16 : Kind::BFloat16, headSize);
}

// Few rows get more blocks: the keys are divided among them.
int64_t splitsFor(int64_t rows) { return rows <= 64 ? 3 : rows <= 128 ? 2 : 1; }

Tensor promptKernel(const Tensor& qkv, const Tensor& qWeight, const Tensor& kWeight, double eps, const Tensor& cosines, const Tensor& sines,
                    bool interleaved, const CacheLayer& cache, const Tensor& tables, const Tensor& slots, const Tensor& positions,
                    int64_t heads, double scale, int64_t window) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const int64_t rows = qkv.size(0), groups = cache.groups(), size = cache.size(), splits = splitsFor(rows);
  const auto pointer = [](const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; };
  const Tensor queries = at::empty({rows, heads, size}, qkv.options());
  const auto floats = qkv.options().dtype(at::kFloat);
  const Tensor sums = at::empty({splits, rows, heads, size}, floats), peaks = at::empty({2, splits, rows, heads}, floats);
  Tensor out = at::empty({rows, heads, size}, qkv.options());
  PromptAttentionArgs args{};
  AttentionArgs& a = args.rows;
  const char* q = static_cast<const char*>(qkv.data_ptr());
  a.q = q;
  a.k = q + heads * size * qkv.element_size();
  a.v = q + (heads + groups) * size * qkv.element_size();
  a.qStride = a.kvStride = qkv.size(1);
  a.qWeight = pointer(qWeight);
  a.kWeight = pointer(kWeight);
  a.cosines = static_cast<const float*>(pointer(cosines));
  a.sines = static_cast<const float*>(pointer(sines));
  a.half = cosines.defined() ? cosines.size(1) : 0;
  a.keys = cache.keys.data_ptr();
  a.values = cache.values.data_ptr();
  a.keyScales = static_cast<__nv_bfloat16*>(pointer(cache.keyScales));
  a.valueScales = static_cast<__nv_bfloat16*>(pointer(cache.valueScales));
  a.out = out.data_ptr();
  a.tables = tables.data_ptr<int32_t>();
  a.tableWidth = tables.size(1);
  a.slots = slots.data_ptr<int64_t>();
  a.positions = positions.data_ptr<int64_t>();
  a.rows = rows;
  a.heads = heads;
  a.groups = groups;
  a.size = size;
  a.window = window;
  a.scale = static_cast<float>(scale);
  a.eps = static_cast<float>(eps);
  a.interleaved = interleaved;
  args.queries = queries.data_ptr();
  args.sums = sums.data_ptr<float>();
  args.peaks = peaks.data_ptr<float>();
  args.totals = args.peaks + splits * rows * heads;
  args.splits = splits;
  launchPromptAttention(qkv.scalar_type() == at::kHalf ? Kind::Float16 : Kind::BFloat16, args,
                        c10::cuda::getCurrentCUDAStream(qkv.device().index()).stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
#endif

bool promptFusedFits([[maybe_unused]] const Tensor& qkv, [[maybe_unused]] int64_t headSize) {
#ifdef ATTUNE_KERNELS
  return kernelFits(qkv, headSize);
#else
  return false;
#endif
}

Tensor promptFused(const Tensor& qkv, const Optional<Tensor>& qWeight, const Optional<Tensor>& kWeight, double eps,
                   const Optional<Tensor>& cosines, const Optional<Tensor>& sines, bool interleaved, Tensor keys, Tensor values,
                   const Tensor& tables, const Tensor& slots, const Tensor& positions, int64_t heads, double scale, int64_t window,
                   const Optional<Tensor>& keyScales, const Optional<Tensor>& valueScales) {
  TORCH_CHECK(qkv.dim() == 2, "expected qkv [N, (H + 2G)·D]");
  const CacheLayer cache = cacheLayer(keys, values, keyScales, valueScales);
  checkCacheLayer(cache, qkv);
  TORCH_CHECK(qkv.size(1) == (heads + 2 * cache.groups()) * cache.size(), "the projection does not fit the heads and the cache");
  const auto row = [](const Optional<Tensor>& tensor, int64_t i) {
    return tensor.has_value() && tensor->defined() ? Optional<Tensor>(tensor->narrow(0, i, 1)) : Optional<Tensor>();
  };
#ifdef ATTUNE_KERNELS
  if (kernelFits(qkv, cache.size())) {
    const Tensor q = contiguousOrUndefined(qWeight), k = contiguousOrUndefined(kWeight);
    const Tensor cos = contiguousOrUndefined(cosines), sin = contiguousOrUndefined(sines);
    checkTables(tables);
    TORCH_CHECK(cache.block() == kCacheBlock, "on CUDA the cache's blocks have ", kCacheBlock, " positions");
    TORCH_CHECK(cache.groups() > 0 && heads > 0 && heads % cache.groups() == 0, "query heads are a multiple of kv heads");
    TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong && slots.numel() == qkv.size(0) &&
                    positions.numel() == qkv.size(0),
                "one int64 slot and position per row");
    for (const Tensor* norm : {&q, &k})
      TORCH_CHECK(!norm->defined() || (norm->numel() == cache.size() && norm->scalar_type() == qkv.scalar_type()),
                  "a norm's weight does not fit a head");
    TORCH_CHECK(cos.defined() == sin.defined(), "cos and sin come together");
    for (const Tensor* angles : {&cos, &sin})
      TORCH_CHECK(!angles->defined() || (angles->scalar_type() == at::kFloat && angles->dim() == 2 && angles->size(0) == qkv.size(0) &&
                                         angles->size(1) == cos.size(1) && 2 * angles->size(1) <= cache.size()),
                  "cos and sin are float32, one row per token, at most half a head wide");
    for (const Tensor* tensor : {&tables, &slots, &positions, &q, &k, &cos, &sin})
      TORCH_CHECK(!tensor->defined() || tensor->device() == qkv.device(), "all inputs are on one device");
    return promptKernel(qkv.contiguous(), q, k, eps, cos, sin, interleaved, cache, tables, slots.contiguous(), positions.contiguous(),
                        heads, scale, window);
  }
#endif
  static const auto one = c10::Dispatcher::singleton().findSchemaOrThrow("attune::decode_fused", "");
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < qkv.size(0); i++) {
    torch::jit::Stack stack{qkv.narrow(0, i, 1),
                            qWeight,
                            kWeight,
                            eps,
                            row(cosines, i),
                            row(sines, i),
                            interleaved,
                            keys,
                            values,
                            tables,
                            slots.narrow(0, i, 1),
                            positions.narrow(0, i, 1),
                            heads,
                            scale,
                            window,
                            keyScales,
                            valueScales};
    one.callBoxed(&stack);
    rows.push_back(stack.back().toTensor());
  }
  return rows.empty() ? at::empty({0, heads, cache.size()}, qkv.options()) : at::cat(rows);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("prompt_fused_fits(Tensor qkv, int head_size) -> bool");
  library.impl("prompt_fused_fits", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::promptFusedFits));
  library.def(
      "prompt_fused(Tensor qkv, Tensor? q_weight, Tensor? k_weight, float eps, Tensor? cos, Tensor? sin, bool interleaved, Tensor(a!) "
      "keys, "
      "Tensor(b!) values, Tensor tables, Tensor slots, Tensor positions, int heads, float scale, int window=0, Tensor(c!)? "
      "key_scales=None, "
      "Tensor(d!)? value_scales=None) -> Tensor");
  library.impl("prompt_fused", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::promptFused));
}
