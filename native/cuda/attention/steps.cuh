// Selects the kernel for the attention of a decoding step (few.cuh, lone.cuh, many.cuh or rows.cuh) by the number of rows and the head
// size.
#pragma once
#include "cuda/attention/lone.cuh"
#include "cuda/attention/many.cuh"

namespace attune {
namespace {

/** Of a step, without bias, and rows of not too many keys. */
bool fewFits(const AttentionArgs& a) { return majorOfDevice() >= 9 && a.ofStep && a.bias == nullptr && a.tableWidth <= kBlocksOfFew; }

/**
 * Whether rows of over 1,024 keys are whole, too: where slots have room for 2,048 and no more. Tokens/s of 0.6B with the 8-bit cache, cut and
 * whole: 1, 4, 8, 16 and 64 rows of 1,200 to 1,500 keys 1,685, 5,727, 9,085, 12,993 and 25,578 → 1,849, 6,103, 10,921, 16,021 and 26,350; 6, 16
 * and 256 rows of mixed lengths 6,236, 11,633 and 42,404 → 6,865, 13,682 and 43,771.
 */
bool longRowsAreWhole(const AttentionArgs& a) { return a.size == 128 && fewFits(a); }

/**
 * By clusters of blocks, where latency counts. On an H200 a layer of Qwen3-0.6B with 384 keys took, with four and with two blocks a row
 * and kv head: 13.8 and 13.9 µs at one row, 15.3 and 15.2 at four, 18.9 and 17.4 at eight; with one block of eight warps 14.3, 15.8 and
 * 18.2. At 16 rows it took 23.7, and 24.5 without being gentle: with room for two tiles a warp a block fits beside those of the
 * products before and after it.
 */
template <typename Cache, int WARPS>
bool attendFew(const AttentionArgs& a, cudaStream_t stream) {
  // Of one row, eight blocks: 13.8 → 13.7 µs, and in 8 bits 14.6 → 14.3.
  if constexpr (Cache::kSize == 128)
    if (a.rows * a.groups * 16 <= multiprocessorsOfDevice()) return launchAttentionFew<Cache, WARPS, 8, 64, Asking::AtOnce>(a, stream);
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
        launchAttentionFew<Cache, WARPS, 1, 128, Asking::AfterQueries>(a, stream))
      return true;
  if (a.rows * a.groups * 4 <= multiprocessorsOfDevice()) return launchAttentionFew<Cache, WARPS, 4, 64, Asking::AtOnce>(a, stream);
  if constexpr (Cache::kSize == 128)
    if (a.rows * a.groups * 2 > multiprocessorsOfDevice()) return launchAttentionFew<Cache, WARPS, 2, 64, Asking::Gently>(a, stream);
  return launchAttentionFew<Cache, WARPS, 2, 96, Asking::Gently>(a, stream);
}

/** By blocks that go through many rows, for two or four query heads a kv head. */
template <typename Cache, int WARPS>
bool attendMany(const AttentionArgs& a, cudaStream_t stream) {
  return launchAttentionMany<Cache, WARPS, 2>(a, stream) || launchAttentionMany<Cache, WARPS, 4>(a, stream);
}

/** A row's bits depend on WARPS alone, on its own position and on whether long rows are whole (longRowsAreWhole). */
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
    // In 8 bits blocks that take several kv heads, but for long rows, of mixed lengths: 256 of them write 42,578 (many.cuh) and 42,271 tokens/s
    // (two kv heads) in place of 43,771.
    if constexpr (Cache::kEachOfFew > 1)
      if (a.mostChunks == 1 && a.tableWidth * kCacheBlock <= kTile << loneOf(D)) {
        const int64_t items = a.rows * a.groups, multiprocessors = multiprocessorsOfDevice();
        if (items > 5 * multiprocessors && attendMany<Cache, WARPS>(a, stream)) return true;
        // Two, where that leaves a block for nearly every place: a layer of 64, 128 and 256 rows of 384 keys 35.5, 55.6 and 91.4 µs in place of
        // 35.9, 58.7 and 97.1. With 16 bits it is slower.
        if (a.heads <= 2 * a.groups && 2 * items > 7 * multiprocessors &&
            launchAttentionFew<Cache, WARPS, 1, 64, Asking::AtOnce, Cache::kEachOfFew>(a, stream))
          return true;
      }
    if (a.mostChunks == 1 && launchAttentionFew<Cache, WARPS, 1, 64, Asking::AtOnce>(a, stream)) return true;
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
