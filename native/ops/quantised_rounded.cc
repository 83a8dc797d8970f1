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

namespace {

// Offsets within one allocation, each a multiple of 256 bytes: seven allocations would take longer than a small product.
class Room {
 public:
  size_t take(int64_t bytes) {
    const size_t start = size_;
    size_ += (static_cast<size_t>(bytes) + 255) / 256 * 256;
    return start;
  }
  int64_t size() const { return static_cast<int64_t>(size_); }

 private:
  size_t size_ = 0;
};

void multiply(RoundedProduct product, const QuantisedMatrix& matrix, const Tensor& given, const Tensor& bias, const Tensor& y) {
  const Tensor x = aligned(given), added = aligned(bias);
  const Launch launch(x);
  const int64_t rows = product.rows, inputs = product.inputs, outputs = product.outputs;
  Room room;
  const size_t maxima = room.take(inputs * 4), chosen = room.take(kColumnsApart * 4), stays = room.take(inputs * 2);
  const size_t scales = room.take(rows * 4), apart = room.take(rows * kColumnsApart * 2), codes = room.take(rows * inputs);
  const size_t weightsApart = room.take(outputs * kColumnsApart * 2);
  const Tensor memory = at::empty({room.size()}, x.options().dtype(at::kByte));
  char* const first = static_cast<char*>(memory.data_ptr());
  C10_CUDA_CHECK(cudaMemsetAsync(first + maxima, 0, static_cast<size_t>(inputs) * 4, launch.stream));
  product.codes = reinterpret_cast<signed char*>(first + codes), product.weights = static_cast<const signed char*>(matrix.codes.data_ptr());
  product.rowScales = reinterpret_cast<float*>(first + scales), product.scales = matrix.scales.data_ptr<float>();
  product.apart = first + apart, product.weightsApart = first + weightsApart, product.bias = pointer(added), product.y = y.data_ptr();
  launchRoundRows({x.data_ptr(), rows, inputs, reinterpret_cast<unsigned*>(first + maxima), reinterpret_cast<int*>(first + chosen),
                   reinterpret_cast<unsigned short*>(first + stays), reinterpret_cast<signed char*>(first + codes),
                   reinterpret_cast<float*>(first + scales), first + apart, product.weights, outputs, first + weightsApart},
                  launch.stream);
  launchRoundedProduct(product, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

Tensor roundedProduct(const QuantisedMatrix& matrix, const Tensor& x, const Tensor& bias, bool gated) {
  const RoundedProduct product = sizesOf(matrix, x, gated);
  const Tensor y = at::empty({product.rows, product.stride}, x.options());
  multiply(product, matrix, x, bias, y);
  return y;
}

void addRoundedProduct(const Tensor& sum, const QuantisedMatrix& matrix, const Tensor& x) {
  RoundedProduct product = sizesOf(matrix, x, false);
  product.adds = true;
  multiply(product, matrix, x, Tensor(), sum);
}
#else
bool canRoundRows(const QuantisedMatrix&, const Tensor&, bool) { return false; }
Tensor roundedProduct(const QuantisedMatrix&, const Tensor&, const Tensor&, bool) {
  TORCH_CHECK(false, "there is no kernel for this here");
}
void addRoundedProduct(const Tensor&, const QuantisedMatrix&, const Tensor&) { TORCH_CHECK(false, "there is no kernel for this here"); }
#endif

}  // namespace attune
