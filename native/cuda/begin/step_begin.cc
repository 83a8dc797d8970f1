#ifdef ATTUNE_KERNELS
#include "cuda/begin/step_begin.h"

#include <ATen/ATen.h>

#include "cuda/kernels.h"
#include "cuda/launching.h"

namespace attune {

using at::Tensor;

Tensor cudaBeginStep(const Tensor& table, const Tensor& ids, const Tensor& cleared, const std::vector<Tensor>& ahead) {
  const int64_t bytes = table.size(1) * table.element_size();
  if (!isAligned(table) || bytes % 16 != 0) return at::embedding(table, ids);
  const Launch launch(table);
  Tensor out = at::empty({ids.size(0), table.size(1)}, table.options());
  StepBegin args{};
  args.rows = {table.data_ptr(), ids.data_ptr<int64_t>(), out.data_ptr(), ids.size(0), bytes};
  args.cleared = pointer(cleared);
  args.clearedBytes = cleared.defined() ? static_cast<int64_t>(cleared.nbytes()) : 0;
  for (size_t i = 0; i < ahead.size() && i < StepBegin::kMost && isAligned(ahead[i]); i++) {
    args.ahead[i] = ahead[i].data_ptr();
    args.aheadBytes[i] = static_cast<int64_t>(ahead[i].nbytes()) / 16 * 16;
  }
  launchStepBegin(args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

}  // namespace attune
#endif
