// What the CPU and CUDA samplers share: which temperatures take the likeliest token, and the uniform number of a token.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define ATTUNE_BOTH __host__ __device__
#else
#define ATTUNE_BOTH
#endif

namespace attune {

/**
 * Below this temperature a row takes its likeliest token, since e^(z/T) would leave the range of f32. The log-probability is at the row's
 * temperature, or at 1 for temperature 0.
 */
constexpr float kLeastTemperature = 1e-5f;
ATTUNE_BOTH inline float inverseOf(float temperature) {
  return temperature > 0 ? 1.0f / (temperature < kLeastTemperature ? kLeastTemperature : temperature) : 1.0f;
}

// A uniform number in [0, 1) from (seed, counter) alone (splitmix64's finaliser, Steele et al. 2014), so that a request's tokens depend on
// its seed and never on its neighbours in the batch.
ATTUNE_BOTH inline double uniformAt(int64_t seed, int64_t counter) {
  uint64_t x =
      static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(counter) * 0xD1B54A32D192ED03ull + 0x8CB92BA72F3D8DD7ull;
  for (int round = 0; round < 2; round++) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    x ^= x >> 31;
  }
  return static_cast<double>(x >> 11) * 0x1.0p-53;
}

}  // namespace attune
