// The one door between JavaScript and C++: every exported function runs inside `door<fn>`, which turns any C++
// exception into one JavaScript error. Nothing throws across the Node-API boundary.
#pragma once
#include <node_api.h>

#include <c10/util/Exception.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace attune {

/** A wrong argument from JavaScript. Its message is shown as it is. */
struct ArgumentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/** A JavaScript exception is already pending (a caller's getter threw): return without throwing another. */
struct PendingException {};

inline void ok(napi_env env, napi_status status, const char* what) {
  if (status == napi_ok) return;
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (pending) throw PendingException();
  throw ArgumentError(what);
}

constexpr size_t kMaxArgs = 48;  // the longest ATen schema has 30-odd arguments

struct Args {
  napi_env env;
  size_t count = kMaxArgs;
  napi_value values[kMaxArgs];

  Args(napi_env e, napi_callback_info info) : env(e) {
    ok(env, napi_get_cb_info(env, info, &count, values, nullptr, nullptr), "cannot read arguments");
    if (count > kMaxArgs) throw ArgumentError("too many arguments");
  }
  napi_value operator[](size_t i) const {
    if (i >= count) throw ArgumentError("missing argument " + std::to_string(i));
    return values[i];
  }
};

using Body = napi_value (*)(napi_env, Args&);

/** libtorch's messages without the C++ frames that follow them. */
std::string plainMessage(const c10::Error& error);

/** Set when a mapped file has been truncated since it was opened (mapping.cc). */
extern std::atomic<bool> fileTorn;
[[noreturn]] void throwTorn();

template <typename Work>
napi_value guarded(napi_env env, Work work) {
  try {
    napi_value result = work();
    if (fileTorn.load(std::memory_order_relaxed)) throwTorn();
    return result;
  } catch (const PendingException&) {
  } catch (const c10::Error& error) {
    napi_throw_error(env, "ATTUNE_NATIVE", plainMessage(error).c_str());
  } catch (const std::bad_alloc&) {
    napi_throw_error(env, "ATTUNE_NATIVE", "out of memory");
  } catch (const std::exception& error) {
    napi_throw_error(env, "ATTUNE_NATIVE", error.what());
  } catch (...) {
    napi_throw_error(env, "ATTUNE_NATIVE", "unknown native error");
  }
  return nullptr;
}

template <Body body>
napi_value door(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    Args args(env, info);
    return body(env, args);
  });
}

/** For a function that takes no arguments from Node-API. */
template <napi_value (*body)(napi_env)>
napi_value doorWithout(napi_env env, napi_callback_info) {
  return guarded(env, [&] { return body(env); });
}

struct Export {
  const char* name;
  napi_callback callback;
};

/** The functions that each source file exports. */
std::vector<Export> dispatchExports();
std::vector<Export> memoryExports();
std::vector<Export> mappingExports();
std::vector<Export> autogradExports();
std::vector<Export> runtimeExports();
std::vector<Export> cudaExports();

}  // namespace attune
