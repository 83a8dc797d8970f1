// Where the parts of a copy lie (short.h), in words:
//   0        how many places there are
//   1        bits of a weight: 12 or 28
//   bases    of each strip of columns, the exponent of its code 0
//   firsts   of each strip the first of its places, and where those of the last end
//   places   of each strip the chunks that lie apart, and the number of chunks
//   chunks   of each strip its chunks, one after the other, from whole lines on; zeros for one that lies apart
//   apart    the chunks with an exponent that has no code, in f32
//   rest     the columns after the last whole block, as they were
#pragma once
#include "cpu/short/chunk.h"
#include "cpu/skinny/lanes.h"

#ifdef ATTUNE_SHORT_WEIGHTS
namespace attune {

struct ShortLayout {
  int64_t strips, chunks, chunkWords, bases, firsts, places, packed, apart, rest, end;

  /** For a matrix with at least one block of columns and one chunk of inputs. */
  ShortLayout(int64_t n, int64_t k, int64_t bits, int64_t entries)
      : strips(n / kBlock * (kBlock / kStrip)),
        chunks(k / kChunk),
        chunkWords(kStrip * kChunk * bits / 32),
        bases(2),
        firsts(bases + strips),
        places(firsts + strips + 1) {
    packed = (places + entries + kLine - 1) / kLine * kLine;
    apart = packed + strips * chunks * chunkWords;
    rest = apart + (entries - strips) * kStrip * kChunk;
    end = rest + n % kBlock * k;
  }

  static bool takes(int64_t n, int64_t k) { return n >= kBlock && k >= kChunk && k % kChunk == 0 && n <= INT32_MAX && k <= INT32_MAX; }

 private:
  static constexpr int64_t kLine = 16;
};

}  // namespace attune
#endif
