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
__device__ inline float largestOfLanes(float x) {
  for (int offset = 16; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFF, x, offset));
  return x;
}

/** The lane at which the running sum `upTo` of the lanes' own numbers first exceeds the target, or else the last one with a share. */
template <typename N>
__device__ inline int laneAt(N own, N upTo, N target) {
  const unsigned any = __ballot_sync(0xFFFFFFFF, own > 0), beyond = __ballot_sync(0xFFFFFFFF, own > 0 && upTo > target);
  return beyond != 0 ? __ffs(static_cast<int>(beyond)) - 1 : max(0, 31 - __clz(static_cast<int>(any)));
}

/** The same for numbers that come one after another: `at` becomes the place of the one that exceeds the target, or of the last. */
template <typename N>
struct Walk {
  N target, reached = 0, before = 0;  // before: the sum of those before `at`
  int at = 0;
  bool found = false;
  __device__ explicit Walk(N to) : target(to) {}
  __device__ void pass(int place, N share) {
    if (found || !(share > 0)) return;
    at = place;
    before = reached;
    reached += share;
    found = reached > target;
  }
};

}  // namespace attune
