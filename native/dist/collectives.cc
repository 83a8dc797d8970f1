// Our own collectives over c10d's backends, the same on libtorch 1.13 and 2.x. The functional operators of 2.x (_c10d_functional) wait on
// the calling thread, which is JavaScript's; here the group's thread waits, counts, and reports missing ranks. Gloo's reduce-scatter is an
// all-to-all and a sum in the order of ranks: the Gloo of 1.13 has none, and a fixed order gives the same bits every time.
#ifdef ATTUNE_C10D
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <sstream>
#include <thread>

#include "dist/groups.h"
#include "dist/sums/zero_blocks.h"
#include "dist/watch.h"

namespace attune {
namespace {

using Tensors = std::vector<at::Tensor>;
using Started = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::steady_clock;

int64_t microseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time.time_since_epoch()).count();
}

std::string progressKey(int rank) { return "at/" + std::to_string(rank); }

/** Where the other ranks are, for the error of a failed collective. */
std::string whoIsMissing(Group& group, int64_t number) {
  std::ostringstream missing;
  try {
    for (int rank = 0; rank < group.size; rank++) {
      if (rank == group.rank) continue;
      if (!group.store->check({progressKey(rank)})) {
        missing << (missing.tellp() > 0 ? ", " : "") << "rank " << rank << " (it has begun none)";
        continue;
      }
      const auto bytes = group.store->get(progressKey(rank));
      std::istringstream text(std::string(bytes.begin(), bytes.end()));
      int64_t at = 0;
      std::string operation;
      text >> at >> operation;
      if (at < number)
        missing << (missing.tellp() > 0 ? ", " : "") << "rank " << rank << " (it last began number " << at << ", " << operation << ")";
    }
  } catch (const std::exception&) {
    return "The store of rank 0 does not answer either: its process or machine is gone.";
  }
  if (missing.tellp() > 0) return "Missing: " + missing.str() + ".";
  const std::string silent = silentRanks();
  if (!silent.empty()) return "Every rank had begun it, and there is no sign of life from " + silent + ": killed, or its machine is gone.";
  return "Every rank had begun it: one has died since, or the network has failed.";
}

/** The first line of a backend's message, without the file and line that Gloo puts before it and the advice that it puts after it. */
std::string cause(const std::string& message) {
  std::string line = message.substr(0, message.find('\n'));
  const auto end = line.rfind("] ");
  if (!line.empty() && line[0] == '[' && end != std::string::npos) line = line.substr(end + 2);
  // Gloo's advice to its own developers.
  line = line.substr(0, line.find(". This is typically caused by"));
  while (!line.empty() && (line.back() == '.' || line.back() == ' ')) line.pop_back();
  return line;
}

void await(Group& group, const Started& work) {
  if (!group.nccl) {
    work->wait(group.timeout);
    return;
  }
  // NCCL's wait only makes the stream wait. The host waits here, so that the time limit holds.
  const auto begun = Clock::now();
  for (auto pause = std::chrono::microseconds(20); !work->isCompleted(); pause = std::min(pause * 2, std::chrono::microseconds(1000))) {
    if (Clock::now() - begun > group.timeout) throw std::runtime_error("timed out");
    std::this_thread::sleep_for(pause);
  }
  work->wait();
}

/** Runs a collective on the lane's thread: publishes this rank's progress, waits, and words the error. */
Answer perform(Group& group, const std::string& operation, const Tensors& tensors, const std::function<void()>& body) {
  const int64_t number = ++group.begun;
  const auto begun = Clock::now();
  const c10::OptionalDeviceGuard guard(tensors.empty() ? c10::nullopt : c10::optional<c10::Device>(tensors[0].device()));
  try {
    const std::string progress = std::to_string(number) + " " + operation;
    group.store->set(progressKey(group.rank), std::vector<uint8_t>(progress.begin(), progress.end()));
    body();
  } catch (const std::exception& error) {
    const auto seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    std::ostringstream message;
    message.precision(3);
    message << operation << " (number " << number << " of the group " << group.name << ") failed on rank " << group.rank << " of "
            << group.size << " after " << seconds << " s: " << cause(error.what()) << ". " << whoIsMissing(group, number);
    throw std::runtime_error(message.str());
  }
  {
    std::lock_guard<std::mutex> lock(group.spansMutex);
    if (group.traced)
      group.spans.push_back({operation, tensors.empty() ? 0 : static_cast<int64_t>(tensors.back().nbytes()), microseconds(begun),
                             microseconds(Clock::now())});
  }
  group.busySeconds = group.busySeconds + std::chrono::duration<double>(Clock::now() - begun).count();
  return Answer::none();
}

Tensors chunks(const at::Tensor& whole, int count) {
  Tensors parts;
  const int64_t each = whole.numel() / count;
  for (int i = 0; i < count; i++) parts.push_back(whole.view(-1).narrow(0, i * each, each));
  return parts;
}

void allToAll(Group& group, at::Tensor& output, at::Tensor& input) {
  std::vector<int64_t> even;
  await(group, group.backend->alltoall_base(output, input, even, even));
}

void backendAllReduce(Group& group, Tensors tensors, c10d::ReduceOp::RedOpType operation) {
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  options.timeout = group.timeout;
  await(group, group.backend->allreduce(tensors, options));
}

/** For smaller sums, meeting the other ranks twice costs more than it saves. */
constexpr int64_t kSharedFrom = 1 << 14;
/** For smaller sums, finding the zero blocks costs more than it saves. */
constexpr int64_t kSparseFrom = 1 << 20;

