// Products of up to 32 rows, in bf16 on compute capability 9.0, of matrices that are too large for staged_product.cu.
//
// In a tile of the product, W's rows are the rows and x's are the columns: 64 rows of W by 8, 16 or 32 of x. Chunks of 64 inputs of both go
// through rings in shared memory. One warp requests W's before the kernel that computes x has ended, another requests x's as soon as it
// has, and one or two warpgroups multiply. No more of W is in flight than hides its latency (kUnderWay). With more, the end of the previous
// kernel is seen late (up to 4 µs), x arrives late, and some multiprocessors get their W so much later than others that they end 4 to 8 µs
// later. A cluster of two blocks splits the inputs, so x is read half as often. All sums are added in an order that does not depend on the
// number of rows, so a row's bits are the same in every batch.
//
// The product before prepares norms, as in wide_product.cu. A gate's eight rows of W are followed by the eight that they gate, so that a
// thread has both.
//
// A layer on an H200, 384 keys, µs at 1, 8, 16 and 32 rows; in parentheses product.cu, which takes up to 16. One warpgroup: 1.7B 34.9,
// 38.2, 41.6, 49.4 (35.2, 40.7, 44.4); 4B 62.6, 65.2, 68.2, 75.0 (59.2, 64.7, 67.7); 8B 102.4, 103.2, 105.8, 112.5 (97.2, 102.8, 106.0).
// Two: 4B 60.9, 62.8, 67.4 (59.9, 65.5, 68.5). A product of 64 × 16 × 16 takes 20 clocks by itself, and 45 with the other costs of a chunk.
// The four products alone, 16 rows, with all of W's ring, 112, 80, 64, 48 and 32 KB in flight: 1.7B 31.7, 31.5, 30.5, 30.5, 31.5 and 35.9;
// 4B 57.2, 56.9, 56.3, 56.5, 58.0 and 67.3 (and with a ring of x of 32 KB 33.0 and 58.6). Slower: rings of half the memory, so that the
// next kernel's block is resident too (8B × 16 111); prefetching the next product's first weights into the L2 cache (1 to 3); W in pieces
// of 8 KB (1 to 2); clusters of four (not all are resident at once); sums of squares in rows of their parts, which all blocks read from the
// same lines (3 at one row). At 0.6B staged_product.cu is faster up to 16 rows (23.2, here 24.3), and wide_product.cu up to 32 (28.2, here
// 32.1).
//
// Gates in three parts may be packed (packed/cells.cuh): those of 4B take 19.0 and 19.9 µs at 1 and 16 rows, plain 24.6 and 25.4. Each of
// eight warps assembles the cells of a unit of each part, three side by side (one after the other 23.2), and multiplies them by itself:
// wgmma would also need W in registers, which then wait for it (35.5).
#include "cuda/narrow/narrow_product.h"

#include <algorithm>

#include "cuda/mma.cuh"

#if CUDART_VERSION >= 12050
#include "cuda/narrow/narrow_kernel.cuh"
#include "cuda/wide/tensor_map.h"

