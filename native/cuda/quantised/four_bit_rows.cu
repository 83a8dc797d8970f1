// silu(gate)·up of quantised_product.cu with a large 4-bit matrix for 9 to 16 rows of x, structured like eight_bit_product.cu.
//
// A byte of codes is two weights. A table in shared memory holds the levels of all 256 pairs in bf16, once for each lane, so that there are
// no bank conflicts. Its entries are 256 bytes apart, so that one byte permutation makes an address. Codes are copied to the other half of
// each entry. The sums of a chunk of inputs are multiplied by its scale in f32; all scales are decoded before.
#include <algorithm>

#include "cuda/quantised/four_bits.cuh"
#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

constexpr int kChunks = 2;  // that a warp takes at a time: 64 bytes of a row of W
constexpr int kEntries = 256, kEntryBytes = 256;
constexpr int kAtOnce = 6;  // loads of scales that a thread has under way at the same time

// A tile is 8 rows of W. A tile of gates is followed by the tile of the values they gate: both are asked for, waited for and multiplied
// together. A pair takes 8 of a warp's 32 entries, so four pairs are under way.
constexpr int kPair = 2, kStages = 4, kTileBytes = 4 * kEntryBytes;

template <int TILES>
__global__ void __launch_bounds__(kThreads, 2) fourBitRowsKernel(QuantisedProductArgs q) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kRows = 8 * TILES, kColumns = kRows / kPair, kPitch = kRows + 8, kWrites = (16 * kColumns + kThreads - 1) / kThreads;
  constexpr bool kAhead = TILES < 6;  // room in registers for x of the next step
  static_assert(TILES % kPair == 0 && kWarps * 16 * kPitch * sizeof(float) <= kEntries * kEntryBytes);
  extern __shared__ __align__(1024) char memory[];
  __shared__ float squares[kWarps][16];
  const ProductArgs& a = q.product;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32, line = lane / 4, part = lane % 4;
  const int inputs = static_cast<int>(a.inputs), outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows);
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int tiles = outputs / 8, chunks = inputs / kChunk, rowBytes = inputs / 2;
  const int first = block * tiles / blocks, own = (block + 1) * tiles / blocks - first;
  const int begin = chunks * warp / kWarps, end = chunks * (warp + 1) / kWarps;

  // —— codes: a copy takes 64 bytes of a tile's eight rows. Pieces lie so that lanes write to and read from different banks. ——
  char* const ring = memory + warp * (kEntries / kWarps) * kEntryBytes + kEntryBytes / 2;
  const int half = part / 2;
  char* const copyTo = ring + (half * 2 + line / 4) * kEntryBytes + ((line + 2 * half) % 4) * 32 + part % 2 * 16;
  const char* const from = static_cast<const char*>(q.part[0].codes) + (first * 8 + line) * rowBytes + part * 16;
  int asked = begin, askedTile = 0, askedStage = 0;
  const auto ask = [&] {
    if (asked + half < end) {  // otherwise what is there is multiplied by zeros
#pragma unroll
      for (int i = 0; i < kPair; i++) {
        const int tile = askedTile / kPair;
        if (tile < own)  // otherwise what is in its place is multiplied but not written
          copyAsync<16>(copyTo + (askedStage * kPair + i) * kTileBytes, from + (tile + i * tiles) * 8 * rowBytes + asked * (kChunk / 2));
      }
    }
    askedTile += kPair;
    if (askedTile == TILES) askedTile = 0, asked += kChunks;
    commitCopies();
    askedStage = askedStage + 1 == kStages ? 0 : askedStage + 1;
  };
#pragma unroll 1
  for (int i = 0; i < kStages; i++) ask();

  // —— scales of the block's rows and chunks, [chunk][row]: four neighbours at a time where that is possible ——
  float* const map = reinterpret_cast<float*>(memory + kEntries * kEntryBytes);
  float* const scales = map + 256;
  const bool nested = q.map != nullptr;
  const int perScale = q.block / kChunk, scalesInRow = inputs / q.block;
  const int each = scalesInRow % 4 == 0 ? 4 : 1, loads = scalesInRow / each, ownLoads = own * kPair * 8 * loads;
  struct Place {
    int part, block;
  };
  const auto placeOf = [&](int i) {  // of the i-th load: row i / loads of the block
    const int tile = i / loads / 8;
    int row = (first + tile / kPair + tile % kPair * tiles) * 8 + i / loads % 8, which = 0;
    while (which + 1 < q.parts && row >= q.part[which].rows) row -= q.part[which++].rows;
    return Place{which, row * scalesInRow + i % loads * each};
  };
  const auto askScales = [&](int i) {
    if (!nested || i >= ownLoads) return HeldScales{};
    const Place at = placeOf(i);
    const QuantisedProductArgs::Part& of = q.part[at.part];
    const auto* bytes = static_cast<const unsigned char*>(of.scales) + at.block;
    return HeldScales{each == 4 ? *reinterpret_cast<const unsigned*>(bytes) : *bytes, of.nested[at.block / kRun], *of.offset};
  };
  const auto putScales = [&](int i, const HeldScales& held) {
    if (i >= ownLoads) return;
    const Place at = placeOf(i);
    const float* const plain = static_cast<const float*>(q.part[at.part].scales) + at.block;
    float* const to = scales + i % loads * each * perScale * kRows + i / loads;
    for (int k = 0; k < each; k++) {
      const float scale = nested ? fmaf(map[held.codes >> 8 * k & 255], held.nested, held.offset) : plain[k];
      for (int c = 0; c < perScale; c++) to[(k * perScale + c) * kRows] = scale;
    }
  };
  HeldScales held[kAtOnce];
