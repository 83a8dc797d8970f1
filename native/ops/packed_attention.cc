// attune::packed_attention(q[N, H, D], k[N, G, D], v[N, G, D], starts, scale, window, bias?, dropout, prefixes?) -> out[N, H, D]
//
// Causal attention inside each of several sequences laid end to end (starts = [0, n₁, n₁+n₂, …]), with grouped heads, a sliding
// window (0 = none) and a bias per head and key position, bias[H, L] (ALiBi). Queries are processed in blocks: only one block's
// scores are in memory, and keys after the block (or before its window) are skipped. Backward recomputes the scores:
//
//   P = softmax(S),  dV = Pᵀ·dO,  dS = P∘(dO·Vᵀ − rowsum(dO∘O)),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q
//
// `prefixes` holds per sequence the index of another sequence that it continues, or −1; it sees that one as its own beginning.
//
// f32 on the CPU has its own kernel (cpu/packed_attention.cc); half precision is widened for it. The rest of this file uses ATen operators, so it runs
// on every device and dtype; half precision on CUDA has other kernels (src/models/decoder/attention.ts).
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/functions.h"
#include "ops/optional.h"
#include "ops/packed_attention.h"

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kBlock = 128;

struct Shape {
  int64_t heads, groups, share, size;  // share = query heads per kv head
  double scale;
  int64_t window;
};

struct Block {
  int64_t start, rows;  // of the queries, in the packed order
  int64_t keyStart, keys;  // of the keys they may see
};

template <typename Visit>
void eachBlock(const std::vector<int64_t>& starts, int64_t window, Visit visit) {
  int64_t index = 0;
  for (size_t s = 0; s + 1 < starts.size(); s++) {
    for (int64_t row = starts[s]; row < starts[s + 1]; row += kBlock) {
      Block block;
      block.start = row;
      block.rows = std::min(kBlock, starts[s + 1] - row);
      block.keyStart = window > 0 ? std::max(starts[s], row - window + 1) : starts[s];
      block.keys = row + block.rows - block.keyStart;
      visit(block, starts[s], index++);
    }
  }
}

// [rows, H, D] → [G, share·rows, D]: the query heads of one kv head become rows of one product.
Tensor byGroup(const Tensor& x, const Block& block, const Shape& shape) {
  return x.narrow(0, block.start, block.rows)
      .view({block.rows, shape.groups, shape.share, shape.size})
      .permute({1, 2, 0, 3})
      .reshape({shape.groups, shape.share * block.rows, shape.size});
}

Tensor fromGroup(const Tensor& x, const Block& block, const Shape& shape) {
  return x.view({shape.groups, shape.share, block.rows, shape.size}).permute({2, 0, 1, 3}).reshape({block.rows, shape.heads, shape.size});
}

Tensor keysOf(const Tensor& x, const Block& block) { return x.narrow(0, block.keyStart, block.keys).transpose(0, 1); }

// Softmax of the block's scores, [G, share·rows, keys], in f32.
Tensor probabilities(const Tensor& queries, const Tensor& keys, const Tensor& bias, const Block& block, int64_t sequenceStart,
                     const Shape& shape) {
  Tensor scores = at::bmm(queries, keys.transpose(1, 2));
  if (scores.scalar_type() == at::kBFloat16 || scores.scalar_type() == at::kHalf) scores = scores.to(at::kFloat);
  scores.mul_(shape.scale);
  Tensor view = scores.view({shape.groups, shape.share, block.rows, block.keys});
  const auto integers = at::TensorOptions().dtype(at::kLong).device(queries.device());
  const Tensor key = at::arange(block.keyStart, block.keyStart + block.keys, integers);
  if (bias.defined())
    view.add_(bias.narrow(1, block.keyStart - sequenceStart, block.keys).view({shape.groups, shape.share, 1, block.keys}));
  const Tensor query = at::arange(block.start, block.start + block.rows, integers).unsqueeze(1);
  Tensor hidden = key.unsqueeze(0).gt(query);
  if (shape.window > 0) hidden = hidden.logical_or(key.unsqueeze(0).le(query - shape.window));
  if (block.rows > 1 || shape.window > 0) view.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1);
}

