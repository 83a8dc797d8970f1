// Launches the attention of a decoding step for bf16 and f16 (rows.cuh).
#include "cuda/attention/steps.cuh"

namespace attune {

int64_t attentionChunks(const AttentionArgs& a) {
  const int size = static_cast<int>(a.size);
  const int64_t tiles = a.tableWidth * kCacheBlock / kTile, each = int64_t{1} << chunkOf(size);
  if (tiles <= int64_t{1} << loneOf(size) || longRowsAreWhole(a)) return 1;
  return std::min<int64_t>((tiles + each - 1) / each, kMostChunks);
}

// of each chunk and 32 dimensions of a head: the sums, the scores' maximum and the sum of the weights
int64_t attentionPartials(const AttentionArgs& a) {
  return a.mostChunks == 1 ? 0 : a.rows * a.heads * (a.size / 32) * a.mostChunks * (32 + 2);
}

bool launchAttentionMma(Kind kind, const AttentionArgs& args, cudaStream_t stream) {
  if (majorOfDevice() < 8) return false;
  if (args.keyScales != nullptr) return launchAttentionEightBit(kind, args, stream);
  if (kind == Kind::BFloat16) return attendStep<PlainCache, __nv_bfloat16>(args, stream);
  if (kind == Kind::Float16) return attendStep<PlainCache, __half>(args, stream);
  return false;
}

}  // namespace attune
