// The keys of a prefix are seen by the rows of its whole family, which are neighbours. A cluster of blocks shares these rows and adds its
// sums in the order of the blocks: a family may have many times the rows of a sequence, and would end long after everything else.
#pragma once
#include "cuda/mma.cuh"
#include "cuda/training/attention/places.cuh"

namespace attune {

/** The sums of a cluster's blocks are added up and written: the blocks have equal shares of the keys. */
template <typename T, int D>
struct ClusterSums {
  static constexpr int kStride = D + 8;  // so that lanes write to different banks
  static constexpr int kNumbers = kBlockRows * kStride;
  float* const sums;  // of this block: dV, then dK

  /** `of`: the warp's sixteen keys, four numbers for every eight columns. */
  __device__ void put(int which, const float* of) const {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * kTile + lane / 4;
    float* const to = sums + which * kNumbers + row * kStride + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < D / 8; i++) {
      *reinterpret_cast<float2*>(to + 8 * i) = make_float2(of[4 * i], of[4 * i + 1]);
      *reinterpret_cast<float2*>(to + 8 * kStride + 8 * i) = make_float2(of[4 * i + 2], of[4 * i + 3]);
    }
  }

  /** `to` is the place of the tile's first key; keys are `stride` numbers apart. */
  __device__ void store(int which, T* to, int64_t stride, int real, float factor) const {
    const int splits = static_cast<int>(clusterSize()), share = kBlockRows / splits, first = static_cast<int>(clusterRank()) * share;
    for (int i = threadIdx.x; i < share * D / 4; i += kBlockThreads) {
      const int key = first + i / (D / 4), number = i % (D / 4) * 4;
      if (key >= real) break;
      float4 sum{};
      for (int block = 0; block < splits; block++) {
        const float4 x = *reinterpret_cast<const float4*>(ofBlock(sums + which * kNumbers + key * kStride + number, block));
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
      }
      *reinterpret_cast<uint2*>(to + key * stride + number) =
          make_uint2(pack<T>(sum.x * factor, sum.y * factor), pack<T>(sum.z * factor, sum.w * factor));
    }
  }
};

constexpr int kKeyBlocksAtOnce = 2;  // on a multiprocessor

/**
 * The blocks of a family's cluster: as many as it takes for a family's last block to end before all else. Lengths are not known here, so
 * families count as equal, and so do other sequences.
 */
inline unsigned splitsOf(const CausalAttentionArgs& a) {
  constexpr unsigned kMostSplits = 8;
  constexpr double kLongest = 0.5;  // of the time that all blocks take, a family's block may take so much
  const double rowsOfToken = static_cast<double>(a.share) / kBlockRows, prefix = static_cast<double>(a.prefixTokens);
  const double own = static_cast<double>(a.tokens) - prefix, sequences = static_cast<double>(a.count - a.familyCount);
  // stages of a block, times blocks
  const double ofFamily = static_cast<double>(a.tokens) / static_cast<double>(a.familyCount) * rowsOfToken;
  const double ofSequence = own / sequences * rowsOfToken / 2;
  const double all = (prefix * ofFamily + own * ofSequence) / kBlockRows * static_cast<double>(a.groups);
  unsigned splits = 1;
  while (splits < kMostSplits && ofFamily / splits > kLongest * all / (kKeyBlocksAtOnce * multiprocessorsOfDevice())) splits *= 2;
  return splits;
}

}  // namespace attune
