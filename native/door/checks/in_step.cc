// Checks that libtorch omits in its operators over lists of tensors. All of them index every list by the length of the first, and not all
// compare the lengths. The fused optimisers also index all tensors at one place of the lists by the size of the first one, whatever the
// others' shapes and strides, and read one float of each step count.
#include "door/checks/in_step.h"

#include <ATen/ATen.h>

#include "door/door.h"

namespace attune {
namespace {

constexpr const char* kForeach = "aten::_foreach_";
constexpr const char* kFused = "aten::_fused_";
constexpr const char* kSteps = "state_steps";
constexpr const char* kLargest = "max_exp_avg_sqs";  // there only with amsgrad

bool startsWith(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

/** Whether both tensors have the same shape and the same order of elements in memory. */
bool laidOutAlike(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || !a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return false;
  for (int64_t d = 0; d < a.dim(); d++)
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

std::string place(const std::string& name, size_t i) { return "\"" + name + "\"[" + std::to_string(i) + "]"; }

void checkOneFloat(const at::Tensor& tensor, const std::string& what) {
  if (tensor.numel() != 1 || tensor.scalar_type() != at::kFloat) throw ArgumentError(what + " has to be one float32 number");
}

void checkFused(const std::string& name, const c10::List<at::Tensor>& tensors, const std::string& firstName,
                const c10::List<at::Tensor>& first) {
  for (size_t i = 0; i < tensors.size(); i++) {
    const at::Tensor tensor = tensors.get(i);
    if (name == kSteps) {
      checkOneFloat(tensor, place(name, i));
    } else if (tensor.layout() != at::kStrided || !laidOutAlike(tensor, first.get(i))) {
      throw ArgumentError(place(name, i) + " does not lie in memory as " + place(firstName, i) + " does");
    }
  }
}

}  // namespace

bool walksInStep(const std::string& name) { return startsWith(name, kForeach) || startsWith(name, kFused); }

void checkInStep(const c10::FunctionSchema& schema, const torch::jit::Stack& stack) {
  const auto& arguments = schema.arguments();
  const auto amsgrad = schema.argumentIndexWithName("amsgrad");
  const bool keepsLargest = amsgrad.has_value() && stack[*amsgrad].toBool();
  const bool fused = startsWith(schema.name(), kFused);
  size_t first = arguments.size();
  for (size_t i = 0; i < arguments.size(); i++) {
    const std::string& name = arguments[i].name();
    if (stack[i].isTensorList()) {
      const auto tensors = stack[i].toTensorList();
      if (tensors.empty() && name == kLargest && !keepsLargest) continue;
      if (first == arguments.size()) first = i;
      const auto leading = stack[first].toTensorList();
      if (tensors.size() != leading.size())
        throw ArgumentError("\"" + arguments[first].name() + "\" has " + std::to_string(leading.size()) + " tensors, \"" + name + "\" " +
                            std::to_string(tensors.size()));
      if (fused) checkFused(name, tensors, arguments[first].name(), leading);
    } else if (first < arguments.size() && stack[i].isList()) {  // a number for each tensor
      const size_t numbers = stack[i].toListRef().size();
      const size_t tensors = stack[first].toTensorList().size();
      if (numbers != tensors)
        throw ArgumentError("\"" + arguments[first].name() + "\" has " + std::to_string(tensors) + " tensors, \"" + name + "\" " +
                            std::to_string(numbers) + " numbers");
    } else if (fused && first < arguments.size() && stack[i].isTensor() && stack[i].toTensor().defined()) {
      checkOneFloat(stack[i].toTensor(), "\"" + name + "\"");  // a learning rate or a loss scale
    }
  }
}

}  // namespace attune
