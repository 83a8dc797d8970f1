#include "door/values.h"

#include <torch/version.h>

#include <cmath>
#include <limits>

#define ATTUNE_TORCH (TORCH_VERSION_MAJOR * 10000 + TORCH_VERSION_MINOR * 100)

namespace attune {

std::string plainMessage(const c10::Error& error) {
  std::string text = error.what_without_backtrace();
  // cut off: C++ frames, the list of all backends, advice to PyTorch developers
  for (const char* tail : {"\nException raised from", " This could be because the operator doesn't exist for this backend"}) {
    const auto cut = text.find(tail);
    if (cut != std::string::npos) text.resize(cut);
  }
  // libtorch names the Python function; ours has another name
  const auto mode = text.find(", but you set 'torch.use_deterministic_algorithms(True)'");
  if (mode != std::string::npos) text = text.substr(0, mode) + ", which setDeterministic(true) asks for";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

napi_valuetype typeOf(napi_env env, napi_value value) {
  napi_valuetype type;
  ok(env, napi_typeof(env, value, &type), "cannot read a value's type");
  return type;
}

bool isNullish(napi_env env, napi_value value) {
  const auto type = typeOf(env, value);
  return type == napi_null || type == napi_undefined;
}

bool isArray(napi_env env, napi_value value) {
  bool array = false;
  napi_is_array(env, value, &array);
  return array;
}

static int64_t fromBigint(napi_env env, napi_value value) {
  int64_t out = 0;
  bool lossless = false;
  ok(env, napi_get_value_bigint_int64(env, value, &out, &lossless), "expected an integer");
  if (!lossless) throw ArgumentError("a bigint does not fit 64 bits");
  return out;
}

int64_t toInt(napi_env env, napi_value value) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) == napi_ok) {
    if (number != std::floor(number) || std::fabs(number) > 9007199254740992.0)
      throw ArgumentError("expected an integer, got " + std::to_string(number));
    return static_cast<int64_t>(number);
  }
  if (typeOf(env, value) == napi_bigint) return fromBigint(env, value);
  throw ArgumentError("expected an integer");
}

double toDouble(napi_env env, napi_value value) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) == napi_ok) return number;
  if (typeOf(env, value) == napi_bigint) return static_cast<double>(fromBigint(env, value));
  throw ArgumentError("expected a number");
}

bool toBool(napi_env env, napi_value value) {
  bool out = false;
  if (napi_get_value_bool(env, value, &out) != napi_ok) throw ArgumentError("expected true or false");
  return out;
}

std::string toString(napi_env env, napi_value value) {
  size_t length = 0;
  if (napi_get_value_string_utf8(env, value, nullptr, 0, &length) != napi_ok) throw ArgumentError("expected a string");
  std::string out(length, '\0');
  ok(env, napi_get_value_string_utf8(env, value, out.data(), length + 1, &length), "cannot read a string");
  return out;
}

// An integral JavaScript number becomes an integer scalar, so that integer tensors keep their dtype in `x.add(1)`. For
// floating-point tensors it makes no difference.
c10::Scalar scalarOf(double number) {
  const bool integral = number == std::floor(number) && std::fabs(number) <= 9007199254740992.0;
  if (integral && !(number == 0 && std::signbit(number))) return c10::Scalar(static_cast<int64_t>(number));
  return c10::Scalar(number);
}

c10::Scalar toScalar(napi_env env, napi_value value) {
  double number = 0;
  if (napi_get_value_double(env, value, &number) == napi_ok) return scalarOf(number);
  switch (typeOf(env, value)) {
    case napi_boolean: return c10::Scalar(toBool(env, value));
    case napi_bigint: return c10::Scalar(fromBigint(env, value));
    case napi_object: {
      napi_value re, im;
      bool hasRe = false, hasIm = false;
      napi_has_named_property(env, value, "re", &hasRe);
      napi_has_named_property(env, value, "im", &hasIm);
      if (hasRe && hasIm) {
        ok(env, napi_get_named_property(env, value, "re", &re), "cannot read re");
        ok(env, napi_get_named_property(env, value, "im", &im), "cannot read im");
        return c10::Scalar(c10::complex<double>(toDouble(env, re), toDouble(env, im)));
      }
      [[fallthrough]];
    }
    default: throw ArgumentError("expected a number, a bigint, a boolean or {re, im}");
  }
}

std::vector<napi_value> elements(napi_env env, napi_value value) {
  if (!isArray(env, value)) throw ArgumentError("expected an array");
  uint32_t length = 0;
  ok(env, napi_get_array_length(env, value, &length), "cannot read an array");
  std::vector<napi_value> out(length);
  for (uint32_t i = 0; i < length; i++) ok(env, napi_get_element(env, value, i, &out[i]), "cannot read an element");
  return out;
}

