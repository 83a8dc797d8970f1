// Four rows × six columns of a product with inputs as lanes (inputs.cc), in assembly. On a Neoverse-N1, GCC 12's instruction order gives 28
// GFLOP/s at 16 rows, this one 34 of 40. Two multiply-adds start in each cycle, with the loads spread between them.
#pragma once
#include <cstdint>

namespace attune {

#if defined(__aarch64__)
// Four inputs of all rows times those of one column.
#define ATTUNE_FMLA(sum, x, w) "fmla v" #sum ".4s, v" #x ".4s, v" #w ".4s\n"
#define ATTUNE_COLUMN(s0, s1, s2, s3, w) ATTUNE_FMLA(s0, 0, w) ATTUNE_FMLA(s1, 1, w) ATTUNE_FMLA(s2, 2, w) ATTUNE_FMLA(s3, 3, w)
#define ATTUNE_WEIGHTS(to, from) "ldr q" #to ", [%[" #from "]], #16\n"
#define ATTUNE_FOUR_INPUTS(ask)                                                                                                         \
  "ldp q0, q1, [%[x]], #64\nldp q2, q3, [%[x], #-32]\n" ATTUNE_WEIGHTS(4, w) ATTUNE_WEIGHTS(5, w1) ATTUNE_COLUMN(8, 9, 10, 11, 4)       \
      ATTUNE_WEIGHTS(6, w2) ATTUNE_COLUMN(12, 13, 14, 15, 5) ATTUNE_WEIGHTS(7, w3) ask ATTUNE_COLUMN(16, 17, 18, 19, 6)                 \
          ATTUNE_WEIGHTS(4, w4) ATTUNE_COLUMN(20, 21, 22, 23, 7) ATTUNE_WEIGHTS(5, w5) ATTUNE_COLUMN(24, 25, 26, 27, 4)                 \
              ATTUNE_COLUMN(28, 29, 30, 31, 5)
// Moves the 24 registers of sums from or to memory.
#define ATTUNE_SUMS(move, at)                                                                                               \
  move " q8, q9, [%[" #at "]]\n" move " q10, q11, [%[" #at "], #32]\n" move " q12, q13, [%[" #at "], #64]\n" move           \
       " q14, q15, [%[" #at "], #96]\n" move " q16, q17, [%[" #at "], #128]\n" move " q18, q19, [%[" #at "], #160]\n" move  \
       " q20, q21, [%[" #at "], #192]\n" move " q22, q23, [%[" #at "], #224]\n" move " q24, q25, [%[" #at "], #256]\n" move \
       " q26, q27, [%[" #at "], #288]\n" move " q28, q29, [%[" #at "], #320]\n" move " q30, q31, [%[" #at "], #352]\n"

/**
 * sums[6][4][4] = from + the products of `count` inputs (a multiple of 8, at least 8). The dimensions are columns, rows, inputs modulo 4. x
 * is [count / 4][4 rows][4]; the columns of w are k apart. For every 8 inputs three lines are prefetched into the L2 cache, starting at
 * `next` and moving on by `step` bytes.
 */
inline void inputTile(const float* x, const float* w, int64_t k, int64_t count, const char* next, int64_t step, const float* from,
                      float* sums) {
  const float *w1 = w + k, *w2 = w + 2 * k, *w3 = w + 3 * k, *w4 = w + 4 * k, *w5 = w + 5 * k;
  asm volatile(ATTUNE_SUMS("ldp", from)
      "1:\n"
      ATTUNE_FOUR_INPUTS("prfm pldl2keep, [%[next]]\n")
      ATTUNE_FOUR_INPUTS("prfm pldl2keep, [%[next], #64]\nprfm pldl2keep, [%[next], #128]\n")
      "add %[next], %[next], %[step]\n"
      "subs %[count], %[count], #8\n"
      "b.gt 1b\n"
      ATTUNE_SUMS("stp", sums)
      : [x] "+r"(x), [w] "+r"(w), [w1] "+r"(w1), [w2] "+r"(w2), [w3] "+r"(w3), [w4] "+r"(w4), [w5] "+r"(w5), [next] "+r"(next), [count] "+r"(count)
      : [from] "r"(from), [sums] "r"(sums), [step] "r"(step)
      : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18",
        "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31");
}

#undef ATTUNE_FMLA
#undef ATTUNE_COLUMN
#undef ATTUNE_WEIGHTS
#undef ATTUNE_FOUR_INPUTS
#undef ATTUNE_SUMS
#endif

}  // namespace attune
