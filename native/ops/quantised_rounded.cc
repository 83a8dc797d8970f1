#include "ops/quantised_rounded.h"

#ifdef ATTUNE_KERNELS
#include "cuda/launching.h"
#include "cuda/quantised/quantised.h"
#include "cuda/quantised/rounded_product.h"
#endif

namespace attune {

using at::Tensor;

#ifdef ATTUNE_KERNELS
namespace {

constexpr int64_t kFewestRows = 64, kFewestInputs = 256;

RoundedProduct sizesOf(const QuantisedMatrix& matrix, const Tensor& x, bool gated) {
  RoundedProduct sizes{};
  sizes.rows = x.size(0), sizes.inputs = matrix.inputs, sizes.outputs = matrix.outputs, sizes.gated = gated;
  sizes.stride = gated ? matrix.outputs / 2 : matrix.outputs;
  return sizes;
}

}  // namespace

bool canRoundRows(const QuantisedMatrix& matrix, const Tensor& x, bool gated) {
  if (matrix.four || !x.is_cuda() || x.scalar_type() != at::kBFloat16 || x.size(0) < kFewestRows || x.size(0) > kMostRoundedRows ||
      matrix.inputs < kFewestInputs || matrix.inputs > kMostRoundedInputs)
    return false;
  const Launch launch(x);
  return matrix.outputs > 0 && isAligned(matrix.codes) && isAligned(matrix.scales) && roundedProductFits(sizesOf(matrix, x, gated));
}

Tensor roundedProduct(const QuantisedMatrix& matrix, const Tensor& given, const Tensor& bias, bool gated) {
  const Tensor x = aligned(given), added = aligned(bias);
  const Launch launch(x);
  RoundedProduct product = sizesOf(matrix, x, gated);
  const int64_t rows = product.rows, inputs = product.inputs, outputs = product.outputs;
  const auto made = [&](at::IntArrayRef shape, c10::ScalarType dtype) { return at::empty(shape, x.options().dtype(dtype)); };
  const Tensor maxima = at::zeros({inputs}, x.options().dtype(at::kInt)), chosen = made({kColumnsApart}, at::kInt);
  const Tensor stays = made({inputs}, at::kShort), scales = made({rows}, at::kFloat), apart = made({rows, kColumnsApart}, at::kBFloat16);
  const Tensor codes = made({rows, inputs}, at::kChar), weightsApart = made({outputs, kColumnsApart}, at::kBFloat16);
  Tensor y = made({rows, product.stride}, at::kBFloat16);
  launchRoundRows(
      {x.data_ptr(), rows, inputs, reinterpret_cast<unsigned*>(maxima.data_ptr<int>()), chosen.data_ptr<int>(),
       reinterpret_cast<unsigned short*>(stays.data_ptr<int16_t>()), codes.data_ptr<int8_t>(), scales.data_ptr<float>(), apart.data_ptr()},
      launch.stream);
  launchCodesApart(matrix.codes.data_ptr(), chosen.data_ptr<int>(), outputs, inputs, weightsApart.data_ptr(), launch.stream);
  product.codes = codes.data_ptr<int8_t>(), product.weights = static_cast<const signed char*>(matrix.codes.data_ptr());
  product.rowScales = scales.data_ptr<float>(), product.scales = matrix.scales.data_ptr<float>();
  product.apart = apart.data_ptr(), product.weightsApart = weightsApart.data_ptr(), product.bias = pointer(added), product.y = y.data_ptr();
  launchRoundedProduct(product, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
#else
bool canRoundRows(const QuantisedMatrix&, const Tensor&, bool) { return false; }
Tensor roundedProduct(const QuantisedMatrix&, const Tensor&, const Tensor&, bool) {
  TORCH_CHECK(false, "there is no kernel for this here");
}
#endif

}  // namespace attune
