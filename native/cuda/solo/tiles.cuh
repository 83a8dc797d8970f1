// How a warp of attention.cu processes its one tile of keys and values, from a cache in bf16 or in 8 bits.
#pragma once
#include "cuda/attention/eight_bit_tile.cuh"

namespace attune {
namespace {

/** COUNT pieces of 16 bytes of each lane in a warp's shared memory, which no other lane writes or reads. */
template <int COUNT>
struct Parked {
  static constexpr int kBytes = COUNT * 32 * 16;
  char* own;
  explicit __device__ Parked(char* ofWarp) : own(ofWarp + threadIdx.x % 32 * 16) {}
  __device__ void ask(int i, const void* from) const { copyAsync<16>(own + i * 512, from); }
  __device__ void ask(int i, const void* from, bool real) const { copyAsync<16>(own + i * 512, from, real); }
  __device__ uint4 get(int i) const { return *reinterpret_cast<const uint4*>(own + i * 512); }
};

/** Where a row's keys are. */
struct SoloSpan {
  int position, firstKey, first, last;  // first and last: tiles
  __device__ SoloSpan(const AttentionArgs& a, int keysOfTile) {
    const int window = static_cast<int>(a.window);
    position = static_cast<int>(a.positions[0]);
    firstKey = window > 0 ? max(0, position - window + 1) : 0;
    first = firstKey / keysOfTile, last = position / keysOfTile;
  }
  __device__ bool isHidden(int key) const { return key > position || key < firstKey; }
};

/** The place of a position (head.cuh) of the row. */
__device__ inline int64_t soloPlace(const AttentionArgs& a, int position) { return place(a, 0, position); }

/** Of a cache in bf16, heads of 128 numbers: what a lane multiplies comes straight from the cache to its own part of shared memory. */
struct SoloTile {
  using T = __nv_bfloat16;
  using Cache = PlainCache<T, 128>;
  using Query = T;
  static constexpr int D = 128, kKeys = 16, kQuery = D + 32, kBytes = Parked<16>::kBytes;  // kQuery: so that lanes read different banks
  const SoloSpan& span;
  const int tile, g, t;
  const Parked<16> parked;  // values, then keys
  float out[8][4], peak[2], total[2];  // out: dimensions 8g + 2i and the next, from the fifth on 64 more; of heads 2t and 2t + 1

  __device__ SoloTile(const SoloSpan& of, int which, char* ofWarp)
      : span(of), tile(which), g(threadIdx.x % 32 / 4), t(threadIdx.x % 4), parked(ofWarp) {}

  static __device__ void putQuery(const float (&numbers)[Head<T, D>::kEach], T* row) {
#pragma unroll
    for (int i = 0; i < Head<T, D>::kEach; i++) row[threadIdx.x % 32 + 32 * i] = narrow<T>(numbers[i]);
  }

  // A lane's pieces are of keys g and g + 8, of every 32 dimensions those from 8t on; and of values 2t, 2t + 1 and the same plus 8, dimensions
  // from 8g and from 64 + 8g on.
  __device__ int keyOf(int i) const { return g + i / 4 * 8; }
  __device__ int valueOf(int i) const { return 2 * t + i / 2 % 2 + i / 4 * 8; }

  __device__ void ask(const AttentionArgs& a, int group) {
    const int stride = static_cast<int>(a.groups) * D, before = span.position - tile * kKeys;  // before: keys of earlier tokens
    const int64_t from = soloPlace(a, tile * kKeys) * stride + group * D;
    const T *keys = static_cast<const T*>(a.keys) + from + t * 8, *ofValues = static_cast<const T*>(a.values) + from + g * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
      parked.ask(8 + i, keys + keyOf(i) * stride + i % 4 * 32, keyOf(i) < before);
      parked.ask(i, ofValues + valueOf(i) * stride + i % 2 * 64, valueOf(i) < before);
    }
  }

