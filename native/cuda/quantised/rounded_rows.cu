// Products of many rows with x in 8 bits (Dettmers et al. 2022, LLM.int8): each row of x is scaled so that its max is 127, and rounded. The
// columns with the largest numbers stay in bf16, so that they do not make the others' steps coarser; rounded_product.cu multiplies both.
//
// x is read twice: for the maxima from its end, which was written last and may still be in the L2 cache, then for the codes from its
// beginning.
#include <cuda_bf16.h>

#include <cfloat>

#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kRowsOfMaxima = 128;
constexpr int kChoosers = 1024;
constexpr int kHeld = 4;  // vectors of 8 numbers that a thread holds of its row
constexpr int kGathered = 8;  // rows of the matrix that a block gathers from
constexpr unsigned kMagnitudes = 0x7FFF7FFF, kAll = 0xFFFFFFFF;
static_assert(kHeld * 8 * 1024 >= kMostRoundedInputs && 32 * kChoosers >= kMostRoundedInputs);

using bf16 = __nv_bfloat16;

// Of two numbers at once. Magnitudes of bf16 are ordered as their bits are, NaN above all.
__device__ uint4 magnitudes(const uint4& x) { return {x.x & kMagnitudes, x.y & kMagnitudes, x.z & kMagnitudes, x.w & kMagnitudes}; }
__device__ uint4 largest(const uint4& a, const uint4& b) {
  return {__vmaxu2(a.x, b.x), __vmaxu2(a.y, b.y), __vmaxu2(a.z, b.z), __vmaxu2(a.w, b.w)};
}

// The largest |x| of each column, as the bits of a bf16. A block has 256 columns of 128 rows, and each of its warps every eighth row.
__global__ void __launch_bounds__(kThreads) maximaKernel(RoundedRows a) {
  __shared__ uint4 ofWarps[kWarps][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * 32 + lane) * 8;
  const int64_t first = (gridDim.y - 1 - blockIdx.y) * static_cast<int64_t>(kRowsOfMaxima);
  uint4 maxima{};
  if (column < a.inputs) {
    const bf16* x = static_cast<const bf16*>(a.x) + column;
#pragma unroll 8
    for (int i = 0; i < kRowsOfMaxima; i += kWarps) {
      const int64_t row = min(first + i + warp, a.rows - 1);  // the last one again does not matter
      maxima = largest(maxima, magnitudes(*reinterpret_cast<const uint4*>(x + row * a.inputs)));
    }
  }
  ofWarps[warp][lane] = maxima;
  __syncthreads();
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (own >= a.inputs) return;
  unsigned most = 0;
  for (int i = 0; i < kWarps; i++)
    most = max(most, static_cast<unsigned>(reinterpret_cast<const unsigned short*>(ofWarps[i])[threadIdx.x]));
  atomicMax(a.maxima + own, most);
}

// The columns with the largest maxima, of equal ones the first, in an order that depends on nothing else. One block; a thread has EACH columns.
template <int EACH>
__global__ void __launch_bounds__(kChoosers) chooseKernel(RoundedRows a) {
  __shared__ int counts[2][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, inputs = static_cast<int>(a.inputs);
  const auto columnOf = [&](int i) { return (warp * EACH + i) * 32 + lane; };
  unsigned own[EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++) own[i] = columnOf(i) < inputs ? a.maxima[columnOf(i)] : 0;

  unsigned bound = 0;  // the largest number that more than kColumnsApart maxima reach
  for (int bit = 14; bit >= 0; bit--) {
    const unsigned tried = bound | 1u << bit;
    int count = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) count += own[i] >= tried;
    count = __reduce_add_sync(kAll, count);
    if (lane == 0) counts[bit % 2][warp] = count;
    __syncthreads();
    if (__reduce_add_sync(kAll, counts[bit % 2][lane]) > kColumnsApart) bound = tried;
  }

  const auto isAbove = [&](int i) { return own[i] > bound; };
  const auto isEqual = [&](int i) { return own[i] == bound && columnOf(i) < inputs; };
  int above = 0, equal = 0;
#pragma unroll
  for (int i = 0; i < EACH; i++) above += isAbove(i), equal += isEqual(i);
  above = __reduce_add_sync(kAll, above), equal = __reduce_add_sync(kAll, equal);
  __syncthreads();
  if (lane == 0) counts[0][warp] = above, counts[1][warp] = equal;
  __syncthreads();
  int next = __reduce_add_sync(kAll, lane < warp ? counts[0][lane] : 0);
  int nextEqual = __reduce_add_sync(kAll, counts[0][lane] + (lane < warp ? counts[1][lane] : 0));
  const unsigned before = (1u << lane) - 1;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const unsigned theAbove = __ballot_sync(kAll, isAbove(i)), theEqual = __ballot_sync(kAll, isEqual(i));
    int number = kColumnsApart;
    if (isAbove(i)) number = next + __popc(theAbove & before);
    if (isEqual(i)) number = nextEqual + __popc(theEqual & before);
    if (number < kColumnsApart) a.chosen[number] = columnOf(i);
    if (columnOf(i) < inputs) a.stays[columnOf(i)] = number < kColumnsApart ? 0 : 0xFFFF;
    next += __popc(theAbove), nextEqual += __popc(theEqual);
  }
}

