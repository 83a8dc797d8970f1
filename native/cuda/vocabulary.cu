// The logits of a step's few rows: norm(x)·Wᵀ in bf16.
//
// The cost is reading W: 311 MB for 151,936 words of a model 1,024 wide. There is one block on each multiprocessor. A warp of its own asks
// for W through a ring in shared memory, from before x is there until the end: tiles of eight words with all of their inputs, one copy
// each (with one for each word, asking is what takes longest). The other eight warps hold a share of the inputs of x each. They multiply
// every tile and, after eight tiles, add up their sums.
//
// µs of a step of 0.6B at 1, 4 and 16 rows, of a program that runs whole steps: 465.5, 508.6 and 700.6; with a norm and cuBLAS 476.8, 519.1 and
// 714.7. By itself it adds 71 to 73 to the layers, which is 4.3 TB/s.
#include "cuda/vocabulary.h"

#include <algorithm>

#include "cuda/product_sums.cuh"

namespace attune {
namespace {

using Number = __nv_bfloat16;
constexpr int kSlice = 64;  // inputs of a warp that are neighbours: a line of W
constexpr int kTogether = 8;  // tiles that are added up and written together
constexpr int kGroupWords = 8 * kTogether, kPitch = kGroupWords + 8;

/** A ring of tiles, and sums of HALVES times eight rows, in shared memory. */
template <int INPUTS, int HALVES>
struct Layout {
  static constexpr int kTile = 8 * INPUTS * 2, kSums = kWarps * 8 * HALVES * kPitch * 4;
  static constexpr int stagesIn(int room) { return (room - kSums) / kTile; }
  // Little enough that the next kernel's blocks have room beside it, but at least 80 KB and four tiles under way.
  static constexpr int kFewest = std::max(4, (80 << 10) / kTile);
  static constexpr int kStages = std::max(stagesIn(128 << 10), std::min(kFewest, stagesIn(216 << 10)));
  static constexpr int kBytes = kStages * kTile + kSums;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline void initBarrierFor(uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(arrivals) : "memory");
}
__device__ inline void arriveAt(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sharedAddress(barrier)) : "memory");
}
__device__ inline void waitForPhase(uint64_t* barrier, unsigned phase) {
  unsigned done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(sharedAddress(barrier)), "r"(phase)
                 : "memory");
  } while (done == 0);
}
/** copyBulk of what is read once: it leaves the L2 cache first. */
__device__ inline void streamBulk(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(sharedAddress(to)),
      "l"(from), "r"(bytes), "r"(sharedAddress(barrier)), "l"(policy)
      : "memory");
}
#endif

template <int INPUTS, int HALVES>
__global__ void __launch_bounds__(kThreads + 32, 1) vocabularyKernel(const __grid_constant__ VocabularyArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Room = Layout<INPUTS, HALVES>;
  constexpr int kSlices = INPUTS / kSlice / kWarps, kEach = 2 * kSlices, kRows = 8 * HALVES;  // kEach: halves of slices
  constexpr int kSets = (HALVES + 1) / 2;  // of 16 rows
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t full[Room::kStages], empty[Room::kStages];
  __shared__ float squares[kWarps][kRows];
  float* const partial = reinterpret_cast<float*>(memory + Room::kStages * Room::kTile);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4, rows = static_cast<int>(a.rows);
  // a group of eight tiles for each block in turn
  const int tiles = static_cast<int>(a.words / 8), groups = (tiles + kTogether - 1) / kTogether;
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  if (threadIdx.x == kThreads) {
    for (int i = 0; i < Room::kStages; i++) initBarrierFor(&full[i], 1), initBarrierFor(&empty[i], kWarps);
    publishBarriers();
  }
  __syncthreads();
  letNextBegin();
  if (warp == kWarps) {
    if (lane > 0) return;
    int stage = 0;
    unsigned phase = 1;
#pragma unroll 1
    for (int group = block; group < groups; group += blocks)
#pragma unroll 1
      for (int tile = group * kTogether; tile < min(tiles, (group + 1) * kTogether); tile++) {
        waitForPhase(&empty[stage], phase);
        expectBytes(&full[stage], Room::kTile);
        streamBulk(memory + stage * Room::kTile, static_cast<const char*>(a.weight) + static_cast<int64_t>(tile) * Room::kTile, Room::kTile,
                   &full[stage]);
        if (++stage == Room::kStages) stage = 0, phase ^= 1;
      }
    return;
  }

  // —— lane (line, part) takes x[row `line`][8·part …] of each half of a slice, and W in the same order; x becomes norm(x) ——
  const auto inputOf = [&](int i) { return (i / 2 * kWarps + warp) * kSlice + i % 2 * (kSlice / 2) + part * 8; };
  uint4 norm[kEach], x[HALVES][kEach];
#pragma unroll
  for (int i = 0; i < kEach; i++) norm[i] = *reinterpret_cast<const uint4*>(static_cast<const Number*>(a.norm) + inputOf(i));
  waitForPrevious();
  const Number* const from = static_cast<const Number*>(a.x) + line * INPUTS;
#pragma unroll
  for (int i = 0; i < kEach; i++)
#pragma unroll
    for (int half = 0; half < HALVES; half++)
      x[half][i] = half * 8 + line < rows ? loadFresh(from + half * 8 * INPUTS + inputOf(i)) : uint4{};
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++) sum += squaresOf<Number>(x[half][i]);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (part == 0) squares[warp][half * 8 + line] = sum;
  }
  syncThreads<1, kThreads>();
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) sum += squares[w][half * 8 + line];
    const float scale = rsqrtf(sum / static_cast<float>(INPUTS) + a.eps);
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      unsigned* const two = reinterpret_cast<unsigned*>(&x[half][i]);
      const unsigned* const by = reinterpret_cast<const unsigned*>(&norm[i]);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const float2 v = unpack<Number>(two[k]), w = unpack<Number>(by[k]);
        two[k] = pack<Number>(wide(narrow<Number>(v.x * scale)) * w.x, wide(narrow<Number>(v.y * scale)) * w.y);
      }
    }
  }

  // Words lie 0 bytes apart modulo all banks: lanes of odd ones read the halves of a slice in the other order.
  const bool isOdd = line % 2 != 0;
  const char* const place = memory + line * INPUTS * 2 + warp * kSlice * 2 + part * 16 + (isOdd ? 64 : 0);
  const int otherHalf = isOdd ? -64 : 64;
  int stage = 0;
  unsigned phase = 0;
