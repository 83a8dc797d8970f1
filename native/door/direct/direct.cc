#include "door/direct/direct.h"

#include <tuple>

#include "door/calls.h"
#include "door/direct/parameters.h"

namespace attune {
namespace {

void settle(double* frame, Outcome outcome) { frame[0] = static_cast<double>(outcome); }

napi_value give(napi_env, double* frame, at::Tensor&& result) {
  if (result.defined())
    frame[0] = static_cast<double>(keep(std::move(result)));
  else
    settle(frame, Outcome::null);
  return nullptr;
}

/** In place: the caller already holds the result. */
napi_value give(napi_env, double* frame, at::Tensor&) {
  settle(frame, Outcome::returned);
  return nullptr;
}

napi_value give(napi_env env, double* frame, std::vector<at::Tensor>&& results) {
  settle(frame, Outcome::returned);
  std::vector<napi_value> out;
  out.reserve(results.size());
  for (at::Tensor& each : results) out.push_back(fromTensor(env, std::move(each)));
  return arrayOf(env, out);
}

template <typename... Each>
napi_value give(napi_env env, double* frame, std::tuple<Each...>&& results) {
  settle(frame, Outcome::returned);
  return std::apply([&](auto&... each) { return arrayOf(env, {fromTensor(env, std::move(each))...}); }, results);
}

// The schema's name for a C++ return type.
template <typename R>
struct Returned;
template <>
struct Returned<at::Tensor> {
  static bool fits(const std::vector<c10::Argument>& all) { return all.size() == 1 && all[0].type()->str() == "Tensor"; }
};
template <>
struct Returned<at::Tensor&> : Returned<at::Tensor> {};
template <>
struct Returned<std::vector<at::Tensor>> {
  static bool fits(const std::vector<c10::Argument>& all) { return all.size() == 1 && all[0].type()->str() == "Tensor[]"; }
};
template <typename... Each>
struct Returned<std::tuple<Each...>> {
  static bool fits(const std::vector<c10::Argument>& all) {
    if (all.size() != sizeof...(Each)) return false;
    for (const auto& each : all)
      if (each.type()->str() != "Tensor") return false;
    return true;
  }
};

template <typename F>
class Direct;

template <typename R, typename... P>
class Direct<R(P...)> final : public DirectCall {
 public:
  explicit Direct(const c10::OperatorHandle& handle) : handle_(handle.typed<R(P...)>()) {}

  static bool fits(const c10::FunctionSchema& schema, const std::vector<Argument>& arguments) {
    return arguments.size() == sizeof...(P) && Returned<R>::fits(schema.returns()) && fitsEach(arguments, std::index_sequence_for<P...>());
  }

  napi_value run(napi_env env, double* frame, const std::vector<Argument>& arguments) const override {
    return runEach(env, frame, arguments, std::index_sequence_for<P...>());
  }

 private:
  template <size_t... I>
  static bool fitsEach(const std::vector<Argument>& arguments, std::index_sequence<I...>) {
    return ((arguments[I].type == Parameter<P>::type() && arguments[I].written == Parameter<P>::written) && ...);
  }

  template <size_t... I>
  napi_value runEach(napi_env env, double* frame, const std::vector<Argument>& arguments, std::index_sequence<I...>) const {
    Entries entries(frame);
    std::tuple<Parameter<P>...> parameters;
    if (!(std::get<I>(parameters).read(entries.next(), arguments[I]) && ...) || entries.left() > 0) {
      settle(frame, Outcome::declined);
      return nullptr;
    }
    const NativeCall working;
    return give(env, frame, handle_.call(std::get<I>(parameters).value()...));
  }

