// Products of 33 to 256 rows, in bf16 on compute capability 9.0 (product.cu has those of fewer).
//
// A block multiplies ROWS rows of x with COLUMNS rows of W on its multiprocessor's tensor cores, 64 rows by each warpgroup. Chunks of 64
// inputs of both go round in shared memory: a warp asks for those of W before the kernel that computes x has ended, and then for those
// of x.
//
// The bound is what the L2 cache delivers, 5 TB/s: 128 blocks that each read all of x would take 6 µs. So a cluster of blocks splits
// the inputs SPLITS ways, and SHARERS blocks with the same inputs and other columns each ask for a part of x's chunk, which goes to
// all of them. Every block adds the partial sums of some of the rows, always in the same order.
//
// A norm is part of the product before it: that writes x, x times the norm's weights, and its columns' share of each row's Σ x². The
// product after it multiplies 1/√(mean x² + ε) in at the end.
#include "cuda/wide/wide_product.h"

#include "cuda/mma.cuh"

#if CUDART_VERSION >= 12050
#include "cuda/wide/hopper.cuh"
#include "cuda/wide/tensor_map.h"

namespace attune {
namespace {

using Number = __nv_bfloat16;
constexpr int kMostRows = 128, kChunk = 64;

enum class Form { Plain, Gated, Add };

struct WideArgs {
  const Number *bias, *nextNorm;
  Number *y, *normed;
  const float* squaresOfX;
  float* squaresOfY;
  int rows, inputs, outputs, partsOfX;
  float eps;
};

/** W_SLOTS and X_SLOTS: chunks of W and x that are there or under way. */
template <int ROWS, int COLUMNS, int SPLITS, int SHARERS, int W_SLOTS, int X_SLOTS, Form FORM>
struct Sizes {
  static constexpr int kWarps = ROWS / 16, kThreads = 32 * kWarps;  // those that multiply
  static constexpr int kCluster = SPLITS * SHARERS, kOwn = FORM == Form::Gated ? COLUMNS / 2 : COLUMNS;  // kOwn: columns of y
  static constexpr int kW = COLUMNS * kChunk * 2, kX = ROWS * kChunk * 2;  // bytes of a chunk
  static constexpr int kMine = kWarps / SPLITS, kRows = 16 * kMine;  // so many warps' rows are finished by one block
  static constexpr int kJoined = (SPLITS - 1) * kMine * COLUMNS / 8 * 32;
  static constexpr int kBarriers = 2 * (W_SLOTS + X_SLOTS) + 2;
  static constexpr int kBytes = W_SLOTS * kW + X_SLOTS * kX + kJoined * 16 + kRows * 4 + kBarriers * 8;  // of shared memory
  static constexpr int kPitch = COLUMNS + (40 - COLUMNS % 32) % 32;  // of finished sums: rows begin 8 banks apart
  static_assert(kRows * kPitch * 4 <= W_SLOTS * kW + X_SLOTS * kX);
};

template <int ROWS, int COLUMNS, int SPLITS, int SHARERS, int W_SLOTS, int X_SLOTS, Form FORM>
__global__ void __launch_bounds__(Sizes<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM>::kThreads + 32, 1)
    wideKernel(const __grid_constant__ CUtensorMap xMap, const __grid_constant__ CUtensorMap wMap, const WideArgs a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Of = Sizes<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM>;
  constexpr int kOwn = Of::kOwn, kMine = Of::kMine, kPieces = COLUMNS / 8, kWarps = Of::kWarps, kThreads = Of::kThreads;
  extern __shared__ __align__(1024) char memory[];
  char *const ws = memory, *const xs = ws + W_SLOTS * Of::kW;
  float4* const joined = reinterpret_cast<float4*>(xs + X_SLOTS * Of::kX);  // sums from the other blocks
  float* const scales = reinterpret_cast<float*>(joined + Of::kJoined);  // of the rows that this block finishes
  uint64_t *const fullW = reinterpret_cast<uint64_t*>(scales + Of::kRows), *const emptyW = fullW + W_SLOTS;
  uint64_t *const fullX = emptyW + W_SLOTS, *const emptyX = fullX + X_SLOTS, *const arrived = emptyX + X_SLOTS;

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % Of::kCluster, split = rank / SHARERS, sharer = rank % SHARERS;
  const int group = static_cast<int>(blockIdx.x) / Of::kCluster, sets = (a.rows + ROWS - 1) / ROWS;
  const int tile = group / sets * SHARERS + sharer, firstRow = group % sets * ROWS, firstColumn = tile * kOwn;
  const int chunks = (a.inputs + kChunk - 1) / kChunk, share = (chunks + SPLITS - 1) / SPLITS, begin = split * share;
  const int count = min(share, chunks - begin);  // of this block

  if (threadIdx.x == kThreads) {
    fetchMap(&wMap), fetchMap(&xMap);
    for (int i = 0; i < W_SLOTS; i++) initBarrier(&fullW[i], 1), initBarrier(&emptyW[i], kWarps);
    for (int i = 0; i < X_SLOTS; i++) initBarrier(&fullX[i], 1), initBarrier(&emptyX[i], kWarps * SHARERS);
    initBarrier(arrived, 1);
    publishBarriers();
    if constexpr (SPLITS > 1) expectBytes(arrived, Of::kJoined * 16);
  }
  letNextBegin();
  if constexpr (Of::kCluster > 1) clusterArrive();
  __syncthreads();

  if (warp == kWarps) {
    const auto askForWeights = [&](int chunk) {
      const int slot = chunk % W_SLOTS, column = (begin + chunk) * kChunk;
      expectBytes(&fullW[slot], Of::kW);
      copyTile(ws + slot * Of::kW, &wMap, column, firstColumn, &fullW[slot]);
      if constexpr (FORM == Form::Gated)
        copyTile(ws + slot * Of::kW + kOwn * kChunk * 2, &wMap, column, a.outputs + firstColumn, &fullW[slot]);
    };
    if (lane == 0)
      for (int i = 0; i < min(count, W_SLOTS); i++) askForWeights(i);
    __syncwarp();
    if constexpr (Of::kCluster > 1) clusterWait();  // all its blocks have barriers now
    if (lane > 0) return;
    waitForPrevious();
    for (int i = 0; i < count + X_SLOTS; i++) {
      if (i < count) {
        const int slot = i % X_SLOTS, column = (begin + i) * kChunk;
        if (i >= X_SLOTS) waitForPhase(&emptyX[slot], (i / X_SLOTS - 1) & 1);
        expectBytes(&fullX[slot], Of::kX);
        char* const to = xs + slot * Of::kX + sharer * (Of::kX / SHARERS);
        if constexpr (SHARERS == 1)
          copyTile(to, &xMap, column, firstRow, &fullX[slot]);
        else
          copyTileTo(((1 << SHARERS) - 1) << (split * SHARERS), to, &xMap, column, firstRow + sharer * (ROWS / SHARERS), &fullX[slot]);
      }
      const int next = i - X_SLOTS + W_SLOTS;
      if (i >= X_SLOTS && next < count) {
        waitForPhase(&emptyW[next % W_SLOTS], (next / W_SLOTS - 1) & 1);
        askForWeights(next);
      }
    }
    return;
  }
  if constexpr (Of::kCluster > 1) clusterWait();
  waitForPrevious();

  // what y holds, for the outputs that this thread writes: four neighbours of a row at a time
  constexpr int kFours = kOwn / 4, kWrites = (Of::kRows * kFours + kThreads - 1) / kThreads;
  const int rowOfFirst = firstRow + split * Of::kRows;
  const auto outputOf = [&](int i) {
    const int row = rowOfFirst + i / kFours, column = firstColumn + i % kFours * 4;
    return i < Of::kRows * kFours && row < a.rows && column < a.outputs ? row * a.outputs + column : -1;
  };
  uint2 before[FORM == Form::Add ? kWrites : 1];
  if constexpr (FORM == Form::Add) {
#pragma unroll
    for (int e = 0; e < kWrites; e++) {
      const int at = outputOf(threadIdx.x + e * kThreads);
      before[e] = at >= 0 ? *reinterpret_cast<const uint2*>(a.y + at) : uint2{};
    }
  } else if (threadIdx.x < Of::kRows) {
    const int row = rowOfFirst + threadIdx.x;
    float sum = 0;
    if (row < a.rows)
#pragma unroll 8
      for (int i = 0; i < a.partsOfX; i++) sum += __ldcg(a.squaresOfX + i * a.rows + row);
    scales[threadIdx.x] = a.partsOfX == 0 ? 1.0f : rsqrtf(sum / static_cast<float>(a.inputs) + a.eps);
  }

  float sums[COLUMNS / 2];  // the first product sets them: zeros before it would keep products from overlapping
  struct Place {
    int slot = 0;
    unsigned phase = 0;
  } inW, inX;
  const auto next = [](Place& place, int slots) {
    if (++place.slot == slots) place = {0, place.phase ^ 1};
  };
  const int ofGroup = __shfl_sync(0xFFFFFFFF, warp / 4, 0) * (64 * kChunk * 2);  // the same in all lanes, as the compiler has to know
  int wBefore = 0, xBefore = 0;
#pragma unroll 1
  for (int chunk = 0; chunk < count; chunk++) {
    waitForPhase(&fullW[inW.slot], inW.phase);
    waitForPhase(&fullX[inX.slot], inX.phase);
    const uint64_t w = describeRows(ws + inW.slot * Of::kW), x = describeRows(xs + inX.slot * Of::kX + ofGroup);
    beginMultiplying();
#pragma unroll
    for (int s = 0; s < 4; s++) multiplyGroup(sums, x + 2 * s, w + 2 * s, chunk + s > 0);
    commitMultiplying();
    waitForMultiplying<1>();
    if (chunk > 0) {  // the chunk before is multiplied
      __syncwarp();
      if (chunk - 1 + X_SLOTS < count && lane < SHARERS) arriveAt(&emptyX[xBefore], split * SHARERS + lane);
      if (chunk - 1 + W_SLOTS < count && lane == 0) arriveAt(&emptyW[wBefore], rank);
    }
    wBefore = inW.slot, xBefore = inX.slot;
    next(inW, W_SLOTS), next(inX, X_SLOTS);
  }
  waitForMultiplying<0>();
  if constexpr (Of::kCluster > 1) clusterArriveOnly();

  // the blocks of a cluster exchange their sums
  const int owner = warp / kMine, local = warp % kMine;
  if constexpr (SPLITS > 1) {
    const auto slotOf = [&](int from, int to) { return (from < to ? from : from - 1) * kMine + local; };
    if (owner != split) {
      const int there = owner * SHARERS + sharer, slot = slotOf(split, owner);
#pragma unroll
      for (int j = 0; j < kPieces; j++)
        sendTo(there, &joined[(slot * kPieces + j) * 32 + lane], {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]}, arrived);
    } else {
      waitForPhase(arrived, 0);
#pragma unroll
      for (int j = 0; j < kPieces; j++) {
        float4 total{0, 0, 0, 0};
#pragma unroll
        for (int from = 0; from < SPLITS; from++) {
          float4 v{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
          if (from != split) v = joined[(slotOf(from, split) * kPieces + j) * 32 + lane];
          total.x += v.x, total.y += v.y, total.z += v.z, total.w += v.w;
        }
        sums[4 * j] = total.x, sums[4 * j + 1] = total.y, sums[4 * j + 2] = total.z, sums[4 * j + 3] = total.w;
      }
    }
  }

  // All warps write. The sums go through shared memory, in the place of the chunks, so that this is a short loop: unrolled over the
  // sums in registers, its code took 3 to 6 µs to come from memory.
  float* const finished = reinterpret_cast<float*>(memory);
  syncThreads<1, kThreads>();
  if (owner == split)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = local * 16 + h * 8 + line;
      const float scale = FORM == Form::Add ? 1.0f : scales[row];
#pragma unroll
      for (int j = 0; j < kPieces; j++)
        *reinterpret_cast<float2*>(finished + row * Of::kPitch + j * 8 + part * 2) = {sums[4 * j + 2 * h] * scale,
                                                                                      sums[4 * j + 2 * h + 1] * scale};
    }
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
          const uint2 weights = *reinterpret_cast<const uint2*>(a.nextNorm + firstColumn + column);
          *reinterpret_cast<uint2*>(a.normed + at) = {times(y.x, weights.x), times(y.y, weights.y)};
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
#pragma unroll 1
    for (int i = threadIdx.x; i < Of::kRows * kFours; i += kThreads) {
      const int at = outputOf(i), column = i % kFours * 4;
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
  if constexpr (Of::kCluster > 1) {
    __syncwarp();
    clusterWait();  // no block ends while what it sends may be under way
  }
#endif
}

// —— launches ——————————————————————————————————————————————————————————————————————————————————————————————————————————
int64_t upTo(int64_t n, int64_t of) { return (n + of - 1) / of; }

/** How many blocks of a kernel the current device runs at once: clusters of four do not fill all of its multiprocessors. */
template <typename Of, typename Kernel>
int64_t blocksAtOnce(Kernel kernel) {
  constexpr int kDevices = 64;
  static int known[kDevices];  // 0: not asked yet
  int device = 0;
  cudaGetDevice(&device);
  if (device < kDevices && known[device] > 0) return known[device];
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {Of::kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessorsOfDevice() / Of::kCluster * Of::kCluster));
  config.blockDim = Of::kThreads + 32;
  config.dynamicSmemBytes = Of::kBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Of::kBytes);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) return 0;
  if (device < kDevices) known[device] = clusters * Of::kCluster;
  return clusters * Of::kCluster;
}

