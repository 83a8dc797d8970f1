// Lossless copies of bf16 matrices in 12 bits per weight, for kernels whose time is that of reading them.
//
// Nearly all weights of a row have one of 16 neighbouring exponents: if normally distributed, all but 5 in 100,000. A weight is stored as
// its sign, four bits for its exponent, and its seven mantissa bits. The row's exponents are shifted to 112 to 127: then four of the eight
// exponent bits are 0111 or follow from the stored four, and a register of two weights is assembled in two instructions (`unpackEight`). A
// row's sums are multiplied by the power of two of its shift, which is exact. Weights with other exponents are strays: a cell has room for
// a few, which replace the assembled values. (Sums have the same bits as long as neither they nor the shifted ones leave f32's range, which
// would take weights or activations of some 2^100 or 2^-100.)
//
// A piece is 64 inputs of eight rows, 16 weights per lane: lane (line, part) has row `line`, in the order in which a kernel multiplies
// them. A cell is what a warp reads at once: the low bytes of its pieces, their signs and exponents, and its strays.
#pragma once
#include "cuda/instructions.cuh"

namespace attune {
namespace packed {

constexpr int kPieceRows = 8, kPieceInputs = 64, kLaneWeights = 16;
constexpr int kLowBytes = 512, kHighBytes = 256, kStraysOfPiece = 4;  // of a piece
constexpr int kExponents = 16, kFirstExponent = 112;  // that a row's are moved to
constexpr unsigned kStray = 0x8000;  // marks one: its number in the upper half, then piece, lane and weight

template <int PIECES>
struct Cell {
  static constexpr int kHigh = PIECES * kLowBytes, kStrays = kHigh + PIECES * kHighBytes, kMostStrays = PIECES * kStraysOfPiece;
  static constexpr int kBytes = kStrays + kMostStrays * 4;
};

#ifdef __CUDACC__
/** Eight weights of their low bytes and, of the first and the last four, signs and exponents. */
__device__ inline void unpackEight(unsigned first, unsigned last, unsigned high, unsigned* two) {
  constexpr unsigned kFree = 0x87878787, kFixed = 0x38383838;  // bits of the upper bytes
  const unsigned a = maskAndFlip(high, kFree, kFixed), b = maskAndFlip(__funnelshift_r(high, high, 4), kFree, kFixed);
  two[0] = __byte_perm(first, a, 0x5140), two[1] = __byte_perm(first, a, 0x7362);
  two[2] = __byte_perm(last, b, 0x5140), two[3] = __byte_perm(last, b, 0x7362);
}

/** A lane's weights of a piece of the cell, as eight registers. */
template <int PIECES>
__device__ inline void unpackPiece(const char* cell, int piece, int lane, unsigned (&two)[8]) {
  const uint4 low = *reinterpret_cast<const uint4*>(cell + piece * kLowBytes + lane * 16);
  const uint2 high = *reinterpret_cast<const uint2*>(cell + Cell<PIECES>::kHigh + piece * kHighBytes + lane * 8);
  unpackEight(low.x, low.y, high.x, two);
  unpackEight(low.z, low.w, high.y, two + 4);
}

/** A cell's strays: a lane's own one, and which lanes have one. */
struct Strays {
  unsigned own, lanes;
};
template <int PIECES>
__device__ inline Strays straysOf(const char* cell, int lane) {
  const unsigned own = lane < Cell<PIECES>::kMostStrays ? reinterpret_cast<const unsigned*>(cell + Cell<PIECES>::kStrays)[lane] : 0;
  return {own, __ballot_sync(0xFFFFFFFF, (own & kStray) != 0)};
}
/** Those of a piece take their places. */
__device__ inline void placeStrays(const Strays& strays, int piece, int lane, unsigned (&two)[8]) {
#pragma unroll 1
  for (unsigned left = strays.lanes; left != 0; left &= left - 1) {
    const unsigned one = __shfl_sync(0xFFFFFFFF, strays.own, __ffs(left) - 1);
    const unsigned place =
        (one & (kStray - 1)) >> 1 ^ static_cast<unsigned>(piece << 8 | lane << 3);  // the register of this piece and lane, or more
    const unsigned bytes = one % 2 == 0 ? 0x3276 : 0x7610;
#pragma unroll
    for (int r = 0; r < 8; r++) permuteIf(place == r, two[r], one, bytes);
  }
}
#endif

}  // namespace packed
}  // namespace attune
