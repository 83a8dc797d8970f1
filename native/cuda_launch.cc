// Tensors in front of the kernels of cuda_kernels.cu.
#ifdef ATTUNE_KERNELS
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "cuda_kernels.h"
#include "cuda_raw.h"

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

Tensor cudaDecodeQkv(const FusedQkv& in, Tensor& keys, Tensor& values) {
  const Launch launch(in.fused);
  const int64_t groups = keys.size(2), size = keys.size(3);
  Tensor q = at::empty({in.fused.size(0), in.heads, size}, in.fused.options());
  const auto pointer = [](const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr() : nullptr; };
  launchQkv(kindOf(in.fused),
            {in.fused.data_ptr(), pointer(in.qWeight), pointer(in.kWeight), static_cast<const float*>(pointer(in.cosines)),
             static_cast<const float*>(pointer(in.sines)), q.data_ptr(), keys.data_ptr(), values.data_ptr(), in.slots.data_ptr<int64_t>(),
             in.positions.data_ptr<int64_t>(), in.fused.size(0), in.heads, groups, size, in.cosines.defined() ? in.cosines.size(1) : 0, keys.size(1),
             static_cast<float>(in.eps), in.interleaved},
            launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return q;
}

bool cudaDecodeFits(int64_t headSize, c10::ScalarType dtype) {
  return decodeFits(headSize) && (dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16);
}

Tensor cudaDecodeAttention(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& keys, Tensor& values, const Tensor& slots,
                           const Tensor& positions, double scale, int64_t window, const Tensor& bias) {
  const Launch launch(q);
  Tensor out = at::empty_like(q);
  launchDecode(kindOf(q),
               {q.data_ptr(), k.defined() ? k.data_ptr() : nullptr, v.defined() ? v.data_ptr() : nullptr, keys.data_ptr(), values.data_ptr(), out.data_ptr(), slots.data_ptr<int64_t>(),
                positions.data_ptr<int64_t>(), bias.defined() ? bias.data_ptr<float>() : nullptr, bias.defined() ? bias.size(1) : 0, q.size(0),
                q.size(1), keys.size(2), q.size(2), keys.size(1), window, static_cast<float>(scale)},
               launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

void cudaSample(const Tensor& logits, const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP, const Tensor& seeds,
                const Tensor& counters, Tensor& ids, Tensor& logp) {
  const Launch launch(logits);
  launchSample({logits.data_ptr<float>(), temperature.data_ptr<float>(), topP.data_ptr<float>(), minP.data_ptr<float>(), topK.data_ptr<int64_t>(),
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
  const auto floats = [](const Tensor& tensor) { return tensor.defined() ? tensor.data_ptr<float>() : nullptr; };
  launchRowGradient(kindOf(gradient),
                    {logits.data_ptr<float>(), in.targets.data_ptr<int64_t>(), nullptr, floats(in.entropy), floats(in.lse), floats(in.forLogp),
                     floats(in.forEntropy), gradient.data_ptr(), logits.size(0), logits.size(1), static_cast<float>(in.inverse), in.first},
                    launch.stream);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return gradient;
}

}  // namespace attune
#endif