/** What is asked of a tile's shape: whether it fits, how many tiles there are, or the launch. */
struct Asked {
  const WideProductArgs& a;
  bool launches;
  cudaStream_t stream;
  int64_t tiles = 0;
};

/** Whether the whole product is one wave of these blocks. */
template <int ROWS, int COLUMNS, int SPLITS, int SHARERS, int W_SLOTS, int X_SLOTS, Form FORM>
bool by(Asked& asked) {
  using Of = Sizes<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM>;
  const WideProductArgs& a = asked.a;
  asked.tiles = upTo(a.outputs, Of::kOwn);
  const int64_t blocks = upTo(asked.tiles, SHARERS) * upTo(a.rows, ROWS) * Of::kCluster;
  const int64_t chunks = upTo(a.inputs, kChunk);
  if (upTo(chunks, SPLITS) * (SPLITS - 1) >= chunks) return false;  // a block would have no inputs
  const auto kernel = wideKernel<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM>;
  if (Of::kBytes > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin) || blocks > blocksAtOnce<Of>(kernel)) return false;
  if (!asked.launches) return true;
  const auto numbers = [](const void* of) { return static_cast<const Number*>(of); };
  const WideArgs args{numbers(a.bias),
                      numbers(a.nextNorm),
                      static_cast<Number*>(a.y),
                      static_cast<Number*>(a.normed),
                      a.squaresOfX,
                      a.squaresOfY,
                      static_cast<int>(a.rows),
                      static_cast<int>(a.inputs),
                      static_cast<int>(a.outputs),
                      a.squaresOfX == nullptr ? 0 : static_cast<int>(a.partsOfX),
                      a.eps};
  launchWithMemory(kernel, dim3(static_cast<unsigned>(blocks)), Of::kThreads + 32, Of::kCluster, static_cast<size_t>(Of::kBytes),
                   asked.stream, mapOf(a.x, a.rows, a.inputs, ROWS / SHARERS, kChunk),
                   mapOf(a.weight, a.outputs * (FORM == Form::Gated ? 2 : 1), a.inputs, Of::kOwn, kChunk), args);
  return true;
}

