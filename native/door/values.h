// Plain JavaScript values to C++ and back.
#pragma once
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "door/door.h"

namespace attune {

int64_t toInt(napi_env env, napi_value value);
double toDouble(napi_env env, napi_value value);
bool toBool(napi_env env, napi_value value);
std::string toString(napi_env env, napi_value value);
c10::Scalar toScalar(napi_env env, napi_value value);
/** An integral number as an integer, any other as a double. */
c10::Scalar scalarOf(double number);
bool isNullish(napi_env env, napi_value value);
bool isArray(napi_env env, napi_value value);
napi_valuetype typeOf(napi_env env, napi_value value);
std::vector<napi_value> elements(napi_env env, napi_value value);
std::vector<int64_t> toInts(napi_env env, napi_value value);

napi_value fromInt(napi_env env, int64_t value);
napi_value fromDouble(napi_env env, double value);
napi_value fromBool(napi_env env, bool value);
napi_value fromString(napi_env env, const std::string& value);
napi_value fromScalar(napi_env env, const c10::Scalar& value);
napi_value null(napi_env env);
napi_value undefined(napi_env env);
napi_value arrayOf(napi_env env, const std::vector<napi_value>& values);
napi_value object(napi_env env, const std::vector<std::pair<const char*, napi_value>>& fields);

c10::ScalarType dtypeFromName(const std::string& name);
const char* dtypeName(c10::ScalarType type);
/** {name: number} of the dtypes that PyTorch names. */
napi_value dtypeNumbers(napi_env env);
/** The bytes of a contiguous tensor; throws on overflow of 63 bits. */
int64_t checkedBytes(const std::vector<int64_t>& shape, c10::ScalarType dtype);

}  // namespace attune
