// attune::decode_step(plan, ids[B], positions[B], slots[B], the rows' sampling rules) -> what attune::sample gives
// attune::decode_step_lists: the same on the CPU with ids and positions as lists, for a caller that holds the rest; several steps in one
// call
// attune::decode_logits(plan, ids[B], positions[B], slots[B]) -> logits[B, V], for rows whose logits are changed before the draw
//
// A whole decoding step in one call, from the rows' last tokens to their next ones. On the CPU it is in f32 or bf16. A step of a small
// model takes a few milliseconds there and its weights sweep all caches, so code that runs between operators or between steps would have to
// be fetched from memory again each time. On CUDA it is in bf16 or f16: four or five kernels per layer or, for shapes that ours do not
// take, libtorch's products with our norm, attention and SwiGLU (products.cc). Nothing here waits for the device, so a step can be captured
// as a graph (src/models/generate/graph.ts).
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <tuple>
#include <type_traits>

#include "cpu/deal.h"
#include "cpu/decode_rows.h"
#include "cpu/quantised/product.h"
#include "cpu/rows.h"
#include "cpu/short/short.h"
#include "cpu/skinny/product.h"
#include "cuda/kernels.h"
#include "ops/decode/fused.h"
#include "ops/decode/plan.h"
#include "ops/decode/products.h"
#include "ops/decode/sample_rows.h"
#include "ops/decode/solo.h"
#ifdef ATTUNE_KERNELS
#include "cuda/launching.h"
#endif

