// The beginning of a decoding step: the embedding's rows, and what is prefetched into the L2 cache.
#pragma once
#include "cuda/raw.h"

namespace attune {

/** All addresses and numbers of bytes are multiples of 16. */
struct StepBegin {
  static constexpr int kMost = 4;
  GatherArgs rows;
  void* cleared;  // becomes zero
  int64_t clearedBytes;
  const void* ahead[kMost];  // comes into the L2 cache, in this order and as far as there is room
  int64_t aheadBytes[kMost];
};

void launchStepBegin(const StepBegin& args, cudaStream_t stream);

}  // namespace attune
