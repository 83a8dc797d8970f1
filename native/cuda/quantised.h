// What native/cuda/quantised.cu takes: plain pointers, so that nvcc sees nothing of torch.
#pragma once
#include <cuda_runtime_api.h>

#include "cuda/raw.h"

namespace attune {

/** One part of a matrix (native/cpu/quantised_rows.h). */
struct DequantiseArgs {
  const void *codes, *scales;
  const float *levels, *nested, *offset, *map;  // of 4 bits; the last three with nested maxima, else null
  void* out;  // [outputs, inputs]
  int64_t outputs, inputs, block;
};

void launchDequantise(Kind kind, bool four, const DequantiseArgs& args, cudaStream_t stream);

}  // namespace attune
