// Tiles of an 8-bit cache, and a warp's attention over them: the counterpart of tile.cuh, which is for a cache in the model's dtype.
//
// Scores are integer products of the keys' codes and queries in 16 bits, whose two bytes are multiplied separately. Values are multiplied
// in f16, in which codes are exact, whatever the model's dtype is. The keys' scales multiply the scores, the values' scales the weights. So
// that neither large nor small values leave f16's range, the running maximum is that of score + log2(value's scale): the largest weight ·
// scale is 1.
#pragma once
#include "cuda/attention/eight_bit_head.cuh"
#include "cuda/attention/tile.cuh"

namespace attune {

using Scale = __nv_bfloat16;  // of a cache

/** Four codes as f16 numbers: the first and third, and the second and fourth. 0x6400 + b is 1024 + b for a byte b, 0x6480 is 1152. */
struct CodePairs {
  static constexpr unsigned kBytes = 0x00FF00FFu, kBias = 0x64806480u;
  unsigned even, odd;
  explicit __device__ CodePairs(unsigned codes)
      : even(lessBias(maskAndFlip(codes, kBytes, kBias))), odd(lessBias(maskAndFlip(codes >> 8, kBytes, kBias))) {}

 private:
  static __device__ unsigned lessBias(unsigned both) {
    const unsigned bias = kBias;
    const __half2 numbers = __hsub2(*reinterpret_cast<const __half2*>(&both), *reinterpret_cast<const __half2*>(&bias));
    return *reinterpret_cast<const unsigned*>(&numbers);
  }
};

/**
 * Queries in shared memory as whole numbers of 16 bits, of which the two bytes are multiplied apart: 256·high + low, times one scale.
 * Lane (g, t) of a product takes dimensions 4t … 4t + 3 and 16 + 4t … of every 32 of row g: the high bytes of all, then the low ones.
 */
template <int D>
struct EightBitQueryRow {
  static constexpr int kQuarter = D / 4 + 8, kNumbers = 4 * kQuarter, kMost = 127 * 256;
  static constexpr int kScale = D / 4;  // where the scale is: after the first quarter's numbers
  static __device__ int high(int d) { return d / 4 % 4 * kQuarter * 2 + d / 32 * 16 + d / 16 % 2 * 4 + d % 4; }  // in bytes
  static __device__ int low(int d) { return high(d) + 8; }
};

/** As RunningAttention. `out` holds dimensions 16·i + 2g (0, 1) and + 1 (2, 3) of columns 2t and 2t + 1. */
template <int D>
struct EightBitRunning {
  static constexpr int kKeys = 32, kSteps = D / 16, kParts = kKeys / 16, kBytes = kKeys * D;  // kBytes: of a tile's keys
  static constexpr float kLeast = 1e-30f;  // what a scale of 0 counts as
  using Bytes = Tile<D / 2>;  // a row of D bytes
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

