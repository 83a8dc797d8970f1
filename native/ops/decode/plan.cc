// attune::decode_plan(names, tensors, setting_names, settings) -> the plan's number, or −1 if our kernels do not support the model's dtype,
// device or layout.
// attune::decode_plan_takes(plan, rows)
// attune::decode_plan_gains(plan, rows): by copies of its plain matrices in fewer bits
// attune::decode_plan_free(plan)
#include "ops/decode/plan.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>

#include "cpu/short/short.h"
#include "cpu/skinny/product.h"
#include "cuda/kernels.h"
#include "ops/decode/fused.h"
#ifdef ATTUNE_KERNELS
#include "cuda/launching.h"
#endif

namespace attune {
namespace {

using at::Tensor;
using Names = c10::List<std::string>;

// The parts by name. A part that was never read is an error: its name is misspelt.
class Parts {
 public:
  Parts(const Names& names, at::TensorList tensors, const Names& settingNames, c10::ArrayRef<double> settings) {
    TORCH_CHECK(names.size() == tensors.size() && settingNames.size() == settings.size(), "every part of a plan has one name");
    for (size_t i = 0; i < names.size(); i++) tensors_[names.get(i)] = tensors[i];
    for (size_t i = 0; i < settingNames.size(); i++) settings_[settingNames.get(i)] = settings[i];
  }

  /** Undefined if there is no such part. */
  Tensor optional(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return {};
    const Tensor tensor = found->second;
    tensors_.erase(found);
    return tensor;
  }
  Tensor tensor(const std::string& name) {
    const Tensor found = optional(name);
    TORCH_CHECK(found.defined(), "the plan has no \"", name, "\"");
    return found;
  }
  Linear linear(const std::string& name) {
    const Tensor codes = optional(name + ".codes");
    if (!codes.defined()) {
      const Tensor weight = tensor(name + ".weight");
      TORCH_CHECK(weight.dim() == 2, "the plan's ", name, " is not a matrix");
      Linear plain{weight, optional(name + ".bias"), nullptr, weight.detach().t(), optional(name + ".halves")};
      plain.shorts = optional(name + ".shorts");
      plain.packed = optional(name + ".packed");
      if (plain.halves.defined() || plain.shorts.defined()) plain.writes = weight._version();
      return plain;
    }
    QuantisedTensors tensors{codes, tensor(name + ".scales"), optional(name + ".nested"), optional(name + ".offsets"),
                             optional(name + ".levels")};
    const int64_t inputs = whole(name + ".inputs"), block = whole(name + ".block");
    std::vector<int64_t> rows(std::clamp<int64_t>(whole(name + ".parts"), 0, 1000));
    for (size_t i = 0; i < rows.size(); i++) rows[i] = whole(name + ".parts." + std::to_string(i));
    return {{}, optional(name + ".bias"), std::make_shared<const QuantisedMatrix>(std::move(tensors), rows, inputs, block)};
  }
  int64_t whole(const std::string& name) { return static_cast<int64_t>(number(name)); }
  double number(const std::string& name) {
    const auto found = settings_.find(name);
    TORCH_CHECK(found != settings_.end(), "the plan has no \"", name, "\"");
    const double value = found->second;
    settings_.erase(found);
    return value;
  }
  void checkAllUsed() const {
    TORCH_CHECK(tensors_.empty(), "a plan has no use for \"", tensors_.empty() ? "" : tensors_.begin()->first, "\"");
    TORCH_CHECK(settings_.empty(), "a plan has no use for \"", settings_.empty() ? "" : settings_.begin()->first, "\"");
  }

