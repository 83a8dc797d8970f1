// Threads, determinism, random numbers, and facts about this libtorch.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#ifdef ATTUNE_CUDA
#include <ATen/cuda/CUDAGeneratorImpl.h>
#endif
#include <torch/version.h>

#include <mutex>
#include <unordered_map>

#include "door/checks/readable.h"
#include "door/generators.h"

namespace attune {
namespace {

std::unordered_map<int64_t, at::Generator>& generators() {
  static auto* table = new std::unordered_map<int64_t, at::Generator>();
  return *table;
}
int64_t nextGenerator = 1;

napi_value setThreads(napi_env env, Args& args) {
  const int64_t count = toInt(env, args[0]);
  if (count < 1 || count > 1024) throw ArgumentError("threads: expected 1 to 1024");
  at::set_num_threads(static_cast<int>(count));
  return undefined(env);
}
napi_value threads(napi_env env, Args&) { return fromInt(env, at::get_num_threads()); }

napi_value setDeterministic(napi_env env, Args& args) {
  at::globalContext().setDeterministicAlgorithms(toBool(env, args[0]), /*warn_only=*/false);
  return undefined(env);
}

napi_value setMatmulPrecision(napi_env env, Args& args) {
  const std::string precision = toString(env, args[0]);
  if (precision != "highest" && precision != "high" && precision != "medium")
    throw ArgumentError("matmul precision: expected highest, high or medium");
  at::globalContext().setFloat32MatmulPrecision(precision);
  return undefined(env);
}

const at::Generator& defaultGenerator(napi_env env, napi_value device) {
  return at::globalContext().defaultGenerator(c10::Device(toString(env, device)));
}

napi_value seed(napi_env env, Args& args) {
  at::Generator generator = defaultGenerator(env, args[0]);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(static_cast<uint64_t>(toInt(env, args[1])));
  return undefined(env);
}

napi_value rngState(napi_env env, Args& args) {
  at::Generator generator = defaultGenerator(env, args[0]);
  std::lock_guard<std::mutex> lock(generator.mutex());
  return fromTensor(env, generator.get_state());
}

napi_value setRngState(napi_env env, Args& args) {
  at::Generator generator = defaultGenerator(env, args[0]);
  const at::Tensor& state = toReadable(env, args[1]);
  if (state.scalar_type() != at::kByte || !state.device().is_cpu() || !state.is_contiguous())
    throw ArgumentError("a generator's state is a contiguous uint8 tensor on the CPU");
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
  return undefined(env);
}

at::Generator newGenerator(const c10::Device& device, uint64_t seed) {
#ifdef ATTUNE_CUDA
  if (device.is_cuda()) {
    at::Generator generator = at::cuda::detail::createCUDAGenerator(device.index());
    generator.set_current_seed(seed);
    return generator;
  }
#endif
  if (!device.is_cpu()) throw ArgumentError("no generator for the device " + device.str());
  return at::detail::createCPUGenerator(seed);
}

// makeGenerator(device, seed): a generator for operators with a `generator` argument.
napi_value makeGenerator(napi_env env, Args& args) {
  const auto seed = static_cast<uint64_t>(toInt(env, args[1]));
  const int64_t id = nextGenerator++;
  generators().emplace(id, newGenerator(c10::Device(toString(env, args[0])), seed));
  return fromInt(env, id);
}

napi_value freeGenerator(napi_env env, Args& args) {
  generators().erase(toInt(env, args[0]));
  return undefined(env);
}

// libtorch writes its warnings (mostly deprecations) to stderr; attune drops them unless asked to show them.
struct Quiet : c10::WarningHandler {
#if TORCH_VERSION_MAJOR == 1
  void process(const c10::SourceLocation&, const std::string&, bool) override {}
#else
  void process(const c10::Warning&) override {}
#endif
};

napi_value setWarnings(napi_env env, Args& args) {
#if TORCH_VERSION_MAJOR == 1
  namespace handling = c10::Warning;
#else
  namespace handling = c10::WarningUtils;
#endif
  static auto* quiet = new Quiet();
  static auto* usual = handling::get_warning_handler();
  handling::set_warning_handler(toBool(env, args[0]) ? usual : quiet);
  return undefined(env);
}

napi_value info(napi_env env, Args&) {
#ifdef ATTUNE_CUDA
  const bool builtForCuda = true;
#else
  const bool builtForCuda = false;
#endif
#ifdef ATTUNE_KERNELS
  const bool kernels = true;
#else
  const bool kernels = false;
#endif
  return object(env, {{"libtorch", fromString(env, TORCH_VERSION)},
                      {"config", fromString(env, at::show_config())},
                      {"parallel", fromString(env, at::get_parallel_info())},
                      {"cuda", fromBool(env, builtForCuda && at::hasCUDA())},
                      {"kernels", fromBool(env, kernels)}});
}

}  // namespace

at::Generator generatorAt(int64_t id) {
  const auto found = generators().find(id);
  if (found == generators().end()) throw ArgumentError("not a generator");
  return found->second;
}

std::vector<Export> runtimeExports() {
  return {{"setThreads", door<setThreads>},
          {"threads", door<threads>},
          {"setDeterministic", door<setDeterministic>},
          {"setMatmulPrecision", door<setMatmulPrecision>},
          {"seed", door<seed>},
          {"rngState", door<rngState>},
          {"setRngState", door<setRngState>},
          {"makeGenerator", door<makeGenerator>},
          {"freeGenerator", door<freeGenerator>},
          {"setWarnings", door<setWarnings>},
          {"info", door<info>}};
}

}  // namespace attune
