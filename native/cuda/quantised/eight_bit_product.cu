// The product of quantised_product.cu with a large 8-bit matrix for up to 16 rows of x, structured like product.cu: one wave of equal
// blocks, two on each multiprocessor. A block computes all of its columns, up to 8·TILES, at the same time, so that it reads x once. Each
// of its eight warps takes every eighth span of the inputs, which are whole lines of W, and has a ring in shared memory that its own lanes
// fill and empty. All sums are added in the order of quantised_product.cu, so that a row's result does not depend on the number of rows.
#include <algorithm>

#include "cuda/product_sums.cuh"
#include "cuda/quantised/eight_bits.cuh"
#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

using Number = __nv_bfloat16;

constexpr int kTileBytes = 8 * kSpan;  // of a span of a tile, which is 8 rows of W
constexpr int kChunks = kSpan / kChunk;

/** WHOLE: for more than eight rows. */
template <int TILES, bool WHOLE, Form FORM>
struct Plan {
  static constexpr int kTogether = FORM == Form::Gated ? 2 : 1;  // tiles that make 8 outputs
  static constexpr int kColumns = 8 * TILES / kTogether;  // that a block writes
  static constexpr int kGroup = TILES % 2 == 0 ? 2 : TILES;  // tiles that are asked for, waited for and multiplied together
  // x of the next span: in registers where there is room for it, otherwise in shared memory
  static constexpr bool kSharesX = TILES >= (WHOLE ? 6 : 10);
  static constexpr int kStages = kSharesX ? (WHOLE ? 2 : 3) : FORM == Form::Gated ? 4 : 6 / kGroup;  // groups of a warp under way
  static constexpr int kRing = kWarps * kStages * kGroup * kTileBytes, kBytesOfX = (WHOLE ? 16 : 8) * kSpan * 2;  // of a warp
  static constexpr int kBytes = kRing + (kSharesX ? kWarps * kBytesOfX : 0);
  static constexpr int kPitch = 8 * TILES + 8;  // of a warp's sums
  static_assert(TILES % kGroup == 0 && kWarps * 16 * kPitch * static_cast<int>(sizeof(float)) <= kBytes);
  static_assert(!kSharesX || TILES / kGroup > kStages);  // x comes with a group that is waited for before the next span
};

// For Gated a tile of gates is followed by the tile of the values they gate.
template <int TILES, bool WHOLE, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads, 2) eightBitKernel(QuantisedProductArgs q) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using P = Plan<TILES, WHOLE, FORM>;
  constexpr int kTogether = P::kTogether, kStages = P::kStages, kGroup = P::kGroup, kStageBytes = kGroup * kTileBytes;
  constexpr int kColumns = P::kColumns, kPitch = P::kPitch, kWrites = ((WHOLE ? 16 : 8) * kColumns + kThreads - 1) / kThreads;
  extern __shared__ __align__(128) char memory[];
  __shared__ float squares[NORM ? kWarps : 1][16];
  const ProductArgs& a = q.product;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int inputs = static_cast<int>(a.inputs), outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows);
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int tiles = outputs / 8, spans = (inputs + kSpan - 1) / kSpan;
  const int first = block * tiles / blocks, own = (block + 1) * tiles / blocks - first;

  // —— the ring: a copy takes four rows of a tile. The halves of odd rows are exchanged, so that lanes read from different banks. ——
  char* const ring = memory + warp * kStages * kStageBytes;
  const int copyRow = lane / 8, piece = lane % 8, ofTile = 8 * inputs;
  char* const copyTo = ring + copyRow * kSpan + (piece ^ (copyRow % 2 * 4)) * 16;
  const char* const from = static_cast<const char*>(q.part[0].codes) + (first * 8 + copyRow) * inputs;
  int place = warp * kSpan + piece * 16, askedTile = 0, askedStage = 0;  // place: in a row
  const auto ask = [&] {
    if (place < inputs) {  // otherwise what is there is multiplied by zeros
#pragma unroll
      for (int i = 0; i < kGroup; i++) {
        const int tile = (askedTile + i) / kTogether, isUp = i % kTogether;
        if (tile >= own) continue;  // what is in its place is multiplied but not written
        char* const to = copyTo + askedStage * kStageBytes + i * kTileBytes;
        copyAsync<16>(to, from + (tile + isUp * tiles) * ofTile + place);
        copyAsync<16>(to + 4 * kSpan, from + (tile + isUp * tiles) * ofTile + 4 * inputs + place);
      }
    }
    askedTile += kGroup;
    if (askedTile == TILES) askedTile = 0, place += kWarps * kSpan;
    commitCopies();
    askedStage = askedStage + 1 == kStages ? 0 : askedStage + 1;
  };
