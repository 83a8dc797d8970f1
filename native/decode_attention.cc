// attune::decode_attention(q[B, H, D], k[B, G, D], v[B, G, D], keys[S, L, G, D], values[S, L, G, D], slots[B], positions[B], …)
//
// One new token per row: its k and v are written into its slot of the cache at its position, and its query attends to
// everything there up to itself. Rows are independent, so a row's result does not depend on the others in the batch.
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <torch/library.h>

#include "cuda_kernels.h"
#include "kernels.h"
#include "optional.h"

namespace attune {
namespace {

using at::Tensor;

struct Sizes {
  int64_t rows, heads, groups, size, slots, length;
};

template <typename T>
void attendRow(const T* query, const T* keys, const T* values, T* out, const float* bias, int64_t first, int64_t last, int64_t size, int64_t stride,
               float scale, float* scores, float* sum) {
  float peak = -INFINITY;
  for (int64_t t = first; t <= last; t++) {
    const float score = dotProduct(query, keys + t * stride, size) * scale + (bias == nullptr ? 0.0f : bias[t]);
    scores[t - first] = score;
    peak = std::max(peak, score);
  }
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i <= last - first; i++) {
    scores[i] = vexp(scores[i] - peak);
    total += scores[i];
  }
  for (int64_t i = 0; i < size; i++) sum[i] = 0;
  for (int64_t t = first; t <= last; t++) {
    const T* value = values + t * stride;
    const float weight = scores[t - first];
    for (int64_t i = 0; i < size; i++) sum[i] += weight * static_cast<float>(value[i]);
  }
  for (int64_t i = 0; i < size; i++) out[i] = static_cast<T>(sum[i] / total);
}

template <typename T>
void decodeCpu(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& keys, Tensor& values, const int64_t* slots, const int64_t* positions,
               const float* bias, int64_t biasLength, Tensor& out, const Sizes& n, double scale, int64_t window) {
  const T *queries = q.data_ptr<T>(), *newKeys = k.data_ptr<T>(), *newValues = v.data_ptr<T>();
  T *keyCache = keys.data_ptr<T>(), *valueCache = values.data_ptr<T>(), *result = out.data_ptr<T>();
  const int64_t stride = n.groups * n.size, share = n.heads / n.groups;
  at::parallel_for(0, n.rows * n.groups, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scores(n.length), sum(n.size);
    for (int64_t task = begin; task < end; task++) {
      const int64_t row = task / n.groups, group = task % n.groups, position = positions[row];
      const int64_t base = slots[row] * n.length * stride + group * n.size;
      const int64_t source = (row * n.groups + group) * n.size;
      std::copy_n(newKeys + source, n.size, keyCache + base + position * stride);
      std::copy_n(newValues + source, n.size, valueCache + base + position * stride);
      const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
      for (int64_t head = group * share; head < (group + 1) * share; head++) {
        const int64_t at = (row * n.heads + head) * n.size;
        attendRow<T>(queries + at, keyCache + base, valueCache + base, result + at, bias == nullptr ? nullptr : bias + head * biasLength, first,
                     position, n.size, stride, static_cast<float>(scale), scores.data(), sum.data());
      }
    }
  });
}

// In ATen operators, for a device without a kernel of ours: all of each slot's cache with the rest masked out.
Tensor decodeComposed(const Tensor& q, const Tensor& k, const Tensor& v, Tensor& keys, Tensor& values, const Tensor& slots, const Tensor& positions,
                      const Tensor& bias, const Sizes& n, double scale, int64_t window) {
  keys.index_put_({slots, positions}, k);
  values.index_put_({slots, positions}, v);
  const Tensor cachedKeys = keys.index_select(0, slots), cachedValues = values.index_select(0, slots);  // [B, L, G, D]
  const Tensor grouped = q.view({n.rows, n.groups, n.heads / n.groups, n.size});
  Tensor scores = at::matmul(grouped, cachedKeys.permute({0, 2, 3, 1})).to(at::kFloat) * scale;  // [B, G, share, L]
  if (bias.defined()) scores = scores + bias.narrow(1, 0, n.length).view({1, n.groups, n.heads / n.groups, n.length});
  const Tensor place = at::arange(n.length, positions.options());
  const Tensor position = positions.view({-1, 1});
  Tensor hidden = place.unsqueeze(0).gt(position);
  if (window > 0) hidden = hidden.logical_or(place.unsqueeze(0).le(position - window));
  scores = scores.masked_fill(hidden.view({n.rows, 1, 1, n.length}), -INFINITY);
  const Tensor weights = at::softmax(scores, -1).to(q.scalar_type());
  return at::matmul(weights, cachedValues.permute({0, 2, 1, 3})).reshape({n.rows, n.heads, n.size});
}

