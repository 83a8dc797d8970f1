// The last step of a gradient that is a sum over rows: blocks have summed their own rows, and their sums are added in order.
#pragma once
#include "cuda/numbers.cuh"

namespace attune {

/** Adds up the rows of partial [blocks, 2·size or size]: the first `size` columns into `first`, the others into `second`. */
template <typename T>
__global__ void __launch_bounds__(1024) addColumnsKernel(const float* partial, int64_t blocks, int64_t size, int64_t stride, T* first,
                                                         T* second) {
  __shared__ float sums[32][33];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float* from = partial + (blockIdx.y == 0 ? 0 : size) + column;
  float sum = 0;
  if (column < size)
    for (int64_t i = threadIdx.y; i < blocks; i += 32) sum += from[i * stride];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  // transposed, so that a warp adds up one column
  sum = sums[threadIdx.x][threadIdx.y];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset);
  const int64_t own = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.y;
  if (threadIdx.x == 0 && own < size) (blockIdx.y == 0 ? first : second)[own] = narrow<T>(sum);
}

/** `second` may be null: there is one set of columns. */
template <typename T>
void addColumns(const float* partial, int64_t blocks, int64_t size, T* first, T* second, cudaStream_t stream) {
  const int sets = second == nullptr ? 1 : 2;
  const dim3 grid(static_cast<unsigned>((size + 31) / 32), static_cast<unsigned>(sets));
  addColumnsKernel<T><<<grid, dim3(32, 32), 0, stream>>>(partial, blocks, size, sets * size, first, second);
}

}  // namespace attune
