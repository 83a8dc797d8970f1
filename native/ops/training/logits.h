// Logits of some rows at a time, in f32 for every input dtype (f64 for f64): what the losses over a vocabulary are computed from.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>

#include "cpu/precise_products.h"
#include "cpu/skinny/product.h"

namespace attune {

// Rows of the head that are widened at once, so that there is never a whole second copy.
constexpr int64_t kWidenedRows = 8192;

// Memory for one chunk after the other. On the CPU it is reused: the system would map and clear fresh memory each time, which takes as long
// as a pass over it.
class Place {
 public:
  at::Tensor of(int64_t rows, int64_t columns, const at::TensorOptions& options) {
    const int64_t size = rows * columns;
    if (!place_.defined() || place_.numel() < size) place_ = at::empty({size}, options);
    return place_.narrow(0, 0, size).view({rows, columns});
  }
  // Leaves the last chunk's memory to the caller.
  void giveUp() { place_ = at::Tensor(); }

 private:
  at::Tensor place_;
};

// hidden·weightᵀ
inline at::Tensor logitsOf(const at::Tensor& hidden, const at::Tensor& weight, Place& place) {
  if (needsWidening(weight)) {
    const at::Tensor wide = hidden.to(at::kFloat);
    at::Tensor z = place.of(hidden.size(0), weight.size(0), wide.options());
    for (int64_t start = 0; start < weight.size(0); start += kWidenedRows) {
      const int64_t length = std::min(kWidenedRows, weight.size(0) - start);
      at::Tensor columns = z.narrow(1, start, length);
      at::mm_out(columns, wide, weight.narrow(0, start, length).to(at::kFloat).t());
    }
    return z;
  }
  if (!hidden.is_cpu() || isHalf(hidden)) return preciseProduct(hidden, weight.t());
  at::Tensor z = place.of(hidden.size(0), weight.size(0), hidden.options());
  const int64_t inputs = hidden.size(1);
  if (hidden.scalar_type() == at::kFloat && takesAllRows(inputs) && hidden.is_contiguous() && weight.is_contiguous())
    skinnyProduct(SkinnyProduct<float>{hidden.data_ptr<float>(), weight.data_ptr<float>(), nullptr, z.data_ptr<float>(), hidden.size(0), inputs,
                                       weight.size(0)});
  else
    at::mm_out(z, hidden, weight.t());
  return z;
}

}  // namespace attune
