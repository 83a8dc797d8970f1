// Files mapped into memory: their tensors share the file's bytes (no copy), and may be changed without changing the file.
//
// If another program truncates a mapped file, reading the missing pages raises SIGBUS, which would end the process. The handler maps zeros
// there and sets a flag; the door then makes the call that read them throw.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "door/handles.h"

namespace attune {

std::atomic<bool> fileTorn{false};

void throwTorn() {
  fileTorn.store(false);
  throw ArgumentError("a file that is mapped into memory was cut short by another program; the tensors on it are lost");
}

namespace {

// The mappings' addresses, which the signal handler reads without locks. Mappings beyond the table's size are not guarded.
struct Range {
  std::atomic<uintptr_t> begin{0}, end{0};
};
constexpr size_t kRanges = 4096;
Range ranges[kRanges];
struct sigaction previousHandler;
uintptr_t pageSize = 4096;

void onBusError(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (auto& range : ranges) {
    if (address < range.begin.load() || address >= range.end.load()) continue;
    void* page = reinterpret_cast<void*>(address & ~(pageSize - 1));
    if (mmap(page, pageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) break;
    fileTorn.store(true);
    return;  // the access is retried and reads zeros
  }
  sigaction(SIGBUS, &previousHandler, nullptr);  // not our mapping: the access is retried with the previous handler
}

void installHandler() {
  static bool installed = false;
  if (installed) return;
  installed = true;
  pageSize = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = onBusError;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &previousHandler);
}

struct Mapping {
  char* data = nullptr;
  size_t bytes = 0;
  Range* range = nullptr;

  void guard() {
    installHandler();
    for (auto& candidate : ranges) {
      if (candidate.end.load() != 0) continue;
      candidate.begin.store(reinterpret_cast<uintptr_t>(data));
      candidate.end.store(reinterpret_cast<uintptr_t>(data) + bytes);
      range = &candidate;
      return;
    }
  }
  ~Mapping() {
    if (range != nullptr) range->end.store(0);
    if (data != nullptr) munmap(data, bytes);
  }
};

std::unordered_map<int64_t, std::shared_ptr<Mapping>>& mappings() {
  static auto* table = new std::unordered_map<int64_t, std::shared_ptr<Mapping>>();
  return *table;
}
int64_t nextMapping = 1;

napi_value mapFile(napi_env env, Args& args) {
  const std::string path = toString(env, args[0]);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw ArgumentError(path + ": " + std::strerror(errno));
  struct stat info;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(file);
    throw ArgumentError(path + ": not a regular file");
  }
  auto mapping = std::make_shared<Mapping>();
  if (info.st_size > 0) {
    // private and writable: an in-place operator on a mapped tensor changes memory, never the file
    void* data = mmap(nullptr, info.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0);
    const int fault = errno;
    close(file);
    if (data == MAP_FAILED) throw ArgumentError(path + ": cannot map: " + std::strerror(fault));
    mapping->data = static_cast<char*>(data);
    mapping->bytes = info.st_size;
    mapping->guard();
  } else {
    close(file);
  }
  const int64_t id = nextMapping++;
  mappings()[id] = mapping;
  return object(env, {{"id", fromInt(env, id)}, {"bytes", fromInt(env, static_cast<int64_t>(mapping->bytes))}});
}

// mapTensor(mapping, offset, dtype, shape)
napi_value mapTensor(napi_env env, Args& args) {
  const auto found = mappings().find(toInt(env, args[0]));
  if (found == mappings().end()) throw ArgumentError("the file is closed");
  const std::shared_ptr<Mapping> mapping = found->second;
  const int64_t offset = toInt(env, args[1]);
  const auto dtype = dtypeFromName(toString(env, args[2]));
  const auto shape = toInts(env, args[3]);
  const int64_t bytes = checkedBytes(shape, dtype);
  if (offset < 0 || bytes > static_cast<int64_t>(mapping->bytes) || offset > static_cast<int64_t>(mapping->bytes) - bytes)
    throw ArgumentError("the region lies outside the file");
  // A bool that is neither 0 nor 1 is undefined behaviour in C++, so bools are always copied.
  const auto options = at::TensorOptions().dtype(dtype == at::kBool ? at::kByte : dtype);
  if (bytes == 0) return fromTensor(env, at::empty(shape, at::TensorOptions().dtype(dtype)));
  char* data = mapping->data + offset;
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(dtype) != 0) {
    at::Tensor copy = at::empty(shape, options);  // unaligned in the file: copied
    std::memcpy(copy.data_ptr(), data, bytes);
    return fromTensor(env, copy);
  }
  const at::Tensor mapped = at::from_blob(
      data, shape, [mapping](void*) {}, options);
  return fromTensor(env, dtype == at::kBool ? mapped.ne(0) : mapped);
}

napi_value unmapFile(napi_env env, Args& args) {
  mappings().erase(toInt(env, args[0]));  // tensors made from it keep it alive
  return undefined(env);
}

}  // namespace

std::vector<Export> mappingExports() {
  return {{"mapFile", door<mapFile>}, {"mapTensor", door<mapTensor>}, {"unmapFile", door<unmapFile>}};
}

}  // namespace attune
