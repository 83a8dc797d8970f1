// What a decoding step needs to know of a model, handed over once: its weights, its cache and a few numbers.
//
// attune::decode_plan makes one out of named parts (src/models/generate/plan.ts names them) and gives back its number;
// attune::decode_step and attune::decode_logits (step.cc) run it.
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
  at::Tensor turned = {};  // weightᵀ, as libtorch's products take it; undefined where it is quantised
  at::Tensor halves = {};  // the same numbers in bf16, where a plain matrix of f32 has no others (weights.cc); may be undefined
  at::Tensor shorts = {};  // or in 12 or 28 bits (weights.cc); may be undefined
  at::Tensor packed = {};  // on CUDA the weight in 12 bits (weights.cc), which who makes the plan keeps in step with it; may be undefined
  int64_t writes = 0;  // of the weight when it was copied: after another one it is read itself

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
  int64_t spareSlot = -1;  // that of idle rows, of whose results nothing is asked; −1: there is none
  bool interleaved = false;
  bool fast = false;  // where that is faster, products of quantised weights round x (cpu/quantised/product.h)

  int64_t width() const { return embedding.size(1); }
  int64_t length() const { return tables.size(1) * layers.front().cache.block(); }
  int64_t groups() const { return layers.front().cache.groups(); }
  int64_t headSize() const { return layers.front().cache.size(); }

  /** Whether the kernels of its device take a step of this many rows. */
  bool takes(int64_t rows) const;
};

/** The plan with the number that attune::decode_plan returned; throws where there is none. */
std::shared_ptr<const DecodePlan> planNumbered(int64_t number);

}  // namespace attune
