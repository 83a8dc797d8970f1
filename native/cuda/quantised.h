// What native/cuda/quantised.cu takes: plain pointers, so that nvcc sees nothing of torch.
#pragma once
#include <cuda_runtime_api.h>

#include "cuda/raw.h"

namespace attune {

struct DequantiseArgs {
  const void *codes, *scales;
  const float *nested, *levels, *map;  // of 4 bits only
  float offset;
  void* out;  // [outputs, inputs]
  int64_t outputs, inputs;
};

void launchDequantise(Kind kind, bool four, const DequantiseArgs& args, cudaStream_t stream);

}  // namespace attune
