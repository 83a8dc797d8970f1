// Tensors in front of the kernels of the .cu files.
#ifdef ATTUNE_KERNELS
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda/kernels.h"
#include "cuda/raw.h"

namespace attune {
namespace {

using at::Tensor;

Kind kindOf(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return Kind::Float32;
    case at::kHalf:
      return Kind::Float16;
    case at::kBFloat16:
      return Kind::BFloat16;
    default:
      TORCH_CHECK(false, "this kernel takes float32, float16 or bfloat16");
  }
}

struct Launch {
  c10::cuda::CUDAGuard guard;
  cudaStream_t stream;
  explicit Launch(const Tensor& on) : guard(on.device()), stream(c10::cuda::getCurrentCUDAStream().stream()) {}
};

void* pointer(const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; }
float* floats(const Tensor& tensor) { return static_cast<float*>(pointer(tensor)); }

}  // namespace

Tensor cudaRope(const Tensor& input, const Tensor& cosines, const Tensor& sines, bool interleaved, float direction) {
  const Launch launch(input);
  const Tensor x = input.stride(-1) == 1 ? input : input.contiguous();
  Tensor y = at::empty(x.sizes(), x.options());
  launchRope(kindOf(x),
             {x.data_ptr(), cosines.data_ptr<float>(), sines.data_ptr<float>(), y.data_ptr(), x.size(0), x.size(1), x.size(2), cosines.size(1),
              x.stride(0), x.stride(1), interleaved, direction},
             launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor cudaSwiglu(const Tensor& x) {
  const Launch launch(x);
  const int64_t size = x.size(-1) / 2;
  Tensor y = at::empty({x.size(0), size}, x.options());
  launchSwiglu(kindOf(x), x.data_ptr(), y.data_ptr(), x.size(0), size, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

Tensor cudaSwigluBackward(const Tensor& x, const Tensor& gradient) {
  const Launch launch(x);
  Tensor dx = at::empty_like(x);
  launchSwigluBackward(kindOf(x), x.data_ptr(), gradient.data_ptr(), dx.data_ptr(), x.size(0), x.size(-1) / 2, launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dx;
}

bool cudaAttentionFits(int64_t headSize, c10::ScalarType dtype) {
  return attentionFits(headSize) && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16);
}

Tensor cudaDecodeFused(const FusedAttention& in, Tensor& keys, Tensor& values, AttentionOf what) {
  const Launch launch(in.qkv);
  const int64_t rows = in.qkv.size(0), width = in.qkv.size(1), groups = keys.size(2), size = keys.size(3), itemSize = in.qkv.element_size();
  Tensor out = at::empty({rows, in.heads, size}, in.qkv.options());
  const char* q = static_cast<const char*>(in.qkv.data_ptr());
  const char* k = q + in.heads * size * itemSize;
  launchAttention(kindOf(in.qkv),
                  {q, k, k + groups * size * itemSize, width, width, pointer(in.qWeight), pointer(in.kWeight), floats(in.cosines), floats(in.sines),
                   keys.data_ptr(), values.data_ptr(), out.data_ptr(), in.slots.data_ptr<int64_t>(), in.positions.data_ptr<int64_t>(), nullptr, 0, rows,
                   in.heads, groups, size, in.cosines.defined() ? in.cosines.size(1) : 0, keys.size(1), in.window, static_cast<float>(in.scale),
                   static_cast<float>(in.eps), in.interleaved, what == AttentionOf::Step},
                  launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

Tensor cudaDecodeAttention(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& keys, Tensor& values, const Tensor& slots,
                           const Tensor& positions, double scale, int64_t window, const Tensor& bias) {
  const Launch launch(q);
  const int64_t heads = q.size(1), groups = keys.size(2), size = q.size(2);
  Tensor out = at::empty_like(q);
  launchAttention(kindOf(q),
                  {q.data_ptr(), k.data_ptr(), v.data_ptr(), heads * size, groups * size, nullptr, nullptr, nullptr, nullptr, keys.data_ptr(),
                   values.data_ptr(), out.data_ptr(), slots.data_ptr<int64_t>(), positions.data_ptr<int64_t>(), floats(bias),
                   bias.defined() ? bias.size(1) : 0, q.size(0), heads, groups, size, 0, keys.size(1), window, static_cast<float>(scale), 0.0f, false, false},
                  launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

bool cudaProductFits(const Tensor& x, c10::IntArrayRef widths) {
  const Launch launch(x);
  if (x.scalar_type() != at::kBFloat16) return false;
  for (int64_t width : widths)
    if (!productFits(x.size(0), width, width)) return false;
  return true;
}

void cudaProduct(const FewRowsProduct& in, Tensor& y) {
  const Launch launch(in.x);
  launchProduct({in.x.data_ptr(), in.weight.data_ptr(), pointer(in.bias), pointer(in.norm), y.data_ptr(), in.x.size(0), in.weight.size(1),
                 in.weight.size(0) / (in.gated ? 2 : 1), static_cast<float>(in.eps), in.gated, in.add},
                launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void cudaSample(const Tensor& logits, const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP, const Tensor& seeds,
                const Tensor& counters, Tensor& ids, Tensor& logp) {
  const Launch launch(logits);
  launchSample(kindOf(logits), {logits.data_ptr(), temperature.data_ptr<float>(), topP.data_ptr<float>(), minP.data_ptr<float>(), topK.data_ptr<int64_t>(),
                seeds.data_ptr<int64_t>(), counters.data_ptr<int64_t>(), ids.data_ptr<int64_t>(), logp.data_ptr<float>(), logits.size(0),
                logits.size(1)},
               launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void cudaRowStatistics(const Tensor& logits, const Tensor& targets, float inverse, Tensor& logp, Tensor& entropy, Tensor& lse) {
  const Launch launch(logits);
  launchRowStatistics({logits.data_ptr<float>(), targets.data_ptr<int64_t>(), logp.data_ptr<float>(), entropy.data_ptr<float>(), lse.data_ptr<float>(),
                       nullptr, nullptr, nullptr, logits.size(0), logits.size(1), inverse, 0},
                      launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

Tensor cudaRowGradient(Tensor& logits, const RowGradient& in, c10::ScalarType dtype) {
  const Launch launch(logits);
  // in f32 the gradient takes the logits' place
  Tensor gradient = dtype == at::kFloat ? logits : at::empty(logits.sizes(), logits.options().dtype(dtype));
  launchRowGradient(kindOf(gradient),
                    {logits.data_ptr<float>(), in.targets.data_ptr<int64_t>(), nullptr, floats(in.entropy), floats(in.lse), floats(in.forLogp),
                     floats(in.forEntropy), gradient.data_ptr(), logits.size(0), logits.size(1), static_cast<float>(in.inverse), in.first},
                    launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return gradient;
}

}  // namespace attune
#endif
