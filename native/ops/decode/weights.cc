// What a sampler needs of the weights that it decodes with.
//
// attune::count_writes(tensors): how often these tensors were written to in place, in total. libtorch counts these writes for autograd. The
// sampler compares the counts to see whether the weights behind its cache have changed.
//
// attune::exact_shorts(weight[N, K], most_bits) -> the same numbers in 12 or 28 bits each (cpu/short/short.h), or nothing if this CPU would not gain,
// too many of them are too far from the others, or they take more bits
//
// attune::exact_halves(weight[N, K]) -> the same numbers in bf16, or no numbers if one of them has bits that bf16 does not
// Checkpoints are mostly bf16. Loaded as f32, their numbers end in 16 zero bits. A decoding step is limited by reading weights, and reads
// half as much from a copy without these bits (plan.h). The search stops at the first number that is not exact, which comes early in a
// matrix that was trained in f32. For CPUs without copies in 12 bits.
//
// attune::packed_bytes(weight, gates, rows) -> the size of a copy in 12 bits per weight (cuda/packed/cells.cuh); 0 if steps of this many
// rows would not read one. gates: the matrix of an MLP's gates and what they gate, else that of the vocabulary.
// attune::pack(weight, gates, packed) -> whether the weights could be packed: they cannot if too many are far from the others of their row
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>

#include "cpu/short/short.h"
#include "cuda/kernels.h"

namespace attune {
namespace {

using at::Tensor;

int64_t countWrites(at::TensorList tensors) {
  int64_t total = 0;
  for (const Tensor& tensor : tensors)
    if (tensor.defined() && !tensor.is_inference()) total += tensor._version();
  return total;
}

constexpr int64_t kPiece = 4096;  // numbers copied between two checks that all were exact

// Copies the upper halves; returns whether all lower halves are zero.
bool copyUpper(const uint32_t* from, uint16_t* to, int64_t count) {
  uint32_t lower = 0;
  for (int64_t i = 0; i < count; i++) {
    lower |= from[i];
    to[i] = static_cast<uint16_t>(from[i] >> 16);
  }
  return (lower & 0xFFFF) == 0;
}

Tensor exactHalves(const Tensor& weight) {
  TORCH_CHECK(weight.device().is_cpu() && weight.scalar_type() == at::kFloat && weight.dim() == 2, "expected a float32 matrix on the CPU");
  const auto options = weight.options().dtype(at::kBFloat16).requires_grad(false);
  const Tensor none = at::empty({0}, options);
  if (!weight.is_contiguous() || weight.is_inference()) return none;
  const int64_t count = weight.numel(), first = std::min(count, kPiece);
  const auto* from = reinterpret_cast<const uint32_t*>(weight.data_ptr<float>());
  uint16_t room[kPiece];
  if (!copyUpper(from, room, first)) return none;  // before memory for all is allocated
  Tensor halves = at::empty(weight.sizes(), options);
  auto* to = reinterpret_cast<uint16_t*>(halves.data_ptr<at::BFloat16>());
  std::atomic<bool> areExact{true};
  at::parallel_for(0, count, 16 * kPiece, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end && areExact.load(std::memory_order_relaxed); at += kPiece)
      if (!copyUpper(from + at, to + at, std::min(kPiece, end - at))) areExact.store(false, std::memory_order_relaxed);
  });
  return areExact ? halves : none;
}

Tensor exactShorts(const Tensor& weight, int64_t mostBits) {
  const bool isFloat = weight.scalar_type() == at::kFloat;
  TORCH_CHECK(weight.device().is_cpu() && (isFloat || weight.scalar_type() == at::kBFloat16) && weight.dim() == 2,
              "expected a float32 or bfloat16 matrix on the CPU");
  const auto options = weight.options().dtype(at::kInt).requires_grad(false);
  Tensor words = at::empty({0}, options);
  if (!weight.is_contiguous() || weight.is_inference() || !gainsByShort(weight.scalar_type(), 1, weight.size(1))) return words;
  const auto copy = [&](const auto* from) {
    shorten(from, weight.size(0), weight.size(1), mostBits, [&](int64_t count) {
      words = at::empty({count}, options);
      return reinterpret_cast<uint32_t*>(words.data_ptr<int32_t>());
    });
  };
  isFloat ? copy(weight.data_ptr<float>()) : copy(weight.data_ptr<at::BFloat16>());
  return words;
}

int64_t packedBytesOf([[maybe_unused]] const Tensor& weight, [[maybe_unused]] bool gates, [[maybe_unused]] int64_t rows) {
#ifdef ATTUNE_KERNELS
  return cudaPackedBytes(weight, gates, rows);
#else
  return 0;
#endif
}

bool pack([[maybe_unused]] const Tensor& weight, [[maybe_unused]] bool gates, [[maybe_unused]] Tensor& packed) {
#ifdef ATTUNE_KERNELS
  return cudaPack(weight, gates, packed);
#else
  TORCH_CHECK(false, "there is no such kernel for this device");
#endif
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("count_writes(Tensor[] tensors) -> int");
  library.impl("count_writes", c10::DispatchKey::CompositeImplicitAutograd, TORCH_FN(attune::countWrites));
  library.def("exact_halves(Tensor weight) -> Tensor");
  library.impl("exact_halves", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::exactHalves));
  library.def("exact_shorts(Tensor weight, int most_bits=28) -> Tensor");
  library.impl("exact_shorts", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::exactShorts));
  library.def("packed_bytes(Tensor weight, bool gates, int rows) -> int");
  library.impl("packed_bytes", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::packedBytesOf));
  library.def("pack(Tensor weight, bool gates, Tensor(a!) packed) -> bool");
  library.impl("pack", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::pack));
}
