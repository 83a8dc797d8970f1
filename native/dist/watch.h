// Ranks that watch one another, where no launcher does.
#pragma once
#include "door/door.h"

namespace attune {
std::vector<Export> watchExports();
}
