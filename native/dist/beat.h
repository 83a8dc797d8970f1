// A rank's signs of life to its launcher.
#pragma once
#include "door/door.h"

namespace attune {
std::vector<Export> beatExports();
}
