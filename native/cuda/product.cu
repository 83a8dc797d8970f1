// y = x·Wᵀ for the few rows of a decoding step, fused with the RMS norm of x before it, and after it a bias, adding to y, or silu(gate)·up.
// The cost is reading W once. So copies of W are in flight from before the end of the kernel that computes x until the last tile is
// multiplied, and everything else happens meanwhile.
//
// Two blocks are on each multiprocessor, all with an equal share of the columns, so there is one wave. A block computes all of its columns,
// up to 8·TILES, at the same time on tensor cores, so that it reads x once; the two blocks of a multiprocessor share x in the L1 cache.
// Each of the block's eight warps takes a share of the inputs, 64 at a time, which are whole lines of W, and has a ring in shared memory
// that its own lanes fill and empty. Warps wait for each other only to add their sums, always in the same order. Without a gate, a cluster
// of two blocks halves the inputs, so x is read half as often. The norm's 1/√(mean x² + ε) is one number per row and is multiplied in at
// the end.
#include <algorithm>

#include "cuda/norm_products.cuh"

namespace attune {
namespace {

constexpr int kSpan = 64;  // inputs
constexpr int kTileBytes = 8 * kSpan * 2;  // of a span of a tile, which is 8 rows of W
constexpr int kGroup = 2;  // tiles that are asked for, waited for and multiplied together

template <Form FORM>
struct Plan {
  static constexpr int kTogether = FORM == Form::Gated ? 2 : 1;  // tiles that make 8 outputs
  static constexpr int kSplits = FORM == Form::Gated ? 1 : 2;  // blocks of a cluster
  static constexpr int kMostTiles = FORM == Form::Gated ? 12 : 8;  // of a block
  static constexpr int kStages = FORM == Form::Gated ? 4 : 3;  // groups of a warp under way
  static constexpr size_t kRing = kWarps * kStages * kGroup * kTileBytes;
};

// x has up to 16 rows. For Gated a tile of gates is followed by the tile of the values they gate.
template <typename Number, int TILES, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads, 2) productKernel(ProductArgs a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kTogether = Plan<FORM>::kTogether, kSplits = Plan<FORM>::kSplits, kStages = Plan<FORM>::kStages;
  constexpr int kOwnColumns = 8 * TILES / kTogether / kSplits, kWrites = (16 * kOwnColumns + kThreads - 1) / kThreads;
  constexpr int kStageBytes = kGroup * kTileBytes, kPitch = 8 * TILES + 8;
  static_assert(TILES % kGroup == 0 && kWarps * 16 * kPitch * sizeof(float) <= Plan<FORM>::kRing);
  extern __shared__ __align__(128) char memory[];
  __shared__ float squares[NORM ? kWarps : 1][16], joinedSquares[NORM ? kSplits : 1][16];
  __shared__ float joined[kSplits][kSplits > 1 ? 16 : 1][kSplits > 1 ? kOwnColumns : 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int inputs = static_cast<int>(a.inputs), outputs = static_cast<int>(a.outputs), rows = static_cast<int>(a.rows);
  const int rank = static_cast<int>(blockIdx.x) % kSplits, share = static_cast<int>(blockIdx.x) / kSplits;
  const int shares = static_cast<int>(gridDim.x) / kSplits, tiles = outputs / 8, spans = inputs / kSpan;
  const int first = share * tiles / shares, own = (share + 1) * tiles / shares - first;
  const int begin = rank * spans / kSplits + warp, end = (rank + 1) * spans / kSplits;

  // —— the ring: a copy takes four rows of a tile. The halves of odd rows are exchanged, so that lanes read from different banks. ——
  char* const ring = memory + warp * kStages * kStageBytes;
  const int copyRow = lane / 8, piece = lane % 8, ofTile = 8 * inputs;
  char* const copyTo = ring + copyRow * 128 + (piece ^ (copyRow % 2 * 4)) * 16;
  const Number* from = static_cast<const Number*>(a.weight) + (first * 8 + copyRow) * inputs + begin * kSpan + piece * 8;
  int askedSpan = begin, askedTile = 0, askedStage = 0;
  const auto ask = [&] {
    if (askedSpan < end) {
#pragma unroll
      for (int i = 0; i < kGroup; i++) {
        const int tile = (askedTile + i) / kTogether, isUp = i % kTogether;
        if (tile >= own) continue;  // what is in its place is multiplied but not written
        char* const to = copyTo + askedStage * kStageBytes + i * kTileBytes;
        copyAsync<16>(to, from + (tile + isUp * tiles) * ofTile);
        copyAsync<16>(to + 4 * 128, from + (tile + isUp * tiles) * ofTile + 4 * inputs);
      }
      askedTile += kGroup;
      if (askedTile == TILES) askedTile = 0, askedSpan += kWarps, from += kWarps * kSpan;
    }
    commitCopies();
    askedStage = askedStage + 1 == kStages ? 0 : askedStage + 1;
  };
#pragma unroll 1
  for (int i = 0; i < kStages; i++) ask();
  const Number* const normWeights = static_cast<const Number*>(a.norm) + part * 8;
  NormProducts<Number, 2> normed;
  if constexpr (NORM && std::is_same_v<Number, __half>) {  // which brings them into the L1 cache too
    for (int span = begin; span < end; span += kWarps)
      for (int half = 0; half < 2; half++) normed.see(*reinterpret_cast<const uint4*>(normWeights + span * kSpan + half * 32));
    normed.begin();
  } else if constexpr (NORM) {
    for (int span = begin; span < end; span += kWarps) prefetch(normWeights + span * kSpan);
  }
  if constexpr (kSplits > 1) clusterArrive();
  letNextBegin();
  waitForPrevious();

  // —— lane (line, part) takes x[row `line`][8·part …] of each half of a span, and W in the same order ——
  const bool hasLow = line < rows, hasHigh = line + 8 < rows;
  const Number* const x = static_cast<const Number*>(a.x) + line * inputs + part * 8;
  const auto slice = [](const Number* from, bool isThere) { return isThere ? *reinterpret_cast<const uint4*>(from) : uint4{}; };
  uint4 nextLow[2], nextHigh[2];
  const auto askX = [&](int span) {
    if (span >= end) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      nextLow[half] = slice(x + span * kSpan + half * 32, hasLow);
      nextHigh[half] = slice(x + 8 * inputs + span * kSpan + half * 32, hasHigh);
    }
  };
  askX(begin);
  // what y holds, for the outputs that this thread writes
  Number before[kWrites];
#pragma unroll
  for (int e = 0; e < kWrites; e++) {
    const int i = threadIdx.x + e * kThreads, row = i / kOwnColumns, column = rank * kOwnColumns + i % kOwnColumns;
    before[e] = FORM == Form::Plain && a.add && row < rows && column < 8 * own
                    ? static_cast<const Number*>(a.y)[row * outputs + first * 8 + column]
                    : Number(0.0f);
  }

  float sums[TILES][4] = {}, square[2] = {};
  const char* const readFrom = ring + line * 128 + (part ^ (line % 2 * 4)) * 16;
  const int otherHalf = line % 2 == 0 ? 64 : -64;
  int stage = 0;
#pragma unroll 1
  for (int span = begin; span < end; span += kWarps) {
    uint4 low[2] = {nextLow[0], nextLow[1]}, high[2] = {nextHigh[0], nextHigh[1]};
    askX(span + kWarps);
    if constexpr (NORM) {
      normed.fit(low[1], high[1], sums);  // both halves are added up under the same powers
#pragma unroll
      for (int half = 0; half < 2; half++) {
        square[0] += squaresOf<Number>(low[half]), square[1] += squaresOf<Number>(high[half]);
        normed.multiply(low[half], high[half], *reinterpret_cast<const uint4*>(normWeights + span * kSpan + half * 32), sums);
      }
    }
#pragma unroll
    for (int j = 0; j < TILES; j += kGroup) {
      waitForCopies<kStages - 1>();
      __syncwarp();
      uint4 w[kGroup][2];
#pragma unroll
      for (int i = 0; i < kGroup; i++) {
        const char* const tile = readFrom + stage * kStageBytes + i * kTileBytes;
        w[i][0] = *reinterpret_cast<const uint4*>(tile), w[i][1] = *reinterpret_cast<const uint4*>(tile + otherHalf);
      }
      __syncwarp();  // all lanes have read
      ask();
      stage = stage + 1 == kStages ? 0 : stage + 1;
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const uint4 &one = low[half], &two = high[half];
#pragma unroll
        for (int i = 0; i < kGroup; i++) multiply<Number>(sums[j + i], one.x, two.x, one.y, two.y, w[i][half].x, w[i][half].y);
#pragma unroll
        for (int i = 0; i < kGroup; i++) multiply<Number>(sums[j + i], one.z, two.z, one.w, two.w, w[i][half].z, w[i][half].w);
      }
    }
  }
  if constexpr (NORM) normed.finish(sums);

