// Memory that all ranks of one machine share. Large sums are made in it: Gloo's sockets copy every byte four times, on the cores that
// compute meanwhile. Gloo keeps the ranks in step and reports missing ones, as for every other collective.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace attune {

class SharedMemory {
 public:
  /** Exchanges texts between ranks: reads another rank's, publishes this rank's. */
  struct Letters {
    std::function<void(const std::string& text)> leave;
    std::function<std::string(int rank)> from;
  };

  /** Null if this rank cannot open the memory of all others: on another machine, in another container, or by the system's rules. */
  static std::unique_ptr<SharedMemory> open(int rank, int size, const Letters& letters);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /**
   * Sums `count` numbers over all ranks, in place, from rank 0 to the last. `meet` returns when every rank has called it. Throws if the
   * ranks' counts differ.
   */
  void addUp(float* values, int64_t count, const std::function<void()>& meet);

 private:
  struct Window;
  SharedMemory(int rank, int size) : rank_(rank), windows_(static_cast<size_t>(size), nullptr) {}
  void addUpWindow(float* values, int64_t count, const std::function<void()>& meet);

  int rank_;
  /** This rank's memory, which the others open. */
  int file_ = -1;
  /** Each rank's, in the order of ranks. */
  std::vector<Window*> windows_;
};

}  // namespace attune
