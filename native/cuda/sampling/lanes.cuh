// Sums over the lanes of a warp.
#pragma once
#include <cuda_runtime_api.h>

namespace attune {

template <typename N>
__device__ inline N sumOfLanesUpTo(N x) {
  for (int offset = 1; offset < 32; offset *= 2) {
    const N other = __shfl_up_sync(0xFFFFFFFF, x, offset);
    if (static_cast<int>(threadIdx.x % 32) >= offset) x += other;
  }
  return x;
}
__device__ inline float sumOfLanes(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
  return x;
}
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/** Of whole numbers below 2⁵². */
__device__ inline unsigned long long sumOfLanes(unsigned long long x) {
  constexpr int kLow = 26;
  const unsigned low = __reduce_add_sync(0xFFFFFFFF, static_cast<unsigned>(x & ((1 << kLow) - 1)));
  return low + (static_cast<unsigned long long>(__reduce_add_sync(0xFFFFFFFF, static_cast<unsigned>(x >> kLow))) << kLow);
}
__device__ inline float largestOfLanes(float x) {
  const auto ordered = [](int bits) { return bits < 0 ? bits ^ INT32_MAX : bits; };  // as the numbers are
  return __int_as_float(ordered(__reduce_max_sync(0xFFFFFFFF, ordered(__float_as_int(x)))));
}
#endif

/** The lane at which the running sum `upTo` of the lanes' own numbers first exceeds the target, or else the last one with a share. */
template <typename N>
__device__ inline int laneAt(N own, N upTo, N target) {
  const unsigned any = __ballot_sync(0xFFFFFFFF, own > 0), beyond = __ballot_sync(0xFFFFFFFF, own > 0 && upTo > target);
  return beyond != 0 ? __ffs(static_cast<int>(beyond)) - 1 : max(0, 31 - __clz(static_cast<int>(any)));
}

/** That lane; the target becomes what is left of it. */
template <typename N>
__device__ inline int takeLane(N own, N& target) {
  const N upTo = sumOfLanesUpTo(own);
  const int lane = laneAt(own, upTo, target);
  target -= __shfl_sync(0xFFFFFFFF, upTo - own, lane);
  return lane;
}

}  // namespace attune
