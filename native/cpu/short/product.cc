// Products by copies in fewer bits (short.h): a strip of columns is read once for up to sixteen rows, a sum in f32 for each in registers.
#include <algorithm>
#include <memory>

#include "cpu/deal.h"
#include "cpu/short/layout.h"

namespace attune {
#ifdef ATTUNE_SHORT_WEIGHTS
namespace {

// Rows that are multiplied together, and those for which two strips are: multiply-adds of a sum wait for one another.
#if defined(__AVX512F__)
constexpr int kRows = 16, kLoneRows = 0;
#else
constexpr int kRows = 4, kLoneRows = 2;
#endif

/** What is read of a strip. */
struct Reader {
  const uint32_t* chunk;
  const int32_t* place;  // of the next chunk that lies apart
  const float* apart;
  Words base;
};

template <typename Short, int ROWS>
inline __attribute__((always_inline)) void addChunk(Reader& reader, const float* x, Weights (&sums)[ROWS]) {
  const uint32_t* at = reader.chunk;
  reader.chunk += Short::kWords;
#pragma GCC unroll 8
  for (int64_t line = 0; line < Short::kWords; line += 16) __builtin_prefetch(at + Short::kAhead + line, 0, 3);
  Short::unpack(
      at, reader.base, [&](const Weights& weights, int j) __attribute__((always_inline)) {
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) sums[r] = addedProduct(weights, x[r * kChunk + j], sums[r]);
      });
}

template <typename Short, int ROWS>
void addApart(Reader& reader, const float* x, Weights (&sums)[ROWS]) {
  for (int64_t j = 0; j < kChunk; j++)
    for (int r = 0; r < ROWS; r++) sums[r] = addedProduct(loadWeights(reader.apart + j * kStrip), x[r * kChunk + j], sums[r]);
  reader.chunk += Short::kWords;
  reader.apart += kChunk * kStrip;
  reader.place++;
}

/** T: the dtype of x and y. */
template <typename Short, typename T>
class Product {
 public:
  explicit Product(const SkinnyProduct<T, ShortWord>& p)
      : p_(p), words_(&p.w->bits), at_(p.n, p.k, Short::kBits, *words_), x_(packed(p)) {}

  void operator()() const {
    deal(p_.n / kBlock, leastTasks(p_.m * p_.k * kBlock), [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; b++) block(b * (kBlock / kStrip));
    });
    rest();
  }

 private:
  static constexpr bool kIsFloat = std::is_same_v<T, float>;

  const SkinnyProduct<T, ShortWord>& p_;
  const uint32_t* words_;
  ShortLayout at_;
  std::unique_ptr<float[]> x_;  // of each group of rows [chunks][rows][kChunk]; null for one row of f32, which lies so

