// Row-wise CPU functions that several operators share; contiguous f32 or bf16.
#pragma once
#include <cstdint>

namespace attune {

/** y = x/√(mean x² + ε)·weight (native/ops/rms_norm.cc); y may be x. */
template <typename T>
void rmsNormRows(const T* x, const T* weight, T* y, int64_t rows, int64_t size, float eps);

/** y[rows, size] = silu(first half)·second half of x[rows, 2·size] (native/ops/swiglu.cc). */
template <typename T>
void swigluRows(const T* x, T* y, int64_t rows, int64_t size);

}  // namespace attune
