// The product of quantised_product.cu with a matrix in 4 bits for one to eight rows of x, where instructions and not memory are the limit.
//
// Two thread blocks per multiprocessor compute their share of the outputs, 16 rows of W (a tile) at a time. Each of a block's warps takes
// every eighth chunk of 64 inputs, copies the codes of a tile into its own part of shared memory ahead of time, and needs no other warp
// until the sums of all are added. One block per multiprocessor, with room for one of the next kernel, was slower: too few warps.
//
// A byte of codes is two weights. A table in shared memory holds the levels of all 256 pairs in bf16, once for each lane, so that there
// are no bank conflicts. Its entries are 256 bytes apart, so that one byte permutation makes an address. The other half of each entry holds
// x. W is the left operand of the tensor cores (16 rows), x the right one (8 rows). The sums of a block of inputs are multiplied by its
// scale in f32. All sums are added in the order of quantised_product.cu, so that a row's result does not depend on the number of rows.
#include <type_traits>

#include "cuda/product_sums.cuh"
#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

constexpr int kBlocks = 2;  // per multiprocessor
constexpr int kTile = 16;  // rows of W
constexpr int kTiles = 2;  // computed between two additions of the warps' sums; with a gate the gates' and the values' tile
constexpr int kMostTiles = 64;  // of a thread block
constexpr int kChunk = 64;  // inputs of one step: 16 for each of the four lanes that share a row
constexpr int kSpan = 4;  // chunks that a warp copies at once; the next warp's chunks lie between them
constexpr int kDepth = 2;  // copies under way
constexpr int kSpanBytes = kSpan * kChunk / 2, kSlot = kTile * kSpanBytes;
constexpr int kPairs = 256;
constexpr int kRun = 256;  // block maxima that share one maximum
constexpr int kEight = 8;  // most rows of x
constexpr int kPadded = kTile + 4;

/** Where a tile lies: `block` is the first block of its first row, counted within its part. */
struct Tile {
  const char* codes;
  const void* scales;
  const float* nested;
  int block;
  float offset;
};

/** What a byte of codes stands for, and beside it a chunk of a row of x. */
struct Entry {
  unsigned pairs[32];  // a copy for each lane
  uint4 x[8];
};

