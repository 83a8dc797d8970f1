// repeat_interleave with a tensor of counts: libtorch allocates their sum and then writes the repeats one after the other, so a negative
// count after a positive one makes it write out of bounds.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace attune {

/** Whether an operator takes such counts. */
bool takesRepeats(const c10::FunctionSchema& schema);

/** Throws if a count is negative. `stack` holds the arguments in the schema's order. */
void checkRepeats(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

}  // namespace attune
