// Tiles of a cache in 8 bits, and a warp's attention over them: what tile.cuh has for a cache in the model's dtype.
//
// Products are of f16 numbers whatever the model's dtype is: a code is exact in f16, queries are rounded to it. Keys' scales multiply
// the scores, and values' scales the weights. So that neither large nor small values leave f16's range, the running maximum is that of
// score + log2(value's scale): the largest weight · scale is 1.
#pragma once
#include "cuda/attention/eight_bit_head.cuh"
#include "cuda/attention/tile.cuh"

namespace attune {

/** Four codes as f16 numbers: the first and third, and the second and fourth. 0x6400 + b is 1024 + b for a byte b, 0x6480 is 1152. */
struct CodePairs {
  unsigned even, odd;
  explicit __device__ CodePairs(unsigned codes)
      : even(lessBias((codes & 0x00FF00FFu) ^ 0x64806480u)), odd(lessBias((codes >> 8 & 0x00FF00FFu) ^ 0x64806480u)) {}

 private:
  static __device__ unsigned lessBias(unsigned both) {
    const unsigned bias = 0x64806480u;
    const __half2 numbers = __hsub2(*reinterpret_cast<const __half2*>(&both), *reinterpret_cast<const __half2*>(&bias));
    return *reinterpret_cast<const unsigned*>(&numbers);
  }
};

/** Queries in shared memory: lane (g, t) of a product takes numbers 4t … 4t + 3 of every 16 of row g, in the order of CodePairs. */
template <int D>
struct EightBitQueryRow {
  static constexpr int kQuarter = D / 4 + 8, kNumbers = 4 * kQuarter;
  static __device__ int at(int d) { return d / 4 % 4 * kQuarter + d / 16 * 4 + d % 2 * 2 + d / 2 % 2; }
};

/** As RunningAttention. `out` holds dimensions 16·i + 2g (0, 1) and + 1 (2, 3) of columns 2t and 2t + 1. */
template <int D>
struct EightBitRunning {
  static constexpr int kSteps = D / 16, kBytes = kTile * D;  // of a tile's keys
  static constexpr float kLeast = 1e-30f;  // what a scale of 0 counts as
  float peak[2], total[2];
  float out[kSteps][4];

  __device__ EightBitRunning() {
#pragma unroll
    for (int j = 0; j < 2; j++) peak[j] = -INFINITY, total[j] = 0;
#pragma unroll
    for (int i = 0; i < kSteps; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) out[i][j] = 0;
  }

  /** NaN stays NaN. */
  static __device__ float atLeast(float scale) { return scale < kLeast ? kLeast : scale; }

  template <typename Change>
  __device__ void add(const char* tile, const __half* queries, float scale, Change change) {
    using Bytes = Tile<D / 2>;  // a row of D bytes
    const int lane = threadIdx.x % 32, g = lane / 4;
    const int place = Bytes::at(lane % 16, lane / 16);  // the row that this lane reads for the warp, of keys and of values
    const float* const scales = reinterpret_cast<const float*>(tile + 2 * kBytes);
    float score[4] = {}, more[4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      const uint4 q = *reinterpret_cast<const uint4*>(queries + step * 4);
      unsigned k[4];
      loadMatrices(k, tile + 2 * Bytes::after(place, step));
      const CodePairs a(k[0]), b(k[1]), c(k[2]), d(k[3]);
      multiply<__half>(score, a.even, b.even, a.odd, b.odd, q.x, q.y);
      multiply<__half>(more, c.even, d.even, c.odd, d.odd, q.z, q.w);
    }
    const float ofKeys[2] = {scales[g] * scale, scales[g + 8] * scale};
    const float ofValues[2] = {atLeast(scales[kTile + g]), atLeast(scales[kTile + g + 8])};
#pragma unroll
    for (int j = 0; j < 4; j++) score[j] = (score[j] + more[j]) * ofKeys[j / 2];
    change(score);
    const float level[2] = {logarithm2(ofValues[0]), logarithm2(ofValues[1])};
    float fade[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
      float top = fmaxf(score[j] + level[0], score[j + 2] + level[1]);
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, offset));
      top = fmaxf(top, peak[j]);
      const float base = top == -INFINITY ? 0.0f : top;  // where nothing was seen yet, all weights are 0
      fade[j] = powerOf2(peak[j] - base);
      peak[j] = top;
      score[j] = powerOf2(score[j] - base);
      score[j + 2] = powerOf2(score[j + 2] - base);
      total[j] = total[j] * fade[j] + score[j] + score[j + 2];
    }
    if (__any_sync(0xFFFFFFFF, fade[0] < 1 || fade[1] < 1)) {
#pragma unroll
      for (int i = 0; i < kSteps; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[i][j] *= fade[j % 2];
    }
    const unsigned first = transposed(packFloat16(score[0] * ofValues[0], score[1] * ofValues[0]));
    const unsigned second = transposed(packFloat16(score[2] * ofValues[1], score[3] * ofValues[1]));
#pragma unroll
    for (int i = 0; i < kSteps; i += 2) {
      unsigned v[4];
      loadTransposed(v, tile + kBytes + 2 * Bytes::after(place, i));
      const CodePairs a(v[0]), b(v[1]), c(v[2]), d(v[3]);
      multiply<__half>(out[i], a.even, a.odd, b.even, b.odd, first, second);
      multiply<__half>(out[i + 1], c.even, c.odd, d.even, d.odd, first, second);
    }
  }

