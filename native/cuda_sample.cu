// CUDA's twin of sample.cc: a cut is a threshold on e^(z − max), found by narrowing the range of bit patterns it lies in. Sums are
// taken over fixed slices in a fixed order, so the same logits give the same token every time.
#include <cooperative_groups.h>

#include "cuda_raw.h"
#include "sample.h"

namespace attune {
namespace {

constexpr int kSampleThreads = 1024;

// below e^-30 of the likeliest nothing counts in f32: a narrower range to search
constexpr float kLeast = 9.4e-14f;

// —— one block per row ——————————————————————————————————————————————————————————————————————————————————
template <typename Combine>
__device__ float reduce(float value, float* shared, Combine combine) {
  for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float result = shared[0];
  for (int i = 1; i < kSampleThreads / 32; i++) result = combine(result, shared[i]);
  __syncthreads();
  return result;
}
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Max {
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Row {
  const float* logits;
  int64_t size;
  float peak, inverse;
  __device__ float weight(int64_t i) const { return expf((logits[i] - peak) * inverse); }
};

__device__ float measure(const Row& row, float cut, bool byMass, float* shared) {
  float part = 0;
  for (int64_t i = threadIdx.x; i < row.size; i += kSampleThreads) {
    const float w = row.weight(i);
    if (w >= cut) part += byMass ? w : 1.0f;
  }
  return reduce(part, shared, Add());
}

// The largest cut with measure{w ≥ cut, w ≥ floor} ≥ wanted, by halving the range of bit patterns.
__device__ float threshold(const Row& row, float floor, float wanted, bool byMass, float* shared) {
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

__global__ void __launch_bounds__(kSampleThreads) sampleKernel(SampleArgs a) {
  __shared__ float shared[kSampleThreads / 32];
  __shared__ float runs[kSampleThreads];
  const int64_t r = blockIdx.x;
  const float temperature = a.temperature[r];
  Row row{a.logits + r * a.size, a.size, 0.0f, temperature > 0 ? 1.0f / temperature : 1.0f};
  float peak = -INFINITY;
  for (int64_t i = threadIdx.x; i < a.size; i += kSampleThreads) peak = fmaxf(peak, row.logits[i]);
  row.peak = reduce(peak, shared, Max());
  const float total = measure(row, 0.0f, true, shared);
  float cut = a.minP[r];
  if (temperature <= 0) {
    cut = 1.0f;  // only the likeliest; the first of them is taken below
  } else {
    const bool narrowed = a.topK[r] > 0 && a.topK[r] < a.size;
    if (narrowed) cut = fmaxf(cut, threshold(row, 0.0f, static_cast<float>(a.topK[r]), false, shared));
    if (a.topP[r] < 1) {
      const float floor = narrowed ? cut : 0.0f;
      const float mass = narrowed ? measure(row, cut, true, shared) : total;
      cut = fmaxf(cut, threshold(row, fmaxf(floor, kLeast), a.topP[r] * mass, true, shared));
    }
  }
  // each thread holds a run of neighbours, so that a running sum goes in the order of the ids
  const int64_t run = (a.size + kSampleThreads - 1) / kSampleThreads;
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
    for (int i = 0; i < kSampleThreads; i++) kept += runs[i];
    const double target = temperature > 0 ? uniformAt(a.seeds[r], a.counters[r]) * kept : 0.0;
    double reached = 0;
    int64_t pick = 0;
    int at = 0;
    while (at + 1 < kSampleThreads && reached + runs[at] <= target) reached += runs[at++];
    const int64_t from = at * run, to = from + run < a.size ? from + run : a.size;
    for (int64_t i = from; i < to; i++) {
      const float w = row.weight(i);
      if (w < cut) continue;
      pick = i;
      reached += w;
      if (reached > target) break;
    }
    a.ids[r] = pick;
    a.logp[r] = (row.logits[pick] - row.peak) * row.inverse - logf(total);
  }
}

// —— a large vocabulary: eight blocks share a row, each with its slice of e^(z − max) in shared memory ————————————————
// One block would read the row from memory for every step of the search, on one of a hundred multiprocessors.
constexpr int kBlocks = 8, kWarps = kSampleThreads / 32, kCuts = 7;

struct Shared {
  float partial[kCuts][kWarps];
  float mine[2][kCuts];  // this block's results; the others read them while the next are being made
  float all[kCuts];
  float runs[kSampleThreads];
  double warps[kWarps];
  double total;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace groups = cooperative_groups;

// A block's share of a row, and the sums it makes with the seven others.
struct Team {
  Shared& shared;
  float* weights;
  int count;
  int round = 0;

  // `values` of all threads of all blocks combined, in every thread.
  template <int N, typename Combine>
  __device__ void combine(float (&values)[N], Combine combine) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* mine = shared.mine[round++ % 2];
#pragma unroll
    for (int k = 0; k < N; k++) {
      for (int offset = 16; offset > 0; offset /= 2) values[k] = combine(values[k], __shfl_xor_sync(0xFFFFFFFF, values[k], offset));
      if (lane == 0) shared.partial[k][warp] = values[k];
    }
    __syncthreads();
    if (warp < N) {
      float value = shared.partial[warp][lane];
      for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
      if (lane == 0) mine[warp] = value;
    }
    const auto cluster = groups::this_cluster();
    cluster.sync();
    if (threadIdx.x < N) {
      float value = cluster.map_shared_rank(mine, 0)[threadIdx.x];
      for (int block = 1; block < kBlocks; block++) value = combine(value, cluster.map_shared_rank(mine, block)[threadIdx.x]);
      shared.all[threadIdx.x] = value;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) values[k] = shared.all[k];
  }

  // Σ w, or how many, over w ≥ each cut.
  template <int N>
  __device__ void measure(const float (&cuts)[N], float (&sums)[N], bool byMass) {
#pragma unroll
    for (int k = 0; k < N; k++) sums[k] = 0;
    for (int i = threadIdx.x; i < count; i += kSampleThreads) {
      const float w = weights[i], amount = byMass ? w : 1.0f;
#pragma unroll
      for (int k = 0; k < N; k++) sums[k] += w >= cuts[k] ? amount : 0.0f;
    }
    combine(sums, Add());
  }
  __device__ float measure(float cut, bool byMass) {
    const float cuts[1] = {cut};
    float sums[1];
    measure(cuts, sums, byMass);
    return sums[0];
  }

  // The largest cut with measure{w ≥ cut, w ≥ floor} ≥ wanted: eighths of the range of bit patterns, again and again.
  __device__ float threshold(float floor, float wanted, bool byMass) {
    int low = __float_as_int(floor), high = __float_as_int(1.0f) + 1;
    while (high - low > 1) {
      const int step = (high - low + kCuts) / (kCuts + 1);
      float cuts[kCuts], sums[kCuts];
#pragma unroll
      for (int k = 0; k < kCuts; k++) cuts[k] = low + (k + 1) * step < high ? __int_as_float(low + (k + 1) * step) : INFINITY;
      measure(cuts, sums, byMass);
      int reached = 0;  // nested sets in one order of adding: their sums fall with the cut
#pragma unroll
      for (int k = 0; k < kCuts; k++) reached += cuts[k] < INFINITY && sums[k] >= wanted ? 1 : 0;
      high = low + (reached + 1) * step < high ? low + (reached + 1) * step : high;
      low += reached * step;
    }
    return __int_as_float(low);
  }
};
#endif

__global__ void __launch_bounds__(kSampleThreads) sampleSharedKernel(SampleArgs a, int slice) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ float weights[];
  __shared__ Shared shared;
  const auto cluster = groups::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int64_t r = blockIdx.x / kBlocks, first = static_cast<int64_t>(rank) * slice;
  const int count = static_cast<int>(max(static_cast<int64_t>(0), min(static_cast<int64_t>(slice), a.size - first)));
  const float* logits = a.logits + r * a.size + first;
  const float temperature = a.temperature[r], inverse = temperature > 0 ? 1.0f / temperature : 1.0f;
  Team team{shared, weights, count};

  float peak[1] = {-INFINITY};
  for (int i = threadIdx.x; i < count; i += kSampleThreads) {
    weights[i] = logits[i];
    peak[0] = fmaxf(peak[0], weights[i]);
  }
  team.combine(peak, Max());
  for (int i = threadIdx.x; i < count; i += kSampleThreads) weights[i] = expf((weights[i] - peak[0]) * inverse);
  const float total = team.measure(0.0f, true);
  float cut = a.minP[r];
  if (temperature <= 0) {
    cut = 1.0f;  // only the likeliest; the first of them is taken below
  } else {
    const bool narrowed = a.topK[r] > 0 && a.topK[r] < a.size;
    if (narrowed) cut = fmaxf(cut, team.threshold(0.0f, static_cast<float>(a.topK[r]), false));
    if (a.topP[r] < 1) {
      const float mass = narrowed ? team.measure(cut, true) : total;
      cut = fmaxf(cut, team.threshold(fmaxf(narrowed ? cut : 0.0f, kLeast), a.topP[r] * mass, true));
    }
  }

  // Runs of neighbours by thread, warp and block, so that a running sum goes in the order of the ids.
  __syncthreads();
  const int run = (slice + kSampleThreads - 1) / kSampleThreads;
  const auto kept = [&](int i) { return i < count && weights[i] >= cut; };
  float part = 0;
  for (int i = threadIdx.x * run; i < (threadIdx.x + 1) * run; i++) part += kept(i) ? weights[i] : 0.0f;
  shared.runs[threadIdx.x] = part;
  __syncthreads();
  if (threadIdx.x < kWarps) {
    double sum = 0;
    for (int i = 0; i < 32; i++) sum += shared.runs[threadIdx.x * 32 + i];
    shared.warps[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.total = 0;
    for (int i = 0; i < kWarps; i++) shared.total += shared.warps[i];
  }
  cluster.sync();
  if (threadIdx.x == 0) {
    double totals[kBlocks], whole = 0, reached = 0;
    for (int i = 0; i < kBlocks; i++) whole += totals[i] = *cluster.map_shared_rank(&shared.total, i);
    const double target = temperature > 0 ? uniformAt(a.seeds[r], a.counters[r]) * whole : 0.0;
    int chosen = 0;
    while (chosen + 1 < kBlocks && reached + totals[chosen] <= target) reached += totals[chosen++];
    while (chosen > 0 && totals[chosen] == 0) chosen--;  // rounding led beyond the last one
    if (chosen == rank) {
      int warp = 0, thread = 0, pick = -1;
      while (warp + 1 < kWarps && reached + shared.warps[warp] <= target) reached += shared.warps[warp++];
      thread = warp * 32;
      while (thread + 1 < (warp + 1) * 32 && reached + shared.runs[thread] <= target) reached += shared.runs[thread++];
      for (int i = thread * run; i < (thread + 1) * run && reached <= target; i++) {
        if (!kept(i)) continue;
        pick = i;
        reached += weights[i];
      }
      for (int i = (thread + 1) * run - 1; pick < 0 && i >= 0; i--) pick = kept(i) ? i : -1;
      for (int i = 0; pick < 0 && i < count; i++) pick = kept(i) ? i : -1;
      pick = max(pick, 0);
      a.ids[r] = first + pick;
      a.logp[r] = (logits[pick] - peak[0]) * inverse - logf(total);
    }
  }
  cluster.sync();  // nobody leaves while its numbers are being read
#endif
}

// Whether this device has clusters of blocks and room for a slice each; then the kernel is on its way.
bool launchShared(const SampleArgs& args, cudaStream_t stream) {
  constexpr int64_t kLarge = 16384;
  if (args.size < kLarge) return false;
  int device = 0, major = 0, room = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int64_t slice = (args.size + kBlocks - 1) / kBlocks, bytes = slice * static_cast<int64_t>(sizeof(float));
  if (major < 9 || bytes + static_cast<int64_t>(sizeof(Shared)) + 1024 > room) return false;
  if (cudaFuncSetAttribute(sampleSharedKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // forgotten: the other kernel does it
    return false;
  }
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kBlocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.rows * kBlocks));
  config.blockDim = dim3(kSampleThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, sampleSharedKernel, args, static_cast<int>(slice)) == cudaSuccess;
}

}  // namespace

void launchSample(const SampleArgs& args, cudaStream_t stream) {
  if (args.rows == 0 || launchShared(args, stream)) return;
  sampleKernel<<<static_cast<unsigned>(args.rows), kSampleThreads, 0, stream>>>(args);
}

}  // namespace attune
