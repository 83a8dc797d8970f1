#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include "door/calls.h"
#include "door/handles.h"

namespace attune {
namespace {

std::vector<at::Tensor> tensorsOf(napi_env env, napi_value value) {
  std::vector<at::Tensor> out;
  for (napi_value item : elements(env, value)) out.push_back(toTensor(env, item));
  return out;
}

// null where an output has no incoming gradient of its own (a scalar starts from 1).
std::vector<at::Tensor> gradientsOf(napi_env env, napi_value value) {
  std::vector<at::Tensor> out;
  for (napi_value item : elements(env, value)) out.push_back(isNullish(env, item) ? at::Tensor() : toTensor(env, item));
  return out;
}

void checkGradients(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& gradients) {
  if (gradients.size() != outputs.size()) throw ArgumentError("one incoming gradient per output, or none at all");
}

// backward(outputs, gradients | null, retainGraph)
napi_value backward(napi_env env, Args& args) {
  const auto outputs = tensorsOf(env, args[0]);
  std::vector<at::Tensor> gradients;
  if (!isNullish(env, args[1])) {
    gradients = gradientsOf(env, args[1]);
    checkGradients(outputs, gradients);
  }
  const bool retain = toBool(env, args[2]);
  const NativeCall working;
  torch::autograd::backward(outputs, gradients, retain, /*create_graph=*/false);
  return undefined(env);
}

// gradients(outputs, inputs, incoming | null, retainGraph, createGraph)
napi_value gradients(napi_env env, Args& args) {
  const auto outputs = tensorsOf(env, args[0]), inputs = tensorsOf(env, args[1]);
  std::vector<at::Tensor> incoming;
  if (!isNullish(env, args[2])) {
    incoming = gradientsOf(env, args[2]);
    checkGradients(outputs, incoming);
  }
  const auto found = torch::autograd::grad(outputs, inputs, incoming, toBool(env, args[3]), toBool(env, args[4]), /*allow_unused=*/true);
  std::vector<napi_value> out;
  for (const auto& gradient : found) out.push_back(fromTensor(env, gradient));
  return arrayOf(env, out);
}

napi_value gradOf(napi_env env, Args& args) {
  const at::Tensor& tensor = toTensor(env, args[0]);
  if (!tensor.is_leaf() && !tensor.retains_grad()) return null(env);
  return fromTensor(env, tensor.grad());
}

napi_value setGrad(napi_env env, Args& args) {
  const at::Tensor& tensor = toTensor(env, args[0]);
  if (isNullish(env, args[1])) {
    tensor.mutable_grad() = at::Tensor();
    return undefined(env);
  }
  const at::Tensor& gradient = toTensor(env, args[1]);
  if (gradient.sizes() != tensor.sizes() || gradient.device() != tensor.device() || gradient.scalar_type() != tensor.scalar_type())
    throw ArgumentError("a gradient has its tensor's shape, dtype and device");
  tensor.mutable_grad() = gradient;
  return undefined(env);
}

napi_value requiresGrad(napi_env env, Args& args) { return fromBool(env, toTensor(env, args[0]).requires_grad()); }

napi_value setRequiresGrad(napi_env env, Args& args) {
  const at::Tensor& tensor = toTensor(env, args[0]);
  const bool wanted = toBool(env, args[1]);
  if (!tensor.is_leaf() && !wanted) throw ArgumentError("the result of an operator cannot stop requiring grad; detach() it");
  tensor.set_requires_grad(wanted);
  return undefined(env);
}

napi_value isLeaf(napi_env env, Args& args) { return fromBool(env, toTensor(env, args[0]).is_leaf()); }

napi_value retainGrad(napi_env env, Args& args) {
  toTensor(env, args[0]).retain_grad();
  return undefined(env);
}

napi_value gradEnabled(napi_env env, Args&) { return fromBool(env, at::GradMode::is_enabled()); }

napi_value setGradEnabled(napi_env env, Args& args) {
  at::GradMode::set_enabled(toBool(env, args[0]));
  return undefined(env);
}

}  // namespace

std::vector<Export> autogradExports() {
  return {{"backward", door<backward>},
          {"gradients", door<gradients>},
          {"gradOf", door<gradOf>},
          {"setGrad", door<setGrad>},
          {"requiresGrad", door<requiresGrad>},
          {"setRequiresGrad", door<setRequiresGrad>},
          {"isLeaf", door<isLeaf>},
          {"retainGrad", door<retainGrad>},
          {"gradEnabled", door<gradEnabled>},
          {"setGradEnabled", door<setGradEnabled>}};
}

}  // namespace attune
