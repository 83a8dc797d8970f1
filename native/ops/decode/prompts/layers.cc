// The layers of a plan over all tokens of prompts on CUDA. The kernels are those of the eager operators (src/models/generate/decoding.ts:
// prefill), and so are the bits, but they are launched back to back from here, in memory that all layers share. A layer's kernels take some
// 40 µs for a short prompt; eleven calls through JavaScript and the dispatcher took four times as long.
//
// Few tokens are multiplied like the rows of a decoding step (products.h), with norms and SwiGLU in the products: seven launches per layer
// instead of eleven, and launches are what they spend their time on. Their bits are those of such a step.
#include "ops/decode/prompts/packed.h"

#ifdef ATTUNE_KERNELS
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "cuda/launching.h"
#include "cuda/training/attention/kernels.h"
#include "cuda/training/kernels.h"
#include "ops/decode/products.h"

namespace attune {
namespace {

using at::Tensor;

/** y = x·weightᵀ + bias, as at::linear computes it. */
void multiply(const Linear& linear, const Tensor& x, Tensor& y) {
  if (linear.bias.defined())
    at::addmm_out(y, linear.bias, x, linear.turned);
  else
    at::mm_out(y, x, linear.turned);
}

/** What all layers share, one row per token. */
struct Buffers {
  Tensor x, normed, added;  // [tokens, width]
  Tensor cosines, sines;  // [tokens, half a head]; undefined without rotary positions
  Tensor qkv, q, k, attended, lse;
  Tensor inner, active;  // [tokens, 2·inputs of down] and half of that

  Buffers(const DecodePlan& plan, int64_t tokens) {
    const auto rows = [&](const Tensor& like, int64_t width) { return at::empty({tokens, width}, like.options()); };
    const int64_t size = plan.headSize();
    for (Tensor* each : {&x, &normed, &added}) *each = rows(plan.embedding, plan.width());
    if (plan.cosines.defined())
      for (Tensor* each : {&cosines, &sines}) *each = rows(plan.cosines, plan.cosines.size(1));
    qkv = rows(plan.embedding, (plan.heads + 2 * plan.groups()) * size);
    q = rows(plan.embedding, plan.heads * size);
    k = rows(plan.embedding, plan.groups() * size);
    attended = emptyRows(tokens, {plan.heads * size}, plan.embedding.options());
    lse = at::empty({tokens * plan.heads}, plan.embedding.options().dtype(at::kFloat));
    inner = rows(plan.embedding, plan.layers.front().up.outputs());
    active = emptyRows(tokens, {plan.layers.front().down.inputs()}, plan.embedding.options());
  }
  /** Keeps only the first `count` rows. */
  void shortenTo(int64_t count) {
    for (Tensor* each : {&x, &normed, &added, &q, &inner, &active}) *each = each->narrow(0, 0, count);
  }
};

class PromptLayers {
 public:
  PromptLayers(const DecodePlan& plan, const PackedPrompts& prompts, const PromptNumbers& numbers, cudaStream_t stream)
      : plan_(plan),
        numbers_(numbers),
        kind_(kindOf(plan.embedding)),
        stream_(stream),
        tokens_(prompts.tokens()),
        prompts_(prompts.count()),
        buffers_(plan, prompts.tokens()) {}

  Tensor logits() {
    begin();
    for (const LayerPlan& layer : plan_.layers) {
      const bool isFirst = &layer == &plan_.layers.front(), isLast = &layer == &plan_.layers.back();
      norm(!isFirst, layer.attentionNorm, plan_.eps);
      multiply(layer.qkv, buffers_.normed, buffers_.qkv);
      attend(layer);
      if (isLast) keepLastTokens();
      multiply(layer.out, isLast ? buffers_.q : buffers_.attended, buffers_.added);
      norm(true, layer.mlpNorm, plan_.eps);
      multiply(layer.up, buffers_.normed, buffers_.inner);
      launchSwiglu(kind_, buffers_.inner.data_ptr(), buffers_.active.data_ptr(), buffers_.active.size(0), buffers_.active.size(1), stream_);
      C10_CUDA_KERNEL_LAUNCH_CHECK();
      multiply(layer.down, buffers_.active, buffers_.added);
    }
    norm(true, plan_.finalNorm, plan_.finalEps);
    return headOf(buffers_.normed);
  }

