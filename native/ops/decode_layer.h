// All blocks of a decoding step (native/ops/decode_layer.cc).
#pragma once
#include <ATen/core/List.h>

#include "ops/optional.h"

namespace attune {

using Maybe = const Optional<at::Tensor>&;
using Tensors = at::TensorList;
using Maybes = const c10::List<Optional<at::Tensor>>&;

/** Changes x[B, E] in place. The lists have one entry per layer. */
void decodeLayers(at::Tensor x, double eps, Tensors attentionNorms, Tensors qkv, Maybes qkvBiases, Maybes qNorms, Maybes kNorms, double headEps, Maybe cosines,
                  Maybe sines, bool interleaved, Tensors keys, Tensors values, const at::Tensor& slots, const at::Tensor& positions, int64_t heads,
                  c10::ArrayRef<double> scales, at::IntArrayRef windows, Tensors out, Maybes outBiases, Tensors mlpNorms, Tensors up, Maybes upBiases,
                  Tensors down, Maybes downBiases);

}  // namespace attune