  // —— the warps' sums, in the place of the weights; a cluster's blocks share the columns ——
  float* const partial = reinterpret_cast<float*>(memory);
  if constexpr (NORM) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = square[half];
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFF, sum, 2);
      if (part == 0) squares[warp][half * 8 + line] = sum;
    }
  }
  __syncthreads();
#pragma unroll
  for (int j = 0; j < TILES; j++) {
    float* const to = partial + (warp * 16 + line) * kPitch + j * 8 + part * 2;
    if (hasLow) *reinterpret_cast<float2*>(to) = {sums[j][0], sums[j][1]};
    if (hasHigh) *reinterpret_cast<float2*>(to + 8 * kPitch) = {sums[j][2], sums[j][3]};
  }
  __syncthreads();
  const auto sumOfWarps = [&](int row, int column) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) sum += partial[(i * 16 + row) * kPitch + column];
    return sum;
  };
  const auto squaresOfWarps = [&](int row) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; i++) sum += squares[i][row];
    return sum;
  };
  if constexpr (kSplits > 1) {
    clusterWait();  // all blocks of the cluster have begun
    for (int i = threadIdx.x; i < rows * 8 * TILES; i += kThreads) {
      const int row = i / (8 * TILES), column = i % (8 * TILES);
      *ofBlock(&joined[rank][row][column % kOwnColumns], column / kOwnColumns) = sumOfWarps(row, column);
    }
    if (NORM && threadIdx.x < 16 * kSplits)
      *ofBlock(&joinedSquares[rank][threadIdx.x % 16], threadIdx.x / 16) = squaresOfWarps(threadIdx.x % 16);
    clusterArrive();
    clusterWait();
  }
