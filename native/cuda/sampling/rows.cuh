// Shared by the kernels that draw tokens.
#pragma once
#include "cuda/numbers.cuh"
#include "ops/decode/sample.h"

namespace attune {

/** What decides on a row's token. */
struct RowRule {
  bool isGreedy;  // the likeliest word is taken
  float inverse, topP, minP;  // inverse: 1/T
  int64_t topK;  // 0: all
  __device__ RowRule(const SampleArgs& a, int64_t r) {
    const float temperature = a.temperature[r];
    isGreedy = !(temperature >= kLeastTemperature);
    inverse = inverseOf(temperature);
    topP = a.topP[r];
    minP = a.minP[r];
    topK = a.topK[r] < a.size ? a.topK[r] : 0;
  }
};

/** The number in [0, 1) that decides among the words that stay. */
__device__ inline double uniformOf(const SampleArgs& a, int64_t r) {
  return uniformAt(a.seeds[r], a.counters == nullptr ? a.positions[r] + 1 : a.counters[r]);
}

/** Stores what was drawn. For rows that go on by themselves at the row's turn, and moves the row on, or makes it idle. */
__device__ inline void finishRow(const SampleArgs& a, int64_t r, int64_t id, float logp, float kept) {
  int64_t at = r;
  if (a.turns != nullptr) {
    const int64_t turn = a.turns[r];
    at += turn * a.stride;
    a.turns[r] = turn + 1 == a.most ? 0 : turn + 1;
    a.last[r] = id;
    if (a.positions[r] < a.limits[r] && ++a.positions[r] == a.limits[r]) {
      a.positions[r] = a.limits[r] = 0;
      a.slots[r] = a.idleSlot;
    }
  }
  a.ids[at] = id;
  a.logp[at] = logp;
  a.kept[at] = kept;
}

}  // namespace attune
