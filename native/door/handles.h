// Tensors held by JavaScript: a number there, a slot in a table here. The number contains the slot's generation, so a freed or invented
// handle is an error and never a stray pointer. Generations are never reused: a slot that has used all of them is retired.
#pragma once
#include <ATen/core/Tensor.h>

#include "door/values.h"

namespace attune {

int64_t keep(at::Tensor tensor);
const at::Tensor& tensorAt(int64_t handle);
/** The tensor, or null if the number is not a live tensor's handle. */
const at::Tensor* findTensor(double handle);
void release(int64_t handle);

size_t liveTensors();
/** Bytes of all distinct storages that JavaScript holds. */
int64_t liveBytes();
/** A running estimate of the bytes held (each storage counts with its first handle), cheap enough to report to the garbage collector. */
int64_t bookedBytes();

int64_t toHandle(napi_env env, napi_value value);
/** The handle; throws if the number cannot be one. */
int64_t handleOf(double number);
const at::Tensor& toTensor(napi_env env, napi_value value);
/** A new handle, or null for an undefined tensor. */
napi_value fromTensor(napi_env env, at::Tensor tensor);

}  // namespace attune
