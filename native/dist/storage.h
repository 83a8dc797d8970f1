// Lends memory to tensors and takes it away.
#pragma once
#include "door/door.h"

namespace attune {
std::vector<Export> storageExports();
}
