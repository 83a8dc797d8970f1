// The sums of 16 rows × 4 columns of f32 over k with rows as lanes (widened bf16 weights), in assembly. On a Neoverse-N1, GCC 12's
// instruction order gives 30 to 35 GFLOP/s, this one 39 of 40. Two multiply-adds start in each cycle, with the loads spread between them.
#pragma once
#include <cstdint>

namespace attune {

#if defined(__aarch64__)
#define ATTUNE_SKINNY_TILE 1

// One step: 16 inputs x times one lane of each column's weights.
#define ATTUNE_FMLA(sum, x, w, lane) "fmla v" #sum ".4s, v" #x ".4s, v" #w ".s[" #lane "]\n"
#define ATTUNE_COLUMN(s0, s1, s2, s3, x0, x1, x2, x3, w, lane) \
  ATTUNE_FMLA(s0, x0, w, lane) ATTUNE_FMLA(s1, x1, w, lane) ATTUNE_FMLA(s2, x2, w, lane) ATTUNE_FMLA(s3, x3, w, lane)
#define ATTUNE_STEP(x0, x1, x2, x3, w0, w1, w2, w3, lane)                                                                              \
  "ldp q" #x0 ", q" #x1 ", [%[x]], #32\nldp q" #x2 ", q" #x3 ", [%[x]], #32\n" ATTUNE_COLUMN(16, 17, 18, 19, x0, x1, x2, x3, w0, lane) \
      ATTUNE_COLUMN(20, 21, 22, 23, x0, x1, x2, x3, w1, lane) ATTUNE_COLUMN(24, 25, 26, 27, x0, x1, x2, x3, w2, lane)                  \
          ATTUNE_COLUMN(28, 29, 30, 31, x0, x1, x2, x3, w3, lane)
#define ATTUNE_FOUR_STEPS(w0, w1, w2, w3)                                                             \
  "ldr q" #w0 ", [%[w]], #16\nldr q" #w1 ", [%[w1]], #16\nldr q" #w2 ", [%[w2]], #16\nldr q" #w3      \
  ", [%[w3]], #16\n"                                                                                  \
  "prfm pldl1keep, [%[next]]\nadd %[next], %[next], #64\n" ATTUNE_STEP(4, 5, 6, 7, w0, w1, w2, w3, 0) \
      ATTUNE_STEP(8, 9, 10, 11, w0, w1, w2, w3, 1) ATTUNE_STEP(4, 5, 6, 7, w0, w1, w2, w3, 2) ATTUNE_STEP(8, 9, 10, 11, w0, w1, w2, w3, 3)

/**
 * sums[4][16] over the first `steps` of k (a multiple of 8, at least 8). x is [k][16]; the columns of w are k apart. Prefetches as many
 * bytes from `next` as it reads of w.
 */
inline void skinnyTile(const float* x, const float* w, int64_t k, int64_t steps, const float* next, float* sums) {
  const float *w1 = w + k, *w2 = w + 2 * k, *w3 = w + 3 * k;
  asm volatile(
      "movi v16.4s, #0\nmovi v17.4s, #0\nmovi v18.4s, #0\nmovi v19.4s, #0\nmovi v20.4s, #0\nmovi v21.4s, #0\nmovi v22.4s, #0\nmovi v23.4s, #0\n"
      "movi v24.4s, #0\nmovi v25.4s, #0\nmovi v26.4s, #0\nmovi v27.4s, #0\nmovi v28.4s, #0\nmovi v29.4s, #0\nmovi v30.4s, #0\nmovi v31.4s, #0\n"
      "1:\n"
      ATTUNE_FOUR_STEPS(0, 1, 2, 3)
      ATTUNE_FOUR_STEPS(12, 13, 14, 15)
      "subs %[steps], %[steps], #8\n"
      "b.gt 1b\n"
      "stp q16, q17, [%[sums]]\nstp q18, q19, [%[sums], #32]\nstp q20, q21, [%[sums], #64]\nstp q22, q23, [%[sums], #96]\n"
      "stp q24, q25, [%[sums], #128]\nstp q26, q27, [%[sums], #160]\nstp q28, q29, [%[sums], #192]\nstp q30, q31, [%[sums], #224]\n"
      : [x] "+r"(x), [w] "+r"(w), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3), [next] "+r"(next), [steps] "+r"(steps)
      : [sums] "r"(sums)
      : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18",
        "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}

#undef ATTUNE_FMLA
#undef ATTUNE_COLUMN
#undef ATTUNE_STEP
#undef ATTUNE_FOUR_STEPS
#endif

}  // namespace attune
