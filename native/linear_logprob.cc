// attune::linear_logprob(hidden[N,D], weight[V,D], targets[N], temperature, chunk) -> (logp[N], entropy[N])
//
//   z = hidden·weightᵀ / T,   logp = z[target] − logsumexp(z),   H = logsumexp(z) − Σ softmax(z)·z
//
// The [N,V] logits never exist whole: rows go through in chunks, and backward computes them again, but for the first few
// chunks on the CPU, which are kept: computing them again is one product of four, and memory is cheaper there. With
// g = ∂L/∂logp and h = ∂L/∂H, and p = softmax(z):
//
//   ∂L/∂z = g·(onehot − p) − h·p·(log p + H)
//
// Logits are kept in f32 whatever the inputs are; a target of −1 (no loss there) gives logp 0 and no gradient.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>

#include "logprob_rows.h"

namespace attune {
namespace {

using at::Tensor;

bool isHalf(const Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf; }

// libtorch 1.13's CPU products of bf16 add up in bf16 itself for many shapes (a sum of ones stops at 256), and it has none
// of f16 at all: there the products are made in f32. 2.x adds up in f32.
bool needsWidening(const Tensor& tensor) { return TORCH_VERSION_MAJOR < 2 && isHalf(tensor) && tensor.is_cpu(); }

// The head in f32, some rows at a time, so that no second copy of it exists.
template <typename Use>
void eachWideBlock(const Tensor& weight, Use use) {
  constexpr int64_t block = 8192;
  for (int64_t start = 0; start < weight.size(0); start += block) {
    const int64_t length = std::min(block, weight.size(0) - start);
    use(start, length, weight.narrow(0, start, length).to(at::kFloat));
  }
}

// hidden·weightᵀ in f32. Half-precision CUDA products write f32 directly where libtorch can (2.8 and later).
Tensor logitsOf(const Tensor& hidden, const Tensor& weight) {
  if (!isHalf(hidden)) return at::mm(hidden, weight.t());
  if (needsWidening(hidden)) {
    const Tensor wide = hidden.to(at::kFloat);
    Tensor z = at::empty({hidden.size(0), weight.size(0)}, wide.options());
    eachWideBlock(weight, [&](int64_t start, int64_t length, const Tensor& rows) {
      Tensor columns = z.narrow(1, start, length);
      at::mm_out(columns, wide, rows.t());
    });
    return z;
  }
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (hidden.is_cuda()) return at::mm(hidden, weight.t(), at::kFloat);
#endif
  return at::mm(hidden, weight.t()).to(at::kFloat);
}

// The chunks that go from forward to backward.
constexpr size_t kKeptChunks = 4;

// The logits of one chunk after the other. On the CPU they take turns in one place: fresh memory is mapped and cleared by the
// system each time, which takes as long as a pass over it.
class ChunkLogits {
 public:
  ChunkLogits(const Tensor& hidden, const Tensor& weight, int64_t chunk) : weight_(weight), rows_(std::min(chunk, hidden.size(0))) {}

  Tensor operator()(const Tensor& part) {
    if (!part.is_cpu() || isHalf(part)) return logitsOf(part, weight_);
    if (!place_.defined()) place_ = at::empty({rows_, weight_.size(0)}, part.options());
    Tensor z = place_.narrow(0, 0, part.size(0));
    at::mm_out(z, part, weight_.t());
    return z;
  }

  // What was given last is taken over by the caller.
  void giveUp() { place_ = Tensor(); }

