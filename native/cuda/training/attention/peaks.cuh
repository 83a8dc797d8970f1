// A row's running softmax in the forward kernels, shared by four neighbouring lanes.
#pragma once
#include "cuda/numbers.cuh"

namespace attune {

/** The largest score becomes that of all lanes' `top`: returns it times the scale. What was summed up before is to be multiplied by `fade`. */
__device__ inline float raisePeak(float& peak, float& fade, float top, float scale) {
  top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, 1));
  top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFF, top, 2));
  const float base = top * scale;  // a row sees the first key, so it is finite
  fade = powerOf2(peak * scale - base);
  peak = top;
  return base;
}

}  // namespace attune
