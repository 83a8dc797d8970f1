// Whether JavaScript's thread is inside a native call, and how many calls it has made: signs of life for the hang detectors.
#pragma once
#include <atomic>
#include <cstdint>

namespace attune {

inline std::atomic<int> nativeDepth{0};
inline std::atomic<uint64_t> nativeCalls{0};

/** Marks a call that may take long. Only JavaScript's thread counts, so no atomic addition is needed. */
struct NativeCall {
  NativeCall() {
    nativeCalls.store(nativeCalls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    add(1);
  }
  ~NativeCall() { add(-1); }
  NativeCall(const NativeCall&) = delete;
  NativeCall& operator=(const NativeCall&) = delete;

 private:
  static void add(int change) { nativeDepth.store(nativeDepth.load(std::memory_order_relaxed) + change, std::memory_order_relaxed); }
};

}  // namespace attune
