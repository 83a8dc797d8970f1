// How 4-bit codes become bf16, and the order in which their products take the inputs.
#pragma once
#include "cuda/product_sums.cuh"

namespace attune {
namespace {

using Number = __nv_bfloat16;

constexpr int kChunk = 64;  // inputs of one step: 16 for each of the four lanes that share a row
constexpr int kRun = 256;  // block maxima that share one maximum

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/** The weights of one byte of codes; `lane` is the lane's place in an entry of the table, in bytes. */
template <int BYTE>
__device__ inline unsigned twoOf4(unsigned codes, const char* table, unsigned lane) {
  return *reinterpret_cast<const unsigned*>(table + __byte_perm(codes, lane, 0x5504u | BYTE << 4));
}

/** Codes of one scale or four neighbouring ones, their maximum, and the mean. */
struct HeldScales {
  unsigned codes;
  float nested, offset;
};
#endif

}  // namespace
}  // namespace attune
