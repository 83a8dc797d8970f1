#include "ops/decode/products.h"

#ifdef ATTUNE_KERNELS
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "cuda/kernels.h"
#include "cuda/launching.h"
#include "cuda/wide/wide_product.h"

namespace attune {

using at::Tensor;

// As rmsNorm in src/tensor/functional.ts: our kernel, or libtorch's fused operator where there is one.
Tensor normedCuda(const Tensor& x, const Tensor& weight, double eps) {
  if (cudaNormFits(x)) return cudaNorm(x, {}, weight, eps).y;
  static const auto fused = c10::Dispatcher::singleton().findSchema({"aten::_fused_rms_norm", ""});
  if (fused.has_value()) {
    torch::jit::Stack stack{x, c10::IntArrayRef{x.size(1)}, weight, eps};
    fused->callBoxed(&stack);
    return stack.front().toTensor();
  }
  const Tensor wide = x.to(at::kFloat);
  const Tensor scale = wide.square().mean(-1, true).add(eps).rsqrt();
  return wide.mul(scale).to(x.scalar_type()).mul(weight);
}

namespace {

// By libtorch. The norm and SwiGLU are kernels of their own.
void multiplyByLibrary(const FewRowsProduct& given, Tensor& y) {
  const Tensor& bias = given.bias;
  const Tensor turned = given.weight.t(), x = given.norm.defined() ? normedCuda(given.x, given.norm, given.eps) : given.x;
  if (given.gated) {
    cudaSwigluInto(at::linear(x, given.weight, bias), y);
  } else if (!given.add) {
    if (bias.defined())
      at::addmm_out(y, bias, x, turned);
    else
      at::mm_out(y, x, turned);
  } else {
    at::addmm_out(y, y, x, turned);
    if (bias.defined()) y.add_(bias);
  }
}

/** By the kernels for few rows, quantised or not; false where they do not take it. */
bool multiplyFewRows(const Linear& linear, const FewRowsProduct& given, Tensor& y) {
  if (linear.quantised) {
    cudaQuantisedProduct(*linear.quantised, given.x, given.bias, given.norm, given.eps, given.gated, given.add, y);
    return true;
  }
  if (!cudaProductFits(given)) return false;
  cudaProduct(given, y);
  return true;
}

/** The product for more rows, without a norm. */
WideProductArgs wideOf(const Linear& linear, int64_t rows, bool gated, bool add) {
  WideProductArgs args{};
  args.weight = linear.weight.data_ptr();
  args.bias = pointer(linear.bias);
  args.rows = rows;
  args.inputs = linear.inputs();
  args.outputs = linear.outputs() / (gated ? 2 : 1);
  args.gated = gated;
  args.add = add;
  return args;
}
WideProductArgs wideOf(const Linear& linear, const Tensor& x, bool gated, bool add, Tensor& y) {
  WideProductArgs args = wideOf(linear, x.size(0), gated, add);
  args.x = x.data_ptr();
  args.y = y.data_ptr();
  return args;
}

bool fits(const Linear& linear, const Tensor& x, const WideProductArgs& args) {
  return isAligned(x) && isAligned(linear.weight) && (!linear.bias.defined() || isAligned(linear.bias)) && wideProductFits(kindOf(x), args);
}

/** `launchWideProduct` with the product that follows, where that is one of these. */
void launchBefore(const Following& then, WideProductArgs& args, const Tensor& x, cudaStream_t stream) {
  WideProductArgs next{};
  if (then.linear != nullptr && !then.linear->quantised && then.linear->weight.scalar_type() == x.scalar_type()) {
    next = wideOf(*then.linear, args.rows, then.gated, then.add);
    if (isAligned(then.linear->weight) && wideProductFits(kindOf(x), next)) args.next = &next;
  }
  launchWideProduct(args, stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

void StepProducts::ofNorm(const Linear& linear, const Tensor& norm, bool gated, Tensor& y, const Following& then) {
  const FewRowsProduct given{x_, linear.weight, linear.bias, norm, plan_.eps, gated, false};
  if (multiplyFewRows(linear, given, y)) return;
  const Launch launch(x_);
  const bool isPrepared = parts_ > 0;
  WideProductArgs wide = wideOf(linear, isPrepared ? normed_ : x_, gated, false, y);
  if (!fits(linear, x_, wide)) return multiplyByLibrary(given, y);
  Tensor normed;
  if (isPrepared) {
    wide.squaresOfX = squares_.data_ptr<float>();
    wide.partsOfX = parts_;
    wide.eps = static_cast<float>(plan_.eps);
  } else {
    normed = normedCuda(x_, norm, plan_.eps);
    wide.x = normed.data_ptr();
  }
  launchBefore(then, wide, x_, launch.stream);
}

void StepProducts::addTo(const Linear& linear, const Tensor& input, const Tensor& nextNorm, const Following& then) {
  const Tensor none;
  const FewRowsProduct given{input, linear.weight, linear.bias, none, 0, false, true};
  parts_ = 0;
  if (multiplyFewRows(linear, given, x_)) return;
  const Launch launch(x_);
  WideProductArgs wide = wideOf(linear, input, false, true, x_);
  if (!fits(linear, input, wide)) return multiplyByLibrary(given, x_);
  if (nextNorm.defined() && isAligned(nextNorm)) {
    parts_ = wideProductParts(wide);
    if (!normed_.defined()) normed_ = at::empty_like(x_);
    if (!squares_.defined() || squares_.size(0) < parts_) squares_ = at::empty({parts_, x_.size(0)}, x_.options().dtype(at::kFloat));
    wide.nextNorm = nextNorm.data_ptr();
    wide.normed = normed_.data_ptr();
    wide.squaresOfY = squares_.data_ptr<float>();
  }
  launchBefore(then, wide, x_, launch.stream);
}

}  // namespace attune
#endif
