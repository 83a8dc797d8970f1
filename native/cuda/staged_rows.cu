// staged_product.cu for 17 to 32 rows, in bf16: a block's share of W is in shared memory before x is known, a block of the next kernel is
// there too, and the sums are added in the same order, so that a row's bits are those of up to 16 rows.
//
// With a norm, x goes through shared memory: registers do not hold 32 rows of it. Two blocks ask for one half of the rows each, and a
// copy arrives in both, so the L2 cache is read half as often. Products without a norm split the inputs over a cluster, and a block's
// part of x fits into registers.
//
// A layer of the 0.6B model on an H200, 384 keys, µs at 17, 24 and 32 rows: 28.7, 31.5 and 35.2. With a norm kernel, cuBLAS and SwiGLU
// beside the same attention 43.3, 45.4 and 47.9. Tried: each block with its own copy of x (29.4, 32.5, 35.4); x in four parts (37.3 at
// 32 rows); clusters of four that split the inputs of every product (49 at 32 rows: 32 of them are needed, and with one block on a
// multiprocessor this chip holds 30). 33 to 64 rows by two passes over the same weights: 49.5, 59.6 and 67.2 at 33, 48 and 64 rows, with
// cuBLAS 48.9, 56.4 and 61.2; all 64 rows at once leave no room for the next kernel's block: 69.5.
#include "cuda/product_sums.cuh"

namespace attune {
namespace {

constexpr int kRows = 32;
constexpr int kSharing = 2;  // blocks that share x
constexpr int kParts = 2;  // of x's inputs: the first is multiplied while the second comes

template <int INPUTS>
constexpr int kStride = INPUTS * 2 + 64;  // bytes of a row: lanes of neighbouring rows read different banks

// Of a block with 8·TILES rows of W: numbers from row to row of a warp's sums; bytes of the weights, and of all warps' sums.
template <int TILES>
constexpr int kPitch = 8 * TILES + 8;
template <int TILES, int SHARE>
constexpr int kWeightBytes = kStride<SHARE> * 8 * TILES;
template <int TILES>
constexpr int kPartialBytes = sizeof(float[kWarps][kRows][kPitch<TILES>]);
template <int SHARE>
constexpr int kPartBytes = sizeof(char[kRows][kStride<SHARE / kParts>]);  // of a part of x

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
using Number = __nv_bfloat16;
constexpr int kHalves = kRows / 8, kSets = kRows / 16;
constexpr int kChunk = 32;  // inputs that a warp takes at a time

// The eight warps that compute.
__device__ inline void syncWarps() { syncThreads<1, kThreads>(); }

/** By one thread: copies tiles of 8 rows of W, `rowOf(tile)` the first of each, some tens of KB at a time (staged_product.cu says why). */
template <int TILES, int SHARE, typename RowOf>
__device__ void copyWeights(char* to, const Number* weight, int inputs, uint64_t* arrived, RowOf rowOf) {
  constexpr int kUnderWay = 32 << 10, kTiles = kUnderWay / (8 * SHARE * 2) > 0 ? kUnderWay / (8 * SHARE * 2) : 1;
#pragma unroll 1
  for (int j = 0; j < TILES; j++) {
    if (j >= kTiles) waitForBytes(&arrived[j - kTiles]);
    expectBytes(&arrived[j], 8 * SHARE * 2);
    const Number* from = weight + static_cast<int64_t>(rowOf(j)) * inputs;
#pragma unroll 1
    for (int i = 0; i < 8; i++) copyBulk(to + (j * 8 + i) * kStride<SHARE>, from + i * inputs, SHARE * 2, &arrived[j]);
  }
}

/** A lane's eight inputs of rows `line`, line + 8 … times those of W, tile by tile; `own` is the lane's place in the first tile. */
template <int TILES, int SHARE>
__device__ void multiplyChunk(float (&sums)[kSets][TILES][4], const uint4 (&x)[kHalves], const char* own) {
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    const uint4 w = *reinterpret_cast<const uint4*>(own + j * 8 * kStride<SHARE>);
#pragma unroll
    for (int m = 0; m < kSets; m++) {
      const uint4 &low = x[2 * m], &high = x[2 * m + 1];
      multiply<Number>(sums[m][j], low.x, high.x, low.y, high.y, w.x, w.y);
      multiply<Number>(sums[m][j], low.z, high.z, low.w, high.w, w.z, w.w);
    }
  }
}

/** The warps' sums of all rows, in shared memory. */
template <int TILES>
struct Partial {
  float* at;