namespace attune {
namespace {

using namespace narrowed;

constexpr int kMostRows = 32, kMostRowsOfOthers = 16;
constexpr int kSlot = 16 << 10, kRings = 198 << 10, kUnderWay = 64 << 10;  // bytes
constexpr int kMostChunks = 8;  // of a slot

constexpr int upTo(int n, int of) { return (n + of - 1) / of; }

CUtensorMap mapOfRows(const void* first, int64_t rows, int64_t inputs, int tileRows, int chunks) {
  const cuuint64_t sizes[] = {kChunk, static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(inputs / kChunk)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(inputs) * 2, kChunk * 2};
  const cuuint32_t tile[] = {kChunk, static_cast<cuuint32_t>(tileRows), static_cast<cuuint32_t>(chunks)};
  return mapOf(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, first, 3, sizes, strides, tile);
}
CUtensorMap mapOfGates(const void* first, int64_t outputs, int64_t inputs, int units, int chunks) {
  const cuuint64_t row = static_cast<cuuint64_t>(inputs) * 2, count = static_cast<cuuint64_t>(outputs);
  const cuuint64_t sizes[] = {kChunk, kUnit, 2, count / kUnit, static_cast<cuuint64_t>(inputs / kChunk)};
  const cuuint64_t strides[] = {row, count * row, kUnit * row, kChunk * 2};
  const cuuint32_t tile[] = {kChunk, kUnit, 2, static_cast<cuuint32_t>(units), static_cast<cuuint32_t>(chunks)};
  return mapOf(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, first, 5, sizes, strides, tile);
}

/** One wave of equal clusters, whose outputs are cut into parts of at most 128 rows of W. */
struct Division {
  int parts, units, clusters, wRows, tiles;  // units, wRows and tiles: of a part
};
Division divisionOf(const WideProductArgs& a) {
  const int all = static_cast<int>(a.outputs) / kUnit, ofUnit = a.gated ? 2 * kUnit : kUnit;
  const int each = upTo(all, std::min(all, multiprocessorsOfDevice() / kSplits)), parts = upTo(each * ofUnit, 128);
  const int units = upTo(each, parts), wRows = units * ofUnit;
  return {parts, units, upTo(all, units * parts), wRows, upTo(wRows, 64)};
}

/** Chunks of a slot: they divide those of a block, of which each warpgroup has at least one. */
int chunksOf(const WideProductArgs& a, const Division& division) {
  const int all = static_cast<int>(a.inputs) / kChunk / kSplits;
  int chunks = std::max(1, std::min({kSlot / (division.wRows * kChunk * 2), kMostChunks, all / groupsOf(division.parts)}));
  while (all % chunks != 0) chunks--;
  return chunks;
}

template <int PARTS, int TILES, int N, Form FORM, bool PACKED = false>
void launch(const WideProductArgs& a, const Division& division, cudaStream_t stream) {
  const int chunks = PACKED ? 1 : chunksOf(a, division), stages = static_cast<int>(a.inputs) / kChunk / kSplits / chunks;
  const int wBytes = PACKED ? packedChunk(division.units) : chunks * division.wRows * kChunk * 2, xBytes = chunks * N * kChunk * 2;
  // A warpgroup gives a slot back when it has begun with its next one, so each has at least two. A slot that is used again always has the
  // same warpgroup: a barrier tells a phase from the one before only, so another warpgroup that is ahead might take an earlier phase for its own.
  constexpr int kGroups = groupsOf(PARTS), kFewest = 2 * kGroups;
  const auto slotsIn = [&](int room, int bytes, int most) {
    return std::min(std::max(kFewest, std::min(room / bytes, kMostSlots) / kGroups * kGroups), most);
  };
  // x's ring is as deep as W's
  constexpr int kJoined = bytesOfJoined(PARTS, TILES, N);
  const int xSlots = slotsIn((kRings - kJoined) / (PARTS * wBytes + xBytes) * xBytes, xBytes, stages);
  // The last tile's products read on after the ring, where a tile has less than 64 rows.
  const int beyond = PACKED ? 0 : TILES * 64 * kChunk * 2 - wBytes / chunks;
  const int others = std::max(beyond, xSlots * xBytes + kJoined);
  // x's ring is at a multiple of 1,024 bytes
  const int wSlots = PACKED ? slotsIn(kRings - others, wBytes, stages * PARTS) / 8 * 8 : slotsIn(kRings - others, wBytes, stages * PARTS);
  const auto numbers = [](const void* of) { return static_cast<const Number*>(of); };
  const NarrowArgs args{numbers(a.bias),
                        numbers(a.nextNorm),
                        PACKED ? static_cast<const char*>(a.packed) + packedCellsAt(2 * a.outputs) : nullptr,
                        static_cast<const float*>(a.packed),
                        static_cast<Number*>(a.y),
                        static_cast<Number*>(a.normed),
                        a.squaresOfX,
                        a.squaresOfY,
                        static_cast<int>(a.rows),
                        static_cast<int>(a.inputs),
                        static_cast<int>(a.outputs),
                        a.squaresOfX == nullptr ? 0 : static_cast<int>(a.partsOfX),
                        static_cast<int>(narrowProductParts(a)),
                        a.eps,
                        division.units,
                        chunks,
                        wSlots,
                        xSlots,
                        std::min(wSlots, std::max(2, kUnderWay / wBytes))};
  const CUtensorMap weights = FORM == Form::Gated ? mapOfGates(a.weight, a.outputs, a.inputs, division.units, chunks)
                                                  : mapOfRows(a.weight, a.outputs, a.inputs, division.wRows, chunks);
  launchWithMemory(narrowKernel<PARTS, TILES, N, FORM, PACKED>, dim3(static_cast<unsigned>(division.clusters * kSplits)),
                   threadsOf(PARTS, PACKED), kSplits, static_cast<size_t>(wSlots * wBytes + others), stream, args, weights,
                   mapOfRows(a.x, a.rows, a.inputs, N, chunks));
}

template <int PARTS, int TILES, Form FORM>
void launchRows(const WideProductArgs& a, const Division& division, cudaStream_t stream) {
  if (a.rows <= 8)
    launch<PARTS, TILES, 8, FORM>(a, division, stream);
  else if (a.rows <= 16)
    launch<PARTS, TILES, 16, FORM>(a, division, stream);
  else
    launch<PARTS, TILES, kMostRows, FORM>(a, division, stream);
}

template <Form FORM>
void launchTiles(const WideProductArgs& a, const Division& division, cudaStream_t stream) {
  if (division.tiles == 1)
    launchRows<1, 1, FORM>(a, division, stream);
  else
    launchRows<1, 2, FORM>(a, division, stream);
}

/**
 * Up to 16 rows there are others: staged_product.cu for narrow models. For wide ones product.cu, which is level at 16 rows and up to 5 %
 * faster at one: they read W so long that what comes before it and after it counts little. The products of a layer have to be of one kind,
 * because these want all of the L1 cache as shared memory and product.cu's do not, so it is the model's width that decides.
 */
bool isBest(const WideProductArgs& a) {
  constexpr int64_t kNarrowest = 1536, kWidest = 3072;
  const int64_t width = a.add ? a.outputs : a.inputs;
  return a.rows > kMostRowsOfOthers || (width >= kNarrowest && width <= kWidest);
}

}  // namespace

bool narrowProductFits(Kind kind, const WideProductArgs& a) {
  const bool isHopper = majorOfDevice() == 9 && attributeOfDevice(cudaDevAttrComputeCapabilityMinor) == 0;
  if (kind != Kind::BFloat16 || a.rows <= 0 || a.outputs <= 0 || a.rows > kMostRows || !isHopper || encoder() == nullptr) return false;
  const int64_t all = a.inputs / kChunk / kSplits;
  if (a.inputs % (kChunk * kSplits) != 0 || all < groupsOf(1) || a.outputs % kUnit != 0 || a.inputs * a.outputs >= INT32_MAX / 2)
    return false;
  constexpr int kMostMemory = 220 << 10;  // with the fewest slots of the most chunks, and barriers
  if ((a.gated && a.add) || kMostMemory > attributeOfDevice(cudaDevAttrMaxSharedMemoryPerBlockOptin)) return false;
  return divisionOf(a).parts <= (a.gated ? 3 : 1) && narrowProductParts(a) <= kMostParts && isBest(a);
}

int64_t narrowProductParts(const WideProductArgs& a) { return upTo(divisionOf(a).clusters, 4) * 4; }

PackArgs narrowPacking(const WideProductArgs& a) {
  const Division division = divisionOf(a);
  if (!a.gated || division.parts != 3 || a.rows > kMostPackedRows) return {};
  return {a.weight, nullptr, nullptr, 2 * a.outputs, a.inputs, division.units, static_cast<int64_t>(division.clusters) * division.parts};
}

void launchNarrowProduct(const WideProductArgs& a, cudaStream_t stream) {
  const Division division = divisionOf(a);
  if (a.add) return launchTiles<Form::Add>(a, division, stream);
  if (!a.gated) return launchTiles<Form::Plain>(a, division, stream);
  if (division.parts == 1) return launchRows<1, 2, Form::Gated>(a, division, stream);
  if (division.parts == 2) return launchRows<2, 2, Form::Gated>(a, division, stream);
  if (a.packed != nullptr && a.rows <= 8) return launch<3, 2, 8, Form::Gated, true>(a, division, stream);
  if (a.packed != nullptr && a.rows <= kMostPackedRows) return launch<3, 2, 16, Form::Gated, true>(a, division, stream);
  launchRows<3, 2, Form::Gated>(a, division, stream);
}

}  // namespace attune
#else  // a CUDA without tensor maps
namespace attune {
bool narrowProductFits(Kind, const WideProductArgs&) { return false; }
int64_t narrowProductParts(const WideProductArgs&) { return 0; }
PackArgs narrowPacking(const WideProductArgs&) { return {}; }
void launchNarrowProduct(const WideProductArgs&, cudaStream_t) {}
}  // namespace attune
#endif
