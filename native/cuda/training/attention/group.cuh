// Shared by the warpgroup kernels (compute capability 9.0, bf16, heads of 128 numbers): rows in shared memory as tensor maps lay them out,
// in two panels of 64 columns each.
#pragma once
#include "cuda/mma.cuh"
#include "cuda/training/attention/places.cuh"
#include "cuda/wide/hopper.cuh"
#include "cuda/wide/tensor_map.h"

namespace attune {

using GroupNumber = __nv_bfloat16;

constexpr int kGroupSize = 128, kGroupRows = 64, kGroupThreads = 128;  // numbers of a head; rows and threads of a warpgroup
constexpr int kLine = 128, kPanelColumns = kLine / sizeof(GroupNumber), kPanels = kGroupSize / kPanelColumns;
constexpr float kLog2OfE = 1.44269504f;

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
/** Waits for the other warps of the warpgroup. */
__device__ inline void syncGroup(int group) {
  if (group == 0)
    syncThreads<1, kGroupThreads>();
  else
    syncThreads<2, kGroupThreads>();
}

/**
 * Sets the rows of a tile from `first` on to zero, by one warpgroup before its products read them: they are another sequence's, and count
 * with a weight of 0, which is not enough where they are infinite. Several warpgroups may do it, each for itself. `syncGroup` follows.
 */
template <int ROWS>
__device__ inline void clearRowsFrom(char* tile, int first) {
  for (int i = first * 8 + static_cast<int>(threadIdx.x % kGroupThreads); i < ROWS * 8; i += kGroupThreads)
#pragma unroll
    for (int panel = 0; panel < kPanels; panel++) *reinterpret_cast<uint4*>(tile + panel * ROWS * kLine + i * 16) = uint4{};
  showToCopies();
}

/** d[64, 64] = left·rightᵀ of two tiles of 64 rows. */
__device__ inline void multiplyTiles(float (&d)[kGroupRows / 2], uint64_t left, uint64_t right) {
#pragma unroll
  for (int step = 0; step < kGroupSize / 16; step++) {
    const int at = (step / 4 * kGroupRows * kLine + step % 4 * 32) >> 4;
    if (step == 0)
      multiplyFirst(d, left, right);
    else
      multiplyGroup(d, left + at, right + at, true);
  }
}

/** Results of a product, [64, 64], as the left side of the next. */
__device__ inline void packLeft(unsigned (&left)[kGroupRows / 16][4], const float (&d)[kGroupRows / 2]) {
#pragma unroll
  for (int step = 0; step < kGroupRows / 16; step++)
#pragma unroll
    for (int i = 0; i < 4; i++) left[step][i] = pack<GroupNumber>(d[8 * step + 2 * i], d[8 * step + 2 * i + 1]);
}

/** d[64, 128] += left·tile, of 64 rows. */
__device__ inline void addTileProduct(float (&d)[kGroupSize / 2], const unsigned (&left)[kGroupRows / 16][4], const char* tile) {
  const uint64_t columns = describeColumns(tile, kGroupRows * kLine);
#pragma unroll
  for (int step = 0; step < kGroupRows / 16; step++) multiplyGroup(d, left[step], columns + (step * 16 * kLine >> 4));
}

/** Where a warp's sixteen rows of a tile of ROWS rows lie, in pieces of eight numbers. */
template <int ROWS>
struct WarpRows {
  char* first;
  __device__ char* at(int row, int piece) const { return first + piece / 8 * ROWS * kLine + row * kLine + (piece % 8 ^ row % 8) * 16; }

  /** Puts sums · factors (of rows g and g + 8) there. */
  __device__ void put(const float (&sums)[kGroupSize / 2], float factor0, float factor1) const {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < kGroupSize / 8; i++) {
      *reinterpret_cast<unsigned*>(at(g, i) + 4 * t) = pack<GroupNumber>(sums[4 * i] * factor0, sums[4 * i + 1] * factor0);
      *reinterpret_cast<unsigned*>(at(g + 8, i) + 4 * t) = pack<GroupNumber>(sums[4 * i + 2] * factor1, sums[4 * i + 3] * factor1);
    }
    __syncwarp();
  }
};
#endif

/** Tiles of so many rows of a tensor [tokens, heads, 128], `stride` numbers from token to token. */
inline CUtensorMap mapOfRows(const CausalAttentionArgs& a, const void* first, int64_t stride, int rows) {
  const auto bytes = [](int64_t numbers) { return static_cast<cuuint64_t>(numbers * sizeof(GroupNumber)); };
  const cuuint64_t sizes[] = {kGroupSize, static_cast<cuuint64_t>(a.heads), static_cast<cuuint64_t>(a.tokens)};
  const cuuint64_t strides[] = {bytes(kGroupSize), bytes(stride)};
  const cuuint32_t tile[] = {kPanelColumns, static_cast<cuuint32_t>(a.share), static_cast<cuuint32_t>(rows / a.share)};
  return mapOf(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, first, 3, sizes, strides, tile);
}

/** Tiles of so many tokens of one kv head of k or v. */
inline CUtensorMap mapOfKeys(const CausalAttentionArgs& a, const void* first, int64_t stride, int keys) {
  return mapOf(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, first, 1, a.tokens, a.groups * kGroupSize, stride * sizeof(GroupNumber), keys,
               kPanelColumns);
}

}  // namespace attune
