// The product of product.cu with a matrix in 8 or 4 bits: x·Ŵᵀ for the few rows of a decoding step. Codes are converted to bf16 in
// registers and multiplied on tensor cores; the sums are multiplied by the scales in f32. A weight takes two instructions in 8 bits and
// fewer than two in 4 bits. Reading the codes used 15 to 23 % of an H200's memory rate in 4 bits, so it is not the limit. For the shapes
// they support, eight_bit_product.cu, four_bit_product.cu and four_bit_rows.cu give the same bits faster.
//
// Integers of 8 bits are exact in bf16. A byte of 4-bit codes is two weights: a table in shared memory holds the levels of all 256 pairs in
// bf16. Each lane has its own copy, 32 in all, so that there are no bank conflicts.
#include <type_traits>

#include "cuda/product_sums.cuh"
#include "cuda/quantised/eight_bits.cuh"
#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

using Number = __nv_bfloat16;

constexpr int kCopies = 32, kPairs = 256;
constexpr int kRun = 256;  // block maxima that share one maximum

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/** One row of the matrix, for one of the four lanes that share it. */
struct RowCodes {
  const char* codes;
  const void* scales;
  const float* nested;
  int block;  // the row's first block, counted within its part
  float offset;  // 4 bits: mean of the block maxima; 8 bits: the row's scale
};

