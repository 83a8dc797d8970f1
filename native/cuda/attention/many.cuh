// Attention of a decoding step over many rows, with two blocks on every multiprocessor. Each block goes through units (order.cuh) one after
// the other; their rows are not cut into chunks. The results are those of rows.cuh bit for bit: the same warps, in the same order.
//
// A warp has room for one tile. It requests the next tile's keys while it works on the present one's values, across units. The warps take
// tiles in turns that continue from unit to unit. After its first tile of a unit, while the next tile is being loaded, a warp does its
// share of the work between units: it combines all warps' results of the unit before the last one, and prepares a head of the next unit's
// q, k and v, which it requested a unit earlier. So a warp may be a unit ahead of the others.
#pragma once
#include "cuda/attention/order.cuh"

namespace attune {
namespace {

// —— a barrier in shared memory that counts warps, phase after phase ——
__device__ inline void initTurns(uint64_t* barrier, unsigned count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(count) : "memory");
}
__device__ inline void arriveAtTurn(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(barrier)) : "memory");
}
/** Until a phase has ended; the one after the next must not have. */
__device__ inline void waitForTurn(uint64_t* barrier, unsigned parity) {
  unsigned done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(sharedAddress(barrier)), "r"(parity)
                 : "memory");
  } while (done == 0);
}
__device__ inline void copyAsyncWord(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(sharedAddress(to)), "l"(from) : "memory");
}

/** What a block holds. What belongs to a unit is there as often as units need it at a time. */
template <typename Cache, int WARPS, int HEADS>
struct ManyShared {
  using T = typename Cache::Model;
  using Query = typename Cache::Query;
  static constexpr int D = Cache::kSize, kQuery = Cache::Queries::kNumbers, kSum = D + 4;
  static_assert(sizeof(Query) * kQuery % 16 == 0 && Cache::kBytesOfNewest % 16 == 0);
  char tiles[WARPS][Cache::kBytesOfTile];
  float sums[2][WARPS][HEADS][kSum];
  Unit units[8];
  // as it comes: q, k and v, and the angles' cosines and sines
  struct Raw {
    __align__(16) T heads[HEADS + 2][D];
    __align__(16) float angles[D];
  } raws[2];
  __align__(16) T weights[2][D];  // the norms'
  __align__(16) Query queries[3][HEADS][kQuery];
  __align__(16) char newest[3][Cache::kBytesOfNewest];  // k and v of the new token
  float2 marks[2][WARPS][HEADS];  // peak and total
  uint64_t barrier;
  int tables[4][kBlocksOfFew];
  RowClasses classes;
  int placeOfFirst, slots[];  // slots: where the tables of rows begin; then the rows and their positions, in order

  __device__ Unit& unit(int k) { return units[k % 8]; }
  __device__ Raw& raw(int k) { return raws[k % 2]; }
  __device__ int* table(int k) { return tables[k % 4]; }
};

