// Gradients of keys and values: a block has 64 keys and goes through the rows that see them. Scores are held transposed, so that
// they are the left side of both products.
//   dV = Pᵀ·dO,  dK = scale·dSᵀ·Q
#include "cuda/training/attention/cluster_sums.cuh"
#include "cuda/training/attention/groups.h"
#include "cuda/training/attention/tiles.cuh"

namespace attune {
namespace {

constexpr int kRows = 64, kTiles = kRows / kTile;  // rows of a stage
constexpr int kAtOnce = 2;  // tiles of rows

template <typename T, int D, Tiles TILES>
__global__ void __launch_bounds__(kBlockThreads, kKeyBlocksAtOnce) keyGradientsKernel(CausalAttentionBackwardArgs b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr bool kFamilies = TILES == Tiles::FamilyKeys;
  constexpr int kStage = 2 * kRows * D;
  extern __shared__ __align__(128) char dynamicShared[];
  T* const shared = reinterpret_cast<T*>(dynamicShared);
  const CausalAttentionArgs& a = b.forward;
  const int splits = kFamilies ? static_cast<int>(clusterSize()) : 1, split = kFamilies ? static_cast<int>(clusterRank()) : 0;
  const Part<TILES> part(a, blockIdx.x / splits);
  if (part.place.length == 0) return;  // without a wait: some block of every launch has keys (causal_attention.cc), and waits for all
  const int firstKey = part.place.tile * kBlockRows, keyCount = part.place.length - firstKey, firstRow = firstKey * part.share;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int warpKey = firstKey + warp * kTile;
  const T* const k = static_cast<const T*>(a.k) + static_cast<int64_t>(part.place.start + firstKey) * a.kStride + part.group * D;
  const T* const v = static_cast<const T*>(a.v) + static_cast<int64_t>(part.place.start + firstKey) * a.vStride + part.group * D;
  T *const ownKeys = shared + 2 * kStage, *const ownValues = ownKeys + kBlockRows * D;
  float* const statistics = reinterpret_cast<float*>(ownValues + kBlockRows * D);  // of each stage kRows lse and kRows dots
  const Copier<T, D> copier;
  copier.template copy<kBlockRows>(ownKeys, keyCount, k + copier.line * a.kStride + copier.number, copier.kLines * a.kStride);
  copier.template copy<kBlockRows>(ownValues, keyCount, v + copier.line * a.vStride + copier.number, copier.kLines * a.vStride);
  commitCopies();
  // Keys of families come first and have waited for the gradients of queries when this kernel begins: it runs beside them.
  if (kFamilies || a.familyCount == 0) waitForPrevious();
  if (kFamilies) letNextBegin();

  const RowsOf<const T, D> q(static_cast<const T*>(a.q), a.qStride, part), given(static_cast<const T*>(b.gradient), a.heads * D, part);
  const float *const lses = a.lse + part.statistics(a), *const dots = b.dots + part.statistics(a);
  const auto rowOf = [&](int stage) { return firstRow + (stage * splits + split) * kRows; };
  const auto ask = [&](int stage) {
    T* const to = shared + stage % 2 * kStage;
    const int from = rowOf(stage), real = part.rows - from;
    copyRows<T, D, kRows>(to, real, from, q);
    copyRows<T, D, kRows>(to + kRows * D, real, from, given);
    commitCopies();
    float* const also = statistics + stage % 2 * 2 * kRows;
    if (threadIdx.x < kRows) {
      const int row = threadIdx.x;
      also[row] = row < real ? lses[from + row] : INFINITY;  // rows after the last weigh nothing
      also[kRows + row] = row < real ? dots[from + row] : 0.0f;
    }
  };
  ask(0);
  waitForCopies<1>();
  __syncthreads();
  LeftRows<T, D> keys;
  keys.load(ownKeys + warp * Tile<D>::kNumbers);

  const float scale = a.scale * 1.44269504f;
  float dk[D / 8][4], dv[D / 8][4];
  clear<D>(dk);
  clear<D>(dv);
  const int count = ((part.rows - firstRow + kRows - 1) / kRows - split + splits - 1) / splits;
  const bool works = warpKey < part.place.length;
  for (int stage = 0; stage < count; stage++) {
    waitForCopies<0>();
    __syncthreads();  // this stage has arrived, and all warps have read the other
    if (stage + 1 < count) ask(stage + 1);
    if (!works) continue;
    const T *queries = shared + stage % 2 * kStage, *gradients = queries + kRows * D;
    const float* const also = statistics + stage % 2 * 2 * kRows;
#pragma unroll 1
    for (int n = 0; n < kTiles; n += kAtOnce) {
      const int from = rowOf(stage) + n * kTile;
      if (from >= part.rows) break;
      if (part.query(from + kAtOnce * kTile - 1) < warpKey) continue;
      float p[2 * kAtOnce][4], ds[2 * kAtOnce][4];
      multiplyRows<T, D, kAtOnce>(p, keys, queries + n * Tile<D>::kNumbers);
      LeftRows<T, D> values;  // every time, for want of registers
      values.load(ownValues + warp * Tile<D>::kNumbers);
      multiplyRows<T, D, kAtOnce>(ds, values, gradients + n * Tile<D>::kNumbers);
#pragma unroll
      for (int i = 0; i < 2 * kAtOnce; i++) {
        const int column = n * kTile + 8 * i + 2 * t;
        const float2 lse = *reinterpret_cast<const float2*>(also + column), dot = *reinterpret_cast<const float2*>(also + kRows + column);
#pragma unroll
        for (int j = 0; j < 4; j++) {
          p[i][j] = powerOf2(p[i][j] * scale - (j % 2 == 0 ? lse.x : lse.y));
          ds[i][j] = p[i][j] * (ds[i][j] - (j % 2 == 0 ? dot.x : dot.y));
        }
      }
      if (part.query(from) < warpKey + kTile - 1) {
#pragma unroll
        for (int i = 0; i < 2 * kAtOnce; i++)
#pragma unroll
          for (int j = 0; j < 4; j++)
            if (warpKey + g + j / 2 * 8 > part.query(from + 8 * i + 2 * t + j % 2)) p[i][j] = ds[i][j] = 0;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        addProduct<T, D>(dv, p + 2 * i, gradients + (n + i) * Tile<D>::kNumbers);
        addProduct<T, D>(dk, ds + 2 * i, queries + (n + i) * Tile<D>::kNumbers);
      }
    }
  }

  const int64_t row = a.groups * D, first = (part.place.start + firstKey) * row + part.group * D;
  if (kFamilies && splits > 1) {
    waitForCopies<0>();  // of a block without any stage
    __syncthreads();  // all warps have read the stages, whose room the sums take
    const ClusterSums<T, D> sums{reinterpret_cast<float*>(dynamicShared)};
    sums.put(0, dv[0]);
    sums.put(1, dk[0]);
    clusterArrive();
    clusterWait();
    sums.store(0, static_cast<T*>(b.dv) + first, row, keyCount, 1);
    sums.store(1, static_cast<T*>(b.dk) + first, row, keyCount, a.scale);
    clusterArrive();
    clusterWait();  // the others have read this block's
    return;
  }
  putRows<T, D>(ownValues + warp * Tile<D>::kNumbers, dv, 1, 1);
  putRows<T, D>(ownKeys + warp * Tile<D>::kNumbers, dk, a.scale, a.scale);
  __syncthreads();
  const int64_t mine = first + copier.line * row + copier.number;
  copier.store(ownValues, keyCount, static_cast<T*>(b.dv) + mine, copier.kLines * row);
  copier.store(ownKeys, keyCount, static_cast<T*>(b.dk) + mine, copier.kLines * row);
  if (!kFamilies && a.familyCount > 0) waitForPrevious();  // so that this kernel ends after the families'
#endif
}

template <typename T, int D>
void gradients(const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  const CausalAttentionArgs& a = args.forward;
  const size_t memory = sizeof(T) * (4 * kRows + 2 * kBlockRows) * D + sizeof(float) * 4 * kRows;
  static_assert(sizeof(float) * 2 * ClusterSums<T, D>::kNumbers <= sizeof(T) * (4 * kRows + 2 * kBlockRows) * D);
  if (a.familyCount > 0) {
    const unsigned splits = splitsOf(a), blocks = splits * blocksOf(a, a.prefixTokens, a.familyCount);
    launchWithMemory(keyGradientsKernel<T, D, Tiles::FamilyKeys>, blocks, kBlockThreads, splits, memory, stream, args);
  }
  launchWithMemory(keyGradientsKernel<T, D, Tiles::Keys>, blocksOf(a, a.tokens, a.count), kBlockThreads, 1, memory, stream, args);
}

}  // namespace

void launchKeyGradients(Kind kind, const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  if (groupsFit(kind, args.forward.size, args.forward.share)) return launchGroupKeyGradients(args, stream);
  ATTUNE_BY_HALF_AND_SIZE(kind, args.forward.size, (gradients<T, kSize>(args, stream)))
}

}  // namespace attune
