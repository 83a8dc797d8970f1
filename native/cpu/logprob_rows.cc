#include "ops/logprob_rows.h"

#include <ATen/ATen.h>

#include "cpu/kernels.h"
#include "cpu/vectors.h"
#include "cuda/kernels.h"

namespace attune {
namespace {

using at::Tensor;

const float* floats(const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<float>() : nullptr; }

struct Statistics {
  float sum, weighted;
};

// Σ e^d and Σ d·e^d with d = (z − peak)·inverse.
Statistics statisticsOf(const float* z, int64_t size, float peak, float inverse) {
  Vector sums[2] = {}, products[2] = {};
  int64_t i = 0;
  for (; i + 2 * kWidth <= size; i += 2 * kWidth)
    for (int j = 0; j < 2; j++) {
      const Vector distance = (load(z + i + j * kWidth) - peak) * inverse, w = exponential(distance);
      sums[j] += w;
      products[j] = fused(w, distance, products[j]);
    }
  Statistics out{total(sums[0] + sums[1]), total(products[0] + products[1])};
  for (; i < size; i++) {
    const float distance = (z[i] - peak) * inverse, w = exponential(all(distance))[0];
    out.sum += w;
    out.weighted = fused(w, distance, out.weighted);
  }
  return out;
}

void statisticsCpu(const float* logits, const int64_t* targets, float inverse, float* logp, float* entropy, float* lse, int64_t rows,
                   int64_t size) {
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const float* z = logits + row * size;
      const float peak = largest(z, size);
      double sum = 0, weighted = 0;
      for (int64_t start = 0; start < size; start += 4096) {  // 4096 numbers are summed in f32, these sums in f64
        const int64_t stop = std::min(size, start + 4096);
        const Statistics part = statisticsOf(z + start, stop - start, peak, inverse);
        sum += part.sum;
        weighted += part.weighted;
      }
      const double logSum = std::log(sum);
      lse[row] = static_cast<float>(peak * inverse + logSum);
      entropy[row] = static_cast<float>(logSum - weighted / sum);
      logp[row] = targets[row] < 0 ? 0.0f : static_cast<float>((z[targets[row]] - peak) * inverse - logSum);
    }
  });
}

void gradientCpu(float* logits, const RowGradient& in, int64_t rows, int64_t size) {
  const int64_t* targets = in.targets.data_ptr<int64_t>();
  const float *lse = floats(in.lse), *entropy = floats(in.entropy), *forLogp = floats(in.forLogp), *forEntropy = floats(in.forEntropy);
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      float* z = logits + row * size;
      const bool counted = targets[row] >= 0;
      const float g = counted && forLogp != nullptr ? forLogp[row] : 0.0f, h = forEntropy == nullptr ? 0.0f : forEntropy[row];
      const float shift = lse[row], rest = entropy[row], scale = static_cast<float>(in.inverse);
      const auto gradient = [&](const Vector& logit) {
        const Vector logProbability = fused(logit, scale, all(-shift));
        return -scale * exponential(logProbability) * fused(logProbability + rest, h, all(g));
      };
      int64_t i = 0;
      for (; i + kWidth <= size; i += kWidth) store(z + i, gradient(load(z + i)));
      for (; i < size; i++) z[i] = gradient(all(z[i]))[0];
      const int64_t column = targets[row] - in.first;
      if (counted && column >= 0 && column < size) z[column] += g * scale;
    }
  });
}

}  // namespace

bool hasRowKernels(const Tensor& logits) {
  if (logits.scalar_type() != at::kFloat) return false;
#ifdef ATTUNE_KERNELS
  if (logits.is_cuda()) return true;
#endif
  return logits.device().is_cpu();
}

void rowStatistics(const Tensor& logits, const Tensor& targets, float inverse, Tensor logp, Tensor entropy, Tensor lse) {
#ifdef ATTUNE_KERNELS
  if (logits.is_cuda()) return cudaRowStatistics(logits, targets, inverse, logp, entropy, lse);
#endif
  const int64_t* given = targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.size(0); i++)
    TORCH_CHECK(given[i] < logits.size(1), "target ", given[i], " is out of bounds for ", logits.size(1), " classes");
  statisticsCpu(logits.data_ptr<float>(), targets.data_ptr<int64_t>(), inverse, logp.data_ptr<float>(), entropy.data_ptr<float>(),
                lse.data_ptr<float>(), logits.size(0), logits.size(1));
}

Tensor rowGradient(Tensor logits, const RowGradient& incoming, c10::ScalarType dtype) {
#ifdef ATTUNE_KERNELS
  if (logits.is_cuda()) return cudaRowGradient(logits, incoming, dtype);
#endif
  gradientCpu(logits.data_ptr<float>(), incoming, logits.size(0), logits.size(1));
  return logits.to(dtype);
}

}  // namespace attune
