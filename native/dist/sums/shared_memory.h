// Memory that the ranks of one machine all see. Large sums are made in it: Gloo's sockets copy every byte four times, on the cores
// that compute meanwhile. Gloo keeps the ranks in step and tells who is missing, as for every other collective.
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
  /** Asks for a text that another rank has left, and leaves this rank's. */
  struct Letters {
    std::function<void(const std::string& text)> leave;
    std::function<std::string(int rank)> from;
  };

  /** Null where this rank does not see the memory of all others: on another machine, in another container, by the system's rules. */
  static std::unique_ptr<SharedMemory> open(int rank, int size, const Letters& letters);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /**
   * Adds up `count` numbers over all ranks, in place, from rank 0 to the last. `meet` returns when every rank has come to it. Throws
   * where ranks bring different counts.
   */
  void addUp(float* values, int64_t count, const std::function<void()>& meet);

 private:
  struct Window;
  SharedMemory(int rank, int size) : rank_(rank), windows_(static_cast<size_t>(size), nullptr) {}
  void addUpWindow(float* values, int64_t count, const std::function<void()>& meet);

  int rank_;
  /** This rank's memory, by which the others open it. */
  int file_ = -1;
  /** Each rank's, in the order of ranks. */
  std::vector<Window*> windows_;
};

}  // namespace attune
