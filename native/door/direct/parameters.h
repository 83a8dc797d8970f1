// The parameters of C++ signatures, each read from one entry of a frame. `read` returns false for anything that does not plainly match the
// schema: a wrong kind, a freed tensor, an integer with a fraction. The operator is then called boxed, whose conversions (dispatch.cc)
// accept it or word the error. `type` is the schema's name for the C++ type.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cmath>

#include "door/argument.h"
#include "door/checks/readable.h"
#include "door/direct/frame.h"

namespace attune {

/** The handle's tensor if an operator can read it directly; null if the boxed call has to look closer. */
inline const at::Tensor* plainTensor(double handle) {
  const at::Tensor* tensor = findTensor(handle);
  return tensor != nullptr && tensor->numel() != 0 && hasMemory(*tensor) ? tensor : nullptr;
}

inline bool asInteger(double number, int64_t& out) {
  if (number != std::floor(number) || !(std::fabs(number) <= 9007199254740992.0)) return false;
  out = static_cast<int64_t>(number);
  return true;
}

/** The schema's default, if the argument is absent and its default is not None. */
inline const c10::IValue* defaultOf(const Entry& entry, const Argument& argument) {
  return entry.tag == Tag::absent && argument.fallback && !argument.fallback->isNone() ? argument.fallback.get() : nullptr;
}

template <typename P>
struct Parameter;

template <>
struct Parameter<const at::Tensor&> {
  static std::string type() { return "Tensor"; }
  static constexpr bool written = false;
  const at::Tensor* tensor = nullptr;
  bool read(const Entry& entry, const Argument&) {
    if (entry.tag == Tag::tensor) tensor = plainTensor(entry.value());
    return tensor != nullptr;
  }
  const at::Tensor& value() const { return *tensor; }
};

/** Owns its tensor, because an operator that writes may replace it. */
template <>
struct Parameter<at::Tensor> {
  static std::string type() { return "Tensor"; }
  static constexpr bool written = false;
  at::Tensor tensor;
  bool read(const Entry& entry, const Argument&) {
    const at::Tensor* found = entry.tag == Tag::tensor ? plainTensor(entry.value()) : nullptr;
    if (found != nullptr) tensor = *found;
    return found != nullptr;
  }
  at::Tensor& value() { return tensor; }
};

template <>
struct Parameter<at::Tensor&> : Parameter<at::Tensor> {
  static constexpr bool written = true;
};

template <>
struct Parameter<int64_t> {
  static std::string type() { return "int"; }
  static constexpr bool written = false;
  int64_t number = 0;
  bool read(const Entry& entry, const Argument& argument) {
    if (entry.tag == Tag::number) return asInteger(entry.value(), number);
    const c10::IValue* given = defaultOf(entry, argument);
    if (given == nullptr || !given->isInt()) return false;
    number = given->toInt();
    return true;
  }
  int64_t value() const { return number; }
};

template <>
struct Parameter<c10::SymInt> : Parameter<int64_t> {
  static std::string type() { return "SymInt"; }
  c10::SymInt value() const { return c10::SymInt(number); }
};

template <>
struct Parameter<double> {
  static std::string type() { return "float"; }
  static constexpr bool written = false;
  double number = 0;
  bool read(const Entry& entry, const Argument& argument) {
    const c10::IValue* given = defaultOf(entry, argument);
    if (entry.tag == Tag::number)
      number = entry.value();
    else if (given != nullptr && given->isDouble())
      number = given->toDouble();
    else
      return false;
    return true;
  }
  double value() const { return number; }
};

template <>
struct Parameter<bool> {
  static std::string type() { return "bool"; }
  static constexpr bool written = false;
  bool flag = false;
  bool read(const Entry& entry, const Argument& argument) {
    const c10::IValue* given = defaultOf(entry, argument);
    if (entry.tag == Tag::boolean)
      flag = entry.value() != 0;
    else if (given != nullptr && given->isBool())
      flag = given->toBool();
    else
      return false;
    return true;
  }
  bool value() const { return flag; }
};

template <>
struct Parameter<at::Scalar> {
  static std::string type() { return "Scalar"; }
  static constexpr bool written = false;
  at::Scalar number;
  bool read(const Entry& entry, const Argument& argument) {
    const c10::IValue* given = defaultOf(entry, argument);
    if (entry.tag == Tag::number)
      number = scalarOf(entry.value());
    else if (entry.tag == Tag::boolean)
      number = at::Scalar(entry.value() != 0);
    else if (given != nullptr && given->isScalar())
      number = given->toScalar();
    else
      return false;
    return true;
  }
  const at::Scalar& value() const { return number; }
};

template <>
struct Parameter<const at::Scalar&> : Parameter<at::Scalar> {};

// A number in the schema. JavaScript gives dtypes and devices by name, and frame.ts replaces the names by their numbers.
template <typename E>
struct Enumeration {
  static constexpr bool written = false;
  E number{};
  bool read(const Entry& entry, const Argument& argument) {
    const c10::IValue* given = defaultOf(entry, argument);
    if (given == nullptr || !given->isInt()) return false;
    number = static_cast<E>(given->toInt());
    return true;
  }
  E value() const { return number; }
};

template <>
struct Parameter<at::ScalarType> : Enumeration<at::ScalarType> {
  static std::string type() { return "ScalarType"; }
  bool read(const Entry& entry, const Argument& argument) {
    if (entry.tag != Tag::dtype) return Enumeration::read(entry, argument);
    const double code = entry.value();
    if (!(code >= 0 && code < static_cast<double>(at::ScalarType::Undefined))) return false;
    number = static_cast<at::ScalarType>(code);
    return true;
  }
};

template <>
struct Parameter<at::Layout> : Enumeration<at::Layout> {
  static std::string type() { return "Layout"; }
};

template <>
struct Parameter<at::MemoryFormat> : Enumeration<at::MemoryFormat> {
  static std::string type() { return "MemoryFormat"; }
};

/** −2 is the CPU, −1 the current CUDA device, else the CUDA device with that number. */
template <>
struct Parameter<at::Device> {
  static std::string type() { return "Device"; }
  static constexpr bool written = false;
  at::Device device = at::kCPU;
  bool read(const Entry& entry, const Argument&) {
    if (entry.tag != Tag::device || !(entry.value() >= -2 && entry.value() < 128)) return false;
    const auto code = static_cast<int>(entry.value());
    if (code >= -1) device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(code));
    return true;
  }
  at::Device value() const { return device; }
};

