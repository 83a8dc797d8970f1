#ifdef ATTUNE_C10D
#include "dist/stores.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "dist/endings/lost_store.h"
#include "door/calls.h"

namespace attune {
namespace {

// Never destroyed: their threads may outlive the statics of libtorch.
std::unordered_map<int64_t, std::unique_ptr<StoreEntry>>& entries() {
  static auto* table = new std::unordered_map<int64_t, std::unique_ptr<StoreEntry>>();
  return *table;
}
int64_t nextId = 1;

int64_t newEntry(napi_env env) {
  const int64_t id = nextId++;
  auto entry = std::make_unique<StoreEntry>();
  entry->lane = std::make_unique<Lane>(env, "attune store");
  entries().emplace(id, std::move(entry));
  return id;
}

/**
 * c10d logs every exception it throws and every attempt to connect: raw lines beside our own messages. Nothing is logged while a store is
 * opened, and no warnings afterwards (a lost store is one). If TORCH_CPP_LOG_LEVEL is set, nothing is changed.
 */
class Quiet {
 public:
  Quiet() { change(+1); }
  ~Quiet() { change(-1); }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  static constexpr int errors = 2, fatal = 3;
  static void change(int by) {
    static std::mutex mutex;
    static int opening = 0;
    static const bool isAskedFor = std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr;
    if (isAskedFor) return;
    std::lock_guard<std::mutex> lock(mutex);
    opening += by;
    FLAGS_caffe2_log_level = opening > 0 ? fatal : errors;
  }
};

/** The store of an entry; throws if opening it failed. */
StorePointer opened(StoreEntry& entry) {
  if (!entry.store) throw ArgumentError("the store is not open");
  return entry.store;
}

// storeTcp(host, port, isServer, timeoutMs, prefix): a promise of the store's number. Port 0 lets the server choose one (`storePort`).
// All keys begin with the prefix.
napi_value storeTcp(napi_env env, Args& args) {
  const std::string host = toString(env, args[0]);
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(toInt(env, args[1]));
  options.isServer = toBool(env, args[2]);
  options.waitWorkers = false;
  options.timeout = std::chrono::milliseconds(toInt(env, args[3]));
  const std::string prefix = toString(env, args[4]);
  if (!options.isServer) speakWhenStoreIsLost();
  const int64_t id = newEntry(env);
  StoreEntry* entry = entries().at(id).get();
  return entry->lane->submit(env, [=]() {
    entry->store = openTcpStore(host, options);
    if (!prefix.empty()) entry->store = c10::make_intrusive<c10d::PrefixStore>(prefix, entry->store);
    return Answer::of(static_cast<double>(id));
  });
}

// storeFile(path, ranks): for ranks that share a file system.
napi_value storeFile(napi_env env, Args& args) {
  const std::string path = toString(env, args[0]);
  const int ranks = static_cast<int>(toInt(env, args[1]));
  const int64_t id = newEntry(env);
  StoreEntry* entry = entries().at(id).get();
  return entry->lane->submit(env, [=]() {
    entry->store = c10::make_intrusive<c10d::FileStore>(path, ranks);
    return Answer::of(static_cast<double>(id));
  });
}

napi_value storePort(napi_env env, Args& args) {
  auto* tcp = dynamic_cast<c10d::TCPStore*>(opened(storeAt(toInt(env, args[0]))).get());
  return tcp == nullptr ? null(env) : fromInt(env, tcp->getPort());
}

napi_value storeSet(napi_env env, Args& args) {
  StoreEntry& entry = storeAt(toInt(env, args[0]));
  const std::string key = toString(env, args[1]), value = toString(env, args[2]);
  return entry.lane->submit(env, [&entry, key, value]() {
    opened(entry)->set(key, std::vector<uint8_t>(value.begin(), value.end()));
    return Answer::none();
  });
}

// storeGet(store, key): the value, or nothing if nobody has set it. JavaScript does the waiting by asking again: a wait inside c10d's
// client would block every other request of this process.
napi_value storeGet(napi_env env, Args& args) {
  StoreEntry& entry = storeAt(toInt(env, args[0]));
  const std::string key = toString(env, args[1]);
  return entry.lane->submit(env, [&entry, key]() {
    const StorePointer store = opened(entry);
    if (!store->check({key})) return Answer::none();
    const auto value = store->get(key);
    return Answer::of(std::string(value.begin(), value.end()));
  });
}

napi_value storeAdd(napi_env env, Args& args) {
  StoreEntry& entry = storeAt(toInt(env, args[0]));
  const std::string key = toString(env, args[1]);
  const int64_t amount = toInt(env, args[2]);
  return entry.lane->submit(env, [&entry, key, amount]() { return Answer::of(static_cast<double>(opened(entry)->add(key, amount))); });
}

// storeClose(store): leaves it. Closing it again does nothing.
napi_value storeClose(napi_env env, Args& args) {
  StoreEntry& entry = storeAt(toInt(env, args[0]));
  return entry.lane->submit(env, [&entry]() {
    entry.store.reset();
    return Answer::none();
  });
}

/**
 * Submits work and blocks until it is done: an ending process cannot await. Waits no longer than the limit, since a stopped store never
 * answers.
 */
void doBlocking(StoreEntry& entry, Task task, double seconds) {
  const NativeCall working;
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> isDone = done->get_future();
  entry.lane->post(std::move(task), [done](const std::string&) { done->set_value(); });
  isDone.wait_for(std::chrono::duration<double>(seconds));
}

// storeCount(store, key, seconds): counts this process; blocks until it is counted.
napi_value storeCount(napi_env env, Args& args) {
  StoreEntry& entry = storeAt(toInt(env, args[0]));
  const std::string key = toString(env, args[1]);
  doBlocking(
      entry,
      [&entry, key]() {
        opened(entry)->add(key, 1);
        return Answer::none();
      },
      toDouble(env, args[2]));
  return undefined(env);
}

// storeAwaitCount(store, key, count, seconds): blocks until so many have been counted.
napi_value storeAwaitCount(napi_env env, Args& args) {
  StoreEntry& entry = storeAt(toInt(env, args[0]));
  const std::string key = toString(env, args[1]);
  const int64_t count = toInt(env, args[2]);
  const double seconds = toDouble(env, args[3]);
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  doBlocking(
      entry,
      [&entry, key, count, limit]() {
        while (opened(entry)->add(key, 0) < count && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return Answer::none();
      },
      seconds);
  return undefined(env);
}

}  // namespace

StorePointer openTcpStore(const std::string& host, const c10d::TCPStoreOptions& options) {
  const Quiet quiet;
  return c10::make_intrusive<c10d::TCPStore>(host, options);
}

StoreEntry& storeAt(int64_t id) {
  const auto found = entries().find(id);
  if (found == entries().end()) throw ArgumentError("not a store");
  return *found->second;
}

std::vector<Export> storeExports() {
  return {{"storeTcp", door<storeTcp>}, {"storeFile", door<storeFile>}, {"storePort", door<storePort>},
          {"storeSet", door<storeSet>}, {"storeGet", door<storeGet>},   {"storeAdd", door<storeAdd>}, {"storeClose", door<storeClose>},
          {"storeCount", door<storeCount>}, {"storeAwaitCount", door<storeAwaitCount>}};
}

}  // namespace attune
#endif
