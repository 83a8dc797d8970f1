// Quantised weights into f32, f16 or bf16: the CUDA twin of dequantiseRows (native/cpu/quantised_rows.cc).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/quantised.h"

namespace attune {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlock = 64, kRun = 256;

__device__ inline void put(float* to, float x) { *to = x; }
__device__ inline void put(__half* to, float x) { *to = __float2half(x); }
__device__ inline void put(__nv_bfloat16* to, float x) { *to = __float2bfloat16(x); }

template <typename T>
__global__ void int8Kernel(DequantiseArgs a) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.outputs * a.inputs) return;
  put(static_cast<T*>(a.out) + i, static_cast<float>(static_cast<const signed char*>(a.codes)[i]) * static_cast<const float*>(a.scales)[i / a.inputs]);
}

// One thread a byte, which is two weights of one block: blocks begin at even places.
template <typename T>
__global__ void nf4Kernel(DequantiseArgs a) {
  __shared__ float levels[16];
  if (threadIdx.x < 16) levels[threadIdx.x] = a.levels[threadIdx.x];
  __syncthreads();
  const int64_t bytes = (a.inputs + 1) / 2, blocks = (a.inputs + kBlock - 1) / kBlock;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.outputs * bytes) return;
  const int64_t row = i / bytes, column = i % bytes * 2, block = row * blocks + column / kBlock;
  const unsigned char code = static_cast<const unsigned char*>(a.codes)[i];
  const float scale = fmaf(a.map[static_cast<const unsigned char*>(a.scales)[block]], a.nested[block / kRun], a.offset);
  T* out = static_cast<T*>(a.out) + row * a.inputs + column;
  put(out, levels[code >> 4] * scale);
  if (column + 1 < a.inputs) put(out + 1, levels[code & 15] * scale);
}

template <typename T>
void launch(bool four, const DequantiseArgs& args, cudaStream_t stream) {
  const int64_t count = args.outputs * (four ? (args.inputs + 1) / 2 : args.inputs);
  if (count == 0) return;
  const unsigned grid = static_cast<unsigned>((count + kThreads - 1) / kThreads);
  if (four)
    nf4Kernel<T><<<grid, kThreads, 0, stream>>>(args);
  else
    int8Kernel<T><<<grid, kThreads, 0, stream>>>(args);
}

}  // namespace

void launchDequantise(Kind kind, bool four, const DequantiseArgs& args, cudaStream_t stream) {
  switch (kind) {
    case Kind::Float32:
      return launch<float>(four, args, stream);
    case Kind::Float16:
      return launch<__half>(four, args, stream);
    case Kind::BFloat16:
      return launch<__nv_bfloat16>(four, args, stream);
  }
}

}  // namespace attune
