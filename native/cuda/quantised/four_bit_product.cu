// The product of quantised_product.cu with a 4-bit matrix for one to eight rows of x.
//
// One thread block per multiprocessor computes a share of the outputs, 16 rows of W (a tile) at a time. It has two groups of eight warps;
// each group computes a tile, and each of its warps an eighth of the inputs. A warp waits for no other one until all tiles are computed, or
// as many as there is room for: their scales are decoded before, the warps' sums are added after. A multiprocessor has few requests in
// flight, so copies take whole lines of 128 bytes.
//
// A byte of codes is two weights. A table in shared memory holds the levels of all 256 pairs in bf16, once for each lane, so that there are
// no bank conflicts. Its entries are 256 bytes apart, so that one byte permutation makes an address. Codes are copied to the other half of
// each entry. W is the left operand of the tensor cores (16 rows), x the right one (8 rows). The sums of a block of inputs are multiplied
// by its scale in f32. All sums are added in the order of quantised_product.cu, so that a row's result does not depend on the number of
// rows.
#include <algorithm>
#include <type_traits>

#include "cuda/quantised/four_bit_memory.cuh"
#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

constexpr int kAtOnce = 4;  // loads of scales or of x that a thread has under way at the same time

/** How the work is dealt. */
struct Dealing {
  int share, more;  // tiles of a block, with a gate pairs of them; the first `more` blocks have one more
  int pass;  // tiles between two additions of the warps' sums
  int scalesInRow;
};

// HELD: x, times the norm's weights, stays in shared memory; otherwise it is read again for each tile.
template <bool HELD, bool GATED, bool NORM>
__global__ void __launch_bounds__(kBlockThreads, 1) fourBitKernel(QuantisedProductArgs q, Dealing dealing) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  const ProductArgs& a = q.product;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32 % kWarps, group = thread / kThreads;
  const int line = lane / 4, part = lane % 4, block = static_cast<int>(blockIdx.x);
  const int inputs = static_cast<int>(a.inputs), outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows);
  const int chunks = inputs / kChunk, rowBytes = inputs / 2, perScale = q.block / kChunk, scalesInRow = dealing.scalesInRow;
  const int begin = block * dealing.share + min(block, dealing.more), share = dealing.share + (block < dealing.more ? 1 : 0);
  const int tiles = GATED ? 2 * share : share, pass = dealing.pass;
  const bool nested = q.map != nullptr;
  const Room room(a, HELD);
  float* const heldX = reinterpret_cast<float*>(memory + sizeof(Shared));
  float* const squares = heldX + room.x;
  float* const allScales = squares + room.squares;
  float* const allSums = allScales + pass * room.scales;

  if (thread < tiles) {
    int row = GATED ? thread % 2 * outputs + (begin + thread / 2) * kTile : (begin + thread) * kTile, which = 0;
    while (which + 1 < q.parts && row >= q.part[which].rows) row -= q.part[which++].rows;  // all of a tile is in one part
    const QuantisedProductArgs::Part& from = q.part[which];
    shared.tiles[thread] = {static_cast<const char*>(from.codes) + static_cast<int64_t>(row) * rowBytes, from.scales, from.nested,
                            from.offset, row * scalesInRow};
  }
  __syncthreads();

  // —— scales of the tiles of a pass: four neighbours at a time where that is possible ——
  const int each = scalesInRow % 4 == 0 ? 4 : 1, inRow4 = scalesInRow / each, inTile = kTile * inRow4;
  const auto askScales = [&](int from, int i) {
    const int tile = from + i / inTile, at = i % inTile * each;
    if (!nested || tile >= min(from + pass, tiles)) return HeldScales{};
    const Tile& of = shared.tiles[tile];
    const auto* bytes = static_cast<const unsigned char*>(of.scales) + of.block + at;
    return HeldScales{each == 4 ? *reinterpret_cast<const unsigned*>(bytes) : *bytes, of.nested[(of.block + at) / kRun], *of.offset};
  };
  const auto putScales = [&](int from, int i, const HeldScales& held) {
    const int tile = from + i / inTile, inside = i % inTile, row = inside / inRow4, at = inside % inRow4 * each;
    if (tile >= min(from + pass, tiles)) return;
    const Tile& of = shared.tiles[tile];
    const float* plain = static_cast<const float*>(of.scales) + of.block + inside * each;
    const auto scaleOf = [&](int k) { return nested ? fmaf(shared.map[held.codes >> 8 * k & 255], held.nested, held.offset) : plain[k]; };
    float* const to = allScales + (tile - from) * room.scales + row * room.stride;
    if (each == 4 && perScale == 1) {
      *reinterpret_cast<float4*>(to + at) = {scaleOf(0), scaleOf(1), scaleOf(2), scaleOf(3)};
      return;
    }
#pragma unroll 1
    for (int k = 0; k < each * perScale; k++) to[at * perScale + k] = scaleOf(k / perScale);
  };
  HeldScales held[kAtOnce];
