#include "ops/decode/products.h"

#ifdef ATTUNE_KERNELS
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "cuda/kernels.h"
#include "cuda/launching.h"
#include "cuda/narrow/narrow_product.h"
#include "cuda/wide/wide_product.h"

namespace attune {

using at::Tensor;

// As rmsNorm in src/tensor/functional.ts: our kernel, or libtorch's fused operator if there is one.
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

// By libtorch. The norm and SwiGLU are separate kernels.
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

bool multiplyQuantised(const Linear& linear, const FewRowsProduct& given, Tensor& y) {
  if (!linear.quantised) return false;
  cudaQuantisedProduct(*linear.quantised, given.x, given.bias, given.norm, given.eps, given.gated, given.add, y);
  return true;
}

/** By the kernels that compute the norm themselves, or by libtorch. */
void multiply(const FewRowsProduct& given, Tensor& y) {
  if (cudaProductFits(given))
    cudaProduct(given, y);
  else
    multiplyByLibrary(given, y);
}

}  // namespace

struct PreparedKernels {
  bool (*fit)(Kind, const WideProductArgs&);
  int64_t (*parts)(const WideProductArgs&);
  void (*launch)(const WideProductArgs&, cudaStream_t);
};

namespace {

/** Null if there are none for this product. `isWide`: prefer those of wide_product.cu. */
const PreparedKernels* kernelsFor(const Linear& linear, const Tensor& x, const WideProductArgs& args, bool isWide) {
  static constexpr PreparedKernels kAll[] = {{wideProductFits, wideProductParts, launchWideProduct},
                                             {narrowProductFits, narrowProductParts, launchNarrowProduct}};
  if (!isAligned(x) || !isAligned(linear.weight) || (linear.bias.defined() && !isAligned(linear.bias))) return nullptr;
  for (const PreparedKernels& each : kAll)
    if ((isWide || &each != &kAll[0]) && each.fit(kindOf(x), args)) return &each;
  return nullptr;
}

/** The arguments of the product, without a norm. */
WideProductArgs argumentsOf(const Linear& linear, int64_t rows, bool gated, bool add) {
  WideProductArgs args{};
  args.weight = linear.weight.data_ptr();
  args.bias = pointer(linear.bias);
  args.rows = rows;
  args.inputs = linear.inputs();
  args.outputs = linear.outputs() / (gated ? 2 : 1);
  args.gated = gated;
  args.add = add;
  args.packed = pointer(linear.packed);
  return args;
}
WideProductArgs argumentsOf(const Linear& linear, const Tensor& x, bool gated, bool add, Tensor& y) {
  WideProductArgs args = argumentsOf(linear, x.size(0), gated, add);
  args.x = x.data_ptr();
  args.readableRows = readableRows(x);
  args.y = y.data_ptr();
  return args;
}

/** Launches together with the following product, if that is one of wide_product.cu. */
void launchBefore(const Following& then, const PreparedKernels& kernels, WideProductArgs& args, const Tensor& x, cudaStream_t stream) {
  WideProductArgs next{};
  if (then.linear != nullptr && !then.linear->quantised && then.linear->weight.scalar_type() == x.scalar_type()) {
    next = argumentsOf(*then.linear, args.rows, then.gated, then.add);
    if (isAligned(then.linear->weight) && wideProductFits(kindOf(x), next)) args.next = &next;
  }
  kernels.launch(args, stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

bool wideProductsTake(const DecodePlan& plan, int64_t rows) {
  const Launch launch(plan.embedding);  // what fits depends on the device
  const LayerPlan& layer = plan.layers.front();
  const auto fits = [&](const Linear& linear, bool gated, bool add) {
    return !linear.quantised && wideProductFits(kindOf(plan.embedding), argumentsOf(linear, rows, gated, add));
  };
  return fits(layer.qkv, false, false) && fits(layer.out, false, true) && fits(layer.up, true, false) && fits(layer.down, false, true);
}

// narrow_product.cu, which takes as few rows, prepares norms differently: all of a layer's products use the same kind of kernels
StepProducts::StepProducts(const DecodePlan& plan, Tensor& x)
    : plan_(plan), x_(x), isWide_(x.size(0) > 32 || wideProductsTake(plan, x.size(0))) {}

void StepProducts::ofNorm(const Linear& linear, const Tensor& norm, bool gated, Tensor& y, const Following& then) {
  const FewRowsProduct given{x_, linear.weight, linear.bias, norm, plan_.eps, gated, false};
  leaveNoRoom_ = false;
  if (multiplyQuantised(linear, given, y)) return;
  const Launch launch(x_);
  WideProductArgs args = argumentsOf(linear, x_, gated, false, y);
  const PreparedKernels* kernels = kernelsFor(linear, x_, args, isWide_);
  if (kernels == nullptr) return multiply(given, y);
  leaveNoRoom_ = kernels->launch == launchNarrowProduct;
  Tensor normed;
  if (parts_ > 0 && kernels == preparedBy_) {
    args.x = normed_.data_ptr();
    args.readableRows = readableRows(normed_);
    args.squaresOfX = squares_.data_ptr<float>();
    args.partsOfX = parts_;
    args.eps = static_cast<float>(plan_.eps);
  } else {
    normed = normedCuda(x_, norm, plan_.eps);
    args.x = normed.data_ptr();
    args.readableRows = readableRows(normed);
  }
  launchBefore(then, *kernels, args, x_, launch.stream);
}

void StepProducts::addTo(const Linear& linear, const Tensor& input, const Tensor& nextNorm, const Following& then) {
  const Tensor none;
  const FewRowsProduct given{input, linear.weight, linear.bias, none, 0, false, true};
  parts_ = 0;
  if (multiplyQuantised(linear, given, x_)) return;
  const Launch launch(x_);
  WideProductArgs args = argumentsOf(linear, input, false, true, x_);
  const PreparedKernels* kernels = kernelsFor(linear, input, args, isWide_);
  if (kernels == nullptr) return multiply(given, x_);
  if (nextNorm.defined() && isAligned(nextNorm)) {
    parts_ = kernels->parts(args);
    preparedBy_ = kernels;
    if (!normed_.defined()) normed_ = emptyRows(x_.size(0), x_.sizes().slice(1), x_.options());
    if (!squares_.defined() || squares_.size(0) < parts_) squares_ = at::empty({parts_, x_.size(0)}, x_.options().dtype(at::kFloat));
    args.nextNorm = nextNorm.data_ptr();
    args.normed = normed_.data_ptr();
    args.squaresOfY = squares_.data_ptr<float>();
  }
  launchBefore(then, *kernels, args, x_, launch.stream);
}

}  // namespace attune
#endif
