// Row-by-row CPU functions that several operators share; contiguous f32.
#pragma once
#include <cstdint>

namespace attune {

/** y = x/√(mean x² + ε)·weight (native/ops/rms_norm.cc); y may be x. */
void rmsNormRows(const float* x, const float* weight, float* y, int64_t rows, int64_t size, float eps);

/** y[rows, size] = silu(first half)·second half of x[rows, 2·size] (native/ops/swiglu.cc). */
void swigluRows(const float* x, float* y, int64_t rows, int64_t size);

}  // namespace attune
