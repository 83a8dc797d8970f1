// Which words top-k and top-p keep: each block counts how many of its words have which logit. Then each adds up all blocks' counts of
// some logits, and so they find the smallest one that stays.
#pragma once
#include "cuda/sampling/tiles.cuh"

namespace attune {

// bf16 needs no masses by bins: those of equal logits follow from their number
template <typename T>
constexpr int kBinParts = kUnusedBits<T> == 16 ? 1 : 2;

// weights below e^-30 of the largest do not count in f32
constexpr float kLeast = 9.4e-14f;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <typename T, int THREADS>
struct Search {
  using Row = Tiles<T, THREADS>;
  using Whole = unsigned long long;
  static constexpr int kOctave = 23 - kUnusedBits<T>;

  Row& row;
  unsigned* bins;  // of the block's words: counts; or masses, low bits and then high ones

  __device__ void clear() {
    for (int i = threadIdx.x; i < kBinParts<T> * kBins; i += THREADS) bins[i] = 0;
    if (threadIdx.x == 0) row.shared.ofHole[0] = row.shared.ofHole[1] = 0;
  }

  // Counts the block's words in the range by bins, or sums their mass. Equal logits are counted alone: their mass follows.
  __device__ void fill(const Finding& finding) {
    const Range range = finding.range;
    const float least = valueOf<T>(range.low);
    const bool byMass = finding.byMass && range.shift > 0, weighsHole = !byMass && range.shift == 0 && range.hole > 0;
    const unsigned reach = static_cast<unsigned>(range.high) - static_cast<unsigned>(range.low);
    Whole ofHole = 0;
    for (int i = row.warp; i < row.own * Row::kPieces; i += Row::kWarps) {
      const int at = i / Row::kPieces;
      if (row.shared.tiles[row.rank * row.perBlock + at].x < least) continue;
      typename Row::Piece piece;
      const T* from = row.tile(at) + (i % Row::kPieces * 32 + row.lane) * Row::kPiece;
      piece.load(from);
      if (!row.anyFrom(least, piece)) continue;
      unsigned weighed = 0;  // a bit for each word whose mass is needed
#pragma unroll
      for (int k = 0; k < Row::kPiece; k++) {
        const int order = orderOf<T>(piece, k);
        const bool isIn = static_cast<unsigned>(order) - static_cast<unsigned>(range.low) <= reach;
        addIf(isIn && !byMass, &bins[range.bin(order)], 1);
        if (isIn && (byMass || (weighsHole && abs(order) <= range.hole))) weighed |= 1u << k;
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
    if (!weighsHole) return;
    for (int offset = 16; offset > 0; offset /= 2) ofHole += __shfl_xor_sync(0xFFFFFFFF, ofHole, offset);
    if (row.lane < 2) atomicAdd(&row.shared.ofHole[row.lane], static_cast<unsigned>(row.lane == 0 ? ofHole & 0xFFFF : ofHole >> 16));
  }

  // The sum over all blocks of a number that each has in its place.
  __device__ Whole sumOfBlocks(const unsigned* mine) const {
    unsigned of[kMostBlocks];
#pragma unroll
    for (int i = 0; i < kMostBlocks; i++) of[i] = i < row.blocks ? *ofBlock(mine, i) : 0;
    Whole sum = 0;
#pragma unroll
    for (int i = 0; i < kMostBlocks; i++) sum += of[i];
    return sum;
  }

  // The measure of a bin's words in all blocks.
  __device__ Whole measureOf(const Range& range, int bin, bool byMass, float least) const {
    const bool isHole = byMass && range.shift == 0 && !range.isSingle(bin);
    const Whole low = sumOfBlocks(isHole ? &row.shared.ofHole[0] : &bins[bin]);
    if (!byMass) return low;
    if (isHole || range.shift > 0) return low + (sumOfBlocks(isHole ? &row.shared.ofHole[1] : &bins[kBins + bin]) << 16);
    if (low == 0) return 0;
    const float w = row.weight(valueOf<T>(range.first(bin)));
    return w < least ? 0 : low * Mass(w).whole();
  }

  // The highest bin at which the measure from the top down reaches the target, or −1; the blocks share the bins. `target` 0 stands for
  // top-p of the measure of all. `above` becomes the measure of the bins above that one, or of all.
  __device__ int select(const Range& range, bool byMass, float least, double topP, Whole& above, Whole& target) {
    Shared& shared = row.shared;
    const int used = range.bin(range.high) + 1, share = (used + row.blocks - 1) / row.blocks, each = (share + THREADS - 1) / THREADS;
    const int first = row.rank * share + static_cast<int>(threadIdx.x) * each;  // from the top; a thread's bins are neighbours
    const int end = min(first + each, min((row.rank + 1) * share, used));
    Whole sum = 0;
#pragma unroll 1
    for (int i = first; i < end; i++) sum += measureOf(range, used - 1 - i, byMass, least);
    Whole before = sumOfLanesUpTo(sum);
    if (row.lane == 31) shared.sums[row.warp] = before;
    if (threadIdx.x == 0) shared.bin = -1;
    __syncthreads();
    Whole all = 0;
    before -= sum;
#pragma unroll
    for (int i = 0; i < Row::kWarps; i++) {
      const Whole of = shared.sums[i];
      all += of;
      if (i < row.warp) before += of;
    }
    if (static_cast<int>(threadIdx.x) < row.blocks) *ofBlock(&shared.ofBlocks[row.rank], threadIdx.x) = all;
    meet();
    all = above;
    before += above;
#pragma unroll
    for (int i = 0; i < kMostBlocks; i++) {
      const Whole of = i < row.blocks ? shared.ofBlocks[i] : 0;
      all += of;
      if (i < row.rank) before += of;
    }
    if (target == 0) target = static_cast<Whole>(fmax(1.0, topP * static_cast<double>(all)));
    if (before < target && before + sum >= target) {
      int i = first;
      for (Whole next = 0; i + 1 < end && before + (next = measureOf(range, used - 1 - i, byMass, least)) < target; i++) before += next;
#pragma unroll
      for (int to = 0; to < kMostBlocks; to++)
        if (to < row.blocks) *ofBlock(&shared.bin, to) = used - 1 - i, *ofBlock(&shared.before, to) = before;
    }
    meet();
    above = shared.bin < 0 ? all : shared.before;
    return shared.bin;
  }

  // An order below that of all words with this weight or more.
  __device__ int orderOfWeight(float w) const { return orderOf<T>(fmaxf(row.peak + logf(w) / row.inverse, -3e38f)) - 1; }

  __device__ static Range over(int low, int high, bool mayHaveHole) { return Range::over(low, high, kOctave, mayHaveHole); }

  // Where to look first, by one warp of each block.
  __device__ void begin(const RowRule& rule) {
    const int top = orderOf<T>(row.peak);
    unsigned long long target = static_cast<unsigned long long>(rule.topK);
    int low;
    if (rule.topK > 0) {
      // As many words as there are tiles are at least as likely as the least likely of the tiles' likeliest ones.
      float least = INFINITY;
      for (int i = row.lane; i < row.tiles; i += 32) least = fminf(least, row.shared.tiles[i].x);
      least = -largestOfLanes(-least);
      low = orderOfWeight(0x1.0p-32f);
      if (rule.topK <= row.tiles) low = max(low, orderOf<T>(least));
    } else {
      // Words below half the average of the mass to cut off cannot be needed.
      const float wanted = rule.topP * row.total;
      target = static_cast<unsigned long long>(fmax(1.0, static_cast<double>(wanted) * 0x1.0p32));
      low = orderOfWeight(fmaxf(kLeast, 0.5f * (row.total - wanted) / static_cast<float>(row.args.size)));
    }
    if (row.lane > 0) return;
    row.shared.finding = {over(min(low, top), top, true), false, rule.topK == 0, true, 0.0f, rule.minP};
    row.shared.target = target;
  }

  // A cut that keeps the words that top-k, top-p and min-p keep.
  __device__ float cut(const RowRule& rule) {
    unsigned long long above = 0, target = row.shared.target;
    Finding finding = row.shared.finding;
    while (true) {
      fill(finding);
      meet();
      step(rule, finding, above, target);
      if (finding.done) return finding.cut;
      clear();
      __syncthreads();
    }
  }

  // What follows from the filled bins; the same in all blocks.
  __device__ void step(const RowRule& rule, Finding& finding, unsigned long long& above, unsigned long long& target) {
    const Range range = finding.range;
    const int top = orderOf<T>(row.peak);
    constexpr int kLowest = -(0x7F800000 >> kUnusedBits<T>);  // −∞
    int bin = select(range, finding.byMass, finding.least, rule.topP, above, target);
    if (!finding.byMass) {
      int least = kLowest;
      if (bin < 0 && range.low > kLowest) {  // so many are in the range, and still too few: the rest is below it
        finding.mayHaveHole = false;
        finding.range = over(kLowest, range.low - 1, false);
        return;
      }
      if (bin >= 0) {
        least = range.first(bin);
        if (!range.isSingle(bin)) {
          finding.range = over(least, range.last(bin), finding.mayHaveHole);
          return;
        }
      }
      finding.cut = fmaxf(finding.cut, row.weight(valueOf<T>(least)));
      finding.done = rule.topP >= 1;
      if (finding.done) return;
      finding.byMass = true;
      finding.least = finding.cut;
      above = 0, target = 0;
      if (range.shift > 0 || range.high != top || range.hole > 0) {  // the masses are not known
        finding.mayHaveHole = true;
        finding.range = over(min(top, max(least, orderOfWeight(kLeast))), top, true);
        return;
      }
      __syncthreads();
      bin = select(range, true, finding.least, rule.topP, above, target);
    }
    const int least = bin < 0 ? range.low : range.first(bin);
    if (bin < 0 || range.isSingle(bin)) {
      finding.cut = fmaxf(finding.cut, row.weight(valueOf<T>(least)));
      finding.done = true;
    } else {
      finding.range = over(least, range.last(bin), finding.mayHaveHole);
    }
  }
};
#endif

}  // namespace attune
