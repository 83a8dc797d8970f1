// Products of many rows of x, rounded to 8 bits, with a matrix in 8 bits: on tensor cores at twice the rate of bf16.
#pragma once
#include "ops/quantised_matrix.h"

namespace attune {

/** Whether `roundedProduct` takes these: bf16 on CUDA, of compute capability 9.0, many rows. */
bool canRoundRows(const QuantisedMatrix& matrix, const at::Tensor& x, bool gated = false);
/** x[M, K] → [M, N]; the bias, in bf16, may be undefined. Gated: → [M, N / 2], SwiGLU of the product; without bias. */
at::Tensor roundedProduct(const QuantisedMatrix& matrix, const at::Tensor& x, const at::Tensor& bias, bool gated = false);
/** sum[M, N] += x·Wᵀ, in bf16; dense and at a multiple of 16 bytes. */
void addRoundedProduct(const at::Tensor& sum, const QuantisedMatrix& matrix, const at::Tensor& x);

}  // namespace attune
