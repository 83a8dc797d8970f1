// Memory of tensors that is lent to them and taken away.
#pragma once
#include "door/door.h"

namespace attune {
std::vector<Export> storageExports();
}
