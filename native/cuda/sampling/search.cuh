// Which words top-k and top-p keep. Each block counts its words by logit; then each adds up all blocks' counts, and so finds the smallest
// logit that stays.
#pragma once
#include "cuda/sampling/tiles.cuh"

namespace attune {

// bf16 needs no masses by bins: those of equal logits follow from their number
template <typename T>
constexpr int kBinParts = kUnusedBits<T> == 16 ? 1 : 2;

// weights below e^-30 of the largest do not count in f32
constexpr float kLeast = 9.4e-14f;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
/** Adds 1 to a number in shared memory for each of two bf16 that is at least as large as its neighbour in `least`. */
__device__ inline void addIfFrom(unsigned least, unsigned two, unsigned toOfLow, unsigned toOfHigh) {
  asm volatile(
      "{\n.reg .pred p, q;\nsetp.ge.bf16x2 p|q, %0, %1;\n@p red.shared.add.u32 [%2], 1;\n@q red.shared.add.u32 [%3], 1;\n}" ::"r"(two),
      "r"(least), "r"(toOfLow), "r"(toOfHigh)
      : "memory");
}

template <typename T>
struct Search {
  using Row = Tiles<T>;
  using Whole = unsigned long long;
  static constexpr int kOctave = 23 - kUnusedBits<T>, kEach = kBins / kThreads;  // kEach: bins of a thread

  static constexpr bool kIsBFloat16 = std::is_same_v<T, __nv_bfloat16>;
  // bf16 from ±2⁻¹⁰ to ±2⁶, each in a bin of its own, and all that are closer to 0 in one: most rows' words, which are counted as they
  // arrive, before anything is known of the row.
  static constexpr int kNear = 0x3A80, kFar = kNear + kBins / 2 - 1;
  __device__ static Range common() { return {-kFar, kFar, kNear, 0}; }

  Row& row;
  unsigned* bins;  // of the block's words: counts; or masses, low bits and then high ones

  __device__ void clear() {
    Run<unsigned, kBinParts<T> * kEach> none;
    none.clear();
    none.store(bins + threadIdx.x * kBinParts<T> * kEach);
    if (threadIdx.x == 0) row.shared.ofHole[0] = row.shared.ofHole[1] = 0;
  }

  // Counts the words of a piece from `least` on, each order in a bin of its own, and what is above the range in its last one; NaN is not
  // counted. Whether a word may be in the hole.
  __device__ bool countPlain(const Range& range, float least, const typename Row::Piece& piece) const {
    const int hole = 4 * range.hole, low = 4 * range.without(range.low), start = static_cast<int>(sharedAddress(bins)) - low;
    const __nv_bfloat162 from = __float2bfloat162_rn(least), to = __float2bfloat162_rn(valueOf<T>(range.high));
    __nv_bfloat162 nearest = from;
#pragma unroll
    for (int i = 0; i < Row::kPiece / 2; i++) {
      const __nv_bfloat162 both = __hmin2_nan(reinterpret_cast<const __nv_bfloat162&>(piece.words()[i]), to);
      const unsigned two = reinterpret_cast<const unsigned&>(both);
      const auto binOf = [&](unsigned magnitude, bool isNegative) {
        const int beyond = max(static_cast<int>(magnitude), hole);
        return static_cast<unsigned>(isNegative ? start + hole - beyond : start - hole + beyond);
      };
      addIfFrom(reinterpret_cast<const unsigned&>(from), two, binOf(two << 2 & 0x1FFFC, (two & 0x8000) != 0),
                binOf(two >> 14 & 0x1FFFC, static_cast<int>(two) < 0));
      const __nv_bfloat162 sizes = __habs2(both);
      nearest = i == 0 ? sizes : __hmin2(nearest, sizes);
    }
    return fminf(wide(__low2bfloat16(nearest)), wide(__high2bfloat16(nearest))) <= valueOf<T>(range.hole);
  }
  // Counts a tile's words in the common range. The mass of those in its hole, relative to 2^−base.
  __device__ float countTile(int i, float base) const {
    float ofHole = 0;
#pragma unroll 1
    for (int j = 0; j < Row::kPieces; j++) {
      typename Row::Piece piece;
      piece.load(row.tile(i) + (j * 32 + row.lane) * Row::kPiece);
      if (!countPlain(common(), valueOf<T>(-kFar), piece)) continue;
#pragma unroll
      for (int k = 0; k < Row::kPiece; k++)
        ofHole += fabsf(piece[k]) <= valueOf<T>(kNear) ? powerOf2(fmaf(piece[k], row.scale, base)) : 0.0f;
    }
    return sumOfLanes(ofHole);
  }
  // A bit for each word of a piece in the hole.
  __device__ unsigned wordsInHole(const Range& range, const typename Row::Piece& piece) const {
    unsigned words = 0;
#pragma unroll
    for (int k = 0; k < Row::kPiece; k++) {
      const int order = orderOf<T>(piece, k);
      if (abs(order) <= range.hole && order >= range.low) words |= 1u << k;
    }
    return words;
  }

