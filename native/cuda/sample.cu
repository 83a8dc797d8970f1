// The CUDA version of ops/decode/sample.cc. A cut is a threshold on e^(z − max), found by dividing the range of bit patterns. Sums are
// taken over fixed slices in a fixed order, or of integers, so the same logits always give the same token.
#include <cooperative_groups.h>

#include "cuda/numbers.cuh"
#include "ops/decode/sample.h"

namespace attune {
namespace {

constexpr int kSampleThreads = 1024;

// weights below e^-30 of the largest do not count in f32; this narrows the range to search
constexpr float kLeast = 9.4e-14f;

__device__ inline int64_t counterOf(const SampleArgs& a, int64_t r) { return a.counters == nullptr ? a.positions[r] + 1 : a.counters[r]; }

/** Stores what was drawn. For rows that go on by themselves at the row's turn, and moves the row on. */
__device__ inline void finishRow(const SampleArgs& a, int64_t r, int64_t id, float logp, float kept) {
  int64_t at = r;
  if (a.turns != nullptr) {
    const int64_t turn = a.turns[r];
    at += turn * a.stride;
    a.turns[r] = turn + 1 == a.most ? 0 : turn + 1;
    a.last[r] = id;
    if (a.positions[r] < a.limits[r]) a.positions[r]++;
  }
  a.ids[at] = id;
  a.logp[at] = logp;
  a.kept[at] = kept;
}

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
    const double target = temperature > 0 ? uniformAt(a.seeds[r], counterOf(a, r)) * kept : 0.0;
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
    finishRow(a, r, pick, (wide(row.logits[pick]) - row.peak) * row.inverse - logf(total),
              temperature > 0 && cut > 0 ? static_cast<float>(fmin(1.0, kept / total)) : 1.0f);
  }
}

// —— a large vocabulary: eight blocks share a row, each with its slice of e^(z − max) in shared memory ————————————————
// So few threads that two blocks fit on a multiprocessor: clusters do not always find eight free ones next to each other.
constexpr int kBlocks = 8, kTeamThreads = 512, kWarps = kTeamThreads / 32, kBins = 256;

// What a block tells the others.
struct Note {
  float value;
  double mass;
  int least, most;  // bit patterns
  unsigned bins[2][kBins];
};

struct Shared {
  Note notes[2];  // the others read one while the next is written
  float partial[kWarps];
  unsigned long long sums[kBins / 32];
  float runs[kTeamThreads];
  double warps[kWarps];
  int bin;  // the one with the threshold, or −1
  unsigned long long above;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace groups = cooperative_groups;

template <typename N>
__device__ inline N sumOfLanesUpTo(N x) {
  for (int offset = 1; offset < 32; offset *= 2) {
    const N other = __shfl_up_sync(0xFFFFFFFF, x, offset);
    if (static_cast<int>(threadIdx.x % 32) >= offset) x += other;
  }
  return x;
}

// The lane at which the running sum over a warp first exceeds the target, or else the last one with a share; −1 without any.
// `reached` becomes the sum before that lane.
__device__ inline int laneAt(double own, double target, double& reached, bool& found) {
  const double upTo = sumOfLanesUpTo(own);
  const unsigned beyond = __ballot_sync(0xFFFFFFFF, own > 0 && reached + upTo > target), any = __ballot_sync(0xFFFFFFFF, own > 0);
  found = beyond != 0;
  const int lane = found ? __ffs(static_cast<int>(beyond)) - 1 : 31 - __clz(static_cast<int>(any));
  reached += __shfl_sync(0xFFFFFFFF, upTo - own, max(lane, 0));
  return lane;
}

// A block's share of a row, and what all eight blocks find together. V weights lie together in a piece, which one thread takes.
template <int V>
struct Team {
  Shared& shared;
  float* weights;
  int count;
  int round = 0;

  __device__ Note& noteOf(int block) const { return *groups::this_cluster().map_shared_rank(&shared.notes[round % 2], block); }
  // All notes are written. The one before has been read by everybody, and is made ready for the next exchange.
  __device__ void meet() {
    groups::this_cluster().sync();
    Note& next = shared.notes[(round + 1) % 2];
    for (int i = threadIdx.x; i < 2 * kBins; i += kTeamThreads) next.bins[0][i] = 0;
    if (threadIdx.x == 0) next.least = INT32_MAX, next.most = -1;
  }

  template <typename Take>
  __device__ void forEach(Take take) {
    for (int i = threadIdx.x * V; i < count; i += kTeamThreads * V) {
      Run<float, V> piece;
      piece.load(weights + i);
#pragma unroll
      for (int k = 0; k < V; k++) take(piece[k]);
    }
  }

