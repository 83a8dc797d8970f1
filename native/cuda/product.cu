// y = x·Wᵀ for the few rows of a decoding step, fused with the RMS norm of x before it, and after it a bias, adding to y, or
// silu(gate)·up. The cost is reading W once. So each warp starts loading its part of W before the kernel that computes x has ended,
// and everything else happens while the loads are under way.
//
// A block computes 8·TILES columns on tensor cores. Each of its eight warps takes a share of the inputs, 32 at a time; their sums are
// added in shared memory, always in the same order. Where there are too few columns to keep all multiprocessors busy, a cluster of
// blocks splits the inputs further; without a norm, whose weights leave no registers for it, x is asked for AHEAD chunks before it is
// needed. x is best left to the L1 cache: kernels that took its room for shared memory were slower. The norm's 1/√(mean x² + ε) is one
// number per row and is multiplied in at the end.
#include "cuda/norm_products.cuh"

namespace attune {
namespace {

constexpr int kChunk = 32;

// TILES tiles of 8 rows of W, DEPTH chunks of each under way; for Gated the first half are gates and the second half the values they
// gate. x has up to 16 rows. Two blocks fit on a multiprocessor: one of this kernel and
// one of the next, which loads its weights meanwhile.
template <typename Number, int TILES, int DEPTH, int AHEAD, Form FORM, bool NORM>
__global__ void __launch_bounds__(kThreads, 2) productKernel(ProductArgs a, int splits) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  __shared__ ProductShared<TILES, 1> shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, line = lane / 4, part = lane % 4;
  const int rank = static_cast<int>(blockIdx.x) % splits, first = static_cast<int>(blockIdx.x) / splits * kOwn;
  const int inputs = static_cast<int>(a.inputs), tiles = static_cast<int>(a.outputs / 8), chunks = inputs / kChunk;
  const int share = (chunks + splits - 1) / splits, begin = rank * share + warp, end = min(chunks, (rank + 1) * share);

  // lane (line, part) of a tile holds W[row `line`][8·part …] of a chunk; x is taken in the same order, so the order does not matter
  const Number* base = static_cast<const Number*>(a.weight) + line * inputs + part * 8;
  const auto tileOf = [&](int j) {
    return (j < kOwn ? 0 : tiles) + min(first + j % kOwn, tiles - 1);
  };  // tiles beyond the last are computed but not written
  uint4 held[DEPTH][TILES];
  const auto ask = [&](int depth, int chunk) {
#pragma unroll
    for (int j = 0; j < TILES; j++) held[depth][j] = stream(base + tileOf(j) * 8 * inputs + chunk * kChunk);
  };
#pragma unroll
  for (int depth = 0; depth < DEPTH; depth++)
    if (begin + depth * kWarps < end) ask(depth, begin + depth * kWarps);
  const Number* normWeights = static_cast<const Number*>(a.norm) + part * 8;
  NormProducts<Number, 2> normed;
  if constexpr (NORM && std::is_same_v<Number, __half>) {  // which brings them into the L1 cache too
    for (int chunk = begin; chunk < end; chunk += kWarps) normed.see(*reinterpret_cast<const uint4*>(normWeights + chunk * kChunk));
    normed.begin();
  } else if constexpr (NORM) {
    for (int chunk = warp; chunk < chunks; chunk += kWarps) prefetch(normWeights + chunk * kChunk);
  }
  letNextBegin();
  waitForPrevious();

  const auto slice = [&](int half, int chunk) {
    const int row = half * 8 + line;
    return row < a.rows ? *reinterpret_cast<const uint4*>(static_cast<const Number*>(a.x) + row * inputs + chunk * kChunk + part * 8)
                        : uint4{};
  };
  uint4 low[AHEAD + 1], high[AHEAD + 1];  // the last: of the chunk that is being multiplied
#pragma unroll
  for (int i = 0; i < AHEAD; i++) {
    const int chunk = begin + i * kWarps;
    if (chunk < end) low[i] = slice(0, chunk), high[i] = slice(1, chunk);
  }
  float square[1][2] = {};
  float sums[1][TILES][4];
#pragma unroll
  for (int j = 0; j < TILES; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) sums[0][j][i] = 0;
  for (int from = begin; from < end; from += DEPTH * kWarps) {
#pragma unroll
    for (int depth = 0; depth < DEPTH; depth++) {
      const int chunk = from + depth * kWarps;
      if (chunk >= end) break;
      uint4 &one = low[AHEAD], &two = high[AHEAD];
      if constexpr (AHEAD == 0) {
        one = slice(0, chunk), two = slice(1, chunk);
      } else {
        constexpr int kSlots = AHEAD;
        const int slot = depth % kSlots, next = chunk + AHEAD * kWarps;
        one = low[slot], two = high[slot];
        if (next < end) low[slot] = slice(0, next), high[slot] = slice(1, next);
      }
      if constexpr (NORM) {
        const uint4 norm = *reinterpret_cast<const uint4*>(normWeights + chunk * kChunk);
        square[0][0] += squaresOf<Number>(one), square[0][1] += squaresOf<Number>(two);
        normed.multiply(one, two, norm, sums[0]);
      }
#pragma unroll
      for (int j = 0; j < TILES; j++) {
        const uint4& w = held[depth][j];
        multiply<Number>(sums[0][j], one.x, two.x, one.y, two.y, w.x, w.y);
        multiply<Number>(sums[0][j], one.z, two.z, one.w, two.w, w.z, w.w);
      }
      if (chunk + DEPTH * kWarps < end) ask(depth, chunk + DEPTH * kWarps);
    }
  }

