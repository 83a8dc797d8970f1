// Gates and up of one row, multiplied as in staged_product.cu, when the previous kernel's sums must still be added to x. Every block adds
// them itself, and the first one writes the result.
#include "cuda/norm_products.cuh"
#include "cuda/solo/fixed_sums.cuh"
#include "cuda/solo/kernels.h"

namespace attune {
namespace {

constexpr int kInputs = 1024, kTiles = 6, kOwn = kTiles / 2, kWidth = 8 * kOwn;  // kWidth: outputs of a block
constexpr int kChunk = 32, kEach = kInputs / kChunk / kWarps;
constexpr int kStride = kInputs * 2 + 64;  // bytes of a row: lanes of neighbouring rows read different banks
constexpr int kBytes = 8 * kTiles * kStride + 2 * kInputs * 2;

__global__ void __launch_bounds__(kThreads + 32, 3) soloGatesKernel(SoloGates a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Number = __nv_bfloat16;
  constexpr int kUnderWay = 32 << 10, kAtOnce = kUnderWay / (8 * kInputs * 2), kPitch = 8 * kTiles + 8;
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t arrived[kTiles];
  __shared__ float squares[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int first = static_cast<int>(blockIdx.x) * kOwn, outputs = static_cast<int>(a.outputs), tiles = outputs / 8;
  char *const norms = memory + 8 * kTiles * kStride, *const xs = norms + kInputs * 2;

  // —— W, asked for by a warp of its own ——
  if (threadIdx.x == kThreads) {
    for (int j = 0; j < kTiles; j++) initBarrier(&arrived[j]);
    publishBarriers();
  }
  __syncthreads();
  if (warp == kWarps) {
    if (lane > 0) return;
#pragma unroll 1
    for (int j = 0; j < kTiles; j++) {
      if (j >= kAtOnce) waitForBytes(&arrived[j - kAtOnce]);
      expectBytes(&arrived[j], (8 + (j == 0)) * kInputs * 2);
      if (j == 0) copyBulk(norms, a.norm, kInputs * 2, &arrived[0]);
      const int row = ((j < kOwn ? 0 : tiles) + min(first + j % kOwn, tiles - 1)) * 8;  // tiles beyond the last are not written
      const Number* from = static_cast<const Number*>(a.weight) + static_cast<int64_t>(row) * kInputs;
#pragma unroll 1
      for (int i = 0; i < 8; i++) copyBulk(memory + (j * 8 + i) * kStride, from + i * kInputs, kInputs * 2, &arrived[j]);
    }
    letNextBegin();
    return;
  }
  letNextBegin();
  const char* const own = memory + line * kStride + warp * 64 + part * 16;
  const auto weightOf = [&](int i, int j) { return *reinterpret_cast<const uint4*>(own + j * 8 * kStride + i * kWarps * 64); };
  uint4 early[kTiles];  // of the first chunk, before x is there
#pragma unroll
  for (int j = 0; j < kTiles; j++) waitForBytes(&arrived[j]);
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kTiles; j++) early[j] = weightOf(0, j);
  waitForPrevious();

  // —— x: a lane adds up two numbers of two of the warp's chunks, so that a load of the warp takes whole sectors of memory ——
  const auto pieceOf = [&](int i) { return ((2 * i + lane / 16) * kWarps + warp) * kChunk + lane % 16 * 2; };
  uint4 added[2];
  unsigned before[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    added[i] = loadFresh(a.added + pieceOf(i));
    before[i] = __ldcg(reinterpret_cast<const unsigned*>(static_cast<const Number*>(a.x) + pieceOf(i)));
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const auto value = [](unsigned low, unsigned high) { return fixedValue(static_cast<long long>(static_cast<uint64_t>(high) << 32 | low)); };
    const float2 x = unpack<Number>(before[i]);
    const unsigned both = pack<Number>(x.x + value(added[i].x, added[i].y), x.y + value(added[i].z, added[i].w));
    *reinterpret_cast<unsigned*>(xs + pieceOf(i) * 2) = both;
    if (blockIdx.x == 0) *reinterpret_cast<unsigned*>(static_cast<Number*>(a.sum) + pieceOf(i)) = both;
  }
  __syncwarp();

  // —— two tiles of W are the rows of a product, x its columns ——
  float sums[kOwn][4] = {}, square = 0;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    const int at = ((i * kWarps + warp) * kChunk + part * 8) * 2;
    const uint4 x = line == 0 ? *reinterpret_cast<const uint4*>(xs + at) : uint4{};
    square += squaresOf<Number>(x);
    const uint4 normed = timesEach(x, *reinterpret_cast<const uint4*>(norms + at));
#pragma unroll
    for (int j = 0; j < kOwn; j++) {
      const uint4 low = i == 0 ? early[2 * j] : weightOf(i, 2 * j), high = i == 0 ? early[2 * j + 1] : weightOf(i, 2 * j + 1);
      multiply<Number>(sums[j], low.x, high.x, low.y, high.y, normed.x, normed.y);
      multiply<Number>(sums[j], low.z, high.z, low.w, high.w, normed.z, normed.w);
    }
  }
  square += __shfl_xor_sync(0xFFFFFFFF, square, 1);
  square += __shfl_xor_sync(0xFFFFFFFF, square, 2);
  if (lane == 0) squares[warp] = square;

  // —— the warps' sums, in the place of the weights ——
  float* const partial = reinterpret_cast<float*>(memory);
  syncThreads<1, kThreads>();
  if (part == 0)
#pragma unroll
    for (int j = 0; j < kTiles; j++) partial[warp * kPitch + j * 8 + line] = sums[j / 2][j % 2 * 2];
  syncThreads<1, kThreads>();
  const int column = threadIdx.x, target = first * 8 + column;
  if (column >= kWidth || target >= outputs) return;
  float gate = 0, up = 0, all = 0;
#pragma unroll
  for (int i = 0; i < kWarps; i++) gate += partial[i * kPitch + column], up += partial[i * kPitch + column + kWidth], all += squares[i];
  const float scale = rsqrtf(all / static_cast<float>(kInputs) + a.eps);
  gate = scaledSum<Number>(gate, scale, a.bias, target);
  up = scaledSum<Number>(up, scale, a.bias, outputs + target);
  static_cast<Number*>(a.active)[target] = narrow<Number>(gatedValue<Number>(gate, up));
#endif
}

int64_t blocksOf(int64_t outputs) { return (outputs / 8 + kOwn - 1) / kOwn; }

}  // namespace

// As in staged_product.cu, all blocks are there at once.
bool soloGatesFit(int64_t width, int64_t outputs) {
  return majorOfDevice() >= 9 && width == kInputs && outputs % 8 == 0 && blocksOf(outputs) <= multiprocessorsOfDevice();
}

void launchSoloGates(const SoloGates& a, cudaStream_t stream) {
  launchWithMemory(soloGatesKernel, dim3(static_cast<unsigned>(blocksOf(a.outputs))), kThreads + 32, 1, kBytes, stream, a);
}

}  // namespace attune