  /** By all warps, where nobody reads any longer what lies there. */
  __device__ void store(const float (&sums)[kSets][TILES][4], int rows) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
#pragma unroll
    for (int half = 0; half < kHalves; half++)
      if (half * 8 + line < rows)
#pragma unroll
        for (int j = 0; j < TILES; j++) {
          const float* own = &sums[half / 2][j][half % 2 * 2];
          *reinterpret_cast<float2*>(at + (warp * kRows + half * 8 + line) * kPitch<TILES> + j * 8 + part * 2) = {own[0], own[1]};
        }
  }
  /** Of two neighbouring columns. */
  __device__ float2 sum(int row, int column) const {
    float2 all{0, 0};
#pragma unroll
    for (int i = 0; i < kWarps; i++) {
      const float2 one = *reinterpret_cast<const float2*>(at + (i * kRows + row) * kPitch<TILES> + column);
      all.x += one.x, all.y += one.y;
    }
    return all;
  }
};

/** Of outputs `at` and the next. */
__device__ inline float2 scaledSums(float2 sum, float scale, const void* bias, int at) {
  return {scaledSum<Number>(sum.x, scale, bias, at), scaledSum<Number>(sum.y, scale, bias, at + 1)};
}

__device__ inline unsigned* outputAt(const ProductArgs& a, int row, int target) {
  return reinterpret_cast<unsigned*>(static_cast<Number*>(a.y) + row * static_cast<int>(a.outputs) + target);
}
#endif

// After a norm: 8·TILES rows of W and all SHARE inputs.
template <int TILES, int SHARE, Form FORM>
__global__ void __launch_bounds__(kThreads + 32, 2) normedRowsKernel(ProductArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES, kEach = SHARE / kChunk / kWarps, kOfPart = kEach / kParts;
  constexpr int kCopied = SHARE * 2 / kParts, kPartStride = kStride<SHARE / kParts>, kPart = kPartBytes<SHARE>;
  static_assert(kEach % kParts == 0 && kPartialBytes<TILES> <= kWeightBytes<TILES, SHARE>);
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t arrived[TILES], xArrived[kParts], normArrived;
  __shared__ float squares[kWarps][kRows];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int first = static_cast<int>(blockIdx.x) * kOwn, rank = static_cast<int>(blockIdx.x) % kSharing;
  const int outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows), tiles = outputs / 8;
  char *const xs = memory + kWeightBytes<TILES, SHARE>, *const norms = xs + kParts * kPart;

  if (threadIdx.x == kThreads) {
    for (uint64_t& one : arrived) initBarrier(&one);
    for (uint64_t& one : xArrived) initBarrier(&one);
    initBarrier(&normArrived);
    publishBarriers();
    for (uint64_t& one : xArrived) expectBytes(&one, rows * kCopied);
  }
  clusterArrive();
  __syncthreads();
  if (warp == kWarps) {
    if (lane > 0) return;
    expectBytes(&normArrived, SHARE * 2);
    copyBulk(norms, a.norm, SHARE * 2, &normArrived);
    copyWeights<TILES, SHARE>(memory, static_cast<const Number*>(a.weight), SHARE, arrived, [&](int j) {
      return ((j < kOwn ? 0 : tiles) + min(first + j % kOwn, tiles - 1)) * 8;  // tiles beyond the last are not written
    });
    letNextBegin();
    return;
  }
  letNextBegin();
  waitForPrevious();
  clusterWait();  // the barriers of both blocks are there
  if (const int row = lane * kSharing + rank; warp == 0 && row < rows) {
    const char* const from = static_cast<const char*>(a.x) + row * SHARE * 2;
    for (int p = 0; p < kParts; p++) copyBulkToAll<kSharing>(xs + p * kPart + row * kPartStride, from + p * kCopied, kCopied, &xArrived[p]);
  }

  float sums[kSets][TILES][4] = {}, square[kHalves] = {};
  waitForBytes(&normArrived);
#pragma unroll
  for (int j = 0; j < TILES; j++) waitForBytes(&arrived[j]);
  const int place = warp * 64 + part * 16;
#pragma unroll
  for (int i = 0; i < kEach; i++) {
    if (i % kOfPart == 0) {
      waitForBytes(&xArrived[i / kOfPart]);
      __syncwarp();
    }
    // lane (line, part) takes x[row `line`][8·part …] of a chunk, and W in the same order; rows beyond the last are anything
    const uint4 norm = *reinterpret_cast<const uint4*>(norms + i * kWarps * 64 + place);
    const char* const from = xs + i / kOfPart * kPart + line * kPartStride + i % kOfPart * kWarps * 64 + place;
    uint4 x[kHalves];
#pragma unroll
    for (int half = 0; half < kHalves; half++) {
      x[half] = *reinterpret_cast<const uint4*>(from + half * 8 * kPartStride);
      square[half] += squaresOf<Number>(x[half]);
      x[half] = timesEach(x[half], norm);
    }
    multiplyChunk<TILES, SHARE>(sums, x, memory + line * kStride<SHARE> + i * kWarps * 64 + place);
  }