template <typename Cache, int WARPS, int HEADS>
__global__ void __launch_bounds__(32 * WARPS, 2) attentionManyKernel(AttentionArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using T = typename Cache::Model;
  using Shared = ManyShared<Cache, WARPS, HEADS>;
  using RowSpan = WholeSpan<Cache::kKeys>;
  constexpr int D = Cache::kSize, kKeys = Cache::kKeys, kTilesOfBlock = kCacheBlock / kKeys, kThreads = 32 * WARPS;
  constexpr int kWanted = HEADS + 2;  // heads of a unit: of q, k and v
  constexpr float kLog2 = 1.44269504f;
  extern __shared__ __align__(128) char dynamicShared[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int groups = static_cast<int>(a.groups), rows = static_cast<int>(a.rows), window = static_cast<int>(a.window);
  Shared& shared = *reinterpret_cast<Shared*>(dynamicShared);
  unsigned short *const rowAt = reinterpret_cast<unsigned short*>(shared.slots + rows), *const positionAt = rowAt + rows;
  char* const own = shared.tiles[warp];

  // —— keys and values of the first unit ——
  const int firstRow = static_cast<int>(blockIdx.x) / groups, firstGroup = static_cast<int>(blockIdx.x) % groups;
  const int firstPosition = static_cast<int>(a.positions[firstRow]);
  const int32_t* const firstTable = tableOf(a, firstRow);
  const auto putAt = [&](int row, int place) {
    rowAt[place] = static_cast<unsigned short>(row), positionAt[place] = static_cast<unsigned short>(a.positions[row]);
    shared.slots[place] = static_cast<int>(a.slots[row] * a.tableWidth);
  };
  const auto tilesBefore = [&](int position) {  // the last one of the row
    const RowSpan span(position, window);
    return span.last - span.first;
  };
  bool isUneven = false;
  for (int row = threadIdx.x; row < rows; row += kThreads) {
    putAt(row, row);
    isUneven |= tilesBefore(positionAt[row]) != tilesBefore(firstPosition);
  }
  if (lane < a.tableWidth) shared.table(0)[lane] = firstTable[lane];
  for (int at = threadIdx.x; at < 2 * D; at += kThreads) {
    const void* const weight = at < D ? a.qWeight : a.kWeight;
    if (weight != nullptr) shared.weights[0][at] = static_cast<const T*>(weight)[at % D];
  }
  if (threadIdx.x == 0) {
    initTurns(&shared.barrier, WARPS);
    publishBarriers();
  }
  __syncwarp();

  int askedPlace = 0, askedGroup = 0, askedCount = 0;
  bool isAsked = false;
  const auto askKeys = [&] {
    if (isAsked) Cache::template copy<true, false>(own, a, askedPlace, askedGroup, askedCount);
    commitCopies();
  };
  const auto askValues = [&] {
    if (isAsked) Cache::template copy<false, true>(own, a, askedPlace, askedGroup, askedCount);
    commitCopies();
  };
  const auto turnTo = [&](int k, int tile, int group, int position) {  // the tile that is asked for next
    askedPlace = shared.table(k)[tile / kTilesOfBlock] * kCacheBlock + tile % kTilesOfBlock * kKeys;
    askedGroup = group, askedCount = position - tile * kKeys, isAsked = true;
  };
  const auto turnToFirst = [&](int k) {
    const Unit& unit = shared.unit(k);
    const int tile = unit.begin + ((warp - unit.turn) & (WARPS - 1));
    isAsked = tile <= unit.end;
    if (isAsked) turnTo(k, tile, unit.group, unit.position);
  };
  {
    const RowSpan span(firstPosition, window);
    if (span.first + warp <= span.last) turnTo(0, span.first + warp, firstGroup, firstPosition);
    askKeys();
    askValues();
  }
  letNextBegin();

  // —— the order of rows ——
  const int firsts = static_cast<int>(gridDim.x) / groups;
  if (threadIdx.x == 0) shared.placeOfFirst = firstRow;
  if (__syncthreads_or(isUneven)) {
    const auto classOf = [&](int row) {
      constexpr int kHalf = RowClasses::kCount / 2;
      const int length = tilesBefore(static_cast<int>(a.positions[row])) * kHalf / (static_cast<int>(a.tableWidth) * kTilesOfBlock);
      return row < firsts ? length : RowClasses::kCount - 1 - length;
    };
    shared.classes.template order<WARPS>(rows, classOf, [&](int row, int place) {
      putAt(row, place);
      if (row == firstRow) shared.placeOfFirst = place;
    });
    __syncthreads();
  }
  const int place = shared.placeOfFirst;
  const BlockUnits<kKeys, WARPS> units{rowAt, positionAt, groups, rows * groups, window, (firsts + place) * groups + firstGroup};

  // —— q, k and v of a unit: one head each for some of the warps ——
  const auto headOf = [&](int k) { return (warp + k * (WARPS / 2)) & (WARPS - 1); };
  const auto sourceOf = [&](const Unit& unit, int which) {
    return which < HEADS ? static_cast<const T*>(a.q) + unit.row * a.qStride + (unit.group * HEADS + which) * D
                         : static_cast<const T*>(which == HEADS ? a.k : a.v) + unit.row * a.kvStride + unit.group * D;
  };
  const auto put = [&](int k, const Unit& unit, int which, const Head<T, D>& head) {
    if (which < HEADS) {
      Cache::putQuery(head.values, shared.queries[k % 3][which]);
    } else {
      const int place = shared.table(k)[unit.position / kCacheBlock] * kCacheBlock + unit.position % kCacheBlock;
      Cache::write(a, place, unit.group, which - HEADS, head, shared.newest[k % 3], true);
    }
  };
  const auto askTable = [&](int k, int place) {
    if (lane < a.tableWidth) copyAsyncWord(shared.table(k) + lane, a.tables + shared.slots[place] + lane);
  };
  // asks for a unit's table, and for the head that this warp prepares
  const auto askRaw = [&](int k) {
    const Unit& unit = shared.unit(k);
    if (unit.row < 0) return;
    if (k > 1) askTable(k, unit.place);
    const int which = headOf(k);
    if (which >= kWanted) return;
    auto& raw = shared.raw(k);
    constexpr int kPiece = 16 / sizeof(T), kOfAngles = 16 / sizeof(float), kHalf = D / 2 / kOfAngles;
    if (lane < D / kPiece) copyAsync<16>(raw.heads[which] + lane * kPiece, sourceOf(unit, which) + lane * kPiece);
    if (which <= HEADS && a.cosines != nullptr)
      copyAsync<16>(raw.angles + lane * kOfAngles,
                    (lane < kHalf ? a.cosines : a.sines) + unit.position * (D / 2) + lane % kHalf * kOfAngles);
  };
  const auto prepare = [&](int k) {
    const Unit& unit = shared.unit(k);
    const int which = headOf(k);
    if (unit.row < 0 || which >= kWanted) return;
    const auto& raw = shared.raw(k);
    Head<T, D> head(a, (which < HEADS ? a.qWeight : which == HEADS ? a.kWeight : nullptr) != nullptr, which <= HEADS);
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
      const int d = lane + 32 * i;
      head.values[i] = wide(raw.heads[which][d]);
      head.weights[i] = wide(shared.weights[which < HEADS ? 0 : 1][d]);
      head.cosines[i] = raw.angles[d % (D / 2)], head.sines[i] = raw.angles[D / 2 + d % (D / 2)];
    }
    head.finish(nullptr);
    put(k, unit, which, head);
  };
  const auto join = [&](int k) {
    const Unit& unit = shared.unit(k);
    T* const out = static_cast<T*>(a.out) + (unit.row * a.heads + unit.group * HEADS) * D;
    for (int at = threadIdx.x; at < HEADS * D; at += kThreads) {
      const int which = at / D, d = at % D;
      JoinedWarps joined;
      joined.join<WARPS>(&shared.marks[k % 2][0][which], HEADS, &shared.sums[k % 2][0][which][d], HEADS * Shared::kSum);
      out[at] = narrow<T>(joined.result / joined.all);
    }
  };

  // —— before the first tile ——
  {
    const Unit unit = units.of(place * groups + firstGroup, 0, 0);
    const int which = headOf(0);
    const bool isWanted = which < kWanted;
    Head<T, D> head(a, false, false);
    if (isWanted) {
      const void* const weight = which < HEADS ? a.qWeight : which == HEADS ? a.kWeight : nullptr;
      head.isNormed = weight != nullptr, head.isTurned = which <= HEADS && a.cosines != nullptr;
      head.loadAngles(unit.position);
      head.loadWeight(weight);
    }
    const Unit next = units.after(unit, units.items);  // a draw would be in vain
    if (next.row >= 0) askTable(1, next.place);
    commitCopies();
    waitForPrevious();
    if (isWanted) {
      head.prepare(sourceOf(unit, which), nullptr);
      put(0, unit, which, head);
    } else if (warp == WARPS - 1 && lane == 0) {
      shared.unit(0) = unit;
      shared.unit(1) = units.isDrawn(unit) ? units.after(unit, units.draw()) : next;
      shared.unit(2) = units.after(next, units.isDrawn(next) ? units.draw() : 0);
    }
  }
  __syncthreads();
  askRaw(1);
  commitCopies();

  int k = 0;
#pragma unroll 1
  for (; shared.unit(k).row >= 0; k++) {
    const bool isOnDuty = warp == (k & (WARPS - 1)) && lane == 0;
    int drawn = 0;
    if (isOnDuty && units.isDrawn(shared.unit(k + 2))) drawn = units.draw();
    // what comes between units: after the first tile, while the next one is under way
    const auto between = [&] {
      if (k >= 2) join(k - 2);
      prepare(k + 1);
      if (isOnDuty) shared.unit(k + 3) = units.after(shared.unit(k + 2), drawn);
      __syncwarp();
      if (lane == 0) arriveAtTurn(&shared.barrier);
    };
    const Unit& unit = shared.unit(k);
    const int position = unit.position, end = unit.end, last = position / kKeys, begin = unit.begin;
    const int ofRow = (warp - unit.turn) & (WARPS - 1);  // the warp that this one is in rows.cuh
    const int firstKey = window > 0 ? max(0, position - window + 1) : 0;
    const auto* const queries = shared.queries[k % 3][min(g, HEADS - 1)] + t * Cache::Queries::kQuarter;
    const auto scales = Cache::scoreScales(shared.queries[k % 3][0], HEADS, a.scale * kLog2);
    typename Cache::Running running;
    int now = begin + ofRow;
#pragma unroll 1
    for (bool isFirst = true; isFirst || now <= end; now += WARPS) {
      if (now > end) {  // no tile of this unit
        waitForCopies<0>();
        __syncwarp();
        askRaw(k + 2);
        commitCopies();
        turnToFirst(k + 1);
        askKeys();
        askValues();
      } else {
        if (now == last)
          waitForCopies<0>();
        else
          waitForCopies<1>();
        __syncwarp();
        if (now == last) {
          Cache::put(own, position % kKeys, shared.newest[k % 3]);
          __syncwarp();
        }
        const auto hide = [&](float(&score)[4], int part) {
          const int key = now * kKeys + part + g;  // and key + 8
          if (now == last || now == firstKey / kKeys) hideKeys(score, key, firstKey, position);
        };
        const auto keysAreRead = [&] {
          __syncwarp();  // by all lanes
          if (isFirst) askRaw(k + 2);
          if (now + WARPS <= end)
            turnTo(k, now + WARPS, askedGroup, position);
          else
            turnToFirst(k + 1);
          askKeys();
        };
        const auto awaitValues = [&] {
          waitForCopies<1>();
          __syncwarp();
        };
        running.add(own, queries, scales, hide, keysAreRead, awaitValues);
        __syncwarp();  // all lanes have read the tile
        askValues();
      }
      if (isFirst) between();
      isFirst = false;
    }
    running.finish();
    if (position == 0 && ofRow == 0) Cache::finishAlone(running, shared.newest[k % 3]);
    waitForTurn(&shared.barrier, k & 1);  // all have joined what was here
#pragma unroll
    for (int j = 0; j < 2; j++) {
      const int which = 2 * t + j;
      if (which >= HEADS) continue;
      if (g == 0) shared.marks[k % 2][ofRow][which] = {running.peak[j], running.total[j]};
      running.store(j, shared.sums[k % 2][ofRow][which]);
    }
  }
  __syncthreads();
  if (k >= 2) join(k - 2);
  join(k - 1);
#endif
}

