// The memory of large CPU tensors. glibc returns freed blocks above a certain size to the system at once, and the system zeroes them again,
// page by page, on the next allocation: up to a tenth of the processor's time in training. So freed blocks are kept for the next tensors.
// They lie in pages of 2 MiB if the system has them: with pages of 4 KiB, a core that reads weights spends time on address lookups.
//
// Kept and used memory together never exceed the peak of used memory, and blocks that nobody has taken for a while go back to the system.
#include "cpu/large_blocks.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLarge = size_t{2} << 20;  // smaller blocks are left to glibc; also the size of a large page
constexpr auto kPatience = std::chrono::seconds(30);  // longer than a step of training usually takes

// Memory in whole large pages, aligned to one; null if there is none.
char* mapLarge(size_t size) {
  const size_t room = size + kLarge;
  void* data = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  auto* first = static_cast<char*>(data);
  char* start = first + (kLarge - reinterpret_cast<uintptr_t>(first) % kLarge) % kLarge;
  if (start > first) munmap(first, start - first);
  if (first + room > start + size) munmap(start + size, first + room - (start + size));
#ifdef MADV_HUGEPAGE
  madvise(start, size, MADV_HUGEPAGE);
#endif
  return start;
}

inline size_t roundUp(size_t size, size_t to) { return (size + to - 1) / to * to; }

class LargeBlocks {
 public:
  /** Null if the system has no memory left. */
  void* take(size_t bytes) {
    const size_t size = roundUp(bytes, page);
    const std::lock_guard<std::mutex> lock(mutex);
    auto best = kept.end();
    for (auto at = kept.begin(); at != kept.end(); ++at)
      if (at->second.size >= size && (best == kept.end() || at->second.size < best->second.size)) best = at;
    if (best == kept.end()) best = map(size);
    if (best == kept.end()) return nullptr;
    char* data = best->first;
    const Kept all = best->second;
    kept.erase(best);
    if (all.size > size) kept.emplace(data + size, Kept{all.size - size, all.since});
    keptBytes -= size;
    used.emplace(data, size);
    usedBytes += size;
    peak = std::max(peak, usedBytes);
    return data;
  }

  size_t keptNow() {
    const std::lock_guard<std::mutex> lock(mutex);
    return keptBytes;
  }

  /** False if the block is not one of these. */
  bool free(void* data) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = used.find(data);
    if (found == used.end()) return false;
    const auto now = Clock::now();
    const size_t size = found->second;
    used.erase(found);
    usedBytes -= size;
    keep(static_cast<char*>(data), size, now);
    giveBack([&](const Kept& block) { return now - block.since > kPatience; });
    return true;
  }

 private:
  struct Kept {
    size_t size;
    Clock::time_point since;  // when any part of it was last used
  };
  using Blocks = std::map<char*, Kept>;  // no two blocks are adjacent
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::mutex mutex;
  Blocks kept;
  std::unordered_map<void*, size_t> used;
  size_t keptBytes = 0, usedBytes = 0, peak = 0;

  /** Adds new memory to the kept blocks; the end if there is none. */
  Blocks::iterator map(size_t size) {
    giveBack([&](const Kept&) { return usedBytes + size + keptBytes > peak; });
    const size_t whole = roundUp(size, kLarge);
    char* data = mapLarge(whole);
    if (data == nullptr) {
      giveBack([](const Kept&) { return true; });
      data = mapLarge(whole);
    }
    return data == nullptr ? kept.end() : keep(data, whole, Clock::now());
  }

  /** Merges a block with adjacent kept blocks. */
  Blocks::iterator keep(char* data, size_t size, Clock::time_point now) {
    keptBytes += size;
    auto after = kept.lower_bound(data);
    if (after != kept.end() && data + size == after->first) {
      size += after->second.size;
      after = kept.erase(after);
    }
    if (after != kept.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second.size == data) {
        before->second = {before->second.size + size, now};
        return before;
      }
    }
    return kept.emplace(data, Kept{size, now}).first;
  }

  /** Gives kept blocks back as long as `wanted` returns true. */
  template <typename Wanted>
  void giveBack(Wanted wanted) {
    for (auto at = kept.begin(); at != kept.end();) {
      if (!wanted(at->second)) {
        ++at;
        continue;
      }
      munmap(at->first, at->second.size);
      keptBytes -= at->second.size;
      at = kept.erase(at);
    }
  }
};

LargeBlocks& blocks() {
  static auto* all = new LargeBlocks();
  return *all;
}

at::Allocator* usual = nullptr;

void release(void* data) {
  if (data != nullptr && !blocks().free(data)) usual->raw_deallocate(data);
}

// Without `override`: the const qualifiers differ between versions of libtorch, and copy_data is new.
struct LargeBlockAllocator : at::Allocator {
  at::DataPtr allocate(size_t bytes) const {
    // a size beyond what the system can have is left to the usual allocator and its error
    void* data = bytes >= kLarge && bytes < (size_t{1} << 46) ? blocks().take(bytes) : nullptr;
    if (data == nullptr) data = usual->raw_allocate(bytes);
    return {data, data, &release, at::Device(at::DeviceType::CPU)};
  }
  at::DataPtr allocate(size_t bytes) { return static_cast<const LargeBlockAllocator*>(this)->allocate(bytes); }
  at::DeleterFnPtr raw_deleter() const { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const { std::memcpy(to, from, bytes); }
};

}  // namespace

size_t keptLargeBytes() { return blocks().keptNow(); }

void useLargeBlocks() {
#if !defined(__SANITIZE_ADDRESS__)  // the sanitizer's own allocator detects use after free
  static LargeBlockAllocator allocator;
  if (usual != nullptr) return;
  usual = c10::GetDefaultCPUAllocator();
  c10::SetCPUAllocator(&allocator);
#endif
}

}  // namespace attune