 private:
  const Tensor& weight_;
  int64_t rows_;
  Tensor place_;
};

// into[n, D] = gradient[n, V]·weight[V, D]
void gradientOfHidden(Tensor into, const Tensor& gradient, const Tensor& weight) {
  if (!needsWidening(weight)) {
    at::mm_out(into, gradient.to(weight.scalar_type()), weight);
    return;
  }
  Tensor sum = at::zeros(into.sizes(), gradient.options());
  eachWideBlock(weight, [&](int64_t start, int64_t length, const Tensor& rows) { sum.addmm_(gradient.narrow(1, start, length), rows); });
  into.copy_(sum);
}

// into[V, D] += gradient[n, V]ᵀ·hidden[n, D], into in f32 (f64)
void addGradientOfWeight(Tensor& into, const Tensor& gradient, const Tensor& hidden) {
  if (hidden.scalar_type() == into.scalar_type())
    into.addmm_(gradient.t(), hidden);
  else if (needsWidening(hidden))
    into.addmm_(gradient.t(), hidden.to(at::kFloat));
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  else if (hidden.is_cuda())
    at::addmm_out(into, into, gradient.to(hidden.scalar_type()).t(), hidden, at::kFloat);  // adds up in f32, in place
#endif
  else
    into.add_(logitsOf(gradient.to(hidden.scalar_type()).t(), hidden.t()));
}

class LinearLogprob : public torch::autograd::Function<LinearLogprob> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                                                const Tensor& targets, double temperature, int64_t chunk, bool forBackward) {
    const int64_t rows = hidden.size(0);
    const auto precise = hidden.options().dtype(hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const auto inverse = static_cast<float>(1.0 / temperature);
    Tensor logp = at::empty({rows}, precise), entropy = at::empty({rows}, precise), total = at::empty({rows}, precise);
    ChunkLogits logits(hidden, weight, chunk);
    std::vector<Tensor> kept;
    for (int64_t start = 0; start < rows; start += chunk) {
      const int64_t length = std::min(chunk, rows - start);
      Tensor z = logits(hidden.narrow(0, start, length));
      const Tensor target = targets.narrow(0, start, length);
      if (hasRowKernels(z)) {
        rowStatistics(z, target, inverse, logp.narrow(0, start, length), entropy.narrow(0, start, length), total.narrow(0, start, length));
        if (forBackward && z.is_cpu() && kept.size() < kKeptChunks) {
          kept.push_back(z);
          logits.giveUp();
        }
        continue;
      }
      if (temperature != 1.0) z.div_(temperature);
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
    context->set_materialize_grads(false);  // no gradient for an output is told apart from a zero one, and costs nothing
    context->saved_data["temperature"] = temperature;
    context->saved_data["chunk"] = chunk;
    context->saved_data["kept"] = std::move(kept);
    return {logp, entropy};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "linear_logprob cannot be differentiated twice");
    const auto saved = context->get_saved_variables();
    const Tensor &hidden = saved[0], &weight = saved[1], &targets = saved[2], &total = saved[3], &entropy = saved[4];
    const double temperature = context->saved_data["temperature"].toDouble();
    const int64_t chunk = context->saved_data["chunk"].toInt(), rows = hidden.size(0);
    const bool wantHidden = context->needs_input_grad(0), wantWeight = context->needs_input_grad(1);
    const bool forLogp = incoming[0].defined(), forEntropy = incoming[1].defined();
    const Tensor gLogp = forLogp ? incoming[0].contiguous() : Tensor(), gEntropy = forEntropy ? incoming[1].contiguous() : Tensor();
    Tensor gradHidden, gradWeight;
    if (wantHidden) gradHidden = at::empty_like(hidden);
    // One accumulator in f32: summing thousands of chunks in bf16 would lose the small ones.
    if (wantWeight) gradWeight = at::zeros(weight.sizes(), total.options());
    // They become the gradients in place, so that a second pass over a retained graph finds none and computes them again.
    std::vector<Tensor> kept = context->saved_data["kept"].toTensorVector();
    context->saved_data["kept"] = std::vector<Tensor>();
    ChunkLogits logits(hidden, weight, chunk);
    for (int64_t start = 0; start < rows; start += chunk) {
      const int64_t length = std::min(chunk, rows - start);
      const Tensor part = hidden.narrow(0, start, length), target = targets.narrow(0, start, length);
      const auto index = static_cast<size_t>(start / chunk);
      Tensor z = index < kept.size() ? std::move(kept[index]) : logits(part);
      if (hasRowKernels(z)) {
        const Tensor rowsLogp = forLogp ? gLogp.narrow(0, start, length) : Tensor(), rowsEntropy = forEntropy ? gEntropy.narrow(0, start, length) : Tensor();
        const Tensor lse = total.narrow(0, start, length), rest = entropy.narrow(0, start, length);
        const RowGradient rule{target, lse, rest, rowsLogp, rowsEntropy, static_cast<float>(1.0 / temperature)};
        const Tensor gradient = rowGradient(z, rule, needsWidening(hidden) ? at::kFloat : hidden.scalar_type());
        if (wantHidden) gradientOfHidden(gradHidden.narrow(0, start, length), gradient, weight);
        if (wantWeight) addGradientOfWeight(gradWeight, gradient, part);
        continue;
      }
      if (temperature != 1.0) z.div_(temperature);
      z.sub_(total.narrow(0, start, length).unsqueeze(1));  // log p
      const Tensor counted = target.ge(0).to(z.scalar_type());
      Tensor scale = forLogp ? incoming[0].narrow(0, start, length) * counted : at::zeros({length}, z.options());
      Tensor gradient;
      if (forEntropy) {
        const Tensor h = incoming[1].narrow(0, start, length).unsqueeze(1);
        const Tensor p = z.exp();
        // −g·p − h·p·(log p + H)
        gradient = z.add_(entropy.narrow(0, start, length).unsqueeze(1)).mul_(h).add_(scale.unsqueeze(1)).mul_(p).neg_();
      } else {
        gradient = z.exp_().mul_(scale.neg().unsqueeze(1));
      }
      gradient.scatter_add_(1, target.clamp_min(0).unsqueeze(1), scale.unsqueeze(1));
      if (temperature != 1.0) gradient.div_(temperature);
      if (wantHidden) gradientOfHidden(gradHidden.narrow(0, start, length), gradient, weight);
      if (wantWeight) addGradientOfWeight(gradWeight, gradient, part);
    }
    if (wantWeight) gradWeight = gradWeight.to(weight.scalar_type());
    return {gradHidden, gradWeight, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

std::tuple<Tensor, Tensor> linearLogprob(const Tensor& hidden, const Tensor& weight, const Tensor& targets, double temperature,
                                         int64_t chunk) {
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
  const auto out = LinearLogprob::apply(hidden, weight, targets.contiguous(), temperature, chunk, forBackward);
  return {out[0], out[1]};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("linear_logprob(Tensor hidden, Tensor weight, Tensor targets, float temperature=1.0, int chunk=512) -> (Tensor, Tensor)");
  library.impl("linear_logprob", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::linearLogprob));
}