namespace attune {
namespace {

using at::Tensor;

constexpr int64_t kStagedWidth = 1024;  // models this narrow use the products of cuda/staged_product.cu

/** One entry per row. */
struct Rows {
  Tensor ids, positions, slots;
  int64_t count() const { return ids.size(0); }
};

void checkRows(const DecodePlan& plan, const Rows& rows) {
  for (const Tensor* tensor : {&rows.ids, &rows.positions, &rows.slots})
    TORCH_CHECK(tensor->dim() == 1 && tensor->size(0) == rows.count() && tensor->scalar_type() == at::kLong && tensor->is_contiguous() &&
                    tensor->device() == plan.embedding.device(),
                "one int64 id, position and slot per row");
  TORCH_CHECK(plan.takes(rows.count()), "the plan's kernels do not take so many rows");
  if (!plan.embedding.device().is_cpu()) return;
  const int64_t* ids = rows.ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.count(); i++)
    TORCH_CHECK(ids[i] >= 0 && ids[i] < plan.embedding.size(0), "id ", ids[i], " lies outside the embedding");
  checkPlaces(plan.layers.front().cache.keys, plan.tables, rows.slots, rows.positions);
}

FusedAttention attentionOf(const DecodePlan& plan, const LayerPlan& layer, const Rows& rows) {
  FusedAttention attention;
  attention.qWeight = layer.qNorm;
  attention.kWeight = layer.kNorm;
  attention.tables = plan.tables;
  attention.slots = rows.slots;
  attention.positions = rows.positions;
  attention.eps = plan.headEps;
  attention.interleaved = plan.interleaved;
  attention.heads = plan.heads;
  attention.scale = layer.scale;
  attention.window = layer.window;
  attention.spareSlot = plan.spareSlot;
  attention.isNarrow = plan.width() == kStagedWidth;
  return attention;
}

// —— CPU ——————————————————————————————————————————————————————————————————————————————————————————————————

// Gathers the rows of a table at `places`.
template <typename T>
Tensor rowsAt(const Tensor& table, const Tensor& places) {
  const int64_t count = places.size(0), width = table.size(1);
  Tensor out = at::empty({count, width}, table.options());
  for (int64_t i = 0; i < count; i++)
    std::copy_n(table.data_ptr<T>() + places.data_ptr<int64_t>()[i] * width, width, out.data_ptr<T>() + i * width);
  return out;
}

bool isAsCopied(const Linear& linear) { return linear.weight._version() == linear.writes; }

// Whether a product of this many rows reads the matrix in bf16, or in 12 or 28 bits.
bool readsHalves(const Linear& linear, int64_t rows) {
  return linear.halves.defined() && gainsByHalves(rows, linear.inputs()) && isAsCopied(linear);
}
bool readsShorts(const Linear& linear, int64_t rows) {
  return linear.shorts.defined() && gainsByShort(linear.weight.scalar_type(), rows, linear.inputs()) && isAsCopied(linear);
}

const Tensor& readBy(const Linear& linear, int64_t rows) {
  if (linear.quantised) return linear.quantised->codes;
  if (readsHalves(linear, rows)) return linear.halves;
  return readsShorts(linear, rows) ? linear.shorts : linear.weight;
}

// A matrix's weights as products deal them to threads: in blocks of 16 columns.
Expected weightsOf(const Linear& linear, int64_t rows) {
  const Tensor& weights = readBy(linear, rows);
  return {static_cast<const char*>(weights.data_ptr()), static_cast<int64_t>(weights.nbytes()),
          std::max<int64_t>(1, linear.outputs() / 16)};
}

template <typename T>
void multiplyInto(const Linear& linear, const Tensor& x, Tensor& y, bool add, [[maybe_unused]] bool fast) {
  const T* bias = linear.bias.defined() ? linear.bias.data_ptr<T>() : nullptr;
  if constexpr (std::is_same_v<T, float>) {
    if (linear.quantised) {
      quantisedProduct({x.data_ptr<float>(), linear.quantised->rows(), bias, y.data_ptr<float>(), x.size(0), add, fast});
      return;
    }
  }
  const auto by = [&](const auto* weights) {
    using W = std::remove_const_t<std::remove_pointer_t<decltype(weights)>>;
    skinnyProduct(SkinnyProduct<T, W>{x.data_ptr<T>(), weights, bias, y.data_ptr<T>(), x.size(0), linear.inputs(), linear.outputs(), add});
  };
  if constexpr (std::is_same_v<T, float>)
    if (readsHalves(linear, x.size(0))) return by(linear.halves.data_ptr<at::BFloat16>());
  if (readsShorts(linear, x.size(0))) return by(reinterpret_cast<const ShortWord*>(linear.shorts.data_ptr<int32_t>()));
  by(linear.weight.data_ptr<T>());
}

template <typename T>
void normInto(const Tensor& x, const Tensor& weight, double eps, Tensor& y) {
  rmsNormRows(x.data_ptr<T>(), weight.data_ptr<T>(), y.data_ptr<T>(), x.size(0), x.size(1), static_cast<float>(eps));
}

// One buffer of this width for all layers: a new one per layer would have to be brought into the caches again.
void makeRoom(Tensor& buffer, const Tensor& x, int64_t width) {
  if (!buffer.defined() || buffer.size(1) != width) buffer = at::empty({x.size(0), width}, x.options());
}

template <typename T>
Tensor logitsCpu(const DecodePlan& plan, const Rows& rows) {
  Tensor x = rowsAt<T>(plan.embedding, rows.ids);
  const Tensor cosines = plan.cosines.defined() ? rowsAt<float>(plan.cosines, rows.positions) : Tensor();
  const Tensor sines = plan.sines.defined() ? rowsAt<float>(plan.sines, rows.positions) : Tensor();
  Tensor hidden = at::empty(x.sizes(), x.options()), qkv, inner, active;
  const int64_t count = rows.count();
  const auto multiply = [&](const Linear& linear, const Tensor& from, Tensor& to, bool add, const Expected& next) {
    if (Crew::led() != nullptr) Crew::led()->expect(next);
    multiplyInto<T>(linear, from, to, add, plan.fast);
  };
  for (size_t i = 0; i < plan.layers.size(); i++) {
    const LayerPlan& layer = plan.layers[i];
    makeRoom(qkv, x, layer.qkv.outputs());
    makeRoom(inner, x, layer.up.outputs());
    makeRoom(active, x, layer.down.inputs());
    FusedAttention attention = attentionOf(plan, layer, rows);
    attention.cosines = cosines;
    attention.sines = sines;
    normInto<T>(x, layer.attentionNorm, plan.eps, hidden);
    multiply(layer.qkv, hidden, qkv, false, weightsOf(layer.out, count));
    attention.qkv = qkv;
    const Tensor attended = decodeFusedCpu(attention, layer.cache);
    multiply(layer.out, attended, x, true, weightsOf(layer.up, count));
    normInto<T>(x, layer.mlpNorm, plan.eps, hidden);
    multiply(layer.up, hidden, inner, false, weightsOf(layer.down, count));
    swigluRows(inner.data_ptr<T>(), active.data_ptr<T>(), x.size(0), active.size(1));
    multiply(layer.down, active, x, true, weightsOf(i + 1 < plan.layers.size() ? plan.layers[i + 1].qkv : plan.head, count));
  }
  normInto<T>(x, plan.finalNorm, plan.finalEps, hidden);
  Tensor logits = at::empty({x.size(0), plan.head.outputs()}, x.options());
  multiply(plan.head, hidden, logits, false, weightsOf(plan.layers.front().qkv, count));
  return logits;
}

// Calls `body`, which takes steps. It gets a crew if the products are enough work for two threads.
template <typename Body>
void withCrew(const DecodePlan& plan, int64_t rows, const Body& body) {
  const int64_t most = std::max(plan.head.outputs(), plan.layers.front().up.outputs());
  if (plan.embedding.device().is_cpu() && rows * plan.width() * most >= 2 * kThreadWork)
    Crew::with(body);
  else
    body();
}

// —— CUDA —————————————————————————————————————————————————————————————————————————————————————————————————
#ifdef ATTUNE_KERNELS

Tensor logitsCuda(const DecodePlan& plan, const Rows& rows) {
  SoloLayers solo(plan, rows.count());
  Tensor x = solo.gather(rows.ids);
  StepProducts products(plan, x);
  for (size_t i = 0; i < plan.layers.size(); i++) {
    const LayerPlan& layer = plan.layers[i];
    FusedAttention attention = attentionOf(plan, layer, rows);
    attention.cosines = plan.cosines;  // the kernel reads the tables at the rows' positions itself
    attention.sines = plan.sines;
    attention.qkv = at::empty({x.size(0), layer.qkv.outputs()}, x.options());
    products.ofNorm(layer.qkv, layer.attentionNorm, false, attention.qkv);
    attention.isAlone = products.leaveNoRoom();
    Tensor active = solo.attend(attention, layer, x);
    if (!active.defined()) {
      products.addTo(layer.out, cudaDecodeFused(attention, layer.cache, AttentionOf::Step).flatten(1), layer.mlpNorm,
                     {&layer.up, true, false});
      active = emptyRows(x.size(0), {layer.down.inputs()}, x.options());
      products.ofNorm(layer.up, layer.mlpNorm, true, active, {&layer.down, false, true});
    }
    const LayerPlan* const next = i + 1 < plan.layers.size() ? &plan.layers[i + 1] : nullptr;
    products.addTo(layer.down, active, next != nullptr ? next->attentionNorm : Tensor(), {next != nullptr ? &next->qkv : nullptr});
  }
  if (!plan.head.bias.defined()) {
    const Tensor logits = cudaVocabulary(x, plan.finalNorm, plan.finalEps, plan.head.weight, plan.head.packed);
    if (logits.defined()) return logits;
  }
  const Tensor hidden = normedCuda(x, plan.finalNorm, plan.finalEps);
  if (!plan.head.bias.defined()) return at::linear(hidden, plan.head.weight);
  return at::linear(hidden, plan.head.weight, plan.head.bias);
}
#endif

Tensor logitsOf(const DecodePlan& plan, const Rows& rows) {
  checkRows(plan, rows);
  if (plan.embedding.device().is_cpu())
    return plan.embedding.scalar_type() == at::kFloat ? logitsCpu<float>(plan, rows) : logitsCpu<at::BFloat16>(plan, rows);
#ifdef ATTUNE_KERNELS
  return logitsCuda(plan, rows);
#else
  TORCH_CHECK(false, "there is no such kernel for this device");
#endif
}

Tensor decodeLogits(int64_t number, const Tensor& ids, const Tensor& positions, const Tensor& slots) {
  const auto plan = planNumbered(number);
  Tensor logits;
  withCrew(*plan, ids.size(0), [&] { logits = logitsOf(*plan, {ids, positions, slots}); });
  return logits;
}

Drawn stepOf(const DecodePlan& plan, const Rows& rows, const SamplingRule& rule) {
  return sample(logitsOf(plan, rows), rule, rows.positions.add(1));  // a token's counter is its position
}

std::tuple<Tensor, Tensor, Tensor> decodeStep(int64_t number, const Tensor& ids, const Tensor& positions, const Tensor& slots,
                                              const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP,
                                              const Tensor& seeds) {
  const auto plan = planNumbered(number);
  Drawn drawn;
  withCrew(*plan, ids.size(0), [&] { drawn = stepOf(*plan, {ids, positions, slots}, {temperature, topK, topP, minP, seeds}); });
  return {drawn.ids, drawn.logp, drawn.kept};
}

// The same on the CPU, from lists to lists, for up to `steps` steps. It stops early after a token that is among `stops`, or when time is
// up.
std::tuple<c10::List<int64_t>, c10::List<double>, c10::List<double>> decodeStepLists(
    int64_t number, const Tensor& slots, const Tensor& temperature, const Tensor& topK, const Tensor& topP, const Tensor& minP,
    const Tensor& seeds, at::IntArrayRef ids, at::IntArrayRef positions, at::IntArrayRef stops, int64_t steps, double milliseconds) {
  TORCH_CHECK(slots.device().is_cpu() && slots.scalar_type() == at::kLong, "slots are int64 on the CPU");
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double, std::milli>(milliseconds);
  const auto onHost = [&](at::IntArrayRef values) {
    Tensor out = at::empty({static_cast<int64_t>(values.size())}, slots.options());
    std::copy(values.begin(), values.end(), out.data_ptr<int64_t>());
    return out;
  };
  const auto plan = planNumbered(number);
  const auto count = static_cast<int64_t>(ids.size());
  std::tuple<c10::List<int64_t>, c10::List<double>, c10::List<double>> all;
  const auto append = [&](auto& list, const auto* values) {
    for (int64_t i = 0; i < count; i++) list.push_back(values[i]);
  };
  Rows rows{onHost(ids), onHost(positions), slots};
  withCrew(*plan, count, [&] {
    for (int64_t step = 0; step < steps; step++) {
      const Drawn drawn = stepOf(*plan, rows, {temperature, topK, topP, minP, seeds});
      const int64_t* next = drawn.ids.data_ptr<int64_t>();
      append(std::get<0>(all), next);
      append(std::get<1>(all), drawn.logp.data_ptr<float>());
      append(std::get<2>(all), drawn.kept.data_ptr<float>());
      if (Clock::now() >= end || std::find_first_of(next, next + count, stops.begin(), stops.end()) != next + count) return;
      rows = {drawn.ids, rows.positions.add(1), slots};
    }
  });
  return all;
}

}  // namespace
}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_logits(int plan, Tensor ids, Tensor positions, Tensor slots) -> Tensor");
  library.impl("decode_logits", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeLogits));
  library.def(
      "decode_step(int plan, Tensor ids, Tensor positions, Tensor slots, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, "
      "Tensor seeds) "
      "-> (Tensor, Tensor, Tensor)");
  library.impl("decode_step", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeStep));
  library.def(
      "decode_step_lists(int plan, Tensor slots, Tensor temperature, Tensor top_k, Tensor top_p, Tensor min_p, Tensor seeds, int[] ids, "
      "int[] positions, int[] stops, int steps, float milliseconds) -> (int[], float[], float[])");
  library.impl("decode_step_lists", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodeStepLists));
}