/** The sum of f32 tensors on CPUs. */
void addUp(Group& group, const at::Tensor& tensor) {
  if (group.memory != nullptr && tensor.numel() >= kSharedFrom)
    group.memory->addUp(tensor.data_ptr<float>(), tensor.numel(), [&group]() { await(group, group.backend->barrier()); });
  else
    backendAllReduce(group, {tensor}, c10d::ReduceOp::SUM);
}

/** The same bits as `addUp`, without those blocks that are zero on every rank. */
void addUpSparse(Group& group, const at::Tensor& tensor) {
  NonZeroBlocks blocks(tensor.data_ptr<float>(), tensor.numel());
  auto& mask = blocks.mask();
  backendAllReduce(group, {at::from_blob(mask.data(), {static_cast<int64_t>(mask.size())}, at::kByte)}, c10d::ReduceOp::MAX);
  const int64_t count = blocks.packedCount();
  if (count > tensor.numel() / 2) {
    addUp(group, tensor);
  } else if (count > 0) {
    const at::Tensor packed = at::empty({count}, tensor.options());
    blocks.pack(packed.data_ptr<float>());
    addUp(group, packed);
    blocks.unpack(packed.data_ptr<float>());
  }
}

void allReduce(Group& group, Tensors tensors, c10d::ReduceOp::RedOpType operation) {
  const at::Tensor& tensor = tensors[0];
  if (operation != c10d::ReduceOp::SUM || group.nccl || !tensor.device().is_cpu() || tensor.scalar_type() != at::kFloat)
    backendAllReduce(group, tensors, operation);
  else if (tensor.numel() < kSparseFrom)
    addUp(group, tensor);
  else
    addUpSparse(group, tensor);
}

void broadcast(Group& group, Tensors tensors, int root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = group.timeout;
  await(group, group.backend->broadcast(tensors, options));
}

void allGather(Group& group, at::Tensor output, at::Tensor input) {
  if (group.nccl) {
    await(group, group.backend->_allgather_base(output, input));
    return;
  }
  std::vector<Tensors> outputs{chunks(output, group.size)};
  Tensors inputs{input.view(-1)};
  await(group, group.backend->allgather(outputs, inputs));
}

void reduceScatter(Group& group, at::Tensor output, at::Tensor input) {
  if (group.nccl) {
    await(group, group.backend->_reduce_scatter_base(output, input));
    return;
  }
  at::Tensor received = at::empty_like(input);
  allToAll(group, received, input);
  const Tensors parts = chunks(received, group.size);
  at::Tensor flat = output.view(-1);
  flat.copy_(parts[0]);
  for (int rank = 1; rank < group.size; rank++) flat.add_(parts[rank]);
}

void check(bool holds, const std::string& operation, const char* what) {
  if (!holds) throw ArgumentError(operation + ": " + what);
}

/** Checks the input and output of a collective that moves elements from one to the other. */
void checkPair(const std::string& operation, const Tensors& tensors, int64_t outputs, int64_t inputs, int size) {
  check(tensors.size() == 2, operation, "takes an output and an input");
  const auto &output = tensors[0], &input = tensors[1];
  check(output.scalar_type() == input.scalar_type() && output.device() == input.device(), operation,
        "output and input differ in dtype or device");
  check(output.numel() * outputs == input.numel() * inputs, operation, "the sizes of output and input do not fit the number of ranks");
  check(std::max(output.numel(), input.numel()) % size == 0, operation, "the elements cannot be dealt evenly over the ranks");
}

}  // namespace

Task collectiveTask(Group& group, const std::string& operation, Tensors tensors, int root) {
  if (!group.backend) throw ArgumentError("the process group is not open");
  for (const auto& tensor : tensors) {
    check(tensor.is_contiguous() && tensor.layout() == at::kStrided, operation, "takes contiguous tensors");
    check(!tensor.requires_grad(), operation, "takes tensors without gradient");
  }
  const int size = group.size;
  std::function<void()> body;
  if (operation == "all_reduce" || operation == "all_reduce_max") {
    check(tensors.size() == 1, operation, "takes one tensor");
    const auto kind = operation == "all_reduce" ? c10d::ReduceOp::SUM : c10d::ReduceOp::MAX;
    body = [&group, tensors, kind]() { allReduce(group, tensors, kind); };
  } else if (operation == "broadcast") {
    check(tensors.size() == 1, operation, "takes one tensor");
    check(root >= 0 && root < size, operation, "there is no such root");
    body = [&group, tensors, root]() { broadcast(group, tensors, root); };
  } else if (operation == "all_gather_into_tensor") {
    checkPair(operation, tensors, 1, size, size);
    body = [&group, tensors]() { allGather(group, tensors[0], tensors[1]); };
  } else if (operation == "reduce_scatter_tensor") {
    checkPair(operation, tensors, size, 1, size);
    body = [&group, tensors]() { reduceScatter(group, tensors[0], tensors[1]); };
  } else if (operation == "all_to_all") {
    checkPair(operation, tensors, 1, 1, size);
    body = [&group, tensors]() {
      at::Tensor output = tensors[0], input = tensors[1];
      allToAll(group, output, input);
    };
  } else if (operation == "barrier") {
    body = [&group]() { await(group, group.backend->barrier()); };
  } else {
    throw ArgumentError("there is no collective " + operation);
  }
  return [&group, operation, tensors, body]() { return perform(group, operation, tensors, body); };
}

}  // namespace attune
#endif
