#pragma once

namespace attune {

/** Makes libtorch take the memory of large CPU tensors from blocks of our own (large_blocks.cc). Called once. */
void useLargeBlocks();

}  // namespace attune
