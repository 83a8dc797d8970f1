// A quantised matrix as tensors (format: cpu/quantised/rows.h), and its conversion to a plain one on any device.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "cpu/quantised/rows.h"

namespace attune {

/** The tensors of a matrix. In each, the parts follow one another. */
struct QuantisedTensors {
  at::Tensor codes;  // int8 [outputs, inputs], or uint8, flat: ⌈rows·inputs / 2⌉ per part
  at::Tensor scales;  // 8 bits: float [outputs]; 4 bits: one per block, uint8 if nested, else float
  at::Tensor nested;  // float: the largest of each run, or undefined
  at::Tensor offsets;  // float [parts] with nested
  at::Tensor levels;  // float [16], for 4 bits
};

struct QuantisedMatrix : QuantisedTensors {
  std::vector<int64_t> parts;  // the rows of each
  int64_t outputs, inputs, block;
  bool four;

  /** Throws if the tensors do not make a matrix of this shape. */
  QuantisedMatrix(QuantisedTensors tensors, at::IntArrayRef parts, int64_t inputs, int64_t block);
  /** The matrix as pointers, for the CPU kernels. */
  QuantisedRows rows() const;
};

/** [outputs, inputs] */
at::Tensor dequantised(const QuantisedMatrix& matrix, c10::ScalarType dtype);
#ifdef ATTUNE_KERNELS
/** Whether `cudaQuantisedProduct` takes this matrix at this many rows. */
bool cudaQuantisedFits(const QuantisedMatrix& matrix, int64_t rows);
/** As cudaProduct (cuda/kernels.h): bf16, a few rows; bias and norm may be undefined. */
void cudaQuantisedProduct(const QuantisedMatrix& matrix, const at::Tensor& x, const at::Tensor& bias, const at::Tensor& norm, double eps,
                          bool gated, bool add, at::Tensor& y);
#endif
/** The same with ATen's operators alone, for devices without a kernel of ours. */
at::Tensor dequantisedByAten(const QuantisedMatrix& matrix, c10::ScalarType dtype);

}  // namespace attune