class PackedAttention : public torch::autograd::Function<PackedAttention> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Optional<Tensor>& given, const std::vector<int64_t>& starts, double scale, int64_t window, double dropout) {
    const Tensor bias = orUndefined(given);
    const Shape shape{q.size(1), k.size(1), q.size(1) / k.size(1), q.size(2), scale, window};
    Tensor out = at::empty(q.sizes(), q.options());
    torch::autograd::variable_list saved{q, k, v, out, bias};
    eachBlock(starts, window, [&](const Block& block, int64_t sequenceStart, int64_t) {
      Tensor p = probabilities(byGroup(q, block, shape), keysOf(k, block), bias, block, sequenceStart, shape);
      if (dropout > 0) {
        const Tensor kept = at::bernoulli(at::full_like(p, 1 - dropout)).to(at::kBool);
        p = p * kept / (1 - dropout);
        saved.push_back(kept);
      }
      const Tensor o = at::bmm(p.to(v.scalar_type()), keysOf(v, block));
      out.narrow(0, block.start, block.rows).copy_(fromGroup(o, block, shape));
    });
    context->save_for_backward(saved);
    context->saved_data["starts"] = starts;
    context->saved_data["scale"] = scale;
    context->saved_data["window"] = window;
    context->saved_data["dropout"] = dropout;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &bias = saved[4];
    const auto starts = context->saved_data["starts"].toIntVector();
    const double dropout = context->saved_data["dropout"].toDouble();
    const Shape shape{q.size(1),
                      k.size(1),
                      q.size(1) / k.size(1),
                      q.size(2),
                      context->saved_data["scale"].toDouble(),
                      context->saved_data["window"].toInt()};
    const Tensor gradient = incoming[0].contiguous();
    Tensor dq = at::empty(q.sizes(), q.options()), dk = at::zeros(k.sizes(), k.options()), dv = at::zeros(v.sizes(), v.options());
    eachBlock(starts, shape.window, [&](const Block& block, int64_t sequenceStart, int64_t index) {
      const Tensor queries = byGroup(q, block, shape), keys = keysOf(k, block), values = keysOf(v, block);
      const Tensor g = byGroup(gradient, block, shape);
      const Tensor p = probabilities(queries, keys, bias, block, sequenceStart, shape);
      const Tensor dot = (g * byGroup(out, block, shape)).to(p.scalar_type()).sum(-1, true);
      Tensor dp = at::bmm(g, values.transpose(1, 2)).to(p.scalar_type());
      Tensor used = p;
      if (dropout > 0) {
        const Tensor kept = saved[5 + index].to(p.scalar_type()) / (1 - dropout);
        used = p * kept;
        dp = dp * kept;
      }
      const Tensor ds = p.mul(dp.sub_(dot)).mul_(shape.scale).to(q.scalar_type());
      dq.narrow(0, block.start, block.rows).copy_(fromGroup(at::bmm(ds, keys), block, shape));
      dk.narrow(0, block.keyStart, block.keys).add_(at::bmm(ds.transpose(1, 2), queries).transpose(0, 1));
      dv.narrow(0, block.keyStart, block.keys).add_(at::bmm(used.to(g.scalar_type()).transpose(1, 2), g).transpose(0, 1));
    });
    return {dq, dk, dv, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

// The same with the CPU kernel. For half precision, nothing wide is kept for backward.
class PackedAttentionCpu : public torch::autograd::Function<PackedAttentionCpu> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v,
                        const Optional<Tensor>& given, const PackedCall& call) {
    const Tensor bias = orUndefined(given);
    const auto [wide, lse] = packedForwardCpu(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), bias, call);
    const Tensor out = wide.to(q.scalar_type());
    context->save_for_backward({q, k, v, out, bias, lse});
    context->saved_data["starts"] = call.starts;
    context->saved_data["prefixes"] = call.prefixes;
    context->saved_data["scale"] = call.scale;
    context->saved_data["window"] = call.window;
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &out = saved[3], &bias = saved[4], &lse = saved[5];
    const PackedCall call{context->saved_data["starts"].toIntVector(), context->saved_data["prefixes"].toIntVector(),
                          context->saved_data["scale"].toDouble(), context->saved_data["window"].toInt()};
    const auto wide = [](const Tensor& tensor) { return tensor.to(at::kFloat); };
    const auto [dq, dk, dv] =
        packedBackwardCpu(wide(q), wide(k), wide(v), bias, wide(out), lse, wide(incoming[0]).contiguous(), call);
    const auto dtype = q.scalar_type();
    return {dq.to(dtype), dk.to(dtype), dv.to(dtype), Tensor(), Tensor()};
  }
};

