#include "ops/quantised_matrix.h"

#include <ATen/ATen.h>

#include <map>
#include <mutex>

#ifdef ATTUNE_KERNELS
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/quantised.h"
#endif

namespace attune {
namespace {

using at::Tensor;

struct DeviceTables {
  Tensor levels, scales, pairs;
};

// The tables on a device, made there once: a graph that is being captured may not copy them from the host.
const DeviceTables& tablesOn(const c10::Device& device) {
  static std::mutex mutex;
  static auto* known = new std::map<std::string, DeviceTables>();  // never freed: CUDA may be gone before it
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = known->find(device.str());
  if (found != known->end()) return found->second;
  const Nf4Tables& tables = nf4Tables();
  const auto on = [&](const float* values, at::IntArrayRef shape) {
    return at::from_blob(const_cast<float*>(values), shape, at::kFloat).clone().to(device);
  };
  return known->emplace(device.str(), DeviceTables{on(tables.levels, {16}), on(tables.scales, {256}), on(tables.pairs[0], {256, 2})}).first->second;
}

void checkPart(const Tensor& part, const char* name, c10::ScalarType dtype, int64_t count, const Tensor& codes) {
  TORCH_CHECK(part.defined() && part.scalar_type() == dtype && part.numel() == count && part.is_contiguous() && part.device() == codes.device() &&
                  part.layout() == at::kStrided,
              name, " does not belong to these codes");
}

#ifdef ATTUNE_KERNELS
Tensor dequantisedByKernel(const QuantisedMatrix& matrix, c10::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(matrix.codes.device());
  Tensor out = at::empty({matrix.outputs, matrix.inputs}, matrix.codes.options().dtype(dtype));
  DequantiseArgs args{};
  args.codes = matrix.codes.data_ptr();
  args.scales = matrix.scales.data_ptr();
  if (matrix.four) {
    const DeviceTables& tables = tablesOn(matrix.codes.device());
    args.nested = matrix.nested.data_ptr<float>();
    args.levels = tables.levels.data_ptr<float>();
    args.map = tables.scales.data_ptr<float>();
  }
  args.offset = static_cast<float>(matrix.offset);
  args.out = out.data_ptr();
  args.outputs = matrix.outputs;
  args.inputs = matrix.inputs;
  const Kind kind = dtype == at::kFloat ? Kind::Float32 : dtype == at::kHalf ? Kind::Float16 : Kind::BFloat16;
  launchDequantise(kind, matrix.four, args, c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
#endif

}  // namespace

QuantisedMatrix::QuantisedMatrix(const Tensor& codes, const Tensor& scales, const Tensor& nested, double offset, int64_t inputs)
    : codes(codes), scales(scales), nested(nested), offset(offset), inputs(inputs) {
  TORCH_CHECK(codes.dim() == 2 && codes.is_contiguous() && codes.layout() == at::kStrided && (codes.scalar_type() == at::kChar || codes.scalar_type() == at::kByte),
              "codes have to be a contiguous matrix, int8 or (two weights a byte) uint8");
  outputs = codes.size(0);
  four = codes.scalar_type() == at::kByte;
  TORCH_CHECK(inputs >= 0 && codes.size(1) == (four ? inputs / 2 + inputs % 2 : inputs), "codes with ", codes.size(1), " columns are not those of ", inputs, " inputs");
  const int64_t blocks = outputs * blocksOf(inputs);
  checkPart(scales, "scales", four ? at::kByte : at::kFloat, four ? blocks : outputs, codes);
  if (four) checkPart(nested, "nested", at::kFloat, (blocks + kNf4Run - 1) / kNf4Run, codes);
}

QuantisedRows QuantisedMatrix::rows() const {
  return {four, outputs, inputs, codes.data_ptr(), scales.data_ptr(), four ? nested.data_ptr<float>() : nullptr, static_cast<float>(offset)};
}

Tensor dequantisedByAten(const QuantisedMatrix& m, c10::ScalarType dtype) {
  if (!m.four) return m.codes.to(at::kFloat).mul_(m.scales.unsqueeze(1)).to(dtype);
  const DeviceTables& tables = tablesOn(m.codes.device());
  const int64_t blocks = blocksOf(m.inputs);
  const Tensor nested = m.nested.repeat_interleave(kNf4Run).narrow(0, 0, m.scales.numel());
  const Tensor peaks = tables.scales.index_select(0, m.scales.reshape(-1).to(at::kInt)).mul_(nested).add_(m.offset);
  Tensor values = tables.pairs.index_select(0, m.codes.reshape(-1).to(at::kInt)).view({m.outputs, -1}).narrow(1, 0, m.inputs);
  if (m.inputs % kNf4Block == 0)
    values.view({m.outputs, blocks, kNf4Block}).mul_(peaks.view({m.outputs, blocks, 1}));
  else
    values.mul_(peaks.view({m.outputs, blocks}).repeat_interleave(kNf4Block, 1).narrow(1, 0, m.inputs));
  return values.to(dtype).contiguous();
}

Tensor dequantised(const QuantisedMatrix& matrix, c10::ScalarType dtype) {
  if (matrix.codes.device().is_cpu()) {
    Tensor out = at::empty({matrix.outputs, matrix.inputs}, matrix.codes.options().dtype(at::kFloat));
    dequantiseRows(matrix.rows(), 0, matrix.outputs, out.data_ptr<float>());
    return out.to(dtype);
  }
#ifdef ATTUNE_KERNELS
  if (matrix.codes.is_cuda() && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16)) return dequantisedByKernel(matrix, dtype);
#endif
  return dequantisedByAten(matrix, dtype);
}

}  // namespace attune
