#include "door/handles.h"

#include <cmath>
#include <unordered_set>

namespace attune {
namespace {

constexpr int kIndexBits = 22;
constexpr int64_t kIndexMask = (int64_t{1} << kIndexBits) - 1;
constexpr int64_t kGenerations = int64_t{1} << (53 - kIndexBits);  // JavaScript's numbers hold integers of 53 bits
constexpr auto kHandles = static_cast<double>(kGenerations << kIndexBits);

struct Slot {
  at::Tensor tensor;
  int64_t bytes = 0;
  int64_t generation = 0;
};

// Never destroyed: at process exit libtorch's own statics may already be gone.
std::vector<Slot>* const table = new std::vector<Slot>();
std::vector<int64_t>* const unused = new std::vector<int64_t>();
std::vector<Slot>& slots() { return *table; }
std::vector<int64_t>& freeSlots() { return *unused; }
size_t live = 0;
int64_t booked = 0;

Slot& slotAt(int64_t handle) {
  const int64_t index = handle & kIndexMask;
  if (handle < 0 || static_cast<size_t>(index) >= slots().size()) throw ArgumentError("not a tensor handle");
  Slot& slot = slots()[index];
  if (!slot.tensor.defined() || slot.generation != handle >> kIndexBits) throw ArgumentError("tensor used after it was freed");
  return slot;
}

}  // namespace

int64_t keep(at::Tensor tensor) {
  int64_t index;
  if (freeSlots().empty()) {
    if (slots().size() > static_cast<size_t>(kIndexMask)) throw ArgumentError("more than four million live tensors");
    index = static_cast<int64_t>(slots().size());
    slots().emplace_back();
  } else {
    index = freeSlots().back();
    freeSlots().pop_back();
  }
  Slot& slot = slots()[index];
  slot.bytes = 0;
  if (tensor.has_storage() && tensor.storage().use_count() == 1)  // a view's bytes are counted with its base
    slot.bytes = static_cast<int64_t>(tensor.storage().nbytes());
  booked += slot.bytes;
  slot.tensor = std::move(tensor);
  live++;
  return slot.generation << kIndexBits | index;
}

const at::Tensor& tensorAt(int64_t handle) { return slotAt(handle).tensor; }

const at::Tensor* findTensor(double number) {
  if (!(number >= 0 && number < kHandles)) return nullptr;
  const auto handle = static_cast<int64_t>(number);
  const auto index = static_cast<size_t>(handle & kIndexMask);
  if (static_cast<double>(handle) != number || index >= slots().size()) return nullptr;
  const Slot& slot = slots()[index];
  return slot.tensor.defined() && slot.generation == handle >> kIndexBits ? &slot.tensor : nullptr;
}

void release(int64_t handle) {
  Slot& slot = slotAt(handle);
  booked -= slot.bytes;
  slot.tensor.reset();
  slot.generation++;
  if (slot.generation < kGenerations) freeSlots().push_back(handle & kIndexMask);
  live--;
}

size_t liveTensors() { return live; }
int64_t bookedBytes() { return booked; }

int64_t liveBytes() {
  std::unordered_set<const void*> seen;
  int64_t bytes = 0;
  for (const Slot& slot : slots()) {
    if (!slot.tensor.defined() || !slot.tensor.has_storage()) continue;
    const auto storage = slot.tensor.storage();
    if (seen.insert(storage.unsafeGetStorageImpl()).second) bytes += static_cast<int64_t>(storage.nbytes());
  }
  return bytes;
}

// Read as a double: as an integer, Node-API turns NaN into 0, which is a valid handle.
int64_t toHandle(napi_env env, napi_value value) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) != napi_ok) throw ArgumentError("expected a tensor");
  return handleOf(number);
}

int64_t handleOf(double number) {
  if (!(number >= 0 && number < kHandles) || number != std::floor(number)) throw ArgumentError("not a tensor handle");
  return static_cast<int64_t>(number);
}

const at::Tensor& toTensor(napi_env env, napi_value value) { return tensorAt(toHandle(env, value)); }

napi_value fromTensor(napi_env env, at::Tensor tensor) {
  if (!tensor.defined()) return null(env);
  napi_value out;
  ok(env, napi_create_int64(env, keep(std::move(tensor)), &out), "cannot make a handle");
  return out;
}

}  // namespace attune
