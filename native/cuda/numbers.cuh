// Shared by our CUDA sources: three kinds of numbers, vector loads, and launches that overlap with the previous kernel.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <atomic>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "cuda/instructions.cuh"
#include "cuda/raw.h"

namespace attune {

template <typename T>
__device__ inline float wide(T x) {
  return static_cast<float>(x);
}
template <>
__device__ inline float wide(__half x) {
  return __half2float(x);
}
template <>
__device__ inline float wide(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

template <typename T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow(float x) {
  return x;
}
template <>
__device__ inline __half narrow(float x) {
  return __float2half(x);
}
template <>
__device__ inline __nv_bfloat16 narrow(float x) {
  return __float2bfloat16(x);
}

/** `N` neighbouring numbers, loaded in the widest pieces that their size allows. */
template <typename T, int N>
struct Run {
  static constexpr int kBytes = N * sizeof(T);
  using Piece = std::conditional_t<kBytes % 16 == 0, uint4,
                                   std::conditional_t<kBytes % 8 == 0, uint2, std::conditional_t<kBytes % 4 == 0, unsigned, T>>>;
  static constexpr int kPieces = kBytes / sizeof(Piece);
  Piece pieces[kPieces];

  __device__ void load(const T* from) {
#pragma unroll
    for (int i = 0; i < kPieces; i++) pieces[i] = reinterpret_cast<const Piece*>(from)[i];
  }
  __device__ void store(T* to) const {
#pragma unroll
    for (int i = 0; i < kPieces; i++) reinterpret_cast<Piece*>(to)[i] = pieces[i];
  }
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kPieces; i++) pieces[i] = Piece{};
  }
  __device__ void set(int i, float x) { reinterpret_cast<T*>(pieces)[i] = narrow<T>(x); }
  __device__ float operator[](int i) const { return wide(reinterpret_cast<const T*>(pieces)[i]); }
  /** The numbers as 32-bit registers. */
  __device__ const unsigned* words() const { return reinterpret_cast<const unsigned*>(pieces); }
};

#define ATTUNE_BY_KIND(kind, ...) \
  switch (kind) {                 \
    case Kind::Float32: {         \
      using T = float;            \
      __VA_ARGS__;                \
    } break;                      \
    case Kind::Float16: {         \
      using T = __half;           \
      __VA_ARGS__;                \
    } break;                      \
    case Kind::BFloat16: {        \
      using T = __nv_bfloat16;    \
      __VA_ARGS__;                \
    } break;                      \
  }

/** An attribute of the current device. A launch asks for a dozen of them, so each is asked of the driver once. */
inline int attributeOfDevice(cudaDeviceAttr which) {
  constexpr int kDevices = 64, kAttributes = 256;
  static std::atomic<int64_t> known[kDevices][kAttributes];  // 0: not asked yet; else the value beside a mark
  constexpr int64_t kMark = int64_t{1} << 32;
  int device = 0, value = 0;
  cudaGetDevice(&device);
  const bool isHeld = device < kDevices && which < kAttributes;
  const int64_t held = isHeld ? known[device][which].load(std::memory_order_relaxed) : 0;
  if (held != 0) return static_cast<int>(held - kMark);
  if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess && isHeld) known[device][which].store(value + kMark, std::memory_order_relaxed);
  return value;
}
/** The major number of the current device's compute capability. */
inline int majorOfDevice() { return attributeOfDevice(cudaDevAttrComputeCapabilityMajor); }
inline int multiprocessorsOfDevice() { return attributeOfDevice(cudaDevAttrMultiProcessorCount); }

// How much of a multiprocessor's L1 cache a kernel wants as shared memory, in percent. A multiprocessor is empty when that split changes,
// so kernels that are to overlap want the same: those of a step for few rows, whose products leave x to the cache, 132 of 228 KB.
constexpr int kMostShared = cudaSharedmemCarveoutMaxShared, kAnyShared = cudaSharedmemCarveoutDefault, kSharedOfStep = 58;

/**
 * Sets an attribute of a kernel on the current device if it is not as large yet: the call takes about as long as a launch. Memory that a kernel may
 * take does not become less, so that a launch on another thread does not lose what it has asked for.
 */
inline void raiseAttribute(const void* kernel, cudaFuncAttribute which, int value) {
  static auto& mutex = *new std::mutex;  // never freed: kernels may be launched until the process ends
  static auto& known = *new std::map<std::tuple<const void*, int, int>, int>;
  int device = 0;
  cudaGetDevice(&device);
  const std::lock_guard lock(mutex);
  const std::tuple key{kernel, device, static_cast<int>(which)};
  const auto found = known.find(key);
  if (found != known.end() && found->second >= value) return;
  if (cudaFuncSetAttribute(kernel, which, value) == cudaSuccess) known[key] = value;
}

/** `memory`: bytes of dynamic shared memory. */
template <int SHARED = kMostShared, typename... Parameters, typename... Arguments>
void launchWithMemory(void (*kernel)(Parameters...), dim3 grid, dim3 threads, unsigned cluster, size_t memory, cudaStream_t stream,
                      const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  const auto* const function = reinterpret_cast<const void*>(kernel);
  if (memory > 0) raiseAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(memory));
  if (SHARED != kAnyShared) raiseAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, SHARED);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = threads;
  config.dynamicSmemBytes = memory;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = majorOfDevice() < 9 ? 0 : cluster > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

template <int SHARED = kAnyShared, typename... Parameters, typename... Arguments>
void launchInRow(void (*kernel)(Parameters...), dim3 grid, dim3 threads, unsigned cluster, cudaStream_t stream,
                 const Arguments&... arguments) {
  launchWithMemory<SHARED>(kernel, grid, threads, cluster, 0, stream, arguments...);
}

}  // namespace attune
