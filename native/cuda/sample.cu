// The CUDA version of ops/decode/sample.cc. A cut is a threshold on e^(z − max), found by bisecting the range of bit patterns. Sums are
// taken over fixed slices in a fixed order, so the same logits always give the same token.
#include <cooperative_groups.h>

#include "cuda/numbers.cuh"
#include "ops/decode/sample.h"

namespace attune {
namespace {

constexpr int kSampleThreads = 1024;

// weights below e^-30 of the largest do not count in f32; this narrows the range to search
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
  for (int64_t i = threadIdx.x; i < row.size; i += kSampleThreads) {
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

template <typename T>
__global__ void __launch_bounds__(kSampleThreads) sampleKernel(SampleArgs a) {
  __shared__ float shared[kSampleThreads / 32];
  __shared__ float runs[kSampleThreads];
  const int64_t r = blockIdx.x;
  const float temperature = a.temperature[r];
  Row<T> row{static_cast<const T*>(a.logits) + r * a.size, a.size, 0.0f, temperature > 0 ? 1.0f / temperature : 1.0f};
  float peak = -INFINITY;
  for (int64_t i = threadIdx.x; i < a.size; i += kSampleThreads) peak = fmaxf(peak, wide(row.logits[i]));
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
  // each thread takes a run of neighbouring ids, so that the running sum is in the order of the ids
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
    int64_t pick = -1;
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
    for (int64_t i = to - 1; pick < 0 && i > 0; i--) pick = row.weight(i) >= cut ? i : -1;  // rounding led beyond the last one
    pick = pick < 0 ? 0 : pick;
    a.ids[r] = pick;
    a.kept[r] = temperature > 0 && cut > 0 ? static_cast<float>(fmin(1.0, kept / total)) : 1.0f;
    a.logp[r] = (wide(row.logits[pick]) - row.peak) * row.inverse - logf(total);
  }
}

// —— a large vocabulary: eight blocks share a row, each with its slice of e^(z − max) in shared memory ————————————————
// One block would read the row from memory for every step of the search, on one of a hundred multiprocessors.
// So few threads that two blocks fit on a multiprocessor: clusters do not always find eight free ones next to each other.
constexpr int kBlocks = 8, kTeamThreads = 512, kWarps = kTeamThreads / 32, kMostOwn = 64, kCuts = 7, kSums = kCuts + 1;

struct Shared {
  float partial[kSums][kWarps];
  float mine[2][kSums];  // this block's results, double-buffered: the others read one while the next is computed
  float all[kSums];
  float runs[kTeamThreads];
  double warps[kWarps];
  double total;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace groups = cooperative_groups;

__device__ inline double sumOfWarp(double x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
  return x;
}

// A block's share of a row, and sums over all eight blocks.
struct Team {
  Shared& shared;
  float* weights;  // thread t has those at t, t + 512, …
  int count;
  int round = 0;

  // Combines what the warps of all blocks left in `partial`; every thread gets the result.
  template <int N, typename Combine>
  __device__ void join(float (&values)[N], Combine combine) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float* mine = shared.mine[round++ % 2];
    __syncthreads();
    if (warp < N) {
      float value = shared.partial[warp][lane % kWarps];
      for (int offset = kWarps / 2; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
      if (lane == 0) mine[warp] = value;
    }
    const auto cluster = groups::this_cluster();
    cluster.sync();
    if (threadIdx.x < N) {
      float theirs[kBlocks];
#pragma unroll
      for (int block = 0; block < kBlocks; block++) theirs[block] = cluster.map_shared_rank(mine, block)[threadIdx.x];
      float value = theirs[0];
#pragma unroll
      for (int block = 1; block < kBlocks; block++) value = combine(value, theirs[block]);
      shared.all[threadIdx.x] = value;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < N; k++) values[k] = shared.all[k];
  }

  template <typename Combine>
  __device__ float one(float value, Combine combine) {
    for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
    if (threadIdx.x % 32 == 0) shared.partial[0][threadIdx.x / 32] = value;
    float values[1];
    join(values, combine);
    return values[0];
  }

