// Drawing tokens (native/ops/decode/sample.cc).
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

/** One entry per row. */
struct SamplingRule {
  at::Tensor temperature, topK, topP, minP, seeds;
};

/** One entry per row: the token, its log-probability over the whole vocabulary, the share of the mass left by the cuts. */
struct Drawn {
  at::Tensor ids, logp, kept;
};

/** Rows that advance by themselves (advance.cc), one entry per row. */
struct GoingRows {
  at::Tensor last, positions, limits, slots, turns;
  int64_t idleSlot;
};

/** Throws unless there is one entry per row, on the device. */
void checkRule(const SamplingRule& rule, int64_t rows, const at::Device& device);

/** The next token of each row of logits[rows, vocabulary]; a row's uniform number is that of (seed, counter). */
Drawn sample(const at::Tensor& logits, const SamplingRule& rule, const at::Tensor& counters);

}  // namespace attune
