// Products of 17 to 256 rows, in bf16 on compute capability 9.0 (product.cu has those of fewer; narrow_product.cu those of up to 32 rows of
// wider models).
//
// A block multiplies ROWS rows of x with COLUMNS rows of W on its multiprocessor's tensor cores, 64 rows by each warpgroup. Chunks of 64
// inputs of both are loaded into shared memory. They stay there if all fit, or else go through a ring: a warp requests those of W before
// the kernel that computes x has ended, another one requests those of x as soon as it has.
//
// The bound is what the L2 cache delivers, 5 TB/s: 128 blocks that each read all of x would take 6 µs. So a cluster of blocks splits the
// inputs SPLITS ways, and SHARERS blocks with the same inputs and other columns each request a part of x's chunk, which goes to all of
// them. Every block adds the partial sums of some of the rows, always in the same order.
//
// A norm is part of the product before it: that product writes x, x times the norm's weights, and its columns' share of each row's Σ x².
// The product after it multiplies by 1/√(mean x² + ε) at the end.
//
// A product prefetches the beginning of the next one's W into the L2 cache: a layer of 0.6B at 64, 128 and 256 rows takes 0.5, 1.0 and 0.4
// µs less.
#include "cuda/wide/wide_product.h"

#include <algorithm>

#include "cuda/mma.cuh"

#if CUDART_VERSION >= 12050
#include "cuda/wide/tensor_map.h"
#include "cuda/wide/wide_kernel.cuh"

namespace attune {
namespace {

constexpr int kMostRows = 256;
constexpr int64_t kWidestOfFew = 2048;  // of models whose 17 to 32 rows these kernels take; narrow_product.cu has those of others

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
  config.blockDim = Of::kAll;
  config.dynamicSmemBytes = Of::kBytes;
  config.attrs = &attribute;
  config.numAttrs = 1;
  raiseAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, Of::kBytes);
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) != cudaSuccess) {
    cudaGetLastError();  // another kernel is taken: the next launch's check must not find it
    return 0;
  }
  if (device < kDevices) known[device] = clusters * Of::kCluster;
  return clusters * Of::kCluster;
}

/** What a product's blocks read of W. */
struct Weights {
  CUtensorMap map;
  NextWeights deal;
};

/** What is asked of a tile's shape: whether it fits, how many tiles there are, what its blocks read of W, or the launch. */
struct Asked {
  const WideProductArgs& a;
  bool launches;
  cudaStream_t stream;
  int64_t tiles = 0;
  Weights* weights = nullptr;
};

Weights weightsOf(const WideProductArgs& next);

/**
 * Whether a matrix is small beside the L2 cache. Of larger ones memory reads all the time: 8B at 128 rows did not gain. They leave the cache
 * first, so that x and what is written stay: a layer there takes 2 µs less.
 */
bool isWorthFetching(const WideProductArgs& a) {
  return a.inputs * a.outputs * (a.gated ? 2 : 1) * static_cast<int64_t>(sizeof(Number)) * 2 <= attributeOfDevice(cudaDevAttrL2CacheSize);
}

/** Whether the whole product is one wave of these blocks. */
template <int ROWS, int COLUMNS, int SPLITS, int SHARERS, int W_SLOTS, int X_SLOTS, Form FORM, bool WHOLE = false>
bool by(Asked& asked) {
  using Of = Sizes<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM, WHOLE>;
  const WideProductArgs& a = asked.a;
  asked.tiles = upTo(a.outputs, Of::kOwn);
  const int64_t blocks = upTo(asked.tiles, SHARERS) * upTo(a.rows, ROWS) * Of::kCluster;
  const int64_t chunks = upTo(a.inputs, kChunk);
  if (upTo(chunks, SPLITS) * (SPLITS - 1) >= chunks) return false;  // a block would have no inputs
  if (WHOLE && upTo(chunks, SPLITS) > std::min(W_SLOTS, X_SLOTS)) return false;
  const auto kernel = wideKernel<ROWS, COLUMNS, SPLITS, SHARERS, W_SLOTS, X_SLOTS, FORM, WHOLE>;
  if (Of::kBytes > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin) ||
      blocks > std::min<int64_t>(blocksAtOnce<Of>(kernel), multiprocessorsOfDevice()))
    return false;
  const auto mapOfWeights = [&] { return mapOf(a.weight, FORM == Form::Gated ? 2 : 1, a.outputs, a.inputs, Of::kOwn, kChunk); };
  if (asked.weights != nullptr) {
    const int sets = static_cast<int>(upTo(a.rows, ROWS)), share = static_cast<int>(upTo(chunks, SPLITS));
    *asked.weights = {mapOfWeights(), {static_cast<int>(blocks), Of::kCluster, SHARERS, sets, Of::kOwn, share}};
  }
  if (!asked.launches) return true;
  const CUtensorMap map = mapOfWeights();
  const Weights next = a.next != nullptr && isWorthFetching(*a.next) ? weightsOf(*a.next) : Weights{map, {}};
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
                      a.eps,
                      !isWorthFetching(a)};
  const int64_t mapped = std::min(std::max(a.rows, a.readableRows), upTo(a.rows, ROWS) * ROWS);
  launchWithMemory(kernel, dim3(static_cast<unsigned>(blocks)), Of::kAll, Of::kCluster, static_cast<size_t>(Of::kBytes), asked.stream,
                   mapOf(a.x, 1, mapped, a.inputs, ROWS / SHARERS, kChunk), map, next.map, next.deal, args);
  return true;
}

