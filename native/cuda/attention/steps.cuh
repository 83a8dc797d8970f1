// Which kernel takes the attention of a decoding step: few.cuh, lone.cuh, many.cuh or rows.cuh, by the number of rows and the size of a head.
#pragma once
#include <cstdlib>

#include "cuda/attention/lone.cuh"
#include "cuda/attention/many.cuh"

namespace attune {
namespace {

/** Of a step, without bias, and rows of not too many keys. */
bool fewFits(const AttentionArgs& a) { return majorOfDevice() >= 9 && a.ofStep && a.bias == nullptr && a.tableWidth <= kBlocksOfFew; }

/**
 * By clusters of blocks, where latency counts. On an H200 a layer of Qwen3-0.6B with 384 keys took, with four and with two blocks a row
 * and kv head: 13.8 and 13.9 µs at one row, 15.3 and 15.2 at four, 18.9 and 17.4 at eight; with one block of eight warps 14.3, 15.8 and
 * 18.2. At 16 rows it took 23.7, and 24.5 without being gentle: with room for two tiles a warp a block fits beside those of the
 * products before and after it.
 */
template <typename Cache, int WARPS>
bool attendFew(const AttentionArgs& a, cudaStream_t stream) {
  using Whole = WholeSpan<Cache::kKeys>;
  // Of one row, eight blocks: 13.8 → 13.7 µs, and in 8 bits 14.6 → 14.3.
  if constexpr (Cache::kSize == 128)
    if (a.rows * a.groups * 16 <= multiprocessorsOfDevice())
      return launchAttentionFew<Cache, Whole, WARPS, 8, 64, Asking::AtOnce>(a, stream);
  if constexpr (Cache::kSize == 128)
    if (a.tableWidth * kCacheBlock > 1024 && a.rows * a.groups * 4 > multiprocessorsOfDevice() && getenv("ATTUNE_FEW") != nullptr) {
      if (a.rows * a.groups * 2 > multiprocessorsOfDevice())
        return launchAttentionFew<Cache, Whole, WARPS, 4, 48, Asking::AtOnce>(a, stream);
      return launchAttentionFew<Cache, Whole, WARPS, 4, 64, Asking::AtOnce>(a, stream);
    }
  // In 8 bits, where most multiprocessors have a row and kv head, one block for it: 22.6 → 21.8 µs at 16 rows. It has room beside the products
  // of models 1,024 wide (staged_product.cu): 16 rows of 1.7B wrote 11,760 tokens/s with it, and 12,269 without.
  if constexpr (Cache::kIsLone)
    if (a.isNarrow && a.rows * a.groups * 2 > multiprocessorsOfDevice() && a.heads <= 2 * a.groups &&
        launchAttentionLone<Cache, WARPS, 3>(a, stream))
      return true;
  // Between products that take all shared memory it cannot begin early, so there is nobody to be gentle to: then one block with room for two
  // tiles a warp, without a cluster. A layer of 16 rows of 4B takes 63.9 µs in place of 66, of 1.7B 38.5 and, in 16 bits, 39.0 (38.9, 40.4). With
  // the second tiles asked for after the queries 63.5 to 64.1, 38.1 and 38.7.
  if constexpr (Cache::kSize == 128)
    if (a.isAlone && a.rows * a.groups * 2 > multiprocessorsOfDevice() &&
        launchAttentionFew<Cache, Whole, WARPS, 1, 128, Asking::AfterQueries>(a, stream))
      return true;
  if (a.rows * a.groups * 4 <= multiprocessorsOfDevice()) return launchAttentionFew<Cache, Whole, WARPS, 4, 64, Asking::AtOnce>(a, stream);
  if constexpr (Cache::kSize == 128)
    if (a.rows * a.groups * 2 > multiprocessorsOfDevice()) return launchAttentionFew<Cache, Whole, WARPS, 2, 64, Asking::Gently>(a, stream);
  return launchAttentionFew<Cache, Whole, WARPS, 2, 96, Asking::Gently>(a, stream);
}

/** By blocks that go through many rows, for two or four query heads a kv head. */
template <typename Cache, int WARPS>
bool attendMany(const AttentionArgs& a, cudaStream_t stream) {
  return launchAttentionMany<Cache, WARPS, 2>(a, stream) || launchAttentionMany<Cache, WARPS, 4>(a, stream);
}

/** A row's bits depend on WARPS alone, and on its own position. */
template <typename Cache, int WARPS, int STAGES>
bool attendBy(const AttentionArgs& a, cudaStream_t stream) {
  constexpr int D = Cache::kSize, kHelpers = 4;
  constexpr int kFewer = Cache::kKeys == 2 * kTile ? 1 : 0;  // log2 of what a tile has more keys than kTile
  constexpr int kChunk = chunkOf(D) - kFewer, kLone = loneOf(D) - kFewer;
  // where a multiprocessor has at most one item, its latency counts
  const bool isFew = a.rows * a.groups * 128 <= static_cast<int64_t>(multiprocessorsOfDevice()) * D;
  if (isFew && fewFits(a) && a.mostChunks == 1 && attendFew<Cache, WARPS>(a, stream)) return true;
  // Two blocks fit on a multiprocessor. Up to two such turns, dealing costs more than it saves: µs of 32, 48 and 64 rows 13.3, 22.8 and
  // 26.3 in place of 15.2, 24.2 and 28.1, and with lengths from a quarter of the mean to seven quarters 15.1, 22.8 and 28.4 (17.7, 25.9, 29.0).
  // For heads of 128 numbers, as read there, up to eight turns: a block of few.cuh fits beside the products' blocks. 128 and 256 rows of 0.6B
  // and 128 of 8B write 54,473, 62,931 and 16,739 tokens/s in place of 53,307, 61,639 and 16,309; in 8 bits a layer of 96, 128 and 256 rows
  // takes 55.2, 62.6 and 100.9 µs (61.8, 68.3 and 104.4).
  const bool isFewTurns = a.rows * a.groups <= 2 * Cache::kTurnsOfFew * static_cast<int64_t>(multiprocessorsOfDevice());
  if (!isFew && isFewTurns && fewFits(a)) {
    using Whole = WholeSpan<Cache::kKeys>;
    using Cut = CutSpan<Cache::kKeys, kChunk, kLone>;
    if constexpr (Cache::kEachOfFew > 1) {
      const int64_t items = a.rows * a.groups, multiprocessors = multiprocessorsOfDevice();
      if (a.mostChunks == 1 && items > 5 * multiprocessors && (a.tableWidth * kCacheBlock <= 1024 || getenv("ATTUNE_MANY") != nullptr) &&
          attendMany<Cache, WARPS>(a, stream))
        return true;
    }
    // In 8 bits two kv heads a block, where that leaves a block for nearly every place: a layer of 64, 128 and 256 rows of 384 keys 35.5, 55.6
    // and 91.4 µs in place of 35.9, 58.7 and 97.1. With 16 bits, or with rows in several chunks, of mixed lengths, it is slower.
    if constexpr (Cache::kEachOfFew > 1)
      if (a.mostChunks == 1 && (a.tableWidth * kCacheBlock <= 1024 || getenv("ATTUNE_EACH") != nullptr) && a.heads <= 2 * a.groups && 2 * a.rows * a.groups > 7 * multiprocessorsOfDevice() &&
          launchAttentionFew<Cache, Whole, WARPS, 1, 64, Asking::AtOnce, Cache::kEachOfFew>(a, stream))
        return true;
    if (a.mostChunks == 1 && launchAttentionFew<Cache, Whole, WARPS, 1, 64, Asking::AtOnce>(a, stream)) return true;
    // Rows of up to 2,048 keys, which rows.cuh deals in chunks. A layer of 256, 124, 81 and 48 rows of mixed lengths (0.6B, 8 bits, some 670,
    // 1,110, 1,240 and 1,320 keys on average) takes 128.3, 101.6, 84.2 and 62.0 µs in place of 148.5, 118.0, 99.4 and 73.0.
    if constexpr (D == 128)
      if (a.mostChunks > 1 &&
          launchAttentionFew<Cache, Cut, WARPS, 1, 64, Asking::AtOnce>(a, stream))
        return true;
  }
  if (launchAttentionRows<Cache, WARPS, kHelpers, STAGES, kChunk, kLone>(a, stream)) return true;
  return launchAttentionRows<Cache, WARPS, kHelpers, STAGES / 2, kChunk, kLone>(a, stream);  // for a device with less shared memory
}

/** Cache: PlainCache or EightBitCache. False, and nothing done, for other head sizes. */
template <template <typename, int> class Cache, typename T>
bool attendStep(const AttentionArgs& a, cudaStream_t stream) {
  switch (a.size) {
    case 32: return attendBy<Cache<T, 32>, 8, 8>(a, stream);
    case 64: return attendBy<Cache<T, 64>, 8, 4>(a, stream);
    case 96: return attendBy<Cache<T, 96>, 8, 2>(a, stream);
    case 128: return attendBy<Cache<T, 128>, 8, 2>(a, stream);
    case 256: return attendBy<Cache<T, 256>, 4, 2>(a, stream);
    default: return false;
  }
}

}  // namespace

/** launchAttentionMma for a cache in 8 bits (eight_bit.cu). */
bool launchAttentionEightBit(Kind kind, const AttentionArgs& args, cudaStream_t stream);

}  // namespace attune
