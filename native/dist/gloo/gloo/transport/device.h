// See context.h.
#pragma once
#include "dist/gloo/gloo/context.h"
