// The kernel of narrow_product.cu, which says what it is for.
#pragma once
#include "cuda/mma.cuh"
#include "cuda/packed/cells.cuh"
#include "cuda/packed/pack.h"
#include "cuda/wide/hopper.cuh"

namespace attune {
namespace narrowed {

using Number = __nv_bfloat16;
enum class Form { Plain, Gated, Add };
using Cell = packed::Cell<2>;  // 64 inputs of a unit's 16 rows of W, of gates and what they gate

constexpr int kChunk = 64;  // inputs: a line of W
constexpr int kUnit = 8;  // outputs
constexpr int kSplits = 2;  // blocks of a cluster, which split the inputs
constexpr int kGroup = 128;  // threads of a warpgroup
constexpr int kMostSlots = 32, kMostParts = 80;

struct NarrowArgs {
  const Number *bias, *nextNorm;
  const char* cells;  // W in 12 bits, and the powers of two of its rows (packed/pack.h); or null
  const float* powers;
  Number *y, *normed;
  const float* squaresOfX;
  float* squaresOfY;
  int rows, inputs, outputs;
  int partsOfX, partsOfY;  // multiples of 4
  float eps;
  int units, chunks;  // of a slot of W
  int wSlots, xSlots;
  int underWay;  // slots of W that may be asked for before the first of them has come
};

/** Warpgroups that take stages in turn. */
constexpr int groupsOf(int parts) { return parts > 1 ? 1 : 2; }
/** Warpgroups that multiply: of a packed matrix two that take a tile each. */
constexpr int multipliers(int parts, bool packed) { return packed ? 2 : groupsOf(parts); }
/** They, a warp that asks for W, and one that asks for x. */
constexpr int threadsOf(int parts, bool packed) { return kGroup * multipliers(parts, packed) + 64; }
/** Bytes that a block's first warpgroup gets from the other ones of both blocks: half of the sums of each. */
constexpr int bytesOfJoined(int parts, int tiles, int rows) { return parts * tiles * rows * kGroup * (2 * groupsOf(parts) - 1); }

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/** Eight rows of a chunk of x, whose pieces of 16 bytes lie swizzled, as mma.cuh has b. */
__device__ inline void loadColumns(unsigned (&columns)[8], const char* x, int lane) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    unsigned four[4];
    loadMatrices(four, x + lane % 8 * (kChunk * 2) + ((i * 4 + lane / 8) ^ lane % 8) * 16);
#pragma unroll
    for (int k = 0; k < 4; k++) columns[4 * i + k] = four[k];
  }
}
#endif

/**
 * A block has PARTS times a.units · 8 outputs (with a gate, twice as many rows of W), and a slot those of one part: TILES tiles of up to 64
 * rows of W. N: rows of x, a multiple of 8. The numbers come before the maps: a layer of 16 rows of 1.7B takes 36.2 µs in place of 36.7.
 * PACKED: W in 12 bits; each warp puts a cell of a slot together and multiplies it by itself. The bits are the same.
 */
