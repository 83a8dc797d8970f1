// Ranks that watch one another if no launcher does.
#pragma once
#include <string>

#include "door/door.h"

namespace attune {
/**
 * Ranks that give no sign of life now: "rank 1, rank 3". Takes a second. Empty if all do, if ranks do not watch one another, or if nobody
 * can be asked.
 */
std::string silentRanks();
std::vector<Export> watchExports();
}
