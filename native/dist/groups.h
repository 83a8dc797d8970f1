// Process groups: a c10d backend, and the thread on which its collectives run one after another.
#pragma once
#include "dist/c10d.h"
#include "dist/lane.h"
#include "dist/sums/shared_memory.h"

namespace attune {

struct Group {
  std::string name;
  int rank = 0;
  int size = 1;
  bool nccl = false;
  std::chrono::milliseconds timeout{0};
  /** The group's own client: it publishes each rank's progress, for error messages. */
  StorePointer store;
  c10::intrusive_ptr<Backend> backend;
  /** For ranks that are all on one machine and can open one another's memory; else null. */
  std::unique_ptr<SharedMemory> memory;
  /** Collectives begun so far. Touched on the lane's thread only. */
  int64_t begun = 0;
  /** Seconds that collectives took on the lane's thread, in all. */
  std::atomic<double> busySeconds{0};
  std::unique_ptr<Lane> lane;

  /** When a collective ran; recorded if tracing is on. */
  struct Span {
    std::string operation;
    int64_t bytes, begin, end;
  };
  bool traced = false;
  std::vector<Span> spans;
  std::mutex spansMutex;
};

Group& groupAt(int64_t id);
/** The work of a collective, for the group's lane. Throws if the tensors do not fit it. */
Task collectiveTask(Group& group, const std::string& operation, std::vector<at::Tensor> tensors, int root);
std::vector<Export> groupExports();

}  // namespace attune
