// The products of product.cu if a block's share of W fits into part of its multiprocessor's shared memory, as for a model of 0.6B
// parameters. All of it is requested before x is known. A block uses few registers and no more shared memory than it needs, so that blocks
// of the next two kernels are resident too and their weights arrive meanwhile. The sums are always added in the same order.
//
// A separate warp requests the weights, some tens of KB at a time: with more in flight, x and the end of a kernel, which all others wait
// for, would queue behind them.
#include "cuda/norm_products.cuh"

namespace attune {
namespace {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
constexpr int kChunk = 32, kUnderWay = 32 << 10;
constexpr int kEarlyWords = 32;  // registers of W that a lane has before x is there

// The eight warps that compute.
__device__ inline void syncWarps() { syncThreads<1, kThreads>(); }
#endif

constexpr int kStatic = 4 << 10;  // bytes of shared memory beside the dynamic, at most

// 8·TILES rows of W, PARTS times SHARE of the inputs. HALVES: of 8 rows of x each. A cluster of SPLITS blocks splits the inputs, or one of
// READERS blocks reads x together: each some rows, for all. That takes shared memory, but half of what all blocks read from the L2 cache.
// A part's sums are added as those of a block of its own would be: the result does not depend on how many parts a block has.
// More than 8 rows have registers for W under way, and so the blocks of one kernel after this one at a time, which is as well: with two of
// them, their weights keep this one's x and W waiting (a layer of 0.6B at 16 rows: 23.4 → 22.9 µs, with a cache in 8 bits 21.5 → 20.9).
template <typename Number, int TILES, int HALVES, int SPLITS, int READERS, int PARTS, int SHARE, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads + 32, HALVES == 1 ? 3 : 2) stagedKernel(ProductArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES, kColumns = 8 * TILES, kRows = 8 * HALVES, kEach = SHARE / kChunk / kWarps;
  constexpr int kInputs = PARTS * SHARE, kStride = kInputs * 2 + 64;  // bytes of a row: lanes of neighbouring rows read different banks
  constexpr int kOwnColumns = kColumns / SPLITS, kWrites = (kRows * kOwnColumns + kThreads - 1) / kThreads;
  static_assert(SPLITS == 1 || (FORM == Form::Plain && !NORM));
  static_assert(SHARE % (kChunk * kWarps) == 0);
  static_assert((SPLITS == 1 || READERS == 1) && (PARTS == 1 || SPLITS > 1));
  // Multiplying is what takes longest once x is there. In bf16, up to 8 rows of x are the columns of a product and two tiles of W its rows, so
  // that half as many products are needed, and W's first numbers are in registers before x is there. (In f16 sums are multiplied by powers
  // of a lane's row of x, so they stay with it.)
  constexpr bool kIsBFloat16 = std::is_same_v<Number, __nv_bfloat16>, kTurned = HALVES == 1 && kIsBFloat16;
  constexpr bool kHolds = READERS == 1 || !kIsBFloat16;  // x in registers: otherwise it is read from shared memory as it is needed
  constexpr int kSums = kTurned ? TILES / 2 : TILES, kEarly = kTurned || !kHolds ? kEarlyWords / (4 * TILES) : 0;
  static_assert(TILES % 2 == 0);
  // Blocks of the next kernel begin where blocks of the one before have ended, which is when this one's x and the last of its W are under way.
  // What follows gates and up has few weights, so it can wait until x has been asked for (a step of 0.6B at 16 rows: 673 → 654 µs, with a
  // 16-bit cache 715 → 697). The others' next kernels need the time (16 rows: 689 to 697 µs, in 16 bits 777).
  constexpr bool kLetsBeginLate = FORM == Form::Gated && HALVES > 1;
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t arrived[TILES], arrivedX, arrivedSums;
  __shared__ float squares[NORM ? kWarps : 1][kRows];
  __shared__ __align__(8) float joined[SPLITS * PARTS][SPLITS > 1 ? kRows : 1][SPLITS > 1 ? kOwnColumns : 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % SPLITS, first = static_cast<int>(blockIdx.x) / SPLITS * kOwn;
  const int inputs = kInputs * SPLITS, outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows), tiles = outputs / 8;
  char *const norms = memory + kColumns * kStride, *const xs = norms + (NORM ? kInputs * 2 : 0);

  if (threadIdx.x == kThreads) {
    for (int j = 0; j < TILES; j++) initBarrier(&arrived[j]);
    if constexpr (SPLITS > 1) initBarrier(&arrivedSums);
    if constexpr (READERS > 1) initBarrier(&arrivedX);
    publishBarriers();
    if constexpr (READERS > 1) expectBytes(&arrivedX, rows * kInputs * 2);
    if constexpr (SPLITS > 1) expectBytes(&arrivedSums, PARTS * rows * kColumns * static_cast<int>(sizeof(float)));
  }
  if constexpr (SPLITS * READERS > 1) clusterArrive();
  __syncthreads();
  if (warp == kWarps) {
    if (lane > 0) return;
    constexpr int kTiles = kUnderWay / (8 * kInputs * 2) > 0 ? kUnderWay / (8 * kInputs * 2) : 1;
#pragma unroll 1
    for (int j = 0; j < TILES; j++) {
      if (j >= kTiles) waitForBytes(&arrived[j - kTiles]);
      expectBytes(&arrived[j], (8 + (NORM && j == 0)) * kInputs * 2);
      if (NORM && j == 0) copyBulk(norms, static_cast<const Number*>(a.norm), kInputs * 2, &arrived[0]);
      const int row = ((j < kOwn ? 0 : tiles) + min(first + j % kOwn, tiles - 1)) * 8;  // tiles beyond the last are not written
      const Number* from = static_cast<const Number*>(a.weight) + static_cast<int64_t>(row) * inputs + rank * kInputs;
#pragma unroll 1
      for (int i = 0; i < 8; i++) copyBulk(memory + (j * 8 + i) * kStride, from + i * inputs, kInputs * 2, &arrived[j]);
    }
    if constexpr (!kLetsBeginLate) letNextBegin();
    return;
  }
  if constexpr (!kLetsBeginLate) letNextBegin();
  if constexpr (SPLITS * READERS > 1) clusterWait();  // all blocks of the cluster have begun, and their barriers are there
  const char* const own = memory + line * kStride + warp * 64 + part * 16;
  const auto weightOf = [&](int i, int j) { return *reinterpret_cast<const uint4*>(own + j * 8 * kStride + i * kWarps * 64); };
  uint4 early[kEarly > 0 ? kEarly : 1][TILES];
  const auto loadEarly = [&] {
#pragma unroll
    for (int j = 0; j < TILES; j++) waitForBytes(&arrived[j]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEarly; i++)
#pragma unroll
      for (int j = 0; j < TILES; j++) early[i][j] = weightOf(i, j);
  };
  if constexpr (kEarly > 0 && READERS == 1) loadEarly();
  waitForPrevious();

  // lane (line, part) takes x[row `line`][8·part …] of a chunk, and W in the same order
  const Number* x = static_cast<const Number*>(a.x) + line * inputs + rank * kInputs + warp * kChunk + part * 8;
  if constexpr (READERS > 1) {
    const int row = static_cast<int>(blockIdx.x) % READERS + lane * READERS;
    if (warp == 0 && row < rows)
      copyBulkToAll(xs + row * kStride, static_cast<const Number*>(a.x) + row * inputs, kInputs * 2, &arrivedX, (1 << READERS) - 1);
    __syncwarp();
    if constexpr (kEarly > 0) loadEarly();
    waitForBytes(&arrivedX);
  }
  const auto xOf = [&](int half, int i) {
    if constexpr (READERS > 1)
      return *reinterpret_cast<const uint4*>(xs + (half * 8 + line) * kStride + (i * kWarps + warp) * 64 + part * 16);
    else
      return loadFresh(x + half * 8 * inputs + i * kWarps * kChunk);
  };
  const auto xOrNone = [&](int half, int i) { return half * 8 + line < rows ? xOf(half, i) : uint4{}; };
  uint4 held[kHolds ? HALVES : 1][PARTS * kEach];
  if constexpr (kHolds)
#pragma unroll
    for (int i = 0; i < PARTS * kEach; i++)
#pragma unroll
      for (int half = 0; half < HALVES; half++) held[half][i] = xOrNone(half, i);
  if constexpr (kLetsBeginLate) letNextBegin();
  // what y holds, for the outputs that this thread writes
  const auto targetOf = [&](int i) { return first * 8 + rank * kOwnColumns + i % kOwnColumns; };
  Number before[kWrites];
  if constexpr (SPLITS > 1)
#pragma unroll
    for (int e = 0; e < kWrites; e++) {
      const int i = threadIdx.x + e * kThreads, row = i / kOwnColumns;
      before[e] =
          a.add && row < rows && targetOf(i) < outputs ? static_cast<const Number*>(a.y)[row * outputs + targetOf(i)] : Number(0.0f);
    }

  const auto normOf = [&](int i) { return *reinterpret_cast<const uint4*>(norms + (i * kWarps + warp) * 64 + part * 16); };
  NormProducts<Number, HALVES> normed;
  if constexpr (NORM && std::is_same_v<Number, __half>) {
    waitForBytes(&arrived[0]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kEach; i++) normed.see(normOf(i));
    normed.begin();
  }

  float sumsOf[PARTS][kSums][4] = {}, square[HALVES] = {};
  if constexpr (kEarly == 0) {
#pragma unroll
    for (int j = 0; j < TILES; j++) waitForBytes(&arrived[j]);
    __syncwarp();
  }
#pragma unroll
  for (int i = 0; i < PARTS * kEach; i++) {
    auto& sums = sumsOf[i / kEach];
    uint4 one, two{};
    if constexpr (kHolds) {
      one = held[0][i];
      if (HALVES > 1) two = held[HALVES - 1][i];
    } else {
      one = xOrNone(0, i), two = xOrNone(HALVES - 1, i);
    }
    if constexpr (NORM) {
      const uint4 norm = normOf(i);
      square[0] += squaresOf<Number>(one);
      if constexpr (HALVES > 1) square[HALVES - 1] += squaresOf<Number>(two);
      normed.multiply(one, two, norm, sums);
    }
    const auto w = [&](int j) { return i < kEarly ? early[i < kEarly ? i : 0][j] : weightOf(i, j); };
#pragma unroll
    for (int j = 0; j < kSums; j++) {
      if constexpr (kTurned) {
        const uint4 a = w(2 * j), b = w(2 * j + 1);
        multiply<Number>(sums[j], a.x, b.x, a.y, b.y, one.x, one.y);
        multiply<Number>(sums[j], a.z, b.z, a.w, b.w, one.z, one.w);
      } else {
        const uint4 b = w(j);
        multiply<Number>(sums[j], one.x, two.x, one.y, two.y, b.x, b.y);
        multiply<Number>(sums[j], one.z, two.z, one.w, two.w, b.z, b.w);
      }
    }
  }

  if constexpr (NORM) normed.finish(sumsOf[0]);

  // the warps' sums, in the place of the weights
  constexpr int kPitch = kColumns + 8;
  static_assert(PARTS * kWarps * kRows * kPitch * sizeof(float) <= kColumns * kStride);
  float* const partial = reinterpret_cast<float*>(memory);
  if constexpr (NORM)
#pragma unroll
    for (int half = 0; half < HALVES; half++) {
      float sum = square[half];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      if (part == 0) squares[warp][half * 8 + line] = sum;
    }
  syncWarps();
#pragma unroll
  for (int p = 0; p < PARTS; p++) {
    const auto& sums = sumsOf[p];
    float* const own = partial + (p * kWarps + warp) * kRows * kPitch;
    if constexpr (kTurned) {  // row `line` of both tiles of a pair, for rows 2·part and 2·part + 1 of x
#pragma unroll
      for (int e = 0; e < 2; e++)
        if (2 * part + e < rows)
#pragma unroll
          for (int j = 0; j < TILES; j++) own[(2 * part + e) * kPitch + j * 8 + line] = sums[j / 2][j % 2 * 2 + e];
    } else {
#pragma unroll
      for (int half = 0; half < HALVES; half++)
        if (half * 8 + line < rows)
#pragma unroll
          for (int j = 0; j < TILES; j++)
            *reinterpret_cast<float2*>(own + (half * 8 + line) * kPitch + j * 8 + part * 2) = {sums[j][2 * half], sums[j][2 * half + 1]};
    }
  }
  syncWarps();
  const auto sumsOfWarps = [&](int row, int column, int p = 0) {  // of this column and the next
    float2 sum{};
#pragma unroll
    for (int i = 0; i < kWarps; i++) {
      const float2 two = *reinterpret_cast<const float2*>(partial + ((p * kWarps + i) * kRows + row) * kPitch + column);
      sum.x += two.x, sum.y += two.y;
    }
    return sum;
  };
  if constexpr (SPLITS > 1) {
    // Each block adds up some columns. It knows by its barrier when the others' sums are there: two waits of the whole cluster took 0.3 µs
    // more at one row and 0.5 at 16.
    // No loop, which would take registers: with more than 80, out has no room beside two blocks of attention.
    static_assert(PARTS * kRows * kColumns / 2 <= kThreads);
    if (const int all = threadIdx.x; all < PARTS * rows * kColumns / 2) {
      const int p = all % PARTS, i = all / PARTS, row = i / (kColumns / 2), column = i % (kColumns / 2) * 2, to = column / kOwnColumns;
      storeAsync(addressOf(&joined[rank * PARTS + p][row][column % kOwnColumns], to), sumsOfWarps(row, column, p),
                 addressOf(&arrivedSums, to));
    }
    waitForStores(&arrivedSums);
#pragma unroll
    for (int e = 0; e < kWrites; e++) {
      const int i = threadIdx.x + e * kThreads, row = i / kOwnColumns, target = targetOf(i);
      if (row >= rows || target >= outputs) continue;
      float value = 0;
#pragma unroll
      for (int r = 0; r < SPLITS * PARTS; r++) value += joined[r][row][i % kOwnColumns];
      value = scaledSum<Number>(value, 1, a.bias, target);
      static_cast<Number*>(a.y)[row * outputs + target] = narrow<Number>(a.add ? wide(before[e]) + value : value);
    }
  } else {
    constexpr int kWidth = 8 * kOwn;
    for (int i = threadIdx.x; i < rows * kWidth / 2; i += kThreads) {
      const int row = i / (kWidth / 2), column = i % (kWidth / 2) * 2, target = first * 8 + column;
      if (target >= outputs) continue;
      float scale = 1;
      if constexpr (NORM) {
        float all = 0;
#pragma unroll
        for (int w = 0; w < kWarps; w++) all += squares[w][row];
        scale = rsqrtf(all / static_cast<float>(inputs) + a.eps);
      }
      const auto scaled = [&](float sum, int at) { return scaledSum<Number>(sum, scale, a.bias, at); };
      const float2 sum = sumsOfWarps(row, column);
      float2 value = {scaled(sum.x, target), scaled(sum.y, target + 1)};
      if constexpr (FORM == Form::Gated) {
        const float2 up = sumsOfWarps(row, column + kWidth);
        value.x = gatedValue<Number>(value.x, scaled(up.x, outputs + target));
        value.y = gatedValue<Number>(value.y, scaled(up.y, outputs + target + 1));
      }
      auto* y = reinterpret_cast<unsigned*>(static_cast<Number*>(a.y) + row * outputs + target);
      if (a.add) {
        const float2 held = unpack<Number>(*y);
        value = {held.x + value.x, held.y + value.y};
      }
      *y = pack<Number>(value.x, value.y);
    }
  }
#endif
}

/**
 * False, and nothing done, where the inputs are others or there are more blocks than multiprocessors, or a block has no room on the device (gates and
 * up take 103 KB, and chips after Hopper may have 99); or several parts and more than 8 rows.
 */
template <typename Number, int TILES, int SPLITS, int PARTS, int SHARE, Form FORM, bool NORM>
bool launchShare(const ProductArgs& a, cudaStream_t stream) {
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  constexpr size_t kRow = PARTS * SHARE * 2, kBytes = 8 * TILES * (kRow + 64) + (NORM ? kRow : 0);
  const int64_t blocks = (a.outputs / 8 + kOwn - 1) / kOwn * SPLITS;
  if (a.inputs != SPLITS * PARTS * SHARE || a.outputs % 8 != 0 || blocks > multiprocessorsOfDevice()) return false;
  // With a norm, before attention, two blocks read x of many rows together (a layer of 0.6B at 16 rows: 23.7 µs → 22.8). With four
  // blocks not all clusters are there at once; gate and up, with more weights, have no room for x beside the kernels after them (30.0).
  constexpr bool kMayShare = NORM && FORM == Form::Plain;
  constexpr size_t kShared = kBytes + 16 * (kRow + 64);
  const size_t room = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kStatic;
  if (kBytes > room) return false;
  const auto launch = [&](auto kernel, unsigned cluster, size_t bytes) {
    launchWithMemory(kernel, dim3(static_cast<unsigned>(blocks)), kThreads + 32, cluster, bytes, stream, a);
  };
  if (a.rows <= 8)
    launch(stagedKernel<Number, TILES, 1, SPLITS, 1, PARTS, SHARE, FORM, NORM>, SPLITS, kBytes);
  else if constexpr (PARTS > 1)
    return false;
  else if (!kMayShare || blocks % 2 != 0 || kShared > room)
    launch(stagedKernel<Number, TILES, 2, SPLITS, 1, 1, SHARE, FORM, NORM>, SPLITS, kBytes);
  else if constexpr (kMayShare)
    launch(stagedKernel<Number, TILES, 2, 1, 2, 1, SHARE, FORM, NORM>, 2, kShared);
  return true;
}

template <typename Number>
bool launch(const ProductArgs& a, cudaStream_t stream) {
  if (a.norm == nullptr) {
    if (a.gated) return false;
    // 32 clusters of four blocks are not all there at once with one block a multiprocessor: the last one begins late. Down of one row has clusters
    // of two, in which a block reads twice as much of x (a step of 0.6B: 423.7 → 415.4 µs, with an 8-bit cache the same). More rows
    // lose by that: 4 rows 502.7 → 508.3, 8 rows 554.1 → 568.6, 16 rows 653 → 667.
    if constexpr (std::is_same_v<Number, __nv_bfloat16>)
      if (a.rows == 1 && launchShare<Number, 2, 2, 2, 768, Form::Plain, false>(a, stream)) return true;
    return launchShare<Number, 4, 4, 1, 512, Form::Plain, false>(a, stream) ||
           launchShare<Number, 4, 4, 1, 768, Form::Plain, false>(a, stream);
  }
  if (a.gated) return launchShare<Number, 6, 1, 1, 1024, Form::Gated, true>(a, stream);
  return launchShare<Number, 4, 1, 1, 1024, Form::Plain, true>(a, stream);
}

}  // namespace

bool launchStagedProduct(Kind kind, const ProductArgs& a, cudaStream_t stream) {
  if (majorOfDevice() < 9 || a.rows > 16) return false;
  return kind == Kind::Float16 ? launch<__half>(a, stream) : launch<__nv_bfloat16>(a, stream);
}

}  // namespace attune
