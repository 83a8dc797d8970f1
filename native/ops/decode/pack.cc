// attune::packed_bytes(weight, gates, rows) -> what a copy in 12 bits a weight takes (cuda/packed/cells.cuh); 0 where steps of so many rows would not read
// one. gates: the matrix of an MLP's gates and what they gate, else that of the vocabulary.
// attune::pack(weight, gates, packed) -> whether the weights could be packed: too many that are far from the others of their row cannot
#include <ATen/ATen.h>
#include <torch/library.h>

#include "cuda/kernels.h"

namespace attune {
namespace {

using at::Tensor;

int64_t packedBytesOf([[maybe_unused]] const Tensor& weight, [[maybe_unused]] bool gates, [[maybe_unused]] int64_t rows) {
#ifdef ATTUNE_KERNELS
  return cudaPackedBytes(weight, gates, rows);
#else
  return 0;
#endif
}

bool pack([[maybe_unused]] const Tensor& weight, [[maybe_unused]] bool gates, [[maybe_unused]] Tensor& packed) {
#ifdef ATTUNE_KERNELS
  return cudaPack(weight, gates, packed);
#else
  TORCH_CHECK(false, "there is no such kernel for this device");
#endif
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("packed_bytes(Tensor weight, bool gates, int rows) -> int");
  library.impl("packed_bytes", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::packedBytesOf));
  library.def("pack(Tensor weight, bool gates, Tensor(a!) packed) -> bool");
  library.impl("pack", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::pack));
}
