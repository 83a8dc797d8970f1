// A thread that reports the progress of JavaScript's thread to the launcher twice a second, even if that thread is stuck. The launcher
// decides what the figures mean (src/dist/launch/launch.ts).
#include "dist/beat.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>

#include "door/calls.h"
#include "door/values.h"

namespace attune {
namespace {

std::atomic<uint64_t> turns{0};

/** Bytes that the main thread has read and written: writing a checkpoint to a slow disk is not a hang. */
uint64_t bytesMoved() {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/io");
  std::string name;
  uint64_t value = 0, sum = 0;
  while (file >> name >> value)
    if (name == "rchar:" || name == "wchar:") sum += value;
  return sum;
}

/** What Linux says of the main thread: a machine without a free core must not make it look hung. */
void readThread(Progress& out) {
  std::ifstream file("/proc/self/task/" + std::to_string(getpid()) + "/stat");
  std::string line;
  std::getline(file, line);
  // The fields after the name in parentheses: the state is the first, the user and system times are the 12th and 13th.
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string field;
  for (int i = 1; i <= 13 && fields >> field; i++) {
    if (i == 1) out.runs = field == "R";
    if (i >= 12) out.cpuSeconds += std::strtod(field.c_str(), nullptr) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
}

void beat(int pipe) {
  for (;;) {
    const Progress at = readProgress();
    char line[160];
    const int length =
        std::snprintf(line, sizeof line, "{\"done\":%llu,\"native\":%s,\"runs\":%s,\"cpu\":%.2f}\n",
                      static_cast<unsigned long long>(at.done), at.isNative ? "true" : "false", at.runs ? "true" : "false", at.cpuSeconds);
    // Without the launcher, nobody would end this rank when another one dies.
    if (write(pipe, line, static_cast<size_t>(length)) < 0 && errno == EPIPE) _exit(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

/** Whether a file descriptor is a pipe or a socket, as the launcher makes, and not one of the process's standard three. */
bool isPipe(int64_t file) {
  struct stat about;
  if (file <= STDERR_FILENO || file > std::numeric_limits<int>::max() || fstat(static_cast<int>(file), &about) != 0) return false;
  return S_ISFIFO(about.st_mode) || S_ISSOCK(about.st_mode);
}

// beatStart(pipe): once per process. The launcher names the pipe in the environment; lines in any other file would damage it.
napi_value beatStart(napi_env env, Args& args) {
  static std::atomic<bool> started{false};
  const int64_t pipe = toInt(env, args[0]);
  const char* named = std::getenv("ATTUNE_BEAT_FD");
  if (named == nullptr || std::to_string(pipe) != named || !isPipe(pipe)) throw ArgumentError("this is not the launcher's pipe");
  if (started.exchange(true)) throw ArgumentError("this process tells its launcher already");
  std::thread(beat, static_cast<int>(pipe)).detach();
  return undefined(env);
}

// beatTurn(): JavaScript's event loop has turned.
napi_value beatTurn(napi_env env, Args&) {
  turns.fetch_add(1, std::memory_order_relaxed);
  return undefined(env);
}

}  // namespace

Progress readProgress() {
  Progress out;
  out.isNative = nativeDepth.load(std::memory_order_relaxed) > 0;
  out.done = turns.load(std::memory_order_relaxed) + nativeCalls.load(std::memory_order_relaxed) + bytesMoved();
  readThread(out);
  return out;
}

std::vector<Export> beatExports() { return {{"beatStart", door<beatStart>}, {"beatTurn", door<beatTurn>}}; }

}  // namespace attune
