// Attention of a decoding step on the CPU. Each row's new k and v are written to its slot of the cache, and its queries attend to
// everything in the slot. The RMS norm and rotation of q and k are applied on the way if requested. The cache lies in blocks: position p of
// a slot is at table[p / block]·block + p % block. Rows may share a slot (several tokens of one sequence): all keys and values are then
// written first, and a row sees the positions up to its own.
#pragma once
#include <algorithm>
#include <type_traits>
#include <vector>

#include "cpu/cache_codes.h"
#include "cpu/deal.h"
#include "cpu/kernels.h"
#include "cpu/vectors.h"
#include "ops/decode/cache/layer.h"

namespace attune {

/** C: the cache's element type, T or int8_t codes. */
template <typename T, typename C = T>
struct DecodeRows {
  int64_t rows, heads, groups, size;
  const T *q, *k, *v;  // of the first row
  int64_t qStride, kvStride;  // from row to row
  C *keys, *values;  // [blocks, block, groups, size]
  c10::BFloat16 *keyScales = nullptr, *valueScales = nullptr;  // of codes: [blocks, groups, block]
  const int32_t* tables;  // [slots, tableWidth]: the blocks of each slot
  int64_t block, tableWidth;
  const int64_t *slots, *positions;  // per row
  float scale;
  int64_t window = 0;  // 0: all
  const float* bias = nullptr;  // [heads, biasLength]
  int64_t biasLength = 0;
  const T *qWeight = nullptr, *kWeight = nullptr;  // RMS norm over a head
  float eps = 0;
  const float *cosines = nullptr, *sines = nullptr;  // [rows, half]
  int64_t half = 0;
  bool interleaved = false;
  T* out;  // [rows, heads, size]
};

// One head's q or k: normalised if there is a weight, rotated if there are angles. It rounds where attune::rms_norm and attune::rope do.
template <typename T, typename C>
void prepareHead(const DecodeRows<T, C>& in, int64_t row, const T* source, const T* weight, T* out) {
  const int64_t size = in.size;
  if (weight == nullptr) {
    std::copy_n(source, size, out);
  } else {
    const float factor = 1.0f / std::sqrt(dotProduct(source, source, size) / static_cast<float>(size) + in.eps);
    for (int64_t i = 0; i < size; i++) out[i] = static_cast<T>(static_cast<float>(source[i]) * factor) * weight[i];
  }
  const float *c = in.cosines + row * in.half, *s = in.sines + row * in.half;
  const int64_t step = in.interleaved ? 2 : 1, gap = in.interleaved ? 1 : in.half;
  for (int64_t i = 0; i < in.half; i++) {
    const float a = static_cast<float>(out[i * step]), b = static_cast<float>(out[i * step + gap]);
    out[i * step] = static_cast<T>(a * c[i] - b * s[i]);
    out[i * step + gap] = static_cast<T>(b * c[i] + a * s[i]);
  }
}

/** Numbers as f32: themselves, or converted into `room`. */
template <typename C>
inline const float* widened(const C* from, int64_t count, float* room) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) room[i] = static_cast<float>(from[i]);
  return room;
}
inline const float* widened(const float* from, int64_t, float*) { return from; }

// q·k at one position for one head or four. The heads' keys are at `places`; the scores of neighbouring heads are `stride` apart.
template <int HEADS>
inline void headDots(const float* q, const float* k, const int64_t* places, int64_t size, float* scores, int64_t stride) {
  const float *queries[HEADS], *keys[HEADS];
  for (int h = 0; h < HEADS; h++) queries[h] = q + h * size, keys[h] = k + places[h];
  Vector sums[HEADS] = {};
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kWidth <= size; i += kWidth)
    for (int h = 0; h < HEADS; h++) sums[h] = fused(load(queries[h] + i), load(keys[h] + i), sums[h]);
  float out[HEADS];
  if constexpr (HEADS == 4) {
    const Quad four = totals(sums[0], sums[1], sums[2], sums[3]);
    for (int h = 0; h < 4; h++) out[h] = four[h];
  } else {
    out[0] = total(sums[0]);
  }
  for (int h = 0; h < HEADS; h++) {
    for (int64_t rest = i; rest < size; rest++) out[h] = fused(queries[h][rest], keys[h][rest], out[h]);
    scores[h * stride] = out[h];
  }
}

// sum += w·v
inline void addValue(float w, const float* v, int64_t size, float* sum) {
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + kWidth <= size; i += kWidth) store(sum + i, fused(load(v + i), w, load(sum + i)));
  for (; i < size; i++) sum[i] = fused(w, v[i], sum[i]);
}

