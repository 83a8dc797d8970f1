// attune::sample_advance_(logits[B, V], the rows' sampling rules, last[B], positions[B], limits[B], slots[B], turns[B], idle_slot, ids[N,
// S],
// logp[N, S], kept[N, S]), S ≥ B
//
// The end of a step of rows that advance by themselves (src/models/generate/graph.ts). It draws each row's next token as attune::sample
// does, with the position after the row's own as its counter. It stores the draw in `ids`, `logp` and `kept` at the row's turn, and
// advances the turn (after N − 1 comes 0). The token becomes the row's last token, and the row moves one position on. A row that reaches
// its limit is done and becomes idle at once: it goes to position 0 of the idle slot and stays there, so that nothing reads its keys again.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "cuda/kernels.h"
#include "ops/decode/sample_rows.h"

namespace attune {
namespace {

using at::Tensor;

void check(const Tensor& logits, const GoingRows& rows, const Drawn& out) {
  const auto fits = [&](const Tensor& tensor, at::ScalarType type) {
    return tensor.scalar_type() == type && tensor.is_contiguous() && tensor.device() == logits.device();
  };
  TORCH_CHECK(logits.dim() == 2, "expected logits [B, V]");
  const int64_t count = logits.size(0);
  for (const Tensor* tensor : {&rows.last, &rows.positions, &rows.limits, &rows.slots, &rows.turns})
    TORCH_CHECK(fits(*tensor, at::kLong) && tensor->dim() == 1 && tensor->size(0) == count,
                "one int64 last token, position, limit, slot and turn per row");
  TORCH_CHECK(out.ids.dim() == 2 && out.ids.size(0) > 0 && out.ids.size(1) >= count && fits(out.ids, at::kLong) &&
                  fits(out.logp, at::kFloat) && fits(out.kept, at::kFloat) && out.logp.sizes() == out.ids.sizes() &&
                  out.kept.sizes() == out.ids.sizes(),
              "expected ids, logp and kept [N, S] for at most S rows");
}

void sampleAdvance(const Tensor& logits, const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP,
                   const Tensor& seeds, Tensor last, Tensor positions, Tensor limits, Tensor slots, Tensor turns, int64_t idleSlot,
                   Tensor ids, Tensor logp, Tensor kept) {
  const SamplingRule rule{temperature, topK, topP, minP, seeds};
  const GoingRows rows{last, positions, limits, slots, turns, idleSlot};
  Drawn out{ids, logp, kept};
  check(logits, rows, out);
#ifdef ATTUNE_KERNELS
  if (logits.is_cuda() && logits.scalar_type() != at::kDouble) {
    checkRule(rule, logits.size(0), logits.device());
    return cudaSampleAdvance(logits.contiguous(), rule, rows, out);
  }
#endif
  const Drawn drawn = sample(logits, rule, positions.add(1));
  const auto store = [&](Tensor& to, const Tensor& values) {  // there may be more columns than rows
    to.narrow(1, 0, values.size(0)).scatter_(0, turns.unsqueeze(0), values.unsqueeze(0));
  };
  store(ids, drawn.ids);
  store(logp, drawn.logp);
  store(kept, drawn.kept);
  turns.copy_(turns.add(1).remainder(ids.size(0)));
  const Tensor going = positions.lt(limits);
  positions.add_(going);
  const Tensor done = going.logical_and_(positions.eq(limits));
  positions.masked_fill_(done, 0);
  limits.masked_fill_(done, 0);
  slots.masked_fill_(done, idleSlot);
  last.copy_(drawn.ids);
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "sample_advance_(Tensor logits, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor seeds, Tensor(a!) last, "
      "Tensor(b!) positions, Tensor(c!) limits, Tensor(d!) slots, Tensor(e!) turns, int idle_slot, Tensor(f!) ids, Tensor(g!) logp, "
      "Tensor(h!) kept) -> ()");
  library.impl("sample_advance_", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::sampleAdvance));
}
