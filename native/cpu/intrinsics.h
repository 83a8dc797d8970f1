// The CPU's own intrinsics. GCC 12 warns about placeholders inside its AVX-512 header (GCC bug 105593).
#pragma once
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
