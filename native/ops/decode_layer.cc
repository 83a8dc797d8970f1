// attune::decode_layers(x[B, E], …): all blocks of a decoding step, x changed in place.
//
// For the commonest block (RMS norm before attention and before a gated SiLU MLP): what it costs is then its products and its
// cache, and not the dozen operators it is made of. On the CPU in f32; on CUDA in bf16, five kernels, for a few rows.
// src/models/decode-layer.ts says when it fits.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "cuda/kernels.h"
#include "ops/decode_fused.h"
#include "ops/decode_layer.h"
#include "cpu/rows.h"
#include "cpu/skinny_product.h"

namespace attune {
namespace {

using at::Tensor;

Tensor whole(Maybe tensor) { return tensor.has_value() && tensor->defined() ? tensor->contiguous() : Tensor(); }

bool decodeLayersFit(const Tensor& x, at::IntArrayRef widths) {
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

  Linear(const Tensor& given, Maybe givenBias, const Tensor& x) : weight(given.contiguous()), bias(whole(givenBias)) {
    TORCH_CHECK(weight.dim() == 2 && isLike(weight, x), "expected matrices of x's dtype and device");
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

// What the blocks of one step share.
struct Step {
  Tensor slots, positions, cosines, sines;  // cos and sin per row, or on CUDA all of them
  double eps, headEps;
  bool interleaved;
  int64_t heads;
};

struct Block {
  Tensor attentionNorm, mlpNorm;
  Linear qkv, out, up, down;
};

void throughBlock(Tensor& x, const Step& step, const Block& block, FusedAttention& attention, Tensor& keys, Tensor& values) {
  attention.qkv = block.qkv(normed(x, block.attentionNorm, step.eps));
  block.out.into(decodeFusedCpu(attention, keys, values), x, true);
  const Tensor inner = block.up(normed(x, block.mlpNorm, step.eps));
  Tensor active = at::empty({x.size(0), block.down.weight.size(1)}, x.options());
  swigluRows(inner.data_ptr<float>(), active.data_ptr<float>(), x.size(0), active.size(1));
  block.down.into(active, x, true);
}

#ifdef ATTUNE_KERNELS
void throughBlockCuda(Tensor& x, const Step& step, const Block& block, FusedAttention& attention, Tensor& keys, Tensor& values) {
  const auto& [attentionNorm, mlpNorm, qkv, out, up, down] = block;
  const Tensor none;
  attention.qkv = at::empty({x.size(0), qkv.weight.size(0)}, x.options());
  cudaProduct({x, qkv.weight, qkv.bias, attentionNorm, step.eps, false, false}, attention.qkv);
  cudaProduct({cudaDecodeFused(attention, keys, values, AttentionOf::Step), out.weight, out.bias, none, 0, false, true}, x);
  Tensor active = at::empty({x.size(0), down.weight.size(1)}, x.options());
  cudaProduct({x, up.weight, up.bias, mlpNorm, step.eps, true, false}, active);
  cudaProduct({active, down.weight, down.bias, none, 0, false, true}, x);
}
#endif

void decodeBlock(const Step& step, const Block& block, const Tensor& qNorm, const Tensor& kNorm, Tensor keys, Tensor values, double scale, int64_t window, Tensor& x) {
  TORCH_CHECK(keys.dim() == 4 && keys.sizes() == values.sizes() && isLike(keys, x) && isLike(values, x) && keys.is_contiguous() && values.is_contiguous(),
              "expected contiguous caches [S, L, G, D] of x's dtype and device");
  for (const Tensor* norm : {&block.attentionNorm, &block.mlpNorm})
    TORCH_CHECK(norm->numel() == x.size(1) && isLike(*norm, x) && norm->is_contiguous(), "a norm has one number per input");
  const int64_t width = x.size(1), groups = keys.size(2), size = keys.size(3), inner = block.down.weight.size(1);
  TORCH_CHECK(block.qkv.weight.size(1) == width && block.up.weight.size(1) == width, "the weights do not fit x");
  TORCH_CHECK(block.qkv.weight.size(0) == (step.heads + 2 * groups) * size, "the projection does not fit the heads and the cache");
  TORCH_CHECK(block.out.weight.size(1) == step.heads * size && block.up.weight.size(0) == 2 * inner && block.out.weight.size(0) == width &&
                  block.down.weight.size(0) == width, "the weights do not fit x");
  FusedAttention attention{Tensor(), qNorm, kNorm, step.cosines, step.sines, step.slots, step.positions, step.headEps, step.interleaved,
                           step.heads, scale, window};
  checkFused(attention, x, keys);
  if (x.device().is_cpu()) return throughBlock(x, step, block, attention, keys, values);
#ifdef ATTUNE_KERNELS
  TORCH_CHECK(cudaAttentionFits(size, x.scalar_type()) && cudaProductFits(x, {width, step.heads * size, groups * size, inner}),
              "there are no kernels for this dtype, head size, width or number of rows");
  throughBlockCuda(x, step, block, attention, keys, values);
#else
  TORCH_CHECK(false, "there is no such kernel for this device");
#endif
}

// The rows of a table of cosines or sines at the positions; CUDA's kernel reads the table itself.
Tensor anglesAt(Maybe given, const Tensor& positions) {
  const Tensor table = whole(given);
  if (!table.defined()) return table;
  TORCH_CHECK(table.dim() == 2 && table.scalar_type() == at::kFloat && table.device() == positions.device(), "cos and sin are float32 tables");
  if (!table.device().is_cpu()) return table;
  Tensor rows = at::empty({positions.size(0), table.size(1)}, table.options());
  for (int64_t i = 0; i < positions.size(0); i++) {
    const int64_t at = positions.data_ptr<int64_t>()[i];
    TORCH_CHECK(at >= 0 && at < table.size(0), "a position lies outside the table of cos and sin");
    std::copy_n(table.data_ptr<float>() + at * table.size(1), table.size(1), rows.data_ptr<float>() + i * table.size(1));
  }
  return rows;
}

}  // namespace

void decodeLayers(Tensor x, double eps, Tensors attentionNorms, Tensors qkv, Maybes qkvBiases, Maybes qNorms, Maybes kNorms, double headEps, Maybe cosines,
                  Maybe sines, bool interleaved, Tensors keys, Tensors values, const Tensor& slots, const Tensor& positions, int64_t heads,
                  c10::ArrayRef<double> scales, at::IntArrayRef windows, Tensors out, Maybes outBiases, Tensors mlpNorms, Tensors up, Maybes upBiases,
                  Tensors down, Maybes downBiases) {
  TORCH_CHECK(x.dim() == 2 && x.is_contiguous() && (x.is_cuda() || (x.device().is_cpu() && x.scalar_type() == at::kFloat)),
              "expected x [B, E], on the CPU in float32");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong && slots.numel() == x.size(0) && positions.numel() == x.size(0) &&
                  slots.device() == x.device() && positions.device() == x.device(), "one int64 slot and position per row");
  const size_t layers = qkv.size();
  for (const size_t count : {attentionNorms.size(), keys.size(), values.size(), scales.size(), windows.size(), out.size(), mlpNorms.size(), up.size(),
                             down.size(), qkvBiases.size(), qNorms.size(), kNorms.size(), outBiases.size(), upBiases.size(), downBiases.size()})
    TORCH_CHECK(count == layers, "the lists have one entry per layer");
  if (x.size(0) == 0) return;

  const Tensor places = positions.contiguous();
  const Step step{slots.contiguous(), places, anglesAt(cosines, places), anglesAt(sines, places), eps, headEps, interleaved, heads};
  for (size_t i = 0; i < layers; i++) {
    const Block block{attentionNorms[i].contiguous(), mlpNorms[i].contiguous(), {qkv[i], qkvBiases.get(i), x}, {out[i], outBiases.get(i), x},
                      {up[i], upBiases.get(i), x}, {down[i], downBiases.get(i), x}};
    decodeBlock(step, block, whole(qNorms.get(i)), whole(kNorms.get(i)), keys[i], values[i], scales[i], windows[i], x);
  }
}

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_layers_fit(Tensor x, int[] widths) -> bool");
  library.impl("decode_layers_fit", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayersFit));
  library.def(
      "decode_layers(Tensor(a!) x, float eps, Tensor[] attention_norms, Tensor[] qkv, Tensor?[] qkv_biases, Tensor?[] q_norms, Tensor?[] k_norms, "
      "float head_eps, Tensor? cos, Tensor? sin, bool interleaved, Tensor(b!)[] keys, Tensor(c!)[] values, Tensor slots, Tensor positions, int heads, "
      "float[] scales, int[] windows, Tensor[] out, Tensor?[] out_biases, Tensor[] mlp_norms, Tensor[] up, Tensor?[] up_biases, Tensor[] down, "
      "Tensor?[] down_biases) -> ()");
  library.impl("decode_layers", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayers));
}
