// Checks for operators that go through several lists of tensors in step (_foreach_…, _fused_…).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace attune {

/** Whether an operator is one of those, by its full name. */
bool walksInStep(const std::string& name);

/** Throws where the lists do not match. `stack` holds the arguments in the schema's order. */
void checkInStep(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

}  // namespace attune
