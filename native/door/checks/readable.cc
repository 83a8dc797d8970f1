#include "door/checks/readable.h"

#include <ATen/ATen.h>

namespace attune {

bool hasMemory(const at::Tensor& tensor) {
  if (!tensor.has_storage() || tensor.storage().nbytes() != 0 || tensor.numel() == 0) return true;
  return tensor._is_zerotensor();  // libtorch's lazy zeros have no memory either, but its operators handle them
}

const at::Tensor& toReadable(napi_env env, napi_value value) {
  const at::Tensor& tensor = toTensor(env, value);
  if (!hasMemory(tensor)) throw ArgumentError("this tensor's memory was taken away; it can be used again once memory is lent to it");
  return tensor;
}

}  // namespace attune