  // Eight warp sums at once: at each step a lane hands the half that its partner keeps to it, so nine exchanges do instead of forty.
  __device__ void eight(float (&v)[kSums]) {
    const int lane = threadIdx.x % 32;
    int which = 0;
#pragma unroll
    for (int keep = 4, offset = 16; keep > 0; keep /= 2, offset /= 2) {
      const bool upper = (lane & offset) != 0;
      which += upper ? keep : 0;
#pragma unroll
      for (int i = 0; i < keep; i++) {
        const float given = upper ? v[i] : v[i + keep], kept = upper ? v[i + keep] : v[i];
        v[i] = kept + __shfl_xor_sync(0xFFFFFFFF, given, offset);
      }
    }
    v[0] += __shfl_xor_sync(0xFFFFFFFF, v[0], 2);
    v[0] += __shfl_xor_sync(0xFFFFFFFF, v[0], 1);
    if (lane % 4 == 0) shared.partial[which][threadIdx.x / 32] = v[0];
    join(v, Add());
  }

  __device__ float mass(float cut) {
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += kTeamThreads) sum += weights[i] >= cut ? weights[i] : 0.0f;
    return one(sum, Add());
  }

  // A cut that selects the same weights as the largest cut with measure{w ≥ cut, w ≥ floor} ≥ wanted. The range of bit patterns is
  // divided into eighths until at most one weight is left in it. Once few weights are left, only those are examined.
  __device__ float threshold(float floor, float wanted, bool byMass) {
    const int own = (max(count - static_cast<int>(threadIdx.x), 0) + kTeamThreads - 1) / kTeamThreads;
    unsigned long long candidates = own == kMostOwn ? ~0ull : (1ull << own) - 1;
    int low = __float_as_int(floor), high = __float_as_int(1.0f) + 1;
    float above = 0;  // the measure of those from `high` on
    while (high - low > 1) {
      const int step = (high - low + kCuts) / (kCuts + 1);
      const float least = __int_as_float(low), most = __int_as_float(high);
      float cuts[kCuts], sums[kSums];
#pragma unroll
      for (int k = 0; k < kCuts; k++) cuts[k] = low + (k + 1) * step < high ? __int_as_float(low + (k + 1) * step) : INFINITY;
#pragma unroll
      for (int k = 0; k < kSums; k++) sums[k] = 0;
      const auto take = [&](float w) {
        const float amount = byMass ? w : 1.0f;
        sums[kCuts] += 1.0f;
#pragma unroll
        for (int k = 0; k < kCuts; k++)
          if (w >= cuts[k]) sums[k] += amount;
      };
      unsigned long long inside = 0;
      if (__any_sync(0xFFFFFFFF, 3 * __popcll(candidates) > own)) {
#pragma unroll 4
        for (int i = 0; i < own; i++) {
          const float w = weights[threadIdx.x + i * kTeamThreads];
          if (w < least || w >= most) continue;
          inside |= 1ull << i;
          take(w);
        }
      } else {
        for (unsigned long long rest = candidates; rest != 0; rest &= rest - 1) {
          const int i = __ffsll(static_cast<long long>(rest)) - 1;
          const float w = weights[threadIdx.x + i * kTeamThreads];
          if (w < least || w >= most) continue;
          inside |= 1ull << i;
          take(w);
        }
      }
      candidates = inside;
      __syncwarp();
      eight(sums);
      if (sums[kCuts] <= 1) break;
      int reached = 0;  // the sets are nested and summed in one order, so the sums decrease as the cut grows
#pragma unroll
      for (int k = 0; k < kCuts; k++) reached += cuts[k] < INFINITY && above + sums[k] >= wanted ? 1 : 0;
      if (low + (reached + 1) * step < high) {
        high = low + (reached + 1) * step;
#pragma unroll
        for (int k = 0; k < kCuts; k++)
          if (k == reached) above += sums[k];
      }
      low += reached * step;
    }
    return __int_as_float(low);
  }
};
#endif

template <typename T>
__global__ void __launch_bounds__(kTeamThreads, 2) sampleSharedKernel(SampleArgs a, int slice) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ float weights[];
  __shared__ Shared shared;
  const auto cluster = groups::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int64_t r = blockIdx.x / kBlocks, first = static_cast<int64_t>(rank) * slice;
  const int count = static_cast<int>(max(static_cast<int64_t>(0), min(static_cast<int64_t>(slice), a.size - first)));
  const T* logits = static_cast<const T*>(a.logits) + r * a.size + first;
  const float temperature = a.temperature[r], inverse = temperature > 0 ? 1.0f / temperature : 1.0f;
  Team team{shared, weights, count};