  /** The logits by the products of a decoding step. */
  Tensor logitsOfFew() {
    begin();
    StepProducts products(plan_, buffers_.x);
    for (const LayerPlan& layer : plan_.layers) {
      const LayerPlan* const next = &layer == &plan_.layers.back() ? nullptr : &layer + 1;
      products.ofNorm(layer.qkv, layer.attentionNorm, false, buffers_.qkv);
      attend(layer);
      products.addTo(layer.out, buffers_.attended, layer.mlpNorm, {&layer.up, true, false});
      products.ofNorm(layer.up, layer.mlpNorm, true, buffers_.active, {&layer.down, false, true});
      products.addTo(layer.down, buffers_.active, next != nullptr ? next->attentionNorm : Tensor(), {next != nullptr ? &next->qkv : nullptr});
    }
    Tensor last = at::empty({prompts_, plan_.width()}, plan_.embedding.options());
    gather(buffers_.x, numbers_.last(), last);
    const Tensor logits = cudaVocabulary(last, plan_.finalNorm, plan_.finalEps, plan_.head.weight);
    return logits.defined() ? logits : headOf(normedCuda(last, plan_.finalNorm, plan_.finalEps));
  }

 private:
  /** Sets x to the tokens' embeddings, and gathers the angles of their positions. */
  void begin() {
    gather(plan_.embedding, numbers_.ids(), buffers_.x);
    if (!plan_.cosines.defined()) return;
    gather(plan_.cosines, numbers_.positions(), buffers_.cosines);
    gather(plan_.sines, numbers_.positions(), buffers_.sines);
  }

  Tensor headOf(const Tensor& hidden) {
    Tensor logits = at::empty({prompts_, plan_.head.outputs()}, plan_.embedding.options());
    multiply(plan_.head, hidden, logits);
    return logits;
  }