template <int PARTS, int TILES, int N, Form FORM, bool PACKED>
__global__ void __launch_bounds__(threadsOf(PARTS, PACKED), 1)
    narrowKernel(const __grid_constant__ NarrowArgs a, const __grid_constant__ CUtensorMap wMap, const __grid_constant__ CUtensorMap xMap) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  static_assert(!PACKED || (FORM == Form::Gated && TILES == 2));
  constexpr int kGroups = groupsOf(PARTS), kMultipliers = multipliers(PARTS, PACKED), kPieces = N / 8, kLine = kChunk * 2,
                kXChunk = N * kLine;
  constexpr int kOwnTiles = PACKED ? 1 : TILES, kTiles = PARTS * kOwnTiles;  // that a warpgroup multiplies, of a part and in all
  constexpr int kWarpsOfSlot = PACKED ? 8 : 4;
  extern __shared__ __align__(1024) char memory[];
  __shared__ uint64_t fullW[kMostSlots], emptyW[kMostSlots], fullX[kMostSlots], emptyX[kMostSlots], arrived;
  __shared__ float ofRows[4][N];
  const int wRows = a.units * kUnit * (FORM == Form::Gated ? 2 : 1), wChunk = PACKED ? packedChunk(a.units) : wRows * kLine;
  const int wBytes = a.chunks * wChunk, xBytes = a.chunks * kXChunk;
  char *const ws = memory, *const xs = ws + a.wSlots * wBytes;
  float2* const joined = reinterpret_cast<float2*>(xs + a.xSlots * xBytes);  // sums from other warpgroups

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int inGroup = static_cast<int>(threadIdx.x) % kGroup;
  const int multiplier = __shfl_sync(0xFFFFFFFF, warp / 4, 0);  // the same in all lanes, as the compiler has to know
  const int group = PACKED ? 0 : multiplier;
  const int rank = static_cast<int>(blockIdx.x) % kSplits, cluster = static_cast<int>(blockIdx.x) / kSplits;
  const int firstUnit = cluster * a.units * PARTS, ofSplit = a.inputs / kChunk / kSplits, begin = rank * ofSplit;
  const int stages = ofSplit / a.chunks;

  if (threadIdx.x == kGroup * kMultipliers) {
    if (!PACKED) fetchMap(&wMap);
    fetchMap(&xMap);
    for (int i = 0; i < a.wSlots; i++) initBarrier(&fullW[i], 1), initBarrier(&emptyW[i], kWarpsOfSlot);
    for (int i = 0; i < a.xSlots; i++) initBarrier(&fullX[i], 1), initBarrier(&emptyX[i], kWarpsOfSlot);
    initBarrier(&arrived, 1);
    publishBarriers();
    expectBytes(&arrived, bytesOfJoined(PARTS, TILES, N));
  }
  letNextBegin();
  clusterArrive();
  __syncthreads();

  struct Place {
    int slot, slots;
    unsigned phase = 0;
    __device__ void advance(int by) {
      slot += by;
      if (slot >= slots) slot -= slots, phase ^= 1;
    }
  };

  // —— two warps copy: the first slots at once by as many lanes, then one for each that has come, where a place has been multiplied ——
  const auto copyAll = [&](int count, int slots, int underWay, uint64_t* full, uint64_t* empty, const auto& ask) {
    const int first = min(count, underWay);
    if (lane < first) ask(lane, lane);
    __syncwarp();
    clusterWait();
    if (lane > 0) return;
    Place come{0, slots}, next{0, slots, 1};  // a place that was never used has the phase before the first one behind it
    next.advance(first);
#pragma unroll 1
    for (int i = first; i < count; i++) {
      waitForPhase(&full[come.slot], come.phase);
      waitForPhase(&empty[next.slot], next.phase);
      ask(i, next.slot);
      come.advance(1), next.advance(1);
    }
  };
  if (warp == 4 * kMultipliers) {
    copyAll(stages * PARTS, a.wSlots, a.underWay, fullW, emptyW, [&](int i, int slot) {
      expectBytes(&fullW[slot], wBytes);
      const int chunk = begin + i / PARTS * a.chunks, unit = firstUnit + i % PARTS * a.units;
      if constexpr (PACKED)
        copyBulk(ws + slot * wBytes, a.cells + ((cluster * PARTS + i % PARTS) * (a.inputs / kChunk) + chunk) * static_cast<int64_t>(wChunk),
                 wBytes, &fullW[slot]);
      else if constexpr (FORM == Form::Gated)
        copyChunksOfTwo(ws + slot * wBytes, &wMap, unit, chunk, &fullW[slot]);
      else
        copyChunks(ws + slot * wBytes, &wMap, unit * kUnit, chunk, &fullW[slot]);
    });
    return;
  }
  if (warp > 4 * kMultipliers) {
    waitForPrevious();
    copyAll(stages, a.xSlots, a.xSlots, fullX, emptyX, [&](int stage, int slot) {
      expectBytes(&fullX[slot], xBytes);
      copyChunks(xs + slot * xBytes, &xMap, 0, begin + stage * a.chunks, &fullX[slot]);
    });
    return;
  }

  // Of tile t a thread of the first warpgroup finishes outputs `outputOf(t, 0)` and, without a gate, `outputOf(t, 1)`, and of each
  // piece j of the rows `rowOf(j)`.
  constexpr int kHalves = FORM == Form::Gated ? 1 : 2;
  const auto outputOf = [&](int t, int half) {
    const int wRow = (PACKED ? multiplier : t % TILES) * 64 + warp % 4 * 16 + half * 8;
    const int output = (firstUnit + t / kOwnTiles * a.units) * kUnit + (FORM == Form::Gated ? wRow / 2 : wRow) + line;
    return wRow < wRows && output < a.outputs ? output : -1;
  };
  const auto rowOf = [&](int j) { return j * 8 + part * 2 + rank; };
  constexpr int kKept = FORM == Form::Add ? kTiles : 1, kKeptPieces = FORM == Form::Add ? kPieces : 1;
  Number norms[kKept][2], before[kKept][2][kKeptPieces];
  float bias[kTiles][2], powers[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; t++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int at = outputOf(t, FORM == Form::Gated ? 0 : h);
      bias[t][h] = a.bias != nullptr && at >= 0 ? wide(a.bias[FORM == Form::Gated && h == 1 ? a.outputs + at : at]) : 0;
      if constexpr (PACKED) powers[t][h] = at >= 0 ? a.powers[h * a.outputs + at] : 0;
      if constexpr (FORM == Form::Add) norms[t][h] = a.normed != nullptr && at >= 0 ? a.nextNorm[at] : Number(0.0f);
    }
  clusterWait();
  waitForPrevious();
  if constexpr (FORM == Form::Add)
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int h = 0; h < 2; h++)
#pragma unroll
        for (int j = 0; j < kPieces; j++) {
          const bool isMine = group == 0 && outputOf(t, h) >= 0 && rowOf(j) < a.rows;
          before[t][h][j] = isMine ? a.y[rowOf(j) * a.outputs + outputOf(t, h)] : Number(0.0f);
        }
  // A row's Σ x² by four threads: asked for here and added after the products.
  constexpr int kLoads = FORM == Form::Add ? 1 : kMostParts / 16;
  float4 loaded[kLoads];
  if constexpr (FORM != Form::Add)
