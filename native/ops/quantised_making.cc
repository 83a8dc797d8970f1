// attune::quantise_int8 and attune::quantise_nf4 convert plain matrices to the format of cpu/quantised/rows.h. A matrix may be mapped from
// a file, in any dtype and memory order. Only one panel at a time is converted to f32.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "cpu/quantised/rows.h"

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kPanel = 256;  // rows of a panel; a multiple of the block size, so that every panel starts a block whatever its width
static_assert(kPanel % kNf4Block == 0);

int64_t checkedOutputs(at::TensorList parts) {
  TORCH_CHECK(!parts.empty(), "there is no matrix");
  int64_t outputs = 0;
  for (const Tensor& part : parts) {
    TORCH_CHECK(part.dim() == 2 && at::isFloatingType(part.scalar_type()) && part.device().is_cpu() && part.layout() == at::kStrided,
                "a floating-point matrix on the CPU is wanted");
    TORCH_CHECK(part.size(1) == parts[0].size(1), "the matrices differ in their number of columns");
    outputs += part.size(0);
  }
  return outputs;
}

// Calls quantise(rows, first, count) for each panel of a part; it returns whether all numbers were finite.
template <typename Quantise>
void eachPanel(const Tensor& part, const Quantise& quantise) {
  for (int64_t first = 0; first < part.size(0); first += kPanel) {
    const int64_t count = std::min(kPanel, part.size(0) - first);
    const Tensor rows = part.detach().narrow(0, first, count).to(at::kFloat).contiguous();
    TORCH_CHECK(quantise(rows.data_ptr<float>(), first, count), "the weights hold numbers that are not finite");
  }
}

std::tuple<Tensor, Tensor> quantiseToInt8(at::TensorList parts) {
  const int64_t outputs = checkedOutputs(parts), inputs = parts[0].size(1);
  Tensor codes = at::empty({outputs, inputs}, at::kChar), scales = at::empty({outputs}, at::kFloat);
  int64_t start = 0;
  for (const Tensor& part : parts) {
    eachPanel(part, [&](const float* rows, int64_t first, int64_t count) {
      return quantiseInt8(rows, count, inputs, codes.data_ptr<int8_t>() + (start + first) * inputs,
                          scales.data_ptr<float>() + start + first);
    });
    start += part.size(0);
  }
  return {codes, scales};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> quantiseToNf4(at::TensorList parts) {
  checkedOutputs(parts);
  const int64_t inputs = parts[0].size(1);
  std::vector<Tensor> allCodes, allScales, allNested;
  Tensor offsets = at::empty({static_cast<int64_t>(parts.size())}, at::kFloat);
  for (const Tensor& part : parts) {
    const int64_t count = part.size(0) * inputs, blocks = piecesOf(count, kNf4Block);
    Tensor codes = at::empty({piecesOf(count, 2)}, at::kByte), scales = at::empty({blocks}, at::kByte);
    Tensor nested = at::empty({piecesOf(blocks, kNestedRun)}, at::kFloat);
    std::vector<float> peaks(blocks);
    eachPanel(part, [&](const float* rows, int64_t first, int64_t some) {
      const int64_t start = first * inputs;
      return quantiseNf4(rows, some * inputs, codes.data_ptr<uint8_t>() + start / 2, peaks.data() + start / kNf4Block);
    });
    offsets.data_ptr<float>()[allCodes.size()] = quantisePeaks(peaks.data(), blocks, scales.data_ptr<uint8_t>(), nested.data_ptr<float>());
    allCodes.push_back(codes);
    allScales.push_back(scales);
    allNested.push_back(nested);
  }
  const Tensor levels = at::from_blob(const_cast<float*>(nf4Levels()), {16}, at::kFloat).clone();
  return {at::cat(allCodes), at::cat(allScales), at::cat(allNested), offsets, levels};
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("quantise_int8(Tensor[] parts) -> (Tensor codes, Tensor scales)");
  library.impl("quantise_int8", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantiseToInt8));
  library.def("quantise_nf4(Tensor[] parts) -> (Tensor codes, Tensor scales, Tensor nested, Tensor offsets, Tensor levels)");
  library.impl("quantise_nf4", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::quantiseToNf4));
}
