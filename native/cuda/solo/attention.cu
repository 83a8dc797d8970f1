// Attention of a one-row decoding step and the product after it (the output projection), in one kernel. For bf16, with heads of 128
// numbers, two query heads per kv head, and a model 1,024 wide.
//
// A cluster of eight blocks handles a kv head, and each of its warps at most one tile of keys and values. These and the block's share of W
// are requested before the previous kernel ends. A block sends the sums of its tiles to all blocks of the cluster, so that each has the
// whole result of the kv head's query heads. Block j multiplies it by an eighth of W's rows and adds the result to sums in fixed point,
// whose order does not matter.
#include "cuda/solo/fixed_sums.cuh"
#include "cuda/solo/kernels.h"
#include "cuda/solo/tiles.cuh"

namespace attune {
namespace {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/** storeAsync of four numbers. */
__device__ inline void storeFour(unsigned to, float4 x, unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to), "f"(x.x), "f"(x.y),
               "f"(x.z), "f"(x.w), "r"(barrier)
               : "memory");
}
#endif

constexpr int kSoloCluster = 8, kSoloWarps = 8, kSoloThreads = 32 * kSoloWarps, kSoloHeads = 2, kSoloWidth = 1024, kSoloKeys = 1024;
// Of shared memory, more than a cache in 8 bits needs. Who has room on a multiprocessor beside whom decides when weights come: a layer of 0.6B took
// 12.5 µs with 112 KB, where a block of gates and up fits beside one of this kernel, 11.7 to 12.0 with 120 to 144, and 13.3 with 152, where one
// of qkv no longer does.
constexpr int kSoloBytes = 128 << 10;

/** How much of W a lane has: outputs g and g + 8 of the warp's 16, of every chunk of 32 inputs those from 8t on. */
template <typename Tile>
struct SoloAttentionShape {
  static constexpr int kInputs = kSoloHeads * Tile::D, kChunks = kInputs / 32;
  static constexpr int kTiles = kSoloKeys / Tile::kKeys / kSoloCluster;  // warps of a block that have one
  using Weights = Parked<2 * kChunks>;
  static_assert(kSoloWarps * Weights::kBytes + kTiles * Tile::kBytes <= kSoloBytes);
  static_assert(kTiles <= kSoloWarps && kSoloCluster * kSoloWarps * 16 == kSoloWidth && kInputs == kSoloThreads);
  static_assert(Tile::kBytes >= kInputs * static_cast<int>(sizeof(float)));  // a tile makes room for its sums
};

template <typename Tile>
__global__ void __launch_bounds__(kSoloThreads, 3) attentionSoloKernel(AttentionArgs a, SoloProduct to) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using T = typename Tile::T;
  using Shape = SoloAttentionShape<Tile>;
  constexpr int D = Tile::D, kInputs = Shape::kInputs, kChunks = Shape::kChunks, kLate = kChunks / 2;
  constexpr float kLog2 = 1.44269504f;
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t arrived;
  __shared__ __align__(16) typename Tile::Query queries[kSoloHeads * Tile::kQuery];
  __shared__ __align__(16) char newest[Tile::Cache::kBytesOfNewest];
  __shared__ __align__(16) T inputs[kInputs];
  __shared__ __align__(16) float received[kSoloCluster][kInputs], scratch[kSoloHeads + 2][D];
  __shared__ float2 marks[Shape::kTiles][kSoloHeads], receivedMarks[kSoloCluster][kSoloHeads];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % kSoloCluster, group = static_cast<int>(blockIdx.x) / kSoloCluster;
  __builtin_assume(!a.interleaved);
  __builtin_assume(a.half == D / 2);
  if (threadIdx.x == 0) {
    initBarrier(&arrived);
    publishBarriers();
    expectBytes(&arrived, sizeof(received) + sizeof(receivedMarks));
  }
  clusterArrive();
  letNextBegin();

  // —— what does not depend on the kernel before ——
  const SoloSpan span(a, Tile::kKeys);
  const int count = (span.last - span.first - rank + kSoloCluster) / kSoloCluster;  // tiles of this block
  char* const tiles = memory + kSoloWarps * Shape::Weights::kBytes;
  Tile tile(span, span.first + warp * kSoloCluster + rank, tiles + warp * Tile::kBytes);
  if (warp < count) tile.ask(a, group);
  commitCopies();
  const int output = (rank * kSoloWarps + warp) * 16, inputsOfAll = static_cast<int>(a.heads) * D;
  const T* const weights = static_cast<const T*>(to.weight) + static_cast<int64_t>(output + g) * inputsOfAll + group * kInputs + t * 8;
  const typename Shape::Weights parked(memory + warp * Shape::Weights::kBytes);
