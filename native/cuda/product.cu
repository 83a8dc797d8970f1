// y = x·Wᵀ for the few rows of a decoding step, fused with the RMS norm of x before it, and after it a bias, adding to y, or
// silu(gate)·up. The cost is reading W once. So each warp starts loading its part of W before the kernel that computes x has ended,
// and everything else happens while the loads are under way.
//
// A block computes 8·TILES columns on tensor cores. Each of its eight warps takes a share of the inputs, 32 at a time; their sums are
// added in shared memory, always in the same order. Where there are too few columns to keep all multiprocessors busy, a cluster of
// blocks splits the inputs further. The norm's 1/√(mean x² + ε) is one number per row and is multiplied in at the end. bf16 only:
// products with the norm's weight may overflow f16.
#include <cooperative_groups.h>

#include <type_traits>

#include "cuda/mma.cuh"

namespace attune {
namespace {

using Number = __nv_bfloat16;
constexpr int kWarps = 8, kThreads = 32 * kWarps, kChunk = 32, kCluster = 4;
enum class Form { Plain, Gated };

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace groups = cooperative_groups;

// Weights are read once, so they need not stay in the L1 cache.
__device__ inline uint4 stream(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

__device__ inline float squaresOf(const uint4& eight) {
  float sum = 0;
  for (unsigned two : {eight.x, eight.y, eight.z, eight.w}) {
    const float2 v = unpack<Number>(two);
    sum += v.x * v.x + v.y * v.y;
  }
  return sum;
}

__device__ inline uint4 timesEach(uint4 x, const uint4& weights) {
  auto* two = reinterpret_cast<__nv_bfloat162*>(&x);
  const auto* by = reinterpret_cast<const __nv_bfloat162*>(&weights);
#pragma unroll
  for (int i = 0; i < 4; i++) two[i] = __hmul2(two[i], by[i]);
  return x;
}
#endif

// TILES tiles of 8 rows of W; for Gated the first half are gates and the second half the values they gate. ROWS sets of 16 rows of x.
// Two blocks fit on a multiprocessor: one of this kernel and one of the next, which loads its weights meanwhile.
template <int TILES, int ROWS, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads, ROWS == 1 ? 2 : 1) productKernel(ProductArgs a, int splits) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kDepth = TILES > 4 ? 3 : 4, kColumns = 8 * TILES, kPad = 8, kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  __shared__ float partial[kWarps][16][kColumns + kPad];
  __shared__ float joined[16][kColumns];
  __shared__ float squares[kWarps][16 * ROWS];
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
    for (int chunk = warp; chunk < chunks; chunk += kWarps) asm volatile("prefetch.global.L1 [%0];" ::"l"(normWeights + chunk * kChunk));
  waitForPrevious();
  letNextBegin();

  const auto rowOf = [&](int m, int half) { return m * 16 + half * 8 + line; };
  const auto slice = [&](int m, int half, int chunk) {
    const int row = rowOf(m, half);
    return row < a.rows ? *reinterpret_cast<const uint4*>(static_cast<const Number*>(a.x) + row * inputs + chunk * kChunk + part * 8)
                        : uint4{};
  };
  float square[ROWS][2] = {};
  float sums[ROWS][TILES][4];
#pragma unroll
  for (int m = 0; m < ROWS; m++)
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) sums[m][j][i] = 0;
  for (int from = begin; from < end; from += kDepth * kWarps) {
#pragma unroll
    for (int depth = 0; depth < kDepth; depth++) {
      const int chunk = from + depth * kWarps;
      if (chunk >= end) break;
      uint4 norm{};
      if constexpr (NORM) norm = *reinterpret_cast<const uint4*>(normWeights + chunk * kChunk);
#pragma unroll
      for (int m = 0; m < ROWS; m++) {
        uint4 low = slice(m, 0, chunk), high = slice(m, 1, chunk);
        if constexpr (NORM) {
          square[m][0] += squaresOf(low), square[m][1] += squaresOf(high);
          low = timesEach(low, norm), high = timesEach(high, norm);
        }
#pragma unroll
        for (int j = 0; j < TILES; j++) {
          const uint4& w = held[depth][j];
          multiply<Number>(sums[m][j], low.x, high.x, low.y, high.y, w.x, w.y);
          multiply<Number>(sums[m][j], low.z, high.z, low.w, high.w, w.z, w.w);
        }
      }
      if (chunk + kDepth * kWarps < end) ask(depth, chunk + kDepth * kWarps);
    }
  }