#pragma unroll
  for (int k = 0; k < kAtOnce; k++) held[k] = askScales(0, thread + k * kBlockThreads);

  // —— codes: of the warp's chunks, span after span, then of its next tile ——
  const int first = chunks * warp / kWarps, own = chunks * (warp + 1) / kWarps - first;
  const int spans = ((chunks + kWarps - 1) / kWarps + kSpan - 1) / kSpan;
  // A chunk's place in a row depends on the row, so that lanes of four rows read from different banks.
  constexpr int kPieces = kSpanBytes / 16, kRowsAtOnce = 32 / kPieces;
  const int copyRow = lane / kPieces, piece = lane % kPieces;
  Entry* const slot = &shared.table[thread / 32 * kTile];
  char* const copyTo = slot[copyRow].codes + ((piece / 2) ^ (copyRow % kSpan)) * kChunkBytes + piece % 2 * 16;
  const int copyFrom = copyRow * rowBytes + (first + piece / 2) * kChunkBytes + piece % 2 * 16;
  const auto ask = [&](int tile, int span) {
    if (tile < tiles && span * kSpan + piece / 2 < own) {
      const char* from = shared.tiles[tile].codes + (copyFrom + span * kSpanBytes);
#pragma unroll
      for (int i = 0; i < kTile / kRowsAtOnce; i++)
        copyAsync<16>(copyTo + i * kRowsAtOnce * sizeof(Entry), from + i * kRowsAtOnce * rowBytes);
    }
    commitCopies();
  };
  const float ofMap = nested && thread < 256 ? q.map[thread] : 0.0f;
  unsigned pairs[kPairs * 8 / kBlockThreads];
#pragma unroll
  for (int i = 0; i < kPairs * 8 / kBlockThreads; i++) {
    const int at = i * kBlockThreads + thread;
    pairs[i] = pack<Number>(q.levels[at / 128], q.levels[at / 8 % 16]);
  }
  ask(group, 0);
  if (nested && thread < 256) shared.map[thread] = ofMap;
