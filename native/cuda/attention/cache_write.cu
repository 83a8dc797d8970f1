// New tokens' keys or values, written to a cache in 8 bits (eight_bit_head.cuh): of every dtype and head size, a warp for each head.
#include "cuda/attention/eight_bit_head.cuh"

namespace attune {
namespace {

constexpr int kWarps = 4;

template <typename T>
__global__ void __launch_bounds__(32 * kWarps) cacheWriteKernel(CacheWriteArgs a) {
  const int lane = threadIdx.x % 32, group = static_cast<int>(blockIdx.y) * kWarps + threadIdx.x / 32;
  const int groups = static_cast<int>(a.groups), size = static_cast<int>(a.size);
  waitForPrevious();
  letNextBegin();
  if (group >= groups) return;
  const T* from = static_cast<const T*>(a.rows) + blockIdx.x * a.rowStride + group * size;
  float most[1] = {0};  // inf and NaN remain
  for (int d = lane; d < size; d += 32) {
    const float x = fabsf(wide(from[d]));
    if (!(x <= most[0])) most[0] = isnan(most[0]) ? most[0] : x;
  }
  const float scale = scaleOf(most, kMostCode);
  const int64_t place = a.places[blockIdx.x];
  for (int d = lane; d < size; d += 32) a.codes[(place * groups + group) * size + d] = codeOf(wide(from[d]), scale);
  if (lane == 0) a.scales[scalePlace(place, groups, group)] = scale;
}

}  // namespace

void launchCacheWrite(Kind kind, const CacheWriteArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  const dim3 grid(static_cast<unsigned>(args.count), static_cast<unsigned>((args.groups + kWarps - 1) / kWarps));
  ATTUNE_BY_KIND(kind, (launchInRow(cacheWriteKernel<T>, grid, 32 * kWarps, 1, stream, args)))
}

}  // namespace attune
