// Shared by the attention kernels: where a position of a row lies in the cache, and one head of a new token's q, k or v.
#pragma once
#include "cuda/numbers.cuh"

namespace attune {

// Keys and values lie in blocks of kCacheBlock positions; a slot's table names the blocks of its positions in order. Every kernel
// that reads or writes the cache finds its place here.

/** The blocks of a row's positions. */
__device__ inline const int32_t* tableOf(const AttentionArgs& a, int64_t row) { return a.tables + a.slots[row] * a.tableWidth; }

/** The position as an index into [blocks · kCacheBlock, groups, size]. */
__device__ inline int place(const int32_t* table, int position) {
  return table[position / kCacheBlock] * kCacheBlock + position % kCacheBlock;
}
__device__ inline int place(const AttentionArgs& a, int64_t row, int position) { return place(tableOf(a, row), position); }

/** One head of q, k or v, by one warp: normed, rotated and rounded to the model's dtype. */
template <typename T, int D>
struct Head {
  static constexpr int kEach = (D + 31) / 32;
  const AttentionArgs& a;
  bool isNormed, isTurned;
  float weights[kEach], cosines[kEach], sines[kEach], values[kEach];

  /** With what does not depend on the projection loaded: the norm's weight (null for none) and the angles. */
  __device__ Head(const AttentionArgs& args, int64_t row, const void* weight, bool turn) : Head(args, weight != nullptr, turn) {
    loadAngles(row);
    loadWeight(weight);
  }
  /** With nothing loaded. */
  __device__ Head(const AttentionArgs& args, bool norm, bool turn) : a(args), isNormed(norm), isTurned(turn && args.cosines != nullptr) {}

  __device__ void loadAngles(int64_t row) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int d = threadIdx.x % 32 + 32 * i, half = static_cast<int>(a.half);
      const int pair = a.interleaved ? d / 2 : d < half ? d : d - half;
      cosines[i] = isTurned && d < 2 * half ? a.cosines[row * half + pair] : 1.0f;
      sines[i] = isTurned && d < 2 * half ? a.sines[row * half + pair] : 0.0f;
    }
  }
  __device__ void loadWeight(const void* weight) {
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int d = threadIdx.x % 32 + 32 * i;
      weights[i] = isNormed && d < D ? wide(static_cast<const T*>(weight)[d]) : 1.0f;
    }
  }

  /** `scratch` is this warp's own and has room for a head. */
  __device__ void prepare(const T* x, float* scratch) {
    load(x);
    finish(scratch);
  }

  // The two halves of `prepare`: work that is put between them hides the loads.
  __device__ void load(const T* x) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kEach; i++) values[i] = lane + 32 * i < D ? wide(x[lane + 32 * i]) : 0.0f;
  }
  __device__ void finish(float* scratch) {
    const int lane = threadIdx.x % 32, half = static_cast<int>(a.half);
    if (isNormed) {
      float squares = 0;
#pragma unroll
      for (int i = 0; i < kEach; i++) squares += values[i] * values[i];
      for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(0xFFFFFFFF, squares, offset);
      const float scale = rsqrtf(squares / D + a.eps);
#pragma unroll
      for (int i = 0; i < kEach; i++) values[i] = wide(narrow<T>(wide(narrow<T>(values[i] * scale)) * weights[i]));
    }
    if (!isTurned) return;
    if (D % 64 == 0 && 2 * half == D && !a.interleaved) {  // both numbers of a pair are this lane's
#pragma unroll
      for (int i = 0; i < kEach / 2; i++) {
        const float first = values[i], second = values[i + kEach / 2];
        values[i] = wide(narrow<T>(first * cosines[i] - second * sines[i]));
        values[i + kEach / 2] = wide(narrow<T>(second * cosines[i + kEach / 2] + first * sines[i + kEach / 2]));
      }
      return;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (lane + 32 * i < D) scratch[lane + 32 * i] = values[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const int d = lane + 32 * i;
      if (d >= 2 * half) continue;
      const bool first = a.interleaved ? d % 2 == 0 : d < half;
      const float other = scratch[a.interleaved ? (d ^ 1) : (first ? d + half : d - half)];
      values[i] = wide(narrow<T>(first ? values[i] * cosines[i] - other * sines[i] : values[i] * cosines[i] + other * sines[i]));
    }
  }

  template <typename Put>
  __device__ void store(Put put) const {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      if (threadIdx.x % 32 + 32 * i < D) put(threadIdx.x % 32 + 32 * i, values[i]);
  }
};

}  // namespace attune