/** A lane's 16 codes of one row and chunk, and the parts of their block's scale. */
template <bool FOUR>
struct Held {
  unsigned codes[FOUR ? 2 : 4];
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
  found.codes = static_cast<const char*>(part.codes) + row * (FOUR ? inputs / 2 : inputs) + quarter * (FOUR ? 8 : 16);
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

// Eight weights as four registers of two. `table` is the lane's own copy; its entries are 128 bytes apart.
__device__ inline void eightOf4(unsigned codes, const char* table, unsigned (&pairs)[4]) {
  pairs[0] = *reinterpret_cast<const unsigned*>(table + ((codes << 7) & 0x7F80u));
  pairs[1] = *reinterpret_cast<const unsigned*>(table + ((codes >> 1) & 0x7F80u));
  pairs[2] = *reinterpret_cast<const unsigned*>(table + ((codes >> 9) & 0x7F80u));
  pairs[3] = *reinterpret_cast<const unsigned*>(table + ((codes >> 17) & 0x7F80u));
}
#endif

// The layout of productKernel: TILES tiles of 8 rows of W (with Gated, half of them are gates) and ROWS sets of 16 rows of x. Without
// WHOLE only the first eight rows of a set exist.
template <bool FOUR, int TILES, int ROWS, bool WHOLE, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads, ROWS == 1 ? 2 : 1) quantisedKernel(QuantisedProductArgs q) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kEights = 2, kDepth = TILES > 2 ? 3 : 4;
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  __shared__ ProductShared<TILES, ROWS> shared;
  __shared__ unsigned pairs[FOUR ? kPairs * kCopies : 1];
  __shared__ float map[256];
  const ProductArgs& a = q.product;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int inputs = static_cast<int>(a.inputs), tiles = static_cast<int>(a.outputs / 8), chunks = inputs / kChunk;
  // The warp's chunks: in 8 bits every eighth span, in 4 bits neighbours, because a row of a chunk is a quarter of a line of memory.
  constexpr int kInSpan = kSpan / kChunk;
  const int begin = FOUR ? chunks * warp / kWarps : 0, end = FOUR ? chunks * (warp + 1) / kWarps : chunks;
  const auto chunkAt = [&](int i) { return FOUR ? i : (i / kInSpan * kWarps + warp) * kInSpan + i % kInSpan; };
  const bool nested = FOUR && q.map != nullptr;

  RowCodes rows[TILES];
  const auto findRows = [&](int first) {
#pragma unroll
    for (int j = 0; j < TILES; j++)  // tiles beyond the last are computed but not written
      rows[j] = rowAt<FOUR>(q, ((j < kOwn ? 0 : tiles) + min(first + j % kOwn, tiles - 1)) * 8 + line, part);
  };
  Held<FOUR> held[kDepth][TILES];
  const auto ask = [&](int depth, int chunk) {
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      Held<FOUR>& to = held[depth][j];
      if constexpr (FOUR) {
        const uint2 codes = streamTwo(rows[j].codes + chunk * (kChunk / 2));
        to.codes[0] = codes.x, to.codes[1] = codes.y;
        const int block = rows[j].block + chunk * kChunk / q.block;
        to.scale = nested ? static_cast<const unsigned char*>(rows[j].scales)[block] : 0;
        to.nested = nested ? rows[j].nested[block / kRun] : static_cast<const float*>(rows[j].scales)[block];
      } else {
        const uint4 codes = stream(rows[j].codes + chunk * kChunk);
        to.codes[0] = codes.x, to.codes[1] = codes.y, to.codes[2] = codes.z, to.codes[3] = codes.w;
      }
    }
  };
  const auto askFirst = [&] {
#pragma unroll
    for (int depth = 0; depth < kDepth; depth++)
      if (chunkAt(begin + depth) < end) ask(depth, chunkAt(begin + depth));
  };
  int first = static_cast<int>(blockIdx.x) * kOwn;
  findRows(first);
  askFirst();
  const Number* normWeights = static_cast<const Number*>(a.norm) + part * 8 * kEights;
  if constexpr (FOUR) {
    for (int low = warp; low < 16; low += kWarps) {
      const float second = q.levels[low];
#pragma unroll
      for (int high = 0; high < 16; high++) pairs[(high * 16 + low) * kCopies + lane] = pack<Number>(q.levels[high], second);
    }
    if (nested && threadIdx.x < 256) map[threadIdx.x] = q.map[threadIdx.x];
    __syncthreads();
  }
  const char* table = reinterpret_cast<const char*>(pairs) + lane * sizeof(unsigned);
  letNextBegin();
  waitForPrevious();

  const auto slice = [&](int m, int half, int place) {
    const int row = m * 16 + half * 8 + line;
    return row < a.rows ? *reinterpret_cast<const uint4*>(static_cast<const Number*>(a.x) + row * inputs + place) : uint4{};
  };
  while (first < tiles) {
    float square[ROWS][2] = {};
    float sums[ROWS][TILES][4];
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
      for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) sums[m][j][i] = 0;
    for (int from = begin; chunkAt(from) < end; from += kDepth) {
#pragma unroll
      for (int depth = 0; depth < kDepth; depth++) {
        const int chunk = chunkAt(from + depth);
        if (chunk >= end) break;
        uint4 low[ROWS][kEights], high[ROWS][kEights];
#pragma unroll
        for (int e = 0; e < kEights; e++) {
          const int place = chunk * kChunk + (part * kEights + e) * 8;
          uint4 norm{};
          if constexpr (NORM) norm = *reinterpret_cast<const uint4*>(normWeights + chunk * kChunk + e * 8);
#pragma unroll
          for (int m = 0; m < ROWS; m++) {
            low[m][e] = slice(m, 0, place), high[m][e] = WHOLE ? slice(m, 1, place) : uint4{};
            if constexpr (NORM) {
              square[m][0] += squaresOf<Number>(low[m][e]);
              low[m][e] = timesEach(low[m][e], norm);
              if constexpr (WHOLE) square[m][1] += squaresOf<Number>(high[m][e]), high[m][e] = timesEach(high[m][e], norm);
            }
          }
        }
#pragma unroll
        for (int j = 0; j < TILES; j++) {
          const Held<FOUR>& own = held[depth][j];
          float block[ROWS][4] = {};
#pragma unroll
          for (int e = 0; e < kEights; e++) {
            unsigned w[4];
            if constexpr (FOUR)
              eightOf4(own.codes[e], table, w);
            else
              eightOf8(own.codes[2 * e], own.codes[2 * e + 1], w);
#pragma unroll
            for (int m = 0; m < ROWS; m++) {
              float(&to)[4] = FOUR ? block[m] : sums[m][j];
              multiply<Number>(to, low[m][e].x, high[m][e].x, low[m][e].y, high[m][e].y, w[0], w[1]);
              multiply<Number>(to, low[m][e].z, high[m][e].z, low[m][e].w, high[m][e].w, w[2], w[3]);
            }
          }
          if constexpr (FOUR) {
            // a lane holds the scale of row `line` but the sums of rows 2·part and 2·part + 1
            const float scale = nested ? fmaf(map[own.scale], own.nested, rows[j].offset) : own.nested;
            const float even = __shfl_sync(0xFFFFFFFF, scale, part * 8), odd = __shfl_sync(0xFFFFFFFF, scale, part * 8 + 4);
#pragma unroll
            for (int m = 0; m < ROWS; m++)
#pragma unroll
              for (int i = 0; i < 4; i++) sums[m][j][i] = fmaf(block[m][i], i % 2 == 0 ? even : odd, sums[m][j][i]);
          }
        }
        const int later = chunkAt(from + depth + kDepth);
        if (later < end) ask(depth, later);
      }
    }
    if constexpr (!FOUR)
