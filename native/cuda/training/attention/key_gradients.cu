// Gradients of keys and values: a block has 64 keys and goes through the rows that see them. Scores are held transposed, so that
// they are the left side of both products.
//   dV = Pᵀ·dO,  dK = scale·dSᵀ·Q
#include "cuda/training/attention/tiles.cuh"

namespace attune {
namespace {

constexpr int kRows = 64, kTiles = kRows / kTile;  // rows of a stage
constexpr int kAtOnce = 2;  // tiles of rows

template <typename T, int D>
__global__ void __launch_bounds__(kBlockThreads, 2) keyGradientsKernel(CausalAttentionBackwardArgs b) {
  constexpr int kStage = 2 * kRows * D;
  extern __shared__ __align__(128) char dynamicShared[];
  T* const shared = reinterpret_cast<T*>(dynamicShared);
  const CausalAttentionArgs& a = b.forward;
  const Part part(a, false);
  if (part.place.length == 0) return;
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
  waitForPrevious();

  const RowsOf<const T, D> q(static_cast<const T*>(a.q), a.qStride, part), given(static_cast<const T*>(b.gradient), a.heads * D, part);
  const float *const lses = a.lse + part.statistics(a), *const dots = b.dots + part.statistics(a);
  const auto ask = [&](int stage) {
    T* const to = shared + stage % 2 * kStage;
    const int from = firstRow + stage * kRows, real = part.rows - from;
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
  const int count = (part.rows - firstRow + kRows - 1) / kRows;
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
      const int from = firstRow + stage * kRows + n * kTile;
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

  putRows<T, D>(ownValues + warp * Tile<D>::kNumbers, dv, 1, 1);
  putRows<T, D>(ownKeys + warp * Tile<D>::kNumbers, dk, a.scale, a.scale);
  __syncthreads();
  const int64_t row = a.groups * D, first = (part.place.start + firstKey + copier.line) * row + part.group * D + copier.number;
  copier.store(ownValues, keyCount, static_cast<T*>(b.dv) + first, copier.kLines * row);
  copier.store(ownKeys, keyCount, static_cast<T*>(b.dk) + first, copier.kLines * row);
}

template <typename T, int D>
void gradients(const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  const size_t memory = sizeof(T) * (4 * kRows + 2 * kBlockRows) * D + sizeof(float) * 4 * kRows;
  launchWithMemory(keyGradientsKernel<T, D>, blocksOf(args.forward, 1), kBlockThreads, 1, memory, stream, args);
}

}  // namespace

void launchKeyGradients(Kind kind, const CausalAttentionBackwardArgs& args, cudaStream_t stream) {
  ATTUNE_BY_HALF_AND_SIZE(kind, args.forward.size, (gradients<T, kSize>(args, stream)))
}

}  // namespace attune
