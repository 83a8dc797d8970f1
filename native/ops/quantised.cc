// attune::quantised_linear(codes, scales, nested?, offsets?, levels?, parts, inputs, block, x[…, K], bias?) = x·Wᵀ + bias, where W is a
// frozen matrix held in 8 or 4 bits (quantised_matrix.h). x and the bias get gradients. The plain matrix is freed at the end of the call,
// and backward dequantises again. In f32 on the CPU only a panel of rows is dequantised at a time.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "cpu/quantised/product.h"
#include "cpu/skinny/product.h"
#include "ops/functions.h"
#include "ops/optional.h"
#include "ops/quantised_matrix.h"
#include "ops/quantised_rounded.h"

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kPanel = 256;  // rows of a panel; enough for BLAS to reach its full rate

// Calls use(first, panel[count, K]) for panel after panel.
template <typename Use>
void eachPanel(const QuantisedMatrix& matrix, const Use& use) {
  const QuantisedRows rows = matrix.rows();
  const Tensor buffer = at::empty({std::min(kPanel, matrix.outputs), matrix.inputs}, matrix.codes.options().dtype(at::kFloat));
  for (int64_t first = 0; first < matrix.outputs; first += kPanel) {
    const int64_t count = std::min(kPanel, matrix.outputs - first);
    dequantiseRows(rows, first, count, buffer.data_ptr<float>());
    use(first, buffer.narrow(0, 0, count));
  }
}

bool inPanels(const Tensor& x) { return x.device().is_cpu() && x.scalar_type() == at::kFloat; }

// x[M, K] → [M, N]
Tensor product(const Tensor& x, const QuantisedMatrix& matrix) {
#ifdef ATTUNE_KERNELS
  if (x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.size(0) > 0 && cudaQuantisedFits(matrix, x.size(0))) {
    Tensor y = at::empty({x.size(0), matrix.outputs}, x.options());
    cudaQuantisedProduct(matrix, x.contiguous(), {}, {}, 0, false, false, y);
    return y;
  }
#endif
  if (!inPanels(x)) return at::mm(x, dequantised(matrix, x.scalar_type()).t());
  Tensor y = at::empty({x.size(0), matrix.outputs}, x.options());
  if (y.numel() == 0) return y;
  const Tensor rows = x.contiguous();
  if (isSkinny(x.size(0), x.size(1)))
    quantisedProduct({rows.data_ptr<float>(), matrix.rows(), nullptr, y.data_ptr<float>(), x.size(0)});
  else
    eachPanel(matrix, [&](int64_t first, const Tensor& panel) {
      Tensor columns = y.narrow(1, first, panel.size(0));
      at::mm_out(columns, rows, panel.t());
    });
  return y;
}

// g[M, N] → [M, K]
Tensor productBackward(const Tensor& g, const QuantisedMatrix& matrix) {
  if (!inPanels(g)) return at::mm(g, dequantised(matrix, g.scalar_type()));
  Tensor dx = at::empty({g.size(0), matrix.inputs}, g.options());
  if (matrix.outputs == 0) return dx.zero_();
  eachPanel(matrix, [&](int64_t first, const Tensor& panel) {
    const Tensor columns = g.narrow(1, first, panel.size(0));
    if (first == 0)
      at::mm_out(dx, columns, panel);
    else
      dx.addmm_(columns, panel);
  });
  return dx;
}

class Product : public torch::autograd::Function<Product> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const QuantisedMatrix& matrix) {
    // libtorch 1.13's autograd cannot save undefined tensors: the codes stand in for tensors that this matrix does not have
    const auto orCodes = [&](const Tensor& tensor) { return tensor.defined() ? tensor : matrix.codes; };
    context->save_for_backward({matrix.codes, matrix.scales, orCodes(matrix.nested), orCodes(matrix.offsets), orCodes(matrix.levels)});
    context->saved_data["nested"] = matrix.nested.defined();
    context->saved_data["parts"] = matrix.parts;
    context->saved_data["inputs"] = matrix.inputs;
    context->saved_data["block"] = matrix.block;
    return product(x, matrix);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    const auto saved = context->get_saved_variables();
    const bool nested = context->saved_data["nested"].toBool();
    const QuantisedMatrix matrix({saved[0], saved[1], nested ? saved[2] : Tensor(), nested ? saved[3] : Tensor(), saved[4]},
                                 context->saved_data["parts"].toIntVector(), context->saved_data["inputs"].toInt(),
                                 context->saved_data["block"].toInt());
    return {productBackward(incoming[0], matrix), Tensor()};
  }
};