std::vector<int64_t> toInts(napi_env env, napi_value value) {
  std::vector<int64_t> out;
  for (napi_value element : elements(env, value)) out.push_back(toInt(env, element));
  return out;
}

napi_value fromInt(napi_env env, int64_t value) {
  napi_value out;
  constexpr int64_t kExact = 9007199254740991;  // JavaScript's numbers hold every integer up to this
  if (value >= -kExact && value <= kExact)
    ok(env, napi_create_int64(env, value, &out), "cannot make a number");
  else
    ok(env, napi_create_bigint_int64(env, value, &out), "cannot make a bigint");
  return out;
}

napi_value fromDouble(napi_env env, double value) {
  napi_value out;
  ok(env, napi_create_double(env, value, &out), "cannot make a number");
  return out;
}

napi_value fromBool(napi_env env, bool value) {
  napi_value out;
  ok(env, napi_get_boolean(env, value, &out), "cannot make a boolean");
  return out;
}

napi_value fromString(napi_env env, const std::string& value) {
  napi_value out;
  ok(env, napi_create_string_utf8(env, value.data(), value.size(), &out), "cannot make a string");
  return out;
}

napi_value fromScalar(napi_env env, const c10::Scalar& value) {
  if (value.isBoolean()) return fromBool(env, value.toBool());
  if (value.isIntegral(false)) return fromInt(env, value.toLong());
  if (value.isComplex()) {
    const auto number = value.toComplexDouble();
    return object(env, {{"re", fromDouble(env, number.real())}, {"im", fromDouble(env, number.imag())}});
  }
  return fromDouble(env, value.toDouble());
}

napi_value null(napi_env env) {
  napi_value out;
  napi_get_null(env, &out);
  return out;
}

napi_value undefined(napi_env env) {
  napi_value out;
  napi_get_undefined(env, &out);
  return out;
}

napi_value arrayOf(napi_env env, const std::vector<napi_value>& values) {
  napi_value out;
  ok(env, napi_create_array_with_length(env, values.size(), &out), "cannot make an array");
  for (size_t i = 0; i < values.size(); i++) ok(env, napi_set_element(env, out, i, values[i]), "cannot fill an array");
  return out;
}

napi_value object(napi_env env, const std::vector<std::pair<const char*, napi_value>>& fields) {
  napi_value out;
  ok(env, napi_create_object(env, &out), "cannot make an object");
  for (const auto& [name, value] : fields) ok(env, napi_set_named_property(env, out, name, value), "cannot fill an object");
  return out;
}

struct NamedType {
  const char* name;
  c10::ScalarType type;
};

static constexpr NamedType kTypes[] = {
    {"float32", c10::ScalarType::Float},
    {"float64", c10::ScalarType::Double},
    {"float16", c10::ScalarType::Half},
    {"bfloat16", c10::ScalarType::BFloat16},
    {"int64", c10::ScalarType::Long},
    {"int32", c10::ScalarType::Int},
    {"int16", c10::ScalarType::Short},
    {"int8", c10::ScalarType::Char},
    {"uint8", c10::ScalarType::Byte},
    {"bool", c10::ScalarType::Bool},
    {"complex64", c10::ScalarType::ComplexFloat},
    {"complex128", c10::ScalarType::ComplexDouble},
#if ATTUNE_TORCH >= 20100
    {"float8_e4m3fn", c10::ScalarType::Float8_e4m3fn},
    {"float8_e5m2", c10::ScalarType::Float8_e5m2},
#endif
#if ATTUNE_TORCH >= 20300
    {"uint16", c10::ScalarType::UInt16},
    {"uint32", c10::ScalarType::UInt32},
    {"uint64", c10::ScalarType::UInt64},
#endif
};

c10::ScalarType dtypeFromName(const std::string& name) {
  for (const auto& entry : kTypes)
    if (name == entry.name) return entry.type;
  // other dtypes by the names that ATen prints, such as QInt8
  for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); i++)
    if (name == c10::toString(static_cast<c10::ScalarType>(i))) return static_cast<c10::ScalarType>(i);
  throw ArgumentError("this libtorch has no dtype \"" + name + "\"");
}

const char* dtypeName(c10::ScalarType type) {
  for (const auto& entry : kTypes)
    if (type == entry.type) return entry.name;
  return c10::toString(type);
}

napi_value dtypeNumbers(napi_env env) {
  std::vector<std::pair<const char*, napi_value>> fields;
  for (const auto& entry : kTypes) fields.emplace_back(entry.name, fromInt(env, static_cast<int64_t>(entry.type)));
  return object(env, fields);
}

int64_t checkedBytes(const std::vector<int64_t>& shape, c10::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(dtype));
  for (int64_t size : shape) {
    if (size < 0) throw ArgumentError("a shape has a negative size");
    if (__builtin_mul_overflow(bytes, size, &bytes)) throw ArgumentError("a shape is too large");
  }
  return bytes;
}

}  // namespace attune
