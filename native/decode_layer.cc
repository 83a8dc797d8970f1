// attune::decode_layers(x[B, E], …): all blocks of a decoding step on the CPU, x changed in place.
//
// For the commonest block (RMS norm before attention and before a gated SiLU MLP; f32): what it costs is then its products and
// its cache, and not the dozen operators it is made of. src/models/decode-layer.ts says when it fits.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "decode_fused.h"
#include "optional.h"
#include "rows.h"
#include "skinny_product.h"

namespace attune {
namespace {

using at::Tensor;
using Maybe = const Optional<Tensor>&;

Tensor whole(Maybe tensor) { return tensor.has_value() && tensor->defined() ? tensor->contiguous() : Tensor(); }

bool decodeLayersFit(const Tensor& x, int64_t widest) {
  return x.device().is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous() && isSkinny(x.size(0), widest);
}

struct Linear {
  Tensor weight, bias;

  Linear(const Tensor& given, Maybe givenBias, int64_t inputs) : weight(given.contiguous()), bias(whole(givenBias)) {
    TORCH_CHECK(weight.dim() == 2 && weight.size(1) == inputs && weight.scalar_type() == at::kFloat && weight.device().is_cpu(),
                "expected float32 weights that fit together, on the CPU");
    TORCH_CHECK(!bias.defined() || (bias.numel() == weight.size(0) && bias.scalar_type() == at::kFloat && bias.device().is_cpu()),
                "a bias has one float32 per output");
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

Tensor normed(const Tensor& x, const Tensor& given, double eps) {
  const Tensor weight = given.contiguous();
  TORCH_CHECK(weight.numel() == x.size(1) && weight.scalar_type() == at::kFloat && weight.device().is_cpu(), "a norm has one float32 per input");
  Tensor y = at::empty(x.sizes(), x.options());
  rmsNormRows(x.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1), static_cast<float>(eps));
  return y;
}

// What the blocks of one step share.
struct Step {
  Tensor slots, positions, cosines, sines;  // cos and sin per row
  double eps, headEps;
  bool interleaved;
  int64_t heads;
};

struct Block {
  Tensor attentionNorm, qkvWeight, qNorm, kNorm, keys, values, outWeight, mlpNorm, upWeight, downWeight;
  Optional<Tensor> qkvBias, outBias, upBias, downBias;
  double scale;
  int64_t window;
};

void decodeBlock(const Step& step, Block block, Tensor& x) {
  Tensor &keys = block.keys, &values = block.values;
  TORCH_CHECK(keys.dim() == 4 && keys.sizes() == values.sizes() && keys.scalar_type() == at::kFloat && values.scalar_type() == at::kFloat &&
                  keys.is_contiguous() && values.is_contiguous() && keys.device().is_cpu() && values.device().is_cpu(),
              "expected contiguous float32 caches [S, L, G, D] on the CPU");
  const int64_t width = x.size(1), groups = keys.size(2), size = keys.size(3);
  const Linear qkv(block.qkvWeight, block.qkvBias, width), out(block.outWeight, block.outBias, step.heads * size), up(block.upWeight, block.upBias, width);
  const Linear down(block.downWeight, block.downBias, up.weight.size(0) / 2);
  TORCH_CHECK(qkv.weight.size(0) == (step.heads + 2 * groups) * size, "the projection does not fit the heads and the cache");
  TORCH_CHECK(out.weight.size(0) == width && down.weight.size(0) == width && up.weight.size(0) % 2 == 0, "the weights do not fit x");

  const Tensor attended = decodeFusedCpu({qkv(normed(x, block.attentionNorm, step.eps)), block.qNorm, block.kNorm, step.cosines, step.sines, step.slots,
                                          step.positions, step.headEps, step.interleaved, step.heads, block.scale, block.window},
                                         keys, values);
  out.into(attended, x, true);
  const Tensor inner = up(normed(x, block.mlpNorm, step.eps));
  Tensor active = at::empty({x.size(0), down.weight.size(1)}, x.options());
  swigluRows(inner.data_ptr<float>(), active.data_ptr<float>(), x.size(0), active.size(1));
  down.into(active, x, true);
}

// The rows of a table of cosines or sines at the positions.
Tensor rowsAt(Maybe given, const Tensor& positions) {
  const Tensor table = whole(given);
  if (!table.defined()) return table;
  TORCH_CHECK(table.dim() == 2 && table.scalar_type() == at::kFloat && table.device().is_cpu(), "cos and sin are float32 tables on the CPU");
  Tensor rows = at::empty({positions.size(0), table.size(1)}, table.options());
  for (int64_t i = 0; i < positions.size(0); i++) {
    const int64_t at = positions.data_ptr<int64_t>()[i];
    TORCH_CHECK(at >= 0 && at < table.size(0), "a position lies outside the table of cos and sin");
    std::copy_n(table.data_ptr<float>() + at * table.size(1), table.size(1), rows.data_ptr<float>() + i * table.size(1));
  }
  return rows;
}

using Tensors = at::TensorList;
using Maybes = const c10::List<Optional<Tensor>>&;

void decodeLayers(Tensor x, double eps, Tensors attentionNorms, Tensors qkv, Maybes qkvBiases, Maybes qNorms, Maybes kNorms, double headEps, Maybe cosines,
                  Maybe sines, bool interleaved, Tensors keys, Tensors values, const Tensor& slots, const Tensor& positions, int64_t heads,
                  c10::ArrayRef<double> scales, at::IntArrayRef windows, Tensors out, Maybes outBiases, Tensors mlpNorms, Tensors up, Maybes upBiases,
                  Tensors down, Maybes downBiases) {
  TORCH_CHECK(x.dim() == 2 && x.device().is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous(), "expected float32 x [B, E] on the CPU");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong && slots.numel() == x.size(0) && positions.numel() == x.size(0) &&
                  slots.device().is_cpu() && positions.device().is_cpu(), "one int64 slot and position per row");
  const size_t layers = qkv.size();
  for (const size_t count : {attentionNorms.size(), keys.size(), values.size(), scales.size(), windows.size(), out.size(), mlpNorms.size(), up.size(),
                             down.size(), qkvBiases.size(), qNorms.size(), kNorms.size(), outBiases.size(), upBiases.size(), downBiases.size()})
    TORCH_CHECK(count == layers, "the lists have one entry per layer");
  if (x.size(0) == 0) return;

