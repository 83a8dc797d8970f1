// A lane: one thread that does blocking work in the order of submission and settles a JavaScript promise for each piece. The event loop
// stays free meanwhile.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "door/handles.h"

namespace attune {

/** The result of a piece of work for JavaScript: nothing, a number or a text. */
struct Answer {
  enum class Kind { nothing, number, text } kind = Kind::nothing;
  double number = 0;
  std::string text;

  static Answer none() { return {}; }
  static Answer of(double value) { return {Kind::number, value, {}}; }
  static Answer of(std::string value) { return {Kind::text, 0, std::move(value)}; }
};

using Task = std::function<Answer()>;

class Lane {
 public:
  Lane(napi_env env, const std::string& name);
  /** A promise of the work's answer, rejected with the work's exception. Only on JavaScript's thread. */
  napi_value submit(napi_env env, Task task);
  /** Submits work from any thread, without a promise; `done` is called on the lane's thread with an error's text, or an empty one. */
  void post(Task task, std::function<void(const std::string&)> done);

 private:
  struct Item;
  struct State;
  static void loop(std::shared_ptr<State> state);
  static void settle(napi_env env, napi_value, void* context, void* data);
  std::shared_ptr<State> state_;
};

}  // namespace attune
