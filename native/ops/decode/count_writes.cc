// attune::count_writes(tensors): how often these tensors were written to in place, in total. libtorch counts these writes for
// autograd. The sampler compares the counts to see whether the weights behind its cache have changed.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace attune {
namespace {

int64_t countWrites(at::TensorList tensors) {
  int64_t total = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && !tensor.is_inference()) total += tensor._version();
  return total;
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("count_writes(Tensor[] tensors) -> int");
  library.impl("count_writes", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::countWrites));
}