#pragma unroll
  for (int i = 0; i < 2 * kChunks; i++) parked.ask(i, weights + i % 2 * 8 * inputsOfAll + i / 2 * 32);
  commitCopies();

  // —— a head of q, or of the new token's k or v, per warp ——
  const int64_t newestPlace = soloPlace(a, span.position);
  Head<T, D> head(a, span.position, warp < kSoloHeads ? a.qWeight : warp == kSoloHeads ? a.kWeight : nullptr, warp <= kSoloHeads);
  clusterWait();  // all blocks of the cluster have begun, and their barriers are there
  waitForPrevious();
  if (warp < kSoloHeads) {
    head.prepare(static_cast<const T*>(a.q) + (group * kSoloHeads + warp) * D, scratch[warp]);
    Tile::putQuery(head.values, queries + warp * Tile::kQuery);
  } else if (warp < kSoloHeads + 2) {
    if ((span.last - span.first) % kSoloCluster == rank) {
      const int which = warp - kSoloHeads;
      head.prepare(static_cast<const T*>(which == 0 ? a.k : a.v) + group * D, scratch[warp]);
      Tile::Cache::write(a, newestPlace, group, which, head, newest, true);
    }
  } else if (warp == kSoloWarps - 1) {
    constexpr int kEach = kSoloWidth / kSoloCluster;
    for (int i = lane; i < kEach / static_cast<int>(a.groups); i += 32)
      to.cleared[rank * kEach + group * (kEach / static_cast<int>(a.groups)) + i] = 0;
  }
  __syncthreads();

  // —— the warp's tile ——
  const auto sumsOf = [&](int ofWarp) { return reinterpret_cast<float*>(tiles + ofWarp * Tile::kBytes); };
  if (warp < count) {
    waitForCopies<1>();  // the tile is there
    tile.attend(queries, kSoloHeads, newest, a.scale * kLog2);
    __syncwarp();  // all lanes have read it
#pragma unroll
    for (int j = 0; j < kSoloHeads; j++)
      if (t == 0) {
        tile.store(j, sumsOf(warp) + j * D);
        if (g == 0) marks[warp][j] = tile.mark(j);
      }
  }
  __syncthreads();

  // —— the block's sums, to all blocks: a warp takes a query head and sends it to two of them ——
  const int ofHead = warp % kSoloHeads;
  float2 mark{-INFINITY, 0};
  float4 sum{};
#pragma unroll
  for (int i = 0; i < Shape::kTiles; i++)
    if (i < count) mark.x = fmaxf(mark.x, marks[i][ofHead].x);
#pragma unroll
  for (int i = 0; i < Shape::kTiles; i++)
    if (i < count) {
      const float2 own = marks[i][ofHead];
      const float4 part = *reinterpret_cast<const float4*>(sumsOf(i) + ofHead * D + lane * 4);
      const float fade = powerOf2(own.x - mark.x);
      mark.y += own.y * fade;
      sum.x += part.x * fade, sum.y += part.y * fade, sum.z += part.z * fade, sum.w += part.w * fade;
    }
#pragma unroll
  for (int i = 0; i < kSoloHeads; i++) {
    const int block = warp / kSoloHeads * kSoloHeads + i;
    const unsigned barrier = addressOf(&arrived, block);
    storeFour(addressOf(&received[rank][ofHead * D + lane * 4], block), sum, barrier);
    if (lane == 0) storeAsync(addressOf(&receivedMarks[rank][ofHead], block), mark, barrier);
  }
  // meanwhile W comes to registers
  uint4 w[kChunks][2];
  waitForCopies<0>();
#pragma unroll
  for (int i = 0; i < kChunks - kLate; i++) w[i][0] = parked.get(2 * i), w[i][1] = parked.get(2 * i + 1);
  waitForStores(&arrived);
  {
    const int which = threadIdx.x / D;
    float top = -INFINITY, all = 0, result = 0;
#pragma unroll
    for (int i = 0; i < kSoloCluster; i++) top = fmaxf(top, receivedMarks[i][which].x);
#pragma unroll
    for (int i = 0; i < kSoloCluster; i++) {
      const float2 one = receivedMarks[i][which];
      const float fade = powerOf2(one.x - top);
      all += one.y * fade;
      result += received[i][threadIdx.x] * fade;
    }
    inputs[threadIdx.x] = narrow<T>(__fdividef(result, all));
  }
  __syncthreads();

  // —— the product: all columns of x are the same, and so are the products' ——
  float products[4][4] = {};
#pragma unroll
  for (int i = 0; i < kChunks; i++) {
    if (i >= kChunks - kLate) w[i][0] = parked.get(2 * i), w[i][1] = parked.get(2 * i + 1);
    const uint4 x = *reinterpret_cast<const uint4*>(inputs + i * 32 + t * 8);
    multiply<T>(products[i % 2 * 2], w[i][0].x, w[i][1].x, w[i][0].y, w[i][1].y, x.x, x.y);
    multiply<T>(products[i % 2 * 2 + 1], w[i][0].z, w[i][1].z, w[i][0].w, w[i][1].w, x.z, x.w);
  }
  const auto rowOf = [&](int c) { return products[0][c] + products[1][c] + (products[2][c] + products[3][c]); };
  if (t < 2) addFixed(to.added + output + t * 8 + g, t == 0 ? rowOf(0) : rowOf(2));
#endif
}

template <typename Tile>
void attend(const AttentionArgs& a, const SoloProduct& to, cudaStream_t stream) {
  launchWithMemory(attentionSoloKernel<Tile>, dim3(static_cast<unsigned>(a.groups * kSoloCluster)), kSoloThreads, kSoloCluster, kSoloBytes,
                   stream, a, to);
}

}  // namespace

bool soloAttentionFits(const AttentionArgs& a, int64_t width) {
  return majorOfDevice() == 9 && a.rows == 1 && width == kSoloWidth && a.size == SoloTile::D && a.heads == kSoloHeads * a.groups &&
         kSoloWidth / kSoloCluster % a.groups == 0 && a.groups <= kFixedParts && a.groups * kSoloCluster <= multiprocessorsOfDevice() &&
         a.tableWidth * kCacheBlock <= kSoloKeys && !a.interleaved && a.half == a.size / 2;
}

void launchSoloAttention(const AttentionArgs& a, const SoloProduct& to, cudaStream_t stream) {
  if (a.keyScales != nullptr)
    attend<SoloEightBitTile>(a, to, stream);
  else
    attend<SoloTile>(a, to, stream);
}

}  // namespace attune
