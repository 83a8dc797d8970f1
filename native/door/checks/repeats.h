// repeat_interleave with a tensor of counts: libtorch makes room for their sum and then writes one after the other, so that a negative count
// behind a positive one makes it write beyond.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

namespace attune {

/** Whether an operator takes such counts. */
bool takesRepeats(const c10::FunctionSchema& schema);

/** Throws where a count is negative. `stack` holds the arguments in the schema's order. */
void checkRepeats(const c10::FunctionSchema& schema, const torch::jit::Stack& stack);

}  // namespace attune
