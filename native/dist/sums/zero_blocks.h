// The blocks of a long tensor that hold any nonzero number. The gradient of an embedding has rows for the step's tokens and zeros
// elsewhere: what is zero on every rank need not be summed.
#pragma once
#include <cstdint>
#include <vector>

namespace attune {

class NonZeroBlocks {
 public:
  static constexpr int64_t kBlock = 256;

  NonZeroBlocks(float* values, int64_t count);
  /** A byte per block: 1 if any number in it is nonzero. Ranks combine masks by their maximum. */
  std::vector<uint8_t>& mask() { return mask_; }

  /** Elements of all nonzero blocks. */
  int64_t packedCount() const;
  /** Copies the nonzero blocks to a contiguous row, and back. */
  void pack(float* packed) const;
  void unpack(const float* packed) const;

 private:
  template <typename Move>
  void each(Move move) const;

  float* values_;
  int64_t count_;
  std::vector<uint8_t> mask_;
};

}  // namespace attune