#pragma unroll
  for (int i = 0; i < kPairs * 8 / kBlockThreads; i++) {
    const int at = i * kBlockThreads + thread;
    reinterpret_cast<uint4*>(shared.table[at / 8].pairs)[at % 8] = {pairs[i], pairs[i], pairs[i], pairs[i]};
  }
  const uint4* const norms = static_cast<const uint4*>(a.norm);
  if (NORM && thread < chunks) prefetch(norms + thread * 8);
  __syncthreads();
  const auto decodeScales = [&](int from) {
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) putScales(from, thread + k * kBlockThreads, held[k]);
    for (int i = thread + kAtOnce * kBlockThreads; i < pass * inTile; i += kBlockThreads) putScales(from, i, askScales(from, i));
  };
  decodeScales(0);
  waitForPrevious();
  letNextBegin();

  // —— x, times the norm's weights: what lane (line, part) needs of a chunk are two pieces of eight ——
  const int inRow = inputs / 8;
  uint4* const pieces = reinterpret_cast<uint4*>(heldX);  // [rows, chunks, 8]
  if constexpr (HELD) {
    const int all = rows * inRow;
    for (int from = thread; from < all; from += kAtOnce * kBlockThreads) {
      uint4 x[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; k++)
        if (from + k * kBlockThreads < all) x[k] = static_cast<const uint4*>(a.x)[from + k * kBlockThreads];
#pragma unroll
      for (int k = 0; k < kAtOnce; k++) {
        const int at = from + k * kBlockThreads, row = at / inRow, i = at % inRow;
        if (at >= all) break;
        if constexpr (NORM) {
          squares[at] = squaresOf<Number>(x[k]);
          x[k] = timesEach(x[k], norms[i]);
        }
        pieces[row * inRow + i / 8 * 8 + (i % 2 ^ row % 2) * 4 + i % 8 / 2] = x[k];  // lanes of two rows read from different banks
      }
    }
  }
  __syncthreads();
  const uint4* const globalX = static_cast<const uint4*>(a.x) + line * inRow;
  if (NORM && group == kGroups - 1) {
    float sum = 0;
    if (line < rows)
      for (int i = 2 * first; i < 2 * (first + own); i++) {
        const int at = i / 2 * 8 + part * 2 + i % 2;
        sum += HELD ? squares[line * inRow + at] : squaresOf<Number>(globalX[at]);
      }
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (part == 0) shared.squares[warp][line] = sum;
  }
  const uint4* const ownX = pieces + ((line < rows ? line : 0) * chunks + first) * 8 + part;
  const auto readX = [&](int i, int e) {
    if (line >= rows) return uint4{};
    if constexpr (HELD) return ownX[i * 8 + (e ^ line % 2) * 4];
    const int at = (first + i) * 8 + part * 2 + e;
    return NORM ? timesEach(globalX[at], norms[at]) : globalX[at];
  };

  const char* const table = reinterpret_cast<const char*>(shared.table);
  const unsigned ownCopy = lane * sizeof(unsigned);
  int tile = group;
#pragma unroll 1
  for (int from = 0; from < tiles; from += pass) {
    const int to = min(from + pass, tiles);
    if (from > 0) {
#pragma unroll
      for (int k = 0; k < kAtOnce; k++) held[k] = askScales(from, thread + k * kBlockThreads);
      decodeScales(from);
      __syncthreads();
    }
#pragma unroll 1
    for (; tile < to; tile += kGroups) {
      float sums[4] = {};
      const float* const ownScales = allScales + (tile - from) * room.scales + line * room.stride + first;
#pragma unroll 1
      for (int span = 0; span < spans; span++) {
        waitForCopies<0>();
        __syncwarp();
        uint2 low[kSpan], high[kSpan];  // of rows `line` and `line` + 8
#pragma unroll
        for (int c = 0; c < kSpan; c++) {
          const int at = (c ^ line % kSpan) * kChunkBytes + part * 8;
          low[c] = *reinterpret_cast<const uint2*>(slot[line].codes + at);
          high[c] = *reinterpret_cast<const uint2*>(slot[line + 8].codes + at);
        }
        __syncwarp();  // all lanes have read the codes
        const bool isLast = span + 1 == spans;
        ask(isLast ? tile + kGroups : tile, isLast ? 0 : span + 1);
        const auto compute = [&](const uint2& l, const uint2& h, int i) {
          float sum[4] = {};
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const unsigned one = e == 0 ? l.x : l.y, other = e == 0 ? h.x : h.y;
            const unsigned w[8] = {twoOf4<0>(one, table, ownCopy), twoOf4<0>(other, table, ownCopy), twoOf4<1>(one, table, ownCopy),
                                   twoOf4<1>(other, table, ownCopy), twoOf4<2>(one, table, ownCopy), twoOf4<2>(other, table, ownCopy),
                                   twoOf4<3>(one, table, ownCopy), twoOf4<3>(other, table, ownCopy)};
            const uint4 x = readX(i, e);
            multiply<Number>(sum, w[0], w[1], w[2], w[3], x.x, x.y);
            multiply<Number>(sum, w[4], w[5], w[6], w[7], x.z, x.w);
          }
          const float lowScale = ownScales[i], highScale = ownScales[i + 8 * room.stride];
#pragma unroll
          for (int k = 0; k < 4; k++) sums[k] = fmaf(sum[k], k < 2 ? lowScale : highScale, sums[k]);
        };
        const int left = own - span * kSpan;
        if (left >= kSpan) {
#pragma unroll
          for (int c = 0; c < kSpan; c++) compute(low[c], high[c], span * kSpan + c);
        } else {
#pragma unroll 1
          for (int c = 0; c < left; c++) {
            compute(low[0], high[0], span * kSpan + c);
            low[0] = low[1], low[1] = low[2], high[0] = high[1], high[1] = high[2];
          }
        }
      }
#pragma unroll
      for (int k = 0; k < 2; k++)
        if (part * 2 + k < rows) {
          float* at = allSums + (tile - from) * room.partial + (warp * rows + part * 2 + k) * kPadded + line;
          at[0] = sums[k], at[8] = sums[k + 2];
        }
    }
    __syncthreads();

    // —— add the warps' sums, always in the same order, and write ——
    const int columns = (to - from) * kTile / (GATED ? 2 : 1), target0 = (begin + from / (GATED ? 2 : 1)) * kTile;
    for (int i = thread; i < rows * columns; i += kBlockThreads) {
      const int row = i / columns, column = i % columns, target = target0 + column;
      const auto sumOfWarps = [&](int of) {
        const float* sums = allSums + of * room.partial + row * kPadded + column % kTile;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; w++) sum += sums[w * rows * kPadded];
        return sum;
      };
      float scale = 1;
      if constexpr (NORM) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; w++) sum += shared.squares[w][row];
        scale = rsqrtf(sum / static_cast<float>(inputs) + a.eps);
      }
      float value = scaledSum<Number>(sumOfWarps(column / kTile * (GATED ? 2 : 1)), scale, a.bias, target);
      if constexpr (GATED) {
        const float up = scaledSum<Number>(sumOfWarps(column / kTile * 2 + 1), scale, a.bias, outputs + target);
        value = gatedValue<Number>(value, up);
      }
      Number* y = static_cast<Number*>(a.y) + static_cast<int64_t>(row) * outputs + target;
      *y = narrow<Number>(a.add ? wide(*y) + value : value);
    }
  }