  c10::TypedOperatorHandle<R(P...)> handle_;
};

template <typename... F>
struct Signatures {};

using T = at::Tensor;
using In = const at::Tensor&;
using Out = at::Tensor&;
using InOrNone = const c10::optional<at::Tensor>&;
using Number = const at::Scalar&;
using NumberOrNone = const c10::optional<at::Scalar>&;
using Int = int64_t;
using Size = c10::SymInt;
using Ints = c10::IntArrayRef;
using IntsOrNone = at::OptionalIntArrayRef;
using Sizes = c10::SymIntArrayRef;
using Type = c10::optional<at::ScalarType>;
using Memory = c10::optional<at::Layout>;
using Place = c10::optional<at::Device>;
using Pinned = c10::optional<bool>;
using Format = c10::optional<at::MemoryFormat>;
using Pair = std::tuple<T, T>;
using Tensors = std::vector<T>;
template <typename P>
using Maybe = c10::optional<P>;

// The signatures of the operators that src/ calls, on libtorch 1.13 and on 2.x, where more sizes are symbolic.
using InUse = Signatures<
    // element by element
    T(In), T(In, In), T(In, Number), T(In, In, Number), T(In, Number, Number), T(In, NumberOrNone, NumberOrNone), T(In, In, In),
    // in place
    Out(Out), Out(Out, In), Out(Out, Number), Out(Out, In, Number), Out(Out, Number, Number), Out(Out, In, In, Number),
    Out(Out, In, In, Number, Number), Out(Out, NumberOrNone, NumberOrNone), Out(Out, In, bool), Out(Out, Int, In, In),
    Out(Out, Int, In, In, Number), Out(Out, double, double, Maybe<at::Generator>),
    // reductions
    T(In, Type), T(In, IntsOrNone, bool, Type), T(In, Ints, bool), T(In, Maybe<Int>, bool), T(In, Int, Type),
    T(In, Number, IntsOrNone, bool, Type), T(In, bool), T(In, IntsOrNone, bool, bool), Pair(In, Int, bool), Pair(In, Int, Int, bool, bool),
    Pair(In, Size, Int, bool, bool),
    // shape
    T(In, Int), T(In, Int, Int), T(In, Int, Size), T(In, Size, Size), T(In, Ints), T(In, Sizes), T(In, Sizes, bool), T(In, Int, Int, Int),
    T(In, Int, Size, Size), T(In, Int, Maybe<Size>, Maybe<Size>, Size), T(In, Int, Maybe<Int>, Maybe<Int>),
    T(In, Size, Maybe<Int>, Maybe<Size>), T(In, Sizes, Sizes), Tensors(In, Int), Tensors(In, Int, Int), Tensors(In, Size, Int),
    Tensors(In, Ints, Int), Tensors(In, Sizes, Int), T(at::TensorList, Int), T(const at::ITensorListRef&, Int),
    // picking
    T(In, Int, In), T(In, Int, In, bool), T(In, Int, In, In, Number), T(In, In, Int, bool, bool), T(In, In, Size, bool, bool),
    T(In, const c10::List<Maybe<T>>&),
    // new tensors and copies
    T(In, Format), T(In, at::MemoryFormat), T(In, at::ScalarType), T(In, Type, Memory, Place, Pinned, Format),
    T(In, Type, Memory, Place, Pinned, bool, bool, Format), T(Ints, Type, Memory, Place, Pinned), T(Sizes, Type, Memory, Place, Pinned),
    T(Sizes, Type, Memory, Place, Pinned, Format), T(Sizes, Number, Type, Memory, Place, Pinned),
    T(Number, Number, Number, Type, Memory, Place, Pinned),
    // layers
    T(In, In, InOrNone), T(In, In, double), T(In, In, In, bool), T(In, double, bool), T(In, Ints, InOrNone, InOrNone, double, bool),
    T(In, Sizes, InOrNone, InOrNone, double, bool), Pair(In, In, In, double, Int, bool),
    T(In, In, In, Ints, double, Int, InOrNone, double, Ints)>;

/** The direct call for one signature, if the schema has it and libtorch has registered the operator with it. */
template <typename F>
std::unique_ptr<const DirectCall> withSignature(const c10::OperatorHandle& handle, const std::vector<Argument>& arguments) {
  if (!Direct<F>::fits(handle.schema(), arguments)) return nullptr;
  try {
    return std::make_unique<const Direct<F>>(handle);
  } catch (const c10::Error&) {  // the same schema, other C++ types
    return nullptr;
  }
}

template <typename... F>
std::unique_ptr<const DirectCall> firstOf(Signatures<F...>, const c10::OperatorHandle& handle, const std::vector<Argument>& arguments) {
  std::unique_ptr<const DirectCall> found;
  (void)((found = withSignature<F>(handle, arguments)) || ...);
  return found;
}

}  // namespace

std::unique_ptr<const DirectCall> directCall(const c10::OperatorHandle& handle, const std::vector<Argument>& arguments) {
  for (const Argument& argument : arguments)
    if (argument.list && argument.check != nullptr) return nullptr;  // the boxed call checks
  return firstOf(InUse(), handle, arguments);
}

}  // namespace attune
