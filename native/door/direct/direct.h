// Operators that are called through their C++ signature, without a stack of boxed values. The signatures in use are listed in
// direct.cc; an operator whose schema has another one, or an argument that is not plainly what the schema says, is called boxed
// (dispatch.cc), which also words the errors.
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
   * Calls the operator with the arguments of the frame and writes what came of it into the frame's first double. If that is
   * `declined`, the operator was not called; if it is `returned`, the result is the value that this returns.
   */
  virtual napi_value run(napi_env env, double* frame, const std::vector<Argument>& arguments) const = 0;
};

/** The operator's direct call, or null where it has to be called boxed. */
std::unique_ptr<const DirectCall> directCall(const c10::OperatorHandle& handle, const std::vector<Argument>& arguments);

}  // namespace attune
