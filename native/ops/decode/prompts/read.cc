// attune::read_prompts(plan, ids[T], places[T], lengths[P], rules[7, R]) -> drawn[2, R]
// attune::read_prompts_takes(plan, lengths[P]) -> whether it does
// attune::sample_together(logits, the rows' sampling rules, counters) -> drawn[2, R]: attune::sample in one tensor
//
// Reads prompts that lie end to end into the plan's cache and draws the first tokens of R responses, in one call. The results equal those
// of the eager operators to the bit, except for few tokens on CUDA (layers.cc). `ids`, `places` (the tokens' positions in the whole cache)
// and `rules` are on the CPU: int32, int32, and f64 with each response's prompt, counter, top_k, seed, temperature, top_p and min_p.
// `drawn` is int64: the tokens, then, as floats, their log-probs and kept shares. So the host uploads once and reads once.
#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/decode/prompts/packed.h"
#include "ops/decode/sample_rows.h"
#include "ops/functions.h"
#ifdef ATTUNE_KERNELS
#include "cuda/launching.h"
#endif

namespace attune {

using at::Tensor;

PackedPrompts::PackedPrompts(at::IntArrayRef lengths) {
  for (const int64_t length : lengths) {
    TORCH_CHECK(length > 0, "a prompt has tokens");
    starts.push_back(starts.back() + length);
    longest = std::max(longest, length);
  }
}

namespace {

/** The rows of `rules`. */
enum Rule { kWhich, kCounter, kTopK, kSeed, kTemperature, kTopP, kMinP, kRules };

/** On the CPU, checked. */
PromptNumbers numbersOf(const DecodePlan& plan, const PackedPrompts& prompts, const Tensor& ids, const Tensor& places, const Tensor& rules) {
  const int64_t tokens = prompts.tokens(), positions = plan.layers.front().cache.keys.size(0) * plan.layers.front().cache.block();
  for (const Tensor* tensor : {&ids, &places})
    TORCH_CHECK(tensor->device().is_cpu() && tensor->scalar_type() == at::kInt && tensor->is_contiguous() && tensor->dim() == 1 &&
                    tensor->size(0) == tokens,
                "one int32 id and place per token, on the CPU");
  TORCH_CHECK(rules.device().is_cpu() && rules.scalar_type() == at::kDouble && rules.is_contiguous() && rules.dim() == 2 &&
                  rules.size(0) == kRules && rules.size(1) > 0,
              "expected rules [", static_cast<int>(kRules), ", R] in float64 on the CPU");
  PromptNumbers numbers(tokens, prompts.count(), rules.size(1));
  const bool onCuda = plan.embedding.is_cuda();
  // from pinned memory, an upload does not wait for the device's work
  numbers.all = at::empty({numbers.size()}, at::TensorOptions().dtype(at::kLong).pinned_memory(onCuda));
  auto* const all = numbers.all.data_ptr<int64_t>();
  const int32_t *id = ids.data_ptr<int32_t>(), *place = places.data_ptr<int32_t>();
  std::vector<std::array<int32_t, 4>> sequences;
  for (int64_t i = 0; i < prompts.count(); i++) {
    const auto start = static_cast<int32_t>(prompts.starts[i]);
    sequences.push_back({start, static_cast<int32_t>(prompts.length(i)), start, 0});
    all[numbers.last() + i] = prompts.starts[i + 1] - 1;
    for (int64_t token = start; token < prompts.starts[i + 1]; token++) {
      TORCH_CHECK_INDEX(id[token] >= 0 && id[token] < plan.embedding.size(0), "id ", id[token], " lies outside the embedding");
      TORCH_CHECK_INDEX(place[token] >= 0 && place[token] < positions, "a place lies outside the cache");
      all[numbers.ids() + token] = id[token];
      all[numbers.positions() + token] = token - start;
      all[numbers.places() + token] = place[token];
    }
  }
  // in the order that a GPU finishes soonest (src/models/decoder/batch.ts)
  std::stable_sort(sequences.begin(), sequences.end(), [](const auto& a, const auto& b) { return a[1] > b[1]; });
  std::memcpy(all + numbers.sequences(), sequences.data(), sequences.size() * sizeof(sequences[0]));
  const double* rule = rules.data_ptr<double>();
  auto* const fractions = reinterpret_cast<float*>(all + numbers.fractions());
  for (int64_t i = 0; i < numbers.rows; i++) {
    const auto whole = [&](Rule which) { return static_cast<int64_t>(rule[which * numbers.rows + i]); };
    TORCH_CHECK_INDEX(whole(kWhich) >= 0 && whole(kWhich) < prompts.count(), "a response has no prompt");
    all[numbers.which() + i] = whole(kWhich);
    all[numbers.counters() + i] = whole(kCounter);
    all[numbers.topK() + i] = whole(kTopK);
    all[numbers.seeds() + i] = whole(kSeed);
    for (int64_t part = 0; part < 3; part++)
      fractions[part * numbers.rows + i] = static_cast<float>(rule[(kTemperature + part) * numbers.rows + i]);
  }
  return numbers;
}

Tensor drawTogether(const Tensor& logits, const SamplingRule& rule, const Tensor& counters) {
  const Drawn drawn = sample(logits, rule, counters);
  return at::stack({drawn.ids, at::cat({drawn.logp, drawn.kept}).view(at::kLong)});
}

SamplingRule ruleOf(const PromptNumbers& numbers) {
  const int64_t rows = numbers.rows;
  const Tensor fractions = numbers.part(numbers.fractions(), numbers.size() - numbers.fractions()).view(at::kFloat);
  return {fractions.narrow(0, 0, rows), numbers.part(numbers.topK(), rows), fractions.narrow(0, rows, rows),
          fractions.narrow(0, 2 * rows, rows), numbers.part(numbers.seeds(), rows)};
}

// —— CPU: the functions of the eager operators ————————————————————————————————————————————————————————————

Optional<Tensor> given(const Tensor& tensor) { return tensor.defined() ? Optional<Tensor>(tensor) : Optional<Tensor>(); }
Tensor product(const Linear& matrix, const Tensor& x) { return attune::linear(x, matrix.weight, given(matrix.bias)); }

Tensor promptLogitsCpu(const DecodePlan& plan, const PackedPrompts& prompts, const PromptNumbers& numbers) {
  const int64_t tokens = prompts.tokens(), longest = prompts.longest;
  const Tensor positions = numbers.part(numbers.positions(), tokens), places = numbers.part(numbers.places(), tokens);
  const Tensor last = numbers.part(numbers.last(), prompts.count());
  const auto angles = [&](const Tensor& table) { return table.defined() ? given(table.index_select(0, positions)) : Optional<Tensor>(); };
  const Optional<Tensor> cosines = angles(plan.cosines), sines = angles(plan.sines);
  Tensor x = at::embedding(plan.embedding, numbers.part(numbers.ids(), tokens));
  for (const LayerPlan& layer : plan.layers) {
    const Tensor normed = std::get<1>(addRmsNorm(x, Optional<Tensor>(), layer.attentionNorm, plan.eps));
    const auto [q, k, v] = splitHeads(product(layer.qkv, normed), plan.heads, plan.groups(), given(layer.qNorm), given(layer.kNorm),
                                      plan.headEps, cosines, sines, plan.interleaved);
    cacheWrite(layer.cache, places, k, v);
    const int64_t window = layer.window >= longest ? 0 : layer.window;
    Tensor attended = packedAttention(q, k, v, prompts.starts, layer.scale, window, Optional<Tensor>(), 0, {}).flatten(1);
    if (&layer == &plan.layers.back()) {
      // only the prompts' last tokens need a result; the others have already left their keys and values
      attended = attended.index_select(0, last);
      x = x.index_select(0, last);
    }
    const auto [sum, inner] = addRmsNorm(x, given(product(layer.out, attended)), layer.mlpNorm, plan.eps);
    x = sum.add(product(layer.down, swiglu(product(layer.up, inner))));
  }
  return product(plan.head, rmsNorm(x, plan.finalNorm, plan.finalEps));
}

Tensor readOnCpu(const DecodePlan& plan, const PackedPrompts& prompts, const PromptNumbers& numbers) {
  const Tensor logits = promptLogitsCpu(plan, prompts, numbers).index_select(0, numbers.part(numbers.which(), numbers.rows));
  return drawTogether(logits.to(at::kFloat), ruleOf(numbers), numbers.part(numbers.counters(), numbers.rows));
}

// —— CUDA —————————————————————————————————————————————————————————————————————————————————————————————————
#ifdef ATTUNE_KERNELS

/** Whether response i has prompt i, for all responses. */
bool isOneEach(const PromptNumbers& numbers) {
  if (numbers.rows != numbers.prompts) return false;
  const int64_t* which = numbers.at(numbers.which());
  for (int64_t i = 0; i < numbers.rows; i++)
    if (which[i] != i) return false;
  return true;
}

Tensor readOnCuda(const DecodePlan& plan, const PackedPrompts& prompts, PromptNumbers numbers) {
  const at::AutoDispatchBelowADInplaceOrView withoutAutograd;
  const Launch launch(plan.embedding);
  const bool oneEach = isOneEach(numbers);
  const Tensor here = numbers.all;
  numbers.all = at::empty(here.sizes(), here.options().pinned_memory(false).device(plan.embedding.device()));
  numbers.all.copy_(here, /*non_blocking=*/true);
  Tensor logits = promptLogitsCuda(plan, prompts, numbers);
  if (!oneEach) logits = logits.index_select(0, numbers.part(numbers.which(), numbers.rows));
  logits = logits.to(at::kFloat);
  const int64_t rows = numbers.rows;
  const Tensor drawn = at::empty({2, rows}, numbers.all.options());
  const auto* const fractions = reinterpret_cast<const float*>(numbers.at(numbers.fractions()));
  SampleArgs args{};
  args.logits = logits.data_ptr();
  args.temperature = fractions;
  args.topP = fractions + rows;
  args.minP = fractions + 2 * rows;
  args.topK = numbers.at(numbers.topK());
  args.seeds = numbers.at(numbers.seeds());
  args.counters = numbers.at(numbers.counters());
  args.ids = drawn.data_ptr<int64_t>();
  args.logp = reinterpret_cast<float*>(args.ids + rows);
  args.kept = args.logp + rows;
  args.rows = rows;
  args.size = logits.size(1);
  launchSample(Kind::Float32, args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return drawn;
}
#endif

bool takes(const DecodePlan& plan, const PackedPrompts& prompts) {
  if (prompts.count() == 0 || prompts.longest > plan.length()) return false;
#ifdef ATTUNE_KERNELS
  if (plan.embedding.is_cuda()) return promptLayersFit(plan, prompts);
#endif
  return plan.embedding.device().is_cpu() && !plan.head.quantised &&
         std::none_of(plan.layers.begin(), plan.layers.end(), [](const LayerPlan& layer) {
           return layer.qkv.quantised || layer.out.quantised || layer.up.quantised || layer.down.quantised;
         });
}

bool readPromptsTakes(int64_t number, at::IntArrayRef lengths) { return takes(*planNumbered(number), PackedPrompts(lengths)); }

Tensor readPrompts(int64_t number, const Tensor& ids, const Tensor& places, at::IntArrayRef lengths, const Tensor& rules) {
  const auto plan = planNumbered(number);
  const PackedPrompts prompts(lengths);
  TORCH_CHECK(takes(*plan, prompts), "there are no kernels that read these prompts at once");
  const at::NoGradGuard withoutGradient;
  const PromptNumbers numbers = numbersOf(*plan, prompts, ids, places, rules);
#ifdef ATTUNE_KERNELS
  if (plan->embedding.is_cuda()) return readOnCuda(*plan, prompts, numbers);
#endif
  return readOnCpu(*plan, prompts, numbers);
}

Tensor sampleTogether(const Tensor& logits, const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP,
                      const Tensor& seeds, const Tensor& counters) {
  return drawTogether(logits, {temperature, topK, topP, minP, seeds}, counters);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("read_prompts_takes(int plan, int[] lengths) -> bool", TORCH_FN(attune::readPromptsTakes));
  library.def("read_prompts(int plan, Tensor ids, Tensor places, int[] lengths, Tensor rules) -> Tensor");
  library.impl("read_prompts", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::readPrompts));
  library.def(
      "sample_together(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor seeds, Tensor counters) -> "
      "Tensor");
  library.impl("sample_together", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::sampleTogether));
}
