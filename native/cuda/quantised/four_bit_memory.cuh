// What a thread block of four_bit_product.cu keeps in shared memory.
#pragma once
#include "cuda/quantised/four_bits.cuh"

namespace attune {
namespace {

constexpr int kGroups = 2, kBlockThreads = kGroups * kThreads;
constexpr int kTile = 16;  // rows of W
constexpr int kMostTiles = 64;  // of a thread block
constexpr int kSpan = 4;  // chunks that a warp copies at once: 128 bytes of each row
constexpr int kChunkBytes = kChunk / 2, kSpanBytes = kSpan * kChunkBytes;
constexpr int kPairs = 256;
constexpr int kEight = 8;  // most rows of x
constexpr int kPadded = kTile + 4;

/** Where a tile lies: `block` is the first block of its first row, counted within its part. */
struct Tile {
  const char* codes;
  const void* scales;
  const float *nested, *offset;
  int block;
};

/** What a byte of codes stands for, and beside it codes of one row. */
struct Entry {
  unsigned pairs[32];  // a copy for each lane
  char codes[kSpanBytes];
};
static_assert(kGroups * kWarps * kTile == kPairs);

struct Shared {
  Entry table[kPairs];
  float map[256];
  float squares[kWarps][kEight];
  Tile tiles[kMostTiles];
};

/** Floats of shared memory after `Shared`, in this order. */
struct Room {
  int x;  // [rows, inputs] in bf16, where it is held
  int squares;  // [rows, inputs / 8]: of x
  int stride, scales;  // of a tile, [kTile, stride]: a scale for each chunk
  int partial;  // of a tile, [kWarps, rows, kPadded]: the warps' sums
  __host__ __device__ Room(const ProductArgs& a, bool held) {
    const int rows = static_cast<int>(a.rows), inputs = static_cast<int>(a.inputs), fours = (inputs / kChunk + 3) / 4;
    x = held ? rows * inputs / 2 : 0;
    squares = held && a.norm != nullptr ? rows * inputs / 8 : 0;
    stride = (fours | 1) * 4;  // an odd multiple of 4, so that eight rows lie in different banks
    scales = kTile * stride;
    partial = kWarps * rows * kPadded;
  }
  __host__ int bytes(int pass) const { return static_cast<int>(sizeof(Shared)) + (x + squares + pass * (scales + partial)) * 4; }
};

}  // namespace
}  // namespace attune