  if constexpr (NORM) normed.finish(sums[0]);
  finishProduct<Number, TILES, 1, FORM, NORM>(a, first, splits, shared, sums, square);
#endif
}

int64_t blocksOf(int64_t outputs, int64_t tiles) { return (outputs / 8 + tiles - 1) / tiles; }

template <typename Number, int TILES, int DEPTH, int AHEAD, Form FORM, bool NORM>
void launchSplit(const ProductArgs& a, unsigned splits, cudaStream_t stream) {
  constexpr int kOwn = FORM == Form::Gated ? TILES / 2 : TILES;
  const dim3 grid(static_cast<unsigned>(blocksOf(a.outputs, kOwn)) * splits);
  launchInRow<kSharedOfStep>(productKernel<Number, TILES, DEPTH, AHEAD, FORM, NORM>, grid, kThreads, splits, stream, a,
                             static_cast<int>(splits));
}

// With a norm: roughly as many columns per block as still give every multiprocessor a block.
template <typename Number, Form FORM>
void launchNormed(const ProductArgs& a, cudaStream_t stream) {
  const int64_t multiprocessors = multiprocessorsOfDevice(), tiles = a.outputs / 8;
  if constexpr (FORM == Form::Gated) {
    if (tiles <= multiprocessors) return launchSplit<Number, 2, 4, 0, FORM, true>(a, 1, stream);
    if (tiles <= 2 * multiprocessors) return launchSplit<Number, 4, 4, 0, FORM, true>(a, 1, stream);
    return launchSplit<Number, 6, 3, 0, FORM, true>(a, 1, stream);
  } else {
    if (tiles <= 2 * multiprocessors) return launchSplit<Number, 2, 4, 0, FORM, true>(a, 1, stream);
    return launchSplit<Number, 4, 4, 0, FORM, true>(a, 1, stream);
  }
}

/** Without a norm: how the inputs are split, so that all blocks are there at once; none where there would be too many. */
enum class Splits { Four, FourOfSix, Two, None };
Splits splitsOf(int64_t outputs) {
  const int64_t multiprocessors = multiprocessorsOfDevice();
  if (4 * blocksOf(outputs, 4) <= multiprocessors) return Splits::Four;
  if (4 * blocksOf(outputs, 6) <= 2 * multiprocessors) return Splits::FourOfSix;
  return 2 * blocksOf(outputs, 4) <= 2 * multiprocessors ? Splits::Two : Splits::None;
}

template <typename Number>
void launchPlain(const ProductArgs& a, cudaStream_t stream) {
  switch (splitsOf(a.outputs)) {
    case Splits::Four: return launchSplit<Number, 4, 4, 1, Form::Plain, false>(a, 4, stream);
    case Splits::FourOfSix: return launchSplit<Number, 6, 2, 2, Form::Plain, false>(a, 4, stream);
    case Splits::Two: return launchSplit<Number, 4, 2, 2, Form::Plain, false>(a, 2, stream);
    case Splits::None: return;  // productFits says so
  }
}

template <typename Number>
void launch(const ProductArgs& a, cudaStream_t stream) {
  if (a.norm == nullptr) return launchPlain<Number>(a, stream);
  return a.gated ? launchNormed<Number, Form::Gated>(a, stream) : launchNormed<Number, Form::Plain>(a, stream);
}

}  // namespace

// At most 16 rows, one set, but for the shapes of staged_rows.cu. With two sets a block's registers leave no room for the next kernel's:
// on an H200 the four products of a layer of the 0.6B model took 35 µs at 24 and 32 rows and cuBLAS with a norm and a SwiGLU kernel 30,
// those of the 8B model 208 and 125.
//
// At 16 rows, a layer of the 0.6B, 1.7B, 4B and 8B model: 20, 39, 70 and 117 µs, with cuBLAS 29, 47, 74 and 115. Only the gate and up
// matrix of the 8B model, 1.5 MB for each multiprocessor, streams so much better by cuBLAS (50 against 62) that two more kernels pay.
bool productFits(Kind kind, int64_t rows, int64_t inputs, int64_t outputs, bool norm, bool gated) {
  constexpr int64_t kMostOfProcessor = 1 << 20;
  if (rows > 16) return stagedRowsFit(kind, rows, inputs, outputs, norm, gated);
  const int64_t columns = gated ? 2 * outputs : outputs;
  if (inputs % kChunk != 0 || columns % 16 != 0 || inputs * columns >= INT32_MAX / 2 || majorOfDevice() < 9) return false;
  return norm ? inputs * columns * 2 <= multiprocessorsOfDevice() * kMostOfProcessor : splitsOf(columns) != Splits::None;
}

void launchProduct(Kind kind, const ProductArgs& a, cudaStream_t stream) {
  if (a.rows == 0 || (a.rows > 16 ? launchStagedRows(kind, a, stream) : launchStagedProduct(kind, a, stream))) return;
  if (kind == Kind::Float16) return launch<__half>(a, stream);
  launch<__nv_bfloat16>(a, stream);
}

}  // namespace attune
