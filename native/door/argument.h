// What an operator's schema says of one argument, in the form that conversions from JavaScript need.
#pragma once
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <memory>
#include <string>

namespace attune {

using SizeCheck = void (*)(c10::IntArrayRef);

struct Argument {
  std::string name;
  c10::TypeKind kind = c10::TypeKind::NoneType;  // of the value, or of a list's elements
  c10::TypeKind named = c10::TypeKind::NoneType;  // dtype, layout or memory format: an int in the schema, a name in JavaScript
  bool list = false, optional = false, optionalElements = false, kwargOnly = false;
  int32_t length = 0;  // of a fixed-size list such as int[2], which also takes one number for all elements; else 0
  bool written = false;  // the operator changes it
  SizeCheck check = nullptr;  // for a list of integers that libtorch does not check (endless.h)
  std::string type;  // as the schema writes it
  std::shared_ptr<c10::IValue> fallback;  // the schema's default
  c10::TypePtr elementType;
};

}  // namespace attune