  template <typename Combine>
  __device__ float one(float value, Combine combine) {
    const int lane = threadIdx.x % 32;
    for (int offset = 16; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
    if (lane == 0) shared.partial[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared.partial[lane % kWarps];
    for (int offset = kWarps / 2; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
    if (threadIdx.x == 0) shared.notes[round % 2].value = value;
    meet();
    value = noteOf(lane % kBlocks).value;
    for (int offset = kBlocks / 2; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xFFFFFFFF, value, offset));
    round++;
    return value;
  }

  __device__ float mass(float cut) {
    float sum = 0;
    forEach([&](float w) { sum += w >= cut ? w : 0.0f; });
    return one(sum, Add());
  }

  // A cut that selects the same weights as the largest cut with measure{w ≥ cut} ≥ wanted, or as the floor where there is none. The
  // range of bit patterns is divided into 256 bins, then the bin with the threshold, until all weights in it are equal. Masses are
  // counted in 2⁻³², as integers: their sums do not depend on the order.
  __device__ float threshold(float floor, double wanted, bool byMass) {
    const auto target = static_cast<unsigned long long>(fmax(1.0, byMass ? wanted * 0x1.0p32 : wanted));
    int low = __float_as_int(floor), high = __float_as_int(1.0f) + 1;
    unsigned long long above = 0;  // the measure of those from `high` on
    __syncthreads();
    while (high - low > 1) {
      const int shift = max(0, 24 - __clz(high - low - 1));
      Note& own = shared.notes[round % 2];
      int least = INT32_MAX, most = -1;
      forEach([&](float w) {
        const int bits = __float_as_int(w);
        if (bits < low || bits >= high) return;
        least = min(least, bits), most = max(most, bits);
        const int bin = (bits - low) >> shift;
        const float scaled = w * 65536.0f, whole = floorf(scaled);
        atomicAdd(&own.bins[0][bin], byMass ? __float2uint_rn((scaled - whole) * 65536.0f) : 1u);
        if (byMass) atomicAdd(&own.bins[1][bin], __float2uint_rn(whole));
      });
      least = __reduce_min_sync(0xFFFFFFFF, least), most = __reduce_max_sync(0xFFFFFFFF, most);
      if (threadIdx.x % 32 == 0 && most >= 0) atomicMin(&own.least, least), atomicMax(&own.most, most);
      meet();
      const int lane = threadIdx.x % 32;
      least = __reduce_min_sync(0xFFFFFFFF, noteOf(lane % kBlocks).least);
      most = __reduce_max_sync(0xFFFFFFFF, noteOf(lane % kBlocks).most);
      if (most < 0 || least == most) {
        round++;
        return __int_as_float(most < 0 ? low : least);
      }
      // Running sums from the highest bin down: thread t has bin 255 − t.
      const int bin = kBins - 1 - static_cast<int>(threadIdx.x);
      unsigned long long sum = 0, upTo = 0;
      if (bin >= 0) {
        unsigned parts[2][kBlocks];
#pragma unroll
        for (int block = 0; block < kBlocks; block++)
          parts[0][block] = noteOf(block).bins[0][bin], parts[1][block] = noteOf(block).bins[1][bin];
#pragma unroll
        for (int block = 0; block < kBlocks; block++) sum += parts[0][block] + (static_cast<unsigned long long>(parts[1][block]) << 16);
        upTo = sumOfLanesUpTo(sum);
        if (lane == 31) shared.sums[threadIdx.x / 32] = upTo;
      }
      if (threadIdx.x == 0) shared.bin = -1;
      __syncthreads();
      if (bin >= 0) {
        upTo += above;
        for (int warp = 0; warp < static_cast<int>(threadIdx.x / 32); warp++) upTo += shared.sums[warp];
        if (upTo >= target && upTo - sum < target) shared.bin = bin, shared.above = upTo - sum;
      }
      __syncthreads();
      round++;
      if (shared.bin < 0) {
        if (byMass || low == 0) break;
        // So many are above the floor, and still too few: the rest is below it.
        for (int warp = 0; warp < kBins / 32; warp++) above += shared.sums[warp];
        high = low, low = 0;
      } else {
        above = shared.above;
        low += shared.bin << shift;
        high = min(high, low + (1 << shift));
      }
      __syncthreads();
    }
    return __int_as_float(low);
  }
};
#endif

template <typename T, int V>
__global__ void __launch_bounds__(kTeamThreads, 2) sampleSharedKernel(SampleArgs a, int slice) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(16) float weights[];
  __shared__ Shared shared;
  const auto cluster = groups::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int64_t r = blockIdx.x / kBlocks, first = static_cast<int64_t>(rank) * slice;
  const int count = static_cast<int>(max(static_cast<int64_t>(0), min(static_cast<int64_t>(slice), a.size - first)));
  const T* logits = static_cast<const T*>(a.logits) + r * a.size + first;
  waitForPrevious();
  letNextBegin();
  const float temperature = a.temperature[r], inverse = temperature > 0 ? 1.0f / temperature : 1.0f;
  const double uniform = temperature > 0 ? uniformAt(a.seeds[r], counterOf(a, r)) : 0.0;
  Team<V> team{shared, weights, count};

  // Each thread asks for several pieces before it uses the first.
  constexpr int kHeld = 40 / V;
  float peak = -INFINITY;
  for (int from = threadIdx.x * V; from < count; from += kHeld * kTeamThreads * V) {
    Run<T, V> held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      if (from + i * kTeamThreads * V < count) held[i].load(logits + from + i * kTeamThreads * V);
#pragma unroll
    for (int i = 0; i < kHeld; i++)
      if (from + i * kTeamThreads * V < count) {
        Run<float, V> piece;
#pragma unroll
        for (int k = 0; k < V; k++) {
          piece.set(k, held[i][k]);
          peak = fmaxf(peak, held[i][k]);
        }
        piece.store(weights + from + i * kTeamThreads * V);
      }
  }
  peak = team.one(peak, Max());
  float total = 0;
  for (int i = threadIdx.x * V; i < count; i += kTeamThreads * V) {
    Run<float, V> piece;
    piece.load(weights + i);
#pragma unroll
    for (int k = 0; k < V; k++) {
      piece.set(k, expf((piece[k] - peak) * inverse));
      total += piece[k];
    }
    piece.store(weights + i);
  }
  total = team.one(total, Add());
  float cut = a.minP[r];
  if (temperature <= 0) {
    cut = 1.0f;  // only the likeliest; the first of them is taken below
  } else {
    const bool narrowed = a.topK[r] > 0 && a.topK[r] < a.size;
    if (narrowed) cut = fmaxf(cut, team.threshold(0x1.0p-32f, static_cast<double>(a.topK[r]), false));
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
  const auto kept = [&](int i) { return i < count && weights[i] >= cut ? weights[i] : 0.0f; };
  float part = 0;
  for (int i = threadIdx.x * run; i < (threadIdx.x + 1) * run; i++) part += kept(i);
  shared.runs[threadIdx.x] = part;
  const double ofWarp = sumOfLanesUpTo(static_cast<double>(part));
  if (threadIdx.x % 32 == 31) shared.warps[threadIdx.x / 32] = ofWarp;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    const double upTo = sumOfLanesUpTo(lane < kWarps ? shared.warps[lane] : 0.0);
    if (lane == 31) shared.notes[team.round % 2].mass = upTo;
  }
  cluster.sync();
  if (threadIdx.x < 32) {
    bool found;
    double reached = 0;
    const double ofBlock = lane < kBlocks ? team.noteOf(lane).mass : 0.0, whole = __shfl_sync(0xFFFFFFFF, sumOfLanesUpTo(ofBlock), 31);
    const double target = uniform * whole;
    if (max(laneAt(ofBlock, target, reached, found), 0) == rank) {
      const int warp = max(laneAt(lane < kWarps ? shared.warps[lane] : 0.0, target, reached, found), 0);
      const int thread = warp * 32 + max(laneAt(shared.runs[warp * 32 + lane], target, reached, found), 0);
      int pick = 0;
      found = false;
      for (int i = 0; i < run && !found; i += 32) {
        const float own = i + lane < run ? kept(thread * run + i + lane) : 0.0f;
        const double before = reached;
        const int at = laneAt(own, target, reached, found);
        if (at >= 0) pick = thread * run + i + at;
        if (!found) reached = before + __shfl_sync(0xFFFFFFFF, sumOfLanesUpTo(static_cast<double>(own)), 31);
      }
      if (lane == 0)
        finishRow(a, r, first + pick, (wide(logits[pick]) - peak) * inverse - logf(total),
                  temperature > 0 && cut > 0 ? static_cast<float>(fmin(1.0, whole / total)) : 1.0f);
    }
  }
  cluster.sync();  // no block exits while others read its sums
#endif
}

// Launches the shared kernel where the device has block clusters and enough shared memory; returns whether it did.
template <typename T, int V>
bool launchShared(const SampleArgs& args, cudaStream_t stream) {
  constexpr int64_t kLarge = 16384;
  if (args.size < kLarge) return false;
  int device = 0, room = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  const int64_t slice = ((args.size + kBlocks - 1) / kBlocks + 3) / 4 * 4, bytes = slice * static_cast<int64_t>(sizeof(float));
  if (majorOfDevice() < 9 || slice > UINT16_MAX || bytes + static_cast<int64_t>(sizeof(Shared)) + 1024 > room) return false;
  const dim3 grid(static_cast<unsigned>(args.rows * kBlocks));
  launchWithMemory(sampleSharedKernel<T, V>, grid, kTeamThreads, kBlocks, static_cast<size_t>(bytes), stream, args,
                   static_cast<int>(slice));
  return true;
}

}  // namespace

void launchSample(Kind kind, const SampleArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  ATTUNE_BY_KIND(kind, {
    const bool pieces = args.size % 4 == 0 && reinterpret_cast<uintptr_t>(args.logits) % (4 * sizeof(T)) == 0;
    if (!(pieces ? launchShared<T, 4>(args, stream) : launchShared<T, 1>(args, stream)))
      sampleKernel<T><<<static_cast<unsigned>(args.rows), kSampleThreads, 0, stream>>>(args);
  })
}

}  // namespace attune