  template <typename Change, typename KeysAreRead = Nothing, typename AwaitValues = Nothing>
  __device__ void add(const char* tile, const short* queries, float2 ofColumns, Change change, KeysAreRead keysAreRead = {},
                      AwaitValues awaitValues = {}) {
    addHalves(tile, tile + kBytes, tile + 2 * kBytes, queries, ofColumns, change, keysAreRead, awaitValues);
  }
  /** The same where keys, values and scales lie apart. */
  template <typename Change, typename KeysAreRead, typename AwaitValues>
  __device__ void addHalves(const char* keys, const char* values, const char* ofBoth, const short* queries, float2 ofColumns, Change change,
                            KeysAreRead keysAreRead, AwaitValues awaitValues) {
    const int lane = threadIdx.x % 32, g = lane / 4;
    const int place = Bytes::at(lane % 16, lane / 16);  // the row that this lane reads for the warp, of keys and of values
    const Scale* const scales = reinterpret_cast<const Scale*>(ofBoth) + g;
    int high[kParts][4] = {}, low[kParts][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      const uint4 q = *reinterpret_cast<const uint4*>(queries + step * 4);
#pragma unroll
      for (int part = 0; part < kParts; part++) {
        unsigned k[4];
        loadMatrices(k, keys + part * 16 * D + 2 * Bytes::after(place, step));
        multiplyBytes(high[part], k[0], k[1], k[2], k[3], q.x, q.y);
        multiplyBytes(low[part], k[0], k[1], k[2], k[3], q.z, q.w);
      }
    }
    float score[kParts][4], ofValues[kParts][2], top[2] = {peak[0], peak[1]};
#pragma unroll
    for (int part = 0; part < kParts; part++) {
      const float ofKeys[2] = {wide(scales[16 * part]), wide(scales[16 * part + 8])};
#pragma unroll
      for (int j = 0; j < 4; j++)
        score[part][j] = __int2float_rn(high[part][j] * 256 + low[part][j]) * (ofKeys[j / 2] * (j % 2 == 0 ? ofColumns.x : ofColumns.y));
      change(score[part], 16 * part);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        ofValues[part][i] = atLeast(wide(scales[kKeys + 16 * part + 8 * i]));
        const float level = logarithm2(ofValues[part][i]);
#pragma unroll
        for (int j = 0; j < 2; j++) top[j] = fmaxf(top[j], score[part][2 * i + j] + level);
      }
    }
    keysAreRead();  // and all scales
    float fade[2];
#pragma unroll
    for (int j = 0; j < 2; j++) {
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2) top[j] = fmaxf(top[j], __shfl_xor_sync(0xFFFFFFFF, top[j], offset));
      const float base = top[j] == -INFINITY ? 0.0f : top[j];  // where nothing was seen yet, all weights are 0
      fade[j] = powerOf2(peak[j] - base);
      peak[j] = top[j];
      total[j] *= fade[j];
#pragma unroll
      for (int part = 0; part < kParts; part++)
#pragma unroll
        for (int i = j; i < 4; i += 2) {
          score[part][i] = powerOf2(score[part][i] - base);
          total[j] += score[part][i];
        }
    }
    if (__any_sync(0xFFFFFFFF, fade[0] < 1 || fade[1] < 1)) {
#pragma unroll
      for (int i = 0; i < kSteps; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) out[i][j] *= fade[j % 2];
    }
    unsigned weights[kParts][2];
#pragma unroll
    for (int part = 0; part < kParts; part++)
#pragma unroll
      for (int i = 0; i < 2; i++)
        weights[part][i] = transposed(packFloat16(score[part][2 * i] * ofValues[part][i], score[part][2 * i + 1] * ofValues[part][i]));
    awaitValues();
#pragma unroll
    for (int i = 0; i < kSteps; i += 2)
#pragma unroll
      for (int part = 0; part < kParts; part++) {
        unsigned v[4];
        loadTransposed(v, values + part * 16 * D + 2 * Bytes::after(place, i));
        const CodePairs a(v[0]), b(v[1]), c(v[2]), d(v[3]);
        multiply<__half>(out[i], a.even, a.odd, b.even, b.odd, weights[part][0], weights[part][1]);
        multiply<__half>(out[i + 1], c.even, c.odd, d.even, d.odd, weights[part][0], weights[part][1]);
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

/** A cache in 8 bits: what PlainCache is for one in the model's dtype. A tile has 32 keys, so as many bytes as one of 16 bits. */
template <typename T, int D>
struct EightBitCache {
  using Model = T;
  static constexpr int kSize = D;
  using Query = short;
  using Queries = EightBitQueryRow<D>;
  using Running = EightBitRunning<D>;
  using Bytes = typename Running::Bytes;
  // a tile: keys, values, scales of keys, scales of values; the new token: k, v and their scales
  static constexpr int kKeys = Running::kKeys, kBytes = Running::kBytes, kBytesOfNumbers = 2 * kBytes;
  static constexpr int kBytesOfTile = kBytesOfNumbers + 2 * kKeys * static_cast<int>(sizeof(Scale));
  static constexpr int kBytesOfNewest = 2 * D + 16, kTurnsOfFew = D == 128 ? 8 : 2, kEachOfFew = D == 128 ? 2 : 1;
  static constexpr bool kIsLone = D == 128;

  static __device__ void putQuery(const float (&values)[Head<T, D>::kEach], short* row) {
    constexpr float kMost = Queries::kMost;
    const int lane = threadIdx.x % 32;
    const float scale = scaleOf(values, kMost), inverse = scale > 1e-30f ? 1 / scale : 0;
    int8_t* const bytes = reinterpret_cast<int8_t*>(row);
#pragma unroll
    for (int i = 0; i < Head<T, D>::kEach; i++) {
      const int number = __float2int_rn(fminf(fmaxf(values[i] * inverse, -kMost), kMost)), high = (number + 128) >> 8;
      bytes[Queries::high(lane + 32 * i)] = static_cast<int8_t>(high);
      bytes[Queries::low(lane + 32 * i)] = static_cast<int8_t>(number - 256 * high);
    }
    if (lane == 0) *reinterpret_cast<float*>(row + Queries::kScale) = scale;
  }
  static __device__ float2 scoreScales(const short* queries, int heads, float scale) {
    const int column = threadIdx.x % 4 * 2;
    const auto of = [&](int head) {
      return *reinterpret_cast<const float*>(queries + min(head, heads - 1) * Queries::kNumbers + Queries::kScale);
    };
    return {of(column) * scale, of(column + 1) * scale};
  }

  static __device__ void copyScales(char* to, const AttentionArgs& a, int64_t place, int group, int count) {
    constexpr int kEach = 16 / sizeof(Scale), kLanes = kKeys / kEach;  // of keys, and as many of values
    const int lane = threadIdx.x % 32, part = lane % kLanes * kEach;
    if (lane >= 2 * kLanes) return;
    const Scale* from = (lane < kLanes ? a.keyScales : a.valueScales) + scalePlace(place, static_cast<unsigned>(a.groups), group) + part;
    copyAsyncPart(to + lane * 16, from, min(max(count - part, 0), kEach) * static_cast<int>(sizeof(Scale)));
  }
  /** The keys (which 0) or values (1) of a tile alone. */
  static __device__ void copyHalf(char* to, const AttentionArgs& a, int64_t place, int group, int count, int which) {
    constexpr int kPieces = Bytes::kPieces, kLines = Bytes::kLines;
    const int groups = static_cast<int>(a.groups), stride = groups * D;
    const int lane = threadIdx.x % 32, line = lane / kPieces, piece = lane % kPieces ^ Bytes::swap(line);
    if (line >= kLines) return;
    const int8_t* from =
        static_cast<const int8_t*>(which == 0 ? a.keys : a.values) + (place * groups + group) * D + line * stride + lane % kPieces * 16;
    to += line * D;
#pragma unroll
    for (int i = 0; i < kKeys; i += kLines) {
      copyAsync<16>(to + i * D + (piece ^ Bytes::swap(i)) * 16, from, i + line < count);
      from += kLines * stride;
    }
  }
  /** The scales of both come with the keys. */
  template <bool KEYS = true, bool VALUES = true>
  static __device__ void copy(char* tile, const AttentionArgs& a, int64_t place, int group, int count) {
    constexpr int kPieces = Bytes::kPieces, kLines = Bytes::kLines;
    const int groups = static_cast<int>(a.groups), stride = groups * D;
    const int lane = threadIdx.x % 32, line = lane / kPieces, piece = lane % kPieces ^ Bytes::swap(line);
    if (KEYS) copyScales(tile + 2 * kBytes, a, place, group, count);
    if (line >= kLines) return;
    const int64_t from = (place * groups + group) * D + line * stride + lane % kPieces * 16;
    const int8_t *keys = static_cast<const int8_t*>(a.keys) + from, *values = static_cast<const int8_t*>(a.values) + from;
    tile += line * D;
#pragma unroll
    for (int i = 0; i < kKeys; i += kLines) {
      char* to = tile + i * D + (piece ^ Bytes::swap(i)) * 16;
      if (KEYS) copyAsync<16>(to, keys, i + line < count);
      if (VALUES) copyAsync<16>(to + kBytes, values, i + line < count);
      keys += kLines * stride, values += kLines * stride;
    }
  }

  static __device__ void write(const AttentionArgs& a, int64_t place, int group, int which, const Head<T, D>& head, char* newest,
                               bool toCache) {
    const float scale = cacheScaleOf(head.values);
    int8_t *cache = static_cast<int8_t*>(which == 0 ? a.keys : a.values) + (place * static_cast<int>(a.groups) + group) * D,
           *own = reinterpret_cast<int8_t*>(newest) + which * D;
    head.store([&](int d, float x) {
      const int8_t code = codeOf(x, scale);
      own[d] = code;
      if (toCache) cache[d] = code;
    });
    if (threadIdx.x % 32 != 0) return;
    reinterpret_cast<float*>(newest + 2 * D)[which] = scale;
    if (toCache) (which == 0 ? a.keyScales : a.valueScales)[scalePlace(place, static_cast<unsigned>(a.groups), group)] = narrow<Scale>(scale);
  }

  static __device__ void put(char* tile, int row, const char* newest) {
    constexpr int kPieces = Bytes::kPieces;
    const int lane = threadIdx.x % 32;
    if (lane < 2 * kPieces) {
      const int piece = lane % kPieces, ofValues = lane / kPieces;
      *reinterpret_cast<uint4*>(tile + ofValues * kBytes + 2 * Bytes::at(row, piece)) =
          *reinterpret_cast<const uint4*>(newest + ofValues * D + piece * 16);
    }
    putScales(tile + 2 * kBytes, row, newest);
  }
  static __device__ void putScales(char* scales, int row, const char* newest) {
    const int lane = threadIdx.x % 32;
    if (lane < 2) reinterpret_cast<Scale*>(scales)[lane * kKeys + row] = narrow<Scale>(reinterpret_cast<const float*>(newest + 2 * D)[lane]);
  }
  static __device__ void putHalf(char* half, int row, const char* newest, int which) {
    const int piece = threadIdx.x % 32;
    if (piece < Bytes::kPieces)
      *reinterpret_cast<uint4*>(half + 2 * Bytes::at(row, piece)) = *reinterpret_cast<const uint4*>(newest + which * D + piece * 16);
  }

  // —— of a row at position 0: the same bits whether it is alone or goes through a tile, where its weight · scale is 1 ——
  static __device__ float totalAlone(const char* newest) { return 1 / Running::atLeast(reinterpret_cast<const float*>(newest + 2 * D)[1]); }
  static __device__ void finishAlone(Running& running, const char* newest) { running.total[0] = running.total[1] = totalAlone(newest); }
  static __device__ float valueAlone(const char* newest, int d) {
    return static_cast<float>(reinterpret_cast<const int8_t*>(newest)[D + d]) / totalAlone(newest);
  }
};

}  // namespace attune
