// The logits of a step's few rows: norm(x)·Wᵀ in bf16.
//
// The cost is reading W: 311 MB for 151,936 words of a model 1,024 wide. There is one block on each multiprocessor. A separate warp
// requests W through a ring in shared memory, from before x is there until the end: tiles of eight words with all of their inputs, one copy
// each (with one copy per word, issuing them takes longest). The other eight warps each hold a share of the inputs of x. They multiply
// every tile and, after eight tiles, add up their sums.
//
// µs of a step of 0.6B at 1, 4 and 16 rows, of a program that runs whole steps: 465.5, 508.6 and 700.6; with a norm and cuBLAS 476.8, 519.1
// and 714.7. By itself it adds 71 to 73 to the layers, which is 4.3 TB/s.
//
// With a packed W (packed/cells.cuh) a warp assembles its cell of a tile in registers. µs of this kernel at 1 and 16 rows, plain and
// packed: a model 1,024 wide 69.9 and 54.0, 76.2 and 56.7; 2,560 wide 169.9 and 133.8, 188.5 and 150.2.
#include "cuda/vocabulary.h"

#include <algorithm>

#include "cuda/packed/cells.cuh"
#include "cuda/packed/pack.h"
#include "cuda/product_sums.cuh"

namespace attune {
namespace {

using Number = __nv_bfloat16;
constexpr int kSlice = 64;  // inputs of a warp that are neighbours: a line of W
constexpr int kTogether = 8;  // tiles that are added up and written together
constexpr int kGroupWords = 8 * kTogether, kPitch = kGroupWords + 8;

/** A ring of tiles, and sums of HALVES times eight rows, in shared memory. */
template <int INPUTS, int HALVES, bool PACKED>
struct Layout {
  static constexpr int kTile = PACKED ? kWarps * packed::Cell<INPUTS / kSlice / kWarps>::kBytes : 8 * INPUTS * 2;
  // A stage of the ring: of small tiles two, which a warp multiplies side by side.
  static constexpr int kTilesOfStage = PACKED && INPUTS == 1024 ? 2 : 1, kStage = kTilesOfStage * kTile;
  static constexpr int kSums = kWarps * 8 * HALVES * kPitch * 4;
  static constexpr int stagesIn(int room) { return (room - kSums) / kStage; }
  // Little enough that the next kernel's blocks have room beside it, but at least 80 KB and four tiles under way.
  static constexpr int kFewest = std::max(4, (80 << 10) / kStage);
  static constexpr int kStages = std::max(stagesIn(128 << 10), std::min(kFewest, stagesIn(216 << 10)));
  static constexpr int kBytes = kStages * kStage + kSums;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
__device__ inline void initBarrierFor(uint64_t* barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(arrivals) : "memory");
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
#endif

template <int INPUTS, int HALVES, bool PACKED>
__global__ void __launch_bounds__(kThreads + 32, 1) vocabularyKernel(const __grid_constant__ VocabularyArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  using Room = Layout<INPUTS, HALVES, PACKED>;
  constexpr int kSlices = INPUTS / kSlice / kWarps, kEach = 2 * kSlices, kRows = 8 * HALVES;  // kEach: halves of slices
  constexpr int kSets = (HALVES + 1) / 2, kTilesOfStage = Room::kTilesOfStage;  // sets of 16 rows
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t full[Room::kStages], empty[Room::kStages];
  __shared__ float squares[kWarps][kRows];
  float* const partial = reinterpret_cast<float*>(memory + Room::kStages * Room::kStage);
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
    const char* const tilesOfW = PACKED ? static_cast<const char*>(a.packed) + packedCellsAt(a.words) : static_cast<const char*>(a.weight);
    int stage = 0;
    unsigned phase = 1;
#pragma unroll 1
    for (int group = block; group < groups; group += blocks)
#pragma unroll 1
      for (int tile = group * kTogether, end = min(tiles, tile + kTogether); tile < end; tile += kTilesOfStage) {
        const int bytes = min(kTilesOfStage, end - tile) * Room::kTile;
        waitForPhase(&empty[stage], phase);
        expectBytes(&full[stage], bytes);
        streamBulk(memory + stage * Room::kStage, tilesOfW + static_cast<int64_t>(tile) * Room::kTile, bytes, &full[stage]);
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
  using Cell = packed::Cell<kSlices>;
  const char* const place = memory + (PACKED ? warp * Cell::kBytes : line * INPUTS * 2 + warp * kSlice * 2 + part * 16 + (isOdd ? 64 : 0));
  const int otherHalf = isOdd ? -64 : 64;
  const auto unpackSlice = [&](const char* tile, int i, unsigned(&w)[8]) {
    if constexpr (PACKED) {
      packed::unpackPiece<kSlices>(tile, i, lane, w);
    } else {
      const char* const slice = tile + i * kWarps * kSlice * 2;
      const uint4 own = *reinterpret_cast<const uint4*>(slice), other = *reinterpret_cast<const uint4*>(slice + otherHalf);
      const uint4 first = isOdd ? other : own, second = isOdd ? own : other;
      w[0] = first.x, w[1] = first.y, w[2] = first.z, w[3] = first.w;
      w[4] = second.x, w[5] = second.y, w[6] = second.z, w[7] = second.w;
    }
  };
  constexpr int kAtOnce = kTilesOfStage > 1 ? kSlices : 1;  // slices that are unpacked before they are multiplied
  const auto eachSlice = [&](const auto& body) {
#pragma unroll
    for (int k = 0; k < kAtOnce; k++)
#pragma unroll
      for (int t = 0; t < kTilesOfStage; t++) body(k, t);
  };
  int stage = 0;
  unsigned phase = 0;
#pragma unroll 1
  for (int group = block; group < groups; group += blocks) {
    const int own = min(kTogether, tiles - group * kTogether);
    float2 powers{1, 1};  // of a lane's two words of the group, in `packed`
    if (PACKED && lane / 4 < own) powers = static_cast<const float2*>(a.packed)[group * (kGroupWords / 2) + lane];
#pragma unroll 1
    for (int j = 0; j < own; j += kTilesOfStage) {
      waitForPhase(&full[stage], phase);
      const char* const tile = place + stage * Room::kStage;
      packed::Strays strays[kTilesOfStage];
      if constexpr (PACKED)
#pragma unroll
        for (int t = 0; t < kTilesOfStage; t++) strays[t] = packed::straysOf<kSlices>(tile + t * Room::kTile, lane);
      float sums[kTilesOfStage][kSets][4] = {};  // of a tile that is not there, of any numbers: nobody reads them
#pragma unroll
      for (int i = 0; i < kSlices; i += kAtOnce) {
        unsigned w[kTilesOfStage][kAtOnce][8];
        eachSlice([&](int k, int t) { unpackSlice(tile + t * Room::kTile, i + k, w[t][k]); });
        if constexpr (PACKED) {
          bool hasStrays = false;
#pragma unroll
          for (int t = 0; t < kTilesOfStage; t++) hasStrays |= strays[t].lanes != 0;
          if (hasStrays) eachSlice([&](int k, int t) { packed::placeStrays(strays[t], i + k, lane, w[t][k]); });
        }
        eachSlice([&](int k, int t) {
#pragma unroll
          for (int h = 0; h < 2; h++)
#pragma unroll
            for (int m = 0; m < kSets; m++) {
              const int at = 2 * (i + k) + h;
              const uint4 one = x[2 * m][at], two = HALVES > 1 ? x[HALVES > 1 ? 2 * m + 1 : 0][at] : uint4{};
              multiply<Number>(sums[t][m], one.x, two.x, one.y, two.y, w[t][k][4 * h], w[t][k][4 * h + 1]);
              multiply<Number>(sums[t][m], one.z, two.z, one.w, two.w, w[t][k][4 * h + 2], w[t][k][4 * h + 3]);
            }
        });
      }
      __syncwarp();
      if (lane == 0) arriveAt(&empty[stage]);
      if (++stage == Room::kStages) stage = 0, phase ^= 1;
#pragma unroll
      for (int t = 0; t < kTilesOfStage; t++)
#pragma unroll
        for (int half = 0; half < HALVES; half++)
          if (half * 8 + line < rows)
            *reinterpret_cast<float2*>(partial + (warp * kRows + half * 8 + line) * kPitch + (j + t) * 8 + part * 2) = {
                sums[t][half / 2][half % 2 * 2], sums[t][half / 2][half % 2 * 2 + 1]};
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
      if (PACKED) sum = {fmaf(sum.x, powers.x, 0.0f), fmaf(sum.y, powers.y, 0.0f)};  // a word of zeros has the power 0, and no −0
      if (lane / 4 < own)
        reinterpret_cast<unsigned*>(static_cast<Number*>(a.logits) + row * a.words + group * kGroupWords)[lane] =
            pack<Number>(sum.x, sum.y);
    }
    syncThreads<1, kThreads>();
  }
#endif
}

template <int INPUTS, int HALVES, bool PACKED>
void launch(const VocabularyArgs& a, cudaStream_t stream) {
  launchWithMemory(vocabularyKernel<INPUTS, HALVES, PACKED>, dim3(static_cast<unsigned>(multiprocessorsOfDevice())), kThreads + 32, 1,
                   Layout<INPUTS, HALVES, PACKED>::kBytes, stream, a);
}
template <int INPUTS, int HALVES>
void launchKind(const VocabularyArgs& a, cudaStream_t stream) {
  if (a.packed != nullptr)
    launch<INPUTS, HALVES, true>(a, stream);
  else
    launch<INPUTS, HALVES, false>(a, stream);
}
template <int INPUTS>
void launchRows(const VocabularyArgs& a, cudaStream_t stream) {
  if (a.rows <= 8) return launchKind<INPUTS, 1>(a, stream);
  if (a.rows <= 16) return launchKind<INPUTS, 2>(a, stream);
  if constexpr (INPUTS == 1024) launchKind<INPUTS, 4>(a, stream);  // wider ones would need too many registers
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
