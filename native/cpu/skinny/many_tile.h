// 24 rows × four columns of a product with many rows (many.h), in assembly: GCC 12 loads all four weights first and runs out of registers
// for the sums. Two Zen 3 threads of one core multiply 2,048 × 1,024 × 1,024 at 75 GFLOP/s with its instruction order and at 106 with this
// one.
#pragma once
#include <cstdint>

#include "cpu/vectors.h"

namespace attune {

#if defined(__AVX2__) && defined(ATTUNE_FUSES)
#define ATTUNE_MANY_TILE 1

#define ATTUNE_COLUMN(w, at, s0, s1, s2)                          \
  "vbroadcastss " #at "(%[" #w "],%[i],4), %%ymm15\n"             \
  "vfmadd231ps %%ymm12, %%ymm15, %%ymm" #s0 "\n"                  \
  "vfmadd231ps %%ymm13, %%ymm15, %%ymm" #s1 "\n"                  \
  "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #s2 "\n"
// One input of all rows times those of the four columns. `at`: bytes from the weights; the others are bytes from x.
#define ATTUNE_INPUT(at, x0, x1, x2)                                                                                                    \
  "vmovups " #x0 "(%[x]), %%ymm12\nvmovups " #x1 "(%[x]), %%ymm13\nvmovups " #x2 "(%[x]), %%ymm14\n" ATTUNE_COLUMN(w, at, 0, 1, 2)      \
      ATTUNE_COLUMN(w1, at, 3, 4, 5) ATTUNE_COLUMN(w2, at, 6, 7, 8) ATTUNE_COLUMN(w3, at, 9, 10, 11)
#define ATTUNE_LOAD(at, sum) "vmovups " #at "(%[sums]), %%ymm" #sum "\n"
#define ATTUNE_STORE(at, sum) "vmovups %%ymm" #sum ", " #at "(%[sums])\n"
#define ATTUNE_SUMS(move)                                                                                                       \
  move(0, 0) move(32, 1) move(64, 2) move(96, 3) move(128, 4) move(160, 5) move(192, 6) move(224, 7) move(256, 8) move(288, 9)  \
      move(320, 10) move(352, 11)

/** Adds the products of `count` inputs (a multiple of 4, at least 4) to sums[4][24]. x is [count][24], the columns of w are k apart. */
inline void manyTile(const float* x, const float* w, int64_t k, int64_t count, float* sums) {
  w += count;  // i counts up to 0
  const float *w1 = w + k, *w2 = w + 2 * k, *w3 = w + 3 * k;
  int64_t i = -count;
  asm volatile(ATTUNE_SUMS(ATTUNE_LOAD)
      "1:\n"
      ATTUNE_INPUT(0, 0, 32, 64)
      ATTUNE_INPUT(4, 96, 128, 160)
      ATTUNE_INPUT(8, 192, 224, 256)
      ATTUNE_INPUT(12, 288, 320, 352)
      "add $384, %[x]\n"
      "add $4, %[i]\n"
      "jl 1b\n"
      ATTUNE_SUMS(ATTUNE_STORE)
      : [x] "+&r"(x), [i] "+&r"(i)
      : [w] "r"(w), [w1] "r"(w1), [w2] "r"(w2), [w3] "r"(w3), [sums] "r"(sums)
      : "memory", "cc", "ymm0", "ymm1", "ymm2", "ymm3", "ymm4", "ymm5", "ymm6", "ymm7", "ymm8", "ymm9", "ymm10", "ymm11", "ymm12", "ymm13", "ymm14",
        "ymm15");
}

#undef ATTUNE_COLUMN
#undef ATTUNE_INPUT
#undef ATTUNE_LOAD
#undef ATTUNE_STORE
#undef ATTUNE_SUMS
#endif

}  // namespace attune
