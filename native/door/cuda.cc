// CUDA, if libtorch has it: synchronisation, memory figures, streams, graphs. Without it `cudaCount` is 0, and the other functions throw an
// error that says so.
#include "door/calls.h"
#include "door/handles.h"

#ifdef ATTUNE_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>
#endif

namespace attune {
namespace {

#ifdef ATTUNE_CUDA

c10::DeviceIndex deviceIndex(napi_env env, napi_value value) {
  const int64_t index = toInt(env, value);
  if (index < 0 || index >= c10::cuda::device_count()) throw ArgumentError("there is no cuda:" + std::to_string(index));
  return static_cast<c10::DeviceIndex>(index);
}

napi_value cudaCount(napi_env env, Args&) { return fromInt(env, c10::cuda::device_count()); }

napi_value cudaDevice(napi_env env, Args& args) {
  const auto index = deviceIndex(env, args[0]);
  const auto* properties = at::cuda::getDeviceProperties(index);
  c10::cuda::CUDAGuard guard(index);
  size_t free = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return object(env, {{"name", fromString(env, properties->name)},
                      {"totalBytes", fromInt(env, static_cast<int64_t>(total))},
                      {"freeBytes", fromInt(env, static_cast<int64_t>(free))},
                      {"capability", fromString(env, std::to_string(properties->major) + "." + std::to_string(properties->minor))},
                      {"multiprocessors", fromInt(env, properties->multiProcessorCount)}});
}

/**
 * Whether a graph is being captured; only one can be in the whole process. The driver then refuses to wait, to free memory and to destroy
 * graphs, and its refusal invalidates the capture: so we refuse first.
 */
bool capturing = false;

void refuseDuringCapture(const char* what) {
  if (capturing) throw ArgumentError(std::string(what) + " while a graph is being captured: end the capture first");
}

napi_value cudaSynchronize(napi_env env, Args& args) {
  c10::cuda::CUDAGuard guard(deviceIndex(env, args[0]));
  refuseDuringCapture("a device cannot be waited for");
  const NativeCall working;
  c10::cuda::device_synchronize();
  return undefined(env);
}

napi_value cudaMemory(napi_env env, Args& args) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(deviceIndex(env, args[0]));
  constexpr size_t aggregate = 0;  // StatType::AGGREGATE, whose namespace has moved between versions
  return object(env, {{"allocated", fromInt(env, stats.allocated_bytes[aggregate].current)},
                      {"peak", fromInt(env, stats.allocated_bytes[aggregate].peak)},
                      {"reserved", fromInt(env, stats.reserved_bytes[aggregate].current)},
                      {"peakReserved", fromInt(env, stats.reserved_bytes[aggregate].peak)}});
}

napi_value cudaResetPeak(napi_env env, Args& args) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(deviceIndex(env, args[0]));
  return undefined(env);
}

napi_value cudaEmptyCache(napi_env env, Args&) {
  refuseDuringCapture("cached memory cannot be given back");
  c10::cuda::CUDACachingAllocator::emptyCache();
  return undefined(env);
}

/** An event that is destroyed even if something throws. */
struct Event {
  cudaEvent_t event = nullptr;
  Event() { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)); }
  ~Event() { (void)cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

std::vector<c10::cuda::CUDAStream>& streams() {
  static auto* list = new std::vector<c10::cuda::CUDAStream>();
  return *list;
}

napi_value cudaStream(napi_env env, Args& args) {
  streams().push_back(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, deviceIndex(env, args[0])));
  return fromInt(env, static_cast<int64_t>(streams().size()) - 1);
}

/** The stream with this number; −1 is the device's default stream. */
c10::cuda::CUDAStream streamAt(napi_env env, napi_value number, c10::DeviceIndex device) {
  const int64_t id = toInt(env, number);
  if (id >= static_cast<int64_t>(streams().size()) || id < -1) throw ArgumentError("not a stream");
  const auto stream = id == -1 ? c10::cuda::getDefaultCUDAStream(device) : streams()[id];
  if (stream.device_index() != device) throw ArgumentError("a stream of another device");
  return stream;
}

// useStream(stream | −1, device): later work of the device goes there.
napi_value cudaUseStream(napi_env env, Args& args) {
  c10::cuda::setCurrentCUDAStream(streamAt(env, args[0], deviceIndex(env, args[1])));
  return undefined(env);
}

// streamWait(stream | −1, device): work queued on that stream from now on waits for what is queued on the device's current stream.
// The CPU does not wait.
napi_value cudaStreamWait(napi_env env, Args& args) {
  const auto device = deviceIndex(env, args[1]);
  const auto stream = streamAt(env, args[0], device);
  c10::cuda::CUDAGuard guard(device);
  const Event event;
  C10_CUDA_CHECK(cudaEventRecord(event.event, c10::cuda::getCurrentCUDAStream(device).stream()));
  C10_CUDA_CHECK(cudaStreamWaitEvent(stream.stream(), event.event, 0));
  return undefined(env);
}

/** made → (graphBegin) capturing → (graphEnd) ready. A graph that libtorch could not begin or end is failed for good. */
enum class Stage { made, capturing, ready, failed };

/** A graph with its device, which must be the current one during capture, and the stream that was captured. */
struct DeviceGraph {
  c10::DeviceIndex device;
  Stage stage = Stage::made;
  std::optional<c10::cuda::CUDAStream> stream;
  at::cuda::CUDAGraph graph;
  explicit DeviceGraph(c10::DeviceIndex index) : device(index) {}
};

std::vector<std::unique_ptr<DeviceGraph>>& graphs() {
  static auto* list = new std::vector<std::unique_ptr<DeviceGraph>>();
  return *list;
}