// Calls body(t, count, place) for each contiguous run among a slot's positions [begin, end); t counts from `begin`.
template <typename Body>
inline void eachRun(const int32_t* table, int64_t block, int64_t begin, int64_t end, Body body) {
  for (int64_t p = begin; p < end;) {
    const int64_t count = std::min(block - p % block, end - p);
    body(p - begin, count, table[p / block] * block + p % block);
    p += count;
  }
}

struct DecodeScratch {
  int64_t longest;  // most positions that a row attends to
  std::vector<float> scores, sums, queries;
  std::vector<float> numbers;  // of a position, as f32
  std::vector<int64_t> places;
};

// Writes k and v of groups [first, last) of one row to the cache.
template <typename T, typename C>
void writeRow(const DecodeRows<T, C>& in, int64_t row, int64_t firstGroup, int64_t lastGroup) {
  const int64_t size = in.size, position = in.positions[row], within = position % in.block;
  const int64_t block = in.tables[in.slots[row] * in.tableWidth + position / in.block];
  std::vector<T> key(std::is_same_v<T, C> ? 0 : size);
  for (int64_t group = firstGroup; group < lastGroup; group++) {
    const int64_t at = ((block * in.block + within) * in.groups + group) * size;
    const T *k = in.k + row * in.kvStride + group * size, *v = in.v + row * in.kvStride + group * size;
    if constexpr (std::is_same_v<T, C>) {
      prepareHead(in, row, k, in.kWeight, in.keys + at);
      std::copy_n(v, size, in.values + at);
    } else {
      const int64_t scaleAt = (block * in.groups + group) * in.block + within;
      prepareHead(in, row, k, in.kWeight, key.data());
      in.keyScales[scaleAt] = writeHead(key.data(), size, in.keys + at);
      in.valueScales[scaleAt] = writeHead(v, size, in.values + at);
    }
  }
}

// Multiplies a head's numbers at the positions [begin, end) of a slot, each by its position's scale.
template <typename T, typename C>
void multiplyByScales(const DecodeRows<T, C>& in, const c10::BFloat16* scales, const int32_t* table, int64_t group, int64_t begin, int64_t end,
                      float* numbers) {
  eachRun(table, in.block, begin, end, [&](int64_t t, int64_t run, int64_t place) {
    const c10::BFloat16* own = scales + (place / in.block * in.groups + group) * in.block + place % in.block;
    for (int64_t i = 0; i < run; i++) numbers[t + i] *= static_cast<float>(own[i]);
  });
}

// The heads of groups [first, last) of one row. The loop visits the positions in order and handles all heads at each, as the cache lies in
// memory. A step is bound by reading the cache: in order it reads 18 GB/s on a Neoverse-N1, four positions at a time 9 GB/s, with or
// without prefetching.
template <typename T, typename C>
void attendRow(const DecodeRows<T, C>& in, int64_t row, int64_t firstGroup, int64_t lastGroup, std::vector<T>& queries,
               DecodeScratch& scratch) {
  const int64_t size = in.size, share = in.heads / in.groups, stride = in.groups * size, position = in.positions[row];
  const int64_t firstHead = firstGroup * share, heads = (lastGroup - firstGroup) * share, longest = scratch.longest;
  const int32_t* table = in.tables + in.slots[row] * in.tableWidth;
  for (int64_t h = 0; h < heads; h++)
    prepareHead(in, row, in.q + row * in.qStride + (firstHead + h) * size, in.qWeight, queries.data() + h * size);
  const float* wide = widened(queries.data(), heads * size, scratch.queries.data());
  const int64_t width = (lastGroup - firstGroup) * size;

  const int64_t begin = in.window > 0 ? std::max<int64_t>(0, position - in.window + 1) : 0, count = position + 1 - begin;
  float *scores = scratch.scores.data(), *sums = scratch.sums.data();
  int64_t* places = scratch.places.data();  // where each head's group begins within a position; saves a division in the loops
  for (int64_t h = 0; h < heads; h++) places[h] = h / share * size;
  eachRun(table, in.block, begin, position + 1, [&](int64_t t, int64_t run, int64_t place) {
    const C* keys = in.keys + place * stride + firstGroup * size;
    for (const int64_t end = t + run; t < end; t++, keys += stride) {
      const float* numbers = widened(keys, width, scratch.numbers.data());
      int64_t h = 0;
      for (; h + 4 <= heads; h += 4) headDots<4>(wide + h * size, numbers, places + h, size, scores + h * longest + t, longest);
      for (; h < heads; h++) headDots<1>(wide + h * size, numbers, places + h, size, scores + h * longest + t, longest);
    }
  });

  for (int64_t h = 0; h < heads; h++) {
    float* own = scores + h * longest;
    const float* bias = in.bias == nullptr ? nullptr : in.bias + (firstHead + h) * in.biasLength + begin;
    for (int64_t t = 0; t < count; t++) own[t] *= in.scale;
    if constexpr (!std::is_same_v<T, C>) multiplyByScales(in, in.keyScales, table, firstGroup + h / share, begin, position + 1, own);
    if (bias != nullptr)
      for (int64_t t = 0; t < count; t++) own[t] += bias[t];
    const float inverse = 1.0f / exponentials(own, count, largest(own, count), 1.0f, own);
    for (int64_t t = 0; t < count; t++) own[t] *= inverse;
    if constexpr (!std::is_same_v<T, C>) multiplyByScales(in, in.valueScales, table, firstGroup + h / share, begin, position + 1, own);
  }

  std::fill_n(sums, heads * size, 0.0f);
  eachRun(table, in.block, begin, position + 1, [&](int64_t t, int64_t run, int64_t place) {
    const C* values = in.values + place * stride + firstGroup * size;
    for (const int64_t end = t + run; t < end; t++, values += stride) {
      const float* numbers = widened(values, width, scratch.numbers.data());
      for (int64_t h = 0; h < heads; h++) addValue(scores[h * longest + t], numbers + places[h], size, sums + h * size);
    }
  });
  T* out = in.out + (row * in.heads + firstHead) * size;
  for (int64_t i = 0; i < heads * size; i++) out[i] = static_cast<T>(sums[i]);
}