#pragma unroll
    for (int i = 0; i < kLoads; i++) {
      const int row = inGroup / 4, at = (i * 4 + inGroup % 4) * 4;
      const bool isThere = group == 0 && row < a.rows && at < a.partsOfX;
      loaded[i] = isThere ? __ldcg(reinterpret_cast<const float4*>(a.squaresOfX + row * a.partsOfX + at)) : float4{};
    }

  // —— warpgroups take stages in turn ——
  float sums[kTiles][N / 2];  // the first product sets them
  Place inW{0, a.wSlots}, inX{0, a.xSlots};
  if constexpr (PACKED) {
#pragma unroll
    for (auto& each : sums)
#pragma unroll
      for (float& sum : each) sum = 0;
#pragma unroll 1
    for (int stage = 0; stage < stages; stage++) {
      waitForPhase(&fullX[inX.slot], inX.phase);
      unsigned columns[kPieces][8];  // two registers for every 16 inputs
#pragma unroll
      for (int j = 0; j < kPieces; j++) loadColumns(columns[j], xs + inX.slot * xBytes + j * 8 * kLine, lane);
      __syncwarp();
      if (lane == 0) arriveAt(&emptyX[inX.slot]);
      inX.advance(1);
      // the cells of all parts side by side; the sums of cells that are not there are nobody's
      unsigned weights[PARTS][2][8];  // of rows `line` and `line + 8`
      packed::Strays strays[PARTS];
      unsigned anyStrays = 0;
      int slots[PARTS];
#pragma unroll
      for (int p = 0; p < PARTS; p++) {
        waitForPhase(&fullW[inW.slot], inW.phase);
        const char* const cell = ws + inW.slot * wBytes + warp * Cell::kBytes;
        strays[p] = packed::straysOf<2>(cell, lane);
        packed::unpackPiece<2>(cell, 0, lane, weights[p][0]);
        packed::unpackPiece<2>(cell, 1, lane, weights[p][1]);
        anyStrays |= strays[p].lanes;
        slots[p] = inW.slot;
        inW.advance(1);
      }
      __syncwarp();
      if (lane < PARTS) arriveAt(&emptyW[lane == 0 ? slots[0] : lane == 1 ? slots[1] : slots[PARTS - 1]]);
      if (anyStrays != 0 && warp < a.units)
#pragma unroll
        for (int p = 0; p < PARTS; p++)
          packed::placeStrays(strays[p], 0, lane, weights[p][0]), packed::placeStrays(strays[p], 1, lane, weights[p][1]);
#pragma unroll
      for (int s = 0; s < 4; s++)
#pragma unroll
        for (int p = 0; p < PARTS; p++)
#pragma unroll
          for (int j = 0; j < kPieces; j++)
            multiply<Number>(reinterpret_cast<float(&)[4]>(sums[p][4 * j]), weights[p][0][2 * s], weights[p][1][2 * s],
                             weights[p][0][2 * s + 1], weights[p][1][2 * s + 1], columns[j][2 * s], columns[j][2 * s + 1]);
    }
  } else {
    inW.advance(group * PARTS), inX.advance(group);
    int wBefore = 0, xBefore = 0;
#pragma unroll 1
    for (int stage = group; stage < stages; stage += kGroups) {
      waitForPhase(&fullX[inX.slot], inX.phase);
#pragma unroll
      for (int p = 0; p < PARTS; p++) {
        waitForPhase(&fullW[inW.slot], inW.phase);
        uint64_t w = describeRows(ws + inW.slot * wBytes), x = describeRows(xs + inX.slot * xBytes);
#pragma unroll 1
        for (int c = 0; c < a.chunks; c++, w += wChunk / 16, x += kXChunk / 16) {
          const bool isFirst = stage == group && c == 0;
          beginMultiplying();
#pragma unroll
          for (int s = 0; s < 4; s++)
#pragma unroll
            for (int t = 0; t < TILES; t++)
              multiplyGroup(sums[p * TILES + t], w + t * (64 * kLine / 16) + 2 * s, x + 2 * s, !isFirst || s > 0);
          commitMultiplying();
          waitForMultiplying<1>();
          if (c == 0 && stage + p > group && lane == 0) {  // the slot before is multiplied
            arriveAt(&emptyW[wBefore], rank);
            if (p == 0) arriveAt(&emptyX[xBefore], rank);
          }
          __syncwarp();
        }
        wBefore = inW.slot;
        inW.advance(p < PARTS - 1 ? 1 : 1 + (kGroups - 1) * PARTS);
      }
      xBefore = inX.slot;
      inX.advance(kGroups);
    }
    waitForMultiplying<0>();
  }

  // —— the blocks of a cluster finish every second row each: their first warpgroups, to which the others send their sums. A block may end
  // while what it has sent is under way: who gets it waits for it. ——
  constexpr int kSent = kTiles * kPieces * kGroup;  // pairs, of a warpgroup
  float2* const joinedHere = joined + (PACKED ? multiplier * kSent : 0);
  const auto pairOf = [&](int t, int j, int owner) {
    const float* d = sums[t] + 4 * j;
    return owner == 0 ? float2{d[0], d[2]} : float2{d[1], d[3]};
  };
  const auto send = [&](int owner, int place) {
    const unsigned to = addressOf(joinedHere + place * kSent + inGroup, owner), told = addressOf(&arrived, owner);
#pragma unroll
    for (int t = 0; t < kTiles; t++)
#pragma unroll
      for (int j = 0; j < kPieces; j++) storeAsync(to + (t * kPieces + j) * kGroup * 8, pairOf(t, j, owner), told);
  };
  send(rank ^ 1, kGroups - 1 + group);
  if (group > 0) {
    send(rank, group - 1);
    return;
  }
  float scales[kPieces];
  if constexpr (FORM != Form::Add) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kLoads; i++) sum += (loaded[i].x + loaded[i].y) + (loaded[i].z + loaded[i].w);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (inGroup % 4 == 0 && inGroup / 4 < N)
      ofRows[0][inGroup / 4] = a.partsOfX > 0 ? rsqrtf(sum / static_cast<float>(a.inputs) + a.eps) : 1.0f;
    syncThreads<1, kGroup*(PACKED ? 2 : 1)>();