/** Can only be omitted. */
template <>
struct Parameter<at::Generator> {
  static std::string type() { return "Generator"; }
  static constexpr bool written = false;
  bool read(const Entry&, const Argument&) { return false; }
  at::Generator value() const { return {}; }
};

template <>
struct Parameter<c10::IntArrayRef> {
  static std::string type() { return "int[]"; }
  static constexpr bool written = false;
  c10::SmallVector<int64_t, 8> numbers;
  bool read(const Entry& entry, const Argument& argument) {
    if (entry.tag != Tag::numbers && !(entry.tag == Tag::number && argument.length > 0)) return readDefault(entry, argument);
    numbers.resize(entry.count);
    for (size_t i = 0; i < entry.count; i++)
      if (!asInteger(entry.values[i], numbers[i])) return false;
    if (argument.length <= 1) return true;
    const auto wanted = static_cast<size_t>(argument.length);  // int[2]: one number counts for both
    if (numbers.size() == 1) numbers.resize(wanted, numbers[0]);
    return numbers.size() == wanted;
  }
  c10::IntArrayRef value() const { return numbers; }

 private:
  bool readDefault(const Entry& entry, const Argument& argument) {
    const c10::IValue* given = defaultOf(entry, argument);
    if (given == nullptr || !given->isIntList()) return false;
    for (const int64_t number : given->toIntVector()) numbers.push_back(number);
    return true;
  }
};

template <>
struct Parameter<c10::SymIntArrayRef> : Parameter<c10::IntArrayRef> {
  static std::string type() { return "SymInt[]"; }
  c10::SmallVector<c10::SymInt, 8> symbols;
  c10::SymIntArrayRef value() {
    for (const int64_t number : numbers) symbols.emplace_back(number);
    return symbols;
  }
};

template <>
struct Parameter<at::TensorList> {
  static std::string type() { return "Tensor[]"; }
  static constexpr bool written = false;
  c10::SmallVector<at::Tensor, 8> tensors;
  bool read(const Entry& entry, const Argument&) {
    if (entry.tag != Tag::tensors) return false;
    for (size_t i = 0; i < entry.count; i++) {
      const at::Tensor* tensor = plainTensor(entry.values[i]);
      if (tensor == nullptr) return false;
      tensors.push_back(*tensor);
    }
    return true;
  }
  at::TensorList value() const { return tensors; }
};

template <>
struct Parameter<const at::ITensorListRef&> : Parameter<at::TensorList> {
  at::ITensorListRef list;
  const at::ITensorListRef& value() {
    list = at::ITensorListRef(at::TensorList(tensors));
    return list;
  }
};

/** A parameter that may be omitted; `Optional` is libtorch's type for it. */
template <typename P, typename Optional>
struct OptionalParameter {
  static std::string type() { return Parameter<P>::type() + "?"; }
  static constexpr bool written = false;
  Parameter<P> inner;
  bool given = false;
  bool read(const Entry& entry, const Argument& argument) {
    if (entry.tag == Tag::none || (entry.tag == Tag::absent && defaultOf(entry, argument) == nullptr)) return true;
    given = true;
    return inner.read(entry, argument);
  }
  Optional value() { return given ? Optional(inner.value()) : Optional(); }
};

template <typename P>
struct Parameter<c10::optional<P>> : OptionalParameter<P, c10::optional<P>> {};

template <typename P>
struct Parameter<const c10::optional<P>&> : Parameter<c10::optional<P>> {};

template <>
struct Parameter<at::OptionalIntArrayRef> : OptionalParameter<c10::IntArrayRef, at::OptionalIntArrayRef> {};

/** The list of `x[rows, :, columns]`, with null for a dimension that is not indexed. */
template <>
struct Parameter<const c10::List<c10::optional<at::Tensor>>&> {
  static std::string type() { return "Tensor?[]"; }
  static constexpr bool written = false;
  c10::List<c10::optional<at::Tensor>> tensors;
  bool read(const Entry& entry, const Argument&) {
    if (entry.tag != Tag::tensors) return false;
    for (size_t i = 0; i < entry.count; i++) {
      const bool none = entry.values[i] == -1;
      const at::Tensor* tensor = none ? nullptr : plainTensor(entry.values[i]);
      if (tensor == nullptr && !none) return false;
      tensors.push_back(none ? c10::optional<at::Tensor>() : c10::optional<at::Tensor>(*tensor));
    }
    return true;
  }
  const c10::List<c10::optional<at::Tensor>>& value() const { return tensors; }
};

}  // namespace attune
