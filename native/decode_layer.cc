// attune::decode_layer(x[B, E], …): one whole block of a decoding step on the CPU, x changed in place.
//
// For the commonest block (RMS norm before attention and before a gated SiLU MLP; f32): what it costs is then its products and
// its cache, and not the dozen operators it is made of. src/models/decode-layer.ts says when it fits.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "decode_fused.h"
#include "optional.h"
#include "rows.h"
#include "skinny_product.h"

namespace attune {
namespace {

using at::Tensor;
using Maybe = const Optional<Tensor>&;

Tensor whole(Maybe tensor) { return tensor.has_value() && tensor->defined() ? tensor->contiguous() : Tensor(); }

bool decodeLayerFits(const Tensor& x, int64_t widest) {
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

void decodeLayer(Tensor x, double eps, const Tensor& attentionNorm, const Tensor& qkvWeight, Maybe qkvBias, Maybe qNorm, Maybe kNorm, double headEps,
                 Maybe cosines, Maybe sines, bool interleaved, Tensor keys, Tensor values, const Tensor& slots, const Tensor& positions,
                 int64_t heads, double scale, int64_t window, const Tensor& outWeight, Maybe outBias, const Tensor& mlpNorm, const Tensor& upWeight,
                 Maybe upBias, const Tensor& downWeight, Maybe downBias) {
  TORCH_CHECK(x.dim() == 2 && x.device().is_cpu() && x.scalar_type() == at::kFloat && x.is_contiguous(), "expected float32 x [B, E] on the CPU");
  TORCH_CHECK(keys.dim() == 4 && keys.sizes() == values.sizes() && keys.scalar_type() == at::kFloat && values.scalar_type() == at::kFloat &&
                  keys.is_contiguous() && values.is_contiguous() && keys.device().is_cpu() && values.device().is_cpu(),
              "expected contiguous float32 caches [S, L, G, D] on the CPU");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong && slots.numel() == x.size(0) && positions.numel() == x.size(0) &&
                  slots.device().is_cpu() && positions.device().is_cpu(), "one int64 slot and position per row");
  const int64_t width = x.size(1), groups = keys.size(2), size = keys.size(3);
  const Linear qkv(qkvWeight, qkvBias, width), out(outWeight, outBias, heads * size), up(upWeight, upBias, width);
  const Linear down(downWeight, downBias, up.weight.size(0) / 2);
  TORCH_CHECK(qkv.weight.size(0) == (heads + 2 * groups) * size, "the projection does not fit the heads and the cache");
  TORCH_CHECK(out.weight.size(0) == width && down.weight.size(0) == width && up.weight.size(0) % 2 == 0, "the weights do not fit x");
  if (x.size(0) == 0) return;

  const Tensor attended =
      decodeFusedCpu({qkv(normed(x, attentionNorm, eps)), whole(qNorm), whole(kNorm), whole(cosines), whole(sines), slots.contiguous(),
                      positions.contiguous(), headEps, interleaved, heads, scale, window},
                     keys, values);
  out.into(attended, x, true);
  const Tensor inner = up(normed(x, mlpNorm, eps));
  Tensor active = at::empty({x.size(0), down.weight.size(1)}, x.options());
  swigluRows(inner.data_ptr<float>(), active.data_ptr<float>(), x.size(0), active.size(1));
  down.into(active, x, true);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_layer_fits(Tensor x, int widest) -> bool");
  library.impl("decode_layer_fits", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayerFits));
  library.def(
      "decode_layer(Tensor(a!) x, float eps, Tensor attention_norm, Tensor qkv, Tensor? qkv_bias, Tensor? q_norm, Tensor? k_norm, float head_eps, "
      "Tensor? cos, Tensor? sin, bool interleaved, Tensor(b!) keys, Tensor(c!) values, Tensor slots, Tensor positions, int heads, float scale, "
      "int window, Tensor out, Tensor? out_bias, Tensor mlp_norm, Tensor up, Tensor? up_bias, Tensor down, Tensor? down_bias) -> ()");
  library.impl("decode_layer", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLayer));
}
