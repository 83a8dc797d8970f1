#include "door/checks/endless.h"

#include <sstream>

#include "door/door.h"

namespace attune {
namespace {

// One slice of an empty batch is as large as a slice of a full one. 2^36 elements are 256 GiB of float32, more than any slice holds.
constexpr int64_t kMostRows = int64_t{1} << 36;
// Adaptive pooling walks over the rows of each plane.
constexpr int64_t kMostOutputRows = int64_t{1} << 24;
// Two sides multiplied with a number of channels stay below 2^63.
constexpr int64_t kLongestSide = int64_t{1} << 24;

void checkRows(c10::IntArrayRef sizes, int64_t most) {
  bool empty = false;
  int64_t rows = 1;
  for (const int64_t size : sizes) {
    empty = empty || size == 0;
    if (size > 0) rows = rows > most / size ? most + 1 : rows * size;
  }
  if (!empty || rows <= most) return;
  std::ostringstream text;
  text << "a shape of " << sizes << " has no elements and more rows than can be walked over (at most " << most << ")";
  throw ArgumentError(text.str());
}

}  // namespace

void checkRowsOf(const at::Tensor& tensor) {
  if (tensor.numel() == 0 && !tensor.is_nested()) checkRows(tensor.sizes(), kMostRows);
}

void checkOutputSize(c10::IntArrayRef sizes) { checkRows(sizes, kMostOutputRows); }

void checkWindow(c10::IntArrayRef sides) {
  for (const int64_t side : sides)
    if (side > kLongestSide || side < -kLongestSide)
      throw ArgumentError(std::to_string(side) + " is more than the largest window, " + std::to_string(kLongestSide));
}

}  // namespace attune
