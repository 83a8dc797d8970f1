// Whether JavaScript's thread is inside a native call, and how many it has made: signs of life for whoever watches the process.
#pragma once
#include <atomic>
#include <cstdint>

namespace attune {

inline std::atomic<int> nativeDepth{0};
inline std::atomic<uint64_t> nativeCalls{0};

/** Marks a call that may take long. */
struct NativeCall {
  NativeCall() {
    nativeCalls.fetch_add(1, std::memory_order_relaxed);
    nativeDepth.fetch_add(1, std::memory_order_relaxed);
  }
  ~NativeCall() { nativeDepth.fetch_sub(1, std::memory_order_relaxed); }
  NativeCall(const NativeCall&) = delete;
  NativeCall& operator=(const NativeCall&) = delete;
};

}  // namespace attune