#pragma unroll 1
  for (int i = 0; i < kStages; i++) ask();
  const Number* const normWeights = static_cast<const Number*>(a.norm) + part * 16;
  if constexpr (NORM) {
    for (int at = warp * kSpan + line % 2 * kChunk; at + part * 16 < inputs; at += kWarps * kSpan) prefetch(normWeights + at);
  }
  const auto scalesOf = [&](int j) {
    return static_cast<const float*>(q.part[0].scales) + (first + j / kTogether + j % kTogether * tiles) * 8 + part * 2;
  };
#pragma unroll
  for (int j = 0; j < TILES; j++)
    if (j / kTogether < own && line == j % 8) prefetch(scalesOf(j));
  letNextBegin();
  waitForPrevious();

  // —— x of a span: lane (line, part) takes x[row `line`][16·part …] of each chunk, and W in the same order ——
  const Number* const x = static_cast<const Number*>(a.x);
  uint4 nextLow[kChunks][2], nextHigh[kChunks][2];
  char* const ownX = memory + P::kRing + warp * P::kBytesOfX;  // [rows, kSpan], where neighbouring pieces of odd rows are exchanged
  const auto askX = [&](int span) {
    if constexpr (P::kSharesX) {  // as part of the next group of copies
      if (span >= spans) return;
#pragma unroll
      for (int i = 0; i < (WHOLE ? 8 : 4); i++) {
        const int row = 2 * i + lane / 16, pieceOfX = lane % 16, at = span * kSpan + pieceOfX * 8;
        const bool isThere = row < rows && at < inputs;
        copyAsync<16>(ownX + row * kSpan * 2 + (pieceOfX ^ row % 2) * 16, isThere ? x + row * inputs + at : x, isThere);
      }
    } else {
      const auto slice = [&](int row, int at) {
        return row < rows && at < inputs ? *reinterpret_cast<const uint4*>(x + row * inputs + at) : uint4{};
      };
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int at = span * kSpan + c * kChunk + part * 16 + e * 8;
          nextLow[c][e] = slice(line, at), nextHigh[c][e] = WHOLE ? slice(line + 8, at) : uint4{};
        }
    }
  };
  askX(warp);
  if constexpr (P::kSharesX) {
    commitCopies();
    waitForCopies<0>();
  }
  // what y holds, for the outputs that this thread writes
  Number before[kWrites];
#pragma unroll
  for (int e = 0; e < kWrites; e++) {
    const int i = threadIdx.x + e * kThreads, row = i / kColumns, column = i % kColumns;
    before[e] = FORM == Form::Plain && a.add && row < rows && column < 8 * own
                    ? static_cast<const Number*>(a.y)[row * outputs + first * 8 + column]
                    : Number(0.0f);
  }

  float sums[TILES][4] = {}, square[2] = {};
  const char* const readFrom = ring + line * kSpan + (part ^ (line % 2 * 4)) * 16;
  const int otherHalf = line % 2 == 0 ? 64 : -64;
  int stage = 0;
