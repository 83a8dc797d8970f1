// Tensor maps, which say where a matrix lies and how copies cut it into tiles (hopper.cuh).
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace attune {

using Encode = decltype(&cuTensorMapEncodeTiled);

/** The driver's function, asked for at run time: the addon is not linked with the driver. Null where there is none. */
inline Encode encoder() {
  static const Encode found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) cudaGetLastError();  // there is another way: the next launch's check must not find it
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
  }();
  return found;
}

/** Tiles of a matrix of so many dimensions. Strides are those of all but the first, in bytes, and multiples of 16. */
inline CUtensorMap mapOf(CUtensorMapDataType type, const void* first, unsigned dimensions, const cuuint64_t* sizes,
                         const cuuint64_t* strides, const cuuint32_t* tile) {
  CUtensorMap map;
  const cuuint32_t steps[] = {1, 1, 1, 1, 1};
  encoder()(&map, type, dimensions, const_cast<void*>(first), sizes, strides, tile, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return map;
}

/**
 * Tiles of so many rows and columns of one or two matrices, one after the other: a copy brings the same tile of each. The first matrix and
 * `stride`, bytes from a row to the next, are at multiples of 16.
 */
inline CUtensorMap mapOf(CUtensorMapDataType type, const void* first, unsigned matrices, int64_t rows, int64_t columns, int64_t stride,
                         unsigned tileRows, unsigned tileColumns) {
  const cuuint64_t row = static_cast<cuuint64_t>(stride), count = static_cast<cuuint64_t>(rows);
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), count, matrices}, strides[] = {row, count * row};
  const cuuint32_t tile[] = {tileColumns, tileRows, matrices};
  return mapOf(type, first, 3, sizes, strides, tile);
}

/** The same of dense matrices of bf16. */
inline CUtensorMap mapOf(const void* first, unsigned matrices, int64_t rows, int64_t columns, unsigned tileRows, unsigned tileColumns) {
  return mapOf(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, first, matrices, rows, columns, columns * 2, tileRows, tileColumns);
}

}  // namespace attune