struct Shared {
  Entry table[kPairs];
  char slots[kWarps][kDepth][kSlot];
  float2 scales[kWarps][kSpan][kTile / 2];  // of rows r and r + 8
  float map[256];
  float partial[kWarps][kTiles][kEight][kPadded];
  float squares[kWarps][kEight];
  Tile tiles[kMostTiles];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/** The weights of one byte of codes; `lane` is the lane's place in an entry of the table, in bytes. */
template <int BYTE>
__device__ inline unsigned twoOf4(unsigned codes, const char* table, unsigned lane) {
  return *reinterpret_cast<const unsigned*>(table + __byte_perm(codes, lane, 0x5504u | BYTE << 4));
}

/** Two of the scales of a tile and span, before they are put together. */
struct HeldScales {
  unsigned code[kSpan / 2];
  float nested[kSpan / 2];
  float offset;
};
#endif

// A unit is a tile, or with a gate a tile of gates and one of the values that they gate. X_SHARED: x, times the norm's weights, stays in
// shared memory; otherwise it is read again for each two tiles.
template <bool X_SHARED, bool GATED, bool NORM>
__global__ void __launch_bounds__(kThreads, kBlocks) fourBitKernel(QuantisedProductArgs q) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const ProductArgs& a = q.product;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int inputs = static_cast<int>(a.inputs), outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows);
  const int chunks = inputs / kChunk, rounds = (chunks + kWarps * kSpan - 1) / (kWarps * kSpan);
  const int units = outputs / kTile, blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  const int begin = static_cast<int>(static_cast<int64_t>(units) * block / blocks);
  const int tiles = (static_cast<int>(static_cast<int64_t>(units) * (block + 1) / blocks) - begin) * (GATED ? 2 : 1);
  const int perScale = q.block / kChunk, scalesInRow = chunks / perScale;
  const bool nested = q.map != nullptr;

  if (static_cast<int>(threadIdx.x) < tiles) {
    const int i = threadIdx.x;
    int row = GATED ? i % 2 * outputs + (begin + i / 2) * kTile : (begin + i) * kTile, which = 0;
    while (which + 1 < q.parts && row >= q.part[which].rows) row -= q.part[which++].rows;  // all of a tile is in one part
    const QuantisedProductArgs::Part& from = q.part[which];
    shared.tiles[i] = {static_cast<const char*>(from.codes) + static_cast<int64_t>(row) * (inputs / 2), from.scales, from.nested,
                       row * scalesInRow, nested ? *from.offset : 0.0f};
  }
  __syncthreads();

  // —— what is copied when: the rounds of two tiles, in each round one tile after the other ——
  struct Place {
    int pair, round, tile;
  };
  const auto advance = [&](Place& at) {
    if (at.tile == 0 && at.pair + 1 < tiles) {
      at.tile = 1;
      return;
    }
    at.tile = 0;
    if (++at.round < rounds) return;
    at.round = 0;
    at.pair += 2;
  };
  const auto chunkAt = [&](int round, int c) { return (round * kSpan + c) * kWarps + warp; };

  // A chunk's place in a row of a slot depends on the row, so that lanes of four rows read from different banks.
  constexpr int kPieces = kSpanBytes / 16, kRowsAtOnce = 32 / kPieces;
  const int copyRow = lane / kPieces, piece = lane % kPieces;
  char* copyTo = &shared.slots[warp][0][0] + copyRow * kSpanBytes + ((piece / 2) ^ (copyRow % kSpan)) * 32 + piece % 2 * 16;
  const int copyFrom = copyRow * (inputs / 2) + chunkAt(0, piece / 2) * (kChunk / 2) + piece % 2 * 16;
  const auto ask = [&](const Place& at, int slot) {
    const int tile = at.pair + at.tile;
    if (tile < tiles) {
      if (chunkAt(at.round, piece / 2) < chunks) {
        const char* codes = shared.tiles[tile].codes + (copyFrom + at.round * (kWarps * kSpanBytes));
#pragma unroll
        for (int i = 0; i < kTile / kRowsAtOnce; i++)
          copyAsync<16>(copyTo + slot * kSlot + i * kRowsAtOnce * kSpanBytes, codes + i * (kRowsAtOnce / 2 * inputs));
      }
    }
    commitCopies();
  };
  // lane: row lane % 16 of the tile, chunks lane / 16 · kSpan/2 …
  const int scaleRow = lane % kTile, scaleChunk = lane / kTile * (kSpan / 2);
  const auto askScales = [&](const Place& at) {
    HeldScales held{};
    const int tile = at.pair + at.tile;
    if (tile >= tiles) return held;
    const Tile from = shared.tiles[tile];
    held.offset = from.offset;
    const int own = from.block + scaleRow * scalesInRow;
#pragma unroll
    for (int i = 0; i < kSpan / 2; i++) {
      const int chunk = chunkAt(at.round, scaleChunk + i);
      if (chunk >= chunks) continue;
      const int scale = own + (perScale == 1 ? chunk : chunk / perScale);
      if (nested) {
        held.code[i] = static_cast<const unsigned char*>(from.scales)[scale];
        held.nested[i] = from.nested[scale / kRun];
      } else {
        held.nested[i] = static_cast<const float*>(from.scales)[scale];
      }
    }
    return held;
  };

  Place asked{0, 0, 0}, at = asked;