#pragma unroll
  for (int e = 0; e < kWrites; e++) {
    const int i = threadIdx.x + e * kThreads, row = i / kOwnColumns, column = rank * kOwnColumns + i % kOwnColumns;
    if (row >= rows || column >= 8 * own) continue;
    const auto sumOfAll = [&](int isUp) {
      if constexpr (kSplits == 1) return sumOfWarps(row, (column / 8 * kTogether + isUp) * 8 + column % 8);
      float sum = 0;
#pragma unroll
      for (int r = 0; r < kSplits; r++) sum += joined[r][row][i % kOwnColumns];
      return sum;
    };
    float scale = 1;
    if constexpr (NORM) {
      float sum = kSplits == 1 ? squaresOfWarps(row) : 0;
      if constexpr (kSplits > 1) {
#pragma unroll
        for (int r = 0; r < kSplits; r++) sum += joinedSquares[r][row];
      }
      scale = rsqrtf(sum / static_cast<float>(inputs) + a.eps);
    }
    const int target = first * 8 + column;
    float value = scaledSum<Number>(sumOfAll(0), scale, a.bias, target);
    if constexpr (FORM == Form::Gated) {
      const float up = scaledSum<Number>(sumOfAll(1), scale, a.bias, outputs + target);
      value = gatedValue<Number>(value, up);
    }
    static_cast<Number*>(a.y)[row * outputs + target] = narrow<Number>(a.add ? wide(before[e]) + value : value);
  }
