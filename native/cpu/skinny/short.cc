// Weights in 28 bits (short.h). Of the eight inputs of a chunk seven have a vector of words each, sign and mantissa where they were and the code
// below the sign. That leaves four bits of each word, which hold the eighth.
#include "cpu/skinny/short.h"

#ifdef ATTUNE_SHORT_WEIGHTS
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "cpu/deal.h"
#include "cpu/skinny/lanes.h"
#endif

namespace attune {
#ifdef ATTUNE_SHORT_WEIGHTS
namespace {

constexpr int64_t kOctet = 8, kChunk = 8;
constexpr int64_t kChunkWords = 7 * kOctet, kWholeWords = 8 * kOctet, kLine = 16;
constexpr int kCodes = 16;
constexpr int64_t kMostWhole = 16;  // one chunk in so many at most may lie whole: of one in eight there is no gain

constexpr uint32_t kPiece = 15u << 27, kOwn = ~kPiece, kMagnitude = (1u << 27) - 1, kSign = 1u << 31;

/** Where things lie, in words. */
struct Layout {
  int64_t octets, chunks, bases, firsts, places, packed, whole, rest, end;

  Layout(int64_t n, int64_t k, int64_t entries)
      : octets(n / kBlock * 2), chunks(k / kChunk), bases(1), firsts(bases + octets), places(firsts + octets + 1) {
    packed = (places + entries + kLine - 1) / kLine * kLine;
    whole = packed + octets * chunks * kChunkWords;
    rest = whole + (entries - octets) * kWholeWords;
    end = rest + n % kBlock * k;
  }
};

/** The lowest and the highest exponent of a chunk. */
struct Range {
  uint8_t low, high;
  bool fits(int base) const { return low >= base && high < base + kCodes; }
};

Range rangeOf(const float* w, int64_t k) {
  __m256i low = _mm256_set1_epi32(255), high = _mm256_setzero_si256();
  for (int64_t c = 0; c < kOctet; c++) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + c * k));
    const __m256i exponents = _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), 24);
    low = _mm256_min_epu32(low, exponents), high = _mm256_max_epu32(high, exponents);
  }
  uint32_t lows[kChunk], highs[kChunk];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lows), low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(highs), high);
  return {static_cast<uint8_t>(*std::min_element(lows, lows + kChunk)), static_cast<uint8_t>(*std::max_element(highs, highs + kChunk))};
}

/** The base that most of these chunks fit. */
int baseOf(const std::vector<Range>& ranges) {
  std::array<int64_t, 258> change{};
  for (const Range& range : ranges) {
    if (range.high - range.low >= kCodes) continue;
    change[std::max(0, range.high - kCodes + 1)]++;
    change[range.low + 1]--;
  }
  int64_t now = 0, most = -1;
  int best = 0;
  for (int base = 0; base <= 256 - kCodes; base++) {
    now += change[base];
    if (now > most) most = now, best = base;
  }
  return best;
}

void packChunk(const float* w, int64_t k, int base, uint32_t* to) {
  Few inputs[2][4];
  fourInputs(w, k, inputs[0]);
  fourInputs(w + 4, k, inputs[1]);
  const __m256i offset = _mm256_set1_epi32(base << 23);
  const auto shortOf = [&](int64_t j) { return _mm256_sub_epi32(_mm256_castps_si256(inputs[j / 4][j % 4]), offset); };
  const __m256i last = shortOf(7);
  const __m256i sign = _mm256_srli_epi32(_mm256_and_si256(last, _mm256_set1_epi32(static_cast<int>(kSign))), 4);
  __m256i pieces = _mm256_or_si256(_mm256_and_si256(last, _mm256_set1_epi32(kMagnitude)), sign);
  for (int64_t j = 0; j < 7; j++) {
    const __m256i piece = _mm256_and_si256(_mm256_slli_epi32(pieces, 27), _mm256_set1_epi32(kPiece));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j * kOctet), _mm256_or_si256(shortOf(j), piece));
    pieces = _mm256_srli_epi32(pieces, 4);
  }
}

void copyWhole(const float* w, int64_t k, uint32_t* to) {
  for (int64_t j = 0; j < kChunk; j++)
    for (int64_t c = 0; c < kOctet; c++) __builtin_memcpy(to + j * kOctet + c, w + c * k + j, sizeof(float));
}

/** What is read of an octet. */
struct Reader {
  const uint32_t* chunk;
  const int32_t* place;  // of the next chunk that lies whole
  const float* whole;
  __m256i base;
};

constexpr int64_t kAheadWords = 8 * kChunkWords;  // asked for before they are used

