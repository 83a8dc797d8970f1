// Drawing tokens on the CPU (native/ops/sample.cc).
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

/** One entry per row. */
struct SamplingRule {
  at::Tensor temperature, topK, topP, minP, seeds;
};

void checkRule(const SamplingRule& rule, int64_t rows, const at::Device& device);

/** The next token of each row of logits[rows, size] and its log-probability; a row's uniform number is that of (seed, counter). */
void sampleRows(const float* logits, int64_t rows, int64_t size, const SamplingRule& rule, const int64_t* counters, int64_t* ids, float* logp);

}  // namespace attune
