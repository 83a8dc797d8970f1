// c10::optional became std::optional within 2.x; operators are registered with whichever this libtorch has.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <optional>

namespace attune {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)
template <typename T>
using Optional = std::optional<T>;
#else
template <typename T>
using Optional = c10::optional<T>;
#endif

// The given tensor, or the undefined one.
inline at::Tensor orUndefined(const Optional<at::Tensor>& given) { return given.has_value() ? *given : at::Tensor(); }
inline at::Tensor contiguousOrUndefined(const Optional<at::Tensor>& given) {
  const at::Tensor tensor = orUndefined(given);
  return tensor.defined() ? tensor.contiguous() : tensor;
}
}  // namespace attune
