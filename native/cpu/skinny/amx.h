// Products of 16 columns by AMX tiles (Sapphire Rapids and later). Weights are read in place as the left operand, 16 columns of 32 inputs.
// x is the right operand, pairs of inputs with up to 16 rows each. A row's sums have the same order for any number of rows, so these tiles
// serve one row as well: reading the weights sets its time.
#pragma once
#if defined(__AMX_BF16__) && defined(__AMX_TILE__)
#define ATTUNE_AMX 1
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "cpu/intrinsics.h"

namespace attune {

constexpr int64_t kTileColumns = 16, kTileRows = 16, kTileInputs = 32;
constexpr int kTileGroups = 4;  // groups of rows that share a tile of weights

/** Linux enables the tiles for a process that asks for them, unless they are forbidden. */
inline bool tilesAllowed() {
  constexpr long request = 0x1023, tileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, request, tileData) == 0;
  return allowed;
}

/** GCC's tile instructions do not declare what memory they read: earlier writes to it must be finished first. */
inline void finishWrites(const void* to) { asm volatile("" : : "r"(to) : "memory"); }

/** The thread's tiles for `lanes` rows of x per group: 0 to 3 hold sums, 4 weights, 5 inputs. */
class Tiles {
 public:
  explicit Tiles(int64_t lanes) {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, none[14] = {};
      uint16_t bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    for (int tile = 0; tile < 6; tile++) shape.rows[tile] = 16, shape.bytes[tile] = static_cast<uint16_t>(tile == 4 ? 64 : lanes * 4);
    finishWrites(&shape);
    _tile_loadconfig(&shape);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

/**
 * sums[GROUPS][16 columns][lanes] over `steps` of 32 inputs. Columns of w are `stride` apart; x is [GROUPS][steps][16][lanes][2]. The lines
 * of w are prefetched; at the end, those of the next columns.
 */
template <int GROUPS>
void tileSums(const uint16_t* w, int64_t stride, const uint16_t* x, int64_t steps, int64_t lanes, float* sums) {
  constexpr int64_t ahead = 16 * kTileInputs;
  const int64_t inputs = steps * kTileInputs, step = kTileInputs * lanes, group = steps * step;
  finishWrites(w);
  finishWrites(x);
  _tile_zero(0);
  if constexpr (GROUPS > 1) _tile_zero(1);
  if constexpr (GROUPS > 2) _tile_zero(2);
  if constexpr (GROUPS > 3) _tile_zero(3);
  for (int64_t i = 0; i < inputs; i += kTileInputs, x += step) {
    const uint16_t* next = w + i + ahead + (i + ahead < inputs ? 0 : (kTileColumns - 1) * stride);
#pragma GCC unroll 16
    for (int64_t c = 0; c < kTileColumns; c++) __builtin_prefetch(next + c * stride, 0, 2);
    _tile_loadd(4, w + i, stride * 2);
    _tile_loadd(5, x, lanes * 4);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (GROUPS > 1) {
      _tile_loadd(5, x + group, lanes * 4);
      _tile_dpbf16ps(1, 4, 5);
    }
    if constexpr (GROUPS > 2) {
      _tile_loadd(5, x + 2 * group, lanes * 4);
      _tile_dpbf16ps(2, 4, 5);
    }
    if constexpr (GROUPS > 3) {
      _tile_loadd(5, x + 3 * group, lanes * 4);
      _tile_dpbf16ps(3, 4, 5);
    }
  }
  const int64_t size = kTileColumns * lanes;
  _tile_stored(0, sums, lanes * 4);
  if constexpr (GROUPS > 1) _tile_stored(1, sums + size, lanes * 4);
  if constexpr (GROUPS > 2) _tile_stored(2, sums + 2 * size, lanes * 4);
  if constexpr (GROUPS > 3) _tile_stored(3, sums + 3 * size, lanes * 4);
}

}  // namespace attune
#endif