unsigned __host__ __device__ blocksOf(int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); }

// The chosen columns of some rows of the matrix.
__device__ void gatherWeights(const RoundedRows& a, int64_t first) {
#pragma unroll 4
  for (int i = threadIdx.x; i < kGathered * kColumnsApart; i += blockDim.x) {
    const int64_t output = first + i / kColumnsApart;
    if (output < a.outputs)
      static_cast<bf16*>(a.weightsApart)[first * kColumnsApart + i] =
          __float2bfloat16(static_cast<float>(a.weights[output * a.inputs + a.chosen[i % kColumnsApart]]));
  }
}

// A block rounds a row: codes and scale of the columns that stay, and the others as they are. The first blocks have rows of the matrix instead.
__global__ void roundKernel(RoundedRows a) {
  __shared__ unsigned ofWarps[32];
  const int64_t row = static_cast<int64_t>(blockIdx.x) - blocksOf(a.outputs, kGathered);
  if (row < 0) return gatherWeights(a, static_cast<int64_t>(blockIdx.x) * kGathered);
  const bf16* x = static_cast<const bf16*>(a.x) + row * a.inputs;
  uint4 held[kHeld];
  uint4 maxima{};
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int64_t column = (static_cast<int64_t>(i) * blockDim.x + threadIdx.x) * 8;
    held[i] = column < a.inputs ? *reinterpret_cast<const uint4*>(x + column) : uint4{};
  }
  for (int i = threadIdx.x; i < kColumnsApart; i += blockDim.x) static_cast<bf16*>(a.apart)[row * kColumnsApart + i] = x[a.chosen[i]];
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int64_t column = (static_cast<int64_t>(i) * blockDim.x + threadIdx.x) * 8;
    const uint4 stays = column < a.inputs ? *reinterpret_cast<const uint4*>(a.stays + column) : uint4{};
    held[i] = {held[i].x & stays.x, held[i].y & stays.y, held[i].z & stays.z, held[i].w & stays.w};
    maxima = largest(maxima, magnitudes(held[i]));
  }
  unsigned most = __vmaxu2(__vmaxu2(maxima.x, maxima.y), __vmaxu2(maxima.z, maxima.w));
  most = __reduce_max_sync(kAll, max(most & 0xFFFF, most >> 16));
  if (threadIdx.x % 32 == 0) ofWarps[threadIdx.x / 32] = most;
  __syncthreads();
  most = __reduce_max_sync(kAll, threadIdx.x % 32 < blockDim.x / 32 ? ofWarps[threadIdx.x % 32] : 0);
  const float bound = __uint_as_float(most << 16), factor = fminf(127.0f / bound, FLT_MAX);
  if (threadIdx.x == 0) a.scales[row] = bound / 127.0f;  // NaN if a number is none
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int64_t column = (static_cast<int64_t>(i) * blockDim.x + threadIdx.x) * 8;
    if (column >= a.inputs) break;
    const unsigned pairs[4] = {held[i].x, held[i].y, held[i].z, held[i].w};
    alignas(8) signed char codes[8];
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const float number = __uint_as_float(j % 2 == 0 ? pairs[j / 2] << 16 : pairs[j / 2] & 0xFFFF0000);
      codes[j] = static_cast<signed char>(__float2int_rn(number * factor));
    }
    *reinterpret_cast<uint2*>(a.codes + row * a.inputs + column) = *reinterpret_cast<const uint2*>(codes);
  }
}

}  // namespace

void launchRoundRows(const RoundedRows& args, cudaStream_t stream) {
  maximaKernel<<<dim3(blocksOf(args.inputs, kThreads), blocksOf(args.rows, kRowsOfMaxima)), kThreads, 0, stream>>>(args);
  const auto choose = args.inputs <= 4 * kChoosers ? chooseKernel<4> : args.inputs <= 16 * kChoosers ? chooseKernel<16> : chooseKernel<32>;
  choose<<<1, kChoosers, 0, stream>>>(args);
  const unsigned blocks = blocksOf(args.outputs, kGathered) + static_cast<unsigned>(args.rows);
  roundKernel<<<blocks, blocksOf(args.inputs, 8 * kHeld * 32) * 32, 0, stream>>>(args);
}

}  // namespace attune
