// The module's list of functions. One JavaScript thread owns the engine: its table of tensors is not locked.
#include <c10/util/Logging.h>

#include <functional>

#include "cpu/large_blocks.h"
#include "dist/dist.h"
#include "door/direct/frame.h"
#include "door/door.h"

namespace {
napi_env owner = nullptr;
}

NAPI_MODULE_INIT() {
  if (owner != nullptr && owner != env) {
    napi_throw_error(env, "ATTUNE_NATIVE", "the attune engine is already loaded in another thread of this process");
    return nullptr;
  }
  owner = env;
  // libtorch gives every error a stack trace, which takes milliseconds (7 ms on libtorch 1.13) and which no message of ours shows.
  c10::SetStackTraceFetcher(std::function<std::string()>([] { return std::string(); }));
  attune::useLargeBlocks();
  napi_add_env_cleanup_hook(
      env,
      [](void*) {
        owner = nullptr;
        attune::forgetFrame();
      },
      nullptr);
  for (const auto& list : {attune::dispatchExports(), attune::memoryExports(), attune::mappingExports(), attune::autogradExports(),
                           attune::runtimeExports(), attune::cudaExports(), attune::distExports()}) {
    for (const auto& entry : list) {
      napi_value function;
      if (napi_create_function(env, entry.name, NAPI_AUTO_LENGTH, entry.callback, nullptr, &function) != napi_ok) return nullptr;
      if (napi_set_named_property(env, exports, entry.name, function) != napi_ok) return nullptr;
    }
  }
  return exports;
}
