// Checks that a tensor has memory. A sharded parameter keeps its handle and shape while its memory is taken away (dist/storage.cc), and
// libtorch's kernels would read through its null pointer.
#pragma once
#include "door/handles.h"

namespace attune {

/** Whether an operator can read the tensor's elements: its memory has not been taken away. */
bool hasMemory(const at::Tensor& tensor);

/** The tensor, for code that reads or writes its elements. Throws if its memory was taken away. */
const at::Tensor& toReadable(napi_env env, napi_value value);

}  // namespace attune
