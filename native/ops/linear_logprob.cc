// attune::linear_logprob(hidden[N,D], weight[V,D], targets[N], temperature, chunk, keep) -> (logp[N], entropy[N])
//
//   z = hidden·weightᵀ / T,   logp = z[target] − logsumexp(z),   H = logsumexp(z) − Σ softmax(z)·z
//
// Forward computes the [N,V] logits in chunks of rows, since a row's sum needs all of its columns. Recomputing them in backward is one of
// four products: on the CPU the first few chunks are kept for it, on CUDA all of them if the caller says so (`keep`), else none. Backward
// takes the rest in blocks of columns: with the sums known, each block is independent, and its part of the weight's gradient is complete
// and written once. With g = ∂L/∂logp, h = ∂L/∂H, p = softmax(z):
//
//   ∂L/∂z = g·(onehot − p) − h·p·(log p + H)
//
// Logits are in f32 for every input dtype. A target of −1 (no loss) gives logp 0 and no gradient.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "cpu/precise_products.h"
#include "ops/logprob_rows.h"
#include "ops/training/logits.h"

namespace attune {
namespace {

using at::Tensor;

// How many chunks forward keeps for backward on the CPU.
constexpr size_t kKeptChunks = 4;

// ∂L/∂z for some columns of the logits, which are overwritten.
Tensor gradientOf(Tensor z, const RowGradient& rule, c10::ScalarType dtype) {
  if (hasRowKernels(z)) return rowGradient(z, rule, dtype);
  const Tensor counted = rule.targets.ge(0).to(z.scalar_type());
  const Tensor g = (rule.forLogp.defined() ? rule.forLogp * counted : at::zeros_like(counted)).unsqueeze(1);
  z.mul_(rule.inverse).sub_(rule.lse.unsqueeze(1));  // log p
  Tensor gradient;
  if (rule.forEntropy.defined()) {
    const Tensor p = z.exp();
    gradient = z.add_(rule.entropy.unsqueeze(1)).mul_(rule.forEntropy.unsqueeze(1)).add_(g).mul_(p).neg_();
  } else {
    gradient = z.exp_().mul_(g.neg());
  }
  const Tensor column = (rule.targets - rule.first).unsqueeze(1);
  const Tensor inside = column.ge(0).logical_and_(column.lt(z.size(1)));
  gradient.scatter_add_(1, column.clamp(0, z.size(1) - 1), g * inside);
  return gradient.mul_(rule.inverse).to(dtype);
}

// What backward knows about all rows.
struct Incoming {
  Tensor targets, lse, entropy, forLogp, forEntropy;
  double inverse;

