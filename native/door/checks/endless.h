// Sizes that make an operator loop for ever or overflow 64 bits. A shape such as 10^15 x 0 has no elements and so takes no memory, but an
// operator that walks over its rows (sort, adaptive pooling) never returns.
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

/** Throws if a tensor has no elements and more rows than any operator can walk over. */
void checkRowsOf(const at::Tensor& tensor);

/** Throws if an operator's output would have no elements and too many rows. `sizes` are the output's last sizes. */
void checkOutputSize(c10::IntArrayRef sizes);

/** Throws if a kernel size, stride, padding or dilation is so large that its products with the others overflow. */
void checkWindow(c10::IntArrayRef sides);

}  // namespace attune
