// The heads of a fused projection, for the operator in heads.cc and its kernels.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace attune {

struct SplitHeads {
  at::Tensor qkv;  // [N, (H + 2G)·D]
  int64_t heads, groups;  // H and G
  at::Tensor qWeight, kWeight;  // [D] each, or undefined: no norm
  double eps;
  at::Tensor cosines, sines;  // [N, R/2], or undefined: no rotation
  bool interleaved;

  int64_t size() const { return qkv.size(1) / (heads + 2 * groups); }
};

}  // namespace attune
