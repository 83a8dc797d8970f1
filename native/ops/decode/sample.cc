// attune::sample(logits[B, V], temperature[B], top_k[B], top_p[B], min_p[B], seeds[B], counters[B]) -> (ids[B], logp[B], kept[B])
//
// Per row, in Hugging Face's order: temperature, then the k likeliest tokens (0 = all), then the fewest that hold p of the remaining mass
// (1 = all), then those with at least min_p of the likeliest one's probability. One uniform number per (seed, counter) picks among the
// rest. Temperature 0 is the argmax, as is one below 1e-5 (sample.h). logp is over the whole vocabulary at the temperature (1 for argmax),
// which is what the trainer computes; the cuts do not change it. kept is the share of the probability mass that the cuts leave (1 without
// cuts and for argmax), so that logp − log kept is the log-probability under the truncated, renormalised distribution.
//
// A NaN logit has no weight: its token is not drawn. Its row's logp is NaN, and if no token has a weight, the token is 0.
//
// A cut is a threshold on e^(z − max); tokens at the threshold stay. Nothing is sorted: thresholds are found by bisection, which for a
// large vocabulary starts near an estimate from a part of it.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "cpu/deal.h"
#include "cpu/vectors.h"
#include "cuda/kernels.h"
#include "ops/decode/sample.h"
#include "ops/decode/sample_rows.h"

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

constexpr int64_t kRun = 1024;  // numbers summed in f32; the sums of runs are in f64
constexpr int64_t kRunsWorth = 2;  // runs that justify a thread

// Σ w (or the count) over w ≥ cut.
double measure(const float* weights, int64_t count, float cut, bool byMass) {
  double total = 0;
  for (int64_t start = 0; start < count; start += kRun) {
    const int64_t end = std::min(count, start + kRun);
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

constexpr float kAll = 2.0f;  // above every weight

struct Search {
  std::vector<float> room;  // begins with the candidates, the weights in [floor, ceiling)
  int64_t count = 0;  // of the candidates
  float floor, ceiling;
  double above;  // the measure of all weights from the ceiling on
  std::vector<double> runs;  // after the last narrowing by mass: per run, the mass from the ceiling on,
  std::vector<int64_t> ends;  // and how many candidates there were at its end
  std::vector<float> band;
};

#if defined(__aarch64__)
// For each subset of four lanes: the byte shuffle that moves its lanes to the front, and their number.
struct Packing {
  uint8_t bytes[16][16] = {};
  uint8_t counts[16] = {};
  constexpr Packing() {
    for (int set = 0; set < 16; set++)
      for (int lane = 0; lane < 4; lane++)
        if ((set >> lane & 1) != 0) {
          for (int byte = 0; byte < 4; byte++) bytes[set][4 * counts[set] + byte] = static_cast<uint8_t>(4 * lane + byte);
          counts[set]++;
        }
  }
};
constexpr Packing kPacking;
#endif

// Copies the weights of a run in [floor, ceiling) to `out`, which may be `from`. Returns their count, and sums those from the ceiling on.
// Without branches, which would be mispredicted.
int64_t select(const float* from, int64_t count, float floor, float ceiling, float* out, float& above) {
  int64_t kept = 0, i = 0;
#if defined(__aarch64__)
  const uint32x4_t places = {1, 2, 4, 8};
  float32x4_t sum = vdupq_n_f32(0.0f);
  for (; i + 4 <= count; i += 4) {
    const float32x4_t w = vld1q_f32(from + i);
    const uint32x4_t high = vcgeq_f32(w, vdupq_n_f32(ceiling));
    const uint32_t which = vaddvq_u32(vandq_u32(vbicq_u32(vcgeq_f32(w, vdupq_n_f32(floor)), high), places));
    sum = vaddq_f32(sum, vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(w), high)));
    vst1q_u8(reinterpret_cast<uint8_t*>(out + kept), vqtbl1q_u8(vreinterpretq_u8_f32(w), vld1q_u8(kPacking.bytes[which])));
    kept += kPacking.counts[which];
  }
  above += vaddvq_f32(sum);
#endif
  for (; i < count; i++) {
    const float w = from[i];
    out[kept] = w;
    kept += (w >= floor) & (w < ceiling);
    above += w >= ceiling ? w : 0.0f;
  }
  return kept;
}

