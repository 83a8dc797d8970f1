// Products of many rows of x, rounded to 8 bits, with an 8-bit matrix: on tensor cores at twice the rate of bf16.
#pragma once
#include "ops/quantised_matrix.h"

namespace attune {

/** Whether `roundedProduct` takes these: many rows of bf16 on CUDA, compute capability 9.0. */
bool canRoundRows(const QuantisedMatrix& matrix, const at::Tensor& x, bool gated = false);
/** x[M, K] → [M, N]; the bias, in bf16, may be undefined. Gated: → [M, N / 2], SwiGLU of the product, without a bias. */
at::Tensor roundedProduct(const QuantisedMatrix& matrix, const at::Tensor& x, const at::Tensor& bias, bool gated = false);
/** sum[M, N] += x·Wᵀ, in bf16; sum is contiguous and aligned to 16 bytes. */
void addRoundedProduct(const at::Tensor& sum, const QuantisedMatrix& matrix, const at::Tensor& x);

}  // namespace attune