DeviceGraph& graphAt(napi_env env, napi_value value) {
  const int64_t id = toInt(env, value);
  if (id < 0 || id >= static_cast<int64_t>(graphs().size()) || !graphs()[id]) throw ArgumentError("not a graph");
  return *graphs()[id];
}

napi_value graphMake(napi_env env, Args& args) {
  graphs().push_back(std::make_unique<DeviceGraph>(deviceIndex(env, args[0])));
  return fromInt(env, static_cast<int64_t>(graphs().size()) - 1);
}

/** Runs the beginning or the end of a capture. The graph becomes `failed` if that throws, else `next`. */
template <typename Work>
void step(DeviceGraph& graph, Stage next, Work work) {
  graph.stage = Stage::failed;
  capturing = false;
  work();
  graph.stage = next;
  capturing = next == Stage::capturing;
}

// graphBegin(graph, shareWith | −1): graphs that never run at the same time may share one memory pool. Everything that libtorch would
// refuse is refused here first. libtorch registers the graph with the random generator before it checks, so a refused begin would leave a
// generator that believes it is being captured, or a graph whose destructor throws and ends the process.
napi_value graphBegin(napi_env env, Args& args) {
  DeviceGraph& graph = graphAt(env, args[0]);
  DeviceGraph* share = toInt(env, args[1]) == -1 ? nullptr : &graphAt(env, args[1]);
  refuseDuringCapture("another capture cannot begin");
  if (graph.stage != Stage::made) throw ArgumentError("a graph is captured once: make another one");
  if (share != nullptr && share->stage != Stage::ready) throw ArgumentError("the graph to share memory with is not captured yet");
  if (share != nullptr && share->device != graph.device) throw ArgumentError("the graph to share memory with is of another device");
  const auto stream = c10::cuda::getCurrentCUDAStream(graph.device);
  if (stream == c10::cuda::getDefaultCUDAStream(graph.device))
    throw ArgumentError("the default stream cannot be captured: use another stream first");
  const c10::cuda::CUDAGuard guard(graph.device);
  step(graph, Stage::capturing, [&] {
    if (share != nullptr)
      graph.graph.capture_begin(share->graph.pool());
    else
      graph.graph.capture_begin();
  });
  graph.stream = stream;
  return undefined(env);
}

// Ends the capture, whatever stream is current now. If the queued work cannot be captured, the graph is of no use, but another one can be
// captured.
napi_value graphEnd(napi_env env, Args& args) {
  DeviceGraph& graph = graphAt(env, args[0]);
  if (graph.stage != Stage::capturing) throw ArgumentError("the graph is not being captured: its capture cannot end");
  const c10::cuda::CUDAStreamGuard guard(*graph.stream);
  step(graph, Stage::ready, [&] { graph.graph.capture_end(); });
  return undefined(env);
}

napi_value graphReplay(napi_env env, Args& args) {
  DeviceGraph& graph = graphAt(env, args[0]);
  if (graph.stage != Stage::ready) throw ArgumentError("the graph has not been captured: it cannot be replayed");
  refuseDuringCapture("a graph cannot be replayed");
  const c10::cuda::CUDAGuard guard(graph.device);
  graph.graph.replay();
  return undefined(env);
}

napi_value graphFree(napi_env env, Args& args) {
  DeviceGraph& graph = graphAt(env, args[0]);
  if (graph.stage == Stage::capturing || graph.stage == Stage::ready) refuseDuringCapture("a captured graph cannot be freed");
  auto& place = graphs()[toInt(env, args[0])];
  // The allocator and the generator may still refer to a failed graph, and its destructor may throw: it is never destroyed.
  if (graph.stage == Stage::failed) (void)place.release();
  place.reset();
  return undefined(env);
}

#else

napi_value cudaCount(napi_env env, Args&) { return fromInt(env, 0); }

[[noreturn]] napi_value absent() {
  throw ArgumentError("this build of the engine has no CUDA: its libtorch has none, or the CUDA headers were not found");
}
#define ATTUNE_ABSENT(name) \
  napi_value name(napi_env, Args&) { return absent(); }
ATTUNE_ABSENT(cudaDevice)
ATTUNE_ABSENT(cudaSynchronize)
ATTUNE_ABSENT(cudaMemory)
ATTUNE_ABSENT(cudaResetPeak)
ATTUNE_ABSENT(cudaEmptyCache)
ATTUNE_ABSENT(cudaStream)
ATTUNE_ABSENT(cudaUseStream)
ATTUNE_ABSENT(cudaStreamWait)
ATTUNE_ABSENT(graphMake)
ATTUNE_ABSENT(graphBegin)
ATTUNE_ABSENT(graphEnd)
ATTUNE_ABSENT(graphReplay)
ATTUNE_ABSENT(graphFree)
#undef ATTUNE_ABSENT

#endif

}  // namespace

std::vector<Export> cudaExports() {
  return {{"cudaCount", door<cudaCount>},     {"cudaDevice", door<cudaDevice>},       {"cudaSynchronize", door<cudaSynchronize>},
          {"cudaMemory", door<cudaMemory>},   {"cudaResetPeak", door<cudaResetPeak>}, {"cudaEmptyCache", door<cudaEmptyCache>},
          {"cudaStream", door<cudaStream>},   {"cudaUseStream", door<cudaUseStream>}, {"cudaStreamWait", door<cudaStreamWait>},
          {"graphMake", door<graphMake>},     {"graphBegin", door<graphBegin>},       {"graphEnd", door<graphEnd>},
          {"graphReplay", door<graphReplay>}, {"graphFree", door<graphFree>}};
}

}  // namespace attune
