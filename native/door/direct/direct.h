// Operators called through their C++ signature, without a stack of boxed values. direct.cc lists the supported signatures. An operator with
// another schema, or with an argument that does not plainly match the schema, is called boxed (dispatch.cc), which also words the errors.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <node_api.h>

#include <memory>
#include <vector>

#include "door/argument.h"
#include "door/direct/frame.h"

namespace attune {

class DirectCall {
 public:
  virtual ~DirectCall() = default;
  /**
   * Calls the operator with the frame's arguments and writes the outcome into the frame's first double. If that is `declined`, the operator
   * was not called; if it is `returned`, the result is this function's return value.
   */
  virtual napi_value run(napi_env env, double* frame, const std::vector<Argument>& arguments) const = 0;
};

/** The operator's direct call, or null if it must be called boxed. */
std::unique_ptr<const DirectCall> directCall(const c10::OperatorHandle& handle, const std::vector<Argument>& arguments);

}  // namespace attune
