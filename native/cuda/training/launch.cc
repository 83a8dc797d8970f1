// Launches the kernels of a training step (kernels.h of this folder) on tensors.
#ifdef ATTUNE_KERNELS
#include "cuda/kernels.h"
#include "cuda/launching.h"
#include "cuda/training/kernels.h"

#include <vector>

namespace attune {
namespace {

using at::Tensor;

bool isKind(const Tensor& tensor) {
  const auto dtype = tensor.scalar_type();
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

int64_t rowsOf(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1); }

HeadsArgs headsOf(const SplitHeads& given) {
  HeadsArgs args{};
  args.qkv = given.qkv.data_ptr();
  args.qWeight = pointer(given.qWeight);
  args.kWeight = pointer(given.kWeight);
  args.cosines = floats(given.cosines);
  args.sines = floats(given.sines);
  args.rows = given.qkv.size(0);
  args.heads = given.heads;
  args.groups = given.groups;
  args.size = given.size();
  args.eps = static_cast<float>(given.eps);
  return args;
}

}  // namespace

bool cudaNormFits(const Tensor& x) { return x.is_cuda() && isKind(x) && normFits(kindOf(x), x.size(-1)); }

Normed cudaNorm(const Tensor& given, const Tensor& given2, const Tensor& weight, double eps) {
  const Launch launch(given);
  const Tensor x = aligned(given), added = aligned(given2), w = aligned(weight);
  const Tensor sum = added.defined() ? at::empty(x.sizes(), x.options()) : given, y = at::empty(x.sizes(), x.options());
  NormArgs args{};
  args.x = x.data_ptr();
  args.added = pointer(added);
  args.weight = w.data_ptr();
  args.sum = added.defined() ? sum.data_ptr() : nullptr;
  args.y = y.data_ptr();
  args.rows = rowsOf(x);
  args.size = x.size(-1);
  args.eps = static_cast<float>(eps);
  launchNorm(kindOf(x), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {sum, y};
}

NormGradients cudaNormBackward(const Tensor& input, const Tensor& weight, const Tensor& incoming, const Tensor& incomingPast, double eps,
                               bool wantWeight) {
  const Launch launch(input);
  const Tensor x = aligned(input), w = aligned(weight), gradient = aligned(incoming), past = aligned(incomingPast);
  const Kind kind = kindOf(x);
  NormGradients out{at::empty(x.sizes(), x.options()), wantWeight ? at::empty(weight.sizes(), weight.options()) : Tensor()};
  const int64_t rows = rowsOf(x), size = x.size(-1);
  const Tensor partial =
      wantWeight ? at::empty({normBackwardBlocks(kind, rows, size), size}, x.options().dtype(at::kFloat)) : Tensor();
  NormBackwardArgs args{};
  args.x = x.data_ptr();
  args.weight = w.data_ptr();
  args.gradient = gradient.data_ptr();
  args.past = pointer(past);
  args.dx = out.x.data_ptr();
  args.partial = floats(partial);
  args.dWeight = pointer(out.weight);
  args.rows = rows;
  args.size = size;
  args.eps = static_cast<float>(eps);
  launchNormBackward(kind, args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

bool cudaHeadsFit(const SplitHeads& given) {
  if (!given.qkv.is_cuda() || !isKind(given.qkv) || given.qkv.size(0) == 0 || !headsFit(given.size())) return false;
  return !given.cosines.defined() || (!given.interleaved && 2 * given.cosines.size(1) == given.size());
}

std::pair<Tensor, Tensor> cudaHeads(const SplitHeads& given) {
  const Launch launch(given.qkv);
  const auto options = given.qkv.options();
  const Tensor q = at::empty({given.qkv.size(0), given.heads, given.size()}, options);
  const Tensor k = at::empty({given.qkv.size(0), given.groups, given.size()}, options);
  HeadsArgs args = headsOf(given);
  args.q = q.data_ptr();
  args.k = k.data_ptr();
  launchHeads(kindOf(given.qkv), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {q, k};
}

HeadGradients cudaHeadsBackward(const SplitHeads& given, const Tensor& dq, const Tensor& dk, const Tensor& dv, bool wantWeights) {
  const Launch launch(given.qkv);
  const auto whole = [&](const Tensor& gradient, int64_t heads) {
    return gradient.defined() ? aligned(gradient) : at::zeros({given.qkv.size(0), heads, given.size()}, given.qkv.options());
  };
  const Tensor q = whole(dq, given.heads), k = whole(dk, given.groups), v = whole(dv, given.groups);
  const bool weights = wantWeights && given.qWeight.defined();
  HeadGradients out;
  out.qkv = at::empty(given.qkv.sizes(), given.qkv.options());
  if (weights) {
    out.qWeight = at::empty(given.qWeight.sizes(), given.qWeight.options());
    out.kWeight = at::empty(given.kWeight.sizes(), given.kWeight.options());
  }
  const Tensor partial = weights ? at::empty({headsBackwardBlocks(given.qkv.size(0)), 2 * given.size()}, given.qkv.options().dtype(at::kFloat))
                                 : Tensor();
  HeadsBackwardArgs args{};
  args.forward = headsOf(given);
  args.dq = q.data_ptr();
  args.dk = k.data_ptr();
  args.dv = v.data_ptr();
  args.dqkv = out.qkv.data_ptr();
  args.partial = floats(partial);
  args.dqWeight = pointer(out.qWeight);
  args.dkWeight = pointer(out.kWeight);
  launchHeadsBackward(kindOf(given.qkv), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

bool cudaJoinFits(const Tensor& x, at::TensorList parts) {
  if (!x.is_cuda() || !isKind(x) || parts.size() > 2 * kMostJoined) return false;
  for (const Tensor& part : parts)
    if (!isKind(part) || part.scalar_type() != parts[0].scalar_type() || part.device() != x.device()) return false;
  return true;
}

std::pair<Tensor, Tensor> cudaJoin(const Tensor& x, int64_t outputs, at::TensorList parts, at::ArrayRef<double> scales,
                                   at::IntArrayRef starts) {
  const Launch launch(x);
  std::vector<Tensor> dense;  // alive until the kernel is launched
  JoinArgs args{};
  for (size_t i = 0; i < scales.size(); i++) {
    for (size_t each : {2 * i, 2 * i + 1}) dense.push_back(parts[each].contiguous());
    const Tensor &a = dense[2 * i], &b = dense[2 * i + 1];
    args.parts[args.count++] = {a.data_ptr(), b.data_ptr(), args.ranks, a.size(0), starts[i], b.size(0), static_cast<float>(scales[i])};
    args.ranks += a.size(0);
  }
  args.inputs = x.size(1);
  args.outputs = outputs;
  const Tensor down = at::empty({args.ranks, args.inputs}, x.options()), up = at::empty({outputs, args.ranks}, x.options());
  args.down = down.data_ptr();
  args.up = up.data_ptr();
  launchJoin(kindOf(x), kindOf(parts[0]), args, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {down, up};
}

void cudaUpdate(at::TensorList masters, at::TensorList gradients, at::TensorList averages, at::TensorList squares,
                at::TensorList parameters, const AdamWRule& rule, const Tensor& factor) {
  if (masters.empty()) return;
  const Launch launch(masters[0]);
  std::vector<UpdatedTensor> tensors;
  std::vector<Tensor> dense;  // alive until the kernel is launched; the allocator keeps the order of the stream
  tensors.reserve(masters.size());
  for (size_t i = 0; i < masters.size(); i++) {
    dense.push_back(gradients[i].contiguous());
    tensors.push_back({masters[i].data_ptr<float>(), averages[i].data_ptr<float>(), squares[i].data_ptr<float>(), dense.back().data_ptr(),
                       parameters.empty() ? nullptr : parameters[i].data_ptr(), masters[i].numel()});
  }
  const UpdateRule given{rule.shrink, rule.beta1, rule.fresh1, rule.beta2, rule.fresh2, rule.correction2, rule.eps, rule.rate, floats(factor)};
  launchUpdate(kindOf(gradients[0]), parameters.empty() ? Kind::Float32 : kindOf(parameters[0]), tensors.data(),
               static_cast<int64_t>(tensors.size()), given, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor cudaSquares(at::TensorList given) {
  const Launch launch(given[0]);
  std::vector<SummedTensor> tensors;
  std::vector<Tensor> dense;
  for (const Tensor& tensor : given) {
    dense.push_back(tensor.contiguous());
    tensors.push_back({dense.back().data_ptr(), tensor.numel()});
  }
  const auto count = static_cast<int64_t>(tensors.size());
  const auto options = given[0].options();
  Tensor sum = at::empty({}, options.dtype(at::kDouble));
  const Tensor partial = at::empty({squaresBlocks(tensors.data(), count)}, options.dtype(at::kFloat));
  launchSquares(kindOf(given[0]), tensors.data(), count, floats(partial), sum.data_ptr<double>(), launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sum;
}

}  // namespace attune
#endif
