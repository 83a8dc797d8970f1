// a·b + sum in one rounding, where the CPU has an instruction for it. Loops say it themselves: a compiler that may choose fuses in some
// shapes of a loop and not in others, and the same sum would then differ between a full tile and its rest, or between two compilers. So
// every source that includes this file is compiled with -ffp-contract=off (scripts/build-plan.mjs).
#pragma once

namespace attune {

#if defined(__FMA__) || defined(__aarch64__)
#define ATTUNE_FUSES 1
#endif

inline float fused(float a, float b, float sum) {
#ifdef ATTUNE_FUSES
  return __builtin_fmaf(a, b, sum);
#else
  return a * b + sum;  // as the vectors do there (vectors.h)
#endif
}

}  // namespace attune