#pragma unroll 1
  for (int group = block; group < groups; group += blocks) {
    const int own = min(kTogether, tiles - group * kTogether);
#pragma unroll 1
    for (int j = 0; j < own; j++) {
      waitForPhase(&full[stage], phase);
      const char* const tile = place + stage * Room::kTile;
      float sums[kSets][4] = {};
#pragma unroll
      for (int i = 0; i < kSlices; i++) {
        const char* const slice = tile + i * kWarps * kSlice * 2;
        const uint4 own = *reinterpret_cast<const uint4*>(slice), other = *reinterpret_cast<const uint4*>(slice + otherHalf);
        const uint4 halves[2] = {isOdd ? other : own, isOdd ? own : other};
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const uint4 w = halves[h];
#pragma unroll
          for (int m = 0; m < kSets; m++) {
            const uint4 one = x[2 * m][2 * i + h], two = HALVES > 1 ? x[HALVES > 1 ? 2 * m + 1 : 0][2 * i + h] : uint4{};
            multiply<Number>(sums[m], one.x, two.x, one.y, two.y, w.x, w.y);
            multiply<Number>(sums[m], one.z, two.z, one.w, two.w, w.z, w.w);
          }
        }
      }
      __syncwarp();
      if (lane == 0) arriveAt(&empty[stage]);
      if (++stage == Room::kStages) stage = 0, phase ^= 1;
#pragma unroll
      for (int half = 0; half < HALVES; half++)
        if (half * 8 + line < rows)
          *reinterpret_cast<float2*>(partial + (warp * kRows + half * 8 + line) * kPitch + j * 8 + part * 2) = {
              sums[half / 2][half % 2 * 2], sums[half / 2][half % 2 * 2 + 1]};
    }
    syncThreads<1, kThreads>();
    // a warp has a row of the group, a lane two words of it
#pragma unroll 1
    for (int row = warp; row < rows; row += kWarps) {
      float2 sum{0, 0};
#pragma unroll
      for (int w = 0; w < kWarps; w++) {
        const float2 one = *reinterpret_cast<const float2*>(partial + (w * kRows + row) * kPitch + lane * 2);
        sum.x += one.x, sum.y += one.y;
      }
      if (lane / 4 < own)
        reinterpret_cast<unsigned*>(static_cast<Number*>(a.logits) + row * a.words + group * kGroupWords)[lane] =
            pack<Number>(sum.x, sum.y);
    }
    syncThreads<1, kThreads>();
  }
#endif
}

template <int INPUTS, int HALVES>
void launch(const VocabularyArgs& a, cudaStream_t stream) {
  launchWithMemory(vocabularyKernel<INPUTS, HALVES>, dim3(static_cast<unsigned>(multiprocessorsOfDevice())), kThreads + 32, 1,
                   Layout<INPUTS, HALVES>::kBytes, stream, a);
}
template <int INPUTS>
void launchRows(const VocabularyArgs& a, cudaStream_t stream) {
  if (a.rows <= 8) return launch<INPUTS, 1>(a, stream);
  if (a.rows <= 16) return launch<INPUTS, 2>(a, stream);
  if constexpr (INPUTS == 1024) launch<INPUTS, 4>(a, stream);  // wider ones would need too many registers
}

}  // namespace

bool vocabularyFits(const VocabularyArgs& a) {
  constexpr int64_t kFewestWords = 32768;  // of fewer a block has so little that its beginning and its end count most
  constexpr int kMostMemory = 220 << 10;
  return a.rows > 0 && a.rows <= (a.inputs == 1024 ? 32 : 16) && a.words % 8 == 0 && a.words >= kFewestWords && majorOfDevice() >= 9 &&
         attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= kMostMemory &&
         (a.inputs == 1024 || a.inputs == 2048 || a.inputs == 2560);
}

void launchVocabulary(const VocabularyArgs& a, cudaStream_t stream) {
  if (a.inputs == 1024)
    launchRows<1024>(a, stream);
  else if (a.inputs == 2048)
    launchRows<2048>(a, stream);
  else
    launchRows<2560>(a, stream);
}

}  // namespace attune