#pragma unroll 1
  for (int span = warp; span < spans; span += kWarps) {
    uint4 low[kChunks][2], high[kChunks][2];
    if constexpr (P::kSharesX) __syncwarp();  // the lanes have waited for x with the codes
#pragma unroll
    for (int c = 0; c < kChunks; c++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const char* const held = ownX + line * kSpan * 2 + ((c * 8 + part * 2 + e) ^ line % 2) * 16;
        low[c][e] = P::kSharesX ? *reinterpret_cast<const uint4*>(held) : nextLow[c][e];
        if constexpr (WHOLE)
          high[c][e] = P::kSharesX ? *reinterpret_cast<const uint4*>(held + 8 * kSpan * 2) : nextHigh[c][e];
        else
          high[c][e] = uint4{};
      }
    if constexpr (P::kSharesX) __syncwarp();  // all lanes have read
    askX(span + kWarps);
    if constexpr (NORM) {
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int at = span * kSpan + c * kChunk + e * 8;
          const uint4 norm = at + part * 16 < inputs ? *reinterpret_cast<const uint4*>(normWeights + at) : uint4{};
          square[0] += squaresOf<Number>(low[c][e]), low[c][e] = timesEach(low[c][e], norm);
          if constexpr (WHOLE) square[1] += squaresOf<Number>(high[c][e]), high[c][e] = timesEach(high[c][e], norm);
        }
    }
#pragma unroll
    for (int j = 0; j < TILES; j += kGroup) {
      waitForCopies<kStages - 1>();
      __syncwarp();
      uint4 codes[kGroup][kChunks];
#pragma unroll
      for (int i = 0; i < kGroup; i++) {
        const char* const tile = readFrom + stage * kStageBytes + i * kTileBytes;
        codes[i][0] = *reinterpret_cast<const uint4*>(tile), codes[i][1] = *reinterpret_cast<const uint4*>(tile + otherHalf);
      }
      __syncwarp();  // all lanes have read
      ask();
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int c = 0; c < kChunks; c++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const uint4 &one = low[c][e], &two = high[c][e];
#pragma unroll
          for (int i = 0; i < kGroup; i++) {
            unsigned w[4];
            eightOf8(e == 0 ? codes[i][c].x : codes[i][c].z, e == 0 ? codes[i][c].y : codes[i][c].w, w);
            multiply<Number>(sums[j + i], one.x, two.x, one.y, two.y, w[0], w[1]);
            multiply<Number>(sums[j + i], one.z, two.z, one.w, two.w, w[2], w[3]);
          }
        }
    }
  }

  // —— the warps' sums, times the scales of W's rows, in the place of the codes ——
  float* const partial = reinterpret_cast<float*>(memory);
  if constexpr (NORM) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = square[half];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      if (part == 0) squares[warp][half * 8 + line] = sum;
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    if (j / kTogether >= own) continue;
    const float2 scale = *reinterpret_cast<const float2*>(scalesOf(j));
    const float even = scale.x * (1.0f / 127.0f), odd = scale.y * (1.0f / 127.0f);
    float* const to = partial + (warp * 16 + line) * kPitch + j * 8 + part * 2;
    if (line < rows) *reinterpret_cast<float2*>(to) = {sums[j][0] * even, sums[j][1] * odd};
    if (WHOLE && line + 8 < rows) *reinterpret_cast<float2*>(to + 8 * kPitch) = {sums[j][2] * even, sums[j][3] * odd};
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kWrites; e++) {
    const int i = threadIdx.x + e * kThreads, row = i / kColumns, column = i % kColumns, target = first * 8 + column;
    if (row >= rows || column >= 8 * own) continue;
    const auto sumOfWarps = [&](int isUp) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; w++) sum += partial[(w * 16 + row) * kPitch + (column / 8 * kTogether + isUp) * 8 + column % 8];
      return sum;
    };
    float scale = 1;
    if constexpr (NORM) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; w++) sum += squares[w][row];
      scale = rsqrtf(sum / static_cast<float>(inputs) + a.eps);
    }
    float value = scaledSum<Number>(sumOfWarps(0), scale, a.bias, target);
    if constexpr (FORM == Form::Gated) {
      const float up = scaledSum<Number>(sumOfWarps(1), scale, a.bias, outputs + target);
      value = gatedValue<Number>(value, up);
    }
    static_cast<Number*>(a.y)[row * outputs + target] = narrow<Number>(a.add ? wide(before[e]) + value : value);
  }
