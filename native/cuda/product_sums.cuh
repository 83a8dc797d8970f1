// Shared by the products of a decoding step, and the last stage of quantised_product.cu's: a block of eight warps computes 8·TILES columns
// for ROWS sets of 16 rows, each warp over a share of the inputs.
#pragma once
#include "cuda/mma.cuh"

namespace attune {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
enum class Form { Plain, Gated };

template <int TILES, int ROWS>
struct ProductShared {
  static constexpr int kColumns = 8 * TILES, kPad = 8;
  float partial[kWarps][16][kColumns + kPad];
  float squares[kWarps][16 * ROWS];
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

template <typename Number>
__device__ inline float squaresOf(const uint4& eight) {
  float sum = 0;
  for (unsigned two : {eight.x, eight.y, eight.z, eight.w}) {
    const float2 v = unpack<Number>(two);
    sum += v.x * v.x + v.y * v.y;
  }
  return sum;
}

/** Of bf16. */
__device__ inline uint4 timesEach(uint4 x, const uint4& weights) {
  auto* two = reinterpret_cast<__nv_bfloat162*>(&x);
  const auto* by = reinterpret_cast<const __nv_bfloat162*>(&weights);
#pragma unroll
  for (int i = 0; i < 4; i++) two[i] = __hmul2(two[i], by[i]);
  return x;
}

/** sum·scale + bias[at], rounded after each: otherwise the compiler rounds once in some kernels and twice in others. */
template <typename Number>
__device__ inline float scaledSum(float sum, float scale, const void* bias, int64_t at) {
  return __fadd_rn(__fmul_rn(sum, scale), bias == nullptr ? 0.0f : wide(static_cast<const Number*>(bias)[at]));
}

/** silu(gate)·up, of both as they would be written. */
template <typename Number>
__device__ inline float gatedValue(float gate, float up) {
  gate = wide(narrow<Number>(gate));
  return gate / (1.0f + __expf(-gate)) * wide(narrow<Number>(up));
}

/**
 * Adds the warps' sums, always in the same order, and writes the outputs from tile `first` on: times 1/√(mean x² + ε) where NORM (`square`: a lane's share of Σ x² of
 * its two rows of each set), plus bias, silu(gate)·up, plus what y holds.
 */
template <typename Number, int TILES, int ROWS, Form FORM, bool NORM>
__device__ inline void finishProduct(const ProductArgs& a, int first, ProductShared<TILES, ROWS>& shared, float (&sums)[ROWS][TILES][4],
                                     float (&square)[ROWS][2]) {
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int inputs = static_cast<int>(a.inputs);
  const auto rowOf = [&](int m, int half) { return m * 16 + half * 8 + line; };
  if constexpr (NORM)
#pragma unroll
    for (int m = 0; m < ROWS; m++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float sum = square[m][half];
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
        if (part == 0) shared.squares[warp][rowOf(m, half)] = sum;
      }
  const auto scaleOf = [&](int row) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) sum += shared.squares[i][row];
    return rsqrtf(sum / static_cast<float>(inputs) + a.eps);
  };

#pragma unroll
  for (int m = 0; m < ROWS; m++) {
    if (m > 0) __syncthreads();
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      float* low = &shared.partial[warp][line][j * 8 + part * 2];
      float* high = &shared.partial[warp][line + 8][j * 8 + part * 2];
      low[0] = sums[m][j][0], low[1] = sums[m][j][1], high[0] = sums[m][j][2], high[1] = sums[m][j][3];
    }
    __syncthreads();
    const auto sumOfWarps = [&](int row, int column) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kWarps; i++) sum += shared.partial[i][row][column];
      return sum;
    };
    for (int i = threadIdx.x; i < 16 * 8 * kOwn; i += kThreads) {
      const int row = i / (8 * kOwn), column = i % (8 * kOwn), target = first * 8 + column;
      if (m * 16 + row >= a.rows || target >= a.outputs) continue;
      Number* y = static_cast<Number*>(a.y) + (m * 16 + row) * a.outputs + target;
      const float scale = NORM ? scaleOf(m * 16 + row) : 1.0f;
      float value = scaledSum<Number>(sumOfWarps(row, column), scale, a.bias, target);
      if constexpr (FORM == Form::Gated) {
        const float up = scaledSum<Number>(sumOfWarps(row, column + 8 * kOwn), scale, a.bias, a.outputs + target);
        value = gatedValue<Number>(value, up);
      }
      *y = narrow<Number>(a.add ? wide(*y) + value : value);
    }
  }
}
#endif

}  // namespace attune
