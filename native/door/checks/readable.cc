#include "door/checks/readable.h"

#include <ATen/ATen.h>

namespace attune {

const at::Tensor& toReadable(napi_env env, napi_value value) {
  const at::Tensor& tensor = toTensor(env, value);
  // libtorch's lazy zeros have no memory either, and its operators know them.
  const bool taken = tensor.has_storage() && tensor.storage().nbytes() == 0 && tensor.numel() > 0 && !tensor._is_zerotensor();
  if (taken) throw ArgumentError("this tensor's memory was taken away; it can be used again once memory is lent to it");
  return tensor;
}

}  // namespace attune
