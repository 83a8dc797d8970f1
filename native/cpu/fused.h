// a·b + sum in one rounding, if the CPU has an instruction for it. Loops ask for it explicitly: a compiler that may choose fuses some
// shapes of a loop and not others, and the same sum would then differ between a full tile and the remainder, or between two compilers. So
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
