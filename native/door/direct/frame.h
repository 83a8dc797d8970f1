// Arguments in memory that JavaScript and C++ share, instead of one Node-API call for each. JavaScript (src/tensor/frame.ts) writes
// doubles: the operator's id, the number of arguments, then for each argument its tag and its value, or its tag, a length and that many
// values. A tensor is its handle. The result comes back in the first double.
#pragma once
#include <cstddef>
#include <cstdint>

namespace attune {

constexpr size_t kFrameLength = 512;

/** The frame's memory belongs to the JavaScript thread that provided it, and goes with it. */
void forgetFrame();

/** The kind of an argument; JavaScript never writes `malformed`. */
enum class Tag : uint8_t { absent, none, number, boolean, tensor, numbers, tensors, dtype, device, malformed };

/** The meaning of the first double after a call, if it is not a handle. */
enum class Outcome : int { null = -1, declined = -2, returned = -3 };

/** One argument as JavaScript wrote it. */
struct Entry {
  Tag tag = Tag::absent;
  const double* values = nullptr;
  size_t count = 0;
  double value() const { return *values; }
};

/** Iterates over the arguments of a frame. Arguments after the last one are absent. */
class Entries {
 public:
  explicit Entries(const double* frame) : at_(frame + 2), end_(frame + kFrameLength), left_(static_cast<int>(frame[1])) {}

  Entry next() {
    if (left_ <= 0) return {};
    left_--;
    if (end_ - at_ < 2 || !(at_[0] >= 0 && at_[0] < static_cast<double>(Tag::malformed))) return {Tag::malformed};
    const auto tag = static_cast<Tag>(at_[0]);
    if (tag != Tag::numbers && tag != Tag::tensors) {
      const Entry entry{tag, at_ + 1, 1};
      at_ += 2;
      return entry;
    }
    if (!(at_[1] >= 0 && at_[1] <= static_cast<double>(end_ - at_ - 2))) return {Tag::malformed};
    const auto count = static_cast<int64_t>(at_[1]);
    const Entry entry{tag, at_ + 2, static_cast<size_t>(count)};
    at_ += 2 + count;
    return entry;
  }
  /** How many arguments have not been read yet. */
  int left() const { return left_; }

 private:
  const double* at_;
  const double* end_;
  int left_;
};

}  // namespace attune
