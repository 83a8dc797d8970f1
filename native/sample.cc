// attune::sample(logits[B, V], temperature[B], top_k[B], top_p[B], min_p[B], seeds[B], counters[B]) -> (ids[B], logp[B])
//
// Per row, in Hugging Face's order: temperature, then the k likeliest (0 = all), then the fewest that hold p of what is left
// (1 = all), then those with at least min_p of the likeliest one's probability. One uniform number per (seed, counter) picks
// among the survivors. Temperature 0 is the argmax. logp is over the whole vocabulary at the temperature (1 for argmax),
// which is what the trainer computes; the cuts do not enter it.
//
// A cut is a threshold on e^(z − max): tokens at the threshold stay. So no sorting: thresholds are found by halving.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cstring>

#include "cuda_kernels.h"
#include "kernels.h"
#include "sample.h"

namespace attune {
namespace {

using at::Tensor;

struct Cuts {
  int64_t topK;
  double topP, minP;
};

float fromBits(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// The largest threshold t with measure{w ≥ t} ≥ wanted, the measure being count or mass. Positive floats are ordered as
// their bits are; candidates on one side of each half are dropped, so all halvings together look at some 2·V numbers.
float threshold(std::vector<float>& candidates, double wanted, bool byMass) {
  int32_t low = 0, high = 0x3F800001;  // 0 and just above 1
  double above = 0;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    const float cut = fromBits(middle);
    double measure = 0;
    for (float w : candidates) measure += w >= cut ? (byMass ? static_cast<double>(w) : 1.0) : 0.0;
    const bool enough = above + measure >= wanted;
    size_t kept = 0;
    for (float w : candidates)
      if ((w >= cut) == enough) candidates[kept++] = w;
    candidates.resize(kept);
    if (enough) {
      low = middle;
    } else {
      above += measure;
      high = middle;
    }
    if (candidates.empty()) break;
  }
  return fromBits(low);
}

void sampleRow(const float* logits, int64_t size, float temperature, const Cuts& cuts, int64_t seed, int64_t counter, std::vector<float>& weights,
               std::vector<float>& scratch, int64_t& id, float& logp) {
  float peak = -INFINITY;
  int64_t best = 0;
  for (int64_t i = 0; i < size; i++)
    if (logits[i] > peak) {
      peak = logits[i];
      best = i;
    }
  const float inverse = temperature > 0 ? 1.0f / temperature : 1.0f;
  double total = 0;
  for (int64_t start = 0; start < size; start += 1024) {
    float part = 0;
    const int64_t end = std::min(size, start + 1024);
    for (int64_t i = start; i < end; i++) {
      weights[i] = vexp((logits[i] - peak) * inverse);
      part += weights[i];
    }
    total += part;
  }
  id = best;
  if (temperature > 0) {
    float cut = static_cast<float>(cuts.minP);
    double mass = total;
    if (cuts.topK > 0 && cuts.topK < size) {
      scratch.assign(weights.begin(), weights.begin() + size);
      cut = std::max(cut, threshold(scratch, static_cast<double>(cuts.topK), false));
    }
    if (cuts.topP < 1) {
      scratch.clear();
      mass = 0;
      const float kCut = cuts.topK > 0 && cuts.topK < size ? cut : 0.0f;
      for (int64_t i = 0; i < size; i++)
        if (weights[i] >= kCut) {
          scratch.push_back(weights[i]);
          mass += weights[i];
        }
      cut = std::max(cut, threshold(scratch, cuts.topP * mass, true));
    }
    double kept = 0;
    for (int64_t i = 0; i < size; i++) kept += weights[i] >= cut ? static_cast<double>(weights[i]) : 0.0;
    const double target = uniformAt(seed, counter) * kept;
    double reached = 0;
    for (int64_t i = 0; i < size; i++) {
      if (weights[i] < cut) continue;
      reached += weights[i];
      id = i;
      if (reached > target) break;
    }
  }
  logp = static_cast<float>((logits[id] - peak) * inverse - std::log(total));
}

std::tuple<Tensor, Tensor> sample(const Tensor& logits, const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP,
                                  const Tensor& seeds, const Tensor& counters) {
  TORCH_CHECK(logits.dim() == 2 && logits.scalar_type() == at::kFloat, "expected float32 logits [B, V]");
  const int64_t rows = logits.size(0), size = logits.size(1);
  for (const Tensor* tensor : {&temperature, &topP, &minP})
    TORCH_CHECK(tensor->dim() == 1 && tensor->size(0) == rows && tensor->scalar_type() == at::kFloat && tensor->is_contiguous(), "one float32 per row");
  for (const Tensor* tensor : {&topK, &seeds, &counters})
    TORCH_CHECK(tensor->dim() == 1 && tensor->size(0) == rows && tensor->scalar_type() == at::kLong && tensor->is_contiguous(), "one int64 per row");
  const Tensor z = logits.contiguous();
  Tensor ids = at::empty({rows}, seeds.options()), logp = at::empty({rows}, temperature.options());
  if (!logits.device().is_cpu()) {
#ifdef ATTUNE_KERNELS
    if (logits.is_cuda()) {
      cudaSample(z, temperature, topK, topP, minP, seeds, counters, ids, logp);
      return {ids, logp};
    }
#endif
    // without a kernel of ours: through the CPU
    const auto out = sample(z.cpu(), temperature.cpu(), topK.cpu(), topP.cpu(), minP.cpu(), seeds.cpu(), counters.cpu());
    return {std::get<0>(out).to(ids.device()), std::get<1>(out).to(ids.device())};
  }
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> weights(size), scratch;
    scratch.reserve(size);
    for (int64_t row = begin; row < end; row++) {
      const Cuts cuts{topK.data_ptr<int64_t>()[row], topP.data_ptr<float>()[row], minP.data_ptr<float>()[row]};
      sampleRow(z.data_ptr<float>() + row * size, size, temperature.data_ptr<float>()[row], cuts, seeds.data_ptr<int64_t>()[row],
                counters.data_ptr<int64_t>()[row], weights, scratch, ids.data_ptr<int64_t>()[row], logp.data_ptr<float>()[row]);
    }
  });
  return {ids, logp};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "sample(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor seeds, Tensor counters) -> (Tensor, Tensor)");
  library.impl("sample", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::sample));
}