#pragma unroll
  for (int half = 0; half < kHalves; half++) {
    float sum = square[half];
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
    if (part == 0) squares[warp][half * 8 + line] = sum;
  }
  Partial<TILES> partial{reinterpret_cast<float*>(memory)};  // in the place of the weights
  syncWarps();
  partial.store(sums, rows);
  syncWarps();
  constexpr int kWidth = 8 * kOwn, kPairs = kWidth / 2;
  for (int i = threadIdx.x; i < rows * kPairs; i += kThreads) {
    const int row = i / kPairs, column = i % kPairs * 2, target = first * 8 + column;
    if (target >= outputs) continue;
    float all = 0;
#pragma unroll
    for (int w = 0; w < kWarps; w++) all += squares[w][row];
    const float scale = rsqrtf(all / static_cast<float>(SHARE) + a.eps);
    float2 value = scaledSums(partial.sum(row, column), scale, a.bias, target);
    if constexpr (FORM == Form::Gated) {
      const auto gated = [](float gate, float up) {
        const float rounded = wide(narrow<Number>(gate));
        return rounded / (1.0f + __expf(-rounded)) * wide(narrow<Number>(up));
      };
      const float2 up = scaledSums(partial.sum(row, column + kWidth), scale, a.bias, outputs + target);
      value = {gated(value.x, up.x), gated(value.y, up.y)};
    }
    unsigned* const y = outputAt(a, row, target);
    if (a.add) {
      const float2 old = unpack<Number>(*y);
      value = {old.x + value.x, old.y + value.y};
    }
    *y = pack<Number>(value.x, value.y);
  }
#endif
}

// Without a norm: a cluster of SPLITS blocks splits the inputs, SHARE for each.
template <int TILES, int SPLITS, int SHARE>
__global__ void __launch_bounds__(kThreads + 32, 2) splitRowsKernel(ProductArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kColumns = 8 * TILES, kEach = SHARE / kChunk / kWarps, kInputs = SHARE * SPLITS;
  constexpr int kOwnColumns = kColumns / SPLITS, kPairs = kOwnColumns / 2, kWrites = (kRows * kPairs + kThreads - 1) / kThreads;
  extern __shared__ __align__(128) char memory[];
  __shared__ uint64_t arrived[TILES];
  __shared__ __align__(8) float joined[SPLITS][kRows][kOwnColumns];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % SPLITS, first = static_cast<int>(blockIdx.x) / SPLITS * TILES;
  const int outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows), tiles = outputs / 8;

  if (threadIdx.x == kThreads) {
    for (uint64_t& one : arrived) initBarrier(&one);
    publishBarriers();
  }
  clusterArrive();
  __syncthreads();
  if (warp == kWarps) {
    if (lane > 0) return;
    copyWeights<TILES, SHARE>(memory, static_cast<const Number*>(a.weight) + rank * SHARE, kInputs, arrived,
                              [&](int j) { return min(first + j, tiles - 1) * 8; });
    letNextBegin();
    return;
  }
  letNextBegin();
  waitForPrevious();

  const Number* const from = static_cast<const Number*>(a.x) + line * kInputs + rank * SHARE + warp * kChunk + part * 8;
  uint4 x[kEach][kHalves];
#pragma unroll
  for (int i = 0; i < kEach; i++)
#pragma unroll
    for (int half = 0; half < kHalves; half++)
      x[i][half] = half * 8 + line < rows ? loadFresh(from + half * 8 * kInputs + i * kWarps * kChunk) : uint4{};
  // what y holds, for the outputs that this thread writes
  const auto targetOf = [&](int i) { return first * 8 + rank * kOwnColumns + i % kPairs * 2; };
  unsigned before[kWrites];
#pragma unroll
  for (int e = 0; e < kWrites; e++) {
    const int i = threadIdx.x + e * kThreads, row = i / kPairs;
    before[e] = a.add && row < rows && targetOf(i) < outputs ? *outputAt(a, row, targetOf(i)) : 0;
  }
  float sums[kSets][TILES][4] = {};