#pragma unroll
  for (int k = 0; k < kAtOnce; k++) held[k] = askScales(thread + k * kThreads);
  if (nested) map[thread] = q.map[thread];
#pragma unroll 4
  for (int i = thread; i < kEntries * 8; i += kThreads) {
    const unsigned pair = pack<Number>(q.levels[i / 128], q.levels[i / 8 % 16]);
    reinterpret_cast<uint4*>(memory + i / 8 * kEntryBytes)[i % 8] = {pair, pair, pair, pair};
  }
  const Number* const normWeights = static_cast<const Number*>(a.norm) + part * 16;
  for (int chunk = begin + line; chunk < end; chunk += 8) prefetch(normWeights + chunk * kChunk);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kAtOnce; k++) putScales(thread + k * kThreads, held[k]);
  for (int i = thread + kAtOnce * kThreads; i < ownLoads; i += kThreads) putScales(i, askScales(i));
  letNextBegin();
  waitForPrevious();

  // —— lane (line, part) takes x[row `line`][16·part …] of each chunk, and W in the same order ——
  const Number* const x = static_cast<const Number*>(a.x);
  const auto slice = [&](int row, int chunk, int e) {
    return row < rows && chunk < end ? *reinterpret_cast<const uint4*>(x + row * inputs + chunk * kChunk + part * 16 + e * 8) : uint4{};
  };
  const auto prefetchX = [&](int from) {  // one line for each lane
    if (lane / 2 < rows && from + lane % 2 < end) prefetch(x + lane / 2 * inputs + (from + lane % 2) * kChunk);
  };
  uint4 nextLow[kChunks][2], nextHigh[kChunks][2];
  const auto askX = [&](int from) {
#pragma unroll
    for (int c = 0; c < kChunks; c++)
#pragma unroll
      for (int e = 0; e < 2; e++) nextLow[c][e] = slice(line, from + c, e), nextHigh[c][e] = slice(line + 8, from + c, e);
  };
  askX(begin);
  if constexpr (!kAhead) prefetchX(begin + kChunks);
  __syncthreads();  // the scales are there

  float sums[TILES][4] = {}, square[2] = {};
  const char* const readFrom = ring + line / 4 * kEntryBytes + line % 4 * 32 + part * 8;
  const int otherChunk = 2 * kEntryBytes + (line % 4 < 2 ? 64 : -64);
  const unsigned ownCopy = lane * sizeof(unsigned);
  int stage = 0;
#pragma unroll 1
  for (int chunk = begin; chunk < end; chunk += kChunks) {
    uint4 low[kChunks][2], high[kChunks][2];
#pragma unroll
    for (int c = 0; c < kChunks; c++)
#pragma unroll
      for (int e = 0; e < 2; e++) low[c][e] = nextLow[c][e], high[c][e] = nextHigh[c][e];
    if constexpr (kAhead)
      askX(chunk + kChunks);
    else
      prefetchX(chunk + 2 * kChunks);
#pragma unroll
    for (int c = 0; c < kChunks; c++)
#pragma unroll
      for (int e = 0; e < 2; e++) {
        const uint4 norm = *reinterpret_cast<const uint4*>(normWeights + min(chunk + c, end - 1) * kChunk + e * 8);
        square[0] += squaresOf<Number>(low[c][e]), low[c][e] = timesEach(low[c][e], norm);
        square[1] += squaresOf<Number>(high[c][e]), high[c][e] = timesEach(high[c][e], norm);
      }
    const float* ownScales[kChunks];
#pragma unroll
    for (int c = 0; c < kChunks; c++) ownScales[c] = scales + min(chunk + c, end - 1) * kRows + part * 2;
#pragma unroll
    for (int j = 0; j < TILES; j += kPair) {
      waitForCopies<kStages - 1>();
      __syncwarp();
      uint2 codes[kPair][kChunks];
#pragma unroll
      for (int i = 0; i < kPair; i++) {
        const char* const tile = readFrom + (stage * kPair + i) * kTileBytes;
        codes[i][0] = *reinterpret_cast<const uint2*>(tile), codes[i][1] = *reinterpret_cast<const uint2*>(tile + otherChunk);
      }
      __syncwarp();  // all lanes have read
      ask();
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int c = 0; c < kChunks; c++) {
        float sum[kPair][4] = {};
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const uint4 &one = low[c][e], &two = high[c][e];
#pragma unroll
          for (int i = 0; i < kPair; i++) {
            const unsigned eight = e == 0 ? codes[i][c].x : codes[i][c].y;
            const unsigned w[4] = {twoOf4<0>(eight, memory, ownCopy), twoOf4<1>(eight, memory, ownCopy), twoOf4<2>(eight, memory, ownCopy),
                                   twoOf4<3>(eight, memory, ownCopy)};
            multiply<Number>(sum[i], one.x, two.x, one.y, two.y, w[0], w[1]);
            multiply<Number>(sum[i], one.z, two.z, one.w, two.w, w[2], w[3]);
          }
        }
#pragma unroll
        for (int i = 0; i < kPair; i++) {
          const float2 scale = *reinterpret_cast<const float2*>(ownScales[c] + (j + i) * 8);
#pragma unroll
          for (int k = 0; k < 4; k++) sums[j + i][k] = fmaf(sum[i][k], k % 2 == 0 ? scale.x : scale.y, sums[j + i][k]);
        }
      }
    }
    if constexpr (!kAhead) askX(chunk + kChunks);
  }

  // —— the warps' sums, in the place of the table ——
  float* const partial = reinterpret_cast<float*>(memory);
