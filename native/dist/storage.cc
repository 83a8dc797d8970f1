// Weights that come and go: a parameter keeps its handle, shape and gradient while a gathered buffer lends it memory, or while it has none.
// Views of the parameter share its storage, so they come and go with it.
#include "dist/storage.h"

#include <ATen/ATen.h>

#include <mutex>
#include <unordered_map>

#include "door/checks/readable.h"

namespace attune {
namespace {

/** How many parameters each storage lends memory to. While it lends, its own memory must not move. */
class Loans {
 public:
  void begin(c10::StorageImpl* lender) {
    const std::lock_guard<std::mutex> lock(mutex_);
    counts_[lender]++;
  }
  void end(c10::StorageImpl* lender) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto loan = counts_.find(lender);
    if (--loan->second == 0) counts_.erase(loan);
  }
  bool any(c10::StorageImpl* lender) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_.count(lender) != 0;
  }

 private:
  std::mutex mutex_;  // autograd's threads free tensors too
  std::unordered_map<c10::StorageImpl*, int> counts_;
};

Loans& loans() {
  static auto* all = new Loans();
  return *all;
}

/** Ends a loan. A loan holds the lender's storage, so it outlives the lender's tensors. */
void endLoan(void* held) {
  auto* lender = static_cast<c10::Storage*>(held);
  loans().end(lender->unsafeGetStorageImpl());
  delete lender;
}

void checkPlain(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.has_storage()) throw ArgumentError("memory comes and goes for dense tensors only");
}

/** The parameter's storage. If it is part of another one (a mapped file, a view), the parameter first gets its own. */
c10::StorageImpl* ownStorage(at::Tensor parameter) {
  const auto bytes = static_cast<size_t>(parameter.numel()) * parameter.element_size();
  // Dropped storages have no bytes and already belong to the parameter.
  const size_t held = parameter.storage().nbytes();
  if (parameter.storage_offset() != 0 || !parameter.is_contiguous() || (held != 0 && held != bytes)) {
    if (held == 0) throw ArgumentError("this is a part of a tensor whose memory was taken away");
    parameter.set_data(parameter.detach().clone(at::MemoryFormat::Contiguous));
  }
  c10::StorageImpl* storage = parameter.storage().unsafeGetStorageImpl();
  if (loans().any(storage)) throw ArgumentError("this tensor's memory is lent to another one");
  return storage;
}

// storageLend(parameter, buffer, byteOffset): that part of the buffer becomes the parameter's memory; the buffer stays alive for it.
napi_value storageLend(napi_env env, Args& args) {
  const at::Tensor parameter = toTensor(env, args[0]);
  const at::Tensor buffer = toReadable(env, args[1]);
  const int64_t offset = toInt(env, args[2]);
  checkPlain(parameter);
  checkPlain(buffer);
  const auto each = static_cast<int64_t>(parameter.element_size());
  const auto available = static_cast<int64_t>(buffer.numel() * buffer.element_size());
  if (!buffer.is_contiguous() || buffer.device() != parameter.device())
    throw ArgumentError("a parameter's buffer is contiguous and on its device");
  if (offset < 0 || offset > available || parameter.numel() > (available - offset) / each || offset % each != 0)
    throw ArgumentError("the parameter does not lie in the buffer");
  const int64_t bytes = parameter.numel() * each;
  c10::StorageImpl* storage = ownStorage(parameter);
  c10::StorageImpl* lender = buffer.storage().unsafeGetStorageImpl();
  if (storage == lender) throw ArgumentError("a tensor cannot lend memory to itself");
  lender->set_resizable(false);
  loans().begin(lender);
  void* at = static_cast<char*>(buffer.data_ptr()) + offset;
  storage->set_data_ptr(c10::DataPtr(at, new c10::Storage(buffer.storage()), endLoan, buffer.device()));
  storage->set_nbytes(static_cast<size_t>(bytes));
  // Caches of results of the old values (the sampler's) compare the count of writes.
  parameter.unsafeGetTensorImpl()->bump_version();
  return undefined(env);
}

// storageDrop(parameter): frees the parameter's memory and keeps its shape. Nothing may read it until memory is lent to it.
napi_value storageDrop(napi_env env, Args& args) {
  const at::Tensor parameter = toTensor(env, args[0]);
  checkPlain(parameter);
  c10::StorageImpl* storage = ownStorage(parameter);
  storage->set_data_ptr(c10::DataPtr(nullptr, parameter.device()));
  storage->set_nbytes(0);
  return undefined(env);
}

}  // namespace

std::vector<Export> storageExports() { return {{"storageLend", door<storageLend>}, {"storageDrop", door<storageDrop>}}; }

}  // namespace attune
