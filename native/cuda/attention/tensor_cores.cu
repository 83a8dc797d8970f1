// Launches the attention of a decoding step for bf16 and f16 (rows.cuh).
#include "cuda/attention/few.cuh"

namespace attune {
namespace {

/** Of a step, without bias, and no row in several chunks. */
bool fewFits(const AttentionArgs& a) {
  return majorOfDevice() >= 9 && a.ofStep && a.bias == nullptr && a.mostChunks == 1 && a.tableWidth <= 32;
}

/**
 * By clusters of blocks, where latency counts. On an H200 a layer of Qwen3-0.6B with 384 keys took, with four and with two blocks a row
 * and kv head: 13.8 and 13.9 µs at one row, 15.3 and 15.2 at four, 18.9 and 17.4 at eight; with one block of eight warps 14.3, 15.8 and
 * 18.2. At 16 rows it took 23.7, and 24.5 without being gentle: with room for two tiles a warp a block fits beside those of the
 * products before and after it.
 */
template <typename T, int D, int WARPS>
bool attendFew(const AttentionArgs& a, cudaStream_t stream) {
  if (a.rows * a.groups * 4 <= multiprocessorsOfDevice()) return launchAttentionFew<T, D, WARPS, 4, 64, false>(a, stream);
  if constexpr (D == 128)
    if (a.rows * a.groups * 2 > multiprocessorsOfDevice()) return launchAttentionFew<T, D, WARPS, 2, 64, true>(a, stream);
  return launchAttentionFew<T, D, WARPS, 2, 96, true>(a, stream);
}

/** A row's bits depend on WARPS alone, and on its own position. */
template <typename T, int D, int WARPS, int STAGES>
bool attendBy(const AttentionArgs& a, cudaStream_t stream) {
  constexpr int kChunk = chunkOf(D), kLone = loneOf(D), kHelpers = 4;
  // where a multiprocessor has at most one item, its latency counts
  const bool isFew = a.rows * a.groups * 128 <= static_cast<int64_t>(multiprocessorsOfDevice()) * D;
  if (isFew && fewFits(a) && attendFew<T, D, WARPS>(a, stream)) return true;
  // Two blocks fit on a multiprocessor. Up to two such turns, dealing costs more than it saves: µs of 32, 48 and 64 rows 13.3, 22.8 and
  // 26.3 in place of 15.2, 24.2 and 28.1, and with lengths from a quarter of the mean to seven quarters 15.1, 22.8 and 28.4 (17.7, 25.9, 29.0).
  const bool isTwoTurns = a.rows * a.groups <= 4 * static_cast<int64_t>(multiprocessorsOfDevice());
  if (!isFew && isTwoTurns && fewFits(a) && launchAttentionFew<T, D, WARPS, 1, 64, false>(a, stream)) return true;
  if (launchAttentionRows<T, D, WARPS, kHelpers, STAGES, kChunk, kLone>(a, stream)) return true;
  return launchAttentionRows<T, D, WARPS, kHelpers, STAGES / 2, kChunk, kLone>(a, stream);  // for a device with less shared memory
}

template <typename T>
bool attend(const AttentionArgs& a, cudaStream_t stream) {
  switch (a.size) {
    case 32: return attendBy<T, 32, 8, 8>(a, stream);
    case 64: return attendBy<T, 64, 8, 4>(a, stream);
    case 96: return attendBy<T, 96, 8, 2>(a, stream);
    case 128: return attendBy<T, 128, 8, 2>(a, stream);
    case 256: return attendBy<T, 256, 4, 2>(a, stream);
    default: return false;
  }
}

}  // namespace

int64_t attentionChunks(int64_t tableWidth, int64_t size) {
  const int64_t tiles = tableWidth * kCacheBlock / kTile, each = int64_t{1} << chunkOf(static_cast<int>(size));
  if (tiles <= int64_t{1} << loneOf(static_cast<int>(size))) return 1;
  return std::min<int64_t>((tiles + each - 1) / each, kMostChunks);
}

// of each chunk and 32 dimensions of a head: the sums, the scores' maximum and the sum of the weights
int64_t attentionPartials(const AttentionArgs& a) {
  return a.mostChunks == 1 ? 0 : a.rows * a.heads * (a.size / 32) * a.mostChunks * (32 + 2);
}

bool launchAttentionMma(Kind kind, const AttentionArgs& args, cudaStream_t stream) {
  if (majorOfDevice() < 8) return false;
  if (kind == Kind::BFloat16) return attend<__nv_bfloat16>(args, stream);
  if (kind == Kind::Float16) return attend<__half>(args, stream);
  return false;
}

}  // namespace attune
