// PyTorch's c10d: stores, process groups and their collectives. If this libtorch has no c10d, only `distInfo` is there.
#pragma once
#include "door/door.h"

namespace attune {
std::vector<Export> distExports();
}
