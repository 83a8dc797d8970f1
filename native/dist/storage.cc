// Weights that come and go: a parameter keeps its handle, shape and gradient while its memory is lent to it by a gathered
// buffer, or taken away. Views of the parameter share its storage, so that they come and go with it.
#include "dist/storage.h"

#include <ATen/ATen.h>

#include "door/handles.h"

namespace attune {
namespace {

void releaseOwner(void* owner) { delete static_cast<at::Tensor*>(owner); }

/** The parameter's storage, made its own first where it is a part of another (a mapped file, a view). */
c10::StorageImpl* ownStorage(at::Tensor parameter) {
  const auto bytes = static_cast<size_t>(parameter.numel()) * parameter.element_size();
  // Dropped storages have no bytes and are the parameter's own already.
  const size_t held = parameter.storage().nbytes();
  if (parameter.storage_offset() != 0 || !parameter.is_contiguous() || (held != 0 && held != bytes))
    parameter.set_data(parameter.detach().clone(at::MemoryFormat::Contiguous));
  return parameter.storage().unsafeGetStorageImpl();
}

// storageLend(parameter, buffer, byteOffset): the parameter's memory is that part of the buffer, which stays alive for it.
napi_value storageLend(napi_env env, Args& args) {
  const at::Tensor parameter = toTensor(env, args[0]);
  const at::Tensor buffer = toTensor(env, args[1]);
  const int64_t offset = toInt(env, args[2]);
  const int64_t bytes = parameter.numel() * static_cast<int64_t>(parameter.element_size());
  const int64_t available = buffer.numel() * static_cast<int64_t>(buffer.element_size());
  if (!buffer.is_contiguous() || buffer.device() != parameter.device())
    throw ArgumentError("a parameter's buffer is contiguous and on its device");
  if (offset < 0 || offset + bytes > available || offset % static_cast<int64_t>(parameter.element_size()) != 0)
    throw ArgumentError("the parameter does not lie in the buffer");
  c10::StorageImpl* storage = ownStorage(parameter);
  auto* owner = new at::Tensor(buffer);
  void* at = static_cast<char*>(buffer.data_ptr()) + offset;
  storage->set_data_ptr(c10::DataPtr(at, owner, releaseOwner, buffer.device()));
  storage->set_nbytes(static_cast<size_t>(bytes));
  // Whoever keeps results of the old values (the sampler's cache) looks at the count of writes.
  parameter.unsafeGetTensorImpl()->bump_version();
  return undefined(env);
}

// storageDrop(parameter): frees the parameter's memory and keeps its shape. Until memory is lent to it, nothing may read it.
napi_value storageDrop(napi_env env, Args& args) {
  const at::Tensor parameter = toTensor(env, args[0]);
  c10::StorageImpl* storage = ownStorage(parameter);
  storage->set_data_ptr(c10::DataPtr(nullptr, parameter.device()));
  storage->set_nbytes(0);
  return undefined(env);
}

}  // namespace

std::vector<Export> storageExports() { return {{"storageLend", door<storageLend>}, {"storageDrop", door<storageDrop>}}; }

}  // namespace attune
