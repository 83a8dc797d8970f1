// How 8-bit codes become bf16, and how their products divide the inputs among eight warps.
#pragma once
#include "cuda/numbers.cuh"

namespace attune {
namespace {

constexpr int kChunk = 64;  // inputs of one step: 16 for each of the four lanes that share a row
constexpr int kSpan = 2 * kChunk;  // inputs that a warp takes at a time: whole lines of codes in 8 bits

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// Two bytes b as bf16. The lower seven bits in the mantissa of 128 give 128 + (b mod 128). The sign bit alone gives 128 or 256. The
// difference of the two is the signed byte, exactly.
__device__ inline unsigned twoOf8(unsigned codes, unsigned selector) {
  const unsigned both = __byte_perm(codes, 0x43434343u, selector), value = both & 0x437F437Fu, sign = both & 0x43804380u;
  const __nv_bfloat162 two = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&value), *reinterpret_cast<const __nv_bfloat162*>(&sign));
  return *reinterpret_cast<const unsigned*>(&two);
}

__device__ inline void eightOf8(unsigned first, unsigned second, unsigned (&pairs)[4]) {
  pairs[0] = twoOf8(first, 0x4140u);
  pairs[1] = twoOf8(first, 0x4342u);
  pairs[2] = twoOf8(second, 0x4140u);
  pairs[3] = twoOf8(second, 0x4342u);
}
#endif

}  // namespace
}  // namespace attune
