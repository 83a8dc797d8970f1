// Packs a matrix: first finds each row's exponents, then writes its cells. Reads the matrix twice.
#include "cuda/packed/pack.h"

#include <cuda_bf16.h>

#include "cuda/packed/cells.cuh"

namespace attune {
namespace {

using namespace packed;

constexpr int kWarps = 8, kBlocks = 2048;
constexpr int kLast = 238;  // the highest first exponent of a row

/** Of a row's exponents the 16 that most of its weights have; as the power of two that brings sums back, 0 for a row of zeros. */
__global__ void __launch_bounds__(32 * kWarps) rowsKernel(const PackArgs a) {
  __shared__ int counts[kWarps][256];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int* const own = counts[warp];
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp; row < a.rows; row += static_cast<int64_t>(gridDim.x) * kWarps) {
    for (int i = lane; i < 256; i += 32) own[i] = 0;
    __syncwarp();
    const auto* const from = reinterpret_cast<const uint4*>(static_cast<const char*>(a.weight) + row * a.inputs * 2);
    int zeros = 0;
    for (int64_t i = lane; i < a.inputs / 8; i += 32) {
      const uint4 eight = from[i];
      for (unsigned two : {eight.x, eight.y, eight.z, eight.w})
        for (int half = 0; half < 2; half++, two >>= 16) {
          if ((two & 0x7FFF) == 0)
            zeros++;
          else
            atomicAdd(&own[two >> 7 & 255], 1);
        }
    }
    __syncwarp();
    int most = -1, first = 1;
    for (int at = 1 + lane; at <= kLast; at += 32) {
      int sum = 0;
      for (int i = 0; i < kExponents; i++) sum += own[at + i];
      if (sum > most) most = sum, first = at;
    }
    for (int by = 16; by > 0; by /= 2) {
      const int theirs = __shfl_xor_sync(0xFFFFFFFF, most, by), at = __shfl_xor_sync(0xFFFFFFFF, first, by);
      if (theirs > most || (theirs == most && at < first)) most = theirs, first = at;
      zeros += __shfl_xor_sync(0xFFFFFFFF, zeros, by);
    }
    if (lane == 0)
      static_cast<unsigned*>(a.packed)[row] = zeros == a.inputs ? 0 : static_cast<unsigned>(first - kFirstExponent + 127) << 23;
    __syncwarp();
  }
}

/** Where a lane's weights of a cell are: rows, or −1 for one that is not there, and inputs. */
template <int PIECES>
struct Tiles {
  static constexpr int kPieces = PIECES, kCells = 8;  // of a tile: a warp has every eighth 64 inputs
  __device__ int64_t at(const PackArgs&, int64_t cell) const { return cell * Cell<PIECES>::kBytes; }
  __device__ int64_t row(const PackArgs&, int64_t cell, int, int line) const { return cell / kCells * kPieceRows + line; }
  __device__ int64_t input(const PackArgs&, int64_t cell, int piece, int part, int weight) const {
    return (piece * kCells + cell % kCells) * kPieceInputs + weight / 8 * 32 + part * 8 + weight % 8;
  }
};
struct Groups {
  static constexpr int kPieces = 2;
  static_assert(Cell<kPieces>::kBytes == 1568);  // packedChunk
  __device__ int64_t at(const PackArgs& a, int64_t cell) const {
    return cell / a.units * packedChunk(a.units) + cell % a.units * Cell<kPieces>::kBytes;
  }
  __device__ int64_t row(const PackArgs& a, int64_t cell, int piece, int line) const {
    const int64_t group = cell / a.units / (a.inputs / kPieceInputs), output = (group * a.units + cell % a.units) * kPieceRows + line;
    return output < a.rows / 2 ? piece * (a.rows / 2) + output : -1;
  }
  __device__ int64_t input(const PackArgs& a, int64_t cell, int, int part, int weight) const {
    const int64_t chunk = cell / a.units % (a.inputs / kPieceInputs);
    return chunk * kPieceInputs + weight / 4 * 16 + weight / 2 % 2 * 8 + part * 2 + weight % 2;
  }
};

/** A weight in the row's exponents where it has another one; false where bf16 does not have that number. */
__device__ bool moved(unsigned weight, unsigned power, unsigned& out) {
  out = weight;
  if ((weight & 0x7FFF) == 0 || (weight >> 7 & 255) == 255) return true;  // zero, infinity or no number
  const float value = __uint_as_float(weight << 16), by = __uint_as_float((254u << 23) - power), there = value * by;
  const __nv_bfloat16 rounded = __float2bfloat16(there);
  out = __bfloat16_as_ushort(rounded);
  return (out & 0x7FFF) != 0 && (out >> 7 & 255) != 255 && __bfloat162float(rounded) == there && there * __uint_as_float(power) == value;
}

template <typename Place>
__global__ void __launch_bounds__(32 * kWarps) cellsKernel(const PackArgs a, const Place place, int64_t cells, int64_t cellsAt) {
  using Form = Cell<Place::kPieces>;
  const int lane = threadIdx.x % 32, line = lane / 4, part = lane % 4;
  const auto* const powers = static_cast<const unsigned*>(a.packed);
  const auto* const weights = static_cast<const unsigned short*>(a.weight);
  for (int64_t cell = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32; cell < cells;
       cell += static_cast<int64_t>(gridDim.x) * kWarps) {
    char* const to = static_cast<char*>(a.packed) + cellsAt + place.at(a, cell);
    auto* const strays = reinterpret_cast<unsigned*>(to + Form::kStrays);
    if (lane < Form::kMostStrays) strays[lane] = 0;
    __syncwarp();
    int count = 0;
    bool fits = true;
    for (int piece = 0; piece < Place::kPieces; piece++) {
      const int64_t row = place.row(a, cell, piece, line);
      const unsigned power = row < 0 ? 0 : powers[row];
      const int first = static_cast<int>(power >> 23) + kFirstExponent - 127;
      unsigned low[4] = {}, high[2] = {};
      for (int i = 0; i < kLaneWeights; i++) {
        const unsigned weight = power == 0 ? 0 : weights[row * a.inputs + place.input(a, cell, piece, part, i)];
        const int code = static_cast<int>(weight >> 7 & 255) - first;
        const bool isStray = power != 0 && (code < 0 || code >= kExponents);
        const unsigned who = __ballot_sync(0xFFFFFFFF, isStray);
        if (isStray) {
          unsigned number;
          fits = moved(weight, power, number) && fits;
          const int at = count + __popc(who & ((1u << lane) - 1));
          if (at < Form::kMostStrays) strays[at] = number << 16 | kStray | static_cast<unsigned>(piece << 9 | lane << 4 | i);
        }
        count += __popc(who);
        if (isStray || power == 0) continue;
        low[i / 4] |= (static_cast<unsigned>(code & 1) << 7 | (weight & 127)) << i % 4 * 8;
        const unsigned sign = weight >> 15, others = static_cast<unsigned>(code) >> 1;
        // bytes of four and four weights (unpackEight): sign, exponent of the last four, the sign of the one before it, exponent of the first
        unsigned& signs = high[i / 8];
        const int j = i % 4;
        if (i % 8 < 4)
          signs |= (sign << 7 | others) << j * 8;
        else
          signs |= others << (j * 8 + 4) | sign << ((j + 1) % 4 * 8 + 3);
      }
      *reinterpret_cast<uint4*>(to + piece * kLowBytes + lane * 16) = {low[0], low[1], low[2], low[3]};
      *reinterpret_cast<uint2*>(to + Form::kHigh + piece * kHighBytes + lane * 8) = {high[0], high[1]};
    }
    if (!fits || count > Form::kMostStrays) *a.failed = 1;
  }
}

int64_t cellsOf(const PackArgs& a) { return a.units == 0 ? a.rows / kPieceRows * 8 : a.groups * (a.inputs / kPieceInputs) * a.units; }

template <typename Place>
void launchCells(const PackArgs& a, cudaStream_t stream) {
  cellsKernel<Place><<<kBlocks, 32 * kWarps, 0, stream>>>(a, Place{}, cellsOf(a), packedCellsAt(a.rows));
}

}  // namespace

int64_t packedBytes(const PackArgs& a) {
  if (a.units == 0) return packedCellsAt(a.rows) + cellsOf(a) * (a.inputs / kPieceInputs / 8) * Cell<1>::kBytes;
  return packedCellsAt(a.rows) + a.groups * (a.inputs / kPieceInputs) * packedChunk(a.units);
}

void launchPack(const PackArgs& a, cudaStream_t stream) {
  rowsKernel<<<kBlocks, 32 * kWarps, 0, stream>>>(a);
  if (a.units > 0) return launchCells<Groups>(a, stream);
  if (a.inputs == 1024) return launchCells<Tiles<2>>(a, stream);
  if (a.inputs == 2048) return launchCells<Tiles<4>>(a, stream);
  launchCells<Tiles<5>>(a, stream);
}

}  // namespace attune
