#ifdef ATTUNE_KERNELS
#include "cuda/kernels.h"
#include "cuda/launching.h"
#include "cuda/narrow/narrow_product.h"
#include "cuda/packed/pack.h"
#include "cuda/vocabulary.h"

namespace attune {

using at::Tensor;

namespace {

/** How kernels for this many rows want the matrix packed; no rows if none of them reads a packed one. */
PackArgs packingOf(const Tensor& weight, bool gates, int64_t rows) {
  if (!weight.is_cuda() || weight.scalar_type() != at::kBFloat16 || weight.dim() != 2 || !weight.is_contiguous() || !isAligned(weight))
    return {};
  const Launch launch(weight);  // what fits depends on the device
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  if (gates) {
    WideProductArgs args{};
    args.weight = weight.data_ptr();
    args.rows = rows;
    args.inputs = inputs;
    args.outputs = outputs / 2;
    args.gated = true;
    return outputs % 2 == 0 && narrowProductFits(Kind::BFloat16, args) ? narrowPacking(args) : PackArgs{};
  }
  VocabularyArgs args{};
  args.rows = rows;
  args.inputs = inputs;
  args.words = outputs;
  return vocabularyFits(args) ? PackArgs{weight.data_ptr(), nullptr, nullptr, outputs, inputs, 0, 0} : PackArgs{};
}

}  // namespace

int64_t cudaPackedBytes(const Tensor& weight, bool gates, int64_t rows) {
  const PackArgs args = packingOf(weight, gates, rows);
  return args.rows == 0 ? 0 : packedBytes(args);
}

bool cudaPack(const Tensor& weight, bool gates, Tensor& packed) {
  PackArgs args = packingOf(weight, gates, 1);
  TORCH_CHECK(args.rows > 0, "no kernel reads this matrix in 12 bits");
  TORCH_CHECK(packed.device() == weight.device() && packed.scalar_type() == at::kByte && packed.is_contiguous() &&
                  packed.numel() == packedBytes(args) && isAligned(packed),
              "expected room for ", packedBytes(args), " bytes at a multiple of 16");
  const Launch launch(weight);
  Tensor failed = at::zeros({1}, packed.options().dtype(at::kInt));
  args.packed = packed.data_ptr();
  args.failed = failed.data_ptr<int>();
  launchPack(args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return failed.item<int>() == 0;
}

}  // namespace attune
#endif
