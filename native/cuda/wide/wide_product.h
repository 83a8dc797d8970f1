// wide_product.cu: y = x·Wᵀ for 17 to 256 rows.
#pragma once
#include "cuda/raw.h"

namespace attune {

/** All matrices are bf16, dense, and at multiples of 16 bytes. */
struct WideProductArgs {
  const void *x, *weight, *bias;  // as in ProductArgs (raw.h)
  void* y;
  int64_t rows, inputs, outputs;
  int64_t readableRows;  // of x, where it has memory for more than `rows`, with any numbers (launching.h)
  bool gated, add;
  // After a norm, where x is multiplied with the norm's weights alone: Σ of the squares before that, [partsOfX, rows]; or null.
  const float* squaresOfX;
  int64_t partsOfX;
  float eps;
  // Before a norm, of a product that adds: the norm's weights, and what is to be written beside y: y times those, and y's Σ of squares,
  // [wideProductParts, rows]; or null.
  const void* nextNorm;
  void* normed;
  float* squaresOfY;
  const WideProductArgs* next;  // the product that follows, which fits; or null
  const void* packed;  // of narrow_product.cu: the weight in 12 bits, in its groups (packed/pack.h), read instead; or null
};

bool wideProductFits(Kind kind, const WideProductArgs& args);
/** How many parts of the columns of y have sums of squares of their own. */
int64_t wideProductParts(const WideProductArgs& args);
void launchWideProduct(const WideProductArgs& args, cudaStream_t stream);

}  // namespace attune
