// A quantised matrix as tensors (format: quantised_rows.h), and how it becomes a plain one on any device.
#pragma once
#include <ATen/core/Tensor.h>

#include "cpu/quantised_rows.h"

namespace attune {

struct QuantisedMatrix {
  at::Tensor codes, scales, nested;  // nested of 4 bits only
  double offset;
  int64_t outputs, inputs;
  bool four;

  /** Refuses tensors that do not make a matrix of so many columns. */
  QuantisedMatrix(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& nested, double offset, int64_t inputs);
  /** On the CPU. */
  QuantisedRows rows() const;
};

/** [outputs, inputs] */
at::Tensor dequantised(const QuantisedMatrix& matrix, c10::ScalarType dtype);
/** The same by ATen's operators alone, for devices without a kernel of ours. */
at::Tensor dequantisedByAten(const QuantisedMatrix& matrix, c10::ScalarType dtype);

}  // namespace attune
