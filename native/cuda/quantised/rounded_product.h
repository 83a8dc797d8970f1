// Products of x in 8 bits and an 8-bit matrix (rounded_product.cu).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace attune {

/** All dense and at multiples of 16 bytes, but for y. x's parts are those of RoundedRows (quantised.h). */
struct RoundedProduct {
  const signed char *codes, *weights;  // [rows, inputs], [outputs, inputs]
  const float *rowScales, *scales;  // [rows], [outputs]
  const void *apart, *weightsApart;  // bf16: [rows, kColumnsApart], [outputs, kColumnsApart]
  const void* bias;  // bf16, [outputs], or null
  void* y;  // bf16, [rows, outputs]; where gated, half as many columns
  int64_t rows, inputs, outputs, stride;  // stride: from a row of y to the next
  bool adds;  // the product is added to y, each rounded to bf16
  bool gated;  // y is silu(first half)·second half of the product's outputs, which are rounded to bf16 before; without bias
};

/** On compute capability 9.0, by sizes alone. */
bool roundedProductFits(const RoundedProduct& args);
void launchRoundedProduct(const RoundedProduct& args, cudaStream_t stream);

}  // namespace attune
