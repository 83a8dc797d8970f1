// Tensors from typed arrays (copied), read-back, and counts of what JavaScript holds.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstring>

#include "cpu/large_blocks.h"
#include "door/calls.h"
#include "door/checks/readable.h"

namespace attune {
namespace {

struct Span {
  void* data;
  size_t bytes;
};

Span spanOf(napi_env env, napi_value value) {
  Span span{nullptr, 0};
  bool yes = false;
  napi_is_typedarray(env, value, &yes);
  if (yes) {
    napi_typedarray_type type;
    size_t length = 0, offset = 0;
    ok(env, napi_get_typedarray_info(env, value, &type, &length, &span.data, nullptr, &offset), "cannot read a typed array");
    size_t width = 1;
    switch (type) {
      case napi_int16_array:
      case napi_uint16_array: width = 2; break;
      case napi_int32_array:
      case napi_uint32_array:
      case napi_float32_array: width = 4; break;
      case napi_float64_array:
      case napi_bigint64_array:
      case napi_biguint64_array: width = 8; break;
      default: break;
    }
    span.bytes = length * width;
    return span;
  }
  napi_is_dataview(env, value, &yes);
  if (yes) {
    napi_value buffer;
    size_t offset = 0;
    ok(env, napi_get_dataview_info(env, value, &span.bytes, &span.data, &buffer, &offset), "cannot read a view");
    return span;
  }
  napi_is_arraybuffer(env, value, &yes);
  if (!yes) throw ArgumentError("expected a typed array or an ArrayBuffer");
  ok(env, napi_get_arraybuffer_info(env, value, &span.data, &span.bytes), "cannot read an ArrayBuffer");
  return span;
}

// Bools are normalised: in a C++ bool, any byte but 0 and 1 is undefined behaviour.
void copyBytes(const at::Tensor& target, const void* source) {
  std::memcpy(target.data_ptr(), source, target.nbytes());
  if (target.scalar_type() != at::kBool) return;
  auto* bytes = static_cast<uint8_t*>(target.data_ptr());
  for (size_t i = 0; i < target.nbytes(); i++) bytes[i] = bytes[i] != 0;
}

// fromBytes(typedArray, dtype, shape)
napi_value fromBytes(napi_env env, Args& args) {
  const auto dtype = dtypeFromName(toString(env, args[1]));
  const auto shape = toInts(env, args[2]);
  const int64_t bytes = checkedBytes(shape, dtype);
  const Span span = spanOf(env, args[0]);
  if (static_cast<int64_t>(span.bytes) != bytes)
    throw ArgumentError("the data has " + std::to_string(span.bytes) + " bytes, its shape and dtype need " + std::to_string(bytes));
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype));
  if (bytes > 0) copyBytes(tensor, span.data);
  return fromTensor(env, tensor);
}

napi_value bytesOf(napi_env env, Args& args) {
  at::NoGradGuard guard;
  const NativeCall working;
  at::Tensor tensor = toReadable(env, args[0]).detach();
  if (tensor.layout() != at::kStrided) tensor = tensor.to_dense();
  // The bytes of lazy conjugates, negatives and zeros in memory are not their values.
  if (tensor._is_zerotensor()) tensor = tensor.clone();
  tensor = tensor.resolve_conj().resolve_neg().to(at::kCPU).contiguous();
  void* data = nullptr;
  napi_value buffer;
  ok(env, napi_create_arraybuffer(env, tensor.nbytes(), &data, &buffer), "cannot make an ArrayBuffer: out of memory");
  if (tensor.nbytes() > 0) std::memcpy(data, tensor.data_ptr(), tensor.nbytes());
  return buffer;
}

napi_value item(napi_env env, Args& args) {
  const NativeCall working;
  return fromScalar(env, toReadable(env, args[0]).item());
}

// [dtype, device, ...shape]
napi_value meta(napi_env env, Args& args) {
  const at::Tensor& tensor = toTensor(env, args[0]);
  std::vector<napi_value> out{fromString(env, dtypeName(tensor.scalar_type())), fromString(env, tensor.device().str())};
  for (int64_t size : tensor.sizes()) out.push_back(fromInt(env, size));
  return arrayOf(env, out);
}

napi_value free(napi_env env, Args& args) {
  for (size_t i = 0; i < args.count; i++) release(toHandle(env, args.values[i]));
  return undefined(env);
}

// freeAll(Float64Array, count): frees the tensors of a scope in one call.
napi_value freeAll(napi_env env, Args& args) {
  const Span span = spanOf(env, args[0]);
  const int64_t count = toInt(env, args[1]);
  if (count < 0 || static_cast<size_t>(count) > span.bytes / sizeof(double)) throw ArgumentError("fewer handles than said");
  const auto* handles = static_cast<const char*>(span.data);
  for (int64_t i = 0; i < count; i++) {
    double handle;
    std::memcpy(&handle, handles + i * sizeof(double), sizeof(double));  // a Uint8Array may start anywhere
    release(handleOf(handle));
  }
  return undefined(env);
}

napi_value liveCount(napi_env env, Args&) { return fromInt(env, static_cast<int64_t>(liveTensors())); }
napi_value liveSize(napi_env env, Args&) { return fromInt(env, liveBytes()); }
napi_value keptSize(napi_env env, Args&) { return fromInt(env, static_cast<int64_t>(keptLargeBytes())); }

// Tells the garbage collector how many bytes the handles hold; JavaScript calls it now and then.
napi_value reportBytes(napi_env env, Args&) {
  static int64_t reported = 0;
  const int64_t now = bookedBytes();
  int64_t total = 0;
  if (now != reported) ok(env, napi_adjust_external_memory(env, now - reported, &total), "cannot report memory");
  reported = now;
  return fromInt(env, now);
}

}  // namespace

std::vector<Export> memoryExports() {
  return {{"fromBytes", door<fromBytes>}, {"bytesOf", door<bytesOf>},   {"item", door<item>},
          {"meta", door<meta>},           {"free", door<free>},         {"freeAll", door<freeAll>},
          {"liveCount", door<liveCount>}, {"liveSize", door<liveSize>}, {"keptSize", door<keptSize>}, {"reportBytes", door<reportBytes>}};
}

}  // namespace attune
