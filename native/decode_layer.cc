// attune::decode_layer(x[B, E], …): one whole block of a decoding step, x changed in place.
//
// For the commonest block (RMS norm before attention and before a gated SiLU MLP): what it costs is then its products and its
// cache, and not the dozen operators it is made of. On the CPU in f32; on CUDA in bf16, five kernels, for a few rows.
// src/models/decode-layer.ts says when it fits.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "cuda_kernels.h"
#include "decode_fused.h"
#include "optional.h"
#include "rows.h"
#include "skinny_product.h"

namespace attune {
namespace {

using at::Tensor;
using Maybe = const Optional<Tensor>&;

Tensor whole(Maybe tensor) { return tensor.has_value() && tensor->defined() ? tensor->contiguous() : Tensor(); }

bool decodeLayerFits(const Tensor& x, at::IntArrayRef widths) {
  TORCH_CHECK(x.dim() == 2 && !widths.empty(), "expected x [B, E] and the widths of the block");
  if (!x.is_contiguous()) return false;
  if (x.device().is_cpu()) return x.scalar_type() == at::kFloat && isSkinny(x.size(0), *std::max_element(widths.begin(), widths.end()));
#ifdef ATTUNE_KERNELS
  return x.is_cuda() && cudaProductFits(x, widths);
#else
  return false;
#endif
}

bool isLike(const Tensor& tensor, const Tensor& x) { return tensor.scalar_type() == x.scalar_type() && tensor.device() == x.device(); }

struct Linear {
  Tensor weight, bias;

  Linear(const Tensor& given, Maybe givenBias, int64_t inputs, const Tensor& x) : weight(given.contiguous()), bias(whole(givenBias)) {
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) == inputs && isLike(weight, x), "expected weights that fit together, of x's dtype and device");
    TORCH_CHECK(!bias.defined() || (bias.numel() == weight.size(0) && isLike(bias, x)), "a bias has one number per output");
  }

  void into(const Tensor& x, Tensor& y, bool add) const {
    skinnyProduct({x.data_ptr<float>(), weight.data_ptr<float>(), bias.defined() ? bias.data_ptr<float>() : nullptr, y.data_ptr<float>(),
                   x.size(0), weight.size(1), weight.size(0), add});
  }
  Tensor operator()(const Tensor& x) const {
    Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    into(x, y, false);
    return y;
  }
};

Tensor normed(const Tensor& x, const Tensor& weight, double eps) {
  Tensor y = at::empty(x.sizes(), x.options());
  rmsNormRows(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1), static_cast<float>(eps));
  return y;
}

struct Block {
  double eps;
  Tensor attentionNorm, mlpNorm;
  Linear qkv, out, up, down;
};

void decodeLayerCpu(Tensor& x, const Block& block, FusedAttention& attention, Tensor& keys, Tensor& values) {
  attention.qkv = block.qkv(normed(x, block.attentionNorm, block.eps));
  block.out.into(decodeFusedCpu(attention, keys, values), x, true);
  const Tensor inner = block.up(normed(x, block.mlpNorm, block.eps));
  Tensor active = at::empty({x.size(0), block.down.weight.size(1)}, x.options());
  swigluRows(inner.data_ptr<float>(), active.data_ptr<float>(), x.size(0), active.size(1));
  block.down.into(active, x, true);
}

#ifdef ATTUNE_KERNELS
void decodeLayerCuda(Tensor& x, const Block& block, FusedAttention& attention, Tensor& keys, Tensor& values) {
  const auto& [eps, attentionNorm, mlpNorm, qkv, out, up, down] = block;
  const Tensor none;
  attention.qkv = at::empty({x.size(0), qkv.weight.size(0)}, x.options());
  cudaProduct({x, qkv.weight, qkv.bias, attentionNorm, eps, false, false}, attention.qkv);
  cudaProduct({cudaDecodeFused(attention, keys, values, true), out.weight, out.bias, none, eps, false, true}, x);
  Tensor active = at::empty({x.size(0), down.weight.size(1)}, x.options());
  cudaProduct({x, up.weight, up.bias, mlpNorm, eps, true, false}, active);
  cudaProduct({active, down.weight, down.bias, none, eps, false, true}, x);
}
#endif

