// attune::quantised_linear(x[…, K], codes, scales, nested?, offset, bias?) = x·Wᵀ + bias, where W is a frozen matrix held in 8 or 4
// bits (quantised_rows.h). The gradient goes to x and to the bias; nothing of the plain matrix outlives the call, backward makes
// it again. In f32 on the CPU it never exists whole: panels of rows are made where they are used.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "ops/optional.h"
#include "ops/quantised_matrix.h"
#include "cpu/skinny_product.h"

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kSkinnyPanel = 16;  // the columns that skinnyProduct keeps in the first cache
constexpr int64_t kPanel = 256;       // rows, enough for a BLAS to be at its best

// A decoding step. Every thread makes the rows that it needs itself.
void skinnyPanels(const Tensor& x, const QuantisedMatrix& matrix, Tensor& y) {
  const QuantisedRows rows = matrix.rows();
  const int64_t m = x.size(0), k = matrix.inputs, n = matrix.outputs, panels = (n + kSkinnyPanel - 1) / kSkinnyPanel;
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  at::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> panel(kSkinnyPanel * k), out(m * kSkinnyPanel);
    for (int64_t p = begin; p < end; p++) {
      const int64_t first = p * kSkinnyPanel, count = std::min(kSkinnyPanel, n - first);
      dequantiseRows(rows, first, count, panel.data());
      skinnyProduct({from, panel.data(), nullptr, out.data(), m, k, count});
      for (int64_t row = 0; row < m; row++) std::copy_n(out.data() + row * count, count, to + row * n + first);
    }
  });
}

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
  if (!inPanels(x)) return at::mm(x, dequantised(matrix, x.scalar_type()).t());
  Tensor y = at::empty({x.size(0), matrix.outputs}, x.options());
  if (y.numel() == 0) return y;
  const Tensor rows = x.contiguous();
  if (isSkinny(x.size(0), x.size(1)))
    skinnyPanels(rows, matrix, y);
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
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& codes, const Tensor& scales, const Tensor& nested,
                        double offset) {
    context->save_for_backward({codes, scales, nested});
    context->saved_data["offset"] = offset;
    context->saved_data["inputs"] = x.size(1);
    return product(x, {codes, scales, nested, offset, x.size(1)});
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list incoming) {
    const auto saved = context->get_saved_variables();
    const QuantisedMatrix matrix(saved[0], saved[1], saved[2], context->saved_data["offset"].toDouble(), context->saved_data["inputs"].toInt());
    return {productBackward(incoming[0], matrix), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

Tensor given(const Optional<Tensor>& tensor) { return tensor.has_value() ? *tensor : Tensor(); }

Tensor quantisedLinear(const Tensor& x, const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nestedOrNone, double offset,
                       const Optional<Tensor>& biasOrNone) {
  TORCH_CHECK(x.dim() > 0 && at::isFloatingType(x.scalar_type()) && x.layout() == at::kStrided, "x has to be floating-point, [..., inputs]");
  const Tensor nested = given(nestedOrNone), bias = given(biasOrNone);
  const QuantisedMatrix matrix(codes, scales, nested, offset, x.size(-1));
  TORCH_CHECK(x.device() == codes.device(), "x and the codes are on different devices");
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.size(0) == matrix.outputs), "expected a bias of [", matrix.outputs, "]");
  const bool recorded = at::GradMode::is_enabled();
  const Tensor rows = x.dim() == 2 ? x : x.reshape({matrix.inputs == 0 ? x.numel() : x.numel() / matrix.inputs, matrix.inputs});
  // autograd of 1.13 takes no undefined tensor; of 8 bits nobody reads that one
  const Tensor& third = matrix.four ? nested : scales;
  Tensor y = recorded && x.requires_grad() ? Product::apply(rows, codes, scales, third, offset) : product(rows, matrix);
  if (bias.defined()) y = recorded ? y.add(bias) : y.add_(bias);
  if (x.dim() == 2) return y;
  auto shape = x.sizes().vec();
  shape.back() = matrix.outputs;
  return y.view(shape);
}

Tensor dequantise(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, double offset, int64_t inputs, c10::ScalarType dtype) {
  TORCH_CHECK(at::isFloatingType(dtype), "a floating-point dtype is wanted");
  return dequantised({codes, scales, given(nested), offset, inputs}, dtype);
}

