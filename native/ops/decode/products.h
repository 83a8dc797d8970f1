// The products of a decoding step on CUDA, beside its attention (step.cc).
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/decode/plan.h"

namespace attune {

#ifdef ATTUNE_KERNELS
/** RMS norm. */
at::Tensor normedCuda(const at::Tensor& x, const at::Tensor& weight, double eps);

/** The product that comes right after another, whose matrix may be asked for early; or none. */
struct Following {
  const Linear* linear = nullptr;
  bool gated = false, add = false;
};

/** Whether wide_product.cu has kernels for all products of a layer of so many rows. */
bool wideProductsTake(const DecodePlan& plan, int64_t rows);

/** Kernels that take what a product of the same kind has prepared of a norm: for few rows, or for more (products.cc). */
struct PreparedKernels;

/**
 * The products of all layers on x, the rows' state, by the kernels for few rows (product.cu, narrow_product.cu), for more (wide_product.cu), or
 * by libtorch. A product that adds to x may prepare what the norm after it needs.
 */
class StepProducts {
 public:
  StepProducts(const DecodePlan& plan, at::Tensor& x);

  /** y = linear(norm(x)); gated: its SwiGLU. */
  void ofNorm(const Linear& linear, const at::Tensor& norm, bool gated, at::Tensor& y, const Following& then = {});
  /** x += linear(input). `nextNorm`: the weights of the norm that comes after it, or undefined. */
  void addTo(const Linear& linear, const at::Tensor& input, const at::Tensor& nextNorm, const Following& then);
  /** Whether blocks of the last `ofNorm` leave no room on a multiprocessor. */
  bool leaveNoRoom() const { return leaveNoRoom_; }

 private:
  const DecodePlan& plan_;
  at::Tensor& x_;
  const bool isWide_;  // products may be those of wide_product.cu
  // of x, where the last product has written them: x times the norm's weights, and sums of squares of so many parts of its columns
  at::Tensor normed_, squares_;
  int64_t parts_ = 0;
  const PreparedKernels* preparedBy_ = nullptr;
  bool leaveNoRoom_ = false;
};
#endif

}  // namespace attune