  // Counts the block's words in the range by bins, or sums their mass. Equal logits are counted alone: their mass follows.
  __device__ void fill(const Finding& finding) {
    const Range range = finding.range;
    const float least = valueOf<T>(range.low);
    const bool byMass = finding.byMass && range.shift > 0, weighsHole = finding.byMass && range.shift == 0 && range.hole > 0;
    const bool isPlain = kIsBFloat16 && range.shift == 0 && range.high >= orderOf<T>(row.peak);  // the usual case
    const unsigned reach = static_cast<unsigned>(range.high) - static_cast<unsigned>(range.low);
    Whole ofHole = 0;
#pragma unroll 1
    for (int i = row.warp; i < row.own; i += kWarps) {
      if (row.shared.tiles[row.rank * row.perBlock + i].x < least) continue;
#pragma unroll 1
      for (int j = 0; j < Row::kPieces; j++) {
        typename Row::Piece piece;
        const T* from = row.tile(i) + (j * 32 + row.lane) * Row::kPiece;
        piece.load(from);
        if (!row.anyFrom(least, piece)) continue;
        unsigned weighed = 0;  // a bit for each word whose mass is needed
        if (isPlain) {
          if constexpr (kIsBFloat16) weighed = countPlain(range, least, piece) && weighsHole ? wordsInHole(range, piece) : 0;
        } else {
#pragma unroll
          for (int k = 0; k < Row::kPiece; k++) {
            const int order = orderOf<T>(piece, k);
            const bool isIn = static_cast<unsigned>(order) - static_cast<unsigned>(range.low) <= reach;
            addIf(isIn && !byMass, &bins[range.bin(order)], 1);
            if (isIn && (byMass || (weighsHole && abs(order) <= range.hole))) weighed |= 1u << k;
          }
        }
        for (; weighed != 0; weighed &= weighed - 1) {
          const float z = wide(from[__ffs(static_cast<int>(weighed)) - 1]), w = row.weight(z);
          const Mass mass(w < finding.least ? 0.0f : w);
          if (!byMass) {
            ofHole += mass.whole();
            continue;
          }
          const int bin = range.bin(orderOf<T>(z));
          atomicAdd(&bins[bin], mass.low);
          atomicAdd(&bins[kBins + bin], mass.high);
        }
      }
    }
    if (!weighsHole) return;
    ofHole = sumOfLanes(ofHole);
    constexpr Whole kLow = (1 << kLowOfHole) - 1;
    if (row.lane < 2) atomicAdd(&row.shared.ofHole[row.lane], static_cast<unsigned>(row.lane == 0 ? ofHole & kLow : ofHole >> kLowOfHole));
  }

  // Adds what all blocks have in neighbouring places, four blocks at a time.
  template <int N>
  __device__ void addBlocks(const unsigned* mine, Whole (&sums)[N], int shift) const {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int from = 0; from < row.blocks; from += kAtOnce) {
      Run<unsigned, N> of[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; i++) {
        of[i].clear();
        if (from + i < row.blocks) of[i].load(ofBlock(mine, from + i));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; i++)
#pragma unroll
        for (int k = 0; k < N; k++) sums[k] += static_cast<Whole>(of[i].words()[k]) << shift;
    }
  }

  // The highest bin at which the measure from the top down reaches the target, or −1; each block finds it by itself. `target` 0 stands for
  // top-p of the measure of all. `above` becomes the measure of the bins above that one, or of all.
  __device__ int select(const Range& range, bool byMass, float least, bool isCommon, double topP, Whole& above, Whole& target) {
    Shared& shared = row.shared;
    const int first = kBins - kEach * (static_cast<int>(threadIdx.x) + 1);  // threads go from the top down
    Whole measures[kEach] = {};
    addBlocks(bins + first, measures, 0);
    if (byMass && range.shift > 0) {
      if constexpr (kBinParts<T> == 2) addBlocks(bins + kBins + first, measures, 16);
    } else if (byMass) {
      Whole ofHole[2] = {};
      const int hole = range.hole > 0 ? range.bin(0) - first : -1;
      if (hole >= 0 && hole < kEach) {
        if (isCommon)  // top-k's cut is not within it: it is kept or cut off as a whole
          ofHole[0] = row.weight(valueOf<T>(-range.hole)) < least ? 0 : __float2ull_rn(shared.hole * 0x1.0p32f);
        else
          addBlocks(shared.ofHole, ofHole, 0);
      }
      Whole any = 0;
#pragma unroll
      for (int k = 0; k < kEach; k++) any |= measures[k];
      if (any > 0)
#pragma unroll
        for (int k = 0; k < kEach; k++) {
          const float w = row.weight(valueOf<T>(range.first(first + k)));
          measures[k] = k == hole ? ofHole[0] + (ofHole[1] << kLowOfHole) : w < least ? 0 : measures[k] * Mass(w).whole();
        }
    }
    Whole sum = 0;
#pragma unroll
    for (int k = 0; k < kEach; k++) sum += measures[k];
    Whole before = sumOfLanesUpTo(sum), all = above;
    if (row.lane == 31) shared.sums[row.warp] = before;
    if (threadIdx.x == 0) shared.bin = -1;
    __syncthreads();
    const Whole ofWarp = row.lane < kWarps ? shared.sums[row.lane] : 0;
    all += sumOfLanes(ofWarp);
    before += above - sum + sumOfLanes(row.lane < row.warp ? ofWarp : 0);
    if (target == 0) target = static_cast<Whole>(fmax(1.0, topP * static_cast<double>(all)));
    if (before < target && before + sum >= target) {
      int at = kEach - 1;
#pragma unroll
      for (int k = kEach - 1; k > 0; k--)
        if (at == k && before + measures[k] < target) before += measures[k], at--;
      shared.bin = first + at;
      shared.before = before;
    }
    __syncthreads();
    above = shared.bin < 0 ? all : shared.before;
    return shared.bin;
  }

