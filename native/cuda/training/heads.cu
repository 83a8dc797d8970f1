// The heads of a fused projection in training: RMS norm and rotation of q and k in one pass; backward in another, which also writes the
// gradients of q, k and v side by side for the projection's product. LANES threads share one head; each has four pairs.
#include "cuda/training/columns.cuh"
#include "cuda/training/kernels.h"

namespace attune {
namespace {

constexpr int kThreads = 128, kPairs = 4;
constexpr int kPerMultiprocessor = 4;  // blocks of backward

/** Four pairs (i, i + size/2) of a head, as a thread holds them. */
template <typename T>
struct Pairs {
  Run<T, kPairs> first, second;

  __device__ Pairs() {
    first.clear();
    second.clear();
  }
  __device__ void load(const T* head, int start, int half) {
    first.load(head + start);
    second.load(head + start + half);
  }
  __device__ void store(T* head, int start, int half) const {
    first.store(head + start);
    second.store(head + start + half);
  }
  __device__ float at(int i) const { return i < kPairs ? first[i] : second[i - kPairs]; }
  __device__ void set(int i, float x) {
    if (i < kPairs)
      first.set(i, x);
    else
      second.set(i - kPairs, x);
  }
};

template <int LANES>
__device__ float sumOverHead(float x) {
#pragma unroll
  for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
  return x;
}

/** The angles of this thread's pairs. */
struct Angles {
  float cosines[kPairs], sines[kPairs];

  __device__ Angles(const HeadsArgs& a, int64_t row, int start, bool isIn) {
    const bool turns = isIn && a.cosines != nullptr;
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      cosines[i] = turns ? a.cosines[row * (a.size / 2) + start + i] : 1.0f;
      sines[i] = turns ? a.sines[row * (a.size / 2) + start + i] : 0.0f;
    }
  }
};

template <typename T>
__device__ void loadWeights(const void* weight, int start, int half, bool isIn, float (&into)[2 * kPairs]) {
  Pairs<T> pairs;
  if (isIn && weight != nullptr) pairs.load(static_cast<const T*>(weight), start, half);
#pragma unroll
  for (int i = 0; i < 2 * kPairs; i++) into[i] = weight == nullptr ? 1.0f : pairs.at(i);
}

template <typename T, int LANES>
__global__ void __launch_bounds__(kThreads) headsKernel(HeadsArgs a) {
  constexpr int kAtOnce = kThreads / LANES;
  const int lane = threadIdx.x % LANES, half = static_cast<int>(a.size) / 2, start = lane * kPairs;
  const int heads = static_cast<int>(a.heads), all = heads + static_cast<int>(a.groups);
  const int64_t row = blockIdx.x, width = (a.heads + 2 * a.groups) * a.size;
  const bool isIn = start < half;
  const Angles angles(a, row, start, isIn);
  const float inverse = 1.0f / static_cast<float>(a.size);
  // As many turns for every thread of a warp: they meet in sumOverHead.
  for (int base = 0; base < all; base += kAtOnce) {
    const int head = base + static_cast<int>(threadIdx.x) / LANES;
    const bool isQ = head < heads, works = isIn && head < all;
    Pairs<T> x;
    if (works) x.load(static_cast<const T*>(a.qkv) + row * width + head * a.size, start, half);
    const void* weight = isQ ? a.qWeight : a.kWeight;
    float values[2 * kPairs], squares = 0;
#pragma unroll
    for (int i = 0; i < 2 * kPairs; i++) {
      values[i] = x.at(i);
      squares += values[i] * values[i];
    }
    squares = sumOverHead<LANES>(squares);
    if (weight != nullptr) {
      float weights[2 * kPairs];
      loadWeights<T>(weight, start, half, works, weights);
      const float scale = rsqrtf(squares * inverse + a.eps);
#pragma unroll
      for (int i = 0; i < 2 * kPairs; i++) values[i] = wide(narrow<T>(wide(narrow<T>(values[i] * scale)) * weights[i]));
    }
    if (!works) continue;
#pragma unroll
    for (int i = 0; i < kPairs; i++) {
      const float u = values[i], w = values[i + kPairs];
      x.set(i, u * angles.cosines[i] - w * angles.sines[i]);
      x.set(i + kPairs, w * angles.cosines[i] + u * angles.sines[i]);
    }
    T* to = isQ ? static_cast<T*>(a.q) + (row * heads + head) * a.size
                : static_cast<T*>(a.k) + (row * a.groups + head - heads) * a.size;
    x.store(to, start, half);
  }
}

// Backward of the rotation is the opposite one; of the norm, with n = x·s: dx = s·(g·w − n·mean(g·w·n)), dw = Σ g·n.
// A thread loads its part of kEach heads before it works on the first, so that enough loads are under way.
template <typename T, int LANES>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? kPerMultiprocessor : 1) headsBackwardKernel(HeadsBackwardArgs b) {
  constexpr int kAtOnce = kThreads / LANES, kEach = 4;
  __shared__ float sums[2][LANES * 2 * kPairs];
  const HeadsArgs& a = b.forward;
  const int lane = threadIdx.x % LANES, half = static_cast<int>(a.size) / 2, start = lane * kPairs;
  const int heads = static_cast<int>(a.heads), groups = static_cast<int>(a.groups), all = heads + 2 * groups;
  const int64_t width = all * a.size;
  const bool isIn = start < half;
  const float inverse = 1.0f / static_cast<float>(a.size);
  float weights[2][2 * kPairs], own[2][2 * kPairs] = {};  // of q and of k
  loadWeights<T>(a.qWeight, start, half, isIn, weights[0]);
  loadWeights<T>(a.kWeight, start, half, isIn, weights[1]);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const Angles angles(a, row, start, isIn);
    // As many turns for every thread of a warp: they meet in sumOverHead.
    for (int base = 0; base < all; base += kEach * kAtOnce) {
      Pairs<T> xs[kEach], gradients[kEach];
#pragma unroll
      for (int each = 0; each < kEach; each++) {
        const int head = base + each * kAtOnce + static_cast<int>(threadIdx.x) / LANES;
        if (!isIn || head >= all) continue;
        const bool isQ = head < heads, isV = head >= heads + groups;
        const T* from = isQ   ? static_cast<const T*>(b.dq) + (row * heads + head) * a.size
                        : isV ? static_cast<const T*>(b.dv) + (row * groups + head - heads - groups) * a.size
                              : static_cast<const T*>(b.dk) + (row * groups + head - heads) * a.size;
        gradients[each].load(from, start, half);
        if (!isV && a.qWeight != nullptr) xs[each].load(static_cast<const T*>(a.qkv) + row * width + head * a.size, start, half);
      }
#pragma unroll
      for (int each = 0; each < kEach; each++) {
        const int head = base + each * kAtOnce + static_cast<int>(threadIdx.x) / LANES;
        const bool isQ = head < heads, isV = head >= heads + groups;
        const Pairs<T>& x = xs[each];
        Pairs<T>& dy = gradients[each];
        float gradient[2 * kPairs];
#pragma unroll
        for (int i = 0; i < kPairs; i++) {
          const float u = dy.at(i), w = dy.at(i + kPairs);
          gradient[i] = isV ? u : u * angles.cosines[i] + w * angles.sines[i];
          gradient[i + kPairs] = isV ? w : w * angles.cosines[i] - u * angles.sines[i];
        }
        if (a.qWeight != nullptr) {
          float squares = 0, dot = 0;
#pragma unroll
          for (int i = 0; i < 2 * kPairs; i++) {
            const float w = isQ ? weights[0][i] : weights[1][i];
            squares += x.at(i) * x.at(i);
            dot += gradient[i] * w * x.at(i);
          }
          squares = sumOverHead<LANES>(squares);
          dot = sumOverHead<LANES>(dot);
          const float scale = rsqrtf(squares * inverse + a.eps), mean = dot * scale * scale * inverse;
          if (!isV)
#pragma unroll
            for (int i = 0; i < 2 * kPairs; i++) {
              const float w = isQ ? weights[0][i] : weights[1][i], forWeight = gradient[i] * x.at(i) * scale;
              own[0][i] += isQ ? forWeight : 0.0f;
              own[1][i] += isQ ? 0.0f : forWeight;
              gradient[i] = scale * (gradient[i] * w - x.at(i) * mean);
            }
        }
        if (!isIn || head >= all) continue;
#pragma unroll
        for (int i = 0; i < 2 * kPairs; i++) dy.set(i, gradient[i]);
        dy.store(static_cast<T*>(b.dqkv) + row * width + head * a.size, start, half);
      }
    }
  }
  if (b.partial == nullptr) return;
  for (int turn = 0; turn < kAtOnce; turn++) {
    if (static_cast<int>(threadIdx.x) / LANES == turn && isIn) {
#pragma unroll
      for (int which = 0; which < 2; which++)
#pragma unroll
        for (int i = 0; i < 2 * kPairs; i++) {
          float& sum = sums[which][i < kPairs ? start + i : start + half + i - kPairs];
          sum = turn == 0 ? own[which][i] : sum + own[which][i];
        }
    }
    __syncthreads();
  }
  float* out = b.partial + blockIdx.x * 2 * a.size;
  for (int i = threadIdx.x; i < static_cast<int>(a.size); i += kThreads) {
    out[i] = sums[0][i];
    out[a.size + i] = sums[1][i];
  }
}

}  // namespace

