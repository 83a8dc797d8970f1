// Making and checking copies in fewer bits (short.h).
#include "cpu/short/short.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "cpu/deal.h"
#include "cpu/short/layout.h"

namespace attune {
#ifdef ATTUNE_SHORT_WEIGHTS
namespace {

constexpr int64_t kMostApart = 16;  // one chunk in so many at most may lie apart: of one in eight there is no gain

/** The lowest and the highest exponent of a chunk. */
struct Range {
  uint8_t low, high;
  bool fits(int base) const { return low >= base && high < base + kCodes; }
};

// `used`: the bits that are set in any of the weights, besides those there.
Range rangeOf(const float* w, int64_t k, __m256i& used) {
  __m256i low = _mm256_set1_epi32(255), high = _mm256_setzero_si256();
  for (int64_t c = 0; c < kStrip; c++) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + c * k));
    const __m256i exponents = _mm256_srli_epi32(_mm256_slli_epi32(bits, 1), 24);
    low = _mm256_min_epu32(low, exponents), high = _mm256_max_epu32(high, exponents);
    used = _mm256_or_si256(used, bits);
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

/** What is found before there is memory for a copy. */
struct Survey {
  std::vector<uint32_t> bases;
  std::vector<std::vector<uint32_t>> places;  // of each strip the chunks that lie apart, and the number of chunks
  std::atomic<int64_t> apart{0};
  std::atomic<bool> areHalves{true};  // whether all are numbers of bf16

  int64_t entries() const { return apart + static_cast<int64_t>(bases.size()); }
};

/** `count` weights as f32, where they are or in this thread's room. */
const float* widened(const float* w, int64_t) { return w; }
const float* widened(const c10::BFloat16* w, int64_t count) {
  static thread_local std::vector<float> room;
  room.resize(std::max<size_t>(room.size(), count));
  std::copy_n(w, count, room.begin());
  return room.data();
}

template <typename T>
void look(const T* w, int64_t k, int64_t strips, int64_t chunks, int64_t most, bool onlyHalves, Survey& survey) {
  survey.bases.resize(strips);
  survey.places.resize(strips);
  deal(strips, leastTasks(kStrip * k), [&](int64_t begin, int64_t end) {
    std::vector<Range> ranges(chunks);
    const auto goesOn = [&] {
      return survey.apart.load(std::memory_order_relaxed) <= most && !(onlyHalves && !survey.areHalves.load(std::memory_order_relaxed));
    };
    for (int64_t strip = begin; strip < end && goesOn(); strip++) {
      __m256i used = _mm256_setzero_si256();
      const float* own = widened(w + strip * kStrip * k, kStrip * k);
      for (int64_t chunk = 0; chunk < chunks; chunk++) ranges[chunk] = rangeOf(own + chunk * kChunk, k, used);
      if (!_mm256_testz_si256(used, _mm256_set1_epi32(0xFFFF))) survey.areHalves.store(false, std::memory_order_relaxed);
      const int base = baseOf(ranges);
      survey.bases[strip] = static_cast<uint32_t>(base);
      auto& places = survey.places[strip];
      for (int64_t chunk = 0; chunk < chunks; chunk++)
        if (!ranges[chunk].fits(base)) places.push_back(static_cast<uint32_t>(chunk));
      survey.apart += static_cast<int64_t>(places.size());
      places.push_back(static_cast<uint32_t>(chunks));
    }
  });
}

template <typename Short>
void packStrip(const float* w, int64_t k, uint32_t base, const uint32_t* place, int64_t chunks, uint32_t* to, uint32_t* apart) {
  const Words offset = everywhere(base << 23);
  for (int64_t chunk = 0; chunk < chunks; chunk++, w += kChunk, to += Short::kWords) {
    Words inputs[kChunk];
    turnedChunk(w, k, inputs);
    if (*place == chunk) {
      std::fill_n(to, Short::kWords, 0);
      for (const Words& words : inputs) storeWords(apart, words), apart += kStrip;
      place++;
      continue;
    }
    for (Words& words : inputs) words = minus(words, offset);
    Short::pack(inputs, to);
  }
}

}  // namespace

template <typename T>
int64_t shorten(const T* w, int64_t n, int64_t k, int64_t mostBits, const std::function<uint32_t*(int64_t words)>& memory) {
  if (!ShortLayout::takes(n, k)) return 0;
  const int64_t strips = n / kBlock * (kBlock / kStrip), chunks = k / kChunk, mostApart = strips * chunks / kMostApart;
  Survey survey;
  const bool onlyHalves = mostBits < Short28::kBits;
  look(w, k, strips, chunks, mostApart, onlyHalves, survey);
  const bool areHalves = survey.areHalves;
  if (survey.apart > mostApart || (onlyHalves && !areHalves)) return 0;
  const ShortLayout at(n, k, areHalves ? Short12::kBits : Short28::kBits, survey.entries());
  uint32_t* const words = memory(at.end);
  words[0] = static_cast<uint32_t>(survey.entries());
  words[1] = static_cast<uint32_t>(areHalves ? Short12::kBits : Short28::kBits);
  uint32_t* place = words + at.places;
  for (int64_t strip = 0; strip < strips; strip++) {
    words[at.bases + strip] = survey.bases[strip];
    words[at.firsts + strip] = static_cast<uint32_t>(place - words - at.places);
    place = std::copy(survey.places[strip].begin(), survey.places[strip].end(), place);
  }
  words[at.firsts + strips] = words[0];
  std::fill(place, words + at.packed, 0);
  deal(strips, leastTasks(kStrip * k), [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; strip++) {
      uint32_t* to = words + at.packed + strip * chunks * at.chunkWords;
      uint32_t* apart = words + at.apart + (words[at.firsts + strip] - strip) * kStrip * kChunk;
      const auto pack = areHalves ? packStrip<Short12> : packStrip<Short28>;
      pack(widened(w + strip * kStrip * k, kStrip * k), k, survey.bases[strip], survey.places[strip].data(), chunks, to, apart);
    }
  });
  std::copy(w + strips * kStrip * k, w + n * k, reinterpret_cast<float*>(words + at.rest));
  return at.end;
}

bool shortFits(const uint32_t* words, int64_t count, int64_t n, int64_t k, int64_t mostBits) {
  if (!ShortLayout::takes(n, k) || count < 2) return false;
  const int64_t entries = words[0], bits = words[1];
  if ((bits != Short12::kBits && bits != Short28::kBits) || bits > mostBits) return false;
  const ShortLayout at(n, k, bits, entries);
  if (entries < at.strips || at.end != count || words[at.firsts] != 0 || words[at.firsts + at.strips] != words[0]) return false;
  for (int64_t strip = 0; strip < at.strips; strip++) {
    const int64_t first = words[at.firsts + strip], end = words[at.firsts + strip + 1];
    if (words[at.bases + strip] > 256 - kCodes || first >= end || end > entries || words[at.places + end - 1] != at.chunks) return false;
    for (int64_t i = first + 1; i < end; i++)
      if (words[at.places + i] <= words[at.places + i - 1]) return false;
  }
  return true;
}
#else
template <typename T>
int64_t shorten(const T*, int64_t, int64_t, int64_t, const std::function<uint32_t*(int64_t)>&) {
  return 0;
}
bool shortFits(const uint32_t*, int64_t, int64_t, int64_t, int64_t) { return false; }
#endif

template int64_t shorten(const float*, int64_t, int64_t, int64_t, const std::function<uint32_t*(int64_t)>&);
template int64_t shorten(const c10::BFloat16*, int64_t, int64_t, int64_t, const std::function<uint32_t*(int64_t)>&);

}  // namespace attune