#pragma unroll
      for (int j = 0; j < TILES; j++) {
        const float scale = rows[j].offset;
        const float even = __shfl_sync(0xFFFFFFFF, scale, part * 8), odd = __shfl_sync(0xFFFFFFFF, scale, part * 8 + 4);
#pragma unroll
        for (int m = 0; m < ROWS; m++)
#pragma unroll
          for (int i = 0; i < 4; i++) sums[m][j][i] *= i % 2 == 0 ? even : odd;
      }
    const int next = first + static_cast<int>(gridDim.x) * kOwn;
    if (next < tiles) {  // loads the next codes while these sums are added
      findRows(next);
      askFirst();
    }
    finishProduct<Number, TILES, ROWS, FORM, NORM>(a, first, shared, sums, square);
    first = next;
    __syncthreads();
  }
#endif
}

template <bool FOUR, int ROWS, bool WHOLE, Form FORM, bool NORM>
void multiplyBySize(const QuantisedProductArgs& q, cudaStream_t stream) {
  // As many thread blocks as fit on the GPU. Each computes several groups of tiles with one table.
  constexpr int64_t kTiles = !FOUR && FORM == Form::Gated ? 4 : 2, kOwn = FORM == Form::Gated ? kTiles / 2 : kTiles;
  const int64_t groups = (q.product.outputs / 8 + kOwn - 1) / kOwn, room = multiprocessorsOfDevice() * (ROWS == 1 ? 2 : 1);
  const dim3 grid(static_cast<unsigned>(groups < room ? groups : room));
  launchInRow<FOUR ? kSharedOfFourBits : kSharedOfStep>(quantisedKernel<FOUR, kTiles, ROWS, WHOLE, FORM, NORM>, grid, kThreads, 1, stream,
                                                        q);
}

template <bool FOUR>
void multiplyByForm(const QuantisedProductArgs& q, cudaStream_t stream) {
  const auto byRows = [&](auto form, auto norm) {
    if (q.product.rows <= 8) return multiplyBySize<FOUR, 1, false, form.value, norm.value>(q, stream);
    if (q.product.rows <= 16) return multiplyBySize<FOUR, 1, true, form.value, norm.value>(q, stream);
    return multiplyBySize<FOUR, 2, true, form.value, norm.value>(q, stream);
  };
  using Plain = std::integral_constant<Form, Form::Plain>;
  using Gated = std::integral_constant<Form, Form::Gated>;
  if (q.product.gated) return byRows(Gated{}, std::true_type{});
  return q.product.norm == nullptr ? byRows(Plain{}, std::false_type{}) : byRows(Plain{}, std::true_type{});
}

}  // namespace

bool quantisedProductFits(int64_t rows, int64_t inputs, int64_t outputs, bool four, int64_t block) {
  if (four && (block % kChunk != 0 || inputs % block != 0)) return false;  // all weights of a step must share a scale
  return rows <= 32 && inputs % kChunk == 0 && outputs % 8 == 0 && inputs * outputs < INT32_MAX / 2 && majorOfDevice() >= 9;
}

void launchQuantisedProduct(const QuantisedProductArgs& q, cudaStream_t stream) {
  if (q.product.rows == 0) return;
  if (q.four && fourBitProductFits(q)) return launchFourBitProduct(q, stream);
  if (q.four && fourBitRowsFit(q)) return launchFourBitRows(q, stream);
  if (!q.four && eightBitProductFits(q)) return launchEightBitProduct(q, stream);
  if (q.four) return multiplyByForm<true>(q, stream);
  multiplyByForm<false>(q, stream);
}

}  // namespace attune
