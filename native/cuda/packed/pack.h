// pack.cu: bf16 matrices in 12 bits per weight (cells.cuh).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace attune {

/**
 * A matrix, and how a kernel takes it: eight rows with all inputs a tile (vocabulary.cu), or, of gates and what they gate, 64 inputs of a group of
 * units (narrow/), which are eight rows of the first half and the same eight of the second.
 */
struct PackArgs {
  const void* weight;  // [rows, inputs] of bf16
  void* packed;  // room for packedBytes
  int* failed;  // becomes 1 where weights have more strays than there is room for
  int64_t rows, inputs;
  int64_t units, groups;  // units of a group; 0: tiles
};

/** The powers of two of all rows come first, then the cells. */
__host__ __device__ inline int64_t packedCellsAt(int64_t rows) { return (rows * 4 + 127) / 128 * 128; }
/** What 64 inputs of a group of units take: whole lines. */
__host__ __device__ inline int packedChunk(int64_t units) { return (static_cast<int>(units) * 1568 + 127) / 128 * 128; }
int64_t packedBytes(const PackArgs& args);
void launchPack(const PackArgs& args, cudaStream_t stream);

}  // namespace attune