 private:
  std::unordered_map<std::string, Tensor> tensors_;
  std::unordered_map<std::string, double> settings_;
};

DecodePlan planOf(Parts parts) {
  DecodePlan plan;
  plan.embedding = parts.tensor("embedding");
  plan.finalNorm = parts.tensor("finalNorm");
  plan.head = parts.linear("head");
  plan.tables = parts.tensor("tables");
  plan.cosines = parts.optional("cos");
  plan.sines = parts.optional("sin");
  plan.eps = parts.number("eps");
  plan.headEps = parts.number("headEps");
  plan.finalEps = parts.number("finalEps");
  plan.heads = static_cast<int64_t>(parts.number("heads"));
  plan.interleaved = parts.number("interleaved") != 0;
  plan.spareSlot = static_cast<int64_t>(parts.number("spareSlot"));
  plan.fast = parts.number("fast") != 0;
  const double layers = parts.number("layers");
  TORCH_CHECK(layers >= 1 && layers <= 100000, "a plan has at least one layer");
  for (int64_t i = 0; i < static_cast<int64_t>(layers); i++) {
    const std::string at = "layers." + std::to_string(i) + ".";
    LayerPlan layer;
    layer.attentionNorm = parts.tensor(at + "attentionNorm");
    layer.mlpNorm = parts.tensor(at + "mlpNorm");
    layer.qNorm = parts.optional(at + "qNorm");
    layer.kNorm = parts.optional(at + "kNorm");
    layer.qkv = parts.linear(at + "qkv");
    layer.out = parts.linear(at + "out");
    layer.up = parts.linear(at + "up");
    layer.down = parts.linear(at + "down");
    layer.cache = {parts.tensor(at + "keys"), parts.tensor(at + "values"), parts.optional(at + "keyScales"),
                   parts.optional(at + "valueScales")};
    layer.scale = parts.number(at + "scale");
    layer.window = static_cast<int64_t>(parts.number(at + "window"));
    plan.layers.push_back(std::move(layer));
  }
  parts.checkAllUsed();
  return plan;
}

bool isMatrix(const Linear& linear) { return linear.quantised || linear.weight.dim() == 2; }

void checkMatrix(const Linear& linear, int64_t outputs, int64_t inputs, const char* what) {
  TORCH_CHECK(isMatrix(linear) && linear.outputs() == outputs && linear.inputs() == inputs, "the plan's ", what, " does not fit");
  TORCH_CHECK(!linear.bias.defined() || linear.bias.numel() == outputs, "a bias has one number per output: ", what);
}

void checkLayer(const DecodePlan& plan, const LayerPlan& layer) {
  const int64_t width = plan.width(), groups = plan.groups(), size = plan.headSize();
  TORCH_CHECK(layer.cache.keys.sizes() == plan.layers.front().cache.keys.sizes(), "expected caches [N, L, G, D] of one size");
  checkCacheSizes(layer.cache);
  TORCH_CHECK(layer.cache.isEightBits() == plan.layers.front().cache.isEightBits(), "the caches of all layers are in 8 bits, or none");
  TORCH_CHECK(layer.attentionNorm.numel() == width && layer.mlpNorm.numel() == width, "a norm has one number per input");
  for (const Tensor* norm : {&layer.qNorm, &layer.kNorm})
    TORCH_CHECK(!norm->defined() || norm->numel() == size, "a norm's weight does not fit a head");
  TORCH_CHECK(isMatrix(layer.down), "the plan's down does not fit");
  const int64_t inner = layer.down.inputs();
  checkMatrix(layer.qkv, (plan.heads + 2 * groups) * size, width, "qkv");
  checkMatrix(layer.out, width, plan.heads * size, "out");
  checkMatrix(layer.up, 2 * inner, width, "up");
  checkMatrix(layer.down, width, inner, "down");
}

void check(const DecodePlan& plan) {
  TORCH_CHECK(plan.embedding.dim() == 2 && plan.layers.front().cache.keys.dim() == 4,
              "expected an embedding [V, E] and caches [N, L, G, D]");
  checkTables(plan.tables);
  TORCH_CHECK(plan.groups() > 0 && plan.heads > 0 && plan.heads % plan.groups() == 0, "query heads are a multiple of kv heads");
  TORCH_CHECK(plan.finalNorm.numel() == plan.width(), "a norm has one number per input");
  TORCH_CHECK(isMatrix(plan.head), "the plan's head does not fit");
  checkMatrix(plan.head, plan.head.outputs(), plan.width(), "head");
  TORCH_CHECK(plan.cosines.defined() == plan.sines.defined(), "cos and sin come together");
  if (plan.cosines.defined())
    TORCH_CHECK(plan.cosines.dim() == 2 && plan.cosines.sizes() == plan.sines.sizes() && plan.cosines.scalar_type() == at::kFloat &&
                    plan.sines.scalar_type() == at::kFloat && plan.cosines.size(0) >= plan.length() &&
                    2 * plan.cosines.size(1) <= plan.headSize(),
                "cos and sin are float32 tables of every position, at most half a head wide");
  for (const LayerPlan& layer : plan.layers) checkLayer(plan, layer);
}

// Whether all tensors are contiguous, on one device and, except the rope tables and quantised matrices, of the embedding's dtype. Kernels
// read the weights in place: a copy would not follow them in training.
bool isUniform(const DecodePlan& plan) {
  const auto fits = [&](const Tensor& tensor) {
    return !tensor.defined() ||
           (tensor.is_contiguous() && tensor.device() == plan.embedding.device() && tensor.scalar_type() == plan.embedding.scalar_type());
  };
  const auto quantisedFits = [&](const QuantisedMatrix& matrix) {
    if (matrix.codes.device() != plan.embedding.device()) return false;
#ifdef ATTUNE_KERNELS
    if (matrix.codes.is_cuda()) return cudaQuantisedFits(matrix, 1);
#endif
    return matrix.codes.device().is_cpu();
  };
  const auto halvesFit = [](const Tensor& halves, const Tensor& weight) {
    return !halves.defined() || (weight.device().is_cpu() && weight.scalar_type() == at::kFloat && halves.device().is_cpu() &&
                                 halves.scalar_type() == at::kBFloat16 && halves.is_contiguous() && halves.sizes() == weight.sizes());
  };
  const auto shortsFit = [](const Tensor& shorts, const Tensor& weight) {
    return !shorts.defined() || (weight.device().is_cpu() && shorts.device().is_cpu() && shorts.scalar_type() == at::kInt &&
                                 shorts.is_contiguous() && gainsByShort(weight.scalar_type(), 1, weight.size(1)) &&
                                 shortFits(reinterpret_cast<const uint32_t*>(shorts.data_ptr<int32_t>()), shorts.numel(), weight.size(0), weight.size(1),
                                           weight.scalar_type() == at::kFloat ? 28 : 12));
  };
  const auto packedFits = [](const Linear& linear, [[maybe_unused]] bool gates) {
    if (!linear.packed.defined()) return true;
#ifdef ATTUNE_KERNELS
    return linear.packed.scalar_type() == at::kByte && linear.packed.is_contiguous() && linear.packed.device() == linear.weight.device() &&
           linear.packed.numel() == cudaPackedBytes(linear.weight, gates, 1) && isAligned(linear.packed);
#else
    return false;
#endif
  };
  const auto bothFit = [&](const Linear& linear) {
    return fits(linear.bias) && (linear.quantised ? quantisedFits(*linear.quantised) : fits(linear.weight)) &&
           halvesFit(linear.halves, linear.weight) && shortsFit(linear.shorts, linear.weight);
  };
  for (const Tensor* table : {&plan.cosines, &plan.sines, &plan.tables})
    if (table->defined() && (!table->is_contiguous() || table->device() != plan.embedding.device())) return false;
  return fits(plan.embedding) && fits(plan.finalNorm) && bothFit(plan.head) && packedFits(plan.head, false) &&
         std::all_of(plan.layers.begin(), plan.layers.end(), [&](const LayerPlan& layer) {
           return fits(layer.attentionNorm) && fits(layer.mlpNorm) && fits(layer.qNorm) && fits(layer.kNorm) && bothFit(layer.qkv) &&
                  bothFit(layer.out) && bothFit(layer.up) && packedFits(layer.up, true) && bothFit(layer.down) &&
                  cacheLayerFits(layer.cache, plan.embedding);
         });
}

// Never destroyed: at process exit CUDA may be gone before the tensors.
struct Registry {
  std::mutex mutex;
  std::unordered_map<int64_t, std::shared_ptr<const DecodePlan>> plans;
  int64_t next = 0;
};
Registry& registry() {
  static auto* const only = new Registry;
  return *only;
}

int64_t decodePlan(const Names& names, at::TensorList tensors, const Names& settingNames, c10::ArrayRef<double> settings) {
  auto plan = std::make_shared<const DecodePlan>(planOf({names, tensors, settingNames, settings}));
  check(*plan);
  if (!isUniform(*plan) || !plan->takes(1)) return -1;
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.plans.emplace(all.next, std::move(plan));
  return all.next++;
}

bool decodePlanTakes(int64_t number, int64_t rows) { return planNumbered(number)->takes(rows); }

bool decodePlanGains(int64_t number, int64_t rows) {
  const auto plan = planNumbered(number);
  const auto dtype = plan->embedding.scalar_type();
  return plan->embedding.device().is_cpu() &&
         (gainsByShort(dtype, rows, plan->width()) || (dtype == at::kFloat && gainsByHalves(rows, plan->width())));
}

void decodePlanFree(int64_t number) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.plans.erase(number);
}

}  // namespace

