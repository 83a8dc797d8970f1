// Ranks that watch one another, for programs started without `attune launch`. Each writes a sign of life into the store twice a second;
// rank 0 reads everybody's, and the others read rank 0's. A rank is named in the store, and every rank ends, if it gives no sign for the
// limit (it was stopped, or its machine is gone), or if its JavaScript makes no progress for that long by the launcher's rule
// (src/dist/launch/launch.ts). All of it runs on threads of its own: JavaScript's may be inside a collective that waits for the hung rank.
#ifdef ATTUNE_C10D
#include "dist/watch.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "dist/beat.h"
#include "dist/stores.h"
#include "door/values.h"

namespace attune {
namespace {

using Clock = std::chrono::steady_clock;

const std::string hungKey = "hung";
const std::string endedValue = "ended";
std::string beatKey(int rank) { return "beat/" + std::to_string(rank); }

double secondsSince(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

struct Watch {
  std::string host, prefix;
  c10d::TCPStoreOptions options;
  int rank = 0, size = 1;
  double limit = 0;
  /** Seconds between two signs of life; longer in large worlds, whose signs rank 0 reads one by one. */
  double period = 0.5;
  std::mutex mutex;
  std::condition_variable wake;
  int64_t rounds = 0;
  /** isEnding: this rank has to say that it ends well. isOver: nothing more will be said. */
  bool isEnding = false, isOver = false;

  /** If a whole machine stood still, its ranks must not judge others as hung: the judge must have been awake meanwhile. */
  int64_t enoughRounds() const { return std::max<int64_t>(2, static_cast<int64_t>(limit / period / 2)); }
};

/** The process's one watch. Never destroyed: its threads may outlive statics. */
std::shared_ptr<Watch>& current() {
  static auto* watch = new std::shared_ptr<Watch>();
  return *watch;
}

/** A value that should keep changing, and when it last did. */
class Pulse {
 public:
  void see(const std::string& value, int64_t round) {
    if (value == value_) return;
    value_ = value;
    changed_ = Clock::now();
    round_ = round;
  }
  const std::string& value() const { return value_; }
  bool isStill(const Watch& watch, int64_t round) const {
    return secondsSince(changed_) > watch.limit && round - round_ >= watch.enoughRounds();
  }

 private:
  std::string value_;
  Clock::time_point changed_ = Clock::now();
  int64_t round_ = 0;
};

[[noreturn]] void endProcess(const std::string& message) {
  const std::string line = "attune: " + message + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

std::string lasting(const Watch& watch) {
  std::ostringstream text;
  text << watch.limit << " s (ATTUNE_DIST_HANG)";
  return text.str();
}

class Rounds {
 public:
  explicit Rounds(std::shared_ptr<Watch> watch)
      : watch_(std::move(watch)),
        store_(c10::make_intrusive<c10d::PrefixStore>(watch_->prefix + "watch", openTcpStore(watch_->host, watch_->options))),
        others_(static_cast<size_t>(watch_->size)),
        atProgress_(readProgress()) {}

  void run() {
    put(beatKey(watch_->rank), "0");
    finished(1);
    for (int64_t round = 2;; round++) {
      const bool isEnding = pause();
      put(beatKey(watch_->rank), isEnding ? endedValue : std::to_string(round));
      finished(round);
      if (isEnding) return;
      if (store_->check({hungKey})) endProcess(get(hungKey));
      const int last = watch_->rank == 0 ? watch_->size - 1 : 0;
      for (int rank = 0; rank <= last; rank++)
        if (rank != watch_->rank) look(rank, round);
      lookAtOwnThread(round);
    }
  }

 private:
  void look(int rank, int64_t round) {
    Pulse& pulse = others_[static_cast<size_t>(rank)];
    if (store_->check({beatKey(rank)})) pulse.see(get(beatKey(rank)), round);
    const bool isExpected = !pulse.value().empty() && pulse.value() != endedValue;
    if (isExpected && pulse.isStill(*watch_, round))
      declare(rank, "no sign of life for " + lasting(*watch_) + ": it was stopped, or its machine or network is gone");
  }

  void lookAtOwnThread(int64_t round) {
    const Progress now = readProgress();
    if (now.isNative || now.done != atProgress_.done) {
      atProgress_ = now;
      thread_.see(std::to_string(round), round);
      return;
    }
    const bool isLooping = now.cpuSeconds - atProgress_.cpuSeconds > 0.9 * watch_->limit;
    if (thread_.isStill(*watch_, round) && (isLooping || !now.runs))
      declare(watch_->rank, "JavaScript has been at one place for " + lasting(*watch_) +
                                ", outside of native code (an endless loop, or a wait that blocks)");
  }

  [[noreturn]] void declare(int rank, const std::string& why) {
    const std::string message = "Rank " + std::to_string(rank) + " hangs: " + why + ". All ranks end.";
    put(hungKey, message);
    // The store may end with this process: the others get time to read it first.
    std::this_thread::sleep_for(std::chrono::duration<double>(2 * watch_->period));
    endProcess(message);
  }

  bool pause() {
    std::unique_lock<std::mutex> lock(watch_->mutex);
    watch_->wake.wait_for(lock, std::chrono::duration<double>(watch_->period), [&] { return watch_->isEnding; });
    return watch_->isEnding;
  }
  void finished(int64_t round) {
    std::lock_guard<std::mutex> lock(watch_->mutex);
    watch_->rounds = round;
    watch_->wake.notify_all();
  }
  void put(const std::string& key, const std::string& value) { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); }
  std::string get(const std::string& key) {
    const auto value = store_->get(key);
    return std::string(value.begin(), value.end());
  }

  std::shared_ptr<Watch> watch_;
  StorePointer store_;
  std::vector<Pulse> others_;
  Pulse thread_;
  Progress atProgress_;
};

/** If rank 0 is stopped, so is its store, and a request to it never returns. This thread detects that. */
void judgeStore(const std::shared_ptr<Watch>& watch) {
  Pulse pulse;
  for (int64_t tick = 0;; tick++) {
    std::this_thread::sleep_for(std::chrono::duration<double>(watch->period));
    std::string rounds;
    {
      std::lock_guard<std::mutex> lock(watch->mutex);
      if (watch->isOver) return;
      rounds = std::to_string(watch->rounds);
    }
    pulse.see(rounds, tick);
    if (pulse.isStill(*watch, tick))
      endProcess("Rank 0 hangs: its store has not answered for " + lasting(*watch) + ". This rank ends.");
  }
}

void watchAll(const std::shared_ptr<Watch>& watch) {
  try {
    Rounds rounds(watch);
    std::thread(judgeStore, watch).detach();
    rounds.run();
  } catch (const std::exception&) {
    // Rank 0 is gone, and its store with it: collectives report that to ranks that still need the others.
  }
  std::lock_guard<std::mutex> lock(watch->mutex);
  watch->isOver = true;
  watch->wake.notify_all();
}

// watchStart(host, port, prefix, rank, size, limit in seconds): once per process, when all ranks are there. Returns when the first sign of
// life is in the store; from then on the others expect more.
napi_value watchStart(napi_env env, Args& args) {
  auto watch = std::make_shared<Watch>();
  watch->host = toString(env, args[0]);
  watch->options.port = static_cast<std::uint16_t>(toInt(env, args[1]));
  watch->options.waitWorkers = false;
  watch->prefix = toString(env, args[2]);
  watch->rank = static_cast<int>(toInt(env, args[3]));
  watch->size = static_cast<int>(toInt(env, args[4]));
  watch->limit = toDouble(env, args[5]);
  watch->period = 0.5 * (1 + watch->size / 128);
  current() = watch;
  std::thread(watchAll, watch).detach();
  std::unique_lock<std::mutex> lock(watch->mutex);
  watch->wake.wait_for(lock, std::chrono::duration<double>(watch->limit), [&] { return watch->rounds > 0 || watch->isOver; });
  return undefined(env);
}

// watchStop(): tells the others that this rank ends. Waits two seconds at most, since the store may be stopped.
napi_value watchStop(napi_env env, Args&) {
  const std::shared_ptr<Watch> watch = current();
  if (!watch) return undefined(env);
  std::unique_lock<std::mutex> lock(watch->mutex);
  watch->isEnding = true;
  watch->wake.notify_all();
  watch->wake.wait_for(lock, std::chrono::seconds(2), [&] { return watch->isOver; });
  return undefined(env);
}

}  // namespace

std::string silentRanks() {
  const std::shared_ptr<Watch> watch = current();
  if (!watch) return "";
  std::string silent;
  try {
    c10d::PrefixStore store(watch->prefix + "watch", openTcpStore(watch->host, watch->options));
    const auto signs = [&]() {
      std::vector<std::string> values;
      for (int rank = 0; rank < watch->size; rank++) {
        const bool isThere = store.check({beatKey(rank)});
        const auto bytes = isThere ? store.get(beatKey(rank)) : std::vector<uint8_t>();
        values.emplace_back(bytes.begin(), bytes.end());
      }
      return values;
    };
    const auto before = signs();
    std::this_thread::sleep_for(std::chrono::duration<double>(2.5 * watch->period));
    const auto after = signs();
    for (size_t rank = 0; rank < after.size(); rank++)
      if (static_cast<int>(rank) != watch->rank && after[rank] == before[rank] && after[rank] != endedValue)
        silent += (silent.empty() ? "rank " : ", rank ") + std::to_string(rank);
  } catch (const std::exception&) {
    return "";
  }
  return silent;
}

std::vector<Export> watchExports() { return {{"watchStart", door<watchStart>}, {"watchStop", door<watchStop>}}; }

}  // namespace attune
#endif