#pragma unroll
  for (int i = 0; i < kDepth; i++) {
    ask(asked, i);
    advance(asked);
  }
  HeldScales scales = askScales(at);
  for (int low = warp; low < 16; low += kWarps) {
    const float second = q.levels[low];
#pragma unroll
    for (int high = 0; high < 16; high++) shared.table[high * 16 + low].pairs[lane] = pack<Number>(q.levels[high], second);
  }
  if (nested) shared.map[threadIdx.x] = q.map[threadIdx.x];
  const Number* norms = static_cast<const Number*>(a.norm) + part * 16;
  if constexpr (NORM)
    for (int chunk = warp + line * kWarps; chunk < chunks; chunk += 8 * kWarps)
      prefetch(norms + chunk * kChunk);
  __syncthreads();
  const char* table = reinterpret_cast<const char*>(shared.table);
  const unsigned own = lane * sizeof(unsigned);
  waitForPrevious();
  letNextBegin();

  float square = 0;
  // eight of x's numbers of row `line`, times the norm's weights
  const auto readX = [&](int chunk, int e, bool count) {
    if (line >= rows || chunk >= chunks) return uint4{};
    const int place = chunk * kChunk + e * 8;
    uint4 x = *reinterpret_cast<const uint4*>(static_cast<const Number*>(a.x) + line * inputs + part * 16 + place);
    if constexpr (NORM) {
      if (count) square += squaresOf(x);
      x = timesEach(x, *reinterpret_cast<const uint4*>(norms + place));
    }
    return x;
  };
  // The last entry's x is 0: what lanes without a row and chunks that do not exist read.
  Entry* zero = &shared.table[kPairs - 1];
  Entry* ownX = line < rows ? &shared.table[line * chunks] : zero;
  const int stepX = line < rows ? 1 : 0;
  const auto sharedX = [&](int chunk, int e) -> uint4& {
    return (chunk < chunks ? ownX + chunk * stepX : zero)->x[(e ^ (line % 2)) * 4 + part];
  };
  if constexpr (X_SHARED) {
    if (warp == 0 && lane < 8) zero->x[lane] = uint4{};
    for (int round = 0; round < rounds; round++)
#pragma unroll
      for (int c = 0; c < kSpan; c++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const int chunk = chunkAt(round, c);
          const uint4 x = readX(chunk, e, true);
          if (line < rows && chunk < chunks) sharedX(chunk, e) = x;
        }
    __syncthreads();
  }

  int slot = 0;
  for (int pair = 0; pair < tiles; pair += kTiles) {
    float sums[kTiles][4] = {};
    for (int round = 0; round < rounds; round++) {
      uint4 heldX[X_SHARED ? 1 : kSpan][2];
      if constexpr (!X_SHARED)
#pragma unroll
        for (int c = 0; c < kSpan; c++)
#pragma unroll
          for (int e = 0; e < 2; e++) heldX[c][e] = readX(chunkAt(round, c), e, pair == 0);
#pragma unroll
      for (int j = 0; j < kTiles; j++) {
        if (pair + j >= tiles) break;
        waitForCopies<kDepth - 1>();
#pragma unroll
        for (int i = 0; i < kSpan / 2; i++) {
          const float scale = nested ? fmaf(shared.map[scales.code[i]], scales.nested[i], scales.offset) : scales.nested[i];
          reinterpret_cast<float*>(&shared.scales[warp][scaleChunk + i][scaleRow % 8])[scaleRow / 8] =
              chunkAt(round, scaleChunk + i) < chunks ? scale : 0.0f;
        }
        __syncwarp();
        advance(at);
        scales = askScales(at);
        const char* codes = shared.slots[warp][slot] + line * kSpanBytes + part * 8;
        uint2 low[kSpan], high[kSpan];  // of rows `line` and `line` + 8
#pragma unroll
        for (int c = 0; c < kSpan; c++) {
          const char* from = codes + (c ^ (line % kSpan)) * 32;
          low[c] = *reinterpret_cast<const uint2*>(from), high[c] = *reinterpret_cast<const uint2*>(from + 8 * kSpanBytes);
        }
        __syncwarp();  // all lanes have read the slot
        ask(asked, slot);
        advance(asked);
        if (chunkAt(round, 0) < chunks) {
#pragma unroll
          for (int c = 0; c < kSpan; c++) {
            float block[4] = {};
#pragma unroll
            for (int e = 0; e < 2; e++) {
              const unsigned l = e == 0 ? low[c].x : low[c].y, h = e == 0 ? high[c].x : high[c].y;
              const unsigned w[8] = {twoOf4<0>(l, table, own), twoOf4<0>(h, table, own), twoOf4<1>(l, table, own), twoOf4<1>(h, table, own),
                                     twoOf4<2>(l, table, own), twoOf4<2>(h, table, own), twoOf4<3>(l, table, own), twoOf4<3>(h, table, own)};
              const uint4 x = X_SHARED ? sharedX(chunkAt(round, c), e) : heldX[X_SHARED ? 0 : c][e];
              multiply<Number>(block, w[0], w[1], w[2], w[3], x.x, x.y);
              multiply<Number>(block, w[4], w[5], w[6], w[7], x.z, x.w);
            }
            const float2 scale = shared.scales[warp][c][line];
#pragma unroll
            for (int i = 0; i < 4; i++) sums[j][i] = fmaf(block[i], i < 2 ? scale.x : scale.y, sums[j][i]);
          }
        }
        __syncwarp();  // all lanes have read the scales
        slot ^= 1;
      }
    }

    // —— add the warps' sums, always in the same order, and write ——
    const int unit = begin + (GATED ? pair / 2 : pair);
    const int width = (GATED ? 1 : min(kTiles, tiles - pair)) * kTile, count = width * rows;
    Number* y = static_cast<Number*>(a.y);
    const auto placeOf = [&](int i) { return static_cast<int64_t>(i / width) * outputs + unit * kTile + i % width; };
    float before = 0;
    if (a.add && static_cast<int>(threadIdx.x) < count) before = wide(y[placeOf(threadIdx.x)]);
    if (NORM && pair == 0) {
      float sum = square;
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      if (part == 0) shared.squares[warp][line] = sum;
    }
    __syncthreads();  // the last sums have been read
    if (part * 2 < rows)
#pragma unroll
      for (int j = 0; j < kTiles; j++) {
        float* to = &shared.partial[warp][j][part * 2][line];
        to[0] = sums[j][0], to[kPadded] = sums[j][1], to[8] = sums[j][2], to[kPadded + 8] = sums[j][3];
      }
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += kThreads) {
      const int row = i / width, column = i % width, target = unit * kTile + column;
      const auto sumOfWarps = [&](int tile) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; w++) sum += shared.partial[w][tile][row][column % kTile];
        return sum;
      };
      float scale = 1;
      if constexpr (NORM) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; w++) sum += shared.squares[w][row];
        scale = rsqrtf(sum / static_cast<float>(inputs) + a.eps);
      }
      const Number* bias = static_cast<const Number*>(a.bias);
      float value = sumOfWarps(GATED ? 0 : column / kTile) * scale + (bias == nullptr ? 0.0f : wide(bias[target]));
      if constexpr (GATED) {
        const float up = sumOfWarps(1) * scale + (bias == nullptr ? 0.0f : wide(bias[outputs + target]));
        const float gate = wide(narrow<Number>(value));
        value = gate / (1.0f + __expf(-gate)) * wide(narrow<Number>(up));
      }
      Number* to = y + placeOf(i);
      if (a.add) value += i == static_cast<int>(threadIdx.x) ? before : wide(*to);
      *to = narrow<Number>(value);
    }
  }
  waitForCopies<0>();
