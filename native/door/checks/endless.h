// Sizes that make an operator walk for ever or count past 64 bits. A shape without elements and with rows beyond count, such as
// 10^15 x 0, takes no memory, so nothing stops it, and an operator that walks over the rows (sort, adaptive pooling) never comes back.
#pragma once
#include <ATen/core/Tensor.h>

namespace attune {

/** Throws where a tensor has no elements and too many rows for any operator to walk over. */
void checkRowsOf(const at::Tensor& tensor);

/** Throws where an operator is asked for an output without elements and with too many rows. `sizes` are the last of the output's. */
void checkOutputSize(c10::IntArrayRef sizes);

/** Throws where a kernel size, stride, padding or dilation is so large that its products with the others overflow. */
void checkWindow(c10::IntArrayRef sides);

}  // namespace attune
