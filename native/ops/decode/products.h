// The products of a decoding step on CUDA; attention is in step.cc.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/decode/plan.h"

namespace attune {

#ifdef ATTUNE_KERNELS
/** RMS norm. */
at::Tensor normedCuda(const at::Tensor& x, const at::Tensor& weight, double eps);

/** The product right after this one, whose matrix may be prefetched; or none. */
struct Following {
  const Linear* linear = nullptr;
  bool gated = false, add = false;
};

/** Whether wide_product.cu has kernels for all products of a layer at this many rows. */
bool wideProductsTake(const DecodePlan& plan, int64_t rows);

/** Kernels that take the norm's sums prepared by a product of the same kind: for few rows, or for more (products.cc). */
struct PreparedKernels;

/**
 * The products of all layers on x, the rows' state: by the kernels for few rows (product.cu, narrow_product.cu), for more
 * (wide_product.cu), or by libtorch. A product that adds to x may prepare what the next norm needs.
 */
class StepProducts {
 public:
  StepProducts(const DecodePlan& plan, at::Tensor& x);

  /** y = linear(norm(x)); gated: its SwiGLU. */
  void ofNorm(const Linear& linear, const at::Tensor& norm, bool gated, at::Tensor& y, const Following& then = {});
  /** x += linear(input). `nextNorm`: the weights of the norm after it, or undefined. */
  void addTo(const Linear& linear, const at::Tensor& input, const at::Tensor& nextNorm, const Following& then);
  /** Whether the blocks of the last `ofNorm` leave no room on a multiprocessor. */
  bool leaveNoRoom() const { return leaveNoRoom_; }

 private:
  const DecodePlan& plan_;
  at::Tensor& x_;
  const bool isWide_;  // products may be those of wide_product.cu
  // x times the norm's weights, and sums of squares of parts of its columns, if the last product has written them
  at::Tensor normed_, squares_;
  int64_t parts_ = 0;
  const PreparedKernels* preparedBy_ = nullptr;
  bool leaveNoRoom_ = false;
};
#endif

}  // namespace attune
