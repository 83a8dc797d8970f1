// y = x·Wᵀ for the few rows of a decoding step, fused with the RMS norm of x before it, and after it a bias, adding to y, or
// silu(gate)·up. The cost is reading W once. So each warp starts loading its part of W before the kernel that computes x has ended,
// and everything else happens while the loads are under way.
//
// A block computes 8·TILES columns on tensor cores. Each of its eight warps takes a share of the inputs, 32 at a time; their sums are
// added in shared memory, always in the same order. Where there are too few columns to keep all multiprocessors busy, a cluster of
// blocks splits the inputs further. The norm's 1/√(mean x² + ε) is one number per row and is multiplied in at the end. bf16 only:
// products with the norm's weight may overflow f16.
#include "cuda/product_sums.cuh"

namespace attune {
namespace {

constexpr int kChunk = 32;

// TILES tiles of 8 rows of W; for Gated the first half are gates and the second half the values they gate. x has up to 16 rows.
// Two blocks fit on a multiprocessor: one of this kernel and one of the next, which loads its weights meanwhile.
template <int TILES, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads, 2) productKernel(ProductArgs a, int splits) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kDepth = TILES > 4 ? 3 : 4, kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  __shared__ ProductShared<TILES, 1> shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % splits, first = static_cast<int>(blockIdx.x) / splits * kOwn;
  const int inputs = static_cast<int>(a.inputs), tiles = static_cast<int>(a.outputs / 8), chunks = inputs / kChunk;
  const int share = (chunks + splits - 1) / splits, begin = rank * share + warp, end = min(chunks, (rank + 1) * share);

  // lane (line, part) of a tile holds W[row `line`][8·part …] of a chunk; x is taken in the same order, so the order does not matter
  const Number* base = static_cast<const Number*>(a.weight) + line * inputs + part * 8;
  const auto tileOf = [&](int j) {
    return (j < kOwn ? 0 : tiles) + min(first + j % kOwn, tiles - 1);
  };  // tiles beyond the last are computed but not written
  uint4 held[kDepth][TILES];
  const auto ask = [&](int depth, int chunk) {
#pragma unroll
    for (int j = 0; j < TILES; j++) held[depth][j] = stream(base + tileOf(j) * 8 * inputs + chunk * kChunk);
  };
#pragma unroll
  for (int depth = 0; depth < kDepth; depth++)
    if (begin + depth * kWarps < end) ask(depth, begin + depth * kWarps);
  const Number* normWeights = static_cast<const Number*>(a.norm) + part * 8;
  if constexpr (NORM)
    for (int chunk = warp; chunk < chunks; chunk += kWarps) prefetch(normWeights + chunk * kChunk);
  waitForPrevious();
  letNextBegin();

  const auto slice = [&](int half, int chunk) {
    const int row = half * 8 + line;
    return row < a.rows ? *reinterpret_cast<const uint4*>(static_cast<const Number*>(a.x) + row * inputs + chunk * kChunk + part * 8)
                        : uint4{};
  };
  float square[1][2] = {};
  float sums[1][TILES][4];
#pragma unroll
  for (int j = 0; j < TILES; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) sums[0][j][i] = 0;
  for (int from = begin; from < end; from += kDepth * kWarps) {
#pragma unroll
    for (int depth = 0; depth < kDepth; depth++) {
      const int chunk = from + depth * kWarps;
      if (chunk >= end) break;
      uint4 low = slice(0, chunk), high = slice(1, chunk);
      if constexpr (NORM) {
        const uint4 norm = *reinterpret_cast<const uint4*>(normWeights + chunk * kChunk);
        square[0][0] += squaresOf(low), square[0][1] += squaresOf(high);
        low = timesEach(low, norm), high = timesEach(high, norm);
      }
#pragma unroll
      for (int j = 0; j < TILES; j++) {
        const uint4& w = held[depth][j];
        multiply<Number>(sums[0][j], low.x, high.x, low.y, high.y, w.x, w.y);
        multiply<Number>(sums[0][j], low.z, high.z, low.w, high.w, w.z, w.w);
      }
      if (chunk + kDepth * kWarps < end) ask(depth, chunk + kDepth * kWarps);
    }
  }

  finishProduct<TILES, 1, FORM, NORM>(a, first, splits, shared, sums, square);
#endif
}

template <Form FORM, bool NORM>
void multiplyBySize(const ProductArgs& a, cudaStream_t stream) {
  // Roughly as many columns per block as still give every multiprocessor a block.
  const int64_t multiprocessors = multiprocessorsOfDevice();
  const int64_t tiles = a.outputs / 8;
  const auto launch = [&](auto kernel, int64_t own, unsigned splits) {
    const dim3 grid(static_cast<unsigned>((tiles + own - 1) / own * splits));
    launchInRow(kernel, grid, kThreads, splits, stream, a, static_cast<int>(splits));
  };
  if constexpr (FORM == Form::Gated) {
    if (tiles <= multiprocessors) return launch(productKernel<2, FORM, NORM>, 1, 1);
    if (tiles <= 2 * multiprocessors) return launch(productKernel<4, FORM, NORM>, 2, 1);
    return launch(productKernel<6, FORM, NORM>, 3, 1);
  } else {
    if (NORM && tiles <= 2 * multiprocessors) return launch(productKernel<2, FORM, NORM>, 2, 1);
    return launch(productKernel<4, FORM, NORM>, 4, NORM || tiles > 4 * multiprocessors ? 1 : kCluster);
  }
}

}  // namespace

// At most 16 rows, one set. With two sets a block's registers leave no room for the next kernel's: on an H200 the four products of a
// layer of the 0.6B model took 35 µs at 24 and 32 rows and cuBLAS with a norm and a SwiGLU kernel 30, those of the 8B model 208 and 125.
// At most as large a matrix as all blocks together ask for before x is there. A larger one streams, and cuBLAS streams better: 113 µs
// against 136 for the layer of the 8B model at 16 rows, 72 against 79 for the 4B model's; of the 0.6B model's 29 against 21.
bool productFits(int64_t rows, int64_t inputs, int64_t outputs) {
  constexpr int64_t kUnderWay = 2 * 4 * 4 * kThreads * sizeof(uint4);  // two blocks of four tiles, four chunks deep
  return rows <= 16 && inputs % kChunk == 0 && outputs % 16 == 0 && majorOfDevice() >= 9 &&
         inputs * outputs * static_cast<int64_t>(sizeof(uint16_t)) <= multiprocessorsOfDevice() * kUnderWay;
}

void launchProduct(const ProductArgs& a, cudaStream_t stream) {
  if (a.rows == 0) return;
  if (a.gated) return multiplyBySize<Form::Gated, true>(a, stream);
  return a.norm == nullptr ? multiplyBySize<Form::Plain, false>(a, stream) : multiplyBySize<Form::Plain, true>(a, stream);
}

}  // namespace attune