/**
 * HEADS: of queries for a kv head. False, and nothing done, where two blocks have no room on a multiprocessor, and for other angles than those of
 * whole heads whose halves are turned.
 */
template <typename Cache, int WARPS, int HEADS>
bool launchAttentionMany(const AttentionArgs& a, cudaStream_t stream) {
  const int bytes = static_cast<int>(sizeof(ManyShared<Cache, WARPS, HEADS>) + a.rows * 2 * sizeof(int));
  static_assert(HEADS + 2 < WARPS);  // one warp has no head
  if (a.heads != HEADS * a.groups || a.rows > RowClasses::kMostRows) return false;
  if (2 * (bytes + kReserved) > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerMultiprocessor)) return false;
  if (a.cosines != nullptr && (a.interleaved || 2 * a.half != a.size)) return false;
  for (const void* from : {a.q, a.k, a.v, static_cast<const void*>(a.cosines), static_cast<const void*>(a.sines)})
    if (reinterpret_cast<uintptr_t>(from) % 16 != 0) return false;
  const int64_t firsts = std::min<int64_t>(2 * multiprocessorsOfDevice() / a.groups, a.rows);
  if (firsts == 0) return false;
  launchWithMemory<kAnyShared>(attentionManyKernel<Cache, WARPS, HEADS>, dim3(static_cast<unsigned>(firsts * a.groups)), 32 * WARPS, 1,
                               bytes, stream, a);
  return true;
}

}  // namespace
}  // namespace attune