QuantisedMatrix matrixOf(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                         const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block) {
  return {{codes, scales, orUndefined(nested), orUndefined(offsets), orUndefined(levels)}, parts, inputs, block};
}

Tensor quantisedLinear(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                       const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block, const Tensor& x,
                       const Optional<Tensor>& biasOrNone) {
  TORCH_CHECK(x.dim() > 0 && at::isFloatingType(x.scalar_type()) && x.layout() == at::kStrided,
              "x has to be floating-point, [..., inputs]");
  TORCH_CHECK(x.size(-1) == inputs, "x has ", x.size(-1), " columns, the matrix ", inputs, " inputs");
  const Tensor bias = orUndefined(biasOrNone);
  const QuantisedMatrix matrix = matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block);
  TORCH_CHECK(x.device() == codes.device(), "x and the codes are on different devices");
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == matrix.outputs), "expected a bias of [", matrix.outputs, "]");
  const bool recorded = at::GradMode::is_enabled();
  const Tensor rows = x.dim() == 2 ? x : x.reshape({inputs == 0 ? x.numel() : x.numel() / inputs, inputs});
  Tensor y = recorded && x.requires_grad() ? Product::apply(rows, matrix) : product(rows, matrix);
  if (bias.defined()) y = recorded ? y.add(bias) : y.add_(bias);
  if (x.dim() == 2) return y;
  auto shape = x.sizes().vec();
  shape.back() = matrix.outputs;
  return y.view(shape);
}

bool roundsRows(const QuantisedMatrix& matrix, const Tensor& x, bool gated) {
  const bool recorded = at::GradMode::is_enabled() && x.requires_grad();
  return !recorded && x.dim() == 2 && x.size(1) == matrix.inputs && x.device() == matrix.codes.device() && x.layout() == at::kStrided &&
         canRoundRows(matrix, x, gated);
}

// quantised_linear with x rounded to 8 bits if that is faster (quantised_rounded.h). Without gradients.
Tensor quantisedLinearFast(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                           const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block, const Tensor& x,
                           const Optional<Tensor>& biasOrNone) {
  const QuantisedMatrix matrix = matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block);
  const Tensor bias = orUndefined(biasOrNone);
  if (!roundsRows(matrix, x, false) || (at::GradMode::is_enabled() && bias.defined() && bias.requires_grad()) ||
      (bias.defined() &&
       (bias.dim() != 1 || bias.size(0) != matrix.outputs || bias.scalar_type() != x.scalar_type() || bias.device() != x.device())))
    return quantisedLinear(codes, scales, nested, offsets, levels, parts, inputs, block, x, biasOrNone);
  return roundedProduct(matrix, x, bias);
}

// swiglu of quantised_linear_fast, in one kernel if there is one.
Tensor quantisedSwigluFast(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                           const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block, const Tensor& x) {
  const QuantisedMatrix matrix = matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block);
  if (roundsRows(matrix, x, true)) return roundedProduct(matrix, x, Tensor(), true);
  return swiglu(quantisedLinearFast(codes, scales, nested, offsets, levels, parts, inputs, block, x, {}));
}

// sum += quantised_linear_fast.
Tensor quantisedAddFast(const Tensor& sum, const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested,
                        const Optional<Tensor>& offsets, const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs,
                        int64_t block, const Tensor& x) {
  const QuantisedMatrix matrix = matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block);
  const bool plain = !(at::GradMode::is_enabled() && sum.requires_grad()) && sum.dim() == 2 && sum.size(1) == matrix.outputs &&
                     sum.scalar_type() == x.scalar_type() && sum.device() == x.device() && sum.layout() == at::kStrided &&
                     sum.is_contiguous() && reinterpret_cast<uintptr_t>(sum.data_ptr()) % 16 == 0;
  if (!plain || x.dim() != 2 || sum.size(0) != x.size(0) || !roundsRows(matrix, x, false))
    return sum.add_(quantisedLinearFast(codes, scales, nested, offsets, levels, parts, inputs, block, x, {}));
  addRoundedProduct(sum, matrix, x);
  return sum;
}

