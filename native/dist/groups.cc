#ifdef ATTUNE_C10D
#include "dist/groups.h"

#include <future>
#include <unordered_map>

#include "dist/stores.h"
#include "door/calls.h"
#include "door/checks/readable.h"

namespace attune {
namespace {

// Never destroyed: their threads may outlive the statics of libtorch.
std::unordered_map<int64_t, std::unique_ptr<Group>>& groups() {
  static auto* table = new std::unordered_map<int64_t, std::unique_ptr<Group>>();
  return *table;
}
int64_t nextGroup = 1;

/** Collectives that the program waits for by blocking (`groupStart`, `groupJoin`). */
std::unordered_map<int64_t, std::shared_future<std::string>>& started() {
  static auto* table = new std::unordered_map<int64_t, std::shared_future<std::string>>();
  return *table;
}
int64_t nextTicket = 1;

c10::intrusive_ptr<Backend> makeGloo(const StorePointer& store, const Group& group, const std::string& host) {
  auto options = c10d::ProcessGroupGloo::Options::create(group.timeout);
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  if (interface != nullptr && *interface != '\0')
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  else if (!host.empty())
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(host));
  else
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, group.rank, group.size, options);
}

c10::intrusive_ptr<Backend> makeNccl([[maybe_unused]] const StorePointer& store, [[maybe_unused]] const Group& group) {
#ifdef ATTUNE_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = group.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, group.rank, group.size, options);
#else
  throw ArgumentError("this build of the addon has no NCCL");
#endif
}

/** The memory that all ranks share; null unless every rank can open every other's. */
std::unique_ptr<SharedMemory> openMemory(Group& group) {
  const auto key = [](int rank) { return "memory/" + std::to_string(rank); };
  SharedMemory::Letters letters;
  letters.leave = [&](const std::string& text) { group.store->set(key(group.rank), std::vector<uint8_t>(text.begin(), text.end())); };
  letters.from = [&](int rank) {
    const auto text = group.store->get(key(rank));
    return std::string(text.begin(), text.end());
  };
  auto memory = SharedMemory::open(group.rank, group.size, letters);
  std::vector<at::Tensor> blind{at::full({1}, memory ? 0 : 1, at::kInt)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::MAX;
  options.timeout = group.timeout;
  group.backend->allreduce(blind, options)->wait(group.timeout);
  return blind[0].item<int>() == 0 ? std::move(memory) : nullptr;
}

// groupMake(store, backend, name, rank, size, timeoutMs, host, oneMachine): a promise of the group's number. `host` is this machine's
// address for Gloo; if empty, the machine's own name is resolved. `oneMachine`: all ranks are on this machine.
napi_value groupMake(napi_env env, Args& args) {
  StoreEntry& entry = storeAt(toInt(env, args[0]));
  const std::string backend = toString(env, args[1]);
  auto group = std::make_unique<Group>();
  group->name = toString(env, args[2]);
  group->rank = static_cast<int>(toInt(env, args[3]));
  group->size = static_cast<int>(toInt(env, args[4]));
  group->timeout = std::chrono::milliseconds(toInt(env, args[5]));
  const std::string host = toString(env, args[6]);
  const bool oneMachine = toBool(env, args[7]);
  if (backend != "gloo" && backend != "nccl") throw ArgumentError("a group's backend is gloo or nccl");
  group->nccl = backend == "nccl";
  group->lane = std::make_unique<Lane>(env, "attune collectives");
  Group* made = group.get();
  const int64_t id = nextGroup++;
  groups().emplace(id, std::move(group));
  return made->lane->submit(env, [made, &entry, host, oneMachine, id]() {
    if (!entry.store) throw ArgumentError("the store is not open");
    made->store = c10::make_intrusive<c10d::PrefixStore>("group/" + made->name, entry.store);
    made->backend = made->nccl ? makeNccl(made->store, *made) : makeGloo(made->store, *made, host);
    if (oneMachine && !made->nccl && made->size > 1) made->memory = openMemory(*made);
    return Answer::of(static_cast<double>(id));
  });
}

struct Call {
  Group& group;
  Task task;
};

// (group, operation, tensors, root)
Call callOf(napi_env env, Args& args) {
  Group& group = groupAt(toInt(env, args[0]));
  std::vector<at::Tensor> tensors;
  for (napi_value handle : elements(env, args[2])) tensors.push_back(toReadable(env, handle));
  return {group, collectiveTask(group, toString(env, args[1]), std::move(tensors), static_cast<int>(toInt(env, args[3])))};
}

// groupRun(group, operation, tensors, root): a promise that is settled when the collective is done on this rank.
napi_value groupRun(napi_env env, Args& args) {
  Call call = callOf(env, args);
  return call.group.lane->submit(env, std::move(call.task));
}

// groupStart(…) starts the same without a promise; groupJoin(ticket) blocks until it is done. For code inside a forward pass, which cannot
// await.
napi_value groupStart(napi_env env, Args& args) {
  Call call = callOf(env, args);
  auto done = std::make_shared<std::promise<std::string>>();
  const int64_t ticket = nextTicket++;
  started().emplace(ticket, done->get_future().share());
  call.group.lane->post(std::move(call.task), [done](const std::string& error) { done->set_value(error); });
  return fromInt(env, ticket);
}

// groupFlush(group): a promise that is kept when all earlier work is done, failed or not.
napi_value groupFlush(napi_env env, Args& args) {
  return groupAt(toInt(env, args[0])).lane->submit(env, []() { return Answer::none(); });
}

napi_value groupJoin(napi_env env, Args& args) {
  const auto found = started().find(toInt(env, args[0]));
  if (found == started().end()) throw ArgumentError("not a collective that was begun");
  const NativeCall working;
  const std::string error = found->second.get();
  started().erase(found);
  if (!error.empty()) throw std::runtime_error(error);
  return undefined(env);
}

// groupTrace(group, on): [operation, bytes, begin, end] of the collectives since the last call, in microseconds of the monotonic clock, if
// the last call turned tracing on.
napi_value groupTrace(napi_env env, Args& args) {
  Group& group = groupAt(toInt(env, args[0]));
  std::vector<Group::Span> spans;
  {
    std::lock_guard<std::mutex> lock(group.spansMutex);
    group.traced = toBool(env, args[1]);
    spans.swap(group.spans);
  }
  std::vector<napi_value> out;
  for (const auto& span : spans)
    out.push_back(
        arrayOf(env, {fromString(env, span.operation), fromInt(env, span.bytes), fromInt(env, span.begin), fromInt(env, span.end)}));
  return arrayOf(env, out);
}

napi_value groupSeconds(napi_env env, Args& args) { return fromDouble(env, groupAt(toInt(env, args[0])).busySeconds.load()); }

// groupMemory(group): whether its ranks sum in shared memory.
napi_value groupMemory(napi_env env, Args& args) { return fromBool(env, groupAt(toInt(env, args[0])).memory != nullptr); }

}  // namespace

Group& groupAt(int64_t id) {
  const auto found = groups().find(id);
  if (found == groups().end()) throw ArgumentError("not a process group");
  return *found->second;
}

std::vector<Export> groupExports() {
  return {{"groupMake", door<groupMake>},      {"groupRun", door<groupRun>},     {"groupStart", door<groupStart>},
          {"groupJoin", door<groupJoin>},      {"groupFlush", door<groupFlush>}, {"groupTrace", door<groupTrace>},
          {"groupSeconds", door<groupSeconds>}, {"groupMemory", door<groupMemory>}};
}

}  // namespace attune
#endif
