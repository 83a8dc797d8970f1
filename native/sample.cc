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

int32_t toBits(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Σ w (or how many) over w ≥ cut; short runs in f32, their sums in f64.
double measure(const float* weights, int64_t count, float cut, bool byMass) {
  double total = 0;
  for (int64_t start = 0; start < count; start += 1024) {
    const int64_t end = std::min(count, start + 1024);
    float part = 0;
    if (byMass) {
#pragma omp simd reduction(+ : part)
      for (int64_t i = start; i < end; i++) part += weights[i] >= cut ? weights[i] : 0.0f;
    } else {
#pragma omp simd reduction(+ : part)
      for (int64_t i = start; i < end; i++) part += weights[i] >= cut ? 1.0f : 0.0f;
    }
    total += part;
  }
  return total;
}

// The largest threshold t with measure{w ≥ t} ≥ wanted, by count or by mass. Positive floats are ordered as their bits are,
// so halving the range of bits finds it; candidates that fall outside the range are dropped now and then.
float threshold(std::vector<float>& candidates, double wanted, bool byMass) {
  float least = INFINITY;
  for (float w : candidates) least = std::min(least, w);
  int32_t low = toBits(least), high = toBits(1.0f) + 1;
  double above = 0;
  for (int halvings = 1; high - low > 1 && !candidates.empty(); halvings++) {
    const int32_t middle = low + (high - low) / 2;
    const double found = measure(candidates.data(), static_cast<int64_t>(candidates.size()), fromBits(middle), byMass);
    if (above + found >= wanted)
      low = middle;
    else
      high = middle;
    if (halvings % 3 == 0) {
      const float floor = fromBits(low), ceiling = fromBits(high);
      above += measure(candidates.data(), static_cast<int64_t>(candidates.size()), ceiling, byMass);
      size_t kept = 0;
      for (float w : candidates) {
        candidates[kept] = w;
        kept += w >= floor && w < ceiling;
      }
      candidates.resize(kept);
    }
  }
  return fromBits(low);
}

// The token at which the running sum over w ≥ cut first exceeds u of the whole.
int64_t pick(const float* weights, int64_t size, float cut, double u) {
  constexpr int64_t kRun = 1024;
  const double target = u * measure(weights, size, cut, true);
  double reached = 0;
  int64_t id = 0;
  for (int64_t start = 0; start < size; start += kRun) {
    const int64_t count = std::min(kRun, size - start);
    const double run = measure(weights + start, count, cut, true);
    if (reached + run <= target && start + kRun < size) {
      reached += run;
      continue;
    }
    for (int64_t i = start; i < start + count; i++) {
      if (weights[i] < cut) continue;
      id = i;
      reached += weights[i];
      if (reached > target) return id;
    }
  }
  return id;  // rounding left the target just beyond the last one
}

void sampleRow(const float* logits, int64_t size, float temperature, const Cuts& cuts, int64_t seed, int64_t counter, std::vector<float>& weights,
               std::vector<float>& scratch, int64_t& id, float& logp) {
  float peak = -INFINITY;
#pragma omp simd reduction(max : peak)
  for (int64_t i = 0; i < size; i++) peak = std::max(peak, logits[i]);
  const float inverse = temperature > 0 ? 1.0f / temperature : 1.0f;
  double total = 0;
  float* out = weights.data();  // a plain pointer: through the vector the loop is not vectorised
  for (int64_t start = 0; start < size; start += 1024) {
    float part = 0;
    const int64_t end = std::min(size, start + 1024);
#pragma omp simd reduction(+ : part)
    for (int64_t i = start; i < end; i++) {
      const float w = vexp((logits[i] - peak) * inverse);
      out[i] = w;
      part += w;
    }
    total += part;
  }
  id = 0;
  if (temperature <= 0) {
    while (id + 1 < size && !(logits[id] >= peak)) id++;
  } else {
    float cut = static_cast<float>(cuts.minP);
    double mass = total;
    if (cuts.topK > 0 && cuts.topK < size) {
      scratch.assign(weights.begin(), weights.begin() + size);
      cut = std::max(cut, threshold(scratch, static_cast<double>(cuts.topK), false));
    }
    if (cuts.topP < 1) {
      scratch.clear();
      const bool narrowed = cuts.topK > 0 && cuts.topK < size;
      if (narrowed) {
        mass = measure(weights.data(), size, cut, true);
        for (int64_t i = 0; i < size; i++)
          if (weights[i] >= cut) scratch.push_back(weights[i]);
      } else {
        scratch.assign(weights.begin(), weights.begin() + size);
      }
      cut = std::max(cut, threshold(scratch, cuts.topP * mass, true));
    }
    id = pick(weights.data(), size, cut, uniformAt(seed, counter));
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