#pragma unroll
  for (int j = 0; j < TILES; j++) waitForBytes(&arrived[j]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEach; i++)
    multiplyChunk<TILES, SHARE>(sums, x[i], memory + line * kStride<SHARE> + (i * kWarps + warp) * 64 + part * 16);

  Partial<TILES> partial{reinterpret_cast<float*>(memory)};  // in the place of the weights
  syncWarps();
  partial.store(sums, rows);
  syncWarps();
  clusterWait();  // all blocks of the cluster have begun
  for (int i = threadIdx.x; i < rows * kColumns / 2; i += kThreads) {
    const int row = i / (kColumns / 2), column = i % (kColumns / 2) * 2;
    float* const to = ofBlock(&joined[rank][row][column % kOwnColumns], column / kOwnColumns);
    *reinterpret_cast<float2*>(to) = partial.sum(row, column);
  }
  clusterArrive();
  clusterWait();
#pragma unroll
  for (int e = 0; e < kWrites; e++) {
    const int i = threadIdx.x + e * kThreads, row = i / kPairs, target = targetOf(i);
    if (row >= rows || target >= outputs) continue;
    float2 value{0, 0};
#pragma unroll
    for (int r = 0; r < SPLITS; r++) {
      const float2 one = *reinterpret_cast<const float2*>(&joined[r][row][i % kPairs * 2]);
      value.x += one.x, value.y += one.y;
    }
    value = scaledSums(value, 1, a.bias, target);
    const float2 old = unpack<Number>(before[e]);
    if (a.add) value = {old.x + value.x, old.y + value.y};
    *outputAt(a, row, target) = pack<Number>(value.x, value.y);
  }
#endif
}

/** Whether all blocks are on the device at once, beside static memory. */
bool hasRoom(int64_t blocks, int bytes) {
  constexpr int kStatic = 8 << 10;
  const int most = attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return blocks <= multiprocessorsOfDevice() && bytes + kStatic <= most;
}

struct Shape {
  Kind kind;
  int64_t rows, inputs, outputs;
  bool norm, gated;
};

// Each says whether it takes the shape, and launches where there are arguments.
template <int TILES, int SHARE, Form FORM>
bool normed(const Shape& shape, const ProductArgs* a, cudaStream_t stream) {
  constexpr int64_t kOwn = (FORM == Form::Gated ? TILES / 2 : TILES) * kSharing;
  constexpr int kBytes = kWeightBytes<TILES, SHARE> + kPartBytes<SHARE> * kParts + SHARE * 2;
  const int64_t blocks = (shape.outputs / 8 + kOwn - 1) / kOwn * kSharing;
  if (shape.inputs != SHARE || !hasRoom(blocks, kBytes)) return false;
  const dim3 grid(static_cast<unsigned>(blocks));
  if (a != nullptr) launchWithMemory(normedRowsKernel<TILES, SHARE, FORM>, grid, kThreads + 32, kSharing, kBytes, stream, *a);
  return true;
}

template <int TILES, int SPLITS, int SHARE>
bool split(const Shape& shape, const ProductArgs* a, cudaStream_t stream) {
  constexpr int kWeights = kWeightBytes<TILES, SHARE>, kPartial = kPartialBytes<TILES>, kBytes = kWeights > kPartial ? kWeights : kPartial;
  const int64_t blocks = (shape.outputs / 8 + TILES - 1) / TILES * SPLITS;
  if (shape.inputs != SHARE * SPLITS || !hasRoom(blocks, kBytes)) return false;
  const dim3 grid(static_cast<unsigned>(blocks));
  if (a != nullptr) launchWithMemory(splitRowsKernel<TILES, SPLITS, SHARE>, grid, kThreads + 32, SPLITS, kBytes, stream, *a);
  return true;
}

bool launchIfFits(const Shape& shape, const ProductArgs* a, cudaStream_t stream) {
  if (shape.kind != Kind::BFloat16 || shape.rows > kRows || shape.outputs % 8 != 0 || majorOfDevice() < 9) return false;
  if (shape.norm) return shape.gated ? normed<6, 1024, Form::Gated>(shape, a, stream) : normed<4, 1024, Form::Plain>(shape, a, stream);
  return !shape.gated && (split<4, 4, 512>(shape, a, stream) || split<4, 4, 768>(shape, a, stream));
}

}  // namespace

bool stagedRowsFit(Kind kind, int64_t rows, int64_t inputs, int64_t outputs, bool norm, bool gated) {
  return launchIfFits({kind, rows, inputs, outputs, norm, gated}, nullptr, nullptr);
}

bool launchStagedRows(Kind kind, const ProductArgs& a, cudaStream_t stream) {
  return launchIfFits({kind, a.rows, a.inputs, a.outputs, a.norm != nullptr, a.gated}, &a, stream);
}

}  // namespace attune
