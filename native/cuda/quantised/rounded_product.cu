// Products of many rows with x in 8 bits (rounded_rows.cu), on compute capability 9.0:
//   y = (x's codes · W's codes · the row's scale + x's outlier columns · those of W's codes) · the output's scale / 127 + bias.
//
// A block multiplies 128 rows of x with 256 rows of W, 64 × 256 in each of two warpgroups, in integers. Chunks of 128 inputs of both go
// through rings in shared memory. A further warp requests them, and continues with the next tile while this one is written. The outlier
// columns, 64 numbers of two bytes, are one more chunk: the sums are converted to floats in their registers, and its products are added to
// them.
//
// Two blocks of a cluster have the same rows of W: each requests half of them, for both. This halves what the L2 cache delivers for W. With
// gates (SwiGLU), one half are rows of the gates and the other the same rows of up, so that a thread has both numbers of a result.
//
// On an H200 at its 700 W the four products of a layer of 8B take 4.00 ms at 13,859 rows, cuBLAS's in bf16 7.88. Without clusters gates and
// up took 2.20 ms instead of 2.08. No faster: 16 columns of tiles at a time, or one warpgroup two chunks ahead of the other.
#include "cuda/quantised/rounded_product.h"

#include <algorithm>

#include "cuda/numbers.cuh"
#include "cuda/quantised/quantised.h"

#if CUDART_VERSION >= 12050
#include "cuda/wide/hopper.cuh"
#include "cuda/wide/tensor_map.h"

namespace attune {
namespace {

using Number = __nv_bfloat16;

constexpr int kRows = 128, kColumns = 256, kStages = 4, kCluster = 2;
constexpr int kTogether = 8;  // columns of tiles that are worked on at a time, so that their part of W stays in the L2 cache
constexpr int kLine = 128;  // bytes of a chunk's row: 128 codes, or the columns apart
constexpr int kX = kRows * kLine, kStage = kX + kColumns * kLine;
constexpr int kWarps = kRows / 16, kThreads = 32 * kWarps + 128;  // four more warps, as registers are given away by four; one of them works
constexpr int kPiece = 64, kPieceBytes = 16 * kPiece * 2;  // so many columns of a warp's 16 rows are written at once, from two places
constexpr int kShared = kStages * (kStage + 16) + kWarps * 2 * kPieceBytes;
static_assert(kColumnsApart * 2 == kLine);

struct Sizes {
  const float *rowScales, *scales;
  const Number* bias;  // or null
  int rows, inputs, outputs;
  bool adds;
};

// silu(gate)·up of two columns of bf16
__device__ unsigned gatedPair(unsigned gates, unsigned ups) {
  const auto gated = [](float gate, float up) { return __fdividef(gate, 1.0f + __expf(-gate)) * up; };
  return packBFloat16(gated(__uint_as_float(gates << 16), __uint_as_float(ups << 16)),
                      gated(__uint_as_float(gates & 0xFFFF0000), __uint_as_float(ups & 0xFFFF0000)));
}

template <bool GATED>
__global__ void __launch_bounds__(kThreads, 1)
    roundedProductKernel(const __grid_constant__ CUtensorMap xMap, const __grid_constant__ CUtensorMap wMap,
                         const __grid_constant__ CUtensorMap xApartMap, const __grid_constant__ CUtensorMap wApartMap,
                         const __grid_constant__ CUtensorMap yMap, const Sizes a) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  char* const written = memory + kStages * kStage;
  uint64_t *const full = reinterpret_cast<uint64_t*>(written + kWarps * 2 * kPieceBytes), *const empty = full + kStages;

  const int lane = threadIdx.x % 32, warp = __shfl_sync(0xFFFFFFFF, threadIdx.x / 32, 0);
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const int chunks = (a.inputs + kLine - 1) / kLine;  // of codes; one more has the columns apart
  constexpr int kHalves = GATED ? 2 : 1, kResults = kColumns / kHalves;  // columns of y that a tile has
  const int results = a.outputs / kHalves;
  const int tileRows = (a.rows + kRows * kCluster - 1) / (kRows * kCluster), tileColumns = (results + kResults - 1) / kResults;

  // calls use(first row, first column) for every tile of this block
  const auto eachTile = [&](auto&& use) {
    for (int tile = static_cast<int>(blockIdx.x) / kCluster; tile < tileRows * tileColumns;
         tile += static_cast<int>(gridDim.x) / kCluster) {
      const int before = tile / (kTogether * tileRows) * kTogether, within = tile - before * tileRows;
      const int width = min(kTogether, tileColumns - before);
      use((within / width * kCluster + rank) * kRows, (before + within % width) * kResults);
    }
  };

