#include "ops/decode/solo.h"

#ifdef ATTUNE_KERNELS
#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "cuda/kernels.h"
#include "cuda/launching.h"
#include "cuda/narrow/narrow_product.h"
#include "cuda/solo/kernels.h"

namespace attune {

using at::Tensor;

namespace {

bool isPlain(const Linear& linear) { return !linear.quantised && linear.weight.scalar_type() == at::kBFloat16 && isAligned(linear.weight); }

bool fits(const LayerPlan& layer, const AttentionArgs& attention, int64_t width) {
  return isPlain(layer.out) && !layer.out.bias.defined() && isPlain(layer.up) && isAligned(layer.mlpNorm) &&
         soloAttentionFits(attention, width) && soloGatesFit(width, layer.down.inputs());
}

}  // namespace

SoloLayers::SoloLayers(const DecodePlan& plan, int64_t rows) : plan_(plan) {
  const Tensor& table = plan.embedding;
  const Launch launch(table);
  if (rows != 1 || table.scalar_type() != at::kBFloat16 || !isAligned(table) ||
      !soloGatesFit(plan.width(), plan.layers.front().down.inputs()))
    return;
  memory_ = at::empty({2, plan.width()}, table.options().dtype(at::kLong));
}

Tensor SoloLayers::gather(const Tensor& ids) {
  const LayerPlan& first = plan_.layers.front();
  std::vector<Tensor> ahead;  // in the order in which they are read
  for (const Linear* linear : {&first.qkv, &first.out, &first.up, &first.down})
    if (!linear->quantised) ahead.push_back(linear->packed.defined() && ids.size(0) <= kMostPackedRows ? linear->packed : linear->weight);
  return cudaBeginStep(plan_.embedding, ids, memory_, ahead);
}

Tensor SoloLayers::attend(const FusedAttention& attention, const LayerPlan& layer, Tensor& x) {
  if (!memory_.defined()) return {};
  const Launch launch(x);
  const AttentionArgs args = argumentsOf(attention, layer.cache, AttentionOf::Step);
  if (!fits(layer, args, plan_.width())) return {};
  const auto setAt = [&](int64_t set) { return reinterpret_cast<long long*>(memory_.data_ptr<int64_t>() + set * plan_.width()); };
  launchSoloAttention(args, {layer.out.weight.data_ptr(), setAt(set_), setAt(1 - set_)}, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();

  if (!otherX_.defined()) otherX_ = at::empty_like(x);
  Tensor active = at::empty({1, layer.down.inputs()}, x.options());
  SoloGates gates{};
  gates.x = x.data_ptr();
  gates.added = setAt(set_);
  gates.sum = otherX_.data_ptr();
  gates.weight = layer.up.weight.data_ptr();
  gates.bias = pointer(layer.up.bias);
  gates.norm = layer.mlpNorm.data_ptr();
  gates.active = active.data_ptr();
  gates.outputs = layer.down.inputs();
  gates.eps = static_cast<float>(plan_.eps);
  launchSoloGates(gates, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  std::swap(x, otherX_);
  set_ = 1 - set_;
  return active;
}

}  // namespace attune
#endif
