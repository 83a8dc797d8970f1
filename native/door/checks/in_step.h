// Checks for operators that go through several lists of tensors in step (_foreach_…, _fused_…).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace attune {

/** Whether an operator, given by its full name, is one of those. */
bool walksInStep(const std::string& name);

/** Throws if the lists do not match. `stack` holds the arguments in the schema's order. */
void checkInStep(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

}  // namespace attune