  // An order below that of all words with this weight or more.
  __device__ int orderOfWeight(float w) const { return orderOf<T>(row.logitBelow(w)); }

  __device__ static Range over(int low, int high, bool mayHaveHole) { return Range::over(low, high, kOctave, mayHaveHole); }

  // Where to look first, by one warp of each block.
  __device__ void begin(const RowRule& rule) {
    const int top = orderOf<T>(row.peak);
    unsigned long long target = static_cast<unsigned long long>(rule.topK);
    int low;
    if (rule.topK > 0) {
      // As many words as there are tiles are at least as likely as the least likely of the tiles' likeliest ones.
      float least = INFINITY;
#pragma unroll 1
      for (int i = row.lane; i < row.tiles; i += 32) least = fminf(least, row.shared.tiles[i].x);
      least = -largestOfLanes(-least);
      low = orderOfWeight(0x1.0p-32f);
      if (rule.topK <= row.tiles) low = max(low, orderOf<T>(least));
    } else {
      // Words below half the average of the mass to cut off cannot be needed.
      const float wanted = rule.topP * row.total;
      target = max(1ull, __float2ull_rz(wanted * 0x1.0p32f));
      low = orderOfWeight(fmaxf(kLeast, 0.5f * (row.total - wanted) / static_cast<float>(row.args.size)));
    }
    if (row.lane > 0) return;
    const bool isCommon = kIsBFloat16 && low >= -kFar && top <= kFar;
    row.shared.finding = {isCommon ? common() : over(min(low, top), top, true), isCommon, false, rule.topK == 0, true, 0.0f, rule.minP};
    row.shared.target = target;
  }

  // A cut that keeps the words that top-k, top-p and min-p keep.
  __device__ float cut(const RowRule& rule) {
    unsigned long long above = 0, target = row.shared.target;
    Finding finding = row.shared.finding;
    if (!finding.isFilled && kIsBFloat16) {
      clear();
      __syncthreads();
    }
    while (true) {
      if (!finding.isFilled) {
        fill(finding);
        meet();
      }
      finding.isFilled = step(rule, finding, above, target);
      if (finding.done) return finding.cut;
      if (!finding.isFilled) {
        meet();  // no block reads the bins any more
        clear();
      }
      __syncthreads();
    }
  }

  // What follows from the filled bins; the same in all blocks. Returns whether they answer the next question too.
  __device__ bool step(const RowRule& rule, Finding& finding, unsigned long long& above, unsigned long long& target) {
    const Range range = finding.range;
    const int top = orderOf<T>(row.peak);
    constexpr int kLowest = -(0x7F800000 >> kUnusedBits<T>);  // −∞
    const int bin = select(range, finding.byMass, finding.least, finding.isFilled, rule.topP, above, target);
    if (bin >= 0 && !range.isSingle(bin)) {
      finding.range = over(range.first(bin), range.last(bin), finding.mayHaveHole);
      return false;
    }
    if (!finding.byMass && bin < 0 && range.low > kLowest) {  // so many are in the range, and still too few: the rest is below it
      finding.mayHaveHole = false;
      finding.range = over(kLowest, range.low - 1, false);
      return false;
    }
    const int least = bin >= 0 ? range.first(bin) : finding.byMass ? range.low : kLowest;
    const float weight = row.weight(valueOf<T>(least));
    finding.cut = fmaxf(finding.cut, weight);  // which is min-p's before
    finding.done = finding.byMass || rule.topP >= 1;
    if (finding.done) return false;
    finding.byMass = true;
    finding.least = weight;
    above = 0, target = 0;
    if (finding.isFilled || (range.shift == 0 && range.high == top && range.hole == 0)) return true;
    finding.mayHaveHole = true;  // the masses are not known
    finding.range = over(min(top, max(least, orderOfWeight(kLeast))), top, true);
    return false;
  }
};
#endif

}  // namespace attune