/** Checks that slots, positions and the blocks that hold them are within the cache. Takes contiguous tensors on the CPU. */
inline void checkPlaces(const at::Tensor& keys, const at::Tensor& tables, const at::Tensor& slots, const at::Tensor& positions) {
  const int64_t blocks = keys.size(0), block = keys.size(1), width = tables.size(1);
  const int64_t *slot = slots.data_ptr<int64_t>(), *position = positions.data_ptr<int64_t>();
  for (int64_t i = 0; i < slots.size(0); i++) {
    TORCH_CHECK(slot[i] >= 0 && slot[i] < tables.size(0) && position[i] >= 0 && position[i] < width * block,
                "a slot or position lies outside the cache");
    const int32_t* table = tables.data_ptr<int32_t>() + slot[i] * width;
    TORCH_CHECK(std::all_of(table, table + position[i] / block + 1, [&](int32_t at) { return at >= 0 && at < blocks; }),
                "a block lies outside the cache");
  }
}

/** Whether two rows have the same slot. */
inline bool sharesSlots(const int64_t* slots, int64_t rows) {
  std::vector<bool> seen(*std::max_element(slots, slots + rows) + 1);
  for (int64_t i = 0; i < rows; i++) {
    if (seen[slots[i]]) return true;
    seen[slots[i]] = true;
  }
  return false;
}

// A parallel task is a row, or some of its groups if there are fewer rows than threads.
template <typename T, typename C>
void decodeRows(const DecodeRows<T, C>& in) {
  if (in.rows == 0) return;
  const int64_t parts = std::min<int64_t>(in.groups, (at::get_num_threads() + in.rows - 1) / in.rows);
  const int64_t longest = *std::max_element(in.positions, in.positions + in.rows) + 1;
  const bool writeFirst = sharesSlots(in.slots, in.rows);
  if (writeFirst)
    deal(in.rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row++) writeRow(in, row, 0, in.groups);
    });
  deal(in.rows * parts, 1, [&](int64_t begin, int64_t end) {
    const int64_t most = (in.groups + parts - 1) / parts * (in.heads / in.groups);
    std::vector<T> queries(most * in.size);
    const int64_t numbers = most * in.size;
    DecodeScratch scratch{longest,
                          std::vector<float>(most * longest),
                          std::vector<float>(numbers),
                          std::vector<float>(numbers),
                          std::vector<float>(numbers),
                          std::vector<int64_t>(most)};
    for (int64_t task = begin; task < end; task++) {
      const int64_t row = task / parts, first = task % parts * in.groups / parts, last = (task % parts + 1) * in.groups / parts;
      if (!writeFirst) writeRow(in, row, first, last);
      attendRow(in, row, first, last, queries, scratch);
    }
  });
}

/** The same over a layer's cache; `in` does not name it yet. */
template <typename T, typename C>
void decodeRows(DecodeRows<T, C> in, const CacheLayer& cache) {
  in.keys = cache.keys.data_ptr<C>(), in.values = cache.values.data_ptr<C>();
  if (cache.isEightBits()) in.keyScales = cache.keyScales.data_ptr<c10::BFloat16>(), in.valueScales = cache.valueScales.data_ptr<c10::BFloat16>();
  in.block = cache.block(), in.groups = cache.groups(), in.size = cache.size();
  decodeRows(in);
}

}  // namespace attune
