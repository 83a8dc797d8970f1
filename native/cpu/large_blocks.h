#pragma once
#include <cstddef>

namespace attune {

/** Makes libtorch take the memory of large CPU tensors from blocks of our own (large_blocks.cc). Called once. */
void useLargeBlocks();

/** Bytes of freed blocks that the next tensors can take. */
size_t keptLargeBytes();

}  // namespace attune