// Restricts the search to the weights of `from` in [floor, ceiling). `from` may be the candidates themselves; `above` is the measure of
// those at or above the ceiling.
void narrow(Search& search, const float* from, int64_t count, float floor, float ceiling, double above, bool byMass) {
  search.floor = floor;
  search.ceiling = ceiling;
  search.above = above;
  if (!byMass && ceiling < kAll) search.above += measure(from, count, ceiling, false);
  if (search.room.size() < static_cast<size_t>(count)) search.room.resize(count);
  search.count = 0;
  search.runs.clear();
  search.ends.clear();
  for (int64_t start = 0; start < count; start += kRun) {
    float mass = 0;
    search.count += select(from + start, std::min(kRun, count - start), floor, ceiling, search.room.data() + search.count, mass);
    if (byMass) search.above += mass;
    search.runs.push_back(mass);
    search.ends.push_back(search.count);
  }
}

double candidateMass(const Search& search) { return measure(search.room.data(), search.count, 0.0f, true); }

// The largest threshold t with measure{w ≥ t} ≥ wanted, by count or by mass. Positive floats are ordered like their bits, so it is found by
// bisecting the range of bit patterns, down to a width of `precision`. Candidates outside the range are dropped now and then.
float threshold(Search& search, double wanted, bool byMass, int32_t precision = 1) {
  int32_t low = toBits(search.floor), high = toBits(std::min(search.ceiling, 1.0f)) + 1;
  for (int halvings = 1; high - low > precision && search.count > 0; halvings++) {
    const int32_t middle = low + (high - low) / 2;
    if (search.above + measure(search.room.data(), search.count, fromBits(middle), byMass) >= wanted)
      low = middle;
    else
      high = middle;
    if (halvings % 3 == 0) narrow(search, search.room.data(), search.count, fromBits(low), fromBits(high), search.above, byMass);
  }
  return fromBits(low);
}

// The threshold by mass among all tokens. Tokens below the floor hold too little mass to matter. For a large vocabulary a part of it gives
// an estimate, and only weights near the estimate are searched; if it was wrong, the weights on the correct side of it are. `runs` becomes
// the mass from the threshold on in each run of tokens, or empty if that was not computed.
float massThreshold(const float* weights, int64_t size, double whole, double wanted, Search& search, std::vector<double>& runs) {
  constexpr int64_t kLarge = 8192, kPiece = 64, kStep = 1024;
  const float floor = static_cast<float>(std::max(0.5 * (whole - wanted) / static_cast<double>(size), 1e-37));
  runs.clear();
  if (size < kLarge) {
    narrow(search, weights, size, floor, kAll, 0, true);
    return threshold(search, wanted, true);
  }
  std::vector<float>& part = search.band;
  part.clear();
  for (int64_t start = 0; start < size; start += kStep) part.insert(part.end(), weights + start, weights + std::min(size, start + kPiece));
  const auto count = static_cast<int64_t>(part.size());
  narrow(search, part.data(), count, floor, kAll, 0, true);
  const float guess = threshold(search, wanted * (measure(part.data(), count, 0.0f, true) / whole), true, 1 << 18);
  const float low = std::max(floor, guess * 0.94f), high = guess * 1.06f;
  narrow(search, weights, size, low, high, 0, true);
  const bool tooHigh = search.above + candidateMass(search) < wanted;
  if (search.above >= wanted || tooHigh) {
    narrow(search, weights, size, tooHigh ? floor : high, tooHigh ? low : kAll, 0, true);
    return threshold(search, wanted, true);
  }
  search.band.assign(search.room.begin(), search.room.begin() + search.count);
  runs = search.runs;
  const std::vector<int64_t> ends = search.ends;
  const float cut = threshold(search, wanted, true);
  for (size_t run = 0; run < runs.size(); run++) {
    const int64_t begin = run == 0 ? 0 : ends[run - 1];
    runs[run] += measure(search.band.data() + begin, ends[run] - begin, cut, true);
  }
  return cut;
}

// The token at which the running sum over w ≥ cut first exceeds u times the total; `runs` is the mass of each run.
int64_t pick(const float* weights, int64_t size, float cut, double u, const std::vector<double>& runs) {
  double target = 0, reached = 0;
  for (const double run : runs) target += run;
  target *= u;
  int64_t id = 0;
  for (int64_t start = 0; start < size; start += kRun) {
    const double run = runs[start / kRun];
    if (reached + run <= target && start + kRun < size) {
      reached += run;
      continue;
    }
    for (int64_t i = start; i < std::min(size, start + kRun); i++) {
      if (!(weights[i] > 0 && weights[i] >= cut)) continue;
      id = i;
      reached += weights[i];
      if (reached > target) return id;
    }
  }
  return id;  // by rounding, the target was just beyond the last token
}

