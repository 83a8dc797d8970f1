// Throws inside the work of a crew, on its threads in turn, and says what reached the caller.
#include <cstdio>
#include <stdexcept>
#include <string>

#include "cpu/deal.h"

using attune::Crew;
using attune::deal;

namespace {

constexpr int64_t kTasks = 4000;

/** Deals tasks, of which those of `bad` throw; the number of tasks done, or what was thrown. */
std::string dealt(int64_t bad, int64_t badEnd) {
  std::atomic<int64_t> done{0};
  try {
    deal(kTasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; i++) {
        if (i >= bad && i < badEnd) throw std::runtime_error("task " + std::to_string(i));
        done++;
      }
    });
  } catch (const std::exception& error) {
    return error.what();
  }
  return std::to_string(done.load());
}

}  // namespace

int main() {
  at::set_num_threads(4);
  bool ledOne = false, isRight = true;
  const auto expect = [&](const std::string& is, const std::string& wanted) {
    if (is != wanted) std::printf("%s, not %s\n", is.c_str(), wanted.c_str());
    isRight = isRight && is == wanted;
  };
  Crew::with([&] {
    ledOne = Crew::led() != nullptr && Crew::led()->size() == 4;
    for (int round = 0; round < 2000; round++) {
      const int64_t bad = (round * 7919) % kTasks;
      expect(dealt(bad, bad + 1), "task " + std::to_string(bad));
      expect(dealt(0, 0), std::to_string(kTasks));
    }
    for (int round = 0; round < 200; round++) {  // all threads throw, and one exception arrives
      if (dealt(0, kTasks).rfind("task ", 0) != 0) isRight = false;
      expect(dealt(0, 0), std::to_string(kTasks));
    }
  });
  try {  // what leaves the body ends the crew
    Crew::with([&] { throw std::runtime_error("body"); });
    isRight = false;
  } catch (const std::runtime_error& error) {
    expect(error.what(), "body");
  }
  expect(Crew::led() == nullptr ? "none" : "a crew", "none");
  std::puts(!ledOne ? "no crew" : isRight ? "right" : "wrong");
}
