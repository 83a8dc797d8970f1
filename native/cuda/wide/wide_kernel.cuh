// The kernel of wide_product.cu, which says what it is for.
#pragma once
#include "cuda/mma.cuh"
#include "cuda/wide/hopper.cuh"

namespace attune {

using Number = __nv_bfloat16;
constexpr int kChunk = 64;
constexpr int kFetched = 2;  // chunks that are brought into the L2 cache for each block of the next product

enum class Form { Plain, Gated, Add };

struct WideArgs {
  const Number *bias, *nextNorm;
  Number *y, *normed;
  const float* squaresOfX;
  float* squaresOfY;
  int rows, inputs, outputs, partsOfX;
  float eps;
  bool streams;  // W leaves the L2 cache first
};

/** How the product that follows deals W to its blocks; no blocks: none follows. */
struct NextWeights {
  int blocks, cluster, sharers, sets, tileRows, share;  // share: chunks of a split
};

/** W_SLOTS and X_SLOTS: chunks of W and x that are there or under way; WHOLE: all of a block's chunks have a slot of their own. */
template <int ROWS, int COLUMNS, int SPLITS, int SHARERS, int W_SLOTS, int X_SLOTS, Form FORM, bool WHOLE>
struct Sizes {
  static constexpr int kRowWarps = ROWS / 16;  // those that hold rows of x
  static constexpr int kWarps = kRowWarps < 4 ? 4 : kRowWarps;  // those that multiply: whole warpgroups
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kAll = kThreads + 64;  // and a warp that asks for W and one that asks for x
  static constexpr int kCluster = SPLITS * SHARERS, kOwn = FORM == Form::Gated ? COLUMNS / 2 : COLUMNS;  // kOwn: columns of y
  static constexpr int kW = COLUMNS * kChunk * 2, kX = ROWS * kChunk * 2;  // bytes of a chunk
  // Chunks of W that may be under way, some 64 KB: behind more of it x comes late. Of a whole block's, only all.
  static constexpr int kFewUnderWay = kW > 32 << 10 ? 2 : (64 << 10) / kW;
  static constexpr int kUnderWay = WHOLE || kFewUnderWay > W_SLOTS ? W_SLOTS : kFewUnderWay;
  static constexpr int kRows = ROWS / SPLITS;  // that one block finishes: those of kMine warps, or half of one's
  static_assert(kRows >= 8);
  static constexpr int kMine = kRows < 16 ? 1 : kRows / 16, kOfWarp = kRows < 16 ? 2 : 1;  // kOfWarp: blocks that finish a warp's rows
  using Sums = std::conditional_t<kOfWarp == 2, float2, float4>;  // of a lane, for every eight columns
  static constexpr int kJoined = (SPLITS - 1) * kMine * COLUMNS / 8 * 32;
  static constexpr int kTurns = kThreads / kRows;  // threads that share the sum of squares of a row
  static constexpr int kBarriers = 2 * (W_SLOTS + X_SLOTS) + 2;
  static constexpr int kBytes =
      W_SLOTS * kW + X_SLOTS * kX + kJoined * static_cast<int>(sizeof(Sums)) + kThreads * 4 + kBarriers * 8;  // of shared memory
  static constexpr int kPitch = COLUMNS + (40 - COLUMNS % 32) % 32;  // of finished sums: rows begin 8 banks apart
  static constexpr int kFinished = kRows * kPitch * 4,
                       kOwnSums = SPLITS == 1 ? 0 : kMine * COLUMNS / 8 * 32 * static_cast<int>(sizeof(Sums));  // bytes
  static_assert(kFinished % 16 == 0 && kFinished + kOwnSums <= W_SLOTS * kW + X_SLOTS * kX);
  static constexpr int kRoundedPitch = COLUMNS + 8;  // of finished gates and up in bf16: rows begin 4, 12, 20 or 28 banks apart
};

template <int ROWS, int COLUMNS, int SPLITS, int SHARERS, int W_SLOTS, int X_SLOTS, Form FORM, bool WHOLE>
__global__ void __launch_bounds__(Sizes<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM, WHOLE>::kAll, 1)
    wideKernel(const __grid_constant__ CUtensorMap xMap, const __grid_constant__ CUtensorMap wMap,
               const __grid_constant__ CUtensorMap nextMap, const NextWeights next, const WideArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Of = Sizes<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM, WHOLE>;
  using Sums = typename Of::Sums;
  constexpr int kOwn = Of::kOwn, kMine = Of::kMine, kPieces = COLUMNS / 8, kWarps = Of::kWarps, kThreads = Of::kThreads;
  extern __shared__ __align__(1024) char memory[];
  // Of 32 rows a warpgroup multiplies 64: what lies behind x's chunk, too. Those sums are not used.
  char *const xs = memory, *const ws = xs + X_SLOTS * Of::kX;
  Sums* const joined = reinterpret_cast<Sums*>(ws + W_SLOTS * Of::kW);  // sums from the other blocks
  float* const squares = reinterpret_cast<float*>(joined + Of::kJoined);  // of the rows that this block finishes
  uint64_t *const fullW = reinterpret_cast<uint64_t*>(squares + kThreads), *const emptyW = fullW + W_SLOTS;
  uint64_t *const fullX = emptyW + W_SLOTS, *const emptyX = fullX + X_SLOTS, *const arrived = emptyX + X_SLOTS;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % Of::kCluster, split = rank / SHARERS, sharer = rank % SHARERS;
  const int group = static_cast<int>(blockIdx.x) / Of::kCluster, sets = (a.rows + ROWS - 1) / ROWS;
  const int tile = group / sets * SHARERS + sharer, firstRow = group % sets * ROWS, firstColumn = tile * kOwn;
  const int chunks = (a.inputs + kChunk - 1) / kChunk, share = (chunks + SPLITS - 1) / SPLITS, begin = split * share;
  const int count = min(share, chunks - begin);  // of this block

  if (threadIdx.x == kThreads) {
    fetchMap(&wMap), fetchMap(&xMap);
    for (int i = 0; i < W_SLOTS; i++) initBarrier(&fullW[i], 1);
    initBarrier(arrived, 1);
    if constexpr (!WHOLE) {
      for (int i = 0; i < W_SLOTS; i++) initBarrier(&emptyW[i], kWarps);
      for (int i = 0; i < X_SLOTS; i++) initBarrier(&fullX[i], 1), initBarrier(&emptyX[i], kWarps * SHARERS);
    }
    publishBarriers();
    if constexpr (SPLITS > 1) expectBytes(arrived, Of::kJoined * static_cast<int>(sizeof(Sums)));
  }
  letNextBegin();
  if constexpr (Of::kCluster > 1) clusterArrive();
  __syncthreads();

  // Two warps copy: asking for a tile takes a thread 0.1 µs, and x need not wait until all of W has been asked for.
  if (warp == kWarps) {
    const auto askForWeights = [&](int chunk, int slot) {
      expectBytes(&fullW[slot], WHOLE ? Of::kW + Of::kX : Of::kW);
      if (a.streams)
        streamTile(ws + slot * Of::kW, &wMap, (begin + chunk) * kChunk, firstColumn, &fullW[slot]);
      else
        copyTile(ws + slot * Of::kW, &wMap, (begin + chunk) * kChunk, firstColumn, &fullW[slot]);
    };
    if (lane < min(count, Of::kUnderWay)) askForWeights(lane, lane);
    __syncwarp();
    if constexpr (Of::kCluster > 1) clusterWait();
    if (lane == 0)
      for (int i = Of::kUnderWay; i < count; i++) {
        const int slot = i % W_SLOTS, come = i - Of::kUnderWay;
        if (Of::kUnderWay < W_SLOTS) waitForPhase(&fullW[come % W_SLOTS], come / W_SLOTS & 1);
        if (i >= W_SLOTS) waitForPhase(&emptyW[slot], (i / W_SLOTS - 1) & 1);
        askForWeights(i, slot);
      }
    __syncwarp();
    // Memory has little to do until the next product's blocks ask for W: what they ask for first comes into the L2 cache.
    for (int block = static_cast<int>(blockIdx.x); block < next.blocks; block += static_cast<int>(gridDim.x)) {
      const int place = block % next.cluster, columns = block / next.cluster;
      if (columns % next.sets > 0) continue;  // another block has the same columns, for other rows
      const int row = (columns / next.sets * next.sharers + place % next.sharers) * next.tileRows;
      if (lane < kFetched) fetchTile(&nextMap, (place / next.sharers * next.share + lane) * kChunk, row);
    }
    return;
  }
  if (warp > kWarps) {
    const auto askForRows = [&](int chunk, int slot) {
      uint64_t* const told = WHOLE ? &fullW[slot] : &fullX[slot];
      if constexpr (!WHOLE) expectBytes(told, Of::kX);
      char* const to = xs + slot * Of::kX + sharer * (Of::kX / SHARERS);
      const int column = (begin + chunk) * kChunk, row = firstRow + sharer * (ROWS / SHARERS);
      if constexpr (SHARERS == 1)
        copyTile(to, &xMap, column, row, told);
      else
        copyTileTo(((1 << SHARERS) - 1) << (split * SHARERS), to, &xMap, column, row, told);
    };
    if constexpr (Of::kCluster > 1) clusterWait();  // all its blocks have barriers now
    waitForPrevious();
    if (lane < min(count, X_SLOTS)) askForRows(lane, lane);
    __syncwarp();
    if (lane > 0) return;
    for (int i = X_SLOTS; i < count; i++) {
      const int slot = i % X_SLOTS;
      waitForPhase(&emptyX[slot], (i / X_SLOTS - 1) & 1);
      askForRows(i, slot);
    }
    return;
  }
  const int rowOfFirst = firstRow + split * Of::kRows;

  // of the outputs that this thread writes, four neighbours of a row at a time: the next norm's weights, and what y holds
  constexpr int kFours = kOwn / 4, kWrites = (Of::kRows * kFours + kThreads - 1) / kThreads, kKept = FORM == Form::Add ? kWrites : 1;
  const auto outputOf = [&](int i) {
    const int row = rowOfFirst + i / kFours, column = firstColumn + i % kFours * 4;
    return i < Of::kRows * kFours && row < a.rows && column < a.outputs ? row * a.outputs + column : -1;
  };
  uint2 norms[kKept], before[kKept];
  if constexpr (FORM == Form::Add)
#pragma unroll
    for (int e = 0; e < kWrites; e++) {
      const int i = threadIdx.x + e * kThreads, column = firstColumn + i % kFours * 4;
      norms[e] = a.normed != nullptr && outputOf(i) >= 0 ? *reinterpret_cast<const uint2*>(a.nextNorm + column) : uint2{};
    }
  if constexpr (Of::kCluster > 1) clusterWait();
  waitForPrevious();
  if constexpr (FORM == Form::Add)
#pragma unroll
    for (int e = 0; e < kWrites; e++) {
      const int at = outputOf(threadIdx.x + e * kThreads);
      before[e] = at >= 0 ? *reinterpret_cast<const uint2*>(a.y + at) : uint2{};
    }

  // Their rows' Σ x², the parts of a row by several threads. They are asked for here and added after the products, which need not wait.
  constexpr int kMostLoaded = 32, kLoads = FORM == Form::Add ? 1 : kMostLoaded / Of::kTurns;
  float loaded[kLoads], further = 0;
  if constexpr (FORM != Form::Add) {
    const int row = rowOfFirst + threadIdx.x % Of::kRows, turn = threadIdx.x / Of::kRows, parts = row < a.rows ? a.partsOfX : 0;
    const auto squaresOf = [&](int part) { return __ldcg(a.squaresOfX + part * a.rows + row); };
#pragma unroll
    for (int i = 0; i < kLoads; i++) loaded[i] = turn + i * Of::kTurns < parts ? squaresOf(turn + i * Of::kTurns) : 0;
#pragma unroll 1
    for (int part = kMostLoaded + turn; part < parts; part += Of::kTurns) further += squaresOf(part);
  }

  float sums[COLUMNS / 2];  // the first product sets them: zeros before it would keep products from overlapping
  const int ofGroup = __shfl_sync(0xFFFFFFFF, warp / 4, 0) * (64 * kChunk * 2);  // the same in all lanes, as the compiler has to know
  const auto multiplyChunk = [&](int chunk, uint64_t x, uint64_t w) {
    beginMultiplying();
#pragma unroll
    for (int s = 0; s < 4; s++) multiplyGroup(sums, x + 2 * s, w + 2 * s, chunk + s > 0);
    commitMultiplying();
  };
  if constexpr (WHOLE) {
    uint64_t w = describeRows(ws), x = describeRows(xs + ofGroup);
#pragma unroll 1
    for (int chunk = 0; chunk < count; chunk++, w += Of::kW / 16, x += Of::kX / 16) {
      waitForPhase(&fullW[chunk], 0);
      multiplyChunk(chunk, x, w);
    }
  } else {
    struct Place {
      int slot = 0;
      unsigned phase = 0;
    } inW, inX;
    const auto next = [](Place& place, int slots) {
      if (++place.slot == slots) place = {0, place.phase ^ 1};
    };
    int wBefore = 0, xBefore = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < count; chunk++) {
      waitForPhase(&fullW[inW.slot], inW.phase);
      waitForPhase(&fullX[inX.slot], inX.phase);
      multiplyChunk(chunk, describeRows(xs + inX.slot * Of::kX + ofGroup), describeRows(ws + inW.slot * Of::kW));
      waitForMultiplying<1>();
      if (chunk > 0) {  // the chunk before is multiplied
        __syncwarp();
        if (chunk - 1 + X_SLOTS < count && lane < SHARERS) arriveAt(&emptyX[xBefore], split * SHARERS + lane);
        if (chunk - 1 + W_SLOTS < count && lane == 0) arriveAt(&emptyW[wBefore], rank);
      }
      wBefore = inW.slot, xBefore = inX.slot;
      next(inW, W_SLOTS), next(inX, X_SLOTS);
    }
  }
  waitForMultiplying<0>();
  if constexpr (FORM != Form::Add) {
#pragma unroll
    for (int i = 0; i < kLoads; i++) further += loaded[i];
    squares[threadIdx.x] = further;
  }