  /** After the values have arrived. `newest`: what Cache::write has left of the new token. */
  __device__ void attend(const T* queries, int heads, const char* newest, float scale) {
    const bool isNewest = tile == span.last;
    const int row = span.position % kKeys;
    const T *newKey = reinterpret_cast<const T*>(newest) + t * 8, *newValue = reinterpret_cast<const T*>(newest) + D + g * 8;
    const T* const query = queries + min(g, heads - 1) * kQuery + t * 8;
    uint4 k[8];
#pragma unroll
    for (int i = 0; i < 8; i++) k[i] = parked.get(8 + i);
    if (isNewest)
#pragma unroll
      for (int i = 0; i < 8; i++)
        if (keyOf(i) == row) k[i] = *reinterpret_cast<const uint4*>(newKey + i % 4 * 32);
    float score[4] = {}, more[4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const uint4 q = *reinterpret_cast<const uint4*>(query + i * 32);
      multiply<T>(score, k[i].x, k[i + 4].x, k[i].y, k[i + 4].y, q.x, q.y);
      multiply<T>(more, k[i].z, k[i + 4].z, k[i].w, k[i + 4].w, q.z, q.w);
    }
    uint4 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      v[i] = parked.get(i);
      if (isNewest && valueOf(i) == row) v[i] = *reinterpret_cast<const uint4*>(newValue + i % 2 * 64);
    }
#pragma unroll
    for (int j = 0; j < 4; j++) score[j] = span.isHidden(tile * kKeys + g + j / 2 * 8) ? -INFINITY : (score[j] + more[j]) * scale;
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float top = fmaxf(score[j], score[j + 2]);
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, offset));
      peak[j] = top;
      score[j] = powerOf2(score[j] - top);
      score[j + 2] = powerOf2(score[j + 2] - top);
      total[j] = score[j] + score[j + 2];
    }
    const unsigned low = transposed(pack<T>(score[0], score[1])), high = transposed(pack<T>(score[2], score[3]));
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const auto word = [&](int which) {
        const uint4& four = v[which * 2 + i / 4];
        return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
      };
#pragma unroll
      for (int j = 0; j < 4; j++) out[i][j] = 0;
      multiply<T>(out[i], __byte_perm(word(0), word(1), 0x5410), __byte_perm(word(0), word(1), 0x7632),
                  __byte_perm(word(2), word(3), 0x5410), __byte_perm(word(2), word(3), 0x7632), low, high);
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], offset);
  }

  /** What was found for head 2t + j: the largest score and the sum of weights, and the weighted values. */
  __device__ float2 mark(int j) const { return {peak[j], total[j]}; }
  __device__ void store(int j, float* sums) const {
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      *reinterpret_cast<float4*>(sums + i / 4 * 64 + g * 8 + i % 4 * 2) = {out[i][j], out[i][j + 2], out[i + 1][j], out[i + 1][j + 2]};
  }
};

/** Of a cache in 8 bits: a tile in shared memory, as in the other kernels. */
struct SoloEightBitTile {
  using T = __nv_bfloat16;
  using Cache = EightBitCache<T, 128>;
  using Query = short;
  static constexpr int D = 128, kKeys = Cache::kKeys, kQuery = Cache::Queries::kNumbers, kBytes = Cache::kBytesOfTile;
  const SoloSpan& span;
  const int tile;
  char* const own;
  typename Cache::Running running;

  __device__ SoloEightBitTile(const SoloSpan& of, int which, char* ofWarp) : span(of), tile(which), own(ofWarp) {}

  static __device__ void putQuery(const float (&numbers)[Head<T, D>::kEach], short* row) { Cache::putQuery(numbers, row); }
  __device__ void ask(const AttentionArgs& a, int group) {
    Cache::copy(own, a, soloPlace(a, tile * kKeys), group, span.position - tile * kKeys);
  }
  __device__ void attend(const short* queries, int heads, const char* newest, float scale) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    __syncwarp();
    if (tile == span.last) {
      Cache::put(own, span.position % kKeys, newest);
      __syncwarp();
    }
    const auto hide = [&](float(&score)[4], int part) {
#pragma unroll
      for (int j = 0; j < 4; j++)
        if (span.isHidden(tile * kKeys + part + g + j / 2 * 8)) score[j] = -INFINITY;
    };
    running.add(own, queries + min(g, heads - 1) * kQuery + t * Cache::Queries::kQuarter, Cache::scoreScales(queries, heads, scale), hide);
    running.finish();
    if (span.position == 0) Cache::finishAlone(running, newest);
  }
  __device__ float2 mark(int j) const { return {running.peak[j], running.total[j]}; }
  __device__ void store(int j, float* sums) const { running.store(j, sums); }
};

}  // namespace
}  // namespace attune