#pragma unroll
  for (int k = 0; k < 2; k++) {
    float sum = square[k];
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (part == 0) squares[warp][k * 8 + line] = sum;
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    if (j / kPair >= own) continue;
    float* const to = partial + (warp * 16 + line) * kPitch + j * 8 + part * 2;
    if (line < rows) *reinterpret_cast<float2*>(to) = {sums[j][0], sums[j][1]};
    if (line + 8 < rows) *reinterpret_cast<float2*>(to + 8 * kPitch) = {sums[j][2], sums[j][3]};
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kWrites; e++) {
    const int i = thread + e * kThreads, row = i / kColumns, column = i % kColumns, target = first * 8 + column;
    if (row >= rows || column >= 8 * own) continue;
    const auto sumOfWarps = [&](int isUp) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; w++) sum += partial[(w * 16 + row) * kPitch + (column / 8 * kPair + isUp) * 8 + column % 8];
      return sum;
    };
    float squaresOfRow = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) squaresOfRow += squares[w][row];
    const float scale = rsqrtf(squaresOfRow / static_cast<float>(inputs) + a.eps);
    const float gate = wide(narrow<Number>(scaledSum<Number>(sumOfWarps(0), scale, a.bias, target)));
    const float up = wide(narrow<Number>(scaledSum<Number>(sumOfWarps(1), scale, a.bias, outputs + target)));
    static_cast<Number*>(a.y)[row * outputs + target] = narrow<Number>(gate / (1.0f + __expf(-gate)) * up);
  }
#endif
}

/** Blocks in all, and tiles of each: two blocks on each multiprocessor, or fewer where there are not so many tiles. */
struct Division {
  int64_t blocks, tiles;
};
Division divisionOf(const ProductArgs& a) {
  const int64_t all = a.outputs / 8, blocks = std::min<int64_t>(all, 2 * multiprocessorsOfDevice());
  return {blocks, (all + blocks - 1) / blocks * kPair};
}

constexpr int kMostTiles = 12;
constexpr int kMostBytes = 96 << 10;  // of a block, so that two fit
constexpr int64_t kLarge = 10 << 20;  // weights

int bytesOf(const ProductArgs& a, int64_t tiles) {
  return kEntries * kEntryBytes + (256 + static_cast<int>(a.inputs / kChunk * 8 * tiles)) * static_cast<int>(sizeof(float));
}

template <int TILES>
void launchTiles(const QuantisedProductArgs& q, const Division& division, cudaStream_t stream) {
  if constexpr (TILES < kMostTiles)
    if (division.tiles > TILES) return launchTiles<TILES + kPair>(q, division, stream);
  launchWithMemory<kSharedOfFourBits>(fourBitRowsKernel<TILES>, dim3(static_cast<unsigned>(division.blocks)), kThreads, 1,
                                      bytesOf(q.product, TILES), stream, q);
}

}  // namespace

// µs alone on an H200 at 16 rows, and in parentheses by quantised_product.cu: 1.7B 12.7 (17.7), 4B 24.5 (32.2), 8B 35.1 (59.7), 0.6B 6.7
// (6.7). The same for the matrices without a gate, by clusters of two blocks that halve the inputs: a layer of 8B 97.5 in place of 99.1, of
// 4B 78.5 in place of 74.7.
bool fourBitRowsFit(const QuantisedProductArgs& q) {
  const ProductArgs& a = q.product;
  int64_t rows = 0;
  for (int i = 0; i < q.parts; rows += q.part[i++].rows)  // one run of codes
    if (q.part[i].codes != static_cast<const char*>(q.part[0].codes) + rows * a.inputs / 2 || q.part[i].rows % 8 != 0) return false;
  const int64_t tiles = divisionOf(a).tiles;
  return a.gated && a.rows > 8 && a.rows <= 16 && rows * a.inputs >= kLarge && tiles <= kMostTiles && bytesOf(a, tiles) <= kMostBytes;
}

void launchFourBitRows(const QuantisedProductArgs& q, cudaStream_t stream) { launchTiles<kPair>(q, divisionOf(q.product), stream); }

}  // namespace attune