  float peak = -INFINITY;
#pragma unroll 16
  for (int i = threadIdx.x; i < count; i += kTeamThreads) {
    weights[i] = wide(logits[i]);
    peak = fmaxf(peak, weights[i]);
  }
  peak = team.one(peak, Max());
  float total = 0;
#pragma unroll 4
  for (int i = threadIdx.x; i < count; i += kTeamThreads) total += weights[i] = expf((weights[i] - peak) * inverse);
  total = team.one(total, Add());
  float cut = a.minP[r];
  if (temperature <= 0) {
    cut = 1.0f;  // only the likeliest; the first of them is taken below
  } else {
    const bool narrowed = a.topK[r] > 0 && a.topK[r] < a.size;
    if (narrowed) cut = fmaxf(cut, team.threshold(0.0f, static_cast<float>(a.topK[r]), false));
    if (a.topP[r] < 1) {
      const float mass = narrowed ? team.mass(cut) : total, wanted = a.topP[r] * mass;
      // weights below half the average of the mass to cut off cannot be needed
      const float floor = fmaxf(fmaxf(narrowed ? cut : 0.0f, kLeast), 0.5f * (mass - wanted) / static_cast<float>(a.size));
      cut = fmaxf(cut, team.threshold(floor, wanted, true));
    }
  }

  // Each thread, warp and block takes a run of neighbouring ids, so that the running sum is in the order of the ids.
  __syncthreads();
  const int run = (slice + kTeamThreads - 1) / kTeamThreads | 1;  // odd: neighbours read from different banks
  const auto kept = [&](int i) { return i < count && weights[i] >= cut; };
  float part = 0;
  for (int i = threadIdx.x * run; i < (threadIdx.x + 1) * run; i++) part += kept(i) ? weights[i] : 0.0f;
  shared.runs[threadIdx.x] = part;
  const double ofWarp = sumOfWarp(part);
  if (threadIdx.x % 32 == 0) shared.warps[threadIdx.x / 32] = ofWarp;
  __syncthreads();
  if (threadIdx.x < 32) {
    const double ofBlock = sumOfWarp(threadIdx.x < kWarps ? shared.warps[threadIdx.x] : 0.0);
    if (threadIdx.x == 0) shared.total = ofBlock;
  }
  cluster.sync();
  if (threadIdx.x == 0) {
    double totals[kBlocks], whole = 0, reached = 0;
#pragma unroll
    for (int i = 0; i < kBlocks; i++) totals[i] = *cluster.map_shared_rank(&shared.total, i);
#pragma unroll
    for (int i = 0; i < kBlocks; i++) whole += totals[i];
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
      a.kept[r] = temperature > 0 && cut > 0 ? static_cast<float>(fmin(1.0, whole / total)) : 1.0f;
      a.logp[r] = (wide(logits[pick]) - peak) * inverse - logf(total);
    }
  }
  cluster.sync();  // no block exits while others read its sums
#endif
}

// Launches the shared kernel where the device has block clusters and enough shared memory; returns whether it did.
template <typename T>
bool launchShared(const SampleArgs& args, cudaStream_t stream) {
  constexpr int64_t kLarge = 16384;
  if (args.size < kLarge) return false;
  int device = 0, room = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int64_t slice = (args.size + kBlocks - 1) / kBlocks, bytes = slice * static_cast<int64_t>(sizeof(float));
  if (majorOfDevice() < 9 || slice > kMostOwn * kTeamThreads || bytes + static_cast<int64_t>(sizeof(Shared)) + 1024 > room) return false;
  cudaFuncSetAttribute(sampleSharedKernel<T>, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (cudaFuncSetAttribute(sampleSharedKernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) != cudaSuccess) {
    cudaGetLastError();  // clears the error; the other kernel is used
    return false;
  }
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kBlocks, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(args.rows * kBlocks));
  config.blockDim = dim3(kTeamThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, sampleSharedKernel<T>, args, static_cast<int>(slice)) == cudaSuccess;
}

}  // namespace

void launchSample(Kind kind, const SampleArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  ATTUNE_BY_KIND(kind, {
    if (!launchShared<T>(args, stream)) sampleKernel<T><<<static_cast<unsigned>(args.rows), kSampleThreads, 0, stream>>>(args);
  })
}

}  // namespace attune
