// What our CUDA sources share: numbers of three kinds, loads of a thread's own run of them, and launches that may begin before
// the kernel in front of them has ended.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

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

/** `N` neighbours, loaded in the widest pieces that their size allows. */
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
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kPieces; i++) pieces[i] = Piece{};
  }
  __device__ float operator[](int i) const { return wide(reinterpret_cast<const T*>(pieces)[i]); }
  /** The same in registers of 32 bits. */
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

// —— kernels in a row: each is launched while the one before still runs, does what needs nothing of it, and then waits ————————
// Whoever is launched by `launchInRow` calls `waitForPrevious` before it reads what the one before wrote and before it writes, and
// only then `letNextBegin`: so what was written before the one before is there from the start.
__device__ inline void letNextBegin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void waitForPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/** Compute capability's major number of the device in use. */
inline int majorOfDevice() {
  int device = 0, major = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return major;
}

inline int multiprocessorsOfDevice() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

template <typename... Parameters, typename... Arguments>
void launchInRow(void (*kernel)(Parameters...), dim3 grid, unsigned threads, unsigned cluster, cudaStream_t stream,
                 const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = majorOfDevice() < 9 ? 0 : cluster > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace attune