bool DecodePlan::takes(int64_t rows) const {
  if (rows < 0) return false;
  if (embedding.device().is_cpu()) {
    const int64_t widths[] = {width(), layers.front().down.inputs(), heads * headSize(), groups() * headSize()};
    if (!isSkinny(rows, *std::max_element(std::begin(widths), std::end(widths)))) return false;
    if (embedding.scalar_type() == at::kFloat) return true;
    // products of quantised matrices are in f32
    return embedding.scalar_type() == at::kBFloat16 && !head.quantised &&
           std::none_of(layers.begin(), layers.end(), [](const LayerPlan& layer) {
             return layer.qkv.quantised || layer.out.quantised || layer.up.quantised || layer.down.quantised;
           });
  }
#ifdef ATTUNE_KERNELS
  const auto dtype = embedding.scalar_type();
  // libtorch multiplies plain matrices that our kernels do not support (step.cc); quantised ones have only our kernels, and those take only
  // bf16
  const auto fits = [&](const Linear& linear) {
    return !linear.quantised || (dtype == at::kBFloat16 && cudaQuantisedFits(*linear.quantised, rows));
  };
  return embedding.is_cuda() && (dtype == at::kBFloat16 || dtype == at::kHalf) && cudaAttentionFits(headSize(), dtype) &&
         std::all_of(layers.begin(), layers.end(),
                     [&](const LayerPlan& layer) { return fits(layer.qkv) && fits(layer.out) && fits(layer.up) && fits(layer.down); });
#else
  return false;
#endif
}

std::shared_ptr<const DecodePlan> planNumbered(int64_t number) {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.plans.find(number);
  TORCH_CHECK(found != all.plans.end(), "there is no plan ", number, ": it was freed, or never made");
  return found->second;
}

}  // namespace attune

TORCH_LIBRARY_FRAGMENT(attune, library) {
  library.def("decode_plan(str[] names, Tensor[] tensors, str[] setting_names, float[] settings) -> int");
  library.impl("decode_plan", c10::DispatchKey::CompositeExplicitAutograd, TORCH_FN(attune::decodePlan));
  library.def("decode_plan_takes(int plan, int rows) -> bool", TORCH_FN(attune::decodePlanTakes));
  library.def("decode_plan_gains(int plan, int rows) -> bool", TORCH_FN(attune::decodePlanGains));
  library.def("decode_plan_free(int plan) -> ()", TORCH_FN(attune::decodePlanFree));
}
