// Launches the attention of a decoding step over an 8-bit cache, for bf16 and f16 (eight_bit_tile.cuh).
#include "cuda/attention/eight_bit_tile.cuh"
#include "cuda/attention/steps.cuh"

namespace attune {

bool launchAttentionEightBit(Kind kind, const AttentionArgs& args, cudaStream_t stream) {
  if (kind == Kind::BFloat16) return attendStep<EightBitCache, __nv_bfloat16>(args, stream);
  if (kind == Kind::Float16) return attendStep<EightBitCache, __half>(args, stream);
  return false;
}

}  // namespace attune
