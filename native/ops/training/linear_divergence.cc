// attune::linear_divergence(hidden[N,D], weight[V,D], teacher_hidden[N,E], teacher_weight[V,E], targets[N], temperature, reverse, top,
//                           chunk) -> (divergence[N], teacher_logp[N], agrees[N])
//
// How far the next-token distribution p of a student is from a teacher's q, both at the temperature T, row by row:
//
//   p = softmax(hidden·weightᵀ / T)     q = softmax(teacher_hidden·teacher_weightᵀ / T)
//
//   reverse          KL(p‖q) = Σ p (log p − log q)                 ∂/∂z = p (log p − log q − KL) / T
//   forward          KL(q‖p) = Σ q (log q − log p)                 ∂/∂z = (p − q) / T
//   forward, top k   the same over k + 1 outcomes: the teacher's k likeliest tokens, and all others together as one. With
//                    r = Σ others: ∂/∂z = (p − q) / T at the k tokens, p (1 − q_r / p_r) / T at the others
//
// By the data-processing inequality the last never exceeds the whole KL, and it is 0 if the distributions are the same.
//
// The [N,V] logits are never stored at once: they are computed in chunks of rows. If the head is not trained (adapters), forward computes
// the gradient of each row's divergence for its hidden state while the chunk is there, and backward scales it. Otherwise backward needs the
// incoming gradient for the weight's, and computes the chunks again; for top k it still has the teacher's part.
//
// teacher_logp is log q of the target; agrees is 1 if the target is the teacher's likeliest token. Both have no gradient, and are 0 if the
// target is −1. The teacher is frozen. All in f32 for every input dtype (f64 for f64), by ordinary operators.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>

#include "cpu/precise_products.h"
#include "ops/training/logits.h"

namespace attune {
namespace {

using at::Tensor;

constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Rule {
  double temperature;
  bool reverse;
  int64_t top;
  int64_t chunk;
};

// What the teacher says of some rows: log q of the whole vocabulary, or of its likeliest tokens and of the sum of all others.
struct Target {
  Tensor logq;  // [c, V], or [c, k]
  Tensor ids;   // [c, k]; undefined for the whole vocabulary
  Tensor rest;  // [c, 1]
};

// Processes one chunk of rows after the other, in the same memory.
class Chunks {
 public:
  explicit Chunks(const Rule& rule) : rule_(rule) {}

  // log q; valid until the next call.
  Tensor teacherLogprobs(const Tensor& hidden, const Tensor& weight) { return logSoftmax(hidden, weight, teacher_); }

  // Overwrites log q if only the likeliest tokens are wanted.
  Target targetOf(Tensor logq) const {
    if (rule_.top == 0) return {logq, Tensor(), Tensor()};
    const auto [best, ids] = logq.topk(rule_.top, 1);
    logq.scatter_(1, ids, kNone);
    return {best, ids, logSumInPlace(logq)};
  }

  // The divergence of each row; valid until the next call. Writes ∂/∂z into `gradient` if given.
  Tensor divergence(const Tensor& hidden, const Tensor& weight, const Target& target, Tensor* gradient) {
    Tensor logp = logSoftmax(hidden, weight, student_);
    Tensor scratch = scratch_.of(logp.size(0), logp.size(1), logp.options());
    Tensor sum, found;
    if (target.ids.defined()) {
      const Tensor own = logp.gather(1, target.ids);
      scratch.copy_(logp).scatter_(1, target.ids, kNone);
      const Tensor rest = logSumInPlace(scratch);
      const Tensor others = target.rest.exp().mul_(target.rest - rest);
      sum = target.logq.exp().mul_(target.logq - own).sum(1).add_(others.squeeze(1));
      if (gradient != nullptr) {
        at::add_out(scratch, logp, target.rest - rest).exp_();  // p·q_r / p_r, never above q_r
        found = logp.exp_().sub_(scratch).scatter_(1, target.ids, own.exp().sub_(target.logq.exp()));
      }
    } else if (rule_.reverse) {
      Tensor gap = target.logq;  // overwritten: log p − log q
      at::sub_out(gap, logp, gap);
      logp.exp_();
      at::mul_out(scratch, logp, gap);
      sum = scratch.sum(1);
      if (gradient != nullptr) found = gap.sub_(sum.unsqueeze(1)).mul_(logp);
    } else {
      at::exp_out(scratch, target.logq);
      Tensor gap = target.logq;
      gap.sub_(logp).mul_(scratch);
      sum = gap.sum(1);
      if (gradient != nullptr) found = logp.exp_().sub_(scratch);
    }
    if (gradient != nullptr) *gradient = rule_.temperature == 1 ? found : found.div_(rule_.temperature);
    return sum;
  }