/**
 * From narrow to wide tiles. Tokens/s of whole responses on an H200 (prompts of 128 tokens, 512 new ones), before (norm kernel, cuBLAS,
 * SwiGLU) and now: 0.6B at 33, 64, 128 and 256 rows 20,572 → 26,926, 32,861 → 40,021, 42,643 → 47,852 and 54,500 → 58,284; 8B at 128 rows
 * 15,175 → 16,065. Slower at 64 rows: a block of 144 columns of qkv with the inputs split four ways (37,799), and rings of half the size, so
 * that two kernels' blocks fit on a multiprocessor (37,176). The same at 128 rows: 72 columns with x shared by two (47,921); gates and up in
 * 112 columns with x shared by two (47,186).
 */
bool launchIfFits(Asked asked, int64_t* tiles = nullptr) {
  constexpr Form kPlain = Form::Plain, kGated = Form::Gated, kAdd = Form::Add;
  const bool isSmall = asked.a.rows <= 64;
  bool fits = false;
  if (asked.a.add)
    fits = isSmall ? by<64, 72, 4, 1, 8, 8, kAdd>(asked) || by<64, 144, 4, 1, 6, 8, kAdd>(asked)
                   : by<128, 72, 4, 1, 6, 4, kAdd>(asked) || by<128, 144, 4, 1, 4, 4, kAdd>(asked);
  else if (!asked.a.gated)
    fits = isSmall ? by<64, 72, 2, 1, 8, 8, kPlain>(asked) || by<64, 144, 2, 2, 4, 8, kPlain>(asked)
                   : by<128, 144, 4, 1, 4, 4, kPlain>(asked) || by<128, 72, 2, 2, 8, 6, kPlain>(asked) ||
                         by<128, 144, 2, 2, 4, 4, kPlain>(asked);
  else
    fits = isSmall ? by<64, 96, 2, 1, 8, 8, kGated>(asked) || by<64, 208, 1, 4, 4, 8, kGated>(asked)
                   : by<128, 96, 2, 1, 8, 5, kGated>(asked) || by<128, 112, 1, 4, 6, 5, kGated>(asked) ||
                         by<128, 208, 1, 4, 4, 5, kGated>(asked);
  if (tiles != nullptr) *tiles = asked.tiles;
  return fits;
}

}  // namespace

bool wideProductFits(Kind kind, const WideProductArgs& a) {
  const bool isHopper = majorOfDevice() == 9 && attributeOfDevice(cudaDevAttrComputeCapabilityMinor) == 0;
  if (kind != Kind::BFloat16 || a.rows <= 32 || a.rows > 2 * kMostRows || !isHopper || encoder() == nullptr) return false;
  if (a.inputs % 8 != 0 || a.outputs % 8 != 0 || a.inputs * a.outputs >= INT32_MAX / 2 || (a.gated && a.add)) return false;
  return launchIfFits({a, false, nullptr});
}

int64_t wideProductParts(const WideProductArgs& a) {
  int64_t tiles = 0;
  launchIfFits({a, false, nullptr}, &tiles);
  return tiles;
}

void launchWideProduct(const WideProductArgs& a, cudaStream_t stream) { launchIfFits({a, true, stream}); }

}  // namespace attune
#else  // a CUDA without tensor maps
namespace attune {
bool wideProductFits(Kind, const WideProductArgs&) { return false; }
int64_t wideProductParts(const WideProductArgs&) { return 0; }
void launchWideProduct(const WideProductArgs&, cudaStream_t) {}
}  // namespace attune
#endif