bool headsFit(int64_t size) { return size > 0 && size % (2 * kPairs) == 0 && size <= 32 * 2 * kPairs; }

#define ATTUNE_BY_LANES(size, ...)    \
  if ((size) <= 8 * 2 * kPairs) {     \
    constexpr int kLanes = 8;         \
    __VA_ARGS__;                      \
  } else if ((size) <= 16 * 2 * kPairs) { \
    constexpr int kLanes = 16;        \
    __VA_ARGS__;                      \
  } else {                            \
    constexpr int kLanes = 32;        \
    __VA_ARGS__;                      \
  }

void launchHeads(Kind kind, const HeadsArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  const unsigned grid = static_cast<unsigned>(args.rows);
  ATTUNE_BY_LANES(args.size, ATTUNE_BY_KIND(kind, (headsKernel<T, kLanes><<<grid, kThreads, 0, stream>>>(args))))
}

int64_t headsBackwardBlocks(int64_t rows) {
  const int64_t most = kPerMultiprocessor * multiprocessorsOfDevice();
  return rows < most ? rows : most;
}

void launchHeadsBackward(Kind kind, const HeadsBackwardArgs& args, cudaStream_t stream) {
  const int64_t blocks = headsBackwardBlocks(args.forward.rows), size = args.forward.size;
  const unsigned grid = static_cast<unsigned>(blocks);
  if (blocks > 0) {
    ATTUNE_BY_LANES(size, ATTUNE_BY_KIND(kind, (headsBackwardKernel<T, kLanes><<<grid, kThreads, 0, stream>>>(args))))
  }
  if (args.partial != nullptr)
    ATTUNE_BY_KIND(kind, (addColumns<T>(args.partial, blocks, size, static_cast<T*>(args.dqWeight), static_cast<T*>(args.dkWeight), stream)))
}

}  // namespace attune
