// Tiles of the training attention: copied to shared memory and back, and as the two operands of products.
#pragma once
#include "cuda/training/attention/places.cuh"

namespace attune {

/** The rows of a tile that a thread copies for its block, to shared memory or back: `line`, line + kLines, … at one place in the row. */
template <typename T, int D>
struct Copier {
  static constexpr int kPieces = D / 8, kLines = kBlockThreads / kPieces;
  int line = threadIdx.x / kPieces, number = threadIdx.x % kPieces * 8;

  /** Copies ROWS rows, row i from from(i), and zeros where i is not below `real`. */
  template <int ROWS, typename From>
  __device__ void copy(T* tile, int real, From from) const {
    static_assert(ROWS % kLines == 0 && kLines % 8 == 0);
    T* to = tile + Tile<D>::at(line, number / 8);
#pragma unroll
    for (int i = 0; i < ROWS; i += kLines) copyAsync<16>(to + i * D, from(line + i) + number, line + i < real);
  }

  /** The same where the thread's rows are `step` numbers apart; `from` is its first. */
  template <int ROWS>
  __device__ void copy(T* tile, int real, const T* from, int64_t step) const {
    static_assert(ROWS % kLines == 0 && kLines % 8 == 0);
    T* to = tile + Tile<D>::at(line, number / 8);
#pragma unroll
    for (int i = 0; i < ROWS; i += kLines, from += step) copyAsync<16>(to + i * D, from, line + i < real);
  }

  /** Writes the block's rows, row i to to(i), where i is below `real`. */
  template <typename To>
  __device__ void store(const T* tile, int real, To to) const {
    const T* from = tile + Tile<D>::at(line, number / 8);
#pragma unroll
    for (int i = 0; i < kBlockRows; i += kLines)
      if (line + i < real) *reinterpret_cast<uint4*>(to(line + i) + number) = *reinterpret_cast<const uint4*>(from + i * D);
  }
  /** The same where the thread's rows are `step` numbers apart; `to` is its first. */
  __device__ void store(const T* tile, int real, T* to, int64_t step) const {
    const T* from = tile + Tile<D>::at(line, number / 8);
#pragma unroll
    for (int i = 0; i < kBlockRows; i += kLines, to += step)
      if (line + i < real) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + i * D);
  }
};

/** The rows of a tensor [tokens, heads, D], `stride` numbers from token to token. */
template <typename T, int D>
class RowsOf {
 public:
  static constexpr int kLines = Copier<T, D>::kLines;
  const int64_t step;  // from a row to the one kLines after it; 0 where that depends on the row

  template <Tiles TILES>
  __device__ RowsOf(T* tensor, int64_t stride, const Part<TILES>& part)
      : step(part.query(kLines) * part.share == kLines ? part.query(kLines) * stride : 0),
        first_(tensor + part.place.start * stride + part.group * part.share * D),
        stride_(stride),
        query_(part.query),
        share_(part.share) {}
  __device__ T* operator()(int row) const {
    const int token = query_(row);
    return first_ + token * stride_ + (row - token * share_) * D;
  }

 private:
  T* first_;
  int64_t stride_;
  Divisor query_;
  int share_;
};

/** The block copies ROWS rows from `first` on, and zeros where they are not below `real`. */
template <typename T, int D, int ROWS>
__device__ inline void copyRows(T* tile, int real, int first, const RowsOf<const T, D>& rows) {
  const Copier<T, D> copier;
  if (rows.step != 0)
    copier.template copy<ROWS>(tile, real, rows(first + copier.line) + copier.number, rows.step);
  else
    copier.template copy<ROWS>(tile, real, [&](int row) { return rows(first + row); });
}

/** The block writes its rows from `first` on, where they are below `real`. */
template <typename T, int D>
__device__ inline void storeRows(const T* tile, int real, int first, const RowsOf<T, D>& rows) {
  const Copier<T, D> copier;
  if (rows.step != 0)
    copier.store(tile, real, rows(first + copier.line) + copier.number, rows.step);
  else
    copier.store(tile, real, [&](int row) { return rows(first + row); });
}

/** Stages of KEYS keys and as many values, copied one after another: those of the prefix, then the sequence's own. */
template <typename T, int D, int KEYS, Tiles TILES>
class KeyStages {
  static constexpr bool kPrefixes = TILES == Tiles::PrefixedRows;

 public:
  static constexpr int kNumbers = 2 * KEYS * D;  // of a stage
  __device__ KeyStages(const CausalAttentionArgs& a, const Part<TILES>& part, T* shared, int count)
      : nextKeys_(static_cast<const T*>(a.k) + (part.place.prefixStart + copier_.line) * a.kStride + part.group * D + copier_.number),
        nextValues_(static_cast<const T*>(a.v) + (part.place.prefixStart + copier_.line) * a.vStride + part.group * D + copier_.number),
        keyStep_(copier_.kLines * a.kStride),
        valueStep_(copier_.kLines * a.vStride),
        shared_(shared),
        left_(count),
        prefixLeft_(part.place.prefixLength),
        gap_(part.place.start - part.place.prefixStart - prefixLeft_) {}