#endif
}

/** Blocks in all, and tiles of each: two blocks on each multiprocessor, or fewer where there are not so many tiles. */
struct Division {
  int64_t blocks, tiles;
};
Division divisionOf(const ProductArgs& a) {
  const int64_t all = a.outputs / 8, blocks = std::min<int64_t>(all, 2 * multiprocessorsOfDevice());
  return {blocks, (all + blocks - 1) / blocks * (a.gated ? 2 : 1)};
}

constexpr int kMostTiles = 12, kMostPlainTiles = 6;
constexpr int64_t kLarge = 10 << 20, kLargePlain = 24 << 20;  // weights; the second one: without a gate, for 9 to 16 rows

template <int TILES, bool WHOLE, Form FORM, bool NORM>
void launchTiles(const QuantisedProductArgs& q, const Division& division, cudaStream_t stream) {
  constexpr int kMost = FORM == Form::Gated ? kMostTiles : kMostPlainTiles;
  constexpr int kNext = FORM == Form::Gated ? TILES + 2 : TILES == 4 ? 6 : TILES + 1;
  if constexpr (TILES < kMost)
    if (division.tiles > TILES) return launchTiles<kNext, WHOLE, FORM, NORM>(q, division, stream);
  launchWithMemory<kSharedOfStep>(eightBitKernel<TILES, WHOLE, FORM, NORM>, dim3(static_cast<unsigned>(division.blocks)), kThreads, 1,
                                  Plan<TILES, WHOLE, FORM>::kBytes, stream, q);
}

template <bool WHOLE>
void launch(const QuantisedProductArgs& q, cudaStream_t stream) {
  const Division division = divisionOf(q.product);
  if (q.product.gated) return launchTiles<2, WHOLE, Form::Gated, true>(q, division, stream);
  if (q.product.norm == nullptr) return launchTiles<1, WHOLE, Form::Plain, false>(q, division, stream);
  launchTiles<1, WHOLE, Form::Plain, true>(q, division, stream);
}

}  // namespace

// A layer on an H200 with its attention over 384 keys, µs at 1, 8 and 16 rows, and in parentheses by quantised_product.cu: 8B 66.8, 71.5,
// 77.3 (74.6, 81.1, 88.2), 4B 46.8, 51.8, 58.2 (52.2, 57.3, 64.4), 1.7B 31.0, 35.5, 40.9 (31.4, 37.6, 43.5), 0.6B 18.2, 23.1, 28.2 (17.8,
// 22.6, 26.3). With clusters of two that halve the inputs of the matrices without a gate 8B takes 80.7 at 16 rows. Small matrices, and at 9
// to 16 rows 8B's out, are slower than there.
bool eightBitProductFits(const QuantisedProductArgs& q) {
  const ProductArgs& a = q.product;
  int64_t rows = 0;
  for (int i = 0; i < q.parts; rows += q.part[i++].rows)  // one matrix and one run of scales
    if (q.part[i].codes != static_cast<const char*>(q.part[0].codes) + rows * a.inputs ||
        q.part[i].scales != static_cast<const float*>(q.part[0].scales) + rows)
      return false;
  if (reinterpret_cast<uintptr_t>(q.part[0].scales) % sizeof(float2) != 0) return false;
  return a.rows <= 16 && rows * a.inputs >= (a.gated || a.rows <= 8 ? kLarge : kLargePlain) &&
         divisionOf(a).tiles <= (a.gated ? kMostTiles : kMostPlainTiles);
}

void launchEightBitProduct(const QuantisedProductArgs& q, cudaStream_t stream) {
  q.product.rows > 8 ? launch<true>(q, stream) : launch<false>(q, stream);
}

}  // namespace attune