  /** normed = norm(x), after x += added if `adds`. The sum is rounded before the norm, as an addition's would be. */
  void norm(bool adds, const Tensor& weight, double eps) {
    NormArgs args{};
    args.x = buffers_.x.data_ptr();
    args.added = adds ? buffers_.added.data_ptr() : nullptr;
    args.weight = weight.data_ptr();
    args.sum = adds ? buffers_.x.data_ptr() : nullptr;
    args.y = buffers_.normed.data_ptr();
    args.rows = buffers_.x.size(0);
    args.size = plan_.width();
    args.eps = static_cast<float>(eps);
    launchNorm(kind_, args, stream_);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

  /** Heads, cache and attention of all tokens, from qkv. */
  void attend(const LayerPlan& layer) {
    const int64_t groups = plan_.groups(), size = plan_.headSize();
    HeadsArgs heads{};
    heads.qkv = buffers_.qkv.data_ptr();
    heads.qWeight = pointer(layer.qNorm);
    heads.kWeight = pointer(layer.kNorm);
    heads.cosines = floats(buffers_.cosines);
    heads.sines = floats(buffers_.sines);
    heads.q = buffers_.q.data_ptr();
    heads.k = buffers_.k.data_ptr();
    heads.rows = tokens_;
    heads.heads = plan_.heads;
    heads.groups = groups;
    heads.size = size;
    heads.eps = static_cast<float>(plan_.headEps);
    launchHeads(kind_, heads, stream_);
    C10_CUDA_KERNEL_LAUNCH_CHECK();

    const int64_t item = buffers_.qkv.element_size();
    const void* const values = static_cast<const char*>(buffers_.qkv.data_ptr()) + (plan_.heads + groups) * size * item;
    const int64_t stride = layer.qkv.outputs();
    const CacheLayer& cache = layer.cache;
    const CacheWriteArgs write{{{buffers_.k.data_ptr(), groups * size, cache.keys.data_ptr(), scalesIn(cache.keyScales)},
                                {values, stride, cache.values.data_ptr(), scalesIn(cache.valueScales)}},
                               numbers_.at(numbers_.places()),
                               tokens_,
                               groups,
                               size,
                               cache.keys.size(0) * cache.block()};
    if (cache.isEightBits())
      launchCacheWrite(kind_, write, stream_);
    else
      TORCH_CHECK(launchCacheCopy(write, item, stream_), "the cache does not take these rows");
    C10_CUDA_KERNEL_LAUNCH_CHECK();

    CausalAttentionArgs args{};
    args.q = buffers_.q.data_ptr();
    args.k = buffers_.k.data_ptr();
    args.v = values;
    args.qStride = plan_.heads * size;
    args.kStride = groups * size;
    args.vStride = stride;
    args.out = buffers_.attended.data_ptr();
    args.lse = floats(buffers_.lse);
    args.sequences = reinterpret_cast<const int32_t*>(numbers_.at(numbers_.sequences()));
    args.count = prompts_;
    args.tokens = tokens_;
    args.heads = plan_.heads;
    args.groups = groups;
    args.size = size;
    args.share = static_cast<int>(plan_.heads / groups);
    args.scale = static_cast<float>(layer.scale);
    launchCausalAttention(kind_, args, stream_);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

  /**
   * Only the prompts' last tokens need a result of the last layer: q keeps only their attention. The others have already left keys and
   * values.
   */
  void keepLastTokens() {
    buffers_.shortenTo(prompts_);
    gather(buffers_.attended, numbers_.last(), buffers_.q);
    gather(buffers_.x, numbers_.last(), buffers_.normed);
    std::swap(buffers_.x, buffers_.normed);
  }

  /** Gathers the table's rows; their indices start at `numbers`. */
  void gather(const Tensor& table, int64_t numbers, Tensor& out) {
    const int64_t bytes = table.size(1) * static_cast<int64_t>(table.element_size());
    launchGather({table.data_ptr(), numbers_.at(numbers), out.data_ptr(), out.size(0), bytes}, stream_);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }

  const DecodePlan& plan_;
  const PromptNumbers& numbers_;
  const Kind kind_;
  const cudaStream_t stream_;
  const int64_t tokens_, prompts_;
  Buffers buffers_;
};

/** Contiguous and aligned to 16 bytes. */
bool isLoadable(const Tensor& tensor) { return !tensor.defined() || (tensor.is_contiguous() && isAligned(tensor)); }

bool layerFits(const DecodePlan& plan, const LayerPlan& layer, const PackedPrompts& prompts) {
  for (const Linear* linear : {&layer.qkv, &layer.out, &layer.up, &layer.down})
    if (linear->quantised) return false;
  for (const Tensor* tensor : {&layer.attentionNorm, &layer.mlpNorm, &layer.qNorm, &layer.kNorm, &layer.cache.keys, &layer.cache.values})
    if (!isLoadable(*tensor)) return false;
  return layer.qNorm.defined() == layer.kNorm.defined() && layer.cache.block() == kCacheBlock &&
         layer.down.inputs() == plan.layers.front().down.inputs() && (layer.window == 0 || layer.window >= prompts.longest);
}

/** Whether the eager path attends by the same kernels (src/models/decoder/attention.ts: hasKernels). */
bool attentionFits(const DecodePlan& plan, const PackedPrompts& prompts) {
  const int64_t tokens = prompts.tokens(), share = plan.heads / plan.groups();
  if (tokens * plan.heads >= (int64_t{1} << 31) || tokens * share * share >= (int64_t{1} << 32)) return false;
  const int64_t longest = causalAttentionLongest(kindOf(plan.embedding), plan.headSize(), static_cast<int>(share));
  double squares = 0;
  for (int64_t i = 0; i < prompts.count(); i++) squares += static_cast<double>(prompts.length(i)) * static_cast<double>(prompts.length(i));
  return longest > 0 && squares / static_cast<double>(tokens) <= static_cast<double>(longest);
}

/** Whether a decoding step of as many rows has kernels that include norms and SwiGLU. */
bool areFew(const DecodePlan& plan, int64_t tokens) {
  constexpr int64_t kFewest = 32;  // rows for which product.cu or narrow_product.cu may have kernels
  return tokens <= kFewest || wideProductsTake(plan, tokens);
}

}  // namespace

bool promptLayersFit(const DecodePlan& plan, const PackedPrompts& prompts) {
  const auto dtype = plan.embedding.scalar_type();
  if (!plan.embedding.is_cuda() || (dtype != at::kBFloat16 && dtype != at::kHalf) || plan.head.quantised || plan.head.bias.defined())
    return false;
  const Launch launch(plan.embedding);  // what fits depends on the device
  const int64_t size = plan.headSize();
  if (!normFits(kindOf(plan.embedding), plan.width()) || !headsFit(size) || plan.width() % 8 != 0 || size % 8 != 0) return false;
  if (plan.cosines.defined() && (plan.interleaved || 2 * plan.cosines.size(1) != size)) return false;
  for (const Tensor* tensor : {&plan.embedding, &plan.finalNorm, &plan.cosines, &plan.sines})
    if (!isLoadable(*tensor)) return false;
  return attentionFits(plan, prompts) && std::all_of(plan.layers.begin(), plan.layers.end(), [&](const LayerPlan& layer) {
           return layerFits(plan, layer, prompts);
         });
}

Tensor promptLogitsCuda(const DecodePlan& plan, const PackedPrompts& prompts, const PromptNumbers& numbers) {
  const Launch launch(plan.embedding);
  PromptLayers layers(plan, prompts, numbers, launch.stream);
  return areFew(plan, prompts.tokens()) ? layers.logitsOfFew() : layers.logits();
}

}  // namespace attune
#endif