  const Tensor places = positions.contiguous();
  const Step step{slots.contiguous(), places, rowsAt(cosines, places), rowsAt(sines, places), eps, headEps, interleaved, heads};
  for (size_t i = 0; i < layers; i++)
    decodeBlock(step,
                {attentionNorms[i], qkv[i], whole(qNorms.get(i)), whole(kNorms.get(i)), keys[i], values[i], out[i], mlpNorms[i], up[i], down[i], qkvBiases.get(i),
                 outBiases.get(i), upBiases.get(i), downBiases.get(i), scales[i], windows[i]},
                x);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_layers_fit(Tensor x, int widest) -> bool");
  library.impl("decode_layers_fit", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayersFit));
  library.def(
      "decode_layers(Tensor(a!) x, float eps, Tensor[] attention_norms, Tensor[] qkv, Tensor?[] qkv_biases, Tensor?[] q_norms, Tensor?[] k_norms, "
      "float head_eps, Tensor? cos, Tensor? sin, bool interleaved, Tensor(b!)[] keys, Tensor(c!)[] values, Tensor slots, Tensor positions, int heads, "
      "float[] scales, int[] windows, Tensor[] out, Tensor?[] out_biases, Tensor[] mlp_norms, Tensor[] up, Tensor?[] up_biases, Tensor[] down, "
      "Tensor?[] down_biases) -> ()");
  library.impl("decode_layers", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayers));
}