Tensor decodeAttention(const Tensor& q, const Tensor& k, const Tensor& v, Tensor keys, Tensor values, const Tensor& slots, const Tensor& positions,
                       double scale, int64_t window, const Optional<Tensor>& given) {
  TORCH_CHECK(q.dim() == 3 && k.dim() == 3 && keys.dim() == 4, "expected q [B, H, D], k and v [B, G, D], caches [S, L, G, D]");
  const Sizes n{q.size(0), q.size(1), k.size(1), q.size(2), keys.size(0), keys.size(1)};
  TORCH_CHECK(k.sizes() == v.sizes() && k.size(0) == n.rows && k.size(2) == n.size, "q, k and v do not fit together");
  TORCH_CHECK(keys.sizes() == values.sizes() && keys.size(2) == n.groups && keys.size(3) == n.size, "the caches do not fit k and v");
  TORCH_CHECK(keys.is_contiguous() && values.is_contiguous(), "the caches are contiguous");
  TORCH_CHECK(n.groups > 0 && n.heads % n.groups == 0, "query heads are a multiple of kv heads");
  TORCH_CHECK(slots.dim() == 1 && slots.sizes() == positions.sizes() && slots.size(0) == n.rows, "one slot and position per row");
  TORCH_CHECK(slots.scalar_type() == at::kLong && positions.scalar_type() == at::kLong, "slots and positions are int64");
  TORCH_CHECK(q.scalar_type() == k.scalar_type() && k.scalar_type() == v.scalar_type() && keys.scalar_type() == k.scalar_type() &&
                  values.scalar_type() == k.scalar_type(), "q, k, v and the caches differ in dtype");
  Tensor bias;
  if (given.has_value() && given->defined()) {
    TORCH_CHECK(given->dim() == 2 && given->size(0) == n.heads && given->size(1) >= n.length, "expected a bias [H, L]");
    bias = given->to(at::kFloat).contiguous();
  }
  if (!q.device().is_cpu()) {
#ifdef ATTUNE_KERNELS
    if (q.is_cuda() && cudaDecodeFits(n.size, q.scalar_type()))
      return cudaDecodeAttention(q.contiguous(), k.contiguous(), v.contiguous(), keys, values, slots.contiguous(), positions.contiguous(), scale, window, bias);
#endif
    return decodeComposed(q.contiguous(), k, v, keys, values, slots, positions, bias, n, scale, window);
  }
  const Tensor rowSlots = slots.contiguous(), rowPositions = positions.contiguous();
  for (int64_t i = 0; i < n.rows; i++) {
    const int64_t slot = rowSlots.data_ptr<int64_t>()[i], position = rowPositions.data_ptr<int64_t>()[i];
    TORCH_CHECK(slot >= 0 && slot < n.slots && position >= 0 && position < n.length, "a slot or position lies outside the cache");
  }
  Tensor out = at::empty({n.rows, n.heads, n.size}, q.options());
  const Tensor queries = q.contiguous(), newKeys = k.contiguous(), newValues = v.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, q.scalar_type(), "decode_attention", [&] {
    decodeCpu<scalar_t>(queries, newKeys, newValues, keys, values, rowSlots.data_ptr<int64_t>(), rowPositions.data_ptr<int64_t>(),
                        bias.defined() ? bias.data_ptr<float>() : nullptr, bias.defined() ? bias.size(1) : 0, out, n, scale, window);
  });
  return out;
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def(
      "decode_attention(Tensor q, Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots, Tensor positions, float scale, int window=0, "
      "Tensor? bias=None) -> Tensor");
  library.impl("decode_attention", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeAttention));
}
