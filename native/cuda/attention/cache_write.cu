// Writes new tokens' keys and values to a cache in one launch: in 8 bits (eight_bit_head.cuh) or unchanged.
#include <cassert>

#include "cuda/attention/eight_bit_head.cuh"

namespace attune {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kNumbers = 8;  // numbers of a thread

/** Where a token goes. A place outside of the cache ends the kernel by an error, as libtorch's own copies do. */
__device__ inline uint64_t placeOf(const CacheWriteArgs& a, int64_t token) {
  const int64_t place = a.places[token];
  assert(place >= 0 && place < a.positions && "a target lies outside the cache");
  return static_cast<uint64_t>(place);
}

/** LANES threads have a head of LANES · kNumbers numbers. */
template <typename T, int LANES>
__global__ void __launch_bounds__(kThreads) cacheCodesKernel(const __grid_constant__ CacheWriteArgs a) {
  const unsigned lane = threadIdx.x % LANES, groups = static_cast<unsigned>(a.groups);
  const unsigned item = blockIdx.x * (kThreads / LANES) + threadIdx.x / LANES, token = item / groups, group = item % groups;
  const CacheWriteArgs::Part& part = a.parts[blockIdx.y];
  waitForPrevious();
  letNextBegin();
  const bool works = token < a.count;  // all lanes of a warp meet in cacheScaleOf
  Run<T, kNumbers> x;
  x.clear();
  if (works) x.load(static_cast<const T*>(part.rows) + token * part.rowStride + (group * LANES + lane) * kNumbers);
  const uint64_t place = works ? placeOf(a, token) : 0;
  float values[kNumbers];
#pragma unroll
  for (int i = 0; i < kNumbers; i++) values[i] = x[i];
  const float scale = cacheScaleOf<kNumbers, LANES>(values);
  if (!works) return;
  Run<int8_t, kNumbers> codes;
#pragma unroll
  for (int i = 0; i < kNumbers; i++) reinterpret_cast<int8_t*>(codes.pieces)[i] = codeOf(values[i], scale);
  codes.store(static_cast<int8_t*>(part.cache) + ((place * groups + group) * LANES + lane) * kNumbers);
  if (lane == 0) part.scales[scalePlace(place, groups, group)] = narrow<__nv_bfloat16>(scale);
}

/** Of every head size: a warp has a head. */
template <typename T>
__global__ void __launch_bounds__(kThreads) cacheCodesOfAnySizeKernel(const __grid_constant__ CacheWriteArgs a) {
  const int lane = threadIdx.x % 32, size = static_cast<int>(a.size);
  const unsigned groups = static_cast<unsigned>(a.groups), item = blockIdx.x * kWarps + threadIdx.x / 32, group = item % groups;
  const int64_t token = item / groups;
  const CacheWriteArgs::Part& part = a.parts[blockIdx.y];
  waitForPrevious();
  letNextBegin();
  if (token >= a.count) return;
  const T* from = static_cast<const T*>(part.rows) + token * part.rowStride + group * size;
  float most[1] = {0};  // inf and NaN remain
  for (int d = lane; d < size; d += 32) {
    const float x = fabsf(wide(from[d]));
    if (!(x <= most[0])) most[0] = isnan(most[0]) ? most[0] : x;
  }
  const float scale = cacheScaleOf(most);
  const uint64_t place = placeOf(a, token);
  int8_t* const to = static_cast<int8_t*>(part.cache) + (place * groups + group) * size;
  for (int d = lane; d < size; d += 32) to[d] = codeOf(wide(from[d]), scale);
  if (lane == 0) part.scales[scalePlace(place, groups, group)] = narrow<__nv_bfloat16>(scale);
}

/** Pieces of 16 bytes. */
__global__ void __launch_bounds__(kThreads) cacheCopyKernel(const __grid_constant__ CacheWriteArgs a, unsigned pieces, unsigned bytes) {
  const unsigned at = blockIdx.x * kThreads + threadIdx.x, token = at / pieces, piece = at % pieces;
  const CacheWriteArgs::Part& part = a.parts[blockIdx.y];
  waitForPrevious();
  letNextBegin();
  if (token >= a.count) return;
  const char* const row = static_cast<const char*>(part.rows) + token * part.rowStride * bytes;
  static_cast<uint4*>(part.cache)[placeOf(a, token) * pieces + piece] = reinterpret_cast<const uint4*>(row)[piece];
}

unsigned blocksFor(int64_t items, int64_t each) { return static_cast<unsigned>((items + each - 1) / each); }

/** Whether all rows can be loaded, and those of the cache written, by 16 bytes. */
bool isAligned(const CacheWriteArgs& a, int64_t bytes) {
  const auto fits = [&](const CacheWriteArgs::Part& part) {
    const auto isAt16 = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; };
    return isAt16(part.rows) && isAt16(part.cache) && part.rowStride * bytes % 16 == 0;
  };
  return fits(a.parts[0]) && fits(a.parts[1]);
}

template <typename T>
void writeCodes(const CacheWriteArgs& a, cudaStream_t stream) {
  const int64_t heads = a.count * a.groups;
  const auto by = [&](auto kernel, int lanes) { launchInRow(kernel, dim3(blocksFor(heads, kThreads / lanes), 2), kThreads, 1, stream, a); };
  const bool aligned = isAligned(a, sizeof(T));
  if (aligned && a.size == 64)
    by(cacheCodesKernel<T, 8>, 8);
  else if (aligned && a.size == 128)
    by(cacheCodesKernel<T, 16>, 16);
  else if (aligned && a.size == 256)
    by(cacheCodesKernel<T, 32>, 32);
  else
    by(cacheCodesOfAnySizeKernel<T>, 32);
}

}  // namespace

void launchCacheWrite(Kind kind, const CacheWriteArgs& a, cudaStream_t stream) {
  if (a.count > 0) ATTUNE_BY_KIND(kind, (writeCodes<T>(a, stream)))
}

bool launchCacheCopy(const CacheWriteArgs& a, int64_t bytes, cudaStream_t stream) {
  const int64_t pieces = a.groups * a.size * bytes / 16;
  if (a.groups * a.size * bytes % 16 != 0 || a.count * pieces >= (int64_t{1} << 32) || !isAligned(a, bytes)) return false;
  if (a.count > 0)
    launchInRow(cacheCopyKernel, dim3(blocksFor(a.count * pieces, kThreads), 2), kThreads, 1, stream, a, static_cast<unsigned>(pieces),
                static_cast<unsigned>(bytes));
  return true;
}

}  // namespace attune