 private:
  Tensor logSoftmax(const Tensor& hidden, const Tensor& weight, Place& place) {
    Tensor z = logitsOf(hidden, weight, scratch_);
    if (rule_.temperature != 1) z.div_(rule_.temperature);
    Tensor out = place.of(z.size(0), z.size(1), z.options());
    at::_log_softmax_out(out, z, 1, false);
    return out;
  }

  // log Σ e^x of each row, which is overwritten; [c, 1].
  static Tensor logSumInPlace(Tensor& x) {
    const Tensor peak = x.amax(1, true);
    return x.sub_(peak).exp_().sum(1, true).log_().add_(peak);
  }

  Rule rule_;
  Place scratch_, teacher_, student_;
};

// gradient[c, V]·weight[V, D], in f32.
Tensor backToHidden(const Tensor& gradient, const Tensor& weight) {
  if (!needsWidening(weight)) return preciseProduct(gradient.to(weight.scalar_type()), weight);
  Tensor sum = at::zeros({gradient.size(0), weight.size(1)}, gradient.options());
  for (int64_t start = 0; start < weight.size(0); start += kWidenedRows) {
    const int64_t length = std::min(kWidenedRows, weight.size(0) - start);
    sum.addmm_(gradient.narrow(1, start, length), weight.narrow(0, start, length).to(at::kFloat));
  }
  return sum;
}

// sum[V, D] += gradient[c, V]ᵀ·hidden[c, D]
void addToWeight(Tensor& sum, const Tensor& gradient, const Tensor& hidden) {
  const Tensor part = widened(hidden);
  addPreciseProduct(sum, gradient.to(part.scalar_type()).t(), part);
}

class LinearDivergence : public torch::autograd::Function<LinearDivergence> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& hidden, const Tensor& weight,
                                                const Tensor& teacherHidden, const Tensor& teacherWeight, const Tensor& targets,
                                                double temperature, bool reverse, int64_t top, int64_t chunk, bool wantHidden,
                                                bool wantWeight) {
    const int64_t rows = hidden.size(0);
    const auto precise = hidden.options().dtype(hidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const auto teachers = teacherHidden.options().dtype(teacherHidden.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
    const Rule rule{temperature, reverse, top, chunk};
    Tensor divergence = at::empty({rows}, precise), teacherLogp = at::empty({rows}, teachers), agrees = at::empty({rows}, teachers);
    // Computed row by row if the head is not trained.
    const bool early = wantHidden && !wantWeight;
    Tensor perRow = early ? at::empty_like(hidden) : Tensor();
    // The teacher's part is kept if it is small.
    const bool keeps = wantWeight && top > 0;
    Tensor logq, ids, rest;
    if (keeps) {
      logq = at::empty({rows, top}, teachers);
      ids = at::empty({rows, top}, targets.options());
      rest = at::empty({rows, 1}, teachers);
    }
    Chunks chunks(rule);
    for (int64_t start = 0; start < rows; start += chunk) {
      const int64_t length = std::min(chunk, rows - start);
      const auto part = [&](const Tensor& all) { return all.narrow(0, start, length); };
      Tensor all = chunks.teacherLogprobs(part(teacherHidden), teacherWeight);
      const Tensor target = part(targets);
      const Tensor picked = all.gather(1, target.clamp_min(0).unsqueeze(1)).squeeze(1);
      part(agrees).copy_(picked.ge(all.amax(1)).logical_and_(target.ge(0)));
      part(teacherLogp).copy_(picked.masked_fill_(target.lt(0), 0));
      const Target said = chunks.targetOf(all);
      if (keeps) {
        part(logq).copy_(said.logq);
        part(ids).copy_(said.ids);
        part(rest).copy_(said.rest);
      }
      Tensor gradient;
      part(divergence).copy_(chunks.divergence(part(hidden), weight, said, early ? &gradient : nullptr));
      if (early) part(perRow).copy_(backToHidden(gradient, weight));
    }
    context->mark_non_differentiable({teacherLogp, agrees});
    context->set_materialize_grads(false);
    if (early)
      context->save_for_backward({perRow});
    else if (wantWeight)
      context->save_for_backward({hidden, weight, teacherHidden, teacherWeight, logq, ids, rest});
    context->saved_data["temperature"] = temperature;
    context->saved_data["reverse"] = reverse;
    context->saved_data["top"] = top;
    context->saved_data["chunk"] = chunk;
    return {divergence, teacherLogp, agrees};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    TORCH_CHECK(!at::GradMode::is_enabled(), "linear_divergence cannot be differentiated twice");
    torch::autograd::variable_list out(11);
    if (!incoming[0].defined()) return out;
    const auto saved = context->get_saved_variables();
    const Tensor of = incoming[0].unsqueeze(1);
    if (saved.size() == 1) {
      out[0] = saved[0] * of.to(saved[0].scalar_type());
      return out;
    }
    const Tensor &hidden = saved[0], &weight = saved[1], &teacherHidden = saved[2], &teacherWeight = saved[3];
    const Rule rule{context->saved_data["temperature"].toDouble(), context->saved_data["reverse"].toBool(),
                    context->saved_data["top"].toInt(), context->saved_data["chunk"].toInt()};
    const bool wantHidden = context->needs_input_grad(0);
    if (wantHidden) out[0] = at::empty_like(hidden);
    Tensor sum = at::zeros(weight.sizes(), of.options());
    Chunks chunks(rule);
    for (int64_t start = 0; start < hidden.size(0); start += rule.chunk) {
      const int64_t length = std::min(rule.chunk, hidden.size(0) - start);
      const auto part = [&](const Tensor& all) { return all.narrow(0, start, length); };
      const Target said = rule.top > 0 ? Target{part(saved[4]), part(saved[5]), part(saved[6])}
                                       : Target{chunks.teacherLogprobs(part(teacherHidden), teacherWeight), Tensor(), Tensor()};
      Tensor gradient;
      chunks.divergence(part(hidden), weight, said, &gradient);
      gradient.mul_(part(of));
      if (wantHidden) part(out[0]).copy_(backToHidden(gradient, weight));
      addToWeight(sum, gradient, part(hidden));
    }
    out[1] = sum.to(weight.scalar_type());
    return out;
  }
};

std::tuple<Tensor, Tensor, Tensor> linearDivergence(const Tensor& hidden, const Tensor& weight, const Tensor& teacherHidden,
                                                    const Tensor& teacherWeight, const Tensor& targets, double temperature, bool reverse,
                                                    int64_t top, int64_t chunk) {
  TORCH_CHECK(hidden.dim() == 2 && weight.dim() == 2 && teacherHidden.dim() == 2 && teacherWeight.dim() == 2 && targets.dim() == 1,
              "expected hidden [N, D], weight [V, D], teacher_hidden [N, E], teacher_weight [V, E], targets [N]");
  TORCH_CHECK(hidden.size(1) == weight.size(1), "hidden and weight differ in their last size");
  TORCH_CHECK(teacherHidden.size(1) == teacherWeight.size(1), "teacher_hidden and teacher_weight differ in their last size");
  TORCH_CHECK(weight.size(0) == teacherWeight.size(0), "the vocabularies differ");
  TORCH_CHECK(teacherHidden.size(0) == hidden.size(0), "one row of teacher_hidden per row of hidden");
  TORCH_CHECK(targets.size(0) == hidden.size(0), "one target per row of hidden");
  TORCH_CHECK(targets.scalar_type() == at::kLong, "targets are int64");
  TORCH_CHECK(hidden.scalar_type() == weight.scalar_type(), "hidden and weight differ in dtype");
  TORCH_CHECK(teacherHidden.scalar_type() == teacherWeight.scalar_type(), "teacher_hidden and teacher_weight differ in dtype");
  TORCH_CHECK(at::isFloatingType(hidden.scalar_type()) && at::isFloatingType(teacherHidden.scalar_type()),
              "hidden and teacher_hidden are floating-point tensors");
  TORCH_CHECK((hidden.scalar_type() == at::kDouble) == (teacherHidden.scalar_type() == at::kDouble),
              "both models are in double precision, or neither is");
  for (const Tensor& each : {weight, teacherHidden, teacherWeight, targets})
    TORCH_CHECK(hidden.device() == each.device(), "all inputs are on one device");
  TORCH_CHECK(weight.size(0) > 0, "the vocabulary is empty");
  TORCH_CHECK(temperature > 0, "temperature is above 0");
  TORCH_CHECK(top >= 0 && chunk > 0, "top is 0 or more, chunk above 0");
  TORCH_CHECK(!reverse || top == 0, "of the reverse divergence no top is taken");
  const bool wants = at::GradMode::is_enabled();
  const bool wantHidden = wants && hidden.requires_grad(), wantWeight = wants && weight.requires_grad();
  // If at most one token would be left over, the whole vocabulary is used.
  const int64_t some = top < weight.size(0) - 1 ? top : 0;
  const auto out = LinearDivergence::apply(hidden, weight, teacherHidden.detach(), teacherWeight.detach(), targets.contiguous(), temperature,
                                           reverse, some, chunk, wantHidden, wantWeight);
  return {out[0], out[1], out[2]};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "linear_divergence(Tensor hidden, Tensor weight, Tensor teacher_hidden, Tensor teacher_weight, Tensor targets, "
      "float temperature=1.0, bool reverse=False, int top=0, int chunk=512) -> (Tensor, Tensor, Tensor)");
  library.impl("linear_divergence", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::linearDivergence));
}