  __device__ const T* keys(int stage) const { return shared_ + stage % 2 * kNumbers; }
  __device__ const T* values(int stage) const { return keys(stage) + KEYS * D; }
  /** Called for each stage in order. */
  __device__ void ask(int stage) {
    T* const to = shared_ + stage % 2 * kNumbers;
    if (!kPrefixes || prefixLeft_ <= 0 || prefixLeft_ >= KEYS) {
      copier_.template copy<KEYS>(to, left_, nextKeys_, keyStep_);
      copier_.template copy<KEYS>(to + KEYS * D, left_, nextValues_, valueStep_);
    } else {
      copyBoth(to, nextKeys_, keyStep_);
      copyBoth(to + KEYS * D, nextValues_, valueStep_);
    }
    commitCopies();
    if (kPrefixes && prefixLeft_ > 0) {
      if (prefixLeft_ <= KEYS) nextKeys_ += gap_ * (keyStep_ / copier_.kLines), nextValues_ += gap_ * (valueStep_ / copier_.kLines);
      prefixLeft_ -= KEYS;
    }
    nextKeys_ += KEYS / copier_.kLines * keyStep_, nextValues_ += KEYS / copier_.kLines * valueStep_, left_ -= KEYS;
  }

 private:
  /** The last keys of the prefix and the first of the sequence. */
  __device__ void copyBoth(T* to, const T* next, int64_t step) const {
    const int64_t gap = gap_ * (step / copier_.kLines);
    copier_.template copy<KEYS>(to, left_, [&](int row) {
      return next - copier_.number + (row - copier_.line) / copier_.kLines * step + (row < prefixLeft_ ? 0 : gap);
    });
  }

  Copier<T, D> copier_;
  const T *nextKeys_, *nextValues_;
  int64_t keyStep_, valueStep_;
  T* shared_;
  int left_;
  int prefixLeft_, gap_;  // keys of the prefix that are left, tokens between its end and the sequence's first
};

/**
 * Where a lane finds the matrices of a tile's fragments: `at(step)` is of columns 16·step and after. Two pieces further is another bit of
 * the place, as tiles lie at multiples of 128 bytes.
 */
template <int D>
class Fragments {
 public:
  template <typename T>
  explicit __device__ Fragments(const T* tile) : first_(sharedAddress(tile + Tile<D>::at(threadIdx.x % 16, threadIdx.x % 32 / 16))) {}
  __device__ unsigned at(int step) const { return (first_ ^ step % 4 * 32) + step / 4 * 128; }

 private:
  unsigned first_;
};

/** The warp's sixteen rows as the left side of products. */
template <typename T, int D>
struct LeftRows {
  unsigned at[D / 16][4];
  __device__ void load(const T* tile) {
    const Fragments<D> fragments(tile);
#pragma unroll
    for (int step = 0; step < D / 16; step++) loadMatrices(at[step], fragments.at(step));
  }
};

/** c[16, 16·N] = left·tilesᵀ over N tiles of sixteen rows. */
template <typename T, int D, int N>
__device__ inline void multiplyRows(float (*c)[4], const LeftRows<T, D>& left, const T* tiles) {
  const Fragments<D> fragments(tiles);
#pragma unroll
  for (int i = 0; i < 2 * N; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) c[i][j] = 0;
#pragma unroll
  for (int step = 0; step < D / 16; step++)
#pragma unroll
    for (int n = 0; n < N; n++) {
      unsigned b[4];
      loadMatrices(b, fragments.at(step) + n * sizeof(T) * Tile<D>::kNumbers);
      const unsigned(&a)[4] = left.at[step];
      multiply<T>(c[2 * n], a[0], a[1], a[2], a[3], b[0], b[2]);
      multiply<T>(c[2 * n + 1], a[0], a[1], a[2], a[3], b[1], b[3]);
    }
}

/** sums[16, D] += left[16, 16]·tile[16, D]; `left` are two neighbouring results of multiplyRows. */
template <typename T, int D>
__device__ inline void addProduct(float (&sums)[D / 8][4], const float (*left)[4], const T* tile) {
  const Fragments<D> fragments(tile);
  const unsigned a0 = pack<T>(left[0][0], left[0][1]), a1 = pack<T>(left[0][2], left[0][3]);
  const unsigned a2 = pack<T>(left[1][0], left[1][1]), a3 = pack<T>(left[1][2], left[1][3]);
#pragma unroll
  for (int step = 0; step < D / 16; step++) {
    unsigned b[4];
    loadTransposed(b, fragments.at(step));
    multiply<T>(sums[2 * step], a0, a1, a2, a3, b[0], b[1]);
    multiply<T>(sums[2 * step + 1], a0, a1, a2, a3, b[2], b[3]);
  }
}

template <int D>
__device__ inline void clear(float (&sums)[D / 8][4]) {
#pragma unroll
  for (int i = 0; i < D / 8; i++)
#pragma unroll
    for (int j = 0; j < 4; j++) sums[i][j] = 0;
}

/** Puts the warp's rows, sums · factors (of rows g and g + 8), into a tile. */
template <typename T, int D>
__device__ inline void putRows(T* tile, const float (&sums)[D / 8][4], float first, float second) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  __syncwarp();  // all lanes have read what was there
#pragma unroll
  for (int i = 0; i < D / 8; i++) {
    *reinterpret_cast<unsigned*>(tile + Tile<D>::at(g, i) + 2 * t) = pack<T>(sums[i][0] * first, sums[i][1] * first);
    *reinterpret_cast<unsigned*>(tile + Tile<D>::at(g + 8, i) + 2 * t) = pack<T>(sums[i][2] * second, sums[i][3] * second);
  }
}

}  // namespace attune

/** The last argument with T and kSize; sizes are 64 and 128, numbers f16 and bf16. */
#define ATTUNE_BY_HALF_AND_SIZE(kind, size, ...) \
  const auto bySize = [&](auto zero) {           \
    using T = decltype(zero);                    \
    if ((size) == 64) {                          \
      constexpr int kSize = 64;                  \
      __VA_ARGS__;                               \
    } else {                                     \
      constexpr int kSize = 128;                 \
      __VA_ARGS__;                               \
    }                                            \
  };                                             \
  if ((kind) == Kind::BFloat16)                  \
    bySize(__nv_bfloat16());                     \
  else                                           \
    bySize(__half());
