// The product of product.cu with a matrix in 8 or 4 bits: x·Ŵᵀ for the few rows of a decoding step. Codes are turned into bf16 in
// registers, into the numbers that quantised.cu writes for a product of many rows, and multiplied on tensor cores.
//
// Of 4 bits, a byte is two weights: their levels come from a table in shared memory of all 256 pairs. There are sixteen copies of it,
// one for each lane of a half-warp, so that no two lanes wait for one another.
#include <type_traits>

#include "cuda/product_sums.cuh"
#include "cuda/quantised.h"

namespace attune {
namespace {

constexpr int kCopies = 16, kPairs = 256;
constexpr int kRun = 256;  // block maxima that share one maximum
constexpr int kChunk8 = 64, kChunk4 = 128;  // inputs of one step: 16 bytes for each of a row's four lanes

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/** One row of the matrix, for one of the four lanes that share it. */
struct RowCodes {
  const char* codes;
  const void* scales;
  const float* nested;
  int block;  // the row's first, within its part
  float offset;  // of 8 bits: the row's scale
};

/** A lane's 16 bytes of one row and chunk, and what the scale of their block is made of. */
struct Held {
  uint4 codes;
  unsigned scale;
  float nested;
};

template <bool FOUR>
__device__ inline RowCodes rowAt(const QuantisedProductArgs& a, int row, int quarter) {
  int i = 0;
  while (i + 1 < a.parts && row >= a.part[i].rows) row -= a.part[i++].rows;
  const QuantisedProductArgs::Part& part = a.part[i];
  const int inputs = static_cast<int>(a.product.inputs);
  RowCodes found;
  found.codes = static_cast<const char*>(part.codes) + row * (FOUR ? inputs / 2 : inputs) + quarter * 16;
  found.scales = part.scales;
  found.nested = part.nested;
  if constexpr (FOUR) {
    found.block = row * (inputs / a.block);
    found.offset = part.nested == nullptr ? 0.0f : *part.offset;
  } else {
    found.block = 0;
    found.offset = static_cast<const float*>(part.scales)[row] * (1.0f / 127.0f);
  }
  return found;
}

// Eight weights as four registers of two.
__device__ inline void eightOf4(unsigned codes, float scale, const float2* table, unsigned (&pairs)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float2 two = table[((codes >> (8 * i)) & 255u) * kCopies];
    pairs[i] = pack<Number>(two.x * scale, two.y * scale);
  }
}

// A byte in the lowest place of 2²³ is that float plus the byte.
__device__ inline float numberOf(unsigned biased, unsigned byte) {
  return __uint_as_float(__byte_perm(biased, 0x4B000000u, 0x7440u | byte)) - 8388736.0f;
}

__device__ inline void eightOf8(unsigned first, unsigned second, float scale, unsigned (&pairs)[4]) {
#pragma unroll
  for (unsigned i = 0; i < 4; i++) {
    const unsigned biased = (i < 2 ? first : second) ^ 0x80808080u, byte = 2 * (i % 2);
    pairs[i] = pack<Number>(numberOf(biased, byte) * scale, numberOf(biased, byte + 1) * scale);
  }
}

__device__ inline unsigned wordOf(const uint4& words, int i) { return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w; }
#endif

// As productKernel: TILES tiles of 8 rows of W, of which Gated has half as gates; ROWS sets of 16 rows of x.
template <bool FOUR, int TILES, int ROWS, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads, ROWS == 1 ? 2 : 1) quantisedKernel(QuantisedProductArgs q, int splits) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kEights = FOUR ? 4 : 2, kChunk = FOUR ? kChunk4 : kChunk8, kDepth = FOUR ? 2 : 3;
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  using Shared = ProductShared<TILES, ROWS>;
  constexpr size_t kTable = FOUR ? sizeof(float2) * kPairs * kCopies : 0;
  // the sums take the table's place when it is no longer needed
  __shared__ __align__(16) unsigned char room[sizeof(Shared) > kTable ? sizeof(Shared) : kTable];
  __shared__ float map[256];
  const ProductArgs& a = q.product;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % splits, first = static_cast<int>(blockIdx.x) / splits * kOwn;
  const int inputs = static_cast<int>(a.inputs), tiles = static_cast<int>(a.outputs / 8), chunks = inputs / kChunk;
  const int share = (chunks + splits - 1) / splits, begin = rank * share + warp, end = min(chunks, (rank + 1) * share);
  const bool nested = FOUR && q.map != nullptr;

  RowCodes rows[TILES];
#pragma unroll
  for (int j = 0; j < TILES; j++)  // tiles beyond the last are computed but not written
    rows[j] = rowAt<FOUR>(q, ((j < kOwn ? 0 : tiles) + min(first + j % kOwn, tiles - 1)) * 8 + line, part);
  Held held[kDepth][TILES];
  const auto ask = [&](int depth, int chunk) {
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      Held& to = held[depth][j];
      to.codes = stream(rows[j].codes + chunk * 64);
      if constexpr (FOUR) {
        const int block = rows[j].block + (chunk * kChunk + part * 8 * kEights) / q.block;
        to.scale = nested ? static_cast<const unsigned char*>(rows[j].scales)[block] : 0;
        to.nested = nested ? rows[j].nested[block / kRun] : static_cast<const float*>(rows[j].scales)[block];
      }
    }
  };
