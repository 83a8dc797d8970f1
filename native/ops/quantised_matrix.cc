#include "ops/quantised_matrix.h"

#include <ATen/ATen.h>

#include <map>
#include <mutex>

#ifdef ATTUNE_KERNELS
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/quantised/quantised.h"
#endif

namespace attune {
namespace {

using at::Tensor;

// The dynamic map on a device, copied there once: a graph capture must not copy from the host.
const Tensor& dynamicMapOn(const c10::Device& device) {
  static std::mutex mutex;
  static auto* known = new std::map<std::string, Tensor>();  // never freed: at process exit CUDA may be gone before it
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known->find(device.str());
  if (found != known->end()) return found->second;
  return known->emplace(device.str(), at::from_blob(const_cast<float*>(dynamicMap()), {256}, at::kFloat).clone().to(device)).first->second;
}

void checkPart(const Tensor& part, const char* name, c10::ScalarType dtype, int64_t count, const Tensor& codes) {
  TORCH_CHECK(part.defined() && part.scalar_type() == dtype && part.numel() == count && part.is_contiguous() &&
                  part.device() == codes.device() && part.layout() == at::kStrided,
              name, " does not belong to these codes");
}

// Where the tensors of one part begin.
struct Place {
  int64_t rows, code, scale, nested;
};

// Calls use(part, place) for each part; returns where the last one ends.
template <typename Use>
Place eachPlace(const QuantisedMatrix& matrix, const Use& use) {
  Place place{0, 0, 0, 0};
  for (size_t i = 0; i < matrix.parts.size(); i++) {
    place.rows = matrix.parts[i];
    use(static_cast<int64_t>(i), place);
    const int64_t count = place.rows * matrix.inputs, blocks = matrix.four ? piecesOf(count, matrix.block) : place.rows;
    place.code += matrix.four ? piecesOf(count, 2) : count;
    place.scale += blocks;
    place.nested += matrix.four ? piecesOf(blocks, kNestedRun) : 0;
  }
  return place;
}

#ifdef ATTUNE_KERNELS
Tensor dequantisedByKernel(const QuantisedMatrix& matrix, c10::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(matrix.codes.device());
  Tensor out = at::empty({matrix.outputs, matrix.inputs}, matrix.codes.options().dtype(dtype));
  const bool nested = matrix.nested.defined();
  const float* map = nested ? dynamicMapOn(matrix.codes.device()).data_ptr<float>() : nullptr;
  const Kind kind = dtype == at::kFloat ? Kind::Float32 : dtype == at::kHalf ? Kind::Float16 : Kind::BFloat16;
  int64_t row = 0;
  eachPlace(matrix, [&](int64_t part, const Place& at) {
    DequantiseArgs args{};
    args.codes = static_cast<const char*>(matrix.codes.data_ptr()) + at.code;
    args.scales = static_cast<const char*>(matrix.scales.data_ptr()) + at.scale * matrix.scales.element_size();
    args.nested = nested ? matrix.nested.data_ptr<float>() + at.nested : nullptr;
    args.offset = nested ? matrix.offsets.data_ptr<float>() + part : nullptr;
    args.levels = matrix.four ? matrix.levels.data_ptr<float>() : nullptr;
    args.map = map;
    args.out = static_cast<char*>(out.data_ptr()) + row * matrix.inputs * out.element_size();
    args.outputs = at.rows;
    args.inputs = matrix.inputs;
    args.block = matrix.block;
    launchDequantise(kind, matrix.four, args, c10::cuda::getCurrentCUDAStream().stream());
    row += at.rows;
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
#endif

}  // namespace

QuantisedMatrix::QuantisedMatrix(QuantisedTensors tensors, at::IntArrayRef rows, int64_t inputs, int64_t block)
    : QuantisedTensors(std::move(tensors)), parts(rows.vec()), outputs(0), inputs(inputs), block(block) {
  TORCH_CHECK(codes.defined() && codes.is_contiguous() && codes.layout() == at::kStrided &&
                  (codes.scalar_type() == at::kChar || codes.scalar_type() == at::kByte),
              "codes have to be contiguous, int8 or (two weights a byte) uint8");
  four = codes.scalar_type() == at::kByte;
  TORCH_CHECK(inputs >= 0 && inputs <= (int64_t{1} << 31), "there cannot be ", inputs, " inputs");
  TORCH_CHECK(!four || (block >= 2 && block % 2 == 0), "blocks of ", block, " weights: an even number is wanted");
  for (const int64_t part : parts) {
    TORCH_CHECK(part >= 0 && part <= (int64_t{1} << 31), "a part cannot have ", part, " rows");
    outputs += part;
  }
  const Place end = eachPlace(*this, [](int64_t, const Place&) {});
  TORCH_CHECK(codes.numel() == end.code, codes.numel(), " codes are not those of ", outputs, " rows of ", inputs, " inputs");
  checkPart(scales, "scales", four && nested.defined() ? at::kByte : at::kFloat, end.scale, codes);
  if (!four) return;
  checkPart(levels, "levels", at::kFloat, 16, codes);
  if (!nested.defined()) return;
  checkPart(nested, "nested", at::kFloat, end.nested, codes);
  checkPart(offsets, "offsets", at::kFloat, static_cast<int64_t>(parts.size()), codes);
}

QuantisedRows QuantisedMatrix::rows() const {
  QuantisedRows found{four, outputs, inputs, block, four ? levels.data_ptr<float>() : nullptr, {}};
  eachPlace(*this, [&](int64_t part, const Place& at) {
    const bool doubled = four && nested.defined();
    found.parts.push_back({at.rows, static_cast<const char*>(codes.data_ptr()) + at.code,
                           static_cast<const char*>(scales.data_ptr()) + at.scale * scales.element_size(),
                           doubled ? nested.data_ptr<float>() + at.nested : nullptr, doubled ? offsets.data_ptr<float>()[part] : 0.0f});
  });
  return found;
}

#ifdef ATTUNE_KERNELS
bool cudaQuantisedFits(const QuantisedMatrix& m, int64_t rows) {
  const c10::cuda::CUDAGuard guard(m.codes.device());
  return m.parts.size() <= kMostParts && reinterpret_cast<uintptr_t>(m.codes.data_ptr()) % 16 == 0 &&
         quantisedProductFits(rows, m.inputs, m.outputs, m.four, m.block);
}

void cudaQuantisedProduct(const QuantisedMatrix& m, const Tensor& x, const Tensor& bias, const Tensor& norm, double eps, bool gated,
                          bool add, Tensor& y) {
  const c10::cuda::CUDAGuard guard(m.codes.device());
  const bool nested = m.four && m.nested.defined();
  QuantisedProductArgs args{};
  args.product = {x.data_ptr(),
                  nullptr,
                  bias.defined() ? bias.data_ptr() : nullptr,
                  norm.defined() ? norm.data_ptr() : nullptr,
                  y.data_ptr(),
                  x.size(0),
                  m.inputs,
                  m.outputs / (gated ? 2 : 1),
                  static_cast<float>(eps),
                  gated,
                  add};
  args.four = m.four;
  args.parts = static_cast<int>(m.parts.size());
  args.block = static_cast<int>(m.block);
  args.levels = m.four ? m.levels.data_ptr<float>() : nullptr;
  args.map = nested ? dynamicMapOn(m.codes.device()).data_ptr<float>() : nullptr;
  eachPlace(m, [&](int64_t part, const Place& at) {
    QuantisedProductArgs::Part& to = args.part[part];
    to.codes = static_cast<const char*>(m.codes.data_ptr()) + at.code;
    to.scales = static_cast<const char*>(m.scales.data_ptr()) + at.scale * m.scales.element_size();
    to.nested = nested ? m.nested.data_ptr<float>() + at.nested : nullptr;
    to.offset = nested ? m.offsets.data_ptr<float>() + part : nullptr;
    to.rows = static_cast<int>(at.rows);
  });
  launchQuantisedProduct(args, c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
#endif

Tensor dequantisedByAten(const QuantisedMatrix& m, c10::ScalarType dtype) {
  if (!m.four) return m.codes.view({m.outputs, m.inputs}).to(at::kFloat).mul_(m.scales.mul(1.0 / 127).unsqueeze(1)).to(dtype);
  std::vector<Tensor> parts;
  eachPlace(m, [&](int64_t part, const Place& at) {
    const int64_t count = at.rows * m.inputs, blocks = piecesOf(count, m.block), runs = piecesOf(blocks, kNestedRun);
    Tensor peaks = m.scales.narrow(0, at.scale, blocks);
    if (m.nested.defined()) {
      const Tensor largest = m.nested.narrow(0, at.nested, runs).repeat_interleave(kNestedRun).narrow(0, 0, blocks);
      peaks = dynamicMapOn(m.codes.device()).index_select(0, peaks.to(at::kInt)).mul_(largest).add_(m.offsets.select(0, part));
    }
    const Tensor codes = m.codes.narrow(0, at.code, piecesOf(count, 2));
    const Tensor both = at::stack({at::bitwise_right_shift(codes, 4), codes.bitwise_and(15)}, 1).view(-1).narrow(0, 0, count);
    const Tensor values = m.levels.index_select(0, both.to(at::kInt)).mul_(peaks.repeat_interleave(m.block).narrow(0, 0, count));
    parts.push_back(values.view({at.rows, m.inputs}).to(dtype));
  });
  return at::cat(parts);
}

Tensor dequantised(const QuantisedMatrix& matrix, c10::ScalarType dtype) {
  if (matrix.codes.device().is_cpu()) {
    Tensor out = at::empty({matrix.outputs, matrix.inputs}, matrix.codes.options().dtype(at::kFloat));
    dequantiseRows(matrix.rows(), 0, matrix.outputs, out.data_ptr<float>());
    return out.to(dtype);
  }
#ifdef ATTUNE_KERNELS
  if (matrix.codes.is_cuda() && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16))
    return dequantisedByKernel(matrix, dtype);
#endif
  return dequantisedByAten(matrix, dtype);
}

}  // namespace attune