// Writes result(start, count) of each run of `size` numbers to `out`. The runs are divided among threads.
template <typename Result>
void eachRun(int64_t size, std::vector<float>& out, const Result& result) {
  out.resize((size + kRun - 1) / kRun);
  deal(static_cast<int64_t>(out.size()), kRunsWorth, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; run++) out[run] = result(run * kRun, std::min(kRun, size - run * kRun));
  });
}

// The first token with the largest logit; `peaks` are the runs' maxima. 0 if no token is possible.
int64_t likeliest(const float* logits, int64_t size, const std::vector<float>& peaks, float peak) {
  int64_t id = 0;
  if (!(peak > -std::numeric_limits<float>::infinity())) return id;
  for (size_t run = 0; run + 1 < peaks.size() && !(peaks[run] >= peak); run++) id += kRun;
  while (id + 1 < size && !(logits[id] >= peak)) id++;
  return id;
}

// Sets NaN weights to 0, and returns the sum.
double dropNaN(std::vector<float>& weights, int64_t size) {
  double total = 0;
  for (int64_t i = 0; i < size; i++) {
    if (std::isnan(weights[i])) weights[i] = 0;
    total += weights[i];
  }
  return total;
}

// libtorch's `to` uses only one thread for the logits of a row.
Tensor asFloats(const Tensor& logits) {
  if (!logits.device().is_cpu() || logits.scalar_type() != at::kBFloat16) return logits.to(at::kFloat);
  Tensor out = at::empty(logits.sizes(), logits.options().dtype(at::kFloat));
  const at::BFloat16* from = logits.data_ptr<at::BFloat16>();
  float* to = out.data_ptr<float>();
  const int64_t size = logits.numel();
  deal((size + kRun - 1) / kRun, kRunsWorth, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kRun; i < std::min(size, end * kRun); i++) to[i] = static_cast<float>(from[i]);
  });
  return out;
}

void sampleRow(const float* logits, int64_t size, float temperature, const Cuts& cuts, int64_t seed, int64_t counter,
               std::vector<float>& weights, Search& search, int64_t& id, float& logp, float& kept) {
  std::vector<float> peaks, sums;
  eachRun(size, peaks, [&](int64_t start, int64_t count) { return largest(logits + start, count); });
  const float peak = largest(peaks.data(), static_cast<int64_t>(peaks.size())), inverse = inverseOf(temperature);
  eachRun(size, sums,
          [&](int64_t start, int64_t count) { return exponentials(logits + start, count, peak, inverse, weights.data() + start); });
  double total = std::accumulate(sums.begin(), sums.end(), 0.0);
  const bool hasNaN = std::isnan(total);
  if (hasNaN) total = dropNaN(weights, size);
  id = 0;
  kept = 1;
  if (!(temperature >= kLeastTemperature)) {
    id = likeliest(logits, size, peaks, peak);
  } else {
    const auto minP = static_cast<float>(cuts.minP);
    float cut = 0;
    std::vector<double> runs;
    if (cuts.topK > 0 && cuts.topK < size) {
      narrow(search, weights.data(), size, 0.0f, kAll, 0, false);
      cut = threshold(search, static_cast<double>(cuts.topK), false);
      if (cuts.topP < 1) {
        narrow(search, weights.data(), size, cut, kAll, 0, true);
        cut = threshold(search, cuts.topP * candidateMass(search), true);
      }
    } else if (cuts.topP < 1) {
      cut = massThreshold(weights.data(), size, total, cuts.topP * total, search, runs);
    }
    if (cut < minP) cut = minP, runs.clear();
    for (int64_t start = static_cast<int64_t>(runs.size()) * kRun; start < size; start += kRun)
      runs.push_back(measure(weights.data() + start, std::min(kRun, size - start), cut, true));
    id = pick(weights.data(), size, cut, uniformAt(seed, counter), runs);
    if (cut > 0) kept = static_cast<float>(std::min(1.0, std::accumulate(runs.begin(), runs.end(), 0.0) / total));
  }
  logp = hasNaN ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>((logits[id] - peak) * inverse - std::log(total));
}

