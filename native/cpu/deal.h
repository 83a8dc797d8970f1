// Deals tasks to all threads. at::parallel_for gives each thread an equal share, and the product then waits for the slowest one. On a
// shared host one core is slower than the other, and which one changes.
#pragma once
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "cpu/crew.h"

namespace attune {

/** The tasks left in a thread's share. The thread takes them from the front, other threads from the back. */
class Share {
 public:
  void set(int64_t begin, int64_t end) { left.store(pack(begin, end), std::memory_order_relaxed); }
  int64_t size() const { return sizeOf(left.load(std::memory_order_relaxed)); }

  /** Takes up to `count` tasks; false if none is left. */
  bool take(int64_t count, bool fromBack, int64_t& begin, int64_t& end) {
    uint64_t now = left.load(std::memory_order_relaxed);
    while (sizeOf(now) > 0) {
      begin = static_cast<int64_t>(now >> 32), end = static_cast<int64_t>(now & 0xFFFFFFFF);
      const int64_t taken = std::min(count, end - begin);
      const uint64_t rest = fromBack ? pack(begin, end - taken) : pack(begin + taken, end);
      if (!left.compare_exchange_weak(now, rest, std::memory_order_relaxed)) continue;
      fromBack ? begin = end - taken : end = begin + taken;
      return true;
    }
    return false;
  }

 private:
  alignas(64) std::atomic<uint64_t> left{0};  // first and last task, in 32 bits each
  static uint64_t pack(int64_t begin, int64_t end) { return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end); }
  static int64_t sizeOf(uint64_t both) { return static_cast<int64_t>(both & 0xFFFFFFFF) - static_cast<int64_t>(both >> 32); }
};

constexpr int64_t kThreadWork = 65536;  // multiply-adds that justify a thread

/** How many tasks of `work` multiply-adds justify a thread. */
inline int64_t leastTasks(int64_t work) { return std::max<int64_t>(1, kThreadWork / std::max<int64_t>(1, work)); }

/**
 * Calls body(begin, end) for pieces of [0, tasks). It runs on the threads of the crew that this one leads, or on all threads, or on one if
 * there are fewer than 2·`least` tasks. A thread works through its own share in order, then through the ends of the others'. A task's
 * result must not depend on the thread that computes it.
 */
template <typename Body>
void deal(int64_t tasks, int64_t least, const Body& body) {
  Crew* const crew = Crew::led();
  const int64_t threads = crew != nullptr ? crew->size() : at::in_parallel_region() ? 1 : at::get_num_threads();
  const int64_t workers = std::min<int64_t>(threads, tasks / std::max<int64_t>(1, least));
  if (workers <= 1 || tasks > INT32_MAX) {
    if (tasks > 0) body(0, tasks);
    return;
  }
  std::vector<Share> shares(workers);
  for (int64_t w = 0; w < workers; w++) shares[w].set(w * tasks / workers, (w + 1) * tasks / workers);
  const int64_t piece = std::max(least, tasks / (workers * 16));
  const auto work = [&](int64_t first, int64_t last) {
    int64_t begin, end;
    for (int64_t w = first; w < last; w++)
      while (shares[w].take(piece, false, begin, end)) body(begin, end);
    for (;;) {
      const auto most = std::max_element(shares.begin(), shares.end(), [](const Share& a, const Share& b) { return a.size() < b.size(); });
      if (most->size() <= 0) break;
      if (most->take(piece, true, begin, end)) body(begin, end);
    }
  };
  if (crew == nullptr) return at::parallel_for(0, workers, 1, work);
  crew->run([&](int64_t index) {
    if (index < workers) work(index, index + 1);
  });
}

}  // namespace attune