  if (threadIdx.x == kWarps * 32) {
    fetchMap(&xMap), fetchMap(&wMap), fetchMap(&xApartMap), fetchMap(&wApartMap), fetchMap(&yMap);
    for (int i = 0; i < kStages; i++) initBarrier(&full[i], 1), initBarrier(&empty[i], kWarps * kCluster);
    publishBarriers();
  }
  __syncthreads();
  clusterArrive(), clusterWait();  // the other block has barriers
  waitForPrevious();

  struct Place {  // the chunk of the ring that is next, and whether this is an even or odd use of it
    int stage = 0;
    unsigned phase = 0;
    __device__ void next() {
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
  } place;
  if (warp >= kWarps) {
    lowerRegisters<40>();
    if (threadIdx.x == kWarps * 32)
      eachTile([&](int firstRow, int firstColumn) {
        for (int chunk = 0; chunk <= chunks; chunk++, place.next()) {
          const bool codes = chunk < chunks;
          const CUtensorMap *const ofX = codes ? &xMap : &xApartMap, *const ofW = codes ? &wMap : &wApartMap;
          const int input = codes ? chunk * kLine : 0;
          char* const stage = memory + place.stage * kStage;
          uint64_t* const arrived = &full[place.stage];
          waitForPhase(&empty[place.stage], place.phase ^ 1);  // at the first use this is true at once
          expectBytes(arrived, kStage);
          copyTile(stage, ofX, input, firstRow, arrived);
          copyTileTo((1 << kCluster) - 1, stage + kX + rank * (kColumns / kCluster * kLine), ofW, input,
                     firstColumn + rank * (GATED ? results : kColumns / kCluster), arrived);
        }
      });
    __syncwarp();
  } else {
    raiseRegisters<232>();
    const int group = warp / 4, rowOfWarp = warp * 16, line = lane / 4, pair = lane % 4 * 2;
    const auto free = [&](int stage) {  // in all blocks that its next chunk comes from
      __syncwarp();
      if (lane < kCluster) arriveAt(&empty[stage], lane);
    };
    const unsigned pieces = sharedAddress(written) + warp * 2 * kPieceBytes;
    // whose address this lane gives to storeMatrices: the matrices are rows 0 … 7 and 8 … 15 of 8 columns, and then of the next 8
    const int givenRow = lane % 16, givenColumn = lane / 16;

    eachTile([&](int firstRow, int firstColumn) {
      const int row = firstRow + rowOfWarp + line;
      const float upper = row < a.rows ? __ldg(a.rowScales + row) : 0.0f, lower = row + 8 < a.rows ? __ldg(a.rowScales + row + 8) : 0.0f;
      const auto multiply = [&](auto& sums) {
        const char* const stage = memory + place.stage * kStage;
        const uint64_t x = describeRows(stage + group * (64 * kLine)), w = describeRows(stage + kX);
        waitForPhase(&full[place.stage], place.phase);
        beginMultiplying();
#pragma unroll
        for (int s = 0; s < 4; s++) multiplyGroup(sums, x + 2 * s, w + 2 * s, true);
        commitMultiplying();
      };

      int sums[kColumns / 2];
#pragma unroll
      for (int i = 0; i < kColumns / 2; i++) sums[i] = 0;  // else they would take registers while the tile before is written
      holdSums(sums);
      int before = 0;
#pragma unroll 1
      for (int chunk = 0; chunk < chunks; chunk++, place.next()) {
        multiply(sums);
        waitForMultiplying<1>();
        if (chunk > 0) free(before);
        before = place.stage;
      }
      waitForMultiplying<0>();
      holdSums(sums);
      free(before);

      float values[kColumns / 2];
#pragma unroll
      for (int i = 0; i < kColumns / 2; i++) values[i] = static_cast<float>(sums[i]) * (i % 4 < 2 ? upper : lower);
      holdSums(values);
      multiply(values);

      float2 scales[kHalves][kPiece / 8];
      const auto readScales = [&](int piece) {
#pragma unroll
        for (int j = 0; j < kPiece / 8; j++) {
          const int column = firstColumn + piece * kPiece + j * 8 + pair;
#pragma unroll
          for (int h = 0; h < kHalves; h++)
            scales[h][j] = column < results ? __ldg(reinterpret_cast<const float2*>(a.scales + h * results + column)) : float2{0, 0};
        }
      };
      readScales(0);
      waitForMultiplying<0>();
      holdSums(values);
      free(place.stage);
      place.next();

#pragma unroll
      for (int p = 0; p < kResults / kPiece; p++) {
        const unsigned to = pieces + p % 2 * kPieceBytes;
        unsigned pairs[kPiece / 4];  // two columns each: of this line and of the one 8 below
#pragma unroll
        for (int j = 0; j < kPiece / 8; j++) {
          const int column = firstColumn + p * kPiece + j * 8 + pair;
          float2 added{0, 0};
          if (!GATED && a.bias != nullptr && column < results)
            added = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(a.bias + column));
          unsigned ofHalf[kHalves][2];
#pragma unroll
          for (int h = 0; h < kHalves; h++) {
            const float left = scales[h][j].x * (1.0f / 127.0f), right = scales[h][j].y * (1.0f / 127.0f);
            const float* const v = values + h * (kColumns / 4) + p * (kPiece / 2) + 4 * j;
            ofHalf[h][0] = packBFloat16(fmaf(v[0], left, added.x), fmaf(v[1], right, added.y));
            ofHalf[h][1] = packBFloat16(fmaf(v[2], left, added.x), fmaf(v[3], right, added.y));
          }
#pragma unroll
          for (int i = 0; i < 2; i++) pairs[2 * j + i] = GATED ? gatedPair(ofHalf[0][i], ofHalf[kHalves - 1][i]) : ofHalf[0][i];
        }
        if (p + 1 < kResults / kPiece) readScales(p + 1);
        if (lane == 0) waitForStoredTiles<1>();  // this place is free again
        __syncwarp();
#pragma unroll
        for (int j = 0; j < kPiece / 8; j += 2)
          storeMatrices(to + givenRow * (kPiece * 2) + (((j + givenColumn) ^ (givenRow % 8)) << 4), pairs[2 * j], pairs[2 * j + 1],
                        pairs[2 * j + 2], pairs[2 * j + 3]);
        showToCopies();
        __syncwarp();
        if (lane == 0) {
          const auto* piece = written + warp * 2 * kPieceBytes + p % 2 * kPieceBytes;
          const int column = firstColumn + p * kPiece, row = firstRow + rowOfWarp;
          a.adds ? addTile(piece, &yMap, column, row) : storeTile(piece, &yMap, column, row);
        }
      }
    });
    if (lane == 0) waitForStoredTiles<0>();
    __syncwarp();
  }
  clusterArrive(), clusterWait();  // the other block may still arrive at barriers here
#endif
}

}  // namespace