#pragma unroll
    for (int j = 0; j < kPieces; j++) scales[j] = ofRows[0][rowOf(j)];
  }
  waitForStores(&arrived);
  float square[kPieces] = {};
#pragma unroll
  for (int t = 0; t < kTiles; t++)
#pragma unroll
    for (int j = 0; j < kPieces; j++) {
      // each block's warpgroups first: then it does not matter which block finishes the row
      const float2* const from = joinedHere + (t * kPieces + j) * kGroup + inGroup;
      float2 here = pairOf(t, j, rank), there = from[(kGroups - 1) * kSent];
#pragma unroll
      for (int g = 1; g < kGroups; g++) {
        const float2 one = from[(g - 1) * kSent], two = from[(kGroups - 1 + g) * kSent];
        here.x += one.x, here.y += one.y, there.x += two.x, there.y += two.y;
      }
      float own[2] = {here.x + there.x, here.y + there.y};
      if constexpr (PACKED) own[0] *= powers[t][0], own[1] *= powers[t][1];
      // rounded after each: otherwise the compiler rounds once in some kernels and twice in others
      const auto scaled = [&](int h) { return __fadd_rn(FORM == Form::Add ? own[h] : __fmul_rn(own[h], scales[j]), bias[t][h]); };
      const int row = rowOf(j);
#pragma unroll
      for (int h = 0; h < kHalves; h++) {
        const int output = outputOf(t, h);
        Number value;
        if constexpr (FORM == Form::Add) {
          value = narrow<Number>(wide(before[t][h][j]) + scaled(h));
        } else if constexpr (FORM == Form::Plain) {
          value = narrow<Number>(scaled(h));
        } else {
          const float gate = wide(narrow<Number>(scaled(0)));
          value = narrow<Number>(__fdividef(gate, 1.0f + __expf(-gate)) * wide(narrow<Number>(scaled(1))));
        }
        if (row >= a.rows || output < 0) continue;
        a.y[row * a.outputs + output] = value;
        if constexpr (FORM == Form::Add) {
          if (a.normed != nullptr) a.normed[row * a.outputs + output] = __hmul(value, norms[t][h]);
          square[j] += wide(value) * wide(value);
        }
      }
    }
  if constexpr (FORM == Form::Add) {
    if (a.normed == nullptr) return;
#pragma unroll
    for (int j = 0; j < kPieces; j++) {
#pragma unroll
      for (int by = 4; by < 32; by *= 2) square[j] += __shfl_xor_sync(0xFFFFFFFF, square[j], by);
      if (line == 0) ofRows[warp][rowOf(j)] = square[j];
    }
    syncThreads<1, kGroup>();
    const int row = inGroup * 2 + rank, clusters = static_cast<int>(gridDim.x) / kSplits;
    if (row >= a.rows) return;
    float* const to = a.squaresOfY + row * a.partsOfY;
    to[cluster] = (ofRows[0][row] + ofRows[1][row]) + (ofRows[2][row] + ofRows[3][row]);
    if (cluster == 0)
      for (int i = clusters; i < a.partsOfY; i++) to[i] = 0;
  }
#endif
}

}  // namespace narrowed
}  // namespace attune
