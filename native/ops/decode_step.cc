// attune::decode_step(…): a whole step of decoding on the CPU in f32, from the rows' last tokens to their next ones.
//
// One call, because a step of a small model is a few milliseconds in which its weights pass through all caches: whatever runs
// between two operators is then read from memory anew. src/models/cpu-step.ts says when it fits.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>

#include "ops/decode_layer.h"
#include "cpu/rows.h"
#include "ops/sample_rows.h"
#include "cpu/skinny_product.h"

namespace attune {
namespace {

using at::Tensor;

bool isFloat(const Tensor& tensor) { return tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat; }

// The rows of the table at `ids`.
Tensor embedded(const Tensor& table, at::IntArrayRef ids) {
  TORCH_CHECK(table.dim() == 2 && isFloat(table) && table.is_contiguous(), "expected a contiguous embedding [V, E] on the CPU in float32");
  const auto rows = static_cast<int64_t>(ids.size()), width = table.size(1);
  Tensor x = at::empty({rows, width}, table.options());
  for (int64_t i = 0; i < rows; i++) {
    TORCH_CHECK(ids[i] >= 0 && ids[i] < table.size(0), "id ", ids[i], " lies outside the embedding");
    std::copy_n(table.data_ptr<float>() + ids[i] * width, width, x.data_ptr<float>() + i * width);
  }
  return x;
}

Tensor logitsOf(Tensor& x, const Tensor& norm, double eps, const Tensor& head, Maybe headBias) {
  const int64_t rows = x.size(0), width = x.size(1);
  TORCH_CHECK(isFloat(norm) && norm.numel() == width && norm.is_contiguous(), "a norm has one number per input");
  TORCH_CHECK(isFloat(head) && head.dim() == 2 && head.size(1) == width && head.is_contiguous(), "the head does not fit x");
  const Tensor bias = headBias.has_value() ? *headBias : Tensor();
  TORCH_CHECK(!bias.defined() || (isFloat(bias) && bias.numel() == head.size(0) && bias.is_contiguous()), "a bias has one number per output");
  rmsNormRows(x.data_ptr<float>(), norm.data_ptr<float>(), x.data_ptr<float>(), rows, width, static_cast<float>(eps));
  Tensor logits = at::empty({rows, head.size(0)}, x.options());
  skinnyProduct({x.data_ptr<float>(), head.data_ptr<float>(), bias.defined() ? bias.data_ptr<float>() : nullptr, logits.data_ptr<float>(), rows, width,
                 head.size(0)});
  return logits;
}

std::tuple<c10::List<int64_t>, c10::List<double>> decodeStep(
    const Tensor& embedding, double eps, Tensors attentionNorms, Tensors qkv, Maybes qkvBiases, Maybes qNorms, Maybes kNorms, double headEps, Maybe cosines,
    Maybe sines, bool interleaved, Tensors keys, Tensors values, const Tensor& slots, int64_t heads, c10::ArrayRef<double> scales, at::IntArrayRef windows,
    Tensors out, Maybes outBiases, Tensors mlpNorms, Tensors up, Maybes upBiases, Tensors down, Maybes downBiases, const Tensor& finalNorm, double finalEps,
    const Tensor& head, Maybe headBias, const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP, const Tensor& seeds,
    at::IntArrayRef ids, at::IntArrayRef positions) {
  const auto rows = static_cast<int64_t>(ids.size());
  TORCH_CHECK(positions.size() == ids.size(), "one id and position per row");
  const SamplingRule rule{temperature, topK, topP, minP, seeds};
  checkRule(rule, rows, embedding.device());

  Tensor x = embedded(embedding, ids), places = at::empty({rows}, seeds.options());
  std::copy(positions.begin(), positions.end(), places.data_ptr<int64_t>());
  decodeLayers(x, eps, attentionNorms, qkv, qkvBiases, qNorms, kNorms, headEps, cosines, sines, interleaved, keys, values, slots, places, heads, scales,
               windows, out, outBiases, mlpNorms, up, upBiases, down, downBiases);
  const Tensor logits = logitsOf(x, finalNorm, finalEps, head, headBias);

  // a token's counter is the place it will have
  std::vector<int64_t> counters(rows), next(rows);
  for (int64_t i = 0; i < rows; i++) counters[i] = positions[i] + 1;
  std::vector<float> logp(rows);
  sampleRows(logits.data_ptr<float>(), rows, logits.size(1), rule, counters.data(), next.data(), logp.data());
  return {c10::List<int64_t>(next), c10::List<double>(std::vector<double>(logp.begin(), logp.end()))};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "decode_step(Tensor embedding, float eps, Tensor[] attention_norms, Tensor[] qkv, Tensor?[] qkv_biases, Tensor?[] q_norms, Tensor?[] k_norms, "
      "float head_eps, Tensor? cos, Tensor? sin, bool interleaved, Tensor(a!)[] keys, Tensor(b!)[] values, Tensor slots, int heads, float[] scales, "
      "int[] windows, Tensor[] out, Tensor?[] out_biases, Tensor[] mlp_norms, Tensor[] up, Tensor?[] up_biases, Tensor[] down, Tensor?[] down_biases, "
      "Tensor final_norm, float final_eps, Tensor head, Tensor? head_bias, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor seeds, "
      "int[] ids, int[] positions) -> (int[], float[])");
  library.impl("decode_step", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeStep));
}
