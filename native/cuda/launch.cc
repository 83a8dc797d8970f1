// Launches the kernels of the .cu files on tensors.
#ifdef ATTUNE_KERNELS
#include "cuda/kernels.h"
#include "cuda/launching.h"
#include "cuda/vocabulary.h"

namespace attune {
namespace {

using at::Tensor;

// The arguments about cache and rows that both forms of decoding attention share.
AttentionArgs attentionOver(const CacheLayer& cache, const Tensor& tables, const Tensor& slots, const Tensor& positions, double scale,
                            int64_t window) {
  TORCH_CHECK(cache.block() == kCacheBlock, "on CUDA the cache's blocks have ", kCacheBlock, " positions");
  AttentionArgs args{};
  args.keys = cache.keys.data_ptr();
  args.values = cache.values.data_ptr();
  args.keyScales = scalesIn(cache.keyScales);
  args.valueScales = scalesIn(cache.valueScales);
  args.tables = tables.data_ptr<int32_t>();
  args.tableWidth = tables.size(1);
  args.groups = cache.groups();
  args.size = cache.size();
  args.slots = slots.data_ptr<int64_t>();
  args.positions = positions.data_ptr<int64_t>();
  args.scale = static_cast<float>(scale);
  args.window = window;
  return args;
}

SampleArgs samplingOf(const Tensor& logits, const SamplingRule& rule, Drawn& out) {
  SampleArgs args{};
  args.logits = logits.data_ptr();
  args.temperature = floats(rule.temperature);
  args.topP = floats(rule.topP);
  args.minP = floats(rule.minP);
  args.topK = rule.topK.data_ptr<int64_t>();
  args.seeds = rule.seeds.data_ptr<int64_t>();
  args.ids = out.ids.data_ptr<int64_t>();
  args.logp = floats(out.logp);
  args.kept = floats(out.kept);
  args.rows = logits.size(0);
  args.size = logits.size(1);
  return args;
}

// Launches it with room for the results of chunks, where a row may have several; the room is free again after it on this stream.
void launchWithRoom(AttentionArgs& args, const Tensor& like, cudaStream_t stream) {
  args.mostChunks = attentionChunks(args);
  Tensor room;
  if (like.scalar_type() != at::kFloat && args.mostChunks > 1)
    room = at::empty({attentionPartials(args)}, like.options().dtype(at::kFloat));
  args.partial = floats(room);
  launchAttention(kindOf(like), args, stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

Tensor cudaRope(const Tensor& input, const Tensor& cosines, const Tensor& sines, bool interleaved, float direction) {
  const Launch launch(input);
  const Tensor x = input.stride(-1) == 1 ? input : input.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  launchRope(kindOf(x),
             {x.data_ptr(), cosines.data_ptr<float>(), sines.data_ptr<float>(), y.data_ptr(), x.size(0), x.size(1), x.size(2),
              cosines.size(1), x.stride(0), x.stride(1), interleaved, direction},
             launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

void cudaSwigluInto(const Tensor& x, Tensor& y) {
  const Launch launch(x);
  launchSwiglu(kindOf(x), x.data_ptr(), y.data_ptr(), x.size(0), x.size(-1) / 2, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor cudaSwiglu(const Tensor& x) {
  Tensor y = at::empty({x.size(0), x.size(-1) / 2}, x.options());
  cudaSwigluInto(x, y);
  return y;
}

Tensor cudaSwigluBackward(const Tensor& x, const Tensor& gradient) {
  const Launch launch(x);
  Tensor dx = at::empty_like(x);
  launchSwigluBackward(kindOf(x), x.data_ptr(), gradient.data_ptr(), dx.data_ptr(), x.size(0), x.size(-1) / 2, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dx;
}

bool cudaAttentionFits(int64_t headSize, c10::ScalarType dtype) {
  return attentionFits(headSize) && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16);
}

AttentionArgs argumentsOf(const FusedAttention& in, const CacheLayer& cache, AttentionOf what) {
  const int64_t size = cache.size(), itemSize = in.qkv.element_size();
  AttentionArgs args = attentionOver(cache, in.tables, in.slots, in.positions, in.scale, in.window);
  const char* q = static_cast<const char*>(in.qkv.data_ptr());
  const char* k = q + in.heads * size * itemSize;
  args.q = q;
  args.k = k;
  args.v = k + args.groups * size * itemSize;
  args.qStride = args.kvStride = in.qkv.size(1);
  args.qWeight = pointer(in.qWeight);
  args.kWeight = pointer(in.kWeight);
  args.cosines = floats(in.cosines);
  args.sines = floats(in.sines);
  args.half = in.cosines.defined() ? in.cosines.size(1) : 0;
  args.rows = in.qkv.size(0);
  args.heads = in.heads;
  args.eps = static_cast<float>(in.eps);
  args.interleaved = in.interleaved;
  args.ofStep = what == AttentionOf::Step;
  args.spareSlot = in.spareSlot;
  args.isNarrow = in.isNarrow;
  args.isAlone = in.isAlone;
  args.mostChunks = attentionChunks(args);
  return args;
}

Tensor cudaDecodeFused(const FusedAttention& in, const CacheLayer& cache, AttentionOf what) {
  const Launch launch(in.qkv);
  AttentionArgs args = argumentsOf(in, cache, what);
  Tensor out = emptyRows(args.rows, {args.heads, args.size}, in.qkv.options());
  args.out = out.data_ptr();
  launchWithRoom(args, in.qkv, launch.stream);
  return out;
}

Tensor cudaDecodeAttention(const Tensor& q, const Tensor& k, const Tensor& v, const CacheLayer& cache, const Tensor& tables,
                           const Tensor& slots, const Tensor& positions, double scale, int64_t window, const Tensor& bias) {
  const Launch launch(q);
  Tensor out = at::empty_like(q);
  AttentionArgs args = attentionOver(cache, tables, slots, positions, scale, window);
  args.q = q.data_ptr();
  args.k = k.data_ptr();
  args.v = v.data_ptr();
  args.rows = q.size(0);
  args.heads = q.size(1);
  args.qStride = args.heads * args.size;
  args.kvStride = args.groups * args.size;
  args.bias = floats(bias);
  args.biasLength = bias.defined() ? bias.size(1) : 0;
  args.out = out.data_ptr();
  launchWithRoom(args, q, launch.stream);
  return out;
}

bool cudaCacheWriteFits(const Tensor& rows) {
  const auto dtype = rows.scalar_type();
  return rows.is_cuda() && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16);
}

namespace {

/** Keys and values of new tokens with the tensors that they lie in. */
struct NewTokens {
  Tensor k, v, targets;
  CacheWriteArgs args{};

  NewTokens(const CacheLayer& cache, const Tensor& targets, const Tensor& k, const Tensor& v)
      : k(denseRows(k)), v(denseRows(v)), targets(targets.contiguous()) {
    TORCH_CHECK(cache.block() == kCacheBlock, "on CUDA the cache's blocks have ", kCacheBlock, " positions");
    args = {{{this->k.data_ptr(), this->k.stride(0), cache.keys.data_ptr(), scalesIn(cache.keyScales)},
             {this->v.data_ptr(), this->v.stride(0), cache.values.data_ptr(), scalesIn(cache.valueScales)}},
            this->targets.data_ptr<int64_t>(),
            k.size(0),
            k.size(1),
            k.size(2),
            cache.keys.size(0) * cache.block()};
  }
  // v is a part of the fused projection: its rows lie apart
  static Tensor denseRows(const Tensor& x) { return x.stride(2) == 1 && x.stride(1) == x.size(2) ? x : x.contiguous(); }
};

}  // namespace

void cudaCacheWrite(const CacheLayer& cache, const Tensor& targets, const Tensor& k, const Tensor& v) {
  const Launch launch(k);
  const NewTokens tokens(cache, targets, k, v);
  launchCacheWrite(kindOf(k), tokens.args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

bool cudaCacheCopy(const CacheLayer& cache, const Tensor& targets, const Tensor& k, const Tensor& v) {
  const Launch launch(k);
  const NewTokens tokens(cache, targets, k, v);
  const bool fits = launchCacheCopy(tokens.args, k.element_size(), launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return fits;
}

bool cudaProductFits(const FewRowsProduct& in) {
  const Launch launch(in.weight);
  const auto dtype = in.weight.scalar_type();
  if (dtype != at::kBFloat16 && dtype != at::kHalf) return false;
  const int64_t outputs = in.weight.size(0) / (in.gated ? 2 : 1);
  return productFits(in.x.size(0), in.weight.size(1), outputs, in.norm.defined(), in.gated);
}

void cudaProduct(const FewRowsProduct& in, Tensor& y) {
  const Launch launch(in.x);
  launchProduct(kindOf(in.x),
                {in.x.data_ptr(), in.weight.data_ptr(), pointer(in.bias), pointer(in.norm), y.data_ptr(), in.x.size(0), in.weight.size(1),
                 in.weight.size(0) / (in.gated ? 2 : 1), static_cast<float>(in.eps), in.gated, in.add},
                launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void cudaSample(const Tensor& logits, const SamplingRule& rule, const Tensor& counters, Drawn& out) {
  const Launch launch(logits);
  SampleArgs args = samplingOf(logits, rule, out);
  args.counters = counters.data_ptr<int64_t>();
  launchSample(kindOf(logits), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void cudaSampleAdvance(const Tensor& logits, const SamplingRule& rule, const GoingRows& rows, Drawn& out) {
  const Launch launch(logits);
  SampleArgs args = samplingOf(logits, rule, out);
  args.last = rows.last.data_ptr<int64_t>();
  args.positions = rows.positions.data_ptr<int64_t>();
  args.limits = rows.limits.data_ptr<int64_t>();
  args.slots = rows.slots.data_ptr<int64_t>();
  args.turns = rows.turns.data_ptr<int64_t>();
  args.idleSlot = rows.idleSlot;
  args.most = out.ids.size(0);
  args.stride = out.ids.size(1);
  launchSample(kindOf(logits), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor cudaVocabulary(const Tensor& x, const Tensor& norm, double eps, const Tensor& weight, const Tensor& packed) {
  const Launch launch(x);
  for (const Tensor* tensor : {&x, &norm, &weight})
    if (tensor->scalar_type() != at::kBFloat16 || !tensor->is_contiguous() || !isAligned(*tensor)) return {};
  VocabularyArgs args{x.data_ptr(), norm.data_ptr(), weight.data_ptr(),       nullptr,        x.size(0),
                      x.size(1),    weight.size(0),  static_cast<float>(eps), pointer(packed)};
  if (!vocabularyFits(args)) return {};
  Tensor logits = at::empty({args.rows, args.words}, x.options());
  args.logits = logits.data_ptr();
  launchVocabulary(args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return logits;
}

void cudaRowStatistics(const Tensor& logits, const Tensor& targets, float inverse, Tensor& logp, Tensor& entropy, Tensor& lse) {
  const Launch launch(logits);
  launchRowStatistics({logits.data_ptr<float>(), targets.data_ptr<int64_t>(), logp.data_ptr<float>(), entropy.data_ptr<float>(),
                       lse.data_ptr<float>(), nullptr, nullptr, nullptr, logits.size(0), logits.size(1), inverse, 0},
                      launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor cudaRowGradient(Tensor& logits, const RowGradient& in, c10::ScalarType dtype) {
  const Launch launch(logits);
  // in f32 the gradient overwrites the logits
  Tensor gradient = dtype == at::kFloat ? logits : at::empty(logits.sizes(), logits.options().dtype(dtype));
  launchRowGradient(
      kindOf(gradient),
      {logits.data_ptr<float>(), in.targets.data_ptr<int64_t>(), nullptr, floats(in.entropy), floats(in.lse), floats(in.forLogp),
       floats(in.forEntropy), gradient.data_ptr(), logits.size(0), logits.size(1), static_cast<float>(in.inverse), in.first},
      launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return gradient;
}

}  // namespace attune
#endif
