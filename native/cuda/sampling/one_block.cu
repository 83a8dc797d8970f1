// Drawing with one block per row, which reads the row again for each question: used if there are no clusters, or if a row does not fit into
// a cluster's shared memory. A cut is a threshold on e^(z − max), found by bisecting the range of bit patterns.
#include "cuda/sampling/kernels.h"
#include "cuda/sampling/rows.cuh"

namespace attune {
namespace {

constexpr int kThreads = 1024;

template <typename Combine>
__device__ float reduce(float value, float* shared, Combine combine) {
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float result = shared[0];
  for (int i = 1; i < kThreads / 32; i++) result = combine(result, shared[i]);
  __syncthreads();
  return result;
}
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// weights below e^-30 of the largest do not count in f32; this narrows the range to search
constexpr float kLeast = 9.4e-14f;

template <typename T>
struct Row {
  const T* logits;
  int64_t size;
  float peak, inverse;
  __device__ float weight(int64_t i) const { return expf((wide(logits[i]) - peak) * inverse); }
};

template <typename T>
__device__ float measure(const Row<T>& row, float cut, bool byMass, float* shared) {
  float part = 0;
  for (int64_t i = threadIdx.x; i < row.size; i += kThreads) {
    const float w = row.weight(i);
    if (w >= cut) part += byMass ? w : 1.0f;
  }
  return reduce(part, shared, Add());
}

// The largest cut with measure{w ≥ cut, w ≥ floor} ≥ wanted, by halving the range of bit patterns.
template <typename T>
__device__ float threshold(const Row<T>& row, float floor, float wanted, bool byMass, float* shared) {
  int low = __float_as_int(floor), high = __float_as_int(1.0f) + 1;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (measure(row, __int_as_float(middle), byMass, shared) >= wanted)
      low = middle;
    else
      high = middle;
  }
  return __int_as_float(low);
}

/** Whether the row has a NaN or +∞: their weight is NaN. */
template <typename T>
__device__ bool anyNaN(const Row<T>& row) {
  bool any = false;
  for (int64_t i = threadIdx.x; i < row.size; i += kThreads) any |= isnan(row.weight(i));
  return __syncthreads_or(any) != 0;
}

/** The first of the likeliest words; 0 where none is possible. */
template <typename T>
__device__ int64_t likeliest(const Row<T>& row) {
  __shared__ unsigned long long first;
  if (threadIdx.x == 0) first = row.size;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < row.size; i += kThreads)
    if (wide(row.logits[i]) >= row.peak) {
      atomicMin(&first, static_cast<unsigned long long>(i));
      break;
    }
  __syncthreads();
  return row.peak > -INFINITY ? static_cast<int64_t>(first) : 0;
}

template <typename T>
__global__ void __launch_bounds__(kThreads) oneBlockKernel(SampleArgs a) {
  __shared__ float shared[kThreads / 32];
  __shared__ float runs[kThreads];
  const int64_t r = blockIdx.x;
  const RowRule rule(a, r);
  Row<T> row{static_cast<const T*>(a.logits) + r * a.size, a.size, 0.0f, rule.inverse};
  float peak = -INFINITY;
  for (int64_t i = threadIdx.x; i < a.size; i += kThreads) peak = fmaxf(peak, wide(row.logits[i]));
  row.peak = reduce(peak, shared, Max());
  const float total = measure(row, 0.0f, true, shared);
  const bool hasNaN = anyNaN(row);
  const auto finish = [&](int64_t id, float kept) {
    finishRow(a, r, id, hasNaN ? NAN : (wide(row.logits[id]) - row.peak) * row.inverse - logf(total), kept);
  };
  if (rule.isGreedy) {
    const int64_t id = likeliest(row);
    if (threadIdx.x == 0) finish(id, 1.0f);
    return;
  }
  float cut = 0;
  const bool narrowed = rule.topK > 0;
  if (narrowed) cut = threshold(row, 0.0f, static_cast<float>(rule.topK), false, shared);
  if (rule.topP < 1) {
    const float mass = narrowed ? measure(row, cut, true, shared) : total;
    cut = threshold(row, fmaxf(cut, kLeast), rule.topP * mass, true, shared);
  }
  cut = fmaxf(cut, rule.minP);
  // each thread takes a run of neighbouring ids, so that the running sum is in the order of the ids
  const int64_t run = (a.size + kThreads - 1) / kThreads;
  const int64_t begin = threadIdx.x * run < a.size ? threadIdx.x * run : a.size, end = begin + run < a.size ? begin + run : a.size;
  float part = 0;
  for (int64_t i = begin; i < end; i++) {
    const float w = row.weight(i);
    if (w >= cut) part += w;
  }
  runs[threadIdx.x] = part;
  __syncthreads();
  if (threadIdx.x == 0) {
    double kept = 0;
    for (int i = 0; i < kThreads; i++) kept += runs[i];
    const double target = uniformOf(a, r) * kept;
    double reached = 0;
    int64_t pick = -1;
    int at = 0;
    while (at + 1 < kThreads && reached + runs[at] <= target) reached += runs[at++];
    const int64_t from = at * run, to = from + run < a.size ? from + run : a.size;
    for (int64_t i = from; i < to; i++) {
      const float w = row.weight(i);
      if (!(w > 0 && w >= cut)) continue;
      pick = i;
      reached += w;
      if (reached > target) break;
    }
    for (int64_t i = to - 1; pick < 0 && i > 0; i--)
      pick = row.weight(i) > 0 && row.weight(i) >= cut ? i : -1;  // rounding led beyond the last one
    finish(pick < 0 ? 0 : pick, cut > 0 ? static_cast<float>(fmin(1.0, kept / total)) : 1.0f);
  }
}

}  // namespace

void launchOneBlock(Kind kind, const SampleArgs& args, cudaStream_t stream) {
  ATTUNE_BY_KIND(kind, { oneBlockKernel<T><<<static_cast<unsigned>(args.rows), kThreads, 0, stream>>>(args); })
}

}  // namespace attune
