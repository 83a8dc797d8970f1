// Random generators that JavaScript holds besides the default ones.
#pragma once
#include <ATen/core/Generator.h>

#include "door/door.h"

namespace attune {
at::Generator generatorAt(int64_t id);
}
