// Reads prompts in one call (read.cc): all their tokens go through a plan's layers and leave keys and values in its cache.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "ops/decode/plan.h"

namespace attune {

/** Prompts laid end to end. */
struct PackedPrompts {
  std::vector<int64_t> starts{0};  // where each begins, and the number of tokens
  int64_t longest = 0;

  explicit PackedPrompts(at::IntArrayRef lengths);
  int64_t count() const { return static_cast<int64_t>(starts.size()) - 1; }
  int64_t tokens() const { return starts.back(); }
  int64_t length(int64_t i) const { return starts[i + 1] - starts[i]; }
};

/** The numbers that describe the prompts and the responses that follow them, in one tensor, so that they take one upload. */
struct PromptNumbers {
  int64_t tokens, prompts, rows;  // rows: responses
  at::Tensor all;  // int64: the parts below, one after the other

  PromptNumbers(int64_t tokens, int64_t prompts, int64_t rows) : tokens(tokens), prompts(prompts), rows(rows) {}

  // Where the parts begin. Sequences are [prompts, 4] in int32 (ops/training/causal_attention.cc), fractions [3, rows] in f32.
  int64_t sequences() const { return 0; }
  int64_t ids() const { return 2 * prompts; }
  int64_t positions() const { return ids() + tokens; }
  int64_t places() const { return positions() + tokens; }
  int64_t last() const { return places() + tokens; }  // the last token of each prompt
  int64_t which() const { return last() + prompts; }  // the prompt of each response
  int64_t counters() const { return which() + rows; }
  int64_t topK() const { return counters() + rows; }
  int64_t seeds() const { return topK() + rows; }
  int64_t fractions() const { return seeds() + rows; }  // temperature, topP, minP
  int64_t size() const { return fractions() + (3 * rows + 1) / 2; }

  at::Tensor part(int64_t begin, int64_t count) const { return all.narrow(0, begin, count); }
  const int64_t* at(int64_t begin) const { return all.data_ptr<int64_t>() + begin; }
};

#ifdef ATTUNE_KERNELS
/** Whether the eager operators' kernels take all of the plan's layers and these prompts. */
bool promptLayersFit(const DecodePlan& plan, const PackedPrompts& prompts);
/** The logits after each prompt, [prompts, vocabulary]. */
at::Tensor promptLogitsCuda(const DecodePlan& plan, const PackedPrompts& prompts, const PromptNumbers& numbers);
#endif

}  // namespace attune
