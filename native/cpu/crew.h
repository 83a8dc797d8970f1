// The threads of a decoding step. They wait for the next piece of work by polling a number: that hands work over in about a microsecond,
// whereas a parallel region of OpenMP takes several. The step knows what it reads next, so waiting threads prefetch the first of it into
// their caches. Memory is then not idle while one thread does the small work between two products.
#pragma once
#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

namespace attune {

/** Weights that are dealt to the threads as `tasks` equal parts. */
struct Expected {
  const char* data = nullptr;
  int64_t bytes = 0, tasks = 1;
};

class Crew {
 public:
  /** The crew that this thread leads; null where it leads none. */
  static Crew*& led() {
    static thread_local Crew* crew = nullptr;
    return crew;
  }

  /** Calls `body` on this thread. If there are other threads, this one leads a crew meanwhile. */
  template <typename Body>
  static void with(const Body& body) {
#if AT_PARALLEL_OPENMP  // OpenMP runs all threads of a region at once
    const int64_t threads = at::get_num_threads();
    if (threads > 1 && !at::in_parallel_region()) {
      Crew crew(threads);
      at::parallel_for(0, threads, 1, [&](int64_t first, int64_t last) {
        if (first > 0) return crew.serve(at::get_thread_num());
        const Lead lead(crew, (threads + last - 1) / last);  // with fewer threads than asked for, each takes several parts of the range
        body();
      });
      return;
    }
#endif
    body();
  }

  int64_t size() const { return size_; }

  /** Sets what the step reads after the next `run`. */
  void expect(const Expected& next) { expected_ = next; }

  /**
   * Calls work(0) on this thread and work(1 … size − 1) on the others. Calls that have not begun when work(0) is done are skipped, since
   * the system may have given their core to another process for milliseconds: work(0) must make sure that nothing is left. If a call
   * throws, the first exception is rethrown here once all threads are done.
   */
  template <typename Work>
  void run(const Work& work) {
    call_ = [](Crew& crew, const void* given, int64_t index) { crew.attempt(*static_cast<const Work*>(given), index); };
    work_ = &work;
    epoch_.store(++count_, std::memory_order_release);
    led() = nullptr;  // what the work calls must not use the crew
    attempt(work, 0);
    led() = this;
    Fetching fetching(expected_, 0, size_);
    for (int64_t i = 1; i < size_; i++)
      if (!parts_[i].closes(count_)) wait(fetching, [&] { return parts_[i].isClosed(count_); });
    if (hasFailed_.load(std::memory_order_relaxed)) rethrow();
  }

 private:
  // A thread's state in the epochs: 2·epoch + 1 while it works in one; 2·epoch once the epoch is closed to it, with its work done or never
  // begun. The work of an epoch stays the same until the epoch is closed to all threads.
  class alignas(64) Part {
   public:
    /** Begins an epoch; false if it is closed. */
    bool begins(int64_t epoch) { return moves(epoch, 2 * epoch + 1); }
    /** Closes an epoch in which the thread has not begun; false if it has. */
    bool closes(int64_t epoch) { return moves(epoch, 2 * epoch); }
    void ends(int64_t epoch) { state_.store(2 * epoch, std::memory_order_release); }
    bool isClosed(int64_t epoch) const { return state_.load(std::memory_order_acquire) == 2 * epoch; }

   private:
    std::atomic<int64_t> state_{0};
    bool moves(int64_t epoch, int64_t to) {
      int64_t now = state_.load(std::memory_order_acquire);
      return now < 2 * epoch && state_.compare_exchange_strong(now, to, std::memory_order_acq_rel);
    }
  };

  // Makes this thread the crew's leader. Lets the other threads go at the end, also if the body throws.
  struct Lead {
    Crew& crew;
    Lead(Crew& given, int64_t size) : crew(given) {
      crew.size_ = size;
      led() = &crew;
    }
    ~Lead() {
      led() = nullptr;
      crew.epoch_.store(kOver, std::memory_order_release);
    }
  };

  // Prefetches the beginning of a thread's part of the expected weights into its L2 cache, some lines at a time.
  struct Fetching {
    static constexpr int64_t kLine = 64, kLines = 8, kMost = 128 << 10;
    const char *at = nullptr, *end = nullptr;
    Fetching() = default;
    Fetching(const Expected& all, int64_t index, int64_t threads) {
      const int64_t task = all.bytes / all.tasks, begin = index * all.tasks / threads * task,
                    next = (index + 1) * all.tasks / threads * task;
      at = all.data + begin;
      end = at + std::min(next - begin, kMost);
    }
    /** False when nothing is left to fetch. */
    bool some() {
      for (int64_t i = 0; i < kLines && at < end; i++, at += kLine) __builtin_prefetch(at, 0, 2);
      return at < end;
    }
  };

  static constexpr int64_t kOver = -1;

  explicit Crew(int64_t most) : parts_(most) {}

  template <typename Ready>
  static void wait(Fetching& fetching, const Ready& ready) {
    constexpr int kPatience = 512;  // some 20 µs
    for (int turns = 0; !ready();) {
      if (fetching.some()) continue;
      if (++turns > kPatience) sched_yield();  // there may be more threads than cores
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      asm volatile("isb");
#endif
    }
  }

  // An exception must not escape from a thread's part: the other threads and the region's creator would wait for it.
  template <typename Work>
  void attempt(const Work& work, int64_t index) noexcept {
    try {
      work(index);
    } catch (...) {
      if (!hasFailed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  // Every part is closed: nobody else touches the failure.
  [[noreturn]] void rethrow() {
    hasFailed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  // What the other threads do.
  void serve(int64_t index) noexcept {
    Fetching fetching;
    for (int64_t seen = 0;;) {
      int64_t now = seen;
      wait(fetching, [&] { return (now = epoch_.load(std::memory_order_acquire)) != seen; });
      seen = now;
      if (now == kOver) return;
      if (!parts_[index].begins(now)) continue;
      fetching = Fetching(expected_, index, size_);
      call_(*this, work_, index);
      parts_[index].ends(now);
    }
  }

  alignas(64) std::atomic<int64_t> epoch_{0};
  void (*call_)(Crew&, const void*, int64_t) = nullptr;
  const void* work_ = nullptr;
  Expected expected_;
  int64_t size_ = 1;
  alignas(64) int64_t count_ = 0;
  std::atomic<bool> hasFailed_{false};
  std::exception_ptr failure_;
  std::vector<Part> parts_;
};

}  // namespace attune