// logits[rows, size] on the CPU in f32.
void sampleRows(const Tensor& logits, const SamplingRule& rule, const Tensor& counterOf, Drawn& out) {
  const int64_t rows = logits.size(0), size = logits.size(1);
  const float* all = logits.data_ptr<float>();
  const int64_t* counters = counterOf.data_ptr<int64_t>();
  int64_t* ids = out.ids.data_ptr<int64_t>();
  float *logp = out.logp.data_ptr<float>(), *kept = out.kept.data_ptr<float>();
  const float *temperature = rule.temperature.data_ptr<float>(), *topP = rule.topP.data_ptr<float>(), *minP = rule.minP.data_ptr<float>();
  const int64_t *topK = rule.topK.data_ptr<int64_t>(), *seeds = rule.seeds.data_ptr<int64_t>();
  // a single row is divided among threads by its runs instead
  deal(rows, 1, [&](int64_t begin, int64_t end) {
    static thread_local std::vector<float> weights;  // kept between calls: fresh memory would cost more than the draw
    if (static_cast<int64_t>(weights.size()) < size) weights.resize(size);
    Search search;
    for (int64_t row = begin; row < end; row++)
      sampleRow(all + row * size, size, temperature[row], {topK[row], topP[row], minP[row]}, seeds[row], counters[row], weights, search,
                ids[row], logp[row], kept[row]);
  });
}

}  // namespace

void checkRule(const SamplingRule& rule, int64_t rows, const at::Device& device) {
  const auto fits = [&](const Tensor& tensor, at::ScalarType type) {
    return tensor.dim() == 1 && tensor.size(0) == rows && tensor.scalar_type() == type && tensor.is_contiguous();
  };
  for (const Tensor* tensor : {&rule.temperature, &rule.topP, &rule.minP}) TORCH_CHECK(fits(*tensor, at::kFloat), "one float32 per row");
  for (const Tensor* tensor : {&rule.topK, &rule.seeds}) TORCH_CHECK(fits(*tensor, at::kLong), "one int64 per row");
  for (const Tensor* tensor : {&rule.temperature, &rule.topP, &rule.minP, &rule.topK, &rule.seeds})
    TORCH_CHECK(tensor->device() == device, "all inputs are on one device");
}

Drawn sample(const Tensor& logits, const SamplingRule& rule, const Tensor& counters) {
  TORCH_CHECK(logits.dim() == 2 && at::isFloatingType(logits.scalar_type()), "expected logits [B, V]");
  const int64_t rows = logits.size(0);
  checkRule(rule, rows, logits.device());
  TORCH_CHECK(counters.dim() == 1 && counters.size(0) == rows && counters.scalar_type() == at::kLong && counters.is_contiguous() &&
                  counters.device() == logits.device(),
              "one int64 counter per row");
  Tensor z = logits.contiguous();
  if (!logits.is_cuda() || z.scalar_type() == at::kDouble) z = asFloats(z);  // the CUDA kernels widen as they read
  Drawn out{at::empty({rows}, rule.seeds.options()), at::empty({rows}, rule.temperature.options()),
            at::empty({rows}, rule.temperature.options())};
  if (logits.device().is_cpu()) {
    sampleRows(z, rule, counters, out);
    return out;
  }
#ifdef ATTUNE_KERNELS
  if (logits.is_cuda()) {
    cudaSample(z, rule, counters, out);
    return out;
  }
#endif
  // no kernel of ours for this device: computed on the CPU
  const SamplingRule here{rule.temperature.cpu(), rule.topK.cpu(), rule.topP.cpu(), rule.minP.cpu(), rule.seeds.cpu()};
  const Drawn drawn = sample(z.cpu(), here, counters.cpu());
  const at::Device device = logits.device();
  return {drawn.ids.to(device), drawn.logp.to(device), drawn.kept.to(device)};
}

namespace {

std::tuple<Tensor, Tensor, Tensor> sampleOperator(const Tensor& logits, const Tensor& temperature, const Tensor& topK, const Tensor& topP,
                                                  const Tensor& minP, const Tensor& seeds, const Tensor& counters) {
  const Drawn drawn = sample(logits, {temperature, topK, topP, minP, seeds}, counters);
  return {drawn.ids, drawn.logp, drawn.kept};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "sample(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor seeds, Tensor counters) -> (Tensor, "
      "Tensor, Tensor)");
  library.impl("sample", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::sampleOperator));
}