  __device__ void finish() {
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) total[j] += __shfl_xor_sync(0xFFFFFFFF, total[j], offset);
  }

  __device__ void store(int j, float* column) const {
    column += threadIdx.x % 32 / 4 * 2;
#pragma unroll
    for (int i = 0; i < kSteps; i++) *reinterpret_cast<float2*>(column + 16 * i) = {out[i][j], out[i][j + 2]};
  }

  template <int PART>
  __device__ void send(int j, const float* column, const uint64_t* barrier) const {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kSteps; i++) {
      const int d = 16 * i + 2 * g, to = PART % 16 == 0 ? 16 * i / PART : d / PART;
      storeAsync(addressOf(column + d - to * PART, to), float2{out[i][j], out[i][j + 2]}, addressOf(barrier, to));
    }
  }
};

/** A cache in 8 bits: what PlainCache is for one in the model's dtype. */
template <typename T, int D>
struct EightBitCache {
  using Model = T;
  static constexpr int kSize = D;
  using Query = __half;
  using Queries = EightBitQueryRow<D>;
  using Running = EightBitRunning<D>;
  // a tile: keys, values, 16 scales of keys, 16 of values; the new token: k, v and their scales
  static constexpr int kBytes = Running::kBytes, kBytesOfNumbers = 2 * kBytes, kTogether = 2;
  static constexpr int kBytesOfTile = kBytesOfNumbers + 2 * kTile * static_cast<int>(sizeof(float));
  static constexpr int kBytesOfNewest = 2 * D + 16;

  static __device__ __half query(float x) {
    constexpr float kMost = 65504;  // of f16
    return __float2half(x > kMost ? kMost : x < -kMost ? -kMost : x);
  }

  static __device__ void copy(char* tile, const AttentionArgs& a, int64_t place, int group, int count) {
    using Bytes = Tile<D / 2>;
    constexpr int kPieces = Bytes::kPieces, kLines = Bytes::kLines;
    const int groups = static_cast<int>(a.groups), stride = groups * D;
    const int lane = threadIdx.x % 32, line = lane / kPieces, piece = lane % kPieces ^ Bytes::swap(line);
    if (lane < 8) {
      const int part = lane % 4 * 4;
      const float* from = (lane < 4 ? a.keyScales : a.valueScales) + scalePlace(place, groups, group) + part;
      copyAsyncPart(tile + 2 * kBytes + lane * 16, from, min(max(count - part, 0), 4) * static_cast<int>(sizeof(float)));
    }
    if (line >= kLines) return;
    const int64_t from = (place * groups + group) * D + line * stride + lane % kPieces * 16;
    const int8_t *keys = static_cast<const int8_t*>(a.keys) + from, *values = static_cast<const int8_t*>(a.values) + from;
    tile += line * D;
#pragma unroll
    for (int i = 0; i < kTile; i += kLines) {
      char* to = tile + i * D + (piece ^ Bytes::swap(i)) * 16;
      copyAsync<16>(to, keys, i + line < count);
      copyAsync<16>(to + kBytes, values, i + line < count);
      keys += kLines * stride, values += kLines * stride;
    }
  }

  static __device__ void write(const AttentionArgs& a, int64_t place, int group, int which, const Head<T, D>& head, char* newest,
                               bool toCache) {
    const float scale = scaleOf(head.values);
    int8_t *cache = static_cast<int8_t*>(which == 0 ? a.keys : a.values) + (place * static_cast<int>(a.groups) + group) * D,
           *own = reinterpret_cast<int8_t*>(newest) + which * D;
    head.store([&](int d, float x) {
      const int8_t code = codeOf(x, scale);
      own[d] = code;
      if (toCache) cache[d] = code;
    });
    if (threadIdx.x % 32 != 0) return;
    reinterpret_cast<float*>(newest + 2 * D)[which] = scale;
    if (toCache) (which == 0 ? a.keyScales : a.valueScales)[scalePlace(place, static_cast<unsigned>(a.groups), group)] = scale;
  }

  static __device__ void put(char* tile, int row, const char* newest) {
    using Bytes = Tile<D / 2>;
    constexpr int kPieces = Bytes::kPieces;
    const int lane = threadIdx.x % 32;
    if (lane < 2 * kPieces) {
      const int piece = lane % kPieces, ofValues = lane / kPieces;
      *reinterpret_cast<uint4*>(tile + ofValues * kBytes + 2 * Bytes::at(row, piece)) =
          *reinterpret_cast<const uint4*>(newest + ofValues * D + piece * 16);
    }
    if (lane < 2) reinterpret_cast<float*>(tile + 2 * kBytes)[lane * kTile + row] = reinterpret_cast<const float*>(newest + 2 * D)[lane];
  }

  // —— of a row at position 0: the same bits whether it is alone or goes through a tile, where its weight · scale is 1 ——
  static __device__ float totalAlone(const char* newest) { return 1 / Running::atLeast(reinterpret_cast<const float*>(newest + 2 * D)[1]); }
  static __device__ void finishAlone(Running& running, const char* newest) { running.total[0] = running.total[1] = totalAlone(newest); }
  static __device__ float valueAlone(const char* newest, int d) {
    return static_cast<float>(reinterpret_cast<const int8_t*>(newest)[D + d]) / totalAlone(newest);
  }
};

}  // namespace attune
