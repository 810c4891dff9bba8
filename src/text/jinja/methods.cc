// The methods that values have in Python (those of str are in methods_text.cc). What would change a list or dict
// exists but may not be called, as in jinja2's immutable sandbox.
#include "text/jinja/methods.h"

#include <algorithm>
#include <span>

#include "text/jinja/ops.h"

namespace nibble::text::jinja {
namespace {

// --- dict, list, tuple ----------------------------------------------------------------------------------------------

Value dict_get(Runtime& runtime, const Value& self, const Args& args) {
  if (!args.named.empty()) fail("dict.get() takes no keyword arguments");
  const Bound bound = bind("get", args, {"key", "default"}, 1);
  const Value* found = self.dict().find(runtime, *bound[0]);
  return found != nullptr ? *found : bound[1].value_or(Value::none());
}

template <DictView::Part kPart>
Value dict_view(Runtime& runtime, const Value& self, const Args& args) {
  bind("dict view", args, {});
  return Value(Kind::kDictView, std::make_shared<DictView>(&runtime, self, kPart));
}

Value copy_self(Runtime&, const Value& self, const Args& args) {
  bind("copy", args, {});
  return self;  // nothing can change it
}

Value sequence_index(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("index", args, {"value", "start", "stop"}, 1);
  if (bound[1] || bound[2]) fail("index() with bounds is not supported");
  for (std::size_t i = 0; i < self.items().size(); ++i) {
    if (equals(runtime, self.items()[i], *bound[0])) return Value::integer(static_cast<std::int64_t>(i));
  }
  fail("value is not in the " + type_name(self));
}

Value sequence_count(Runtime& runtime, const Value& self, const Args& args) {
  const Bound bound = bind("count", args, {"value"}, 1);
  std::int64_t n = 0;
  for (const Value& item : self.items()) n += equals(runtime, item, *bound[0]) ? 1 : 0;
  return Value::integer(n);
}

// --- Tables ---------------------------------------------------------------------------------------------------------

constexpr NamedMethod kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<DictView::Part::kItems>},
    {"keys", dict_view<DictView::Part::kKeys>},
    {"values", dict_view<DictView::Part::kValues>},
    {"copy", copy_self},
};
constexpr std::string_view kUnsafeDictMethods[] = {"clear", "pop", "popitem", "setdefault", "update"};

constexpr NamedMethod kListMethods[] = {{"index", sequence_index}, {"count", sequence_count}, {"copy", copy_self}};
constexpr NamedMethod kTupleMethods[] = {{"index", sequence_index}, {"count", sequence_count}};
constexpr std::string_view kUnsafeListMethods[] = {"append", "clear",  "pop",    "reverse",
                                                   "insert", "remove", "extend", "sort"};

// Fields of numbers. The methods exist, so that `is defined` is true of them.
constexpr std::string_view kIntMethods[] = {"as_integer_ratio", "bit_count",  "bit_length", "conjugate",
                                            "from_bytes",       "is_integer", "to_bytes"};
constexpr std::string_view kFloatMethods[] = {"as_integer_ratio", "conjugate", "fromhex", "hex", "is_integer"};

std::optional<Value> find_number_field(const Value& number, std::string_view name) {
  const bool is_float = number.is(Kind::kFloat);
  if (name == "real") return is_float ? number : Value::integer(number.integer_value());
  if (name == "imag") return is_float ? Value::real(0.0) : Value::integer(0);
  if (name == "numerator" && !is_float) return Value::integer(number.integer_value());
  if (name == "denominator" && !is_float) return Value::integer(1);
  return std::nullopt;
}

constexpr const char* kMethodType = "builtin_function_or_method";

std::optional<Value> lookup(Runtime& runtime, const Value& self, std::string_view name,
                            std::span<const NamedMethod> methods, std::span<const std::string_view> unsafe,
                            std::span<const std::string_view> unsupported) {
  for (const NamedMethod& entry : methods) {
    if (entry.name != name) continue;
    const auto method = entry.method;
    const auto body = [method, self](Runtime& r, const Args& args) { return method(r, self, args); };
    return Value(Kind::kHost, std::make_shared<Function>(&runtime, kMethodType, body, nesting_of(self) + 1));
  }
  if (std::find(unsafe.begin(), unsafe.end(), name) != unsafe.end()) {
    return runtime.undefined("access to attribute '" + std::string(name) + "' of '" + type_name(self) +
                             "' object is unsafe.");
  }
  if (std::find(unsupported.begin(), unsupported.end(), name) == unsupported.end()) return std::nullopt;
  const std::string text = "method '" + std::string(name) + "' of '" + type_name(self) + "' is not supported";
  const auto body = [text](Runtime&, const Args&) -> Value { fail(text); };
  return Value(Kind::kHost, std::make_shared<Function>(&runtime, kMethodType, body));
}

}  // namespace

std::optional<Value> find_method(Runtime& runtime, const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString:
      return lookup(runtime, object, name, text_methods(), {}, unsupported_text_methods());
    case Kind::kDict:
      return lookup(runtime, object, name, kDictMethods, kUnsafeDictMethods, {});
    case Kind::kList:
      return lookup(runtime, object, name, kListMethods, kUnsafeListMethods, {});
    case Kind::kTuple:
      if (object.as<Sequence>().is_group && name == "grouper") return object.items()[0];
      if (object.as<Sequence>().is_group && name == "list") return object.items()[1];
      return lookup(runtime, object, name, kTupleMethods, {}, {});
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      if (std::optional<Value> field = find_number_field(object, name)) return field;
      if (object.is(Kind::kFloat)) return lookup(runtime, object, name, {}, {}, kFloatMethods);
      return lookup(runtime, object, name, {}, {}, kIntMethods);
    default:
      return std::nullopt;
  }
}

}  // namespace nibble::text::jinja