// Checks the prefixes and returns the length of the longest sequence, including its prefix.
int64_t longestSequence(at::IntArrayRef starts, at::IntArrayRef prefixes) {
  const int64_t sequences = static_cast<int64_t>(starts.size()) - 1;
  TORCH_CHECK(prefixes.empty() || static_cast<int64_t>(prefixes.size()) == sequences, "one prefix per sequence");
  int64_t longest = 0;
  for (int64_t s = 0; s < sequences; s++) {
    int64_t length = starts[s + 1] - starts[s];
    const int64_t prefix = prefixes.empty() ? -1 : prefixes[s];
    if (prefix >= 0) {
      TORCH_CHECK(prefix < sequences && prefixes[prefix] < 0, "a prefix is a sequence of the batch that has none itself");
      length += starts[prefix + 1] - starts[prefix];
    }
    longest = std::max(longest, length);
  }
  return longest;
}

}  // namespace

Tensor packedAttention(const Tensor& q, const Tensor& k, const Tensor& v, at::IntArrayRef starts, double scale, int64_t window,
                       const Optional<Tensor>& given, double dropout, at::IntArrayRef prefixes) {
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && v.sizes() == k.sizes(), "expected q [N, H, D], k and v [N, G, D]");
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(2) == k.size(2), "q and k differ in tokens or head size");
  TORCH_CHECK(k.size(1) > 0 && q.size(1) % k.size(1) == 0, "query heads are a multiple of kv heads");
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && q.scalar_type() == v.scalar_type(), "q, k and v differ in dtype");
  TORCH_CHECK(starts.size() >= 1 && starts.front() == 0 && starts.back() == q.size(0), "starts go from 0 to the number of tokens");
  TORCH_CHECK(std::is_sorted(starts.begin(), starts.end()), "starts are in order");
  TORCH_CHECK(window >= 0 && dropout >= 0 && dropout < 1, "window is at least 0, dropout in [0, 1)");
  const int64_t longest = longestSequence(starts, prefixes);
  Optional<Tensor> bias;
  if (given.has_value() && given->defined()) {
    TORCH_CHECK(given->dim() == 2 && given->size(0) == q.size(1) && given->size(1) >= longest,
                "expected a bias [H, L] with L at least the longest sequence");
    bias = given->to(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat).contiguous();
  }
  if (q.device().is_cpu() && q.scalar_type() != at::kDouble && dropout == 0)
    return PackedAttentionCpu::apply(q.contiguous(), k.contiguous(), v.contiguous(), bias,
                                     PackedCall{starts.vec(), prefixes.vec(), scale, window});
  TORCH_CHECK(prefixes.empty(), "prefixes are for the CPU, up to float32 and without dropout");
  return PackedAttention::apply(q.contiguous(), k.contiguous(), v.contiguous(), bias, starts.vec(), scale, window, dropout);
}

Tensor packedCausalAttention(const Tensor& q, const Tensor& k, const Tensor& v, at::IntArrayRef starts, at::IntArrayRef prefixes,
                             double scale) {
  return packedAttention(q, k, v, starts, scale, 0, Optional<Tensor>(), 0, prefixes);
}

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "packed_attention(Tensor q, Tensor k, Tensor v, int[] starts, float scale, int window=0, Tensor? bias=None, float dropout=0.0, "
      "int[] prefixes=[]) -> Tensor");
  library.impl("packed_attention", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::packedAttention));
}
