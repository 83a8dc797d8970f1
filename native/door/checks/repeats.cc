#include "door/checks/repeats.h"

#include <ATen/ATen.h>

#include "door/door.h"

namespace attune {
namespace {

constexpr const char* kCounts = "repeats";

}  // namespace

bool takesRepeats(const c10::FunctionSchema& schema) {
  const auto counts = schema.argumentIndexWithName(kCounts);
  return schema.name() == "aten::repeat_interleave" && counts.has_value() &&
         schema.arguments()[*counts].type()->kind() == c10::TypeKind::TensorType;
}

void checkRepeats(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const at::Tensor counts = stack[*schema.argumentIndexWithName(kCounts)].toTensor();
  const bool plain = counts.device().is_cpu() && counts.layout() == at::kStrided && !counts.is_quantized();
  // CUDA's kernel checks by itself.
  if (plain && counts.numel() > 0 && counts.lt(0).any().item<bool>()) throw ArgumentError("\"repeats\" holds a negative number");
}

}  // namespace attune