#pragma unroll
  for (int depth = 0; depth < kDepth; depth++)
    if (begin + depth * kWarps < end) ask(depth, begin + depth * kWarps);
  const Number* normWeights = static_cast<const Number*>(a.norm) + part * 8 * kEights;
  float2* table = reinterpret_cast<float2*>(room);
  if constexpr (FOUR) {
    for (int i = threadIdx.x; i < kPairs * kCopies; i += kThreads) {
      const int pair = i / kCopies;
      table[i] = {q.levels[pair >> 4], q.levels[pair & 15]};
    }
    if (nested && threadIdx.x < 256) map[threadIdx.x] = q.map[threadIdx.x];
    __syncthreads();
  }
  table += lane % kCopies;
  waitForPrevious();
  letNextBegin();

  const auto slice = [&](int m, int half, int place) {
    const int row = m * 16 + half * 8 + line;
    return row < a.rows ? *reinterpret_cast<const uint4*>(static_cast<const Number*>(a.x) + row * inputs + place) : uint4{};
  };
  float square[ROWS][2] = {};
  float sums[ROWS][TILES][4];
#pragma unroll
  for (int m = 0; m < ROWS; m++)
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) sums[m][j][i] = 0;
  for (int from = begin; from < end; from += kDepth * kWarps) {
#pragma unroll
    for (int depth = 0; depth < kDepth; depth++) {
      const int chunk = from + depth * kWarps;
      if (chunk >= end) break;
      float scales[TILES];
#pragma unroll
      for (int j = 0; j < TILES; j++) {
        const Held& own = held[depth][j];
        scales[j] = !FOUR ? rows[j].offset : nested ? fmaf(map[own.scale], own.nested, rows[j].offset) : own.nested;
      }
#pragma unroll
      for (int e = 0; e < kEights; e++) {
        const int place = chunk * kChunk + (part * kEights + e) * 8;
        uint4 low[ROWS], high[ROWS];
#pragma unroll
        for (int m = 0; m < ROWS; m++) {
          low[m] = slice(m, 0, place), high[m] = slice(m, 1, place);
          if constexpr (NORM) {
            const uint4 norm = *reinterpret_cast<const uint4*>(normWeights + chunk * kChunk + e * 8);
            square[m][0] += squaresOf(low[m]), square[m][1] += squaresOf(high[m]);
            low[m] = timesEach(low[m], norm), high[m] = timesEach(high[m], norm);
          }
        }
#pragma unroll
        for (int j = 0; j < TILES; j++) {
          unsigned w[4];
          if constexpr (FOUR)
            eightOf4(wordOf(held[depth][j].codes, e), scales[j], table, w);
          else
            eightOf8(wordOf(held[depth][j].codes, 2 * e), wordOf(held[depth][j].codes, 2 * e + 1), scales[j], w);
#pragma unroll
          for (int m = 0; m < ROWS; m++) {
            multiply<Number>(sums[m][j], low[m].x, high[m].x, low[m].y, high[m].y, w[0], w[1]);
            multiply<Number>(sums[m][j], low[m].z, high[m].z, low[m].w, high[m].w, w[2], w[3]);
          }
        }
      }
      if (chunk + kDepth * kWarps < end) ask(depth, chunk + kDepth * kWarps);
    }
  }
  __syncthreads();
  finishProduct<TILES, ROWS, FORM, NORM>(a, splits, *reinterpret_cast<Shared*>(room), sums, square);
#endif
}

template <bool FOUR, int ROWS, Form FORM, bool NORM>
void multiplyBySize(const QuantisedProductArgs& q, cudaStream_t stream) {
  // Few tiles a block where there would not be a block for every multiprocessor otherwise.
  const int64_t multiprocessors = multiprocessorsOfDevice(), tiles = q.product.outputs / 8;
  const auto launch = [&](auto kernel, int64_t own, unsigned splits) { launchProductKernel(kernel, q, tiles, own, splits, stream); };
  if constexpr (FORM == Form::Gated) {
    if (tiles <= multiprocessors) return launch(quantisedKernel<FOUR, 2, ROWS, FORM, NORM>, 1, 1);
    return launch(quantisedKernel<FOUR, 4, ROWS, FORM, NORM>, 2, 1);
  } else {
    if (NORM && tiles <= 8 * multiprocessors) return launch(quantisedKernel<FOUR, 2, ROWS, FORM, NORM>, 2, 1);
    return launch(quantisedKernel<FOUR, 4, ROWS, FORM, NORM>, 4, NORM || tiles > 4 * multiprocessors ? 1 : kCluster);
  }
}

template <bool FOUR>
void multiplyByForm(const QuantisedProductArgs& q, cudaStream_t stream) {
  const auto byRows = [&](auto form, auto norm) {
    if (q.product.rows <= 16) return multiplyBySize<FOUR, 1, form.value, norm.value>(q, stream);
    return multiplyBySize<FOUR, 2, form.value, norm.value>(q, stream);
  };
  using Plain = std::integral_constant<Form, Form::Plain>;
  using Gated = std::integral_constant<Form, Form::Gated>;
  if (q.product.gated) return byRows(Gated{}, std::true_type{});
  return q.product.norm == nullptr ? byRows(Plain{}, std::false_type{}) : byRows(Plain{}, std::true_type{});
}

}  // namespace

bool quantisedProductFits(int64_t rows, int64_t inputs, int64_t outputs, bool four, int64_t block) {
  if (four && (block % 32 != 0 || inputs % block != 0)) return false;  // a lane's 32 weights share a scale
  return rows <= 32 && inputs % (four ? kChunk4 : kChunk8) == 0 && outputs % 8 == 0 && inputs * outputs < INT32_MAX / 2 &&
         majorOfDevice() >= 9;
}

void launchQuantisedProduct(const QuantisedProductArgs& q, cudaStream_t stream) {
  if (q.product.rows == 0) return;
  if (q.four) return multiplyByForm<true>(q, stream);
  multiplyByForm<false>(q, stream);
}

}  // namespace attune
