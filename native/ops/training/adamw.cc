// attune::adamw_(masters, gradients, averages, squares, …): one AdamW update of f32 tensors on the CPU in a single pass over their memory.
// libtorch's foreach operators (1.13 has no others on CPUs) make nine passes, and an update is bound by memory.
// attune::adamw_masters_: the same with gradients and parameters in half precision, in one launch on CUDA.
//
// An element's result depends only on its own values, never on where it lies: a rank that updates a part of a tensor gets the same bits as
// one that updates the whole.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/kernels.h"
#include "ops/optional.h"
#include "ops/training/adamw.h"

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 64;  // elements per call of the one loop
constexpr int64_t kGrain = 1 << 14;

// Not inlined, so that all elements go through the same instructions.
__attribute__((noinline)) void updateBlock(float* __restrict p, const float* __restrict g, float* __restrict m, float* __restrict v,
                                           const AdamWRule& u) {
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

void update(float* p, const float* g, float* m, float* v, int64_t size, const AdamWRule& u) {
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

void updateOne(const Tensor& master, const Tensor& gradient, const Tensor& average, const Tensor& square, const AdamWRule& u) {
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
    // Caches of results of the old values compare the count of writes.
    else if (!written[i].is_inference()) written[i].unsafeGetTensorImpl()->bump_version();
  }
}

AdamWRule ruleOf(double lr, double beta1, double beta2, double decay, double eps, int64_t steps) {
  TORCH_CHECK(steps > 0, "attune::adamw_: updates are counted from 1");
  const auto f32 = [](double value) { return static_cast<float>(value); };
  const double count = static_cast<double>(steps);
  return {f32(1 - lr * decay), f32(beta1), f32(1 - beta1), f32(beta2), f32(1 - beta2), f32(1 / std::sqrt(1 - std::pow(beta2, count))),
          f32(eps), f32(lr / (1 - std::pow(beta1, count)))};
}

void adamw(at::TensorList masters, at::TensorList gradients, at::TensorList averages, at::TensorList squares, double lr, double beta1,
           double beta2, double decay, double eps, int64_t steps) {
  TORCH_CHECK(masters.size() == gradients.size() && masters.size() == averages.size() && masters.size() == squares.size(),
              "attune::adamw_: the lists differ in length");
  for (size_t i = 0; i < masters.size(); i++) {
    TORCH_CHECK(!at::GradMode::is_enabled() || !masters[i].requires_grad(), "attune::adamw_ updates without gradient");
    for (const Tensor& tensor : {masters[i], gradients[i], averages[i], squares[i]}) check(tensor, masters[i]);
  }
  const AdamWRule u = ruleOf(lr, beta1, beta2, decay, eps, steps);
  const at::NoGradGuard guard;
  for (size_t i = 0; i < masters.size(); i++) updateOne(masters[i], gradients[i], averages[i], squares[i], u);
}

bool isHalfOrFloat(const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

void checkMasters(at::TensorList masters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
                  at::TensorList parameters) {
  const size_t count = masters.size();
  TORCH_CHECK(gradients.size() == count && averages.size() == count && squares.size() == count &&
                  (parameters.empty() || parameters.size() == count),
              "attune::adamw_masters_: the lists differ in length");
  for (size_t i = 0; i < count; i++) {
    const Tensor& master = masters[i];
    TORCH_CHECK(!at::GradMode::is_enabled() || !master.requires_grad(), "attune::adamw_masters_ updates without gradient");
    for (const Tensor& state : {master, averages[i], squares[i]})
      TORCH_CHECK(state.scalar_type() == at::kFloat && state.sizes() == master.sizes() && state.device() == masters[0].device(),
                  "attune::adamw_masters_: masters and moments are f32 tensors of one shape on one device");
    TORCH_CHECK(isHalfOrFloat(gradients[i]) && gradients[i].scalar_type() == gradients[0].scalar_type() &&
                    gradients[i].sizes() == master.sizes() && gradients[i].device() == masters[0].device(),
                "attune::adamw_masters_: gradients have their master's shape and device, and one dtype");
    if (!parameters.empty())
      TORCH_CHECK(isHalfOrFloat(parameters[i]) && parameters[i].scalar_type() == parameters[0].scalar_type() &&
                      parameters[i].sizes() == master.sizes() && parameters[i].device() == masters[0].device(),
                  "attune::adamw_masters_: parameters have their master's shape and device, and one dtype");
  }
}

#ifdef ATTUNE_KERNELS
void updateOnCuda(at::TensorList masters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
                  at::TensorList parameters, const AdamWRule& rule, const Tensor& factor) {
  const at::TensorList written[] = {masters, averages, squares, parameters};
  std::vector<Tensor> dense[4];
  for (int list = 0; list < 4; list++)
    for (const Tensor& tensor : written[list]) dense[list].push_back(tensor.contiguous());
  cudaUpdate(dense[0], gradients, dense[1], dense[2], dense[3], rule, factor);
  for (int list = 0; list < 4; list++)
    for (size_t i = 0; i < dense[list].size(); i++) {
      const Tensor& tensor = written[list][i];
      if (!tensor.is_same(dense[list][i])) tensor.copy_(dense[list][i]);
      // Caches of results of the old values compare the count of writes.
      else if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
    }
}
#endif

// Updates f32 masters from gradients of any precision, times `factor` if given (f32, one element, on the masters' device; clip_factor.cc).
// A NaN factor leaves everything unchanged. `parameters` are the masters' copies in the model's dtype, or none. One launch on CUDA, which
// does not wait for the factor.
void adamwMasters(at::TensorList masters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
                  at::TensorList parameters, double lr, double beta1, double beta2, double decay, double eps, int64_t steps,
                  const Optional<Tensor>& given) {
  checkMasters(masters, gradients, averages, squares, parameters);
  const AdamWRule rule = ruleOf(lr, beta1, beta2, decay, eps, steps);
  if (masters.empty()) return;
  const Tensor factor = orUndefined(given);
  TORCH_CHECK(!factor.defined() ||
                  (factor.numel() == 1 && factor.scalar_type() == at::kFloat && factor.device() == masters[0].device()),
              "attune::adamw_masters_: the factor is one f32 number on the masters' device");
  const at::NoGradGuard guard;
#ifdef ATTUNE_KERNELS
  if (masters[0].is_cuda()) return updateOnCuda(masters, gradients, averages, squares, parameters, rule, factor);
#endif
  const float scale = factor.defined() ? factor.item<float>() : 1.0f;
  if (std::isnan(scale)) return;
  for (size_t i = 0; i < masters.size(); i++) {
    TORCH_CHECK(masters[i].device().is_cpu(), "attune::adamw_masters_: there is no kernel for this device");
    updateOne(masters[i], gradients[i].to(at::kFloat).mul(scale), averages[i], squares[i], rule);
    if (!parameters.empty()) parameters[i].copy_(masters[i]);
  }
}

// Σ x² over all numbers of all tensors, f64. Within a tensor it is first summed in f32.
Tensor sumOfSquares(at::TensorList tensors) {
  TORCH_CHECK(!tensors.empty(), "attune::sum_of_squares: there are no tensors");
  for (const Tensor& tensor : tensors)
    TORCH_CHECK(isHalfOrFloat(tensor) && tensor.scalar_type() == tensors[0].scalar_type() && tensor.device() == tensors[0].device(),
                "attune::sum_of_squares: the tensors are f32, f16 or bf16, of one dtype and on one device");
  const at::NoGradGuard guard;
#ifdef ATTUNE_KERNELS
  if (tensors[0].is_cuda()) return cudaSquares(tensors);
#endif
  Tensor sum = at::zeros({}, tensors[0].options().dtype(at::kDouble));
  for (const Tensor& tensor : tensors) sum.add_(tensor.detach().to(at::kFloat).square().sum().to(at::kDouble));
  return sum;
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "adamw_(Tensor(a!)[] masters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, float lr, float beta1, float beta2, "
      "float decay, float eps, int steps) -> ()");
  library.impl("adamw_", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::adamw));
  library.def(
      "adamw_masters_(Tensor(a!)[] masters, Tensor[] gradients, Tensor(b!)[] averages, Tensor(c!)[] squares, Tensor(d!)[] parameters, "
      "float lr, float beta1, float beta2, float decay, float eps, int steps, Tensor? factor=None) -> ()");
  library.impl("adamw_masters_", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::adamwMasters));
  library.def("sum_of_squares(Tensor[] tensors) -> Tensor");
  library.impl("sum_of_squares", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::sumOfSquares));
}
