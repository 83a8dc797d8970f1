// Dequantises weights to f32, f16 or bf16: the CUDA counterpart of dequantiseRows (native/cpu/quantised/rows.cc).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kRun = 256;

__device__ inline void put(float* to, float x) { *to = x; }
__device__ inline void put(__half* to, float x) { *to = __float2half(x); }
__device__ inline void put(__nv_bfloat16* to, float x) { *to = __float2bfloat16(x); }

template <typename T>
__global__ void int8Kernel(DequantiseArgs a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.outputs * a.inputs) return;
  put(static_cast<T*>(a.out) + i, static_cast<float>(static_cast<const signed char*>(a.codes)[i]) *
                                      (static_cast<const float*>(a.scales)[i / a.inputs] * (1.0f / 127.0f)));
}

// One thread per byte. Its two weights are in one block, because blocks run through the flattened matrix and begin at even places.
template <typename T>
__global__ void fourBitKernel(DequantiseArgs a) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = a.levels[threadIdx.x];
  __syncthreads();
  const int64_t count = a.outputs * a.inputs, i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, first = 2 * i;
  if (first >= count) return;
  const int64_t block = first / a.block;
  const unsigned char code = static_cast<const unsigned char*>(a.codes)[i];
  const float scale = a.nested == nullptr
                          ? static_cast<const float*>(a.scales)[block]
                          : fmaf(a.map[static_cast<const unsigned char*>(a.scales)[block]], a.nested[block / kRun], *a.offset);
  T* out = static_cast<T*>(a.out) + first;
  put(out, levels[code >> 4] * scale);
  if (first + 1 < count) put(out + 1, levels[code & 15] * scale);
}

// A thread dequantises eight neighbours, which share a row or a block. In bf16 it writes them as 16 bytes at once.
constexpr int kEight = 8;

template <typename T, bool FOUR>
__global__ void eightsKernel(DequantiseArgs a, unsigned count, unsigned perScale) {
  __shared__ float levels[16];
  if (FOUR && threadIdx.x < 16) levels[threadIdx.x] = a.levels[threadIdx.x];
  if (FOUR) __syncthreads();
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const unsigned own = i / perScale;
  alignas(16) T out[kEight];
  if constexpr (FOUR) {
    const unsigned codes = static_cast<const unsigned*>(a.codes)[i];
    const float scale = a.nested == nullptr
                            ? static_cast<const float*>(a.scales)[own]
                            : fmaf(a.map[static_cast<const unsigned char*>(a.scales)[own]], a.nested[own / kRun], *a.offset);
#pragma unroll
    for (int j = 0; j < kEight; j++) put(out + j, levels[(codes >> (j / 2 * 8 + (j % 2 == 0 ? 4 : 0))) & 15u] * scale);
  } else {
    const uint2 codes = static_cast<const uint2*>(a.codes)[i];
    const float scale = static_cast<const float*>(a.scales)[own] * (1.0f / 127.0f);
#pragma unroll
    for (int j = 0; j < kEight; j++)
      put(out + j, static_cast<float>(static_cast<signed char>((j < 4 ? codes.x : codes.y) >> (j % 4 * 8))) * scale);
  }
  uint4* to = reinterpret_cast<uint4*>(static_cast<T*>(a.out) + static_cast<int64_t>(i) * kEight);
#pragma unroll
  for (int j = 0; j < static_cast<int>(sizeof(out) / sizeof(uint4)); j++) to[j] = reinterpret_cast<const uint4*>(out)[j];
}

template <typename T>
void launch(bool four, const DequantiseArgs& args, cudaStream_t stream) {
  const int64_t weights = args.outputs * args.inputs, count = four ? (weights + 1) / 2 : weights;
  if (count == 0) return;
  const auto aligned = [](const void* pointer, uintptr_t to) { return reinterpret_cast<uintptr_t>(pointer) % to == 0; };
  const int64_t perScale = (four ? args.block : args.inputs) / kEight;
  if ((four ? args.block : args.inputs) % kEight == 0 && weights % kEight == 0 && weights / kEight <= UINT32_MAX - kThreads &&
      aligned(args.codes, 8) && aligned(args.out, 16)) {
    const unsigned eights = static_cast<unsigned>(weights / kEight), grid = (eights + kThreads - 1) / kThreads;
    if (four)
      eightsKernel<T, true><<<grid, kThreads, 0, stream>>>(args, eights, static_cast<unsigned>(perScale));
    else
      eightsKernel<T, false><<<grid, kThreads, 0, stream>>>(args, eights, static_cast<unsigned>(perScale));
    return;
  }
  const unsigned grid = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  if (four)
    fourBitKernel<T><<<grid, kThreads, 0, stream>>>(args);
  else
    int8Kernel<T><<<grid, kThreads, 0, stream>>>(args);
}

}  // namespace

void launchDequantise(Kind kind, bool four, const DequantiseArgs& args, cudaStream_t stream) {
  switch (kind) {
    case Kind::Float32: return launch<float>(four, args, stream);
    case Kind::Float16: return launch<__half>(four, args, stream);
    case Kind::BFloat16: return launch<__nv_bfloat16>(four, args, stream);
  }
}

}  // namespace attune
