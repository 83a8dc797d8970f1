// A rank's signs of life.
#pragma once
#include <cstdint>

#include "door/door.h"

namespace attune {

/** The progress of JavaScript's thread. */
struct Progress {
  /** Grows with turns of the event loop, native calls and bytes read or written. */
  uint64_t done = 0;
  /** Whether the thread is inside a native call, which may take its time. */
  bool isNative = false;
  /** Whether it runs or waits for a core; false if it sleeps. */
  bool runs = true;
  double cpuSeconds = 0;
};

Progress readProgress();
std::vector<Export> beatExports();

}  // namespace attune
