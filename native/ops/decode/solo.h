// Layers of a one-row step in which attention and the output projection are one kernel (cuda/solo/).
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/decode/fused.h"
#include "ops/decode/plan.h"

namespace attune {

#ifdef ATTUNE_KERNELS
/**
 * The sums of the output projections. A layer adds to one of two sets and clears the other one, which the layer before it has already read.
 */
class SoloLayers {
 public:
  SoloLayers(const DecodePlan& plan, int64_t rows);

  /** The embedding's rows for the ids; clears the sums. */
  at::Tensor gather(const at::Tensor& ids);
  /** x += out(attention). Returns SwiGLU(up(norm(x))), or undefined without doing anything if other kernels should do it. */
  at::Tensor attend(const FusedAttention& attention, const LayerPlan& layer, at::Tensor& x);

 private:
  const DecodePlan& plan_;
  at::Tensor memory_;  // [sets, width]; undefined if other kernels do the work
  at::Tensor otherX_;  // the new x is written here while the old one is read
  int64_t set_ = 0;  // the set to add to next
};
#endif

}  // namespace attune
