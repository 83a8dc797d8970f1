#include "dist/lane.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <thread>

namespace attune {

struct Lane::Item {
  Task task;
  napi_deferred deferred = nullptr;
  std::function<void(const std::string&)> done;
  Answer answer;
  std::string error;
};

// Shared with the thread and never destroyed while it runs: at exit, a missing peer may keep it waiting.
struct Lane::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Item*> items;
  napi_threadsafe_function settle = nullptr;
  /** Promises that are not settled yet; while there are any, Node stays alive. Touched on JavaScript's thread only. */
  size_t pending = 0;
};

Lane::Lane(napi_env env, const std::string& name) : state_(std::make_shared<State>()) {
  napi_value label;
  ok(env, napi_create_string_utf8(env, name.c_str(), name.size(), &label), "cannot name a thread");
  auto* context = new std::shared_ptr<State>(state_);
  ok(env, napi_create_threadsafe_function(env, nullptr, nullptr, label, 0, 1, nullptr, nullptr, context, settle, &state_->settle),
     "cannot make a thread's way back");
  ok(env, napi_unref_threadsafe_function(env, state_->settle), "cannot let go of a thread");
  std::thread(loop, state_).detach();
}

napi_value Lane::submit(napi_env env, Task task) {
  auto item = std::make_unique<Item>();
  item->task = std::move(task);
  napi_value promise;
  ok(env, napi_create_promise(env, &item->deferred, &promise), "cannot make a promise");
  if (state_->pending++ == 0) ok(env, napi_ref_threadsafe_function(env, state_->settle), "cannot hold a thread");
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->items.push_back(item.release());
  }
  state_->wake.notify_one();
  return promise;
}

void Lane::post(Task task, std::function<void(const std::string&)> done) {
  auto item = std::make_unique<Item>();
  item->task = std::move(task);
  item->done = std::move(done);
  {
    std::lock_guard<std::mutex> lock(state_->mutex);
    state_->items.push_back(item.release());
  }
  state_->wake.notify_one();
}

void Lane::loop(std::shared_ptr<State> state) {
  at::GradMode::set_enabled(false);
  // Sums on this thread must not start a second team of OpenMP threads beside the one that computes.
  at::internal::lazy_init_num_threads();
#ifdef _OPENMP
  omp_set_num_threads(1);
#endif
  for (;;) {
    Item* item;
    {
      std::unique_lock<std::mutex> lock(state->mutex);
      state->wake.wait(lock, [&] { return !state->items.empty(); });
      item = state->items.front();
      state->items.pop_front();
    }
    try {
      item->answer = item->task();
    } catch (const c10::Error& error) {
      item->error = plainMessage(error);
    } catch (const std::exception& error) {
      item->error = error.what();
    } catch (...) {
      item->error = "unknown native error";
    }
    item->task = nullptr;  // frees its tensors
    if (item->deferred == nullptr) {
      if (item->done) item->done(item->error);
      delete item;
      continue;
    }
    if (napi_call_threadsafe_function(state->settle, item, napi_tsfn_nonblocking) != napi_ok) delete item;
  }
}

void Lane::settle(napi_env env, napi_value, void* context, void* data) {
  std::unique_ptr<Item> item(static_cast<Item*>(data));
  if (env == nullptr) return;  // the environment is going away
  State& state = **static_cast<std::shared_ptr<State>*>(context);
  if (--state.pending == 0) napi_unref_threadsafe_function(env, state.settle);
  if (!item->error.empty()) {
    napi_value message, error;
    napi_create_string_utf8(env, item->error.c_str(), item->error.size(), &message);
    napi_create_error(env, nullptr, message, &error);
    napi_reject_deferred(env, item->deferred, error);
    return;
  }
  napi_value value;
  switch (item->answer.kind) {
    case Answer::Kind::number: napi_create_double(env, item->answer.number, &value); break;
    case Answer::Kind::text: napi_create_string_utf8(env, item->answer.text.c_str(), item->answer.text.size(), &value); break;
    default: napi_get_undefined(env, &value);
  }
  napi_resolve_deferred(env, item->deferred, value);
}

}  // namespace attune