// Adds a chunk's products: sums[row] += x[row][i]·w[i], an input after the other.
template <int ROWS>
inline __attribute__((always_inline)) void addPacked(Reader& reader, const float* x, int64_t k, Few (&sums)[ROWS]) {
  const uint32_t* at = reader.chunk;
  reader.chunk += kChunkWords;
#pragma GCC unroll 4
  for (int64_t line = 0; line < 4; line++) __builtin_prefetch(at + kAheadWords + line * kLine, 0, 3);
  const auto add = [&](const __m256i& own, int64_t j) __attribute__((always_inline)) {
    const Few weights = _mm256_castsi256_ps(_mm256_add_epi32(own, reader.base));
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) sums[r] = fewFused(weights, x[r * k + j], sums[r]);
  };
  __m256i last = _mm256_setzero_si256();
#pragma GCC unroll 7
  for (int j = 0; j < 7; j++) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + j * kOctet));
    const __m256i piece = _mm256_and_si256(words, _mm256_set1_epi32(kPiece));
    last = _mm256_or_si256(last, _mm256_srli_epi32(piece, 27 - 4 * j));
    add(_mm256_and_si256(words, _mm256_set1_epi32(static_cast<int>(kOwn))), j);
  }
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(last, 4), _mm256_set1_epi32(static_cast<int>(kSign)));
  add(_mm256_or_si256(_mm256_and_si256(last, _mm256_set1_epi32(kMagnitude)), sign), 7);
}

template <int ROWS>
void addWhole(Reader& reader, const float* x, int64_t k, Few (&sums)[ROWS]) {
  for (int64_t j = 0; j < kChunk; j++)
    for (int r = 0; r < ROWS; r++) sums[r] = fewFused(_mm256_loadu_ps(reader.whole + j * kOctet), x[r * k + j], sums[r]);
  reader.chunk += kChunkWords;
  reader.whole += kWholeWords;
  reader.place++;
}

struct ShortProduct {
  const SkinnyProduct<float, ShortWord>& p;
  const uint32_t* words;
  Layout at;

  explicit ShortProduct(const SkinnyProduct<float, ShortWord>& p) : p(p), words(&p.w->bits), at(p.n, p.k, *words) {}

  Reader readerOf(int64_t octet) const {
    const auto first = static_cast<int64_t>(words[at.firsts + octet]);
    return {words + at.packed + octet * at.chunks * kChunkWords, reinterpret_cast<const int32_t*>(words + at.places + first),
            reinterpret_cast<const float*>(words + at.whole + (first - octet) * kWholeWords),
            _mm256_set1_epi32(static_cast<int>(words[at.bases + octet] << 23))};
  }

  // Two octets at once for one or two rows: multiply-adds of a sum wait for one another.
  template <int ROWS, int OCTETS>
  void octets(int64_t octet) const {
    Few sums[OCTETS][ROWS];
    Reader readers[OCTETS];
    for (int o = 0; o < OCTETS; o++) {
      readers[o] = readerOf(octet + o);
      for (Few& sum : sums[o]) sum = _mm256_setzero_ps();
    }
    const float* x = p.x;
    for (int64_t chunk = 0;; chunk++, x += kChunk) {
      int64_t stop = *readers[0].place;
      if (OCTETS == 2) stop = std::min<int64_t>(stop, *readers[OCTETS - 1].place);
      for (; chunk < stop; chunk++, x += kChunk)
#pragma GCC unroll 2
        for (int o = 0; o < OCTETS; o++) addPacked<ROWS>(readers[o], x, p.k, sums[o]);
      if (chunk == at.chunks) break;
      for (int o = 0; o < OCTETS; o++) *readers[o].place == chunk ? addWhole<ROWS>(readers[o], x, p.k, sums[o]) : addPacked<ROWS>(readers[o], x, p.k, sums[o]);
    }
    for (int o = 0; o < OCTETS; o++)
      for (int r = 0; r < ROWS; r++) {
        const int64_t column = (octet + o) * kOctet;
        const Few out = p.bias == nullptr ? sums[o][r] : _mm256_add_ps(sums[o][r], _mm256_loadu_ps(p.bias + column));
        float* to = p.y + r * p.n + column;
        _mm256_storeu_ps(to, p.add ? _mm256_add_ps(_mm256_loadu_ps(to), out) : out);
      }
  }

  void block(int64_t octet) const {
    if (p.m == 1) return octets<1, 2>(octet);
    if (p.m == 2) return octets<2, 2>(octet);
    for (int64_t o = octet; o < octet + 2; o++) p.m == 3 ? octets<3, 1>(o) : octets<4, 1>(o);
  }

