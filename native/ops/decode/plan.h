// What a decoding step needs to know of a model, passed once: its weights, its cache and a few numbers.
//
// attune::decode_plan makes one out of named parts (src/models/generate/plan.ts names them) and returns its number; attune::decode_step and
// attune::decode_logits (step.cc) run it.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "ops/decode/cache/layer.h"
#include "ops/quantised_matrix.h"

namespace attune {

/** y = x·weightᵀ + bias; the bias may be undefined. The matrix is plain or quantised. */
struct Linear {
  at::Tensor weight, bias;
  std::shared_ptr<const QuantisedMatrix> quantised;
  at::Tensor turned = {};  // weightᵀ, as libtorch's products take it; undefined if quantised
  at::Tensor halves = {};  // for a plain f32 matrix whose numbers all fit bf16, the same numbers in bf16 (weights.cc); may be undefined
  at::Tensor shorts = {};  // for a plain f32 or bf16 matrix, the same numbers in 12 or 28 bits (weights.cc); may be undefined
  at::Tensor packed = {};  // on CUDA the weight in 12 bits (weights.cc), kept current by the plan's owner; may be undefined
  int64_t writes = 0;  // the weight's count of writes when it was copied; once it differs, the weight itself is read

  int64_t outputs() const { return quantised ? quantised->outputs : weight.size(0); }
  int64_t inputs() const { return quantised ? quantised->inputs : weight.size(1); }
};

/** RMS norm, attention with its cache, RMS norm, gated SiLU MLP: the commonest block. */
struct LayerPlan {
  at::Tensor attentionNorm, mlpNorm;
  at::Tensor qNorm, kNorm;  // of a head; may be undefined
  Linear qkv, out, up, down;
  CacheLayer cache;
  double scale = 1;  // of the scores
  int64_t window = 0;  // positions that attention sees; 0: all
};

struct DecodePlan {
  at::Tensor embedding;  // [vocabulary, width]
  std::vector<LayerPlan> layers;
  at::Tensor finalNorm;
  Linear head;
  at::Tensor tables;  // [slots, blocks of a slot at most]: the blocks of each slot's positions
  at::Tensor cosines, sines;  // [positions, half a head or less]; undefined: no rotary positions
  double eps = 0, headEps = 0, finalEps = 0;
  int64_t heads = 0;
  int64_t spareSlot = -1;  // the slot of idle rows, whose results are not used; −1: there is none
  bool interleaved = false;
  bool fast = false;  // products of quantised weights round x if that is faster (cpu/quantised/product.h)

  int64_t width() const { return embedding.size(1); }
  int64_t length() const { return tables.size(1) * layers.front().cache.block(); }
  int64_t groups() const { return layers.front().cache.groups(); }
  int64_t headSize() const { return layers.front().cache.size(); }

  /** Whether the device's kernels take a step of this many rows. */
  bool takes(int64_t rows) const;
};

/** The plan that attune::decode_plan numbered so; throws if there is none. */
std::shared_ptr<const DecodePlan> planNumbered(int64_t number);

}  // namespace attune