  // Sums go through shared memory, in the place of the chunks: `finished` has whole rows, `own` this block's sums as registers hold them.
  // Loops over them are short: unrolled over the sums in registers, code that runs once took 3 to 6 µs to come from memory.
  float* const finished = reinterpret_cast<float*>(memory);
  Sums* const own = reinterpret_cast<Sums*>(memory + Of::kFinished);
  const int local = warp % kMine;  // of the warps whose rows this block finishes
  const auto scaleOf = [&](int row) {
    if (FORM == Form::Add || a.partsOfX == 0) return 1.0f;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < Of::kTurns; i++) sum += squares[i * Of::kRows + row];
    return rsqrtf(sum / static_cast<float>(a.inputs) + a.eps);
  };
  const auto finish = [&](int piece, const Sums& sum, float2 scales) {  // rows `line` and `line` + 8 of this warp's 16
    float* const to = finished + (local * 16 + line) * Of::kPitch + piece * 8 + part * 2;
    *reinterpret_cast<float2*>(to) = {sum.x * scales.x, sum.y * scales.x};
    if constexpr (Of::kOfWarp == 1) *reinterpret_cast<float2*>(to + 8 * Of::kPitch) = {sum.z * scales.y, sum.w * scales.y};
  };
  const auto sumsOf = [&](int piece, int half) {
    if constexpr (Of::kOfWarp == 1)
      return float4{sums[4 * piece], sums[4 * piece + 1], sums[4 * piece + 2], sums[4 * piece + 3]};
    else
      return half == 0 ? float2{sums[4 * piece], sums[4 * piece + 1]} : float2{sums[4 * piece + 2], sums[4 * piece + 3]};
  };
  // Without splits: gates and up go through shared memory as SwiGLU takes them, rounded, and eight neighbours are written at a time.
  const auto finishGated = [&](float2 scales) {
    Number* const rounded = reinterpret_cast<Number*>(memory);
#pragma unroll
    for (int j = 0; j < kPieces; j++) {
      if (warp >= Of::kRowWarps) break;
      const int column = firstColumn + j % (kPieces / 2) * 8 + part * 2, from = j < kPieces / 2 ? column : a.outputs + column;
      float2 bias{0, 0};
      if (a.bias != nullptr && column < a.outputs) bias = unpack<Number>(*reinterpret_cast<const unsigned*>(a.bias + from));
      Number* const to = rounded + (local * 16 + line) * Of::kRoundedPitch + j * 8 + part * 2;
      *reinterpret_cast<unsigned*>(to) = packBFloat16(sums[4 * j] * scales.x + bias.x, sums[4 * j + 1] * scales.x + bias.y);
      *reinterpret_cast<unsigned*>(to + 8 * Of::kRoundedPitch) =
          packBFloat16(sums[4 * j + 2] * scales.y + bias.x, sums[4 * j + 3] * scales.y + bias.y);
    }
    syncThreads<1, kThreads>();
    const auto gated = [](unsigned gates, unsigned ups) {
      const float2 gate = unpack<Number>(gates), up = unpack<Number>(ups);
      return packBFloat16(__fdividef(gate.x, 1.0f + __expf(-gate.x)) * up.x, __fdividef(gate.y, 1.0f + __expf(-gate.y)) * up.y);
    };
    constexpr int kEights = kOwn / 8;
#pragma unroll 1
    for (int i = threadIdx.x; i < ROWS * kEights; i += kThreads) {
      const int row = firstRow + i / kEights, column = firstColumn + i % kEights * 8;
      if (row >= a.rows || column >= a.outputs) continue;
      const Number* const from = rounded + i / kEights * Of::kRoundedPitch + i % kEights * 8;
      const uint4 gates = *reinterpret_cast<const uint4*>(from), ups = *reinterpret_cast<const uint4*>(from + kOwn);
      *reinterpret_cast<uint4*>(a.y + row * a.outputs + column) = {gated(gates.x, ups.x), gated(gates.y, ups.y), gated(gates.z, ups.z),
                                                                   gated(gates.w, ups.w)};
    }
  };
  const auto scalesOf = [&] {
    const int first = local * 16 + line;
    return float2{scaleOf(first), Of::kOfWarp == 1 ? scaleOf(first + 8) : 1.0f};
  };
  if constexpr (SPLITS == 1) {
    syncThreads<1, kThreads>();
    const float2 scales = scalesOf();
    if constexpr (FORM == Form::Gated) {
      finishGated(scales);
      return;
    } else {
#pragma unroll
      for (int j = 0; j < kPieces; j++)
        if (warp < Of::kRowWarps) finish(j, sumsOf(j, 0), scales);
    }
  } else {
    // The blocks of a cluster exchange their sums. A block may end while what it has sent is under way: who gets it waits for it.
    const auto slotOf = [&](int from, int to) { return (from < to ? from : from - 1) * kMine + local; };
    const auto ownerOf = [&](int half) { return warp < Of::kRowWarps ? (warp * Of::kOfWarp + half) / kMine : -1; };
#pragma unroll
    for (int half = 0; half < Of::kOfWarp; half++) {
      const int owner = ownerOf(half), there = owner * SHARERS + sharer;
      if (owner < 0 || owner == split) continue;
      const unsigned to = addressOf(&joined[slotOf(split, owner) * kPieces * 32 + lane], there), told = addressOf(arrived, there);
#pragma unroll
      for (int j = 0; j < kPieces; j++) storeAsync(to + j * 32 * sizeof(Sums), sumsOf(j, half), told);
    }
    syncThreads<1, kThreads>();
#pragma unroll
    for (int half = 0; half < Of::kOfWarp; half++)
      if (ownerOf(half) == split)
#pragma unroll
        for (int j = 0; j < kPieces; j++) own[(local * kPieces + j) * 32 + lane] = sumsOf(j, half);
    syncThreads<1, kThreads>();
    // All warps add, in the order of the splits: each some pieces of 16 rows.
    const float2 scales = scalesOf();
    waitForPhase(arrived, 0);
#pragma unroll 1
    for (int j = warp / kMine; j < kPieces; j += kWarps / kMine) {
      Sums total{};
#pragma unroll
      for (int from = 0; from < SPLITS; from++) {
        const Sums* const sent = from == split ? own + local * kPieces * 32 : joined + slotOf(from, split) * kPieces * 32;
        const Sums v = sent[j * 32 + lane];
        total.x += v.x, total.y += v.y;
        if constexpr (Of::kOfWarp == 1) total.z += v.z, total.w += v.w;
      }
      finish(j, total, scales);
    }
  }

  // All warps write.
  syncThreads<1, kThreads>();
  const auto plusBias = [&](float4 v, int from) {
    if (a.bias == nullptr) return v;
    const uint2 b = *reinterpret_cast<const uint2*>(a.bias + from);
    const float2 low = unpack<Number>(b.x), high = unpack<Number>(b.y);
    return float4{v.x + low.x, v.y + low.y, v.z + high.x, v.w + high.y};
  };
  if constexpr (FORM == Form::Add) {
    const auto times = [](unsigned both, unsigned weights) {
      const __nv_bfloat162 product =
          __hmul2(reinterpret_cast<const __nv_bfloat162&>(both), reinterpret_cast<const __nv_bfloat162&>(weights));
      return reinterpret_cast<const unsigned&>(product);
    };
#pragma unroll
    for (int e = 0; e < kWrites; e++) {
      const int i = threadIdx.x + e * kThreads, at = outputOf(i), column = i % kFours * 4;
      if (i >= Of::kRows * kFours) continue;
      float* const from = finished + i / kFours * Of::kPitch + column;
      float square = 0;
      if (at >= 0) {
        const float4 v = plusBias(*reinterpret_cast<const float4*>(from), firstColumn + column);
        const float2 low = unpack<Number>(before[e].x), high = unpack<Number>(before[e].y);
        const uint2 y{packBFloat16(low.x + v.x, low.y + v.y), packBFloat16(high.x + v.z, high.y + v.w)};
        *reinterpret_cast<uint2*>(a.y + at) = y;
        if (a.normed != nullptr) {
          *reinterpret_cast<uint2*>(a.normed + at) = {times(y.x, norms[e].x), times(y.y, norms[e].y)};
          const float2 one = unpack<Number>(y.x), two = unpack<Number>(y.y);
          square = one.x * one.x + one.y * one.y + two.x * two.x + two.y * two.y;
        }
      }
      *from = square;
    }
    if (a.normed != nullptr) {
      syncThreads<1, kThreads>();
      const int row = rowOfFirst + threadIdx.x;
      if (threadIdx.x < Of::kRows && row < a.rows) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kFours; i++) sum += finished[threadIdx.x * Of::kPitch + 4 * i];
        a.squaresOfY[tile * a.rows + row] = sum;
      }
    }
  } else {
    const auto gated = [](float gate, float up) {
      gate = wide(narrow<Number>(gate));
      return __fdividef(gate, 1.0f + __expf(-gate)) * wide(narrow<Number>(up));
    };
#pragma unroll
    for (int e = 0; e < kWrites; e++) {
      const int i = threadIdx.x + e * kThreads, at = outputOf(i), column = i % kFours * 4;
      if (at < 0) continue;
      const float* from = finished + i / kFours * Of::kPitch + column;
      float4 v = plusBias(*reinterpret_cast<const float4*>(from), firstColumn + column);
      if constexpr (FORM == Form::Gated) {
        const float4 up = plusBias(*reinterpret_cast<const float4*>(from + kOwn), a.outputs + firstColumn + column);
        v = {gated(v.x, up.x), gated(v.y, up.y), gated(v.z, up.z), gated(v.w, up.w)};
      }
      *reinterpret_cast<uint2*>(a.y + at) = {packBFloat16(v.x, v.y), packBFloat16(v.z, v.w)};
    }
  }
#endif
}

}  // namespace attune