Tensor dequantise(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                  const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block, c10::ScalarType dtype) {
  TORCH_CHECK(at::isFloatingType(dtype), "a floating-point dtype is wanted");
  return dequantised(matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block), dtype);
}

Tensor dequantiseComposed(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                          const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block, c10::ScalarType dtype) {
  TORCH_CHECK(at::isFloatingType(dtype), "a floating-point dtype is wanted");
  return dequantisedByAten(matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block), dtype);
}

// x[M, K] → [M, N] with x rounded as in a decoding step whose plan allows it. For few rows of f32 on the CPU.
Tensor roundedLinear(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                     const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block, const Tensor& x) {
  const QuantisedMatrix matrix = matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block);
  TORCH_CHECK(inPanels(x) && codes.device().is_cpu() && x.dim() == 2 && x.size(1) == inputs, "expected x [rows, inputs] of f32 on the CPU");
  const Tensor rows = x.contiguous();
  Tensor y = at::empty({x.size(0), matrix.outputs}, x.options());
  quantisedProduct({rows.data_ptr<float>(), matrix.rows(), nullptr, y.data_ptr<float>(), x.size(0), false, true});
  return y;
}

// The maxima of all blocks of a 4-bit matrix as f32, one part after the other. On the CPU.
Tensor blockMaxima(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, const Optional<Tensor>& offsets,
                   const Optional<Tensor>& levels, at::IntArrayRef parts, int64_t inputs, int64_t block) {
  const QuantisedMatrix matrix = matrixOf(codes, scales, nested, offsets, levels, parts, inputs, block);
  TORCH_CHECK(matrix.four && codes.device().is_cpu(), "a matrix in 4 bits on the CPU is wanted");
  Tensor maxima = at::empty({scales.numel()}, scales.options().dtype(at::kFloat));
  float* to = maxima.data_ptr<float>();
  const QuantisedRows rows = matrix.rows();
  for (const QuantisedPart& part : rows.parts) {
    const int64_t count = piecesOf(part.outputs * inputs, block);
    blockScales(part, 0, count, to);
    to += count;
  }
  return maxima;
}

// libtorch asserts at compile time that an operator's function is not null. Under -fsanitize, g++ knows that only of functions in this
// file.
bool canRoundHere() { return canRound(); }

}  // namespace
}  // namespace attune

#define MATRIX "Tensor codes, Tensor scales, Tensor? nested, Tensor? offsets, Tensor? levels, int[] parts, int inputs, int block"

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("dequantise(" MATRIX ", ScalarType dtype) -> Tensor");
  library.impl("dequantise", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::dequantise));
  library.def("dequantise_composed(" MATRIX ", ScalarType dtype) -> Tensor");
  library.impl("dequantise_composed", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::dequantiseComposed));
  library.def("rounded_linear(" MATRIX ", Tensor x) -> Tensor");
  library.impl("rounded_linear", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::roundedLinear));
  library.def("can_round() -> bool", TORCH_FN(attune::canRoundHere));
  library.def("block_maxima(" MATRIX ") -> Tensor");
  library.impl("block_maxima", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::blockMaxima));
  library.def("quantised_linear(" MATRIX ", Tensor x, Tensor? bias=None) -> Tensor");
  library.impl("quantised_linear", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantisedLinear));
  library.def("quantised_linear_fast(" MATRIX ", Tensor x, Tensor? bias=None) -> Tensor");
  library.impl("quantised_linear_fast", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantisedLinearFast));
  library.def("quantised_add_fast_(Tensor(a!) sum, " MATRIX ", Tensor x) -> Tensor(a!)");
  library.impl("quantised_add_fast_", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantisedAddFast));
  library.def("quantised_swiglu_fast(" MATRIX ", Tensor x) -> Tensor");
  library.impl("quantised_swiglu_fast", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantisedSwigluFast));
}
