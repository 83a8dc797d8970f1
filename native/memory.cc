// Bytes in and bytes out: typed arrays (copied), memory-mapped files (not copied), read-back.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "handles.h"

namespace attune {
namespace {

int64_t checkedBytes(const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (int64_t size : shape) {
    if (size < 0) throw ArgumentError("a shape has a negative size");
    if (__builtin_mul_overflow(bytes, size, &bytes)) throw ArgumentError("a shape is too large");
  }
  return bytes;
}

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
      case napi_uint16_array:
        width = 2;
        break;
      case napi_int32_array:
      case napi_uint32_array:
      case napi_float32_array:
        width = 4;
        break;
      case napi_float64_array:
      case napi_bigint64_array:
      case napi_biguint64_array:
        width = 8;
        break;
      default:
        break;
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

// fromBytes(typedArray, dtype, shape)
napi_value fromBytes(napi_env env, Args& args) {
  const auto dtype = dtypeFromName(toString(env, args[1]));
  const auto shape = toInts(env, args[2]);
  const int64_t bytes = checkedBytes(shape, dtype);
  const Span span = spanOf(env, args[0]);
  if (static_cast<int64_t>(span.bytes) != bytes)
    throw ArgumentError("the data has " + std::to_string(span.bytes) + " bytes, its shape and dtype need " + std::to_string(bytes));
  at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(dtype));
  if (bytes > 0) std::memcpy(tensor.data_ptr(), span.data, bytes);
  return fromTensor(env, tensor);
}

// writeInto(handle, typedArray): fills an existing contiguous CPU tensor, so a reused (pinned) buffer costs no allocation.
napi_value writeInto(napi_env env, Args& args) {
  const at::Tensor& tensor = toTensor(env, args[0]);
  const Span span = spanOf(env, args[1]);
  if (!tensor.device().is_cpu() || !tensor.is_contiguous()) throw ArgumentError("only a contiguous CPU tensor can be written to");
  if (span.bytes != tensor.nbytes()) throw ArgumentError("the data and the tensor differ in size");
  if (span.bytes > 0) std::memcpy(tensor.data_ptr(), span.data, span.bytes);
  return undefined(env);
}

napi_value bytesOf(napi_env env, Args& args) {
  at::NoGradGuard guard;
  const at::Tensor tensor = toTensor(env, args[0]).detach().to(at::kCPU).contiguous();
  void* data = nullptr;
  napi_value buffer;
  ok(env, napi_create_arraybuffer(env, tensor.nbytes(), &data, &buffer), "cannot make an ArrayBuffer: out of memory");
  if (tensor.nbytes() > 0) std::memcpy(data, tensor.data_ptr(), tensor.nbytes());
  return buffer;
}

napi_value item(napi_env env, Args& args) { return fromScalar(env, toTensor(env, args[0]).item()); }

// [dtype, device, requiresGrad, isLeaf, ...shape]
napi_value meta(napi_env env, Args& args) {
  const at::Tensor& tensor = toTensor(env, args[0]);
  std::vector<napi_value> out{fromString(env, dtypeName(tensor.scalar_type())), fromString(env, tensor.device().str())};
  for (int64_t size : tensor.sizes()) out.push_back(fromInt(env, size));
  return arrayOf(env, out);
}

napi_value free(napi_env env, Args& args) {
  for (size_t i = 0; i < args.count; i++) {
    int32_t handle = -1;
    napi_get_value_int32(env, args.values[i], &handle);
    release(handle);
  }
  return undefined(env);
}

// freeAll(Int32Array, count): what a scope lets go of, in one call.
napi_value freeAll(napi_env env, Args& args) {
  const Span span = spanOf(env, args[0]);
  const auto count = static_cast<size_t>(toInt(env, args[1]));
  if (count * sizeof(int32_t) > span.bytes) throw ArgumentError("fewer handles than said");
  const auto* handles = static_cast<const int32_t*>(span.data);
  for (size_t i = 0; i < count; i++) release(handles[i]);
  return undefined(env);
}

struct Mapping {
  char* data = nullptr;
  size_t bytes = 0;
  ~Mapping() {
    if (data != nullptr) munmap(data, bytes);
  }
};

std::unordered_map<int64_t, std::shared_ptr<Mapping>>& mappings() {
  static auto* table = new std::unordered_map<int64_t, std::shared_ptr<Mapping>>();
  return *table;
}
int64_t nextMapping = 1;

napi_value mapFile(napi_env env, Args& args) {
  const std::string path = toString(env, args[0]);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw ArgumentError(path + ": " + std::strerror(errno));
  struct stat info;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(file);
    throw ArgumentError(path + ": not a regular file");
  }
  auto mapping = std::make_shared<Mapping>();
  if (info.st_size > 0) {
    // private and writable: an in-place op on a mapped tensor changes memory, never the file
    void* data = mmap(nullptr, info.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    const int fault = errno;
    close(file);
    if (data == MAP_FAILED) throw ArgumentError(path + ": cannot map: " + std::strerror(fault));
    mapping->data = static_cast<char*>(data);
    mapping->bytes = info.st_size;
  } else {
    close(file);
  }
  const int64_t id = nextMapping++;
  mappings()[id] = mapping;
  return object(env, {{"id", fromInt(env, id)}, {"bytes", fromInt(env, static_cast<int64_t>(mapping->bytes))}});
}

// mapTensor(mapping, offset, dtype, shape)
napi_value mapTensor(napi_env env, Args& args) {
  const auto found = mappings().find(toInt(env, args[0]));
  if (found == mappings().end()) throw ArgumentError("the file is closed");
  const std::shared_ptr<Mapping> mapping = found->second;
  const int64_t offset = toInt(env, args[1]);
  const auto dtype = dtypeFromName(toString(env, args[2]));
  const auto shape = toInts(env, args[3]);
  const int64_t bytes = checkedBytes(shape, dtype);
  if (offset < 0 || bytes > static_cast<int64_t>(mapping->bytes) || offset > static_cast<int64_t>(mapping->bytes) - bytes)
    throw ArgumentError("the region lies outside the file");
  const auto options = at::TensorOptions().dtype(dtype);
  if (bytes == 0) return fromTensor(env, at::empty(shape, options));
  char* data = mapping->data + offset;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(dtype) != 0) {
    at::Tensor copy = at::empty(shape, options);  // unaligned in the file: copied
    std::memcpy(copy.data_ptr(), data, bytes);
    return fromTensor(env, copy);
  }
  return fromTensor(env, at::from_blob(data, shape, [mapping](void*) {}, options));
}

napi_value unmapFile(napi_env env, Args& args) {
  mappings().erase(toInt(env, args[0]));  // tensors made from it keep it alive
  return undefined(env);
}

napi_value liveCount(napi_env env, Args&) { return fromInt(env, static_cast<int64_t>(liveTensors())); }
napi_value liveSize(napi_env env, Args&) { return fromInt(env, liveBytes()); }

// Tells the garbage collector how many bytes hang on the handles; called by JavaScript now and then.
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
  return {{"fromBytes", door<fromBytes>}, {"writeInto", door<writeInto>}, {"bytesOf", door<bytesOf>},   {"item", door<item>},
          {"meta", door<meta>},           {"free", door<free>},           {"freeAll", door<freeAll>},   {"mapFile", door<mapFile>},
          {"mapTensor", door<mapTensor>}, {"unmapFile", door<unmapFile>}, {"liveCount", door<liveCount>}, {"liveSize", door<liveSize>},
          {"reportBytes", door<reportBytes>}};
}

}  // namespace attune
