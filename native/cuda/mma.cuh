// Tensor cores: c[16, 8] += a[16, 16]·b[16, 8] by one warp. Lane (g, t) = (lane / 4, lane % 4) holds
//   a: rows g and g + 8 at columns 2t, 2t + 1 (a0, a1) and 2t + 8, 2t + 9 (a2, a3)
//   b: column g at rows 2t, 2t + 1 (b0) and 2t + 8, 2t + 9 (b1)
//   c: row g at columns 2t, 2t + 1 (c[0], c[1]) and row g + 8 (c[2], c[3])
// The order of the inner dimension does not matter as long as a and b use the same one, so a lane may hold neighbours of a row.
#pragma once
#include "cuda/numbers.cuh"

namespace attune {

template <typename T>
__device__ inline void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/** Two numbers in one register, the first in the low half; one instruction rounds both. */
template <typename T>
__device__ inline unsigned pack(float low, float high) {
  unsigned both;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

template <typename T>
__device__ inline float2 unpack(unsigned both) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(both << 16), __uint_as_float(both & 0xFFFF0000u)};
  else
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
}

/** Transposes an 8×8 matrix of 16-bit numbers whose rows are held as c's are. */
__device__ inline unsigned transposed(unsigned both) {
  unsigned turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(both));
  return turned;
}

}  // namespace attune