  // The columns after the last whole block.
  void rest() const {
    const int64_t columns = p.n % kBlock, column = p.n - columns;
    if (columns == 0) return;
    const std::unique_ptr<float[]> x(new float[kGroup * p.k]);
    pack(p.x, p.m, p.k, x.get());
    const SkinnyProduct<float> part{p.x, reinterpret_cast<const float*>(words + at.rest), p.bias == nullptr ? nullptr : p.bias + column,
                                    p.y + column, p.m, p.k, p.n, p.add};
    attune::columns<Floats>(vectorsOf(p.m), part, {x.get(), 0, p.m}, 0, columns, 0);
  }
};

}  // namespace

int64_t shorten(const float* w, int64_t n, int64_t k, const std::function<uint32_t*(int64_t words)>& memory) {
  if (n < kBlock || k < kChunk || k % kChunk != 0 || n > INT32_MAX || k > INT32_MAX) return 0;
  const int64_t octets = n / kBlock * 2, chunks = k / kChunk;
  const auto* bits = reinterpret_cast<const uint32_t*>(w);
  std::vector<uint32_t> bases(octets);
  std::vector<std::vector<uint32_t>> places(octets);
  std::atomic<int64_t> whole{0};
  const int64_t most = octets * chunks / kMostWhole;
  deal(octets, leastTasks(kOctet * k), [&](int64_t begin, int64_t end) {
    std::vector<Range> ranges(chunks);
    for (int64_t octet = begin; octet < end && whole.load(std::memory_order_relaxed) <= most; octet++) {
      for (int64_t chunk = 0; chunk < chunks; chunk++) ranges[chunk] = rangeOf(w + octet * kOctet * k + chunk * kChunk, k);
      const int base = baseOf(ranges);
      bases[octet] = static_cast<uint32_t>(base);
      for (int64_t chunk = 0; chunk < chunks; chunk++)
        if (!ranges[chunk].fits(base)) places[octet].push_back(static_cast<uint32_t>(chunk));
      whole += static_cast<int64_t>(places[octet].size());
      places[octet].push_back(static_cast<uint32_t>(chunks));
    }
  });
  if (whole > most) return 0;
  const Layout at(n, k, whole + octets);
  uint32_t* const words = memory(at.end);
  words[0] = static_cast<uint32_t>(whole + octets);
  uint32_t* place = words + at.places;
  for (int64_t octet = 0; octet < octets; octet++) {
    words[at.bases + octet] = bases[octet];
    words[at.firsts + octet] = static_cast<uint32_t>(place - words - at.places);
    place = std::copy(places[octet].begin(), places[octet].end(), place);
  }
  words[at.firsts + octets] = words[0];
  std::fill(place, words + at.packed, 0);
  deal(octets, leastTasks(kOctet * k), [&](int64_t begin, int64_t end) {
    for (int64_t octet = begin; octet < end; octet++) {
      const uint32_t* next = places[octet].data();
      uint32_t* apart = words + at.whole + (words[at.firsts + octet] - octet) * kWholeWords;
      for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const float* from = w + octet * kOctet * k + chunk * kChunk;
        uint32_t* to = words + at.packed + (octet * chunks + chunk) * kChunkWords;
        if (*next != chunk) {
          packChunk(from, k, static_cast<int>(bases[octet]), to);
          continue;
        }
        std::fill_n(to, kChunkWords, 0);
        copyWhole(from, k, apart);
        apart += kWholeWords, next++;
      }
    }
  });
  std::copy(bits + octets * kOctet * k, bits + n * k, words + at.rest);
  return at.end;
}

bool shortFits(const uint32_t* words, int64_t count, int64_t n, int64_t k) {
  if (n < kBlock || k < kChunk || k % kChunk != 0 || count < 1) return false;
  const int64_t octets = n / kBlock * 2, entries = words[0];
  if (entries < octets) return false;
  const Layout at(n, k, entries);
  if (at.end != count || words[at.firsts] != 0 || words[at.firsts + octets] != words[0]) return false;
  for (int64_t octet = 0; octet < octets; octet++) {
    const int64_t first = words[at.firsts + octet], end = words[at.firsts + octet + 1];
    if (words[at.bases + octet] > 256 - kCodes || first >= end || end > entries || words[at.places + end - 1] != at.chunks) return false;
    for (int64_t i = first + 1; i < end; i++)
      if (words[at.places + i] <= words[at.places + i - 1]) return false;
  }
  return true;
}

void skinnyProduct(const SkinnyProduct<float, ShortWord>& p) {
  const ShortProduct product(p);
  deal(p.n / kBlock, leastTasks(p.m * p.k * kBlock), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; b++) product.block(2 * b);
  });
  product.rest();
}
#else
int64_t shorten(const float*, int64_t, int64_t, const std::function<uint32_t*(int64_t)>&) { return 0; }
bool shortFits(const uint32_t*, int64_t, int64_t, int64_t) { return false; }
void skinnyProduct(const SkinnyProduct<float, ShortWord>&) {}
#endif

}  // namespace attune