#endif
}

template <bool X_SHARED, bool GATED, bool NORM>
void launch(const QuantisedProductArgs& q, cudaStream_t stream) {
  const int64_t units = q.product.outputs / kTile, most = kMostTiles / (GATED ? 2 : 1), room = kBlocks * multiprocessorsOfDevice();
  const int64_t least = (units + most - 1) / most, wanted = units < room ? units : room;
  const dim3 grid(static_cast<unsigned>(least < wanted ? wanted : least));
  launchWithMemory(fourBitKernel<X_SHARED, GATED, NORM>, grid, kThreads, 1, sizeof(Shared), stream, q);
}

}  // namespace

bool fourBitProductFits(const QuantisedProductArgs& q) {
  for (int i = 0; i < q.parts; i++)
    if (q.part[i].rows % kTile != 0) return false;
  return q.product.rows <= kEight && q.product.outputs % kTile == 0;
}

void launchFourBitProduct(const QuantisedProductArgs& q, cudaStream_t stream) {
  const auto byForm = [&](auto shared) {
    if (q.product.gated) return launch<shared.value, true, true>(q, stream);
    return q.product.norm == nullptr ? launch<shared.value, false, false>(q, stream) : launch<shared.value, false, true>(q, stream);
  };
  if (q.product.rows * (q.product.inputs / kChunk) < kPairs) return byForm(std::true_type{});
  byForm(std::false_type{});
}

}  // namespace attune