  static std::unique_ptr<float[]> packed(const SkinnyProduct<T, ShortWord>& p) {
    if (kIsFloat && p.m == 1) return nullptr;
    std::unique_ptr<float[]> to(new float[p.m * p.k]);
    for (int64_t row = 0; row < p.m; row += kRows) {
      const int64_t rows = std::min<int64_t>(kRows, p.m - row);
      float* group = to.get() + row * p.k;
      for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < p.k; i += kChunk) std::copy_n(p.x + (row + r) * p.k + i, kChunk, group + rows * i + r * kChunk);
    }
    return to;
  }

  Reader readerOf(int64_t strip) const {
    const auto first = static_cast<int64_t>(words_[at_.firsts + strip]);
    return {words_ + at_.packed + strip * at_.chunks * at_.chunkWords, reinterpret_cast<const int32_t*>(words_ + at_.places + first),
            reinterpret_cast<const float*>(words_ + at_.apart + (first - strip) * kStrip * kChunk),
            everywhere(words_[at_.bases + strip] << 23)};
  }

  template <int ROWS, int STRIPS>
  void strips(int64_t strip, int64_t row) const {
    Weights sums[STRIPS][ROWS];
    Reader readers[STRIPS];
    for (int s = 0; s < STRIPS; s++) {
      readers[s] = readerOf(strip + s);
      for (Weights& sum : sums[s]) sum = noWeights();
    }
    const float* x = groupOf(row);
    for (int64_t chunk = 0;; chunk++, x += ROWS * kChunk) {
      int64_t stop = *readers[0].place;
      if (STRIPS == 2) stop = std::min<int64_t>(stop, *readers[STRIPS - 1].place);
      for (; chunk < stop; chunk++, x += ROWS * kChunk)
#pragma GCC unroll 2
        for (int s = 0; s < STRIPS; s++) addChunk<Short, ROWS>(readers[s], x, sums[s]);
      if (chunk == at_.chunks) break;
      for (int s = 0; s < STRIPS; s++)
        *readers[s].place == chunk ? addApart<Short, ROWS>(readers[s], x, sums[s]) : addChunk<Short, ROWS>(readers[s], x, sums[s]);
    }
    for (int s = 0; s < STRIPS; s++)
      for (int r = 0; r < ROWS; r++) finish(sums[s][r], row + r, (strip + s) * kStrip);
  }

  const float* groupOf(int64_t row) const {
    if constexpr (kIsFloat)
      if (x_ == nullptr) return p_.x;
    return x_.get() + row * p_.k;
  }

  // Adds the bias and what is to be added to.
  void finish(const Weights& sum, int64_t row, int64_t column) const {
    if constexpr (kIsFloat) {
      const Weights out = p_.bias == nullptr ? sum : added(sum, loadWeights(p_.bias + column));
      float* to = p_.y + row * p_.n + column;
      storeWeights(to, p_.add ? added(loadWeights(to), out) : out);
    } else {
      float sums[kStrip];
      storeWeights(sums, sum);
      finishRounded(sums, kStrip, row, column);
    }
  }

  // The same in bf16: rounded once the bias is added and, if y is added to, once more.
  void finishRounded(const float* sums, int64_t columns, int64_t row, int64_t column) const {
    T* y = p_.y + row * p_.n + column;
    for (int64_t c = 0; c < columns; c++) {
      const T out(p_.bias == nullptr ? sums[c] : sums[c] + static_cast<float>(p_.bias[column + c]));
      y[c] = p_.add ? T(static_cast<float>(y[c]) + static_cast<float>(out)) : out;
    }
  }

  // A block's strips for so many rows.
  template <int ROWS = kRows>
  void group(int64_t rows, int64_t strip, int64_t row) const {
    if constexpr (ROWS > 1)
      if (rows < ROWS) return group<ROWS - 1>(rows, strip, row);
    constexpr int together = ROWS <= kLoneRows ? 2 : 1;
    for (int64_t s = strip; s < strip + kBlock / kStrip; s += together) strips<ROWS, together>(s, row);
  }

  void block(int64_t strip) const {
    for (int64_t row = 0; row < p_.m; row += kRows) group(std::min<int64_t>(kRows, p_.m - row), strip, row);
  }

  // The columns after the last whole block.
  void rest() const {
    const int64_t count = p_.n % kBlock, column = p_.n - count;
    if (count == 0) return;
    const auto* w = reinterpret_cast<const float*>(words_ + at_.rest);
    if constexpr (kIsFloat) {
      restOf({p_.x, w, p_.bias == nullptr ? nullptr : p_.bias + column, p_.y + column, p_.m, p_.k, p_.n, p_.add}, count);
    } else {
      const std::unique_ptr<float[]> x(new float[p_.m * p_.k]), sums(new float[p_.m * count]);
      std::copy_n(p_.x, p_.m * p_.k, x.get());
      restOf({x.get(), w, nullptr, sums.get(), p_.m, p_.k, count}, count);
      for (int64_t row = 0; row < p_.m; row++) finishRounded(sums.get() + row * count, count, row, column);
    }
  }

  static void restOf(const SkinnyProduct<float>& part, int64_t count) {
    const std::unique_ptr<float[]> x(new float[kGroup * part.k]);
    for (int64_t row = 0; row < part.m; row += kGroup) {
      const int64_t rows = std::min(kGroup, part.m - row);
      pack(part.x + row * part.k, rows, part.k, x.get());
      columns<Floats>(vectorsOf(rows), part, {x.get(), row, rows}, 0, count, 0);
    }
  }
};

}  // namespace

void skinnyProduct(const SkinnyProduct<float, ShortWord>& p) {
  p.w[1].bits == Short12::kBits ? Product<Short12, float>(p)() : Product<Short28, float>(p)();
}
void skinnyProduct(const SkinnyProduct<c10::BFloat16, ShortWord>& p) {
  const Product<Short12, c10::BFloat16> product(p);
  product();
}
#else
void skinnyProduct(const SkinnyProduct<float, ShortWord>&) {}
void skinnyProduct(const SkinnyProduct<c10::BFloat16, ShortWord>&) {}
#endif

}  // namespace attune