Tensor dequantiseComposed(const Tensor& codes, const Tensor& scales, const Optional<Tensor>& nested, double offset, int64_t inputs, c10::ScalarType dtype) {
  TORCH_CHECK(at::isFloatingType(dtype), "a floating-point dtype is wanted");
  return dequantisedByAten({codes, scales, given(nested), offset, inputs}, dtype);
}

// The matrices of a list lie below one another in the result. They may be what a file holds, in any dtype and order: only
// a panel at a time becomes f32.
struct Stack {
  at::TensorList parts;
  int64_t outputs = 0, inputs;
  explicit Stack(at::TensorList parts) : parts(parts) {
    TORCH_CHECK(!parts.empty(), "there is no matrix");
    for (const Tensor& part : parts) {
      TORCH_CHECK(part.dim() == 2 && at::isFloatingType(part.scalar_type()) && part.device().is_cpu() && part.layout() == at::kStrided,
                  "a floating-point matrix on the CPU is wanted");
      TORCH_CHECK(part.size(1) == parts[0].size(1), "the matrices differ in their number of columns");
      outputs += part.size(0);
    }
    inputs = parts[0].size(1);
  }
  /** quantise(rows, first, count) for panel after panel; it says whether all numbers were finite. */
  template <typename Quantise>
  void each(const Quantise& quantise) const {
    int64_t place = 0;
    for (const Tensor& part : parts) {
      for (int64_t first = 0; first < part.size(0); first += kPanel) {
        const int64_t count = std::min(kPanel, part.size(0) - first);
        const Tensor rows = part.detach().narrow(0, first, count).to(at::kFloat).contiguous();
        TORCH_CHECK(quantise(rows.data_ptr<float>(), place, count), "the weights hold numbers that are not finite");
        place += count;
      }
    }
  }
};

std::tuple<Tensor, Tensor> quantiseToInt8(at::TensorList parts) {
  const Stack stack(parts);
  Tensor codes = at::empty({stack.outputs, stack.inputs}, at::kChar), scales = at::empty({stack.outputs}, at::kFloat);
  stack.each([&](const float* rows, int64_t first, int64_t count) {
    return quantiseInt8(rows, count, stack.inputs, codes.data_ptr<int8_t>() + first * stack.inputs, scales.data_ptr<float>() + first);
  });
  return {codes, scales};
}

std::tuple<Tensor, Tensor, Tensor, double> quantiseToNf4(at::TensorList parts) {
  const Stack stack(parts);
  const int64_t bytes = (stack.inputs + 1) / 2, blocks = blocksOf(stack.inputs), count = stack.outputs * blocks;
  Tensor codes = at::empty({stack.outputs, bytes}, at::kByte), scales = at::empty({stack.outputs, blocks}, at::kByte);
  Tensor nested = at::empty({(count + kNf4Run - 1) / kNf4Run}, at::kFloat);
  std::vector<float> peaks(count);
  stack.each([&](const float* rows, int64_t first, int64_t some) {
    return quantiseNf4(rows, some, stack.inputs, codes.data_ptr<uint8_t>() + first * bytes, peaks.data() + first * blocks);
  });
  const float offset = quantisePeaks(peaks.data(), count, scales.data_ptr<uint8_t>(), nested.data_ptr<float>());
  return {codes, scales, nested, static_cast<double>(offset)};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("quantise_int8(Tensor[] parts) -> (Tensor codes, Tensor scales)");
  library.impl("quantise_int8", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantiseToInt8));
  library.def("quantise_nf4(Tensor[] parts) -> (Tensor codes, Tensor scales, Tensor nested, float offset)");
  library.impl("quantise_nf4", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantiseToNf4));
  library.def("dequantise(Tensor codes, Tensor scales, Tensor? nested, float offset, int inputs, ScalarType dtype) -> Tensor");
  library.impl("dequantise", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::dequantise));
  library.def("dequantise_composed(Tensor codes, Tensor scales, Tensor? nested, float offset, int inputs, ScalarType dtype) -> Tensor");
  library.impl("dequantise_composed", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::dequantiseComposed));
  library.def("quantised_linear(Tensor x, Tensor codes, Tensor scales, Tensor? nested, float offset, Tensor? bias=None) -> Tensor");
  library.impl("quantised_linear", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantisedLinear));
}
