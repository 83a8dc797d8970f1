// Tensors held by JavaScript: a number on that side, a slot in a table on this one. A number carries the slot's
// generation, so a freed or made-up handle is an error and never a stray pointer. Generations do not come round again: a slot
// that has used up all of its own is not used any more.
#pragma once
#include <ATen/core/Tensor.h>

#include "door/values.h"

namespace attune {

int64_t keep(at::Tensor tensor);
const at::Tensor& tensorAt(int64_t handle);
void release(int64_t handle);

size_t liveTensors();
/** Bytes of all distinct storages that JavaScript holds. */
int64_t liveBytes();
/** Running estimate of held bytes (each storage counted by its first holder), cheap enough for the garbage collector's books. */
int64_t bookedBytes();

int64_t toHandle(napi_env env, napi_value value);
/** Throws where the number can be no handle. */
int64_t handleOf(double number);
const at::Tensor& toTensor(napi_env env, napi_value value);
/** A new handle, or null for an undefined tensor. */
napi_value fromTensor(napi_env env, at::Tensor tensor);

}  // namespace attune