/**
 * From narrow to wide tiles, as a layer with attention over a cache in 8 bits between them was fastest on an H200. µs at 64, 128 and 256 rows
 * of 0.6B and 128 of 8B, 384 keys: 34.0, 55.4, 89.9 and 146.8; the four products alone 16.3, 23.6, 29.1 and 110.1. Slower in a layer: out in
 * 40 columns (0.4 at 64 rows); out and down in 40 columns of 128 rows with rings as long as there is room (1.1 at 128 rows); qkv in 144
 * columns (0.9 at 256 rows, 3 at 8B); gates and up that share x by four (0.4 at 256 rows, 1 at 8B). In a chain of products alone: x shared
 * by two or four blocks (0.3 to 0.7), qkv in 80 columns (0.6), gates and up in 48 columns without a split (0.6 at 64 rows), and rings so
 * small that two kernels' blocks have room on a multiprocessor (1.6 to 3).
 *
 * 32 rows of 0.6B take 22.8, and 27.1 with a cache in 16 bits (narrow_product.cu 28.3 and 32.1): blocks of out, of down and of qkv have room
 * beside those of the kernel before, with all of their W and x. 32 rows of 1.7B take 42.4 (45.0), of 4B 74.0 (70.9).
 */
bool launchIfFits(Asked asked, int64_t* tiles = nullptr) {
  constexpr Form kPlain = Form::Plain, kGated = Form::Gated, kAdd = Form::Add;
  // isShort: x is so short that every block may read all of it
  const bool isSmall = asked.a.rows <= 64, isShort = asked.a.inputs <= 1024;
  bool fits = false;
  if (asked.a.rows <= 32 && asked.a.add)
    fits = by<32, 40, 4, 1, 8, 8, kAdd, true>(asked) || by<32, 32, 4, 1, 12, 12, kAdd, true>(asked) ||
           by<32, 72, 4, 1, 8, 8, kAdd, true>(asked) || by<32, 72, 4, 1, 12, 12, kAdd>(asked);
  else if (asked.a.rows <= 32 && asked.a.gated)
    fits = by<32, 96, 2, 1, 8, 5, kGated>(asked) || by<32, 192, 2, 1, 7, 7, kGated>(asked);
  else if (asked.a.rows <= 32)
    fits = by<32, 72, 2, 1, 8, 8, kPlain, true>(asked) || by<32, 144, 4, 1, 8, 8, kPlain, true>(asked) ||
           by<32, 144, 4, 1, 8, 8, kPlain>(asked);
  else if (asked.a.add)
    fits = isSmall ? by<64, 72, 4, 1, 8, 8, kAdd, true>(asked) || by<64, 40, 4, 1, 12, 12, kAdd, true>(asked) ||
                         by<64, 72, 4, 1, 8, 8, kAdd>(asked) || by<64, 144, 4, 1, 6, 8, kAdd>(asked)
                   : by<64, 40, 4, 1, 8, 8, kAdd, true>(asked) || by<128, 40, 4, 1, 8, 3, kAdd>(asked) ||
                         by<128, 72, 4, 1, 6, 4, kAdd>(asked) || by<128, 144, 4, 1, 5, 3, kAdd>(asked);
  else if (!asked.a.gated)
    fits = isSmall ? by<64, 72, 2, 1, 8, 8, kPlain, true>(asked) || by<64, 72, 2, 1, 8, 8, kPlain>(asked) ||
                         by<64, 144, 2, 2, 4, 8, kPlain>(asked)
                   : by<128, 72, 2, 1, 8, 8, kPlain, true>(asked) || by<128, 144, 4, 1, 4, 4, kPlain>(asked) ||
                         by<128, 72, 2, 2, 8, 6, kPlain>(asked) || by<128, 96, 2, 1, 8, 4, kPlain>(asked) ||
                         (isShort && by<128, 64, 1, 1, 8, 6, kPlain>(asked)) || by<128, 144, 2, 2, 4, 4, kPlain>(asked);
  else
    fits = isSmall ? by<64, 96, 2, 1, 8, 8, kGated, true>(asked) || by<64, 96, 2, 1, 8, 8, kGated>(asked) ||
                         by<64, 208, 1, 4, 4, 8, kGated>(asked)
                   : by<128, 96, 2, 1, 8, 5, kGated>(asked) || (isShort && by<128, 96, 1, 1, 8, 5, kGated>(asked)) ||
                         by<128, 112, 1, 4, 6, 5, kGated>(asked) || by<128, 192, 1, 1, 5, 4, kGated>(asked) ||
                         by<128, 208, 1, 4, 4, 5, kGated>(asked);
  if (tiles != nullptr) *tiles = asked.tiles;
  return fits;
}

Weights weightsOf(const WideProductArgs& next) {
  Weights weights{};
  Asked asked{next, false, nullptr};
  asked.weights = &weights;
  launchIfFits(asked);
  return weights;
}

}  // namespace

bool wideProductFits(Kind kind, const WideProductArgs& a) {
  const bool isHopper = majorOfDevice() == 9 && attributeOfDevice(cudaDevAttrComputeCapabilityMinor) == 0;
  if (kind != Kind::BFloat16 || a.rows <= 16 || a.rows > kMostRows || !isHopper || encoder() == nullptr) return false;
  if (a.rows <= 32 && (a.add ? a.outputs : a.inputs) > kWidestOfFew) return false;
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