#endif
}

/** Blocks in all, and tiles of each: two blocks on each multiprocessor, or fewer where there are not so many tiles. */
struct Division {
  int64_t blocks, tiles;
};
template <Form FORM>
Division divisionOf(int64_t outputs) {
  constexpr int64_t kSplits = Plan<FORM>::kSplits;
  const int64_t all = outputs / 8, shares = std::min<int64_t>(all, 2 * multiprocessorsOfDevice() / kSplits);
  return {shares * kSplits, (all + shares - 1) / shares * Plan<FORM>::kTogether};
}

template <typename Number, int TILES, Form FORM, bool NORM>
void launchTiles(const ProductArgs& a, const Division& division, cudaStream_t stream) {
  if constexpr (TILES < Plan<FORM>::kMostTiles)
    if (division.tiles > TILES) return launchTiles<Number, TILES + kGroup, FORM, NORM>(a, division, stream);
  launchWithMemory<kSharedOfStep>(productKernel<Number, TILES, FORM, NORM>, dim3(static_cast<unsigned>(division.blocks)), kThreads,
                                  Plan<FORM>::kSplits, Plan<FORM>::kRing, stream, a);
}

template <typename Number>
void launch(const ProductArgs& a, cudaStream_t stream) {
  if (a.gated) return launchTiles<Number, kGroup, Form::Gated, true>(a, divisionOf<Form::Gated>(a.outputs), stream);
  const Division division = divisionOf<Form::Plain>(a.outputs);
  if (a.norm == nullptr) return launchTiles<Number, kGroup, Form::Plain, false>(a, division, stream);
  launchTiles<Number, kGroup, Form::Plain, true>(a, division, stream);
}

}  // namespace

// In bf16, models from 1,536 to 3,072 wide have narrow_product.cu instead. At most 16 rows: the sums of more would take twice the registers.
// For more, and where a block would have more tiles than there are registers for, narrow_product.cu takes over, or cuBLAS with a norm and a
// SwiGLU kernel.
//
// A layer on an H200 with its attention over 384 keys, µs at 16, 8 and 1 rows, and in parentheses wholly by the kernel before, which held
// W in registers: 1.7B 43.5, 39.6, 34.8 (49.3, 45.9, 41.5); 4B 67.3, 62.7, 58.4 (84.1, 78.8, 74.0); 8B 105.5, 100.8, 97.1 (132.2, 125.9,
// 121.9). The products alone at 16 rows: 34.8, 58.6 and 97.0, where reading W at 4.3 TB/s takes 23, 47 and 90. The gate and up matrix of 8B
// alone, in a row of its like: 49.9, by cuBLAS 48.6 without norm and SwiGLU.
//
// Slower: one block on each multiprocessor where six tiles are enough for it (4B 70.7 at 16 rows), or always (8B's gate and up with 24
// tiles 85); three blocks, which have 80 registers (8B's down 35.6 against 26.7); clusters of four (33.4); groups of four tiles (8B's gate
// and up 52.9); x two spans ahead (8B 109.0 against 107.3). Letting the next kernel begin after the wait instead of before: the same, but
// for one row of 1.7B (36.1 against 35.4).
bool productFits(int64_t rows, int64_t inputs, int64_t outputs, bool norm, bool gated) {
  if (rows > 16 || inputs % kSpan != 0 || outputs % 8 != 0 || inputs * outputs >= INT32_MAX / 2 || majorOfDevice() < 9) return false;
  if (gated) return norm && divisionOf<Form::Gated>(outputs).tiles <= Plan<Form::Gated>::kMostTiles;
  return divisionOf<Form::Plain>(outputs).tiles <= Plan<Form::Plain>::kMostTiles;
}

void launchProduct(Kind kind, const ProductArgs& a, cudaStream_t stream) {
  if (a.rows == 0 || launchStagedProduct(kind, a, stream)) return;
  if (kind == Kind::Float16) return launch<__half>(a, stream);
  launch<__nv_bfloat16>(a, stream);
}

}  // namespace attune
