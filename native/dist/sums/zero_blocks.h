// The blocks of a long tensor in which any number is not zero. The gradient of an embedding has rows for the tokens of the step and
// zeros elsewhere: what is zero on every rank need not be added up.
#pragma once
#include <cstdint>
#include <vector>

namespace attune {

class NonZeroBlocks {
 public:
  static constexpr int64_t kBlock = 256;

  NonZeroBlocks(float* values, int64_t count);
  /** A byte for each block: 1 where it is not all zero. To be combined over the ranks by their maximum. */
  std::vector<uint8_t>& mask() { return mask_; }

  /** Elements of all blocks that are not zero. */
  int64_t packedCount() const;
  /** Copies those to a row of their own, and back. */
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
