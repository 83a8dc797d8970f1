// Attention over packed sequences in f32 on the CPU (cpu/packed_attention.cc), for the operator in packed_attention.cc.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace attune {

// The arguments of a call, except its tensors.
struct PackedCall {
  std::vector<int64_t> starts;  // where each sequence begins, and the total at the end
  std::vector<int64_t> prefixes;  // the sequence that each one continues, or −1; empty where none does
  double scale;
  int64_t window;  // 0 = none
};

// The output [N, H, D], and the log-sum-exp of each row's scores [N, H], which backward needs. The bias may be undefined.
std::pair<at::Tensor, at::Tensor> packedForwardCpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                                                   const PackedCall& call);

// dq, dk, dv
std::array<at::Tensor, 3> packedBackwardCpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& bias,
                                            const at::Tensor& out, const at::Tensor& lse, const at::Tensor& gradient,
                                            const PackedCall& call);

}  // namespace attune
