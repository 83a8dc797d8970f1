// Draws from a large vocabulary: the blocks of a cluster share a row, which stays in their shared memory. A row consists of tiles of 1,280
// words, one per warp. Float sums are taken over a tile in a fixed order and then over the tiles; the others are integer sums. So a row's
// token and its log-probability depend neither on the other rows nor on how many blocks share it.
//
// 1. Each tile's largest logit z and Σ e^((z − largest)/T), sent to all blocks: they give the sum over the row and, without cuts, the tile
//    to draw from. With top-k or top-p in bf16, also a histogram of the block's logits.
// 2. With top-k or top-p: finds the smallest logit that stays from the histograms of all blocks. Other dtypes than bf16, and rows with
//    rare logits, count again.
// 3. With any cut: the mass that each tile keeps, sent to all blocks.
// 4. The block that has the tile to draw from draws.
#include "cuda/sampling/kernels.h"
#include "cuda/sampling/search.cuh"

namespace attune {
namespace {

template <typename T>
__global__ void __launch_bounds__(kThreads, 1) clusterKernel(SampleArgs args, int perBlock, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Shared shared;
  const int blocks = static_cast<int>(clusterSize()), rank = static_cast<int>(clusterRank());
  clusterArrive();
  T* words = reinterpret_cast<T*>(memory);
  const int64_t row = blockIdx.x / blocks;
  Tiles<T> of{shared,
              words,
              args,
              row,
              rank,
              blocks,
              perBlock,
              tiles,
              max(0, min(perBlock, tiles - rank * perBlock)),
              static_cast<int>(threadIdx.x % 32),
              static_cast<int>(threadIdx.x / 32)};
  Search<T> search{of, reinterpret_cast<unsigned*>(words + perBlock * kTile)};
  of.prepare();
  search.clear();
  __syncthreads();
  // Of rows that go on by themselves all but the logits was there before the step began.
  if (args.turns == nullptr) waitForPrevious();
  const RowRule rule(args, row);
  const double uniform = of.warp == 0 ? uniformOf(args, row) : 0.0;
  if (args.turns != nullptr) waitForPrevious();
  letNextBegin();
  of.load();
  of.inverse = rule.inverse;
  of.scale = rule.inverse * 1.44269504f;
  const bool searches = !rule.isGreedy && (rule.topK > 0 || rule.topP < 1), hasCut = searches || (!rule.isGreedy && rule.minP > 0);
  of.measureTiles([&](int i, float base) {
    if constexpr (Search<T>::kIsBFloat16)
      if (searches) return search.countTile(i, base);
    return 0.0f;
  });
  meet();
  if (of.warp == 0) {
    of.sumTiles(hasCut);
    if (rule.isGreedy) return of.takeLikeliest();
    if (searches) search.begin(rule);
  }
  float cut = 0;
  if (hasCut) {
    __syncthreads();
    of.peak = shared.peak;
    of.total = shared.total;
    cut = searches ? search.cut(rule) : rule.minP;
    of.measureKept(cut);
    meet();
  }
  if (of.warp == 0) of.draw(uniform, cut);
#endif
}

// —— launches ——————————————————————————————————————————————————————————————————————————————————————————————————————————
int64_t upTo(int64_t n, int64_t of) { return (n + of - 1) / of; }

/** How many blocks share a row. */
struct Sharing {
  int64_t blocks, perBlock, bytes;  // perBlock: tiles; bytes: of a block's shared memory
};
template <typename T>
Sharing sharingBy(int64_t blocks, int64_t tiles) {
  const int64_t perBlock = upTo(tiles, blocks);
  return {blocks, perBlock,
          perBlock * kTile * static_cast<int64_t>(sizeof(T)) + kBinParts<T> * kBins * static_cast<int64_t>(sizeof(unsigned))};
}
template <typename T>
bool fits(const Sharing& by) {
  const bool mayOverflow = kBinParts<T> == 2 && by.perBlock * kTile > 65536;  // a bin's sum of as many numbers of 16 bits
  return !mayOverflow &&
         by.bytes + static_cast<int64_t>(sizeof(Shared)) + 1024 <= attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
}

/** How many rows the current device draws at once. */
template <typename T>
int64_t rowsAtOnce(const Sharing& by) {
  struct Known {
    int device = -1;
    int64_t bytes = 0, rows = 0;
  };
  static thread_local Known known[kMostBlocks];
  int device = 0;
  cudaGetDevice(&device);
  Known& of = known[by.blocks - 1];
  if (of.device == device && of.bytes == by.bytes) return of.rows;
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(by.blocks), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(by.blocks * multiprocessorsOfDevice()));
  config.blockDim = kThreads;
  config.dynamicSmemBytes = static_cast<size_t>(by.bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  raiseAttribute(reinterpret_cast<const void*>(clusterKernel<T>), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(by.bytes));
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, clusterKernel<T>, &config) != cudaSuccess) {
    cudaGetLastError();  // fewer blocks are taken: the next launch's check must not find it
    return 0;
  }
  of = {device, by.bytes, clusters};
  return clusters;
}

/**
 * As many blocks as give each tile a warp, and fewer where rows would have to wait for each other. Of 151,936 words an H200 has room for 30
 * rows of four blocks, for 66 of two.
 */
template <typename T>
Sharing sharingOf(int64_t rows, int64_t tiles) {
  Sharing by = sharingBy<T>(kMostBlocks, tiles);
  for (int64_t blocks = kMostBlocks / 2; blocks > 0; blocks /= 2) {
    const Sharing fewer = sharingBy<T>(blocks, tiles);
    if (!fits<T>(fewer) || (fewer.perBlock > kWarps && fits<T>(by) && rowsAtOnce<T>(by) >= rows)) break;
    by = fewer;
  }
  return by;
}

template <typename T>
bool launch(const SampleArgs& args, cudaStream_t stream) {
  const int64_t tiles = upTo(args.size, kTile);
  if (majorOfDevice() < 9 || tiles > kMostTiles) return false;
  const Sharing by = sharingOf<T>(args.rows, tiles);
  if (!fits<T>(by)) return false;
  launchWithMemory(clusterKernel<T>, dim3(static_cast<unsigned>(args.rows * by.blocks)), kThreads, static_cast<unsigned>(by.blocks),
                   static_cast<size_t>(by.bytes), stream, args, static_cast<int>(by.perBlock), static_cast<int>(tiles));
  return true;
}

}  // namespace

bool launchCluster(Kind kind, const SampleArgs& args, cudaStream_t stream) {
  ATTUNE_BY_KIND(kind, { return launch<T>(args, stream); })
  return false;
}

}  // namespace attune