#endif
}

/** As many blocks as multiprocessors, where there are tiles enough and not too many. */
int blocksOf(const QuantisedProductArgs& q) {
  const int units = static_cast<int>(q.product.outputs) / kTile, most = kMostTiles / (q.product.gated ? 2 : 1);
  return std::max((units + most - 1) / most, std::min(units, multiprocessorsOfDevice()));
}

/** Tiles of a thread block, at most. */
int tilesOf(const QuantisedProductArgs& q) {
  const int units = static_cast<int>(q.product.outputs) / kTile, blocks = blocksOf(q);
  return (units + blocks - 1) / blocks * (q.product.gated ? 2 : 1);
}

/** For how many of them there is room at a time; 0 for none. */
int passOf(const QuantisedProductArgs& q, bool held) {
  const Room room(q.product, held);
  const int tiles = tilesOf(q), most = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  int pass = tiles;
  while (pass > 0 && room.bytes(pass) > most) pass -= q.product.gated ? 2 : 1;
  return pass;
}

template <bool HELD, bool GATED, bool NORM>
void launch(const QuantisedProductArgs& q, cudaStream_t stream) {
  const int units = static_cast<int>(q.product.outputs) / kTile, blocks = blocksOf(q), pass = passOf(q, HELD);
  const Dealing dealing{units / blocks, units % blocks, pass, static_cast<int>(q.product.inputs) / q.block};
  launchWithMemory(fourBitKernel<HELD, GATED, NORM>, dim3(static_cast<unsigned>(blocks)), kBlockThreads, 1,
                   Room(q.product, HELD).bytes(pass), stream, q, dealing);
}

}  // namespace

bool fourBitProductFits(const QuantisedProductArgs& q) {
  for (int i = 0; i < q.parts; i++)
    if (q.part[i].rows % kTile != 0) return false;
  return q.product.rows <= kEight && q.product.outputs % kTile == 0 && passOf(q, false) > 0;
}

void launchFourBitProduct(const QuantisedProductArgs& q, cudaStream_t stream) {
  const auto byForm = [&](auto held) {
    if (q.product.gated) return launch<held.value, true, true>(q, stream);
    return q.product.norm == nullptr ? launch<held.value, false, false>(q, stream) : launch<held.value, false, true>(q, stream);
  };
  if (passOf(q, true) >= std::min(kGroups, tilesOf(q))) return byForm(std::true_type{});
  byForm(std::false_type{});
}

}  // namespace attune
