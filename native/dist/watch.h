// Ranks that watch one another, where no launcher does.
#pragma once
#include <string>

#include "door/door.h"

namespace attune {
/** Ranks that give no sign of life now: "rank 1, rank 3". Takes a second. Empty where all do, where ranks do not watch one another, and where
 * nobody can be asked. */
std::string silentRanks();
std::vector<Export> watchExports();
}