  if constexpr (NORM)
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float sum = square[m][half];
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
        if (part == 0) squares[warp][rowOf(m, half)] = sum;
      }
  const auto scaleOf = [&](int row) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) sum += squares[i][row];
    return rsqrtf(sum / static_cast<float>(inputs) + a.eps);
  };

  const auto cluster = groups::this_cluster();
#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    if (m > 0) __syncthreads();
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      float* low = &partial[warp][line][j * 8 + part * 2];
      float* high = &partial[warp][line + 8][j * 8 + part * 2];
      low[0] = sums[m][j][0], low[1] = sums[m][j][1], high[0] = sums[m][j][2], high[1] = sums[m][j][3];
    }
    __syncthreads();
    const auto sumOfWarps = [&](int row, int column) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kWarps; i++) sum += partial[i][row][column];
      return sum;
    };
    if (splits > 1) {
      for (int i = threadIdx.x; i < 16 * kColumns; i += kThreads)
        joined[i / kColumns][i % kColumns] = sumOfWarps(i / kColumns, i % kColumns);
      cluster.sync();
    }
    const auto sumOfAll = [&](int row, int column) {
      if (splits == 1) return sumOfWarps(row, column);
      float sum = 0;
      for (int i = 0; i < splits; i++) sum += cluster.map_shared_rank(&joined[row][column], i)[0];
      return sum;
    };
    // the blocks of a cluster share the writing
    for (int i = threadIdx.x + rank * kThreads; i < 16 * 8 * kOwn; i += kThreads * splits) {
      const int row = i / (8 * kOwn), column = i % (8 * kOwn), target = first * 8 + column;
      if (m * 16 + row >= a.rows || target >= a.outputs) continue;
      const Number* bias = static_cast<const Number*>(a.bias);
      Number* y = static_cast<Number*>(a.y) + (m * 16 + row) * a.outputs + target;
      const float scale = NORM ? scaleOf(m * 16 + row) : 1.0f;
      float value = sumOfAll(row, column) * scale + (bias == nullptr ? 0.0f : wide(bias[target]));
      if constexpr (FORM == Form::Gated) {
        const float up = sumOfAll(row, column + 8 * kOwn) * scale + (bias == nullptr ? 0.0f : wide(bias[a.outputs + target]));
        const float gate = wide(narrow<Number>(value));
        value = gate / (1.0f + __expf(-gate)) * wide(narrow<Number>(up));
      }
      *y = narrow<Number>(a.add ? wide(*y) + value : value);
    }
    if (splits > 1) cluster.sync();  // no block continues while others read its sums
  }
#endif
}

template <int ROWS, Form FORM, bool NORM>
void multiplyBySize(const ProductArgs& a, cudaStream_t stream) {
  // Roughly as many columns per block as still give every multiprocessor a block.
  const int64_t multiprocessors = multiprocessorsOfDevice();
  const int64_t tiles = a.outputs / 8;
  const auto launch = [&](auto kernel, int64_t own, unsigned splits) {
    const dim3 grid(static_cast<unsigned>((tiles + own - 1) / own * splits));
    launchInRow(kernel, grid, kThreads, splits, stream, a, static_cast<int>(splits));
  };
  if constexpr (FORM == Form::Gated) {
    if (tiles <= multiprocessors) return launch(productKernel<2, ROWS, FORM, NORM>, 1, 1);
    if (tiles <= 2 * multiprocessors) return launch(productKernel<4, ROWS, FORM, NORM>, 2, 1);
    return launch(productKernel<6, ROWS, FORM, NORM>, 3, 1);
  } else {
    if (NORM && tiles <= 2 * multiprocessors) return launch(productKernel<2, ROWS, FORM, NORM>, 2, 1);
    return launch(productKernel<4, ROWS, FORM, NORM>, 4, NORM || tiles > 4 * multiprocessors ? 1 : kCluster);
  }
}

}  // namespace

bool productFits(int64_t rows, int64_t inputs, int64_t outputs) {
  return rows <= 32 && inputs % kChunk == 0 && outputs % 8 == 0 && inputs * outputs < INT32_MAX / 2 && majorOfDevice() >= 9;
}

void launchProduct(const ProductArgs& a, cudaStream_t stream) {
  if (a.rows == 0) return;
  const auto byRows = [&](auto form, auto norm) {
    if (a.rows <= 16) return multiplyBySize<1, form.value, norm.value>(a, stream);
    return multiplyBySize<2, form.value, norm.value>(a, stream);
  };
  using Plain = std::integral_constant<Form, Form::Plain>;
  using Gated = std::integral_constant<Form, Form::Gated>;
  if (a.gated) return byRows(Gated{}, std::true_type{});
  return a.norm == nullptr ? byRows(Plain{}, std::false_type{}) : byRows(Plain{}, std::true_type{});
}

}  // namespace attune
