// Every ATen operator through one door. `resolve` looks an operator up in the c10 dispatcher and reads its schema once; `call` converts the
// arguments by that schema, fills in defaults, calls the operator boxed and wraps the results. `callDirect` is the faster way for plain
// arguments of operators with a common signature (direct.h).
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <deque>

#include "door/argument.h"
#include "door/calls.h"
#include "door/checks/endless.h"
#include "door/checks/in_step.h"
#include "door/checks/readable.h"
#include "door/checks/repeats.h"
#include "door/direct/direct.h"
#include "door/generators.h"

namespace attune {
namespace {

using c10::IValue;
using c10::TypeKind;

using StackCheck = void (*)(const c10::FunctionSchema&, const torch::jit::Stack&);

struct Operator {
  c10::OperatorHandle handle;
  std::vector<Argument> arguments;
  std::vector<int> returnsArgument;  // per return: the index of the argument it is (in-place and out= ops), or -1
  StackCheck check = nullptr;  // checks all arguments together
  std::unique_ptr<const DirectCall> direct = nullptr;  // null: boxed only
};

// A deque, because references must stay valid when a caller's getter resolves another operator during a call.
std::deque<Operator>& operators() {
  static auto* list = new std::deque<Operator>();
  return *list;
}

/** The check for an argument of this name. Kernel sizes and dilations belong to convolution, pooling and their relatives. */
SizeCheck checkFor(const c10::FunctionSchema& schema, const std::string& name) {
  if (name == "output_size") return checkOutputSize;
  const bool windowed = schema.argumentIndexWithName("kernel_size").has_value() || schema.argumentIndexWithName("dilation").has_value();
  const bool side = name == "kernel_size" || name == "stride" || name == "padding" || name == "dilation" || name == "output_padding";
  return windowed && side ? checkWindow : nullptr;
}

Argument describe(const c10::Argument& source) {
  Argument out;
  out.name = source.name();
  out.kwargOnly = source.kwarg_only();
  out.length = source.N().value_or(0);
  c10::TypePtr type = source.type();
  out.type = source.real_type()->str();
  if (const auto* optional = type->castRaw<c10::OptionalType>()) {
    out.optional = true;
    type = optional->getElementType();
  }
  if (const auto* list = type->castRaw<c10::ListType>()) {
    out.list = true;
    type = list->getElementType();
    if (const auto* optional = type->castRaw<c10::OptionalType>()) {
      out.optionalElements = true;
      type = optional->getElementType();
    }
  }
  out.kind = type->kind();
  out.elementType = type;
  c10::TypePtr real = source.real_type();
  if (const auto* optional = real->castRaw<c10::OptionalType>()) real = optional->getElementType();
  if (real->kind() == TypeKind::ScalarTypeType || real->kind() == TypeKind::LayoutType || real->kind() == TypeKind::MemoryFormatType)
    out.named = real->kind();
  out.written = source.alias_info() != nullptr && source.alias_info()->isWrite();
  if (source.default_value().has_value()) out.fallback = std::make_shared<IValue>(*source.default_value());
  return out;
}

struct Named {
  const char* name;
  int64_t value;
};

constexpr Named kLayouts[] = {{"strided", static_cast<int64_t>(c10::kStrided)},      {"sparse_coo", static_cast<int64_t>(c10::kSparse)},
                              {"sparse_csr", static_cast<int64_t>(c10::kSparseCsr)}, {"sparse_csc", static_cast<int64_t>(c10::kSparseCsc)},
                              {"sparse_bsr", static_cast<int64_t>(c10::kSparseBsr)}, {"sparse_bsc", static_cast<int64_t>(c10::kSparseBsc)}};

constexpr Named kMemoryFormats[] = {{"contiguous_format", static_cast<int64_t>(c10::MemoryFormat::Contiguous)},
                                    {"preserve_format", static_cast<int64_t>(c10::MemoryFormat::Preserve)},
                                    {"channels_last", static_cast<int64_t>(c10::MemoryFormat::ChannelsLast)},
                                    {"channels_last_3d", static_cast<int64_t>(c10::MemoryFormat::ChannelsLast3d)}};

template <size_t N>
int64_t valueNamed(const Named (&known)[N], const std::string& name, const char* kind) {
  std::string names;
  for (const auto& entry : known) {
    if (name == entry.name) return entry.value;
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  throw ArgumentError("unknown " + std::string(kind) + " \"" + name + "\": one of " + names);
}

// By name only: libtorch does not check enumeration values, and a wrong integer makes it read out of bounds.
int64_t enumerationValue(TypeKind kind, napi_env env, napi_value value) {
  if (typeOf(env, value) != napi_string) throw ArgumentError("expected a name, such as float32, strided or contiguous_format");
  const std::string name = toString(env, value);
  if (kind == TypeKind::LayoutType) return valueNamed(kLayouts, name, "layout");
  if (kind == TypeKind::MemoryFormatType) return valueNamed(kMemoryFormats, name, "memory format");
  return static_cast<int64_t>(dtypeFromName(name));
}

const at::Tensor& operand(napi_env env, napi_value value) {
  const at::Tensor& tensor = toReadable(env, value);
  checkRowsOf(tensor);
  return tensor;
}

IValue single(napi_env env, napi_value value, const Argument& argument) {
  switch (argument.kind) {
    case TypeKind::TensorType: return IValue(operand(env, value));
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (argument.named != TypeKind::NoneType) return IValue(enumerationValue(argument.named, env, value));
      return IValue(toInt(env, value));
    case TypeKind::FloatType:
    case TypeKind::SymFloatType: return IValue(toDouble(env, value));
    case TypeKind::BoolType: return IValue(toBool(env, value));
    case TypeKind::NumberType: return IValue(toScalar(env, value));
    case TypeKind::StringType: return IValue(toString(env, value));
    case TypeKind::DeviceObjType: return IValue(c10::Device(toString(env, value)));
    case TypeKind::GeneratorType: return IValue(generatorAt(toInt(env, value)));
    case TypeKind::StorageType: return IValue(toTensor(env, value).storage());
    default: throw ArgumentError("the kind " + argument.type + " cannot be passed from JavaScript");
  }
}

template <typename T, typename Read>
IValue typedList(napi_env env, const std::vector<napi_value>& items, Read read) {
  c10::List<T> list;
  list.reserve(items.size());
  for (napi_value item : items) list.push_back(read(env, item));
  return IValue(std::move(list));
}

// The items of a list. libtorch's kernels read two elements of an int[2] whatever its length, so the length is checked here: one number is
// repeated, and an empty list is allowed only if it is the default (a pool's stride).
std::vector<napi_value> itemsOf(napi_env env, napi_value value, const Argument& argument) {
  if (argument.length == 0) return elements(env, value);
  std::vector<napi_value> items = isArray(env, value) ? elements(env, value) : std::vector<napi_value>{value};
  if (argument.length == 1) return items;  // int[1] takes any number of elements
  const auto length = static_cast<size_t>(argument.length);
  if (items.size() == 1) items.resize(length, items[0]);
  const bool emptyDefault = items.empty() && argument.fallback && argument.fallback->isList() && argument.fallback->toListRef().empty();
  if (items.size() != length && !emptyDefault)
    throw ArgumentError("expected " + std::to_string(length) + " elements, got " + std::to_string(items.size()));
  return items;
}

IValue list(napi_env env, napi_value value, const Argument& argument) {
  const std::vector<napi_value> items = itemsOf(env, value, argument);
  if (argument.optionalElements) {
    c10::impl::GenericList out(c10::OptionalType::create(argument.elementType));
    for (napi_value item : items) out.push_back(isNullish(env, item) ? IValue() : single(env, item, argument));
    return IValue(std::move(out));
  }
  switch (argument.kind) {
    case TypeKind::TensorType: return typedList<at::Tensor>(env, items, operand);
    case TypeKind::IntType:
    case TypeKind::SymIntType: {
      IValue numbers = typedList<int64_t>(env, items, toInt);
      if (argument.check != nullptr) argument.check(numbers.toIntVector());
      return numbers;
    }
    case TypeKind::FloatType: return typedList<double>(env, items, toDouble);
    case TypeKind::BoolType: return typedList<bool>(env, items, toBool);
    default: {
      c10::impl::GenericList out(argument.elementType);
      for (napi_value item : items) out.push_back(single(env, item, argument));
      return IValue(std::move(out));
    }
  }
}

void push(napi_env env, torch::jit::Stack& stack, const Argument& argument, napi_value value) {
  // undefined = not given; null = None where the schema allows it
  const bool given = value != nullptr && typeOf(env, value) != napi_undefined;
  if (!given) {
    if (argument.fallback)
      stack.push_back(*argument.fallback);
    else if (argument.optional)
      stack.emplace_back();
    else
      throw ArgumentError("argument \"" + argument.name + "\" (" + argument.type + ") is missing");
    return;
  }
  if (argument.optional && isNullish(env, value)) {
    stack.emplace_back();
    return;
  }
  try {
    stack.push_back(argument.list ? list(env, value, argument) : single(env, value, argument));
  } catch (const ArgumentError& error) {
    throw ArgumentError("argument \"" + argument.name + "\" (" + argument.type + "): " + error.what());
  }
}

napi_value wrap(napi_env env, const IValue& value) {
  if (value.isNone()) return null(env);
  if (value.isTensor()) return fromTensor(env, value.toTensor());
  if (value.isInt()) return fromInt(env, value.toInt());
  if (value.isDouble()) return fromDouble(env, value.toDouble());
  if (value.isBool()) return fromBool(env, value.toBool());
  if (value.isString()) return fromString(env, value.toStringRef());
  if (value.isDevice()) return fromString(env, value.toDevice().str());
  if (value.isScalar()) return fromScalar(env, value.toScalar());
  if (value.isSymInt()) return fromInt(env, value.toSymInt().guard_int(__FILE__, __LINE__));
  std::vector<napi_value> items;
  if (value.isList()) {
    for (const IValue& item : value.toListRef()) items.push_back(wrap(env, item));
    return arrayOf(env, items);
  }
  if (value.isTuple()) {
    for (const IValue& item : value.toTupleRef().elements()) items.push_back(wrap(env, item));
    return arrayOf(env, items);
  }
  throw ArgumentError("a result of kind " + value.tagKind() + " cannot be handed to JavaScript");
}

napi_value resolve(napi_env env, Args& args) {
  const std::string name = toString(env, args[0]), overload = toString(env, args[1]);
  auto handle = c10::Dispatcher::singleton().findSchema({name, overload});
  if (!handle.has_value()) return null(env);
  Operator op{*handle, {}, {}};
  const auto& schema = handle->schema();
  std::vector<napi_value> arguments, returns;
  for (const auto& source : schema.arguments()) {
    Argument argument = describe(source);
    argument.check = checkFor(schema, argument.name);
    arguments.push_back(
        object(env, {
                        {"name", fromString(env, argument.name)},
                        {"type", fromString(env, argument.type)},
                        {"tensor", fromBool(env, argument.kind == TypeKind::TensorType || argument.kind == TypeKind::StorageType)},
                        {"generator", fromBool(env, argument.kind == TypeKind::GeneratorType)},
                        {"list", fromBool(env, argument.list)},
                        {"written", fromBool(env, argument.written)},
                        {"kwargOnly", fromBool(env, argument.kwargOnly)},
                        {"required", fromBool(env, !argument.fallback && !argument.optional)},
                    }));
    op.arguments.push_back(argument);
  }
  for (const auto& source : schema.returns()) {
    int from = -1;
    const auto* alias = source.alias_info();
    if (alias != nullptr && alias->isWrite()) {
      for (size_t i = 0; i < schema.arguments().size(); i++) {
        const auto* other = schema.arguments()[i].alias_info();
        if (other != nullptr && other->isWrite() && other->beforeSets() == alias->beforeSets()) from = static_cast<int>(i);
      }
    }
    op.returnsArgument.push_back(from);
    returns.push_back(object(env, {{"type", fromString(env, source.type()->str())}, {"argument", fromInt(env, from)}}));
  }
  op.check = walksInStep(name) ? checkInStep : takesRepeats(schema) ? checkRepeats : nullptr;
  if (op.check == nullptr) op.direct = directCall(*handle, op.arguments);
  const bool direct = op.direct != nullptr;
  operators().push_back(std::move(op));
  std::ostringstream text;
  text << schema;
  return object(env, {{"id", fromInt(env, static_cast<int64_t>(operators().size()) - 1)},
                      {"schema", fromString(env, text.str())},
                      {"direct", fromBool(env, direct)},
                      {"arguments", arrayOf(env, arguments)},
                      {"returns", arrayOf(env, returns)}});
}

const Operator& operatorAt(napi_env env, napi_value value) {
  const int64_t id = toInt(env, value);
  if (id < 0 || static_cast<size_t>(id) >= operators().size()) throw ArgumentError("not an operator");
  return operators()[id];
}

// Calls the operator. One result is returned as it is, several as an array. A result that is one of the arguments (in-place and out=
// operators) is returned as undefined, since the caller already holds it.
napi_value run(napi_env env, torch::jit::Stack& stack, const Operator& op) {
  if (op.check != nullptr) op.check(op.handle.schema(), stack);
  const std::vector<int>& returns = op.returnsArgument;
  const NativeCall working;
  op.handle.callBoxed(&stack);
  if (stack.size() == 1) return returns[0] >= 0 ? undefined(env) : wrap(env, stack[0]);
  std::vector<napi_value> out;
  for (size_t i = 0; i < stack.size(); i++) out.push_back(returns[i] >= 0 ? undefined(env) : wrap(env, stack[i]));
  return stack.empty() ? undefined(env) : arrayOf(env, out);
}

// call(id, ...arguments by position). Omitted arguments take the schema's defaults.
napi_value call(napi_env env, Args& args) {
  const Operator& op = operatorAt(env, args[0]);
  const size_t given = args.count - 1, wanted = op.arguments.size();
  if (given > wanted) throw ArgumentError("takes " + std::to_string(wanted) + " arguments, got " + std::to_string(given));
  torch::jit::Stack stack;
  stack.reserve(wanted);
  for (size_t i = 0; i < wanted; i++) push(env, stack, op.arguments[i], i < given ? args.values[i + 1] : nullptr);
  return run(env, stack, op);
}

double* frame = nullptr;

// useFrame(Float64Array): where the arguments of `callDirect` will be. A reference keeps it alive.
napi_value useFrame(napi_env env, Args& args) {
  napi_typedarray_type type;
  size_t length = 0;
  void* data = nullptr;
  ok(env, napi_get_typedarray_info(env, args[0], &type, &length, &data, nullptr, nullptr), "expected a Float64Array");
  if (type != napi_float64_array || length != kFrameLength)
    throw ArgumentError("expected a Float64Array of " + std::to_string(kFrameLength));
  napi_ref reference;
  ok(env, napi_create_reference(env, args[0], 1, &reference), "cannot hold the frame");
  frame = static_cast<double*>(data);
  return undefined(env);
}

// Calls the operator with the arguments in the frame; the frame's first double gives the outcome.
napi_value callDirect(napi_env env) {
  if (frame == nullptr) throw ArgumentError("there is no frame");
  const double id = frame[0];
  if (!(id >= 0 && id < static_cast<double>(operators().size()))) throw ArgumentError("not an operator");
  const Operator& op = operators()[static_cast<size_t>(id)];
  if (op.direct != nullptr) return op.direct->run(env, frame, op.arguments);
  frame[0] = static_cast<double>(Outcome::declined);
  return nullptr;
}

napi_value overloads(napi_env env, Args& args) {
  const std::string name = toString(env, args[0]);
  std::vector<napi_value> out;
  for (const auto& found : c10::Dispatcher::singleton().getAllOpNames())
    if (name.empty() || found.name == name)
      out.push_back(fromString(env, found.overload_name.empty() ? found.name : found.name + "." + found.overload_name));
  return arrayOf(env, out);
}

}  // namespace

void forgetFrame() { frame = nullptr; }

std::vector<Export> dispatchExports() {
  return {{"resolve", door<resolve>},
          {"call", door<call>},
          {"useFrame", door<useFrame>},
          {"callDirect", doorWithout<callDirect>},
          {"dtypeCodes", doorWithout<dtypeNumbers>},
          {"overloads", door<overloads>}};
}

}  // namespace attune
