// attune::linear(x[…, K], weight[N, K], bias[N]?) = x·weightᵀ + bias. Few rows of f32 on the CPU without gradients, which is a
// decoding step, go through a product of our own: BLAS packs its operands first, which does not pay for 16 rows. Here the
// weight is read once, in order, a tile of products stays in registers, and a row's sums never depend on the other rows.
// Everything else is ATen's linear.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include "kernels.h"
#include "optional.h"

namespace attune {
namespace {

using at::Tensor;

#if defined(__AVX512F__)
constexpr int kWidth = 16, kColumns = 4;
#elif defined(__AVX2__)
constexpr int kWidth = 8, kColumns = 2;  // 16 registers only
#else
constexpr int kWidth = 4, kColumns = 4;
#endif
constexpr int kRows = 4;

typedef float Vector __attribute__((vector_size(kWidth * sizeof(float)), aligned(4), may_alias));

inline float total(const Vector& v) {
  float sum = 0;
  for (int i = 0; i < kWidth; i++) sum += v[i];
  return sum;
}

template <int ROWS, int COLUMNS>
void tile(const float* x, const float* w, float* y, const float* bias, int64_t k, int64_t n) {
  Vector sums[ROWS][COLUMNS] = {};
  const int64_t whole = k / kWidth * kWidth;
  for (int64_t i = 0; i < whole; i += kWidth) {
    Vector columns[COLUMNS];
    for (int c = 0; c < COLUMNS; c++) columns[c] = *reinterpret_cast<const Vector*>(w + c * k + i);
    for (int r = 0; r < ROWS; r++) {
      const Vector row = *reinterpret_cast<const Vector*>(x + r * k + i);
      for (int c = 0; c < COLUMNS; c++) sums[r][c] += row * columns[c];
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) {
      float sum = total(sums[r][c]);
      for (int64_t i = whole; i < k; i++) sum += x[r * k + i] * w[c * k + i];
      y[r * n + c] = sum + (bias == nullptr ? 0.0f : bias[c]);
    }
}

template <int COLUMNS>
void columnTile(const float* x, const float* w, float* y, const float* bias, int64_t m, int64_t k, int64_t n) {
  int64_t row = 0;
  for (; row + kRows <= m; row += kRows) tile<kRows, COLUMNS>(x + row * k, w, y + row * n, bias, k, n);
  for (; row < m; row++) tile<1, COLUMNS>(x + row * k, w, y + row * n, bias, k, n);
}

constexpr int64_t kFewRows = 48;

bool isSkinny(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (x.dim() != 2 || x.size(0) > kFewRows || weight.dim() != 2 || x.size(1) != weight.size(1) || x.numel() == 0) return false;
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || (bias.defined() && bias.requires_grad()))) return false;
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0) || bias.scalar_type() != at::kFloat || !bias.is_contiguous())) return false;
  return x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.device().is_cpu() && weight.device().is_cpu() && weight.is_contiguous();
}

Tensor linear(const Tensor& input, const Tensor& weight, const Optional<Tensor>& given) {
  const Tensor bias = given.has_value() ? *given : Tensor();
  if (!isSkinny(input, weight, bias)) return at::linear(input, weight, given);
  const Tensor x = input.contiguous();
  const int64_t m = x.size(0), k = x.size(1), n = weight.size(0);
  Tensor y = at::empty({m, n}, x.options());
  const float *xs = x.data_ptr<float>(), *ws = weight.data_ptr<float>(), *bs = bias.defined() ? bias.data_ptr<float>() : nullptr;
  float* ys = y.data_ptr<float>();
  at::parallel_for(0, n / kColumns, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, m * k)), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin * kColumns; c < end * kColumns; c += kColumns)
      columnTile<kColumns>(xs, ws + c * k, ys + c, bs == nullptr ? nullptr : bs + c, m, k, n);
  });
  for (int64_t c = n / kColumns * kColumns; c < n; c++) columnTile<1>(xs, ws + c * k, ys + c, bs == nullptr ? nullptr : bs + c, m, k, n);
  return y;
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("linear(Tensor x, Tensor weight, Tensor? bias=None) -> Tensor");
  library.impl("linear", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::linear));
}
