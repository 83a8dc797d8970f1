// vocabulary.cu: the logits of a decoding step's few rows.
#pragma once
#include "cuda/raw.h"

namespace attune {

struct VocabularyArgs {
  const void *x, *norm, *weight;  // [rows, inputs], [inputs] and [words, inputs], of bf16
  void* logits;  // [rows, words]
  int64_t rows, inputs, words;
  float eps;
  const void* packed;  // the weight in 12 bits (packed/pack.h), which is read instead; or null
};

/** Whether the device and the shape are supported. */
bool vocabularyFits(const VocabularyArgs& args);
/** logits = norm(x)·Wᵀ. */
void launchVocabulary(const VocabularyArgs& args, cudaStream_t stream);

}  // namespace attune
