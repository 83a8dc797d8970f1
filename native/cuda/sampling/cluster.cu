// Drawing from a large vocabulary: the blocks of a cluster share a row, which stays in their shared memory. A row is made of tiles of
// 1,280 words, each a warp's. Sums are taken of a tile in a fixed order, then of the tiles, or they are of whole numbers: a row's token
// and its log-probability depend neither on the other rows nor on how many blocks share it.
//
// 1. Each tile's largest logit z and Σ e^((z − largest)/T), told to all blocks: the sum over the row, and without cuts the tile to draw
//    from.
// 2. With top-k or top-p: how many words have which logit, and from that the smallest logit that stays.
// 3. With any cut: the mass that each tile keeps, told to all blocks.
// 4. The block that has the tile to draw from draws.
#include "cuda/sampling/kernels.h"
#include "cuda/sampling/search.cuh"

namespace attune {
namespace {

template <typename T, int THREADS>
__global__ void __launch_bounds__(THREADS, THREADS == 256 ? 4 : 2) clusterKernel(SampleArgs args, int perBlock, int tiles) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ Shared shared;
  const int blocks = static_cast<int>(clusterSize()), rank = static_cast<int>(clusterRank());
  clusterArrive();
  T* words = reinterpret_cast<T*>(memory);
  const int64_t row = blockIdx.x / blocks;
  Tiles<T, THREADS> of{shared,
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
  Search<T, THREADS> search{of, reinterpret_cast<unsigned*>(words + perBlock * kTile)};
  // Of rows that go on by themselves all but the logits was there before the step began.
  if (args.turns == nullptr) waitForPrevious();
  const RowRule rule(args, row);
  const double uniform = of.warp == 0 ? uniformOf(args, row) : 0.0;
  if (args.turns != nullptr) waitForPrevious();
  letNextBegin();
  of.load();
  of.inverse = rule.inverse;
  of.scale = rule.inverse * 1.44269504f;
  const bool searches = rule.temperature > 0 && (rule.topK > 0 || rule.topP < 1),
             hasCut = searches || (rule.temperature > 0 && rule.minP > 0);
  if (searches) search.clear();
  of.measureTiles();
  meet();
  if (of.warp == 0) {
    of.sumTiles();
    if (rule.temperature <= 0) return of.takeLikeliest();
    if (!hasCut) return of.draw(uniform, 0.0f, false, [&](int i) { return of.massOf(shared.tiles[i]); });
    if (searches) search.begin(rule);
  }
  if (!hasCut) return;
  __syncthreads();
  of.peak = shared.peak;
  of.total = shared.total;
  const float cut = searches ? search.cut(rule) : rule.minP;
  of.measureKept(cut);
  meet();
  if (of.warp == 0) of.draw(uniform, cut, cut > 0, [&](int i) { return shared.kept[i]; });
#endif
}

template <typename T>
bool launch(const SampleArgs& args, cudaStream_t stream) {
  const int64_t tiles = (args.size + kTile - 1) / kTile, blocks = tiles < kMostBlocks ? 1 : kMostBlocks;
  const int64_t perBlock = (tiles + blocks - 1) / blocks, room = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  const int64_t bytes = perBlock * kTile * static_cast<int64_t>(sizeof(T)) + kBinParts<T> * kBins * static_cast<int64_t>(sizeof(unsigned));
  if (majorOfDevice() < 9 || tiles > kMostTiles || bytes + static_cast<int64_t>(sizeof(Shared)) + 1024 > room) return false;
  const auto launchBlocks = [&](auto kernel, int threads) {
    launchWithMemory(kernel, dim3(static_cast<unsigned>(args.rows * blocks)), threads, static_cast<unsigned>(blocks),
                     static_cast<size_t>(bytes), stream, args, static_cast<int>(perBlock), static_cast<int>(tiles));
  };
  // where there is a multiprocessor for each block, a warp for each tile
  if (args.rows * blocks <= multiprocessorsOfDevice())
    launchBlocks(clusterKernel<T, 512>, 512);
  else
    launchBlocks(clusterKernel<T, 256>, 256);
  return true;
}

}  // namespace

bool launchCluster(Kind kind, const SampleArgs& args, cudaStream_t stream) {
  ATTUNE_BY_KIND(kind, { return launch<T>(args, stream); })
  return false;
}

}  // namespace attune
