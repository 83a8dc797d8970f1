// Which words top-k and top-p keep: how many words have which logit is counted in the first block of the cluster, which finds the smallest
// one that stays.
#pragma once
#include "cuda/sampling/tiles.cuh"

namespace attune {

// bf16 needs no masses by bins: those of equal logits follow from their number
template <typename T>
constexpr int kBinParts = kUnusedBits<T> == 16 ? 1 : 2;

// weights below e^-30 of the largest do not count in f32
constexpr float kLeast = 9.4e-14f;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <typename T>
struct Search {
  static constexpr int kOctave = 23 - kUnusedBits<T>;

  Tiles<T>& row;
  unsigned* bins;  // counts; or masses, low bits and then high ones

  __device__ bool isFirst() const { return row.rank == 0; }
  __device__ void clear() {
    for (int i = threadIdx.x; i < kBinParts<T> * kBins; i += kThreads) bins[i] = 0;
    if (threadIdx.x == 0) row.shared.ofHole[0] = row.shared.ofHole[1] = 0;
  }

  // Counts the block's words in the range by bins, or sums their mass. Equal logits are counted alone: their mass follows.
  __device__ void fill(const Finding& finding) {
    const Range range = finding.range;
    const float least = valueOf<T>(range.low), most = valueOf<T>(range.high);
    const bool byMass = finding.byMass && range.shift > 0;
    for (int i = row.warp; i < row.own; i += kWarps) {
      if (row.shared.tiles[row.rank * row.perBlock + i].x < least) continue;
#pragma unroll 1
      for (int j = 0; j < Tiles<T>::kPieces; j++) {
        typename Tiles<T>::Piece piece;
        const T* from = row.tile(i) + (j * 32 + row.lane) * Tiles<T>::kPiece;
        piece.load(from);
        bool any = false;
#pragma unroll
        for (int k = 0; k < Tiles<T>::kPiece; k++) any |= piece[k] >= least;
        if (!any) continue;
        unsigned weighed = 0;  // those whose mass is needed too
#pragma unroll
        for (int k = 0; k < Tiles<T>::kPiece; k++) {
          const int order = orderOf<T>(piece[k]);
          const bool isIn = piece[k] >= least && piece[k] <= most;
          if (isIn && !byMass) atomicAdd(&bins[range.bin(order)], 1u);
          if (isIn && (byMass || (range.shift == 0 && range.isInHole(order)))) weighed |= 1u << k;
        }
        for (; weighed != 0; weighed &= weighed - 1) {
          const float z = wide(from[__ffs(static_cast<int>(weighed)) - 1]), w = row.weight(z);
          const Mass mass(w < finding.least ? 0.0f : w);
          const int bin = range.bin(orderOf<T>(z));
          atomicAdd(byMass ? &bins[bin] : &row.shared.ofHole[0], mass.low);
          atomicAdd(byMass ? &bins[kBins + bin] : &row.shared.ofHole[1], mass.high);
        }
      }
    }
    __syncthreads();
    if (isFirst()) return;
    const int used = range.bin(range.high) + 1;
    for (int i = threadIdx.x; i < used; i += kThreads) {
      const unsigned low = bins[i], high = byMass ? bins[kBins + i] + (low >> 16) : 0;
      if (low == 0 && high == 0) continue;
      atomicAdd(ofBlock(&bins[i], 0), byMass ? low & 0xFFFF : low);
      bins[i] = 0;
      if (byMass) {
        atomicAdd(ofBlock(&bins[kBins + i], 0), high);
        bins[kBins + i] = 0;
      }
    }
    if (threadIdx.x == 0 && range.hole > 0 && range.shift == 0) {
      atomicAdd(ofBlock(&row.shared.ofHole[0], 0), row.shared.ofHole[0] & 0xFFFF);
      atomicAdd(ofBlock(&row.shared.ofHole[1], 0), row.shared.ofHole[1] + (row.shared.ofHole[0] >> 16));
      row.shared.ofHole[0] = row.shared.ofHole[1] = 0;
    }
  }

  __device__ unsigned long long measureOf(const Range& range, int bin, bool byMass, float least) const {
    const unsigned count = bins[bin];
    if (!byMass) return count;
    if (range.shift > 0) return count + (static_cast<unsigned long long>(bins[kBins + bin]) << 16);
    if (count == 0) return 0;
    if (!range.isSingle(bin)) return row.shared.ofHole[0] + (static_cast<unsigned long long>(row.shared.ofHole[1]) << 16);
    const float w = row.weight(valueOf<T>(range.first(bin)));
    return w < least ? 0 : count * Mass(w).whole();
  }

  // In the first block: the highest bin at which the measure from the top down reaches the target, or −1. `target` 0 stands for
  // top-p of the measure of all. `above` becomes the measure of the bins above that one, or of all.
  __device__ int select(const Range& range, bool byMass, float least, double topP, unsigned long long& above, unsigned long long& target) {
    constexpr int kEach = kBins / kThreads;
    const int used = range.bin(range.high) + 1, each = (used + kThreads - 1) / kThreads;  // each thread takes neighbouring bins
    const int highest = used - 1 - static_cast<int>(threadIdx.x) * each;
    unsigned long long measures[kEach], sum = 0;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      measures[i] = i < each && highest - i >= 0 ? measureOf(range, highest - i, byMass, least) : 0;
      sum += measures[i];
    }
    unsigned long long before = sumOfLanesUpTo(sum);
    if (row.lane == 31) row.shared.sums[row.warp] = before;
    if (threadIdx.x == 0) row.shared.bin = -1;
    __syncthreads();
    unsigned long long all = above;
    before += above - sum;
    for (int i = 0; i < kWarps; i++) {
      const unsigned long long of = row.shared.sums[i];
      all += of;
      if (i < row.warp) before += of;
    }
    if (target == 0) target = static_cast<unsigned long long>(fmax(1.0, topP * static_cast<double>(all)));
    if (before < target && before + sum >= target) {
#pragma unroll
      for (int i = 0; i < kEach; i++) {
        if (before < target && before + measures[i] >= target) row.shared.bin = highest - i, row.shared.before = before;
        before += measures[i];
      }
    }
    __syncthreads();
    const int bin = row.shared.bin;
    above = bin < 0 ? all : row.shared.before;
    return bin;
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
      if (isFirst()) {
        step(rule, finding, above, target);
        if (!finding.done) clear();
        if (static_cast<int>(threadIdx.x) < row.blocks) *ofBlock(&row.shared.finding, threadIdx.x) = finding;
      }
      meet();
      finding = row.shared.finding;
      if (finding.done) return finding.cut;
    }
  }

  // In the first block: what follows from the filled bins.
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