void decodeLayer(Tensor x, double eps, const Tensor& attentionNorm, const Tensor& qkvWeight, Maybe qkvBias, Maybe qNorm, Maybe kNorm, double headEps,
                 Maybe cosines, Maybe sines, bool interleaved, Tensor keys, Tensor values, const Tensor& slots, const Tensor& positions,
                 int64_t heads, double scale, int64_t window, const Tensor& outWeight, Maybe outBias, const Tensor& mlpNorm, const Tensor& upWeight,
                 Maybe upBias, const Tensor& downWeight, Maybe downBias) {
  TORCH_CHECK(x.dim() == 2 && x.is_contiguous() && (x.is_cuda() || (x.device().is_cpu() && x.scalar_type() == at::kFloat)),
              "expected x [B, E], on the CPU in float32");
  TORCH_CHECK(keys.dim() == 4 && keys.sizes() == values.sizes() && isLike(keys, x) && isLike(values, x) && keys.is_contiguous() && values.is_contiguous(),
              "expected contiguous caches [S, L, G, D] of x's dtype and device");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong && slots.numel() == x.size(0) && positions.numel() == x.size(0) &&
                  slots.device() == x.device() && positions.device() == x.device(), "one int64 slot and position per row");
  for (const Tensor* norm : {&attentionNorm, &mlpNorm}) TORCH_CHECK(norm->numel() == x.size(1) && isLike(*norm, x), "a norm has one number per input");
  const int64_t width = x.size(1), groups = keys.size(2), size = keys.size(3);
  const Block block{eps,
                    attentionNorm.contiguous(),
                    mlpNorm.contiguous(),
                    {qkvWeight, qkvBias, width, x},
                    {outWeight, outBias, heads * size, x},
                    {upWeight, upBias, width, x},
                    {downWeight, downBias, upWeight.size(0) / 2, x}};
  TORCH_CHECK(block.qkv.weight.size(0) == (heads + 2 * groups) * size, "the projection does not fit the heads and the cache");
  TORCH_CHECK(block.out.weight.size(0) == width && block.down.weight.size(0) == width && upWeight.size(0) % 2 == 0, "the weights do not fit x");
  if (x.size(0) == 0) return;
  FusedAttention attention{Tensor(), whole(qNorm), whole(kNorm), whole(cosines), whole(sines), slots.contiguous(), positions.contiguous(),
                           headEps, interleaved, heads, scale, window};
  checkFused(attention, x, keys);
  if (x.device().is_cpu()) return decodeLayerCpu(x, block, attention, keys, values);
#ifdef ATTUNE_KERNELS
  TORCH_CHECK(cudaAttentionFits(size, x.scalar_type()) && cudaProductFits(x, {width, heads * size, groups * size, block.down.weight.size(1)}),
              "there are no kernels for this dtype, head size, width or number of rows");
  decodeLayerCuda(x, block, attention, keys, values);
#else
  TORCH_CHECK(false, "there is no such kernel for this device");
#endif
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_layer_fits(Tensor x, int[] widths) -> bool");
  library.impl("decode_layer_fits", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayerFits));
  library.def(
      "decode_layer(Tensor(a!) x, float eps, Tensor attention_norm, Tensor qkv, Tensor? qkv_bias, Tensor? q_norm, Tensor? k_norm, float head_eps, "
      "Tensor? cos, Tensor? sin, bool interleaved, Tensor(b!) keys, Tensor(c!) values, Tensor slots, Tensor positions, int heads, float scale, "
      "int window, Tensor out, Tensor? out_bias, Tensor mlp_norm, Tensor up, Tensor? up_bias, Tensor down, Tensor? down_bias) -> ()");
  library.impl("decode_layer", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayer));
}