  // ∂L/∂z for logits z whose first row is `start` and first column `first`.
  Tensor gradient(const Tensor& z, int64_t start, int64_t first, c10::ScalarType dtype) const {
    const auto part = [&](const Tensor& all) { return all.defined() ? all.narrow(0, start, z.size(0)) : Tensor(); };
    const Tensor rows[] = {part(targets), part(lse), part(entropy), part(forLogp), part(forEntropy)};
    return gradientOf(z, {rows[0], rows[1], rows[2], rows[3], rows[4], inverse, first}, dtype);
  }
};

class LinearLogprob : public torch::autograd::Function<LinearLogprob> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                                                const Tensor& targets, double temperature, int64_t chunk, bool forBackward, bool keep) {
    const int64_t rows = hidden.size(0);
    const auto precise = hidden.options().dtype(hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const double inverse = 1.0 / temperature;
    Tensor logp = at::empty({rows}, precise), entropy = at::empty({rows}, precise), total = at::empty({rows}, precise);
    Place place;
    std::vector<Tensor> kept;
    const bool keepsAll = forBackward && keep && hidden.is_cuda() && hasRowKernels(total);
    if (keepsAll) kept.push_back(at::empty({rows, weight.size(0)}, precise));
    for (int64_t start = 0; start < rows; start += chunk) {
      const int64_t length = std::min(chunk, rows - start);
      const Tensor part = hidden.narrow(0, start, length);
      Tensor z = keepsAll ? kept[0].narrow(0, start, length) : logitsOf(part, weight, place);
      if (keepsAll) preciseProductInto(z, part, weight.t());
      const Tensor target = targets.narrow(0, start, length);
      if (hasRowKernels(z)) {
        rowStatistics(z, target, static_cast<float>(inverse), logp.narrow(0, start, length), entropy.narrow(0, start, length),
                      total.narrow(0, start, length));
        if (forBackward && z.is_cpu() && !isHalf(hidden) && kept.size() < kKeptChunks) {
          kept.push_back(z);
          place.giveUp();
        }
        continue;
      }
      z.mul_(inverse);
      const Tensor picked = z.gather(1, target.clamp_min(0).unsqueeze(1)).squeeze(1);
      const Tensor peak = z.amax(1, true);
      z.sub_(peak);  // z − max, then e^(z − max) in place; Σ e·(z − max) needs one product row by row
      Tensor weights = z.exp();
      const Tensor sum = weights.sum(1);
      const Tensor mean = weights.mul_(z).sum(1).div_(sum);
      const Tensor logSum = sum.log();
      const Tensor lse = logSum + peak.squeeze(1);
      logp.narrow(0, start, length).copy_((picked - lse).masked_fill_(target.lt(0), 0));
      entropy.narrow(0, start, length).copy_(logSum - mean);
      total.narrow(0, start, length).copy_(lse);
    }
    context->save_for_backward({hidden, weight, targets, total, entropy});
    context->set_materialize_grads(false);  // an output without a gradient stays undefined instead of becoming zeros, and costs nothing
    context->saved_data["temperature"] = temperature;
    context->saved_data["chunk"] = chunk;
    context->saved_data["kept"] = std::move(kept);
    return {logp, entropy};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "linear_logprob cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const Tensor &hidden = saved[0], &weight = saved[1], &targets = saved[2], &total = saved[3], &entropy = saved[4];
    const int64_t chunk = context->saved_data["chunk"].toInt(), rows = hidden.size(0), words = weight.size(0);
    const bool wantHidden = context->needs_input_grad(0), wantWeight = context->needs_input_grad(1);
    const auto contiguous = [](const Tensor& gradient) { return gradient.defined() ? gradient.contiguous() : Tensor(); };
    const Incoming all{
        targets, total, entropy, contiguous(incoming[0]), contiguous(incoming[1]), 1.0 / context->saved_data["temperature"].toDouble()};
    Tensor gradHidden, gradWeight;
    if (wantHidden) gradHidden = at::empty_like(hidden);
    if (wantWeight) gradWeight = at::empty_like(weight);

    // They are overwritten by the gradients, so a second backward over a retained graph computes them again.
    std::vector<Tensor> kept = context->saved_data["kept"].toTensorVector();
    context->saved_data["kept"] = std::vector<Tensor>();
    int64_t start = 0;
    for (Tensor& given : kept) {
      Tensor z = std::move(given);
      const int64_t length = z.size(0);
      const Tensor gradient = all.gradient(z, start, 0, hidden.scalar_type());
      z = Tensor();  // freed after its use
      const Tensor part = hidden.narrow(0, start, length);
      Tensor into = wantHidden ? gradHidden.narrow(0, start, length) : Tensor();
      if (wantHidden) at::mm_out(into, gradient, weight);
      if (wantWeight && start == 0) at::mm_out(gradWeight, gradient.t(), part);
      if (wantWeight && start > 0) gradWeight.addmm_(gradient.t(), part);
      start += length;
    }
    if (start == rows)
      return {gradHidden, rows == 0 && wantWeight ? gradWeight.zero_() : gradWeight, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};

    const Tensor rest = widened(hidden.narrow(0, start, rows - start));
    Tensor sum = wantHidden ? at::zeros(rest.sizes(), total.options()) : Tensor();
    // as many logits at once as a chunk of rows has; the products are fastest with a multiple of 64 columns
    const int64_t columns = std::min(words, std::max<int64_t>(64, chunk * words / rest.size(0) / 64 * 64));
    Place place;
    for (int64_t first = 0; first < words; first += columns) {
      const int64_t count = std::min(columns, words - first);
      const Tensor part = widened(weight.narrow(0, first, count));
      const Tensor gradient = all.gradient(logitsOf(rest, part, place), start, first, rest.scalar_type());
      if (wantHidden) addPreciseProduct(sum, gradient, part);
      if (!wantWeight) continue;
      Tensor into = gradWeight.narrow(0, first, count);
      if (start > 0)
        into.addmm_(gradient.t(), rest);
      else
        into.copy_(preciseProduct(gradient.t(), rest));
    }
    if (wantHidden) gradHidden.narrow(0, start, rows - start).copy_(sum);
    return {gradHidden, gradWeight, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

std::tuple<Tensor, Tensor> linearLogprob(const Tensor& hidden, const Tensor& weight, const Tensor& targets, double temperature,
                                         int64_t chunk, bool keep) {
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && targets.dim() == 1, "expected hidden [N, D], weight [V, D], targets [N]");
  TORCH_CHECK(hidden.size(1) == weight.size(1), "hidden and weight differ in their last size");
  TORCH_CHECK(targets.size(0) == hidden.size(0), "one target per row of hidden");
  TORCH_CHECK(targets.scalar_type() == at::kLong, "targets are int64");
  TORCH_CHECK(hidden.scalar_type() == weight.scalar_type(), "hidden and weight differ in dtype");
  TORCH_CHECK(at::isFloatingType(hidden.scalar_type()), "hidden is a floating-point tensor");
  TORCH_CHECK(hidden.device() == weight.device() && hidden.device() == targets.device(), "all inputs are on one device");
  TORCH_CHECK(weight.size(0) > 0, "the vocabulary is empty");
  TORCH_CHECK(temperature > 0, "temperature is above 0");
  TORCH_CHECK(chunk > 0, "chunk is above 0");
  const bool forBackward = at::GradMode::is_enabled() && (hidden.requires_grad() || weight.requires_grad());
  const auto out = LinearLogprob::apply(hidden, weight, targets.contiguous(), temperature, chunk, forBackward, keep);
  return {out[0], out[1]};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "linear_logprob(Tensor hidden, Tensor weight, Tensor targets, float temperature=1.0, int chunk=512, bool keep=False) "
      "-> (Tensor, Tensor)");
  library.impl("linear_logprob", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::linearLogprob));
}
