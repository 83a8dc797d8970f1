// attune::adamw_(masters, gradients, averages, squares, …): one AdamW update of f32 tensors on the CPU in a single pass over their
// memory. libtorch's foreach operators (1.13 has no other on CPUs) make nine, and memory is all that an update waits for.
//
// An element's result depends on its own values alone, never on where it lies: a rank that updates a part of a tensor gets the bits
// of one that updates the whole.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 64;  // elements that go through the one loop together
constexpr int64_t kGrain = 1 << 14;

struct Update {
  float shrink;  // 1 − lr·λ
  float beta1, fresh1;  // β₁ and 1 − β₁
  float beta2, fresh2;
  float correction2;  // 1 / √(1 − β₂ᵗ)
  float eps;
  float rate;  // lr / (1 − β₁ᵗ)
};

// Not inlined, so that all elements go through the same instructions.
__attribute__((noinline)) void updateBlock(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
                                           const Update& u) {
#pragma omp simd
  for (int64_t i = 0; i < kBlock; i++) {
    const float gradient = g[i];
    const float average = m[i] * u.beta1 + gradient * u.fresh1;
    const float square = v[i] * u.beta2 + gradient * gradient * u.fresh2;
    m[i] = average;
    v[i] = square;
    p[i] = p[i] * u.shrink - u.rate * average / (std::sqrt(square) * u.correction2 + u.eps);
  }
}

void update(float* p, const float* g, float* m, float* v, int64_t size, const Update& u) {
  int64_t i = 0;
  for (; i + kBlock <= size; i += kBlock) updateBlock(p + i, g + i, m + i, v + i, u);
  if (i == size) return;
  float last[4][kBlock] = {};
  float* const from[4] = {p + i, const_cast<float*>(g) + i, m + i, v + i};
  for (int each = 0; each < 4; each++) std::copy_n(from[each], size - i, last[each]);
  updateBlock(last[0], last[1], last[2], last[3], u);
  for (int each : {0, 2, 3}) std::copy_n(last[each], size - i, from[each]);
}

void check(const Tensor& tensor, const Tensor& like) {
  TORCH_CHECK(tensor.defined() && tensor.layout() == at::kStrided && tensor.scalar_type() == at::kFloat && tensor.device().is_cpu(),
              "attune::adamw_ takes f32 tensors on the CPU");
  TORCH_CHECK(tensor.sizes() == like.sizes(), "attune::adamw_: gradients and moments have their parameter's shape");
}

void updateOne(const Tensor& master, const Tensor& gradient, const Tensor& average, const Tensor& square, const Update& u) {
  const Tensor written[3] = {master, average, square};
  Tensor dense[3];
  for (int i = 0; i < 3; i++) dense[i] = written[i].contiguous();
  const Tensor given = gradient.contiguous();
  float *p = dense[0].data_ptr<float>(), *m = dense[1].data_ptr<float>(), *v = dense[2].data_ptr<float>();
  const float* g = given.data_ptr<float>();
  at::parallel_for(0, master.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { update(p + begin, g + begin, m + begin, v + begin, end - begin, u); });
  for (int i = 0; i < 3; i++) {
    if (!written[i].is_same(dense[i])) written[i].copy_(dense[i]);
    // Whoever keeps results of the old values looks at the count of writes.
    else if (!written[i].is_inference()) written[i].unsafeGetTensorImpl()->bump_version();
  }
}

void adamw(at::TensorList masters, at::TensorList gradients, at::TensorList averages, at::TensorList squares, double lr, double beta1,
           double beta2, double decay, double eps, int64_t steps) {
  TORCH_CHECK(masters.size() == gradients.size() && masters.size() == averages.size() && masters.size() == squares.size(),
              "attune::adamw_: the lists differ in length");
  TORCH_CHECK(steps > 0, "attune::adamw_: updates are counted from 1");
  for (size_t i = 0; i < masters.size(); i++) {
    TORCH_CHECK(!at::GradMode::is_enabled() || !masters[i].requires_grad(), "attune::adamw_ updates without gradient");
    for (const Tensor& tensor : {masters[i], gradients[i], averages[i], squares[i]}) check(tensor, masters[i]);
  }
  const auto f32 = [](double value) { return static_cast<float>(value); };
  const double count = static_cast<double>(steps);
  const Update u{f32(1 - lr * decay), f32(beta1), f32(1 - beta1), f32(beta2), f32(1 - beta2), f32(1 / std::sqrt(1 - std::pow(beta2, count))),
                 f32(eps), f32(lr / (1 - std::pow(beta1, count)))};
  const at::NoGradGuard guard;
  for (size_t i = 0; i < masters.size(); i++) updateOne(masters[i], gradients[i], averages[i], squares[i], u);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "adamw_(Tensor(a!)[] masters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, float lr, float beta1, float beta2, "
      "float decay, float eps, int steps) -> ()");
  library.impl("adamw_", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::adamw));
}