bool roundedProductFits(const RoundedProduct& a) {
  const bool isHopper = majorOfDevice() == 9 && attributeOfDevice(cudaDevAttrComputeCapabilityMinor) == 0;
  const int64_t tiles = (a.rows / kRows + 2) * (a.outputs / kColumns + 1), results = a.gated ? a.outputs / 2 : a.outputs;
  return isHopper && encoder() != nullptr && a.inputs % 16 == 0 && results % 8 == 0 && a.outputs % 8 == 0 && a.stride % 8 == 0 &&
         a.rows < INT32_MAX / 2 && a.inputs < INT32_MAX / 2 && a.outputs < INT32_MAX / 2 && tiles < INT32_MAX / 2;
}

void launchRoundedProduct(const RoundedProduct& p, cudaStream_t stream) {
  const int64_t results = p.gated ? p.outputs / 2 : p.outputs, columns = p.gated ? kColumns / 2 : kColumns;
  const int64_t tileRows = (p.rows + kRows * kCluster - 1) / (kRows * kCluster), tileColumns = (results + columns - 1) / columns;
  const int64_t clusters = std::min<int64_t>(tileRows * tileColumns, multiprocessorsOfDevice() / kCluster);
  const auto bytes = CU_TENSOR_MAP_DATA_TYPE_UINT8, numbers = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const Sizes sizes{p.rowScales,
                    p.scales,
                    static_cast<const Number*>(p.bias),
                    static_cast<int>(p.rows),
                    static_cast<int>(p.inputs),
                    static_cast<int>(p.outputs),
                    p.adds};
  const auto kernel = p.gated ? roundedProductKernel<true> : roundedProductKernel<false>;
  launchWithMemory(kernel, dim3(static_cast<unsigned>(clusters * kCluster)), kThreads, kCluster, kShared, stream,
                   mapOf(bytes, p.codes, 1, p.rows, p.inputs, p.inputs, kRows, kLine),
                   mapOf(bytes, p.weights, 1, p.outputs, p.inputs, p.inputs, kColumns / kCluster, kLine),
                   mapOf(p.apart, 1, p.rows, kColumnsApart, kRows, kColumnsApart),
                   mapOf(p.weightsApart, 1, p.outputs, kColumnsApart, kColumns / kCluster, kColumnsApart),
                   mapOf(numbers, p.y, 1, p.rows, results, p.stride * 2, 16, kPiece), sizes);
}

}  // namespace attune
#else  // a CUDA without tensor maps
namespace attune {
bool roundedProductFits(const RoundedProduct&) { return false; }
void launchRoundedProduct(const RoundedProduct&, cudaStream_t) {}
}  // namespace attune
#endif
