// Products of many rows with x in 8 bits (Dettmers et al. 2022, LLM.int8): each row of x is scaled so that its max is 127 and rounded. The
// columns with the largest numbers stay in bf16 so that they do not coarsen the others' steps; rounded_product.cu multiplies both.
#include <cuda_bf16.h>

#include "cuda/quantised/quantised.h"

namespace attune {
namespace {

constexpr int kThreads = 256, kChoosers = 1024, kRowsOfMaxima = 128;
constexpr unsigned kMagnitude = 0x7FFF;

using bf16 = __nv_bfloat16;

// The largest |x| of each column, as the bits of a bf16: they are ordered as the numbers are.
__global__ void maximaKernel(RoundedRows a) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * 8;
  if (column >= a.inputs) return;
  unsigned largest[8] = {};
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kRowsOfMaxima, end = min(a.rows, first + kRowsOfMaxima);
  for (int64_t row = first; row < end; row++) {
    const uint4 run = *reinterpret_cast<const uint4*>(static_cast<const bf16*>(a.x) + row * a.inputs + column);
    const unsigned pairs[4] = {run.x, run.y, run.z, run.w};
#pragma unroll
    for (int i = 0; i < 8; i++) largest[i] = max(largest[i], (pairs[i / 2] >> (16 * (i % 2))) & kMagnitude);
  }
#pragma unroll
  for (int i = 0; i < 8; i++) atomicMax(a.maxima + column + i, largest[i]);
}

// The sum of the counts of all threads before this one; `all` is the sum of all.
__device__ int countBefore(int own, int* counts, int& all) {
  counts[threadIdx.x] = own;
  __syncthreads();
  for (int distance = 1; distance < kChoosers; distance *= 2) {
    const int left = threadIdx.x >= distance ? counts[threadIdx.x - distance] : 0;
    __syncthreads();
    counts[threadIdx.x] += left;
    __syncthreads();
  }
  all = counts[kChoosers - 1];
  const int before = counts[threadIdx.x] - own;
  __syncthreads();
  return before;
}

// The columns with the largest maxima, of equal ones the first, in an order that depends on nothing else. place: 1 + its number, or 0.
__global__ void __launch_bounds__(kChoosers) chooseKernel(RoundedRows a) {
  __shared__ int counts[kChoosers];
  const int each = static_cast<int>((a.inputs + kChoosers - 1) / kChoosers), first = threadIdx.x * each;
  const int end = min(static_cast<int>(a.inputs), first + each);
  unsigned low = 0, high = kMagnitude + 1;  // at most kColumnsApart columns reach `high`, and more reach `low`
  int all;
  while (high - low > 1) {
    const unsigned middle = (low + high) / 2;
    int count = 0;
    for (int c = first; c < end; c++) count += a.maxima[c] >= middle;
    countBefore(count, counts, all);
    (all > kColumnsApart ? low : high) = middle;
  }
  int above = 0, equal = 0;
  for (int c = first; c < end; c++) {
    above += a.maxima[c] >= high;
    equal += a.maxima[c] == low;
  }
  int allEqual;
  int next = countBefore(above, counts, all);
  int nextEqual = all + countBefore(equal, counts, allEqual);
  for (int c = first; c < end; c++) {
    int number = -1;
    if (a.maxima[c] >= high)
      number = next++;
    else if (a.maxima[c] == low && nextEqual < kColumnsApart)
      number = nextEqual++;
    a.place[c] = static_cast<unsigned char>(number + 1);
    if (number >= 0) a.chosen[number] = c;
  }
}

// A block rounds a row: codes and scale of the columns that stay, and the others as they are.
__global__ void __launch_bounds__(kThreads) roundKernel(RoundedRows a) {
  __shared__ float largestOfWarps[kThreads / 32];
  const int64_t row = blockIdx.x;
  const bf16* x = static_cast<const bf16*>(a.x) + row * a.inputs;
  bf16* apart = static_cast<bf16*>(a.apart) + row * kColumnsApart;
  float largest = 0;
  for (int64_t c = threadIdx.x * 8; c < a.inputs; c += kThreads * 8) {
    alignas(16) bf16 run[8];
    alignas(8) unsigned char place[8];
    *reinterpret_cast<uint4*>(run) = *reinterpret_cast<const uint4*>(x + c);
    *reinterpret_cast<uint2*>(place) = *reinterpret_cast<const uint2*>(a.place + c);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      if (place[i] != 0)
        apart[place[i] - 1] = run[i];
      else
        largest = fmaxf(largest, fabsf(__bfloat162float(run[i])));
    }
  }
  for (int offset = 16; offset > 0; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFF, largest, offset));
  if (threadIdx.x % 32 == 0) largestOfWarps[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int i = 0; i < kThreads / 32; i++) largest = fmaxf(largest, largestOfWarps[i]);
  const float factor = largest > 0 ? 127.0f / largest : 0.0f;
  if (threadIdx.x == 0) a.scales[row] = largest / 127.0f;
  for (int64_t c = threadIdx.x * 8; c < a.inputs; c += kThreads * 8) {
    alignas(16) bf16 run[8];
    alignas(8) unsigned char place[8];
    alignas(8) signed char codes[8];
    *reinterpret_cast<uint4*>(run) = *reinterpret_cast<const uint4*>(x + c);
    *reinterpret_cast<uint2*>(place) = *reinterpret_cast<const uint2*>(a.place + c);
#pragma unroll
    for (int i = 0; i < 8; i++) codes[i] = place[i] != 0 ? 0 : static_cast<signed char>(__float2int_rn(__bfloat162float(run[i]) * factor));
    *reinterpret_cast<uint2*>(a.codes + row * a.inputs + c) = *reinterpret_cast<const uint2*>(codes);
  }
}

__global__ void gatherKernel(const signed char* codes, const int* chosen, int64_t outputs, int64_t inputs, bf16* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < outputs * kColumnsApart)
    out[i] = __float2bfloat16(static_cast<float>(codes[i / kColumnsApart * inputs + chosen[i % kColumnsApart]]));
}

unsigned blocksOf(int64_t count, int64_t each) { return static_cast<unsigned>((count + each - 1) / each); }

}  // namespace

void launchRoundRows(const RoundedRows& args, cudaStream_t stream) {
  maximaKernel<<<dim3(blocksOf(args.inputs / 8, kThreads), blocksOf(args.rows, kRowsOfMaxima)), kThreads, 0, stream>>>(args);
  chooseKernel<<<1, kChoosers, 0, stream>>>(args);
  roundKernel<<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args);
}

void launchCodesApart(const void* codes, const int* chosen, int64_t outputs, int64_t inputs, void* out, cudaStream_t stream) {
  gatherKernel<<<blocksOf(outputs * kColumnsApart, kThreads), kThreads, 0, stream>>>(static_cast<const signed char*>(codes), chosen,
                                                                                     outputs, inputs, static_cast<bf16*>(out));
}

}  // namespace attune
