#include "dist/sums/shared_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <sstream>
#include <stdexcept>

#ifdef __linux__
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace attune {

namespace {

constexpr int64_t kLine = 16;  // elements of a cache line, so that no two ranks write to the same one
constexpr int64_t kBlock = 4096;  // elements that stay in the L1 cache while they are summed

struct Part {
  int64_t begin, size;
};

/** The part of `count` elements that this rank sums. */
Part partOf(int64_t count, int rank, int ranks) {
  const int64_t each = ((count + ranks - 1) / ranks + kLine - 1) / kLine * kLine;
  const int64_t begin = std::min(count, rank * each);
  return {begin, std::min(count, begin + each) - begin};
}

void copy(float* to, const float* from, int64_t count) { std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float)); }

#ifdef __linux__
std::string linkOf(const std::string& path) {
  char target[256];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  return length < 0 ? "" : std::string(target, static_cast<size_t>(length));
}

/** A name that no other process has given its memory. */
std::string newName() {
  std::random_device random;
  std::ostringstream name;
  name << "attune-" << std::hex << random() << random() << random() << random();
  return name.str();
}
#endif

}  // namespace

/** What a rank shows the others. Sums and inputs are apart: the sums are read while the inputs of the next sum are written. */
struct SharedMemory::Window {
  static constexpr int64_t kElements = int64_t{4} << 20;  // 16 MiB
  /** Length of the current sum. */
  int64_t count;
  /** The numbers that this rank contributes. */
  alignas(64) float given[kElements];
  /** The sums of this rank's part. */
  alignas(64) float sums[kElements / 2 + kLine];
};

#ifdef __linux__
namespace {

void* mapped(int file, size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

/** Memory without a name in any file system: the system frees it when the last process that has it open ends, however it ends. */
struct Made {
  int file = -1;
  void* memory = nullptr;
  std::string letter;
};

Made makeMemory(size_t bytes) {
  const std::string name = newName();
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0) return {};
  void* memory = ftruncate(file, static_cast<off_t>(bytes)) == 0 ? mapped(file, bytes) : nullptr;
  if (memory == nullptr) {
    close(file);
    return {};
  }
  std::ostringstream letter;
  letter << getpid() << ' ' << file << ' ' << name;
  return {file, memory, letter.str()};
}

/** Another rank's memory, opened by its letter; null if it cannot be opened. Opens only what carries the rank's own name. */
void* openMemory(const std::string& letter, size_t bytes) {
  std::istringstream text(letter);
  int64_t process = 0, number = 0;
  std::string name;
  if (!(text >> process >> number >> name)) return nullptr;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(number);
  if (linkOf(path).rfind("/memfd:" + name, 0) != 0) return nullptr;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  struct stat status {};
  const bool fits = fstat(file, &status) == 0 && status.st_size == static_cast<off_t>(bytes);
  void* memory = fits ? mapped(file, bytes) : nullptr;
  close(file);
  return memory;
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::open(int rank, int size, const Letters& letters) {
  std::unique_ptr<SharedMemory> shared(new SharedMemory(rank, size));
  const Made own = makeMemory(sizeof(Window));
  shared->file_ = own.file;
  letters.leave(own.memory == nullptr ? "none" : own.letter);
  shared->windows_[static_cast<size_t>(rank)] = static_cast<Window*>(own.memory);
  bool complete = own.memory != nullptr;
  for (int other = 0; other < size; other++) {
    if (other == rank) continue;
    auto*& window = shared->windows_[static_cast<size_t>(other)];
    window = static_cast<Window*>(openMemory(letters.from(other), sizeof(Window)));
    complete = complete && window != nullptr;
  }
  return complete ? std::move(shared) : nullptr;
}

SharedMemory::~SharedMemory() {
  for (Window* window : windows_)
    if (window != nullptr) munmap(window, sizeof(Window));
  if (file_ >= 0) close(file_);
}
#else
std::unique_ptr<SharedMemory> SharedMemory::open(int, int, const Letters&) { return nullptr; }
SharedMemory::~SharedMemory() = default;
#endif

void SharedMemory::addUp(float* values, int64_t count, const std::function<void()>& meet) {
  for (int64_t begin = 0; begin < count; begin += Window::kElements)
    addUpWindow(values + begin, std::min(Window::kElements, count - begin), meet);
}

// Each rank sums one part and writes only to its own window. `given` is read between the two meetings. `sums` is read between the second
// meeting and the first one of the next sum, so the next sum may begin at once.
void SharedMemory::addUpWindow(float* values, int64_t count, const std::function<void()>& meet) {
  const int ranks = static_cast<int>(windows_.size());
  Window& own = *windows_[static_cast<size_t>(rank_)];
  const auto eachOther = [&](auto visit) {
    for (int rank = 0; rank < ranks; rank++)
      if (rank != rank_) visit(*windows_[static_cast<size_t>(rank)], partOf(count, rank, ranks));
  };
  own.count = count;
  eachOther([&](const Window&, const Part& part) { copy(own.given + part.begin, values + part.begin, part.size); });
  std::atomic_thread_fence(std::memory_order_seq_cst);
  meet();
  for (const Window* window : windows_)
    if (window->count != count) throw std::runtime_error("ranks differ in the number of elements");
  const Part part = partOf(count, rank_, ranks);
  for (int64_t done = 0; done < part.size; done += kBlock) {
    const int64_t at = part.begin + done, size = std::min(kBlock, part.size - done);
    const auto givenBy = [&](int rank) { return (rank == rank_ ? values : windows_[static_cast<size_t>(rank)]->given) + at; };
    const float *first = givenBy(0), *second = givenBy(1);
    float* sum = own.sums + done;
    for (int64_t i = 0; i < size; i++) sum[i] = first[i] + second[i];
    for (int rank = 2; rank < ranks; rank++) {
      const float* next = givenBy(rank);
      for (int64_t i = 0; i < size; i++) sum[i] += next[i];
    }
    copy(values + at, sum, size);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  meet();
  eachOther([&](const Window& window, const Part& other) { copy(values + other.begin, window.sums, other.size); });
}

}  // namespace attune
